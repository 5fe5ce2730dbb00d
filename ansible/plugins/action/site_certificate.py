"""The action `site_certificate`: creates the site's CA on the control node, and signs a board's certificate.

| created | how |
|---|---|
| the CA | ECDSA P-256, `ca.pem` and `ca.key` of `folder`, the key encrypted with `passphrase`; or the user's own |
| a board's certificate | of the request that the board made of its own key, for `names`: the key never comes here |

Both begin in 2020, as boards without a clock do not know the year, and last twenty years from then on. A certificate
that ends within 60 days is created again, the CA's with its own key; a valid one is returned as it is. A board's never
ends after its CA's.

Asks no board and writes nothing on one. Needs ansible-core alone, which brings cryptography. Source: RFC 5280.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
END = datetime(2040, 1, 1, tzinfo=UTC)
LIFE = END - BEGIN
RENEWED_BEFORE = timedelta(days=60)


def end_from(now: datetime) -> datetime:
    """When what is made now ends: in 2040, and from two months before that on twenty years later."""
    return END if now < END - RENEWED_BEFORE else now.replace(microsecond=0) + LIFE


class Authority:
    """A CA: its certificate, its key, and whether this run made or renewed it."""

    def __init__(self, certificate: x509.Certificate, key: Any, *, is_new: bool = False) -> None:
        self.certificate, self.key, self.is_new = certificate, key, is_new

    @property
    def pem(self) -> str:
        """The certificate."""
        return _pem(self.certificate)

    def sign(self, request: str, names: Sequence[str], now: datetime) -> x509.Certificate:
        """Return a certificate for the key of a request, whose first name is its subject; AnsibleError: no request."""
        try:
            csr = x509.load_pem_x509_csr(request.encode())
        except ValueError as error:
            raise AnsibleError(f"what the board sent is no request for a certificate: {error}") from error
        if not csr.is_signature_valid:
            raise AnsibleError("the board's request is not signed by the key that it is about.")
        key = csr.public_key()
        end = min(end_from(now), self.certificate.not_valid_after_utc)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        return (
            _builder(names[0], self.certificate.subject, key, end)
            .add_extension(x509.SubjectAlternativeName([_name(name) for name in names]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage, critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.certificate.public_key()), critical=False
            )
            .sign(self.key, hashes.SHA256())
        )

    def is_right(self, current: str, request: str, names: Sequence[str], now: datetime) -> bool:
        """Tell whether a certificate is of this CA, for this key and these names, and lasts."""
        try:
            certificate = x509.load_pem_x509_certificate(current.encode())
            certificate.verify_directly_issued_by(self.certificate)
            held = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            wanted = x509.load_pem_x509_csr(request.encode()).public_key()
        except Exception:  # noqa: BLE001 - whatever is wrong with it: there will be a new one
            return False
        return (
            certificate.public_key() == wanted
            and list(held) == [_name(name) for name in names]
            and certificate.not_valid_after_utc - now > RENEWED_BEFORE
        )


def _builder(name: str, issuer: x509.Name | None, key: Any, end: datetime) -> x509.CertificateBuilder:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(BEGIN)
        .not_valid_after(end)
    )


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _self_signed(key: Any, name: str, now: datetime) -> x509.Certificate:
    return (
        _builder(name, None, key.public_key(), end_from(now))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(False, False, False, False, False, True, True, False, False),  # certificates and lists
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def site_authority(folder: Path, passphrase: str, now: datetime, *, dry: bool) -> Authority:
    """Return the CA of a folder, which is made where it is not there; `dry`: nothing is written.

    AnsibleError: one of its two files is missing, or the passphrase is another.
    """
    key_file, certificate_file = folder / "ca.key", folder / "ca.pem"
    if not key_file.exists():
        if certificate_file.exists():
            raise AnsibleError(
                f"{certificate_file} is there and {key_file} is not: bring it back from your backup, or remove ca.pem "
                "for a new CA, which every board then gets by provision."
            )
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _self_signed(key, "Drupelet site CA", now)
        if not dry:
            sealed = serialization.BestAvailableEncryption(passphrase.encode())
            form = serialization.PrivateFormat.PKCS8
            _write(key_file, key.private_bytes(serialization.Encoding.PEM, form, sealed), 0o600)
            _write(certificate_file, _pem(certificate).encode(), 0o644)
        return Authority(certificate, key, is_new=True)
    key = _key(key_file.read_bytes(), key_file, passphrase)
    certificate = _certificate(certificate_file) if certificate_file.exists() else None
    if certificate is not None and certificate.not_valid_after_utc - now > RENEWED_BEFORE:
        return Authority(certificate, key)
    certificate = _self_signed(key, "Drupelet site CA", now)
    if not dry:
        _write(certificate_file, _pem(certificate).encode(), 0o644)
    return Authority(certificate, key, is_new=True)


def own_authority(certificate_file: Path, key_pem: bytes, key_file: Path, passphrase: str, now: datetime) -> Authority:
    """Return the user's own CA; AnsibleError: a file cannot be used, they do not belong together, or it has ended."""
    certificate, key = _certificate(certificate_file), _key(key_pem, key_file, passphrase)
    if key.public_key() != certificate.public_key():
        raise AnsibleError(f"{key_file} is not the key of {certificate_file}.")
    if certificate.not_valid_after_utc <= now:
        raise AnsibleError(f"{certificate_file} has ended on {certificate.not_valid_after_utc:%Y-%m-%d}.")
    return Authority(certificate, key)


def _certificate(file: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(file.read_bytes())
    except (OSError, ValueError) as error:
        raise AnsibleError(f"{file} cannot be used as a CA's certificate: {error}") from error


def _key(pem: bytes, file: Path, passphrase: str) -> Any:
    try:
        sealed = b"ENCRYPTED" in pem
        return serialization.load_pem_private_key(pem, passphrase.encode() if sealed else None)
    except (ValueError, TypeError) as error:
        raise AnsibleError(
            f"{file} cannot be read with security_ca_passphrase: another has encrypted it, as security_secret was then."
        ) from error


def _write(file: Path, content: bytes, mode: int) -> None:
    """Whole or not at all, and on the disk."""
    part = file.with_name(f"{file.name}.part")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    part.rename(file)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One host's task at a time: Ansible works on several."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class ActionModule(ActionBase):
    """The action plugin.

    `folder`, `ca_certificate` and `ca_key` (paths, empty for the site's own CA); `request` (PEM), `names` and `current`
    (PEM or empty) for a board's certificate. The passphrase is the variable security_ca_passphrase. Answers `ca`, and
    `certificate` where a request was given.
    """

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Make what is missing; changed where a certificate is another than before."""
        result: dict[str, Any] = super().run(tmp, task_vars or {})
        given = self._task.args
        now = datetime.now(UTC)
        folder = Path(given["folder"]).expanduser()
        passphrase = str(
            self._templar.template((task_vars or {})["security_ca_passphrase"])
        )  # no argument: those are shown
        if given.get("ca_certificate"):
            key_file = Path(given["ca_key"]).expanduser()
            authority = own_authority(
                Path(given["ca_certificate"]).expanduser(), self._read_vaulted(key_file), key_file, passphrase, now
            )
        elif self._task.check_mode and not folder.exists():
            authority = site_authority(folder, passphrase, now, dry=True)
        else:
            with _alone(folder):
                authority = site_authority(folder, passphrase, now, dry=self._task.check_mode)
        result.update(changed=authority.is_new, ca=authority.pem)
        if given.get("request"):
            names = list(dict.fromkeys(map(str, given["names"])))
            current = str(given.get("current") or "")
            right = authority.is_right(current, given["request"], names, now)
            result["certificate"] = current if right else _pem(authority.sign(given["request"], names, now))
            result["changed"] = authority.is_new or not right
        return result

    def _read_vaulted(self, file: Path) -> bytes:
        """Return the content of a user's file, which may be vaulted."""
        try:
            return Path(self._loader.get_real_file(str(file))).read_bytes()
        finally:
            self._loader.cleanup_all_tmp_files()
