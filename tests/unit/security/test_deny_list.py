"""What the lines of a deny list say, and whom they deny."""

from __future__ import annotations

import pytest

from edge_broker.security.certificates import CertificateId
from edge_broker.security.deny_list import parse_deny_list
from tests.unit.security.names import encoded_name

OURS, OTHER = encoded_name("our CA"), encoded_name("another CA")
LIST = b"""# stolen on Monday
serial=5F:3a:09
serial=0A issuer=CN=our CA

User:CN=pump-7
User:ann
"""


def test_each_line_denies_what_it_names_and_nothing_else() -> None:
    found = parse_deny_list(LIST)
    assert found.entries == 4
    assert found.denial(["User:ann"]) == "line 6 of edge.deny.list.file denies User:ann"
    assert found.denial(["User:ANONYMOUS", "User:CN=pump-7"]).startswith("line 5 ")
    assert found.denial([], [CertificateId(0x5F3A09, OTHER)]).startswith("line 2 ")
    assert found.denial([], [CertificateId(1, OURS), CertificateId(0x0A, OURS)]).endswith("of serial=A")
    for name in ("User:an", "User:Ann", "User:ann~2", "User:ann ", "ann", "User:"):
        assert not found.denial([name])
    for certificate_id in (CertificateId(0x0A, OTHER), CertificateId(0x5F3A, OURS), CertificateId(0, OURS)):
        assert not found.denial([], [certificate_id])


def test_a_serial_of_several_issuers_is_denied_of_each() -> None:
    found = parse_deny_list(b"serial=0a issuer=CN=our CA\nserial=0A issuer=CN=another CA\nserial=0A issuer=CN=our CA\n")
    assert found.entries == 2
    assert found.denial([], [CertificateId(10, OURS)]).startswith("line 1 ")
    assert found.denial([], [CertificateId(10, OTHER)]).startswith("line 2 ")
    assert not found.denial([], [CertificateId(10, encoded_name("a third"))])


def test_an_issuer_that_cannot_be_read_is_denied() -> None:
    found = parse_deny_list(b"serial=0A issuer=CN=our CA\n")
    assert found.denial([], [CertificateId(10, b"\x30\x05no")])


@pytest.mark.parametrize("data", [b"", b"\n", b"# nobody\n", b"\r\n  \n"])
def test_an_empty_list_denies_nobody(data: bytes) -> None:
    assert parse_deny_list(data).entries == 0


def test_lines_may_end_as_on_windows() -> None:
    assert parse_deny_list(b"User:ann\r\nserial=1\r\n").denial(["User:ann"])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"User:ann\npump-7\n", r"line 2 is 'pump-7': write serial=HEX, as openssl x509 -noout -serial prints it"),
        (b"user:ann\n", r"line 1 is 'user:ann': write serial=HEX"),
        (b"User:\n", r"line 1 is 'User:': write"),
        (b"User:ANONYMOUS\n", r"line 1 is 'User:ANONYMOUS': it is who has not logged in"),
        (b"\n\nserial=\n", r"line 3 is 'serial=': write"),
        (b"serial=0x5F\n", r"line 1 is 'serial=0x5F': write"),
        (b"serial=12 13\n", r"line 1 .*write"),
        (b"serial=::\n", r"line 1 .*write"),
        (b"serial=5F issuer=our CA\n", r"line 1 .*begins with no TYPE=VALUE"),
        (b"serial=5F issuer=\n", r"line 1 .*begins with no TYPE=VALUE"),
        (b"serial=5F issuer=CNN=a\n", r"line 1 .*'CNN' is no type that is known"),
        (b"serial = 5F\n", r"line 1 .*write"),
        (b"User:ann\nserial=5F3A", r"line 2 has no end"),
        (b"User:M\xfcller\n", r"line 1 is not UTF-8"),
        (b"x" * 500 + b"\n", r"line 1 is 'x{60}…': write"),
        (b"\x1b[2Jgone\n", r"line 1 is '\\x1b\[2Jgone': write"),
    ],
)
def test_a_line_that_says_nothing_is_named_with_a_remedy(data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        parse_deny_list(data)
    assert "\n" not in str(caught.value)


def test_a_negative_serial_is_the_one_that_openssl_prints() -> None:
    assert parse_deny_list(b"serial=-0A\n").denial([], [CertificateId(-10, OURS)])
