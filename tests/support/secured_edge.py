"""The edge broker with a listener for everybody and one where clients log in, and one user from the first start on."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support import runtimes
from tests.support.ports import free_port
from tests.support.processes import EdgeBroker
from tests.support.secured_kafka import PASSWORD, USER
from tests.support.waiting import CALL_S


class SecuredEdge(EdgeBroker):
    """Listeners CLIENT (PLAINTEXT, `bootstrap`) and LOGIN (SASL_PLAINTEXT, `login`); USER has PASSWORD."""

    def __init__(self, directory: Path, *, settings: Mapping[str, str | int] | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        port, login = free_port(), free_port()
        self.login = f"127.0.0.1:{login}"
        own: dict[str, str | int] = {
            "listeners": f"CLIENT://127.0.0.1:{port},LOGIN://{self.login}",
            "advertised.listeners": f"CLIENT://127.0.0.1:{port},LOGIN://{self.login}",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        }
        super().__init__(directory, port=port, protocol="CLIENT", settings=own | dict(settings or {}))
        self.user("add", USER, password=PASSWORD)

    def user(self, *arguments: str, password: str = "") -> str:
        """Run `edge-broker user` on the data directory; what it printed."""
        command: list[str | Path] = [
            runtimes.console_script("edge-broker"),
            "user",
            *arguments,
            "--data-dir",
            self.data_dir,
        ]
        done = subprocess.run(
            command, input=f"{password}\n", capture_output=True, text=True, check=True, timeout=CALL_S
        )
        return str(done.stdout)
