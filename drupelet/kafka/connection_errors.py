"""Explain a failed connection in words that name the remedy.

Does not contain: connecting, a peer's own refusals, ssl at import, which costs a broker 2 MB.
Sources: connect(2), getaddrinfo(3), OpenSSL's X509_V_ERR_ codes.
"""

from __future__ import annotations

import errno
import socket

from drupelet.errors import sentence

_BY_NUMBER = {
    errno.ECONNREFUSED: "refuses the connection: nothing listens there, start it or mend the port",
    errno.EHOSTUNREACH: "cannot be reached: no route to the host, is it on and on this network?",
    errno.ENETUNREACH: "cannot be reached: no route to its network, is this host's network up?",
    errno.ETIMEDOUT: "does not answer: is it on, and does a firewall let the port through?",
    errno.ECONNRESET: "hung up: does another service listen on that port, or is TLS on at one end only?",
    errno.EPIPE: "hung up: does another service listen on that port, or is TLS on at one end only?",
}
_BY_VERIFY_CODE = {
    9: "has a certificate that is not valid yet: is this host's clock right?",  # both of who checks by the clock
    10: "has a certificate that has expired: renew it there, or set this host's clock",
    18: "has a certificate that signed itself: name it, or its CA, in ssl_ca_file",
    19: "has a certificate of an unknown CA: name that CA in ssl_ca_file",
    20: "has a certificate of an unknown CA: name that CA in ssl_ca_file",
    21: "has a certificate of an unknown CA: name that CA in ssl_ca_file",
    62: "has a certificate for another name: use the name that it holds, or renew it with this one",
    64: "has a certificate without this address: use the name that it holds, or renew it with the address",
}
# Classes of ssl, which is not loaded for this: OpenSSL gives no reason with them where the peer just closes.
_ENDED_IN_TLS = ("SSLZeroReturnError", "SSLEOFError")
HUNG_UP_IN_TLS = "hung up during the TLS handshake: does it speak TLS on that port?"
NOT_FOUND = "has a name that is not found: mend it, or the host's DNS"
WANTS_CERTIFICATE = "wants a client certificate: name one in ssl_cert_file and ssl_key_file"
_BY_ALERT = {  # what the peer says of our certificate before it hangs up
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "refuses this client's certificate as expired: renew it, or set the clock there",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "refuses this client's certificate as revoked: take another",
    "TLSV1_ALERT_UNKNOWN_CA": "does not know the CA of this client's certificate: take another, or tell it that CA",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "refuses this client's certificate: is it one that it believes?",
    "SSLV3_ALERT_BAD_CERTIFICATE": "refuses this client's certificate: is it one that it believes?",
    "TLSV1_ALERT_PROTOCOL_VERSION": "has no TLS version that this client has: switch TLS 1.2 or 1.3 on there",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "has no cipher suite in common, or wants a client certificate: see ssl_cert_file",
}


def explain(error: BaseException) -> str:
    """Return the text after the peer's address: a verb, the cause, the remedy; for an unknown error its own text."""
    if isinstance(error, socket.gaierror):
        return NOT_FOUND
    if isinstance(error, TimeoutError):
        return _BY_NUMBER[errno.ETIMEDOUT]
    told = getattr(error, "told", None)  # of ours, as drupelet.tls.contexts.CertificateEndedError
    if isinstance(told, str):
        return told
    code = getattr(error, "verify_code", None)
    if isinstance(code, int):
        return _BY_VERIFY_CODE.get(
            code, f"has a certificate that is not believed ({getattr(error, 'verify_message', code)})"
        )
    reason = getattr(error, "reason", None)  # of ssl.SSLError
    if isinstance(reason, str):
        return _tls(reason)
    if any(kind.__name__ in _ENDED_IN_TLS for kind in type(error).__mro__):
        return HUNG_UP_IN_TLS
    if isinstance(error, OSError) and error.errno in _BY_NUMBER:
        return _BY_NUMBER[error.errno]
    return f"cannot be connected to ({sentence(error)})"


def _tls(reason: str) -> str:
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
        return "speaks no TLS on that port: use its TLS port, or switch TLS off here"
    if reason == "UNEXPECTED_EOF_WHILE_READING":
        return HUNG_UP_IN_TLS
    if "CERTIFICATE_REQUIRED" in reason:
        return WANTS_CERTIFICATE
    if reason in _BY_ALERT:
        return _BY_ALERT[reason]
    if reason.startswith(("TLSV1_ALERT", "TLSV13_ALERT", "SSLV3_ALERT")):
        return f"refuses the TLS connection ({reason.lower().replace('_', ' ')}): is it the client certificate?"
    return f"cannot be spoken to by TLS ({reason.lower().replace('_', ' ')})"
