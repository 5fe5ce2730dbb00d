"""Whether a certificate names a host, as the client's side of OpenSSL sees it.

A client that trusts the very certificates of the chain begins a handshake in memory: what it can refuse then is the
name. No reading of names of our own could differ from what real clients do with DNS and IP names and wildcards.

Does not contain: sockets, which host and which listener. Source: RFC 6125, RFC 9525;
OpenSSL's X509_check_host and X509_check_ip.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Sequence
from contextlib import suppress

from drupelet.tls.contexts import NO_CHECK_TIME, PARTIAL_CHAIN

MISMATCHES = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


def names_host(server: ssl.SSLContext, chain: Sequence[bytes], host: str) -> bool:
    """Whether a client that connects to `host` finds that name in the certificate of `server`; `chain` is DER.

    Also True where no handshake gets so far, as with a key that no suite fits: the name is not what is wrong there.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.verify_flags |= NO_CHECK_TIME | PARTIAL_CHAIN
    client.load_verify_locations(cadata=b"".join(chain))
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        asking = client.wrap_bio(to_client, to_server, server_hostname=host.partition("%")[0])
    except ValueError:  # no name that a certificate could have
        return False
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (asking, answering, asking):
        try:
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
        except ssl.SSLError as error:
            return getattr(error, "verify_code", 0) not in MISMATCHES
    return True


def alternative_name(host: str) -> str:
    """How a certificate names a host, as openssl writes it: DNS:name or IP:address."""
    address = host.partition("%")[0]
    try:
        return f"IP:{ipaddress.ip_address(address)}"
    except ValueError:
        return f"DNS:{host}"
