"""Record batches: what is refused and why, stamping in place, records of every codec as other clients write them."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import cramjam
import lz4.frame
import pytest
from kafka.record._crc32c import crc as kafka_python_crc32c
from kafka.record.default_records import DefaultRecordBatch

from edge_broker.errors import ErrorCode, ProtocolViolation, Refusal
from edge_broker.protocol import crc, record_batch
from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.record_batch import (
    CODEC_NAMES,
    assign_offsets,
    build_batch,
    check_batch,
    read_header,
    records_of,
)
from edge_broker.protocol.unpacking import MODULES
from tests.support.record_batches import batch_builder, changed

BATCH_BYTES_MAX = 1 << 20
BUILT = build_batch([(b"k", b"v"), (None, b"w"), (b"", None)], timestamp_ms=1_700_000_000_000)


def _batch(codec: int, *, headers: list[tuple[str, bytes | None]] | None = None) -> bytes:
    builder = batch_builder(codec)
    for offset in range(50):
        builder.append(offset, 1000 + 7 * offset, b"key" if offset % 2 else None, b"v" * offset, headers or [])
    return bytes(builder.build())


def _with(position: int, content: bytes, *, batch: bytes = BUILT, crc: bool = True) -> memoryview:
    """Return the batch with bytes put in, and a CRC that is right again unless it is to be wrong."""
    return memoryview(bytearray(changed(batch, position, content, crc=crc)))


def _code(records: memoryview | bytes | None, batch_bytes_max: int = BATCH_BYTES_MAX) -> ErrorCode:
    with pytest.raises(Refusal) as refused:
        check_batch(records, batch_bytes_max)
    return refused.value.code


def _i(size: int, value: int) -> bytes:
    return value.to_bytes(size, "big", signed=True)


def test_crc_is_castagnoli_of_whatever_holds_bytes() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    content = bytearray(range(251)) * 600
    for each in (b"", bytes(content), content, memoryview(content), memoryview(content)[3:40_000]):
        assert crc32c(each) == kafka_python_crc32c(each)


def test_crc_comes_from_the_package_where_its_extension_has_another_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "_crc32c.py").write_text("raise AssertionError('a stranger beside it is none of its own')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(crc, "find_spec", lambda _: None)
    package = crc._extension()
    assert package.__name__ == "crc32c" != crc._sum.__self__.__name__
    assert package.crc32c(b"123456789", 0, 0) == 0xE3069283


def test_a_good_batch_is_one_header() -> None:
    header = check_batch(memoryview(BUILT), len(BUILT))
    assert (header.size, header.records_count, header.last_offset_delta) == (len(BUILT), 3, 2)
    assert (header.base_offset, header.last_offset, header.next_offset) == (0, 2, 3)
    assert (header.magic, header.codec, header.producer_id) == (2, 0, -1)
    assert not header.is_control
    assert not header.is_transactional


def test_kafka_python_takes_what_we_build() -> None:
    theirs = DefaultRecordBatch(BUILT)
    assert theirs.validate_crc()
    assert [(record.offset, record.key, record.value) for record in theirs] == [
        (0, b"k", b"v"),
        (1, None, b"w"),
        (2, b"", None),
    ]


REFUSED: list[tuple[str, Callable[[], memoryview | bytes | None], ErrorCode]] = [
    ("null", lambda: None, ErrorCode.INVALID_RECORD),
    ("empty", lambda: b"", ErrorCode.INVALID_RECORD),
    ("shorter than a header", lambda: BUILT[:60], ErrorCode.INVALID_RECORD),
    ("cut off", lambda: BUILT[:-1], ErrorCode.INVALID_RECORD),
    ("one byte more", lambda: BUILT + b"\0", ErrorCode.INVALID_RECORD),
    ("two batches", lambda: BUILT + BUILT, ErrorCode.INVALID_RECORD),
    ("magic 1", lambda: _with(16, b"\x01"), ErrorCode.INVALID_RECORD),
    ("magic 1 and short", lambda: bytes(16) + b"\x01" + bytes(10), ErrorCode.INVALID_RECORD),
    ("magic 3", lambda: _with(16, b"\x03"), ErrorCode.CORRUPT_MESSAGE),
    ("length below a header", lambda: _with(8, _i(4, 48)), ErrorCode.CORRUPT_MESSAGE),
    ("negative length", lambda: _with(8, _i(4, -1)), ErrorCode.CORRUPT_MESSAGE),
    ("length beyond the end", lambda: _with(8, _i(4, len(BUILT))), ErrorCode.INVALID_RECORD),
    ("length beyond all bounds", lambda: _with(8, _i(4, 2**31 - 1)), ErrorCode.MESSAGE_TOO_LARGE),
    ("wrong CRC", lambda: _with(17, b"\0\0\0\0", crc=False), ErrorCode.CORRUPT_MESSAGE),
    ("garbled value", lambda: _with(len(BUILT) - 2, b"!", crc=False), ErrorCode.CORRUPT_MESSAGE),
    ("base offset", lambda: _with(0, _i(8, 5)), ErrorCode.INVALID_RECORD),
    ("no records", lambda: _with(57, _i(4, 0)), ErrorCode.INVALID_RECORD),
    ("negative count", lambda: _with(57, _i(4, -1)), ErrorCode.INVALID_RECORD),
    ("count against offsets", lambda: _with(57, _i(4, 2)), ErrorCode.INVALID_RECORD),
    ("offsets against count", lambda: _with(23, _i(4, 7)), ErrorCode.INVALID_RECORD),
    ("codec 5", lambda: _with(21, _i(2, 5)), ErrorCode.INVALID_RECORD),
    ("log append time", lambda: _with(21, _i(2, 8)), ErrorCode.INVALID_TIMESTAMP),
    ("control batch", lambda: _with(21, _i(2, 0x20)), ErrorCode.INVALID_RECORD),
    ("transaction without producer", lambda: _with(21, _i(2, 0x10)), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ("producer without sequence", lambda: _with(43, _i(8, 9) + _i(2, 0) + _i(4, -1)), ErrorCode.INVALID_RECORD),
    ("producer without epoch", lambda: _with(43, _i(8, 9) + _i(2, -1) + _i(4, 0)), ErrorCode.INVALID_PRODUCER_EPOCH),
    ("producer id -2", lambda: _with(43, _i(8, -2)), ErrorCode.INVALID_RECORD),
]


@pytest.mark.parametrize(("records", "code"), [pytest.param(*case[1:], id=case[0]) for case in REFUSED])
def test_refused(records: Callable[[], memoryview | bytes | None], code: ErrorCode) -> None:
    assert _code(records()) == code


def test_the_bound_on_size_is_hard() -> None:
    assert check_batch(BUILT, len(BUILT))
    assert _code(BUILT, len(BUILT) - 1) == ErrorCode.MESSAGE_TOO_LARGE


def test_an_idempotent_and_a_transactional_producer_pass() -> None:
    batch = build_batch([(None, b"v")], timestamp_ms=1, producer_id=9, producer_epoch=0, base_sequence=0)
    assert check_batch(batch, BATCH_BYTES_MAX).producer_id == 9
    assert check_batch(_with(21, _i(2, 0x10), batch=batch), BATCH_BYTES_MAX).is_transactional


def test_offsets_are_stamped_in_place_outside_the_crc() -> None:
    buffer = bytearray(BUILT)
    assign_offsets(memoryview(buffer), 2**40, 7)
    header = read_header(buffer)
    assert (header.base_offset, header.leader_epoch, header.last_offset) == (2**40, 7, 2**40 + 2)
    assert len(buffer) == header.size
    assert crc32c(bytes(buffer[21:])) == header.crc
    assert [record.offset for record in records_of(buffer)] == [2**40, 2**40 + 1, 2**40 + 2]


@pytest.mark.parametrize("position", [-1, 1, len(BUILT)])
def test_a_header_that_does_not_fit_is_a_violation(position: int) -> None:
    with pytest.raises(ProtocolViolation):
        read_header(BUILT[:61], position)


@pytest.mark.parametrize(
    ("position", "content"),
    [(16, b"\x01"), (8, _i(4, 48)), (0, _i(8, -1)), (57, _i(4, -1)), (57, _i(4, 4)), (23, _i(4, -1))],
)
def test_what_cannot_be_a_header_is_a_violation(position: int, content: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        read_header(_with(position, content))


def test_a_compacted_batch_may_hold_fewer_records_than_offsets() -> None:
    assert read_header(_with(23, _i(4, 9))).next_offset == 10


@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
def test_records_of_every_codec(codec: int) -> None:
    headers = [("grüße", b"1"), ("none", None)]
    batch = _batch(codec, headers=headers)
    assert check_batch(memoryview(batch), BATCH_BYTES_MAX).codec == codec
    assert [
        (record.offset, record.timestamp, record.key, record.value, record.headers)
        for record in records_of(memoryview(batch))
    ] == [(i, 1000 + 7 * i, b"key" if i % 2 else None, b"v" * i, headers) for i in range(50)]


def test_snappy_without_blocks_is_read_too() -> None:
    payload = cramjam.snappy.compress_raw(BUILT[61:])
    batch = _with(21, _i(2, 2), batch=BUILT[:61] + bytes(payload))
    batch[8:12] = _i(4, len(batch) - 12)
    assert [record.value for record in records_of(batch)] == [b"v", b"w", None]


def test_log_append_time_is_everybodys_timestamp() -> None:
    batch = _with(35, _i(8, 5_000), batch=bytes(_with(21, _i(2, 8))))
    assert {record.timestamp for record in records_of(batch)} == {5_000}


@pytest.mark.parametrize("codec", [2, 3, 4], ids=("snappy", "lz4", "zstd"))
def test_without_its_library_the_answer_names_it(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULES[codec], None)
    with pytest.raises(Refusal, match=MODULES[codec].partition(".")[0]) as refused:
        list(records_of(_batch_of(codec, b"x")))
    assert refused.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def _batch_of(codec: int, payload: bytes) -> memoryview:
    batch = _with(21, _i(2, codec), batch=BUILT[:61] + payload)
    batch[8:12] = _i(4, len(batch) - 12)
    return batch


BOMBS = {
    1: lambda content: zlib.compress(content, wbits=31),
    2: lambda content: bytes(cramjam.snappy.compress_raw(content)),
    3: lambda content: lz4.frame.compress(content, block_linked=False),
    4: lambda content: bytes(cramjam.zstd.compress(content)),
}


@pytest.mark.parametrize("codec", BOMBS, ids=lambda codec: CODEC_NAMES[codec])
def test_unpacking_is_bounded(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_batch, "DECOMPRESSED_BYTES_MAX", 1 << 20)
    with pytest.raises(Refusal) as refused:
        list(records_of(_batch_of(codec, BOMBS[codec](bytes((1 << 20) + 1)))))
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
    largest = b"\0" * (1 << 20)
    assert record_batch.unpack_records(codec, BOMBS[codec](largest)) == largest


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        BUILT[61:-1],
        BUILT[61:] + b"\0",
        b"\x01" + BUILT[62:],  # a negative size
        b"\x02\0",  # ends after the attributes
        b"\xff" * 20,
        b"\x0e\0\0\0\x7f\x00\x00\x00",  # a key longer than the record
        b"\x0c\0\0\0\x01\x01\x7f",  # a negative count of headers
        b"\x10\0\0\0\x01\x01\x02\x01\x01",  # a header without a key
    ],
)
def test_an_inside_that_does_not_fit_is_refused(payload: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        list(records_of(_batch_of(0, payload)))
    assert refused.value.code == ErrorCode.INVALID_RECORD


def test_a_batch_that_is_cut_off_has_no_records() -> None:
    with pytest.raises(ProtocolViolation):
        list(records_of(BUILT[:-1]))


def test_a_batch_needs_a_record() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build_batch([], timestamp_ms=0)
