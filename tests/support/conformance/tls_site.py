"""A broker with certificates, and clients that use them."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.support.certificates import Authority
from tests.support.processes import Process
from tests.support.waiting import CALL_S

NAMES = "DNS:localhost,IP:127.0.0.1"


class TlsSite(NamedTuple):
    """A broker that takes clients with certificates alone, its CA, and one that it does not know."""

    broker: Process
    bootstrap: str
    authority: Authority
    stranger: Authority

    def librdkafka(self, name: str = "client") -> dict[str, str | int]:
        certificate, key = (self.authority.directory / f"{name}.{ending}" for ending in ("pem", "key"))
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority.certificate),
            "ssl.certificate.location": str(certificate),
            "ssl.key.location": str(key),
        }

    def context(self, authority: Authority | None = None, name: str = "client") -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        folder = (authority or self.authority).directory
        context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
        return context


def run(command: list[str | Path], text: str | None = None) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=CALL_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
