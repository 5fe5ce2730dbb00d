"""The edge broker with a listener for everybody and others where clients log in, and one user from the first start on.

| listener | security.protocol | |
|---|---|---|
| CLIENT | PLAINTEXT | `bootstrap` |
| LOGIN | SASL_PLAINTEXT | `login` |
| TLS | SSL | `tls_port`, where there is a keystore |
| BOTH | SASL_SSL | `both_port`, the same |
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support import runtimes
from tests.support.listeners import listener_settings
from tests.support.ports import free_port
from tests.support.processes import EdgeBroker
from tests.support.secured_kafka import PASSWORD, USER
from tests.support.waiting import CALL_S

MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"


class SecuredEdge(EdgeBroker):
    """A broker with these listeners; USER has PASSWORD."""

    def __init__(
        self,
        directory: Path,
        *,
        name: str = "edge-broker",
        settings: Mapping[str, str | int] | None = None,
        keystore: Path | None = None,
    ) -> None:
        """Describe it and make its user; `keystore` has the key and certificate of its encrypted listeners."""
        directory.mkdir(parents=True, exist_ok=True)
        port, self.login_port, self.tls_port, self.both_port = (free_port() for _ in range(4))
        self.login = f"127.0.0.1:{self.login_port}"
        protocols = {"CLIENT": "PLAINTEXT", "LOGIN": "SASL_PLAINTEXT"}
        ports = {"CLIENT": port, "LOGIN": self.login_port, "TLS": self.tls_port, "BOTH": self.both_port}
        own: dict[str, str | int] = {"sasl.enabled.mechanisms": MECHANISMS}
        if keystore is not None:
            protocols |= {"TLS": "SSL", "BOTH": "SASL_SSL"}
            own["ssl.keystore.location"] = str(keystore)
        own |= listener_settings(protocols, ports)
        super().__init__(directory, name=name, port=port, protocol="CLIENT", settings=own | dict(settings or {}))
        self.user("add", USER, password=PASSWORD)

    def user(self, *arguments: str, password: str = "") -> str:
        """Run `edge-broker user` on the data directory; what it printed."""
        return users(runtimes.console_script("edge-broker"), self.data_dir, *arguments, password=password)


def users(edge_broker: Path, data_dir: Path, *arguments: str, password: str = "") -> str:
    """Run `edge-broker user` on a data directory; what it printed."""
    command: list[str | Path] = [edge_broker, "user", *arguments, "--data-dir", data_dir]
    done = subprocess.run(command, input=f"{password}\n", capture_output=True, text=True, check=True, timeout=CALL_S)
    return str(done.stdout)
