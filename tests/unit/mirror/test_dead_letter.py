"""The batch of a dead letter: the record as it was, and why it is there."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from edge_broker.protocol.record_batch import build_batch, records_of
from mirror.ledger.dead_letter import DETAIL_BYTES_MAX, RefusedRecord, letter

BATCH = build_batch([(b"a", b"1"), (b"b", b"2")], timestamp_ms=5, base_offset=17, headers=[("n", b"x")])


def refused(offset=18, detail="no key"):
    return RefusedRecord(offset, SimpleNamespace(batch=BATCH), 70, "INVALID_RECORD", detail)


def test_the_letter_has_the_record_and_where_it_was():
    [record] = records_of(letter("readings", 3, refused()))
    assert (record.key, record.value, record.timestamp) == (b"b", b"2", 5)
    assert list(record.headers) == [
        ("n", b"x"),
        ("dead_letter.topic", b"readings"),
        ("dead_letter.partition", b"3"),
        ("dead_letter.offset", b"18"),
        ("dead_letter.reason", b"INVALID_RECORD"),
        ("dead_letter.detail", b"no key"),
    ]


def test_the_detail_is_bounded_and_stays_utf_8():
    [record] = records_of(letter("readings", 3, refused(detail="€" * 1000)))
    detail = dict(record.headers)["dead_letter.detail"]
    assert DETAIL_BYTES_MAX - 3 < len(detail) <= DETAIL_BYTES_MAX
    assert set(detail.decode()) == {"€"}


def test_a_batch_without_the_record_is_an_error():
    with pytest.raises(ValueError, match="readings-3 has no record at 19"):
        letter("readings", 3, refused(offset=19))
