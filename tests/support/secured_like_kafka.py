"""The edge broker with the listeners of `secured_kafka.py`: the same clients get in, one user from the start on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support import runtimes
from tests.support.certificates import Authority
from tests.support.listeners import listener_settings
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
        protocols, told = {"CLIENT": "PLAINTEXT", **LISTENERS}, dict.fromkeys(LISTENERS, "localhost")
        own: dict[str, str | int] = {
            **listener_settings(protocols, {"CLIENT": port, **self.ports}, told),
            "ssl.keystore.location": str(authority.store("edge-broker", "DNS:localhost", days=days)),
            "ssl.truststore.location": str(authority.certificate),
        }
        super().__init__(directory, port=port, protocol="CLIENT", settings=own | OWN | dict(settings or {}))
        users(runtimes.console_script("edge-broker"), self.data_dir, "add", USER, password=PASSWORD)

    def at(self, listener: str) -> str:
        """HOST:PORT of a listener, by the name that the certificate holds."""
        return f"localhost:{self.ports[listener]}"
