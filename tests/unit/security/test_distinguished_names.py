"""Names that a person writes, held against those that OpenSSL prints of a certificate."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from drupelet.tls.certificates import certificate
from edge_broker.security.distinguished_names import Name, is_same, parse_name, read_name
from tests.support.runtimes import openssl

SUBJECTS = [
    "/CN=our CA",
    '/C=DE/O=Plant, North/OU=Line+Two/CN=our "CA" #1',
    "/DC=example/DC=plant/CN=Müller & Söhne",
    "/O=Plant/CN=root/emailAddress=ca@plant.example",
    "/CN=one+OU=two/serialNumber=17",
    "/CN=#not a number/O= leading and trailing ",
]


def read(tmp_path: Path, subject: str) -> Name:
    """The name of a certificate that openssl has made."""
    made = tmp_path / "made.pem"
    command = [openssl(), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-utf8"]
    command += ["-multivalue-rdn"] * ("+" in subject and "/CN=one" in subject)
    subprocess.run(
        [*command, "-keyout", tmp_path / "key", "-out", made, "-subj", subject], check=True, capture_output=True
    )
    return read_name(certificate(ssl.PEM_cert_to_DER_cert(made.read_text())).issuer)


def printed(tmp_path: Path, *options: str) -> str:
    command = [openssl(), "x509", "-in", tmp_path / "made.pem", "-noout", "-issuer", *options]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return text.removeprefix("issuer=").removesuffix("\n")


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_name_as_openssl_prints_it_is_the_one_in_the_certificate(tmp_path: Path, subject: str) -> None:
    name = read(tmp_path, subject)
    for options in ((), ("-nameopt", "RFC2253"), ("-nameopt", "RFC2253,-esc_msb,utf8"), ("-nameopt", "oneline")):
        text = printed(tmp_path, *options)
        assert is_same(parse_name(text), name), text
    assert not is_same(parse_name("CN=another CA"), name)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("CN=a,O=b", "O = b, CN = a"),
        ("CN=a,O=b", "cn=a,o=b"),
        ("2.5.4.3=a", "CN=a"),
        ("2.5.4.3=#0c0161", "CN=a"),
        ("CN=a\\, b", 'CN="a, b"'),
        ("CN=M\\C3\\BCller", "CN=Müller"),
        ("CN=\\ a", 'CN=" a"'),
    ],
)
def test_one_name_may_be_written_in_several_ways(one: str, other: str) -> None:
    assert is_same(parse_name(one), parse_name(other))


@pytest.mark.parametrize("text", ["", "our CA", "CN", "CN=a,", "CN=a,b", "XX=a", "=a", 'CN="a', "CN=a\\", "CN=#zz"])
def test_what_is_no_name_is_refused_in_words(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"begins with no TYPE=VALUE|no type that is known|nothing follows|hexadecimal"
    ):
        parse_name(text)


def test_two_names_are_told_apart() -> None:
    assert not is_same(parse_name("CN=a,O=b"), parse_name("CN=a"))
    assert not is_same(parse_name("CN=a,O=b,C=c"), parse_name("CN=a,C=c,O=b"))
