"""Several listeners of one edge broker, as it is told of them by Kafka's keys.

Must never come in: which listeners a test wants, and what else each is told.
"""

from __future__ import annotations

from collections.abc import Mapping


def listener_settings(
    protocols: Mapping[str, str], ports: Mapping[str, int], advertised: Mapping[str, str] | None = None
) -> dict[str, str | int]:
    """The keys for listeners by name, on loopback; clients are told 127.0.0.1, or the host that `advertised` says."""
    told = advertised or {}
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:{ports[name]}" for name in protocols),
        "advertised.listeners": ",".join(f"{name}://{told.get(name, '127.0.0.1')}:{ports[name]}" for name in protocols),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
    }
