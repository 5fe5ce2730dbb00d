"""Certificates read from their encoding: names and ends as OpenSSL reads them, and bytes that are none."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drupelet.certificates import Certificate, certificate, certificates_in, ended
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


LEAF = Certificate(b"leaf", b"ca", 100)


@pytest.mark.parametrize(
    ("authorities", "now_s", "over"),
    [
        ([], 100, None),
        ([], 101, LEAF),
        ([Certificate(b"ca", b"ca", 50)], 50, None),
        ([Certificate(b"ca", b"ca", 50)], 51, Certificate(b"ca", b"ca", 50)),
        ([Certificate(b"ca", b"ca", 50), Certificate(b"ca", b"ca", 90)], 51, None),  # renewed under its name
        ([Certificate(b"old", b"old", 50), Certificate(b"ca", b"ca", 90)], 51, None),
        ([Certificate(b"root", b"root", 90)], 51, None),  # an intermediate CA stands between
        ([Certificate(b"root", b"root", 50), Certificate(b"r", b"r", 60)], 61, Certificate(b"r", b"r", 60)),
    ],
)
def test_what_has_ended(authorities: list[Certificate], now_s: int, over: Certificate | None) -> None:
    assert ended(LEAF, authorities, now_s) == over
