"""Make TLS contexts, and check the ends of certificates on a host whose clock may be wrong.

OpenSSL checks signatures, purposes and names, but no times: a board without a battery starts in 1970, when no
certificate is valid yet. This module checks the ends, by the later of the clock and the date of this build; it ignores
beginnings. It imports ssl, 2 MB: import it only if TLS is configured.
Does not contain: connections, sentences about failures (kafka/connection_errors.py).
Source: https://docs.python.org/3/library/ssl.html, X509_VERIFY_PARAM_set_flags(3).
"""

from __future__ import annotations

import _ssl
import os
import ssl
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from drupelet.installation import built_s
from drupelet.tls.certificates import Certificate, certificate, find_ended

if TYPE_CHECKING:
    from os import PathLike

NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME, which Python has no name for
PARTIAL_CHAIN = 0x80000  # X509_V_FLAG_PARTIAL_CHAIN: trust each configured CA, as Java does, root or not
STRICT = 0x20  # X509_V_FLAG_X509_STRICT: Python 3.13 sets it, older ones and other clients do not
DAY = "%Y-%m-%d"


class CertificateEndedError(ssl.SSLCertVerificationError):
    """A certificate of the peer, or of a CA that it is believed by, has ended; `told` goes after the peer's address."""

    def __init__(self, told: str) -> None:
        super().__init__(told)
        self.told = told


def latest_s(clock: Callable[[], float] = time.time) -> float:
    """Return the seconds since 1970 for checks of certificates: the clock's, or this build's if later."""
    return max(clock(), built_s())


def client_context(
    ca_file: str | PathLike[str] | None = None,
    cert_file: str | PathLike[str] | None = None,
    key_file: str | PathLike[str] | None = None,
    *,
    now_s: Callable[[], float] = latest_s,
) -> ssl.SSLContext:
    """Return a client's context that trusts the CAs of `ca_file` (None: the system's), with its certificate.

    The name in the peer's certificate is always checked. OSError or ValueError where a file cannot be used; a key with
    a passphrase is one.
    """
    for path in (ca_file, cert_file, key_file):
        if (
            path is not None and os.path.exists(path) and not os.path.isfile(path)
        ):  # OpenSSL would wait without end for the writer of a pipe
            raise ValueError(f"{path} is no file")
    context = ssl.create_default_context(cafile=ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cert_file is not None:
        context.load_cert_chain(cert_file, key_file, password=_no_passphrase)
    check_ends(context, now_s)
    return context


def check_ends(context: ssl.SSLContext, now_s: Callable[[], float] = latest_s) -> None:
    """Make every connection of a context, client's or server's, check the ends in its peer's chain, by `now_s`.

    Call it when the context has its CAs. A handshake with one that has ended raises CertificateEndedError.
    """
    flags = (context.verify_flags | NO_CHECK_TIME | PARTIAL_CHAIN) & ~STRICT
    context.verify_flags = ssl.VerifyFlags(flags)
    authorities = [certificate(each) for each in context.get_ca_certs(binary_form=True)]

    class CheckedSocket(ssl.SSLSocket):
        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            _check_chain(self, authorities, now_s())

    class CheckedObject(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            _check_chain(self, authorities, now_s())

    context.sslsocket_class = CheckedSocket
    context.sslobject_class = CheckedObject


def peer_chain(connection: Any) -> list[bytes]:
    """Return the verified chain of a peer, encoded: its own certificate, its CAs, the configured one last.

    Only the first of a resumed session (the rest was checked when that began); empty without a certificate.
    """
    own = connection.getpeercert(binary_form=True)
    if own is None:
        return []
    if hasattr(connection, "get_verified_chain"):  # since Python 3.13; before, what that calls is there as well
        return connection.get_verified_chain() or [own]
    chain = connection._sslobj.get_verified_chain() or ()
    return [each.public_bytes(_ssl.ENCODING_DER) for each in chain] or [own]


def _check_chain(connection: Any, authorities: Sequence[Certificate], now_s: float) -> None:
    chain = [certificate(each) for each in peer_chain(connection)]
    if not chain:  # a client that shows none: whether it has to is the context's business
        return
    over = find_ended(chain, authorities, now_s)
    if over is not None:
        whose = "has a certificate" if over is chain[0] else f"has a certificate of the CA {over.name!r},"
        raise CertificateEndedError(
            f"{whose} that ended on {_day(over.end_s)}, and by this host's clock it is {_day(now_s)}: set the clock"
            " if that is wrong, else renew the certificate"
        )


def _day(seconds: float) -> str:
    return time.strftime(DAY, time.gmtime(seconds))


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase")
