"""What OpenSSL holds of a record is known however records are padded, or taken for more; for less, once."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edge_broker.network.tls.pending_ciphertext import HEAD_BYTES, RECORD_BYTES_MAX, PendingCiphertext, record_bytes

TLS13, TLS12 = "TLSv1.3", "TLSv1.2"
GCM13, GCM12 = "TLS_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256"
Seen = list[tuple[int, int]]


def begun(version: str, name: str, came: bytes = b"") -> PendingCiphertext:
    ahead = PendingCiphertext()
    ahead.begin(cast(Any, SimpleNamespace(version=lambda: version, cipher=lambda: (name, version, 128))))
    ahead.give(memoryview(came))
    return ahead


def played(ahead: PendingCiphertext, overhead: Callable[[], int], seed: int, records: int = 300) -> Seen:
    """Records of all sizes come in pieces of any size; what was told and what was so, after each piece."""
    chance, seen = random.Random(seed), []
    first = True
    for _ in range(records):
        plain = 100 if first else chance.choice([1, 59, 1000, 16_000])
        size = plain + overhead()
        cuts = sorted({size, *(chance.randrange(HEAD_BYTES, size) for _ in range(chance.randrange(3)))})
        inside = 0
        for cut in cuts:
            piece = cut - inside
            if first and not ahead.given_bytes:
                ahead.first_bytes = record_bytes(b"\x17\3\3" + (size - HEAD_BYTES).to_bytes(2, "big"))
            ahead.given_bytes += piece
            inside = cut
            if inside == size:
                ahead.plain_bytes += plain
                ahead.records += 1
                inside = 0
            seen.append((ahead.at_most(), inside))
        first = False
    return seen


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("version", "name", "overhead"),
    [
        (TLS13, GCM13, 22),
        (TLS13, GCM13, 38),  # Java
        (TLS13, "TLS_AES_128_CCM_8_SHA256", 14),  # which only the system's openssl.cnf turns on
        (TLS12, GCM12, 29),
        (TLS12, "ECDHE-ECDSA-CHACHA20-POLY1305", 21),
        (TLS12, "ECDHE-ECDSA-AES128-CCM8", 21),
    ],
)
def test_it_is_known_where_each_record_has_as_much_beside_its_content(
    version: str, name: str, overhead: int, seed: int
) -> None:
    for told, so in played(begun(version, name), lambda: overhead, seed):
        assert told == so


@pytest.mark.parametrize("seed", range(20))
def test_it_is_too_much_but_not_too_little_with_a_cipher_of_blocks(seed: int) -> None:
    chance = random.Random(seed)
    seen = played(begun(TLS12, "ECDHE-ECDSA-AES128-SHA256"), lambda: chance.randrange(58, 74), seed)
    assert all(so <= told < RECORD_BYTES_MAX for told, so in seen)


@pytest.mark.parametrize("seed", range(20))
def test_who_pads_as_he_likes_is_believed_until_the_sum_cannot_be(seed: int) -> None:
    chance = random.Random(seed)
    seen = played(begun(TLS13, GCM13), lambda: 22 + chance.randrange(200), seed)
    too_little = [number for number, (told, so) in enumerate(seen) if told < so]
    assert all(told < RECORD_BYTES_MAX for told, _ in seen)
    assert all(number < 100 for number in too_little), "it was found out soon"


def test_nothing_is_learned_from_a_first_record_that_did_not_come_alone() -> None:
    ahead = begun(TLS13, GCM13)
    ahead.first_bytes = 100
    ahead.given_bytes, ahead.plain_bytes, ahead.records = 200, 124, 2
    assert ahead.at_most() == 200 - 124 - 2 * 22


def test_what_came_with_the_handshake_counts_and_is_learned_from() -> None:
    came = b"\x17\3\3" + (95).to_bytes(2, "big") + bytes(50)
    ahead = begun(TLS13, GCM13, came)
    assert (ahead.at_most(), ahead.first_bytes) == (55, 100)
    ahead.given_bytes += 45
    ahead.plain_bytes, ahead.records = 62, 1
    assert ahead.at_most() == 0
    ahead.given_bytes += 100
    ahead.plain_bytes, ahead.records = 124, 2
    assert ahead.at_most() == 0


def test_the_head_of_a_record_says_how_long_it_is() -> None:
    assert record_bytes(b"\x17\3\3\1\2...") == 5 + 258
    assert record_bytes(b"\x17\3\3\1") == 0
