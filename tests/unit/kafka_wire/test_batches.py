"""Record batches cut out of a fetch, forwarded and merged: what the table of batches.py says, row by row."""

from __future__ import annotations

import asyncio
import random
import struct
import threading

import pytest

from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.record_batch import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    check_batch,
)
from edge_broker.protocol.unpacking import CODEC_NAMES, CODEC_NONE, CODEC_ZSTD
from kafka_wire.records import batches, codecs
from kafka_wire.records.batches import (
    BadBatch,
    Piece,
    SkippedRange,
    TooMuchAtOnce,
    forward,
    last_marker,
    may_be_forwarded,
    merge,
    pieces_of,
    record_bytes,
    split,
    stamp,
)
from kafka_wire.records.codecs import Packer, compress
from tests.support.lying_batches import CODECS, LYING_AREAS, NOW_MS, batch, packed
from tests.support.pieces import Kept, batch_of, read_back
from tests.support.record_batches import ABORT, COMMIT, changed, marker

PRODUCER = (7, 2, 40)
INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)


def records(first, count, **fields):
    kept = Kept(0, NOW_MS, b"key", b"value", ((b"h", b"1"), (b"\xff\xfe", None)))._replace(**fields)
    return [kept._replace(offset=first + place, timestamp=kept.timestamp + place) for place in range(count)]


def cut(*parts, from_offset=0, aborted=()):
    return list(pieces_of(memoryview(b"".join(bytes(part) for part in parts)), from_offset, aborted))


def bad(*parts, from_offset=0, aborted=()):
    with pytest.raises(BadBatch) as caught:
        cut(*parts, from_offset=from_offset, aborted=aborted)
    return caught.value


def spans(*parts, **told):
    found = cut(*parts, **told)
    return [(one.first_offset, one.end_offset, getattr(one, "kind", "data")) for one in found]


def transaction(base_offset, producer_id, count=2):
    kept = records(base_offset, count)
    return batch_of(kept, producer=(producer_id, 0, 0), attributes=TRANSACTIONAL)


# ---- What a fetch is cut into


def test_each_whole_batch_is_a_piece_and_the_last_one_cut_off_is_left_out():
    parts = [batch_of(records(10, 3)), batch_of(records(13, 1)), batch_of(records(20, 2))]
    for left in (1, 20, 60, len(parts[-1]) - 1):
        assert spans(*parts[:2], parts[2][:left]) == [(10, 13, "data"), (13, 14, "data")]
    found = cut(*parts)
    assert [bytes(piece.batch) for piece in found] == parts
    assert [piece.header.base_offset for piece in found] == [10, 13, 20]
    assert cut() == []


def test_a_first_batch_that_is_cut_off_is_told():
    made = batch_of(records(10, 3))
    for left in (20, 61, len(made) - 1):
        assert f"says it has {len(made)} bytes, and {left} came" in str(bad(made[:left]))


def test_what_lies_below_the_offset_is_left_out_and_not_looked_at():
    damaged = changed(batch_of(records(10, 3)), 70, b"\x00\x01", crc=False)
    assert spans(damaged, batch_of(records(13, 4)), from_offset=15) == [(15, 17, "data")]
    assert bad(damaged, from_offset=12).first_offset == 12


def test_a_damaged_batch_is_told_with_its_offsets_and_pieces_before_it_are_given():
    good, damaged = batch_of(records(0, 2)), bytearray(batch_of(records(2, 3)))
    damaged[-1] ^= 1
    found = pieces_of(memoryview(good + damaged), 0, ())
    assert next(found).end_offset == 2
    with pytest.raises(BadBatch, match="offsets 2 to 4 does not match its CRC") as caught:
        next(found)
    assert (caught.value.first_offset, caught.value.end_offset) == (2, 5)


@pytest.mark.parametrize(
    ("position", "content"),
    [
        (0, struct.pack(">q", -1)),
        (0, struct.pack(">q", INT64_MAX)),
        (0, struct.pack(">q", INT64_MAX - 2)),
        (8, struct.pack(">i", 48)),
        (8, struct.pack(">i", -1)),
        (16, b"\x03"),
        (23, struct.pack(">i", -1)),
        (57, struct.pack(">i", -1)),
        (57, struct.pack(">i", 4)),
    ],
)
def test_a_header_that_lies_is_told(position, content):
    assert str(bad(changed(batch_of(records(3, 3)), position, content)))


def test_offsets_that_go_back_are_told():
    assert "impossible offsets" in str(bad(batch_of(records(5, 3)), batch_of(records(7, 1))))


@pytest.mark.parametrize("magic", [0, 1])
def test_older_messages_are_told_with_the_remedy(magic):
    old = struct.pack(">qiIbb", 9, 20, 0, magic, 0) + b"\0" * 14
    found = bad(batch_of(records(0, 2)), old, from_offset=1)
    assert "message.format.version" in str(found)
    assert (found.first_offset, found.end_offset) == (1, 10)
    assert spans(old, batch_of(records(10, 2)), from_offset=10) == [(10, 12, "data")]
    assert spans(batch_of(records(0, 2)), old[:-1]) == [(0, 2, "data")]


def test_markers_and_what_compaction_emptied_are_skipped_so_that_every_offset_is_told():
    empty = batch_of([], base_offset=4, last_offset=8)
    assert spans(batch_of(records(2, 1)), marker(COMMIT, base_offset=3, producer_id=1), empty) == [
        (2, 3, "data"),
        (3, 4, "control"),
        (4, 9, "compacted"),
    ]
    assert cut(empty, from_offset=6) == [SkippedRange(6, 9, "compacted")]


# ---- Aborted transactions


def test_the_last_marker_of_an_answer_is_told_and_of_one_cut_off_or_lying_none():
    first = bytes(marker(ABORT, base_offset=0, producer_id=7))
    last = bytes(marker(COMMIT, base_offset=4, producer_id=8))
    data = [first, bytes(batch_of(records(1, 3))), last, bytes(batch_of(records(5, 1)))]
    assert last_marker(memoryview(b"".join(data))) == (8, 0)
    assert last_marker(memoryview(b"".join(data[:2]) + last[:-1])) == (7, 0)
    assert last_marker(memoryview(b"")) is None
    assert last_marker(memoryview(first[:8] + struct.pack(">i", -1) + first[12:])) is None


def test_an_aborted_transaction_ends_with_its_own_marker():
    parts = [
        transaction(0, 7),
        transaction(2, 8),
        batch_of(records(4, 1)),
        transaction(5, 7),
        marker(ABORT, base_offset=7, producer_id=7),
        transaction(8, 7),
        marker(COMMIT, base_offset=10, producer_id=7),
        marker(COMMIT, base_offset=11, producer_id=8),
    ]
    kinds = ["aborted", "data", "data", "aborted", "control", "data", "control", "control"]
    assert [kind for *_, kind in spans(*parts, aborted=[(7, 0)])] == kinds
    assert [kind for *_, kind in spans(*parts)].count("aborted") == 0


def test_a_transaction_is_aborted_from_its_first_offset_on_and_several_are_told_in_any_order():
    parts = [
        transaction(0, 7),
        marker(COMMIT, base_offset=2, producer_id=7),
        transaction(3, 7),
        marker(ABORT, base_offset=5, producer_id=7),
        transaction(6, 7),
        marker(ABORT, base_offset=8, producer_id=7),
    ]
    kinds = ["data", "control", "aborted", "control", "aborted", "control"]
    assert [kind for *_, kind in spans(*parts, aborted=[(7, 6), (7, 3)])] == kinds


def test_a_marker_below_the_offset_ends_its_transaction_too():
    parts = [transaction(0, 7), marker(ABORT, base_offset=2, producer_id=7), transaction(3, 7)]
    assert spans(*parts, from_offset=3, aborted=[(7, 0)]) == [(3, 5, "data")]


def test_a_producer_that_is_idempotent_alone_is_never_aborted():
    assert spans(batch_of(records(0, 1), producer=(7, 0, 0)), aborted=[(7, 0)]) == [(0, 1, "data")]


def test_a_marker_that_cannot_be_read_is_told():
    lying = bytearray(batch(b"\x04\x00", count=1, attributes=CONTROL | TRANSACTIONAL, producer=(7, 0, -1)))
    assert "marker at offset 0 cannot be read" in str(bad(lying, aborted=[(7, 0)]))


# ---- Forwarding


@pytest.mark.parametrize("codec", CODECS)
def test_a_forwarded_batch_keeps_its_records_and_nothing_of_its_producer(codec):
    kept = records(100, 5)
    made = batch_of(kept, codec=codec, producer=PRODUCER, attributes=TRANSACTIONAL)
    (piece,) = cut(made)
    sent = forward(piece)
    header = check_batch(sent.batch, len(sent.batch))
    assert (header.base_offset, header.leader_epoch, header.producer_id) == (0, -1, -1)
    assert (header.producer_epoch, header.base_sequence) == (-1, -1)
    assert header.attributes == CODECS.index(codec)
    assert sent.batch[61:] == made[61:]
    assert sent[1:] == (5, ((100, 5),), len(made) - 61)
    assert [one._replace(offset=one.offset + 100) for one in read_back(sent.batch)] == kept
    assert bytes(piece.batch) == made


@pytest.mark.parametrize(
    "made",
    [
        batch_of(records(5, 3), last_offset=8),
        batch_of(records(5, 3), base_offset=4),
        batch_of([*records(5, 2), *records(8, 1)]),
        batch_of(records(5, 3), attributes=LOG_APPEND_TIME),
        batch_of(records(5, 3), attributes=DELETE_HORIZON),
        changed(batch_of(records(5, 3)), 22, b"\x05"),
    ],
    ids=["hole behind", "hole before", "hole within", "log append time", "delete horizon", "codec 5"],
)
def test_what_a_target_refuses_is_not_forwarded(made):
    (piece,) = cut(made)
    assert not may_be_forwarded(piece)
    with pytest.raises(ValueError, match="may not be forwarded"):
        forward(piece)


def test_a_part_of_a_batch_is_not_forwarded():
    made = batch_of(records(5, 3))
    assert may_be_forwarded(*cut(made))
    assert not may_be_forwarded(*cut(made, from_offset=6))
    assert not may_be_forwarded(cut(made)[0]._replace(end_offset=7))


@pytest.mark.parametrize("make", [forward, lambda piece: merge([piece], "zstd", 9)])
def test_a_batch_is_stamped_without_a_look_at_its_records(make):
    ready = make(*cut(batch_of(records(5, 3), producer=PRODUCER)))
    before = bytes(ready.batch)
    stamp(ready.batch, 2**40, 3, 2**31 - 1)
    header = check_batch(ready.batch, len(ready.batch))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**40, 3, 2**31 - 1)
    stamp(ready.batch, 9, 0, 0, transactional=True)
    assert check_batch(ready.batch, len(ready.batch)).is_transactional
    stamp(ready.batch, -1, -1, -1)
    assert bytes(ready.batch) == before


# ---- Merging


@pytest.mark.parametrize("target", CODEC_NAMES)
def test_batches_of_all_codecs_become_one(target):
    kept = [records(10 * number, 4, timestamp=NOW_MS - 1000 * number) for number in range(5)]
    pieces = cut(*(batch_of(one, codec=codec) for one, codec in zip(kept, CODECS, strict=True)))
    sent = merge(pieces, target)
    header = check_batch(sent.batch, len(sent.batch))
    assert header.codec == CODEC_NAMES.index(target)
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS, NOW_MS + 3)
    assert sent.runs == tuple((10 * number, 4) for number in range(5))
    everything = [one for each in kept for one in each]
    assert read_back(sent.batch) == [one._replace(offset=place) for place, one in enumerate(everything)]
    assert sent.payload_bytes == len(merge(pieces, CODEC_NONE).batch) - 61


def test_runs_are_exact_whatever_is_missing():
    parts = [
        batch_of([*records(3, 2), *records(8, 1)], base_offset=1, last_offset=9),
        batch_of(records(10, 1)),
        batch_of(records(11, 4)),
    ]
    assert merge(cut(*parts), "none").runs == ((3, 2), (8, 1), (10, 5))
    assert merge(cut(*parts, from_offset=4), "none").runs == ((4, 1), (8, 1), (10, 5))
    first, *_, last = cut(*parts)
    assert merge([first, last._replace(end_offset=13)], "none").runs == ((3, 2), (8, 1), (11, 2))


def test_a_piece_in_which_no_record_is_left_gives_none():
    (piece,) = cut(batch_of(records(3, 2), last_offset=9), from_offset=6)
    assert merge([piece], "zstd", 9) == (b"", 0, (), 0)
    (other,) = cut(batch_of(records(10, 1)))
    assert merge([piece, other], "zstd", 9).runs == ((10, 1),)


def test_log_append_time_is_each_record_s_own():
    appended = batch_of(records(0, 2), attributes=LOG_APPEND_TIME, max_timestamp=NOW_MS + 77)
    sent = merge(cut(appended, batch_of(records(2, 1))), "none")
    assert [one.timestamp for one in read_back(sent.batch)] == [NOW_MS + 77, NOW_MS + 77, NOW_MS]
    assert not BatchHeader(sent.batch).attributes & LOG_APPEND_TIME


def test_times_beyond_a_delete_horizon_are_kept():
    made = batch_of(records(0, 2), attributes=DELETE_HORIZON, base_timestamp=NOW_MS + 86_400_000)
    sent = merge(cut(made), "none")
    assert [one.timestamp for one in read_back(sent.batch)] == [NOW_MS, NOW_MS + 1]
    assert BatchHeader(sent.batch).attributes == 0


@pytest.mark.parametrize(
    "times",
    [
        (-1, -1, -1),
        (-1, 5, -1),
        (NOW_MS, NOW_MS - 10_000, NOW_MS + 1),
        (INT64_MAX, INT64_MIN, 0),
        (INT64_MIN, INT64_MAX, -1),
    ],
)
def test_any_timestamp_is_kept_and_the_greatest_one_told(times):
    kept = [Kept(place, time, None, None) for place, time in enumerate(times)]
    sent = merge(cut(batch_of(kept[:2]), batch_of(kept[2:])), "none")
    assert read_back(sent.batch) == kept
    assert BatchHeader(sent.batch).max_timestamp == max(times)
    assert BatchHeader(sent.batch).base_timestamp == times[0]


def test_numbers_of_more_bytes_than_before_have_room():
    kept = [Kept(place, NOW_MS, None, None) for place in range(20_000)]
    sent = merge(cut(*(batch_of([one]) for one in kept)), "none")
    assert read_back(sent.batch) == kept
    assert sent.runs == ((0, 20_000),)


@pytest.mark.parametrize("name", LYING_AREAS)
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_batch_whose_inside_lies_is_told(name, codec):
    area, count = LYING_AREAS[name]
    good = cut(batch_of(records(0, 2)))
    lying = bytearray(packed(area, count=count, codec=codec))
    struct.pack_into(">q", lying, 0, 50)
    piece = Piece(BatchHeader(lying), memoryview(lying), 50, 50 + count)
    if name == "record with attributes 128":  # they mean nothing, and are copied as all else
        assert merge([*good, piece], "none").records == 2 + count
        return
    with pytest.raises(BadBatch, match="is not what its header says") as caught:
        merge([*good, piece], "none")
    assert (caught.value.first_offset, caught.value.end_offset) == (50, 50 + count)


def test_a_batch_that_cannot_be_unpacked_is_told():
    lying = batch(b"no zstd", count=1, codec="zstd")
    with pytest.raises(BadBatch, match="offsets 0 to 0 cannot be unpacked"):
        merge(cut(lying), "none")
    with pytest.raises(BadBatch, match="no compression codec 5"):
        merge(cut(batch(b"", count=1, codec=5)), "none")


def test_what_unpacks_to_too_much_is_told_and_may_be_split(monkeypatch):
    monkeypatch.setattr(batches, "DECOMPRESSED_BYTES_MAX", 300_000)
    parts = [batch_of([Kept(offset, 0, None, bytes(200_000))], codec="zstd") for offset in range(2)]
    with pytest.raises(TooMuchAtOnce, match="2 batches"):
        merge(cut(*parts), "none")
    first, second = split(cut(*parts))
    assert merge(first, "none").runs == ((0, 1),)
    assert merge(second, "none").runs == ((1, 1),)
    for codec in ("zstd", "none"):
        with pytest.raises(BadBatch, match="300000 bytes"):
            merge(cut(batch_of([Kept(0, 0, None, bytes(400_000))], codec=codec)), "none")


def test_nothing_no_codec_and_no_level_are_refused():
    with pytest.raises(ValueError, match="at least one piece"):
        merge([], "none")
    for codec, level in (("lzo", None), (5, None), ("zstd", 23), ("zstd", 0), ("gzip", 10), ("lz4", 13), ("snappy", 1)):
        with pytest.raises(ValueError, match=r"codec|level"):
            merge(cut(batch_of(records(0, 1))), codec, level)


# ---- Splitting


def packed_of(part):
    return [one for one, count in merge(part, "none").runs for one in range(one, one + count)]


def test_a_list_is_split_between_pieces_near_the_half():
    pieces = cut(*(batch_of(records(5 * number, 5)) for number in range(10)))
    first, second = split(pieces)
    assert (first, second) == (pieces[:5], pieces[5:])


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_large_piece_is_cut_between_two_records_wherever_it_stands(codec):
    rnd = random.Random(1)
    large = [Kept(10 + 3 * place, NOW_MS, None, rnd.randbytes(500)) for place in range(10)]
    parts = [batch_of(records(0, 1)), batch_of(large, codec=codec, last_offset=99), batch_of(records(100, 1))]
    for chosen in (parts, parts[:2], parts[1:], parts[1:2]):
        pieces = cut(*chosen)
        first, second = split(pieces)
        assert packed_of(first) + packed_of(second) == packed_of(pieces)
        assert 4 <= len([one for one in packed_of(first) if 10 <= one < 99]) <= 6
        assert first[0].first_offset == pieces[0].first_offset
        assert second[-1].end_offset == pieces[-1].end_offset


def test_splitting_again_and_again_ends_with_single_records():
    parts = [batch_of(records(0, 1)), batch_of([*records(3, 4), *records(9, 2)], codec="lz4"), batch_of(records(20, 3))]
    waiting, single = [cut(*parts)], []
    while waiting:
        part = waiting.pop()
        if merge(part, "none").records == 1 and len(part) == 1:
            single.append(packed_of(part)[0])
            with pytest.raises(ValueError, match="single record"):
                split(part)
        else:
            waiting += reversed(split(part))
    assert single == [0, 3, 4, 5, 6, 9, 10, 20, 21, 22]


def test_the_bytes_of_a_single_record():
    kept = Kept(4, NOW_MS, b"key", None, ((b"name", b"12345"), (b"x", None)))
    pieces = cut(batch_of([*records(0, 2), kept], codec="gzip"), from_offset=4)
    assert record_bytes(*pieces) == 3 + 4 + 5 + 1
    with pytest.raises(ValueError, match="hold 3 records"):
        record_bytes(*cut(batch_of([*records(0, 2), kept])))


# ---- Codecs


def test_zstd_s_context_is_kept_by_its_thread_and_small():
    for level in (3, 9, 19, 22, 3):
        made = compress("zstd", level, bytes(300_000))
        assert compress("zstd", level, bytes(300_000)) == made
        context = codecs._contexts.zstd
        compress("zstd", level, b"x")
        assert codecs._contexts.zstd is context
        assert context.memory_size() < 7 * 1024 * 1024


async def test_packing_runs_in_one_thread_in_order_and_the_loop_goes_on():
    packer = Packer()
    began, go_on = threading.Event(), threading.Event()

    def held():
        began.set()
        assert go_on.wait(30)
        return threading.current_thread().name

    try:
        first = asyncio.ensure_future(packer.pack(held))
        pieces = cut(batch_of(records(0, 3)))
        second = asyncio.ensure_future(packer.pack(merge, pieces, CODEC_ZSTD, 9))
        await asyncio.to_thread(began.wait, 30)
        assert not second.done()
        go_on.set()
        assert (await first).startswith("pack")
        assert await second == merge(pieces, CODEC_ZSTD, 9)
        with pytest.raises(BadBatch):
            await packer.pack(merge, cut(batch(b"?", count=1, codec="zstd")), CODEC_ZSTD, 9)
    finally:
        go_on.set()
        await packer.close()
    with pytest.raises(RuntimeError):
        await packer.pack(held)


def test_the_crc_is_that_of_all_behind_it():
    sent = merge(cut(batch_of(records(0, 300))), "none")
    assert BatchHeader(sent.batch).crc == crc32c(bytes(sent.batch[21:]))
