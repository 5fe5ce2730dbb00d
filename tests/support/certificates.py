"""Certificates of a CA of the test's own, made by openssl as a person would make them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.runtimes import openssl


class Authority:
    """A CA whose files, and those of what it signs, are in `directory`."""

    def __init__(self, directory: Path, name: str = "ca", *, days: int = 30, issuer: Authority | None = None) -> None:
        """Make it, with a certificate of `issuer`, or of its own."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        if issuer is not None:
            self.certificate, self._key = issuer.sign_for(directory, name, "basicConstraints=critical,CA:TRUE", days)
            return
        self.certificate = directory / f"{name}.pem"
        self._key = directory / f"{name}.key"
        names = "-out", self.certificate, "-subj", f"/CN={name}"
        _openssl("req", "-x509", *_new_key(self._key), *names, "-days", str(days))

    def sign(self, name: str, alternatives: str, *, days: int = 30) -> tuple[Path, Path]:
        """Return certificate and key for the names in `alternatives`, as `DNS:localhost`; negative days: expired."""
        return self.sign_for(self.directory, name, f"subjectAltName={alternatives}", days)

    def sign_for(self, directory: Path, name: str, extension: str, days: int) -> tuple[Path, Path]:
        """Return certificate and key in a directory, with an extension as openssl writes it."""
        key, request, signed = (directory / f"{name}.{ending}" for ending in ("key", "csr", "pem"))
        extensions = directory / "extensions"
        extensions.write_text(f"{extension}\n")
        _openssl("req", *_new_key(key), "-out", request, "-subj", f"/CN={name}")
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial"),
            *("-out", signed, "-days", str(days), "-extfile", extensions),
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


def _openssl(*arguments: str | Path) -> None:
    subprocess.run([openssl(), *arguments], check=True, capture_output=True)
