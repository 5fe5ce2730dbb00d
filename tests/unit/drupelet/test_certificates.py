"""Certificates read from their encoding: names and ends as OpenSSL reads them, and bytes that are none."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drupelet.tls.certificates import Certificate, certificate, certificates_in, find_ended
from tests.support.certificates import Authority


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    authority = Authority(tmp_path_factory.mktemp("ca"), "site CA")
    signed, _ = authority.sign("board", "DNS:board", days=20_000)  # beyond 2050, where the form of a time changes
    return signed.read_bytes() + authority.certificate.read_bytes()


def test_names_and_ends_are_those_that_openssl_reads(pem: bytes, tmp_path: Path) -> None:
    leaf, authority = certificates_in(pem)
    assert (leaf.name, authority.name) == ("board", "site CA")
    assert leaf.issuer == authority.subject == authority.issuer != leaf.subject
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=pem.decode())
    ends = {ssl.cert_time_to_seconds(each["notAfter"]) for each in context.get_ca_certs()}
    assert authority.end_s in ends
    assert leaf.end_s - authority.end_s > 19_000 * 86_400


def test_every_ca_of_this_system_is_read() -> None:
    context = ssl.create_default_context()
    for der, read in zip(context.get_ca_certs(binary_form=True), context.get_ca_certs(), strict=True):
        assert certificate(der).end_s == ssl.cert_time_to_seconds(str(read["notAfter"]))


@given(st.binary(max_size=64))
def test_bytes_that_are_none(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        certificate(content)


def test_a_cut_or_changed_certificate_is_read_or_refused(pem: bytes) -> None:
    der = ssl.PEM_cert_to_DER_cert(pem.decode().partition("-----END CERTIFICATE-----")[0] + "-----END CERTIFICATE-----")
    for at in range(len(der)):
        for content in (der[:at], der[:at] + bytes([der[at] ^ 0xFF]) + der[at + 1 :]):
            try:
                certificate(content)
            except ValueError:
                continue


LEAF, BETWEEN = Certificate(b"leaf", b"between", 100), Certificate(b"between", b"ca", 80)
CA, CA_BEFORE = Certificate(b"ca", b"ca", 90), Certificate(b"ca", b"ca", 50)


@pytest.mark.parametrize(
    ("chain", "authorities", "now_s", "over"),
    [
        ([LEAF], [], 100, None),
        ([LEAF], [], 101, LEAF),
        ([LEAF, BETWEEN], [BETWEEN], 80, None),
        ([LEAF, BETWEEN], [BETWEEN], 81, BETWEEN),
        ([LEAF, BETWEEN, CA], [CA], 80, None),
        ([LEAF, BETWEEN, CA], [CA], 81, BETWEEN),
        ([LEAF, BETWEEN, CA_BEFORE], [CA_BEFORE], 51, CA_BEFORE),
        ([LEAF, BETWEEN, CA_BEFORE], [CA_BEFORE, CA], 51, None),  # renewed under its name
        ([LEAF, BETWEEN, CA], [CA_BEFORE._replace(subject=b"old"), CA], 51, None),
        ([LEAF, BETWEEN, CA_BEFORE], [], 51, CA_BEFORE),  # the system's CAs are read when they are needed
    ],
)
def test_what_has_ended(
    chain: list[Certificate], authorities: list[Certificate], now_s: int, over: Certificate | None
) -> None:
    assert find_ended(chain, authorities, now_s) == over
