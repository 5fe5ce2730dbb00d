"""Save the session's name and subscriptions in mosquitto; detect another client with the same client id.

mosquitto keeps a session and its subscriptions without end. The state file has those that the gateway must end when the
configuration drops them. It is written before each request, so that a kill at any moment leaves none unknown.

| event | the file before | the file after |
|---|---|---|
| before SUBSCRIBE | the former subscriptions | these and the configured ones |
| subscribed, and unsubscribed the rest | both | the configured subscriptions |
| another `client_id` is configured | the old id, its subscriptions | the new id; the old is a ledger record first |

If another client takes the session over, mosquitto sends reason code 0x8E. mosquitto 2.0.11 closes the connection
without it, so the gateway uses several short connections in a row as the sign.

Source: MQTT 5.0, section 4.1; reason code 0x8E, session taken over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway import state
from gateway.config import OLD_CLIENT_ID, default_client_id

TAKEN_OVER = "Session taken over"
FIGHT_REMEMBERED_S = 90.0
QUICK_S = 15.0  # two competing clients wait up to 10 s between takeovers
QUICK_ENDS_MIN = 4
ENDS_KEPT = 16


class MqttSession:
    """The session's name and subscriptions, in a file of `state_dir`."""

    def __init__(self, state_dir: Path, configured_id: str | None) -> None:
        """Read the state file; raise StateError."""
        self._path = state_dir / "mqtt-session.json"
        saved = state.load(self._path)
        if saved:
            remembered: str | None = _saved_client_id(saved, self._path)
        else:  # an older version saved no id: a configured one was in use
            remembered = configured_id or _of_older_version(state_dir)
        self.client_id: str = configured_id or remembered or default_client_id()
        self.left_behind = remembered if remembered not in (None, self.client_id) else None
        self.changes = int((saved or {}).get("changes", 0)) + (self.left_behind is not None)
        known = saved is not None and self.left_behind is None
        self._subscribed: frozenset[str] = frozenset(saved["subscriptions"] if saved and known else ())
        self._saved: dict[str, Any] | None = saved

    def outdated_filters(self, wanted: Collection[str]) -> list[str]:
        """Return the filters that the session has and the configuration no longer names."""
        return sorted(self._subscribed.difference(wanted))

    async def about_to_subscribe(self, wanted: Collection[str]) -> None:
        """Save the new subscriptions in addition to the former ones, before SUBSCRIBE; raises OSError."""
        await self._save(self._subscribed.union(wanted))

    async def save_subscriptions(self, wanted: Collection[str]) -> None:
        """Save that the session has exactly the subscriptions `wanted`; raises OSError."""
        await self._save(frozenset(wanted))

    async def _save(self, subscribed: frozenset[str]) -> None:
        content = {"client_id": self.client_id, "changes": self.changes, "subscriptions": sorted(subscribed)}
        if content != self._saved:
            await asyncio.to_thread(state.save, self._path, content)
        self._saved, self._subscribed = content, subscribed


def forgotten_session(state_dir: Path) -> str | None:
    """Return the client id of a former session, for a configuration without MQTT; raises StateError."""
    path = state_dir / "mqtt-session.json"
    saved = state.load(path)
    return _saved_client_id(saved, path) if saved else _of_older_version(state_dir)


def _saved_client_id(saved: dict[str, Any], path: Path) -> str:
    client_id, filters = saved.get("client_id"), saved.get("subscriptions")
    sound = isinstance(filters, list) and all(isinstance(text, str) for text in filters)
    if not isinstance(client_id, str) or not client_id or not sound or type(saved.get("changes")) is not int:
        raise state.StateError(f"{path} holds no session: remove it, and old subscriptions stay in mosquitto.")
    return client_id


def _of_older_version(state_dir: Path) -> str | None:
    """Return the id of an older version, which saved none and had one for all sites: its queue must be read."""
    saved = state.load(state_dir / "mosquitto.json")
    return OLD_CLIENT_ID if saved and saved.get("session") else None


@dataclass(slots=True)
class ConnectionEnds:
    """PURE: recent ends of connections, to tell two clients with one id from a bad network. Times in seconds."""

    client_id: str
    taken_over_s: list[float] = field(default_factory=list)
    quick_s: list[float] = field(default_factory=list)

    def connection_ended(self, reason: str, lasted_s: float, now_s: float) -> None:
        """Note the end of a connection that was subscribed for `lasted_s`."""
        if reason == TAKEN_OVER:
            self.taken_over_s = [*self.taken_over_s, now_s][-ENDS_KEPT:]
        elif lasted_s < QUICK_S:
            self.quick_s = [*self.quick_s, now_s][-ENDS_KEPT:]

    def problem(self, now_s: float) -> str | None:
        """Return that another client uses the session, or may use it; None without a sign of it."""
        remedy = "give each gateway its own mqtt.client_id"
        if taken := _recent(self.taken_over_s, now_s):
            times = "once" if taken == 1 else f"{taken} times"
            return f'another client uses the client_id "{self.client_id}" and took the session over {times}: {remedy}'
        if (quick := _recent(self.quick_s, now_s)) >= QUICK_ENDS_MIN:
            return (
                f"{quick} connections ended within seconds: another client uses the client_id"
                f' "{self.client_id}", or the network is bad; {remedy}'
            )
        return None


def _recent(times_s: list[float], now_s: float) -> int:
    return sum(now_s - time_s < FIGHT_REMEMBERED_S for time_s in times_s)
