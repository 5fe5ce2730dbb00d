"""Certificates of a CA of the test's own, made by openssl as a person would make them."""

from __future__ import annotations

import functools
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.support.runtimes import openssl

_CA_USAGE = "critical,keyCertSign,cRLSign"  # Python from 3.13 on believes no CA without it
_DATE = "%Y%m%d%H%M%SZ"


class Authority:
    """A CA whose files, and those of what it signs, are in `directory`."""

    def __init__(self, directory: Path, name: str = "ca", *, days: int = 30, issuer: Authority | None = None) -> None:
        """Make it, with a certificate of `issuer`, or of its own."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        if issuer is not None:
            extensions = f"basicConstraints=critical,CA:TRUE\nkeyUsage={_CA_USAGE}"
            self.certificate, self._key = issuer.sign_for(directory, name, extensions, days)
            return
        self.certificate = directory / f"{name}.pem"
        self._key = directory / f"{name}.key"
        names = "-out", self.certificate, "-subj", f"/CN={name}"
        _openssl("req", "-x509", *_new_key(self._key), *names, "-addext", f"keyUsage={_CA_USAGE}", "-days", str(days))

    def sign(self, name: str, alternatives: str, *, days: int = 30) -> tuple[Path, Path]:
        """Return certificate and key for the names in `alternatives`, as `DNS:localhost`; negative days: expired."""
        return self.sign_for(self.directory, name, f"subjectAltName={alternatives}", days)

    def sign_for(self, directory: Path, name: str, extension_lines: str, days: int) -> tuple[Path, Path]:
        """Return certificate and key in a directory, with extensions as openssl writes them, a line each."""
        key, request, signed = (directory / f"{name}.{ending}" for ending in ("key", "csr", "pem"))
        extensions = directory / "extensions"
        extensions.write_text(f"{extension_lines}\n")
        _openssl("req", *_new_key(key), "-out", request, "-subj", f"/CN={name}")
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial"),
            *_valid(days),
            *("-out", signed, "-extfile", extensions),
        )
        key.chmod(0o640)
        return signed, key

    def store(self, name: str, alternatives: str, *, days: int = 30) -> Path:
        """Return one file with key and certificate, as Kafka's keys want it."""
        certificate, key = self.sign(name, alternatives, days=days)
        path = self.directory / f"{name}.store"
        path.write_text(key.read_text() + certificate.read_text())
        path.chmod(0o640)
        return path


def encrypt_key(store: Path, password: str) -> None:
    """Encrypt the private key at the beginning of a PEM file, as PKCS #8."""
    begin = "-----BEGIN CERTIFICATE-----"
    _, _, chain = store.read_text().partition(begin)
    key = store.with_suffix(".encrypted")
    _openssl("pkcs8", "-topk8", "-in", store, "-out", key, "-passout", f"pass:{password}")
    store.write_text(key.read_text() + begin + chain)


def _new_key(path: Path) -> tuple[str | Path, ...]:
    return "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path


def _valid(days: int) -> tuple[str, ...]:
    """From now on, or ended: OpenSSL from 3.5 on makes no end before the beginning, and before 3.4 knows no dates."""
    if days >= 0 or not _knows_dates():
        return "-days", str(days)
    ended = datetime.now(UTC) + timedelta(days=days)
    return "-not_before", f"{ended - timedelta(days=30):{_DATE}}", "-not_after", f"{ended:{_DATE}}"


@functools.cache
def _knows_dates() -> bool:
    said = subprocess.run([openssl(), "x509", "-help"], check=True, capture_output=True, text=True)
    return "-not_after" in said.stdout + said.stderr


def _openssl(*arguments: str | Path) -> None:
    subprocess.run([openssl(), *arguments], check=True, capture_output=True)
