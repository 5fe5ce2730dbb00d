"""A client's log-in: the examples of the RFCs, and a server that lies."""

from __future__ import annotations

import pytest

from drupelet.kafka.sasl_login import LogInError, tokens

NONCE = "rOprNGfwEbeRWgbNEkqO"
WHOLE = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = b"r=" + WHOLE + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = b"c=biws,r=" + WHOLE + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_plain_is_one_token() -> None:
    exchange = tokens("PLAIN", "tim", "tanstaaftanstaaf", "")
    assert next(exchange) == b"\0tim\0tanstaaftanstaaf"
    with pytest.raises(StopIteration):
        exchange.send(b"")


def test_scram_sha_256_as_in_rfc_7677() -> None:
    exchange = tokens("SCRAM-SHA-256", "user", "pencil", NONCE)
    assert next(exchange) == b"n,,n=user,r=" + NONCE.encode()
    assert exchange.send(FIRST) == PROOF
    with pytest.raises(StopIteration):
        exchange.send(SIGNATURE)


def test_a_comma_and_an_equals_sign_in_a_name_are_written_otherwise() -> None:
    assert next(tokens("SCRAM-SHA-512", "a,b=c", "p", "n")) == b"n,,n=a=2Cb=3Dc,r=n"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "something else than SCRAM"),
        (b"e=other-error", "something else than SCRAM"),
        (FIRST.replace(b"W22", b"!!!"), "something else than SCRAM"),
        (FIRST.replace(b"i=4096", b"i=x"), "something else than SCRAM"),
        (FIRST.replace(WHOLE, b"another"), "another log-in"),
        (FIRST.replace(WHOLE, NONCE.encode()), "another log-in"),
        (FIRST.replace(b"i=4096", b"i=1"), "asks for 1 iterations"),
        (FIRST.replace(b"i=4096", b"i=99999999"), "asks for 99999999 iterations"),
    ],
)
def test_a_first_answer_that_is_none(answer: bytes, says: str) -> None:
    exchange = tokens("SCRAM-SHA-256", "user", "pencil", NONCE)
    next(exchange)
    with pytest.raises(LogInError, match=says):
        exchange.send(answer)


@pytest.mark.parametrize("answer", [b"", b"v=", b"v=" + b"A" * 44, SIGNATURE[:-1]])
def test_a_server_that_does_not_know_the_password_is_not_believed(answer: bytes) -> None:
    exchange = tokens("SCRAM-SHA-256", "user", "pencil", NONCE)
    next(exchange)
    exchange.send(FIRST)
    with pytest.raises(LogInError, match="does not know this user's password itself"):
        exchange.send(answer)
