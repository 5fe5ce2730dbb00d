"""The edge broker with the listeners of `secured_kafka.py`: the same clients get in, one user from the start on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support import runtimes
from tests.support.certificates import Authority
from tests.support.ports import free_port
from tests.support.processes import EdgeBroker
from tests.support.secured_edge import users
from tests.support.secured_kafka import LISTENERS, OWN, PASSWORD, USER


class SecuredLikeKafka(EdgeBroker):
    """The edge broker with all of these listeners; `authority` signs its certificate, for localhost."""

    def __init__(
        self,
        directory: Path,
        authority: Authority,
        *,
        days: int = 30,
        settings: Mapping[str, str | int] | None = None,
    ) -> None:
        """Describe it and make its user; its certificate ends after `days`."""
        directory.mkdir(parents=True, exist_ok=True)
        port, self.ports = free_port(), {listener: free_port() for listener in LISTENERS}
        client = f"CLIENT://127.0.0.1:{port}"
        own: dict[str, str | int] = {
            "listeners": ",".join([client, *(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())]),
            "advertised.listeners": ",".join(
                [client, *(f"{name}://localhost:{port}" for name, port in self.ports.items())]
            ),
            "listener.security.protocol.map": ",".join(
                ["CLIENT:PLAINTEXT", *(f"{name}:{protocol}" for name, protocol in LISTENERS.items())]
            ),
            "ssl.keystore.location": str(authority.store("edge-broker", "DNS:localhost", days=days)),
            "ssl.truststore.location": str(authority.certificate),
        }
        super().__init__(directory, port=port, protocol="CLIENT", settings=own | OWN | dict(settings or {}))
        users(runtimes.console_script("edge-broker"), self.data_dir, "add", USER, password=PASSWORD)

    def at(self, listener: str) -> str:
        """HOST:PORT of a listener, by the name that the certificate holds."""
        return f"localhost:{self.ports[listener]}"
