"""Produce: nothing is acked whose records were not walked, and a long walk holds up its own partition alone."""

from __future__ import annotations

import gc
import gzip
import sys
from typing import Any

import lz4.frame
import pytest
import zstandard

from edge_broker.broker import record_checks
from edge_broker.compiled import compiled_walk
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.network.background.metrics import health_text, metrics_text
from edge_broker.protocol import records_walk, unpacking
from edge_broker.protocol.api import METADATA, PRODUCE
from edge_broker.protocol.messages.metadata import MetadataRequest
from edge_broker.protocol.record_batch import read_header, records_of
from edge_broker.testing.site import Site
from tests.support.lying_batches import (
    CODECS,
    HONEST_AREAS,
    HONEST_PAYLOADS,
    LYING_AREAS,
    LYING_PAYLOADS,
    LYING_TIMES,
    NOW_MS,
    batch,
    packed,
    record,
    varint,
)
from tests.support.storage import read_all
from tests.unit.broker.test_produce import code, part, produce

MIB = 1 << 20
KERNEL = {"flush.ms": "9223372036854775807"}


@pytest.fixture(params=["compiled", "python"])
def walker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Either walker: what is answered is the same."""
    if request.param == "python":
        monkeypatch.setattr(records_walk, "compiled_walk", lambda: None)
        monkeypatch.setattr(record_checks, "compiled_walk", lambda: None)
    else:
        assert compiled_walk() is not None
    return str(request.param)


def view(content: bytes) -> memoryview:
    return memoryview(bytearray(content))


def large(unpacked: int = 3 * MIB, codec: str = "zstd", **fields: Any) -> memoryview:
    """A compressed batch that takes several turns."""
    count = unpacked // 1000
    area = b"".join(record(number, value=bytes(990)) for number in range(count))
    return view(packed(area, count=count, codec=codec, **fields))


def bomb(codec: str, unpacked: int) -> memoryview:
    """One record that says it has so many bytes, and has them."""
    body = b"\0\0\0\2k" + varint(unpacked) + bytes(unpacked) + b"\0"
    area = varint(len(body)) + body
    content = {
        "gzip": lambda: gzip.compress(area, mtime=0),
        "lz4": lambda: lz4.frame.compress(area, block_linked=False),
        "zstd": lambda: zstandard.ZstdCompressor().compress(area),
    }[codec]()
    return view(batch(content, count=1, codec=codec))


@pytest.mark.parametrize("name", LYING_AREAS)
def test_a_lying_batch_is_refused_whatever_packs_it(walker: str, name: str) -> None:
    site = Site()
    (log,) = site.topic()
    client = site.client()
    area, count = LYING_AREAS[name]
    for codec in CODECS:
        answer = client.ask(PRODUCE, produce(("t", 0, view(packed(area, count=count, codec=codec)))))
        assert (codec, code(answer)) == (codec, ErrorCode.INVALID_RECORD)
        assert part(answer).error_message.endswith(".")
    assert log.log_end_offset == 0


@pytest.mark.parametrize("name", LYING_TIMES)
def test_a_lying_time_is_refused_unless_the_topic_takes_the_brokers(walker: str, name: str) -> None:
    site = Site()
    site.topic()
    site.topic("stamped", config={"message.timestamp.type": "LogAppendTime"})
    client = site.client()
    area, count, base = LYING_TIMES[name]
    for codec in CODECS:
        records = packed(area, count=count, codec=codec, base_timestamp=base)
        answer = client.ask(PRODUCE, produce(("t", 0, view(records)), ("stamped", 0, view(records))))
        assert (code(answer), code(answer, 1)) == (ErrorCode.INVALID_TIMESTAMP, ErrorCode.NONE)


@pytest.mark.parametrize("name", LYING_PAYLOADS)
def test_what_the_codec_does_not_make_is_refused(name: str) -> None:
    site = Site()
    (log,) = site.topic()
    codec, content = LYING_PAYLOADS[name]
    answer = site.client().ask(PRODUCE, produce(("t", 0, view(batch(content, count=2, codec=codec)))))
    assert code(answer) == ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 0


@pytest.mark.parametrize("name", HONEST_AREAS)
def test_an_honest_batch_is_taken_whatever_packs_it(walker: str, name: str) -> None:
    site = Site()
    (log,) = site.topic()
    client = site.client()
    area, count = HONEST_AREAS[name]
    for codec in CODECS:
        answer = client.ask(PRODUCE, produce(("t", 0, view(packed(area, count=count, codec=codec)))))
        assert (codec, code(answer)) == (codec, ErrorCode.NONE)
    assert log.log_end_offset == 5 * count


@pytest.mark.parametrize("name", HONEST_PAYLOADS)
def test_what_clients_pack_in_other_ways_is_taken(name: str) -> None:
    site = Site()
    (log,) = site.topic()
    codec, content = HONEST_PAYLOADS[name]
    assert not code(site.client().ask(PRODUCE, produce(("t", 0, view(batch(content, count=2, codec=codec))))))
    assert log.log_end_offset == 2


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("lie", [b"", bytes(3 * MIB)], ids=["on the loop", "in the worker"])
def test_a_refused_batch_uses_no_sequence_and_no_offset(codec: str, lie: bytes) -> None:
    site = Site()
    (log,) = site.topic(config={"max.message.bytes": str(8 * MIB)})
    client = site.client()
    area = record(value=lie) + record(7)
    bad = packed(area, count=2, codec=codec, producer=(5, 0, 0))  # type: ignore[arg-type]
    good = packed(record() + record(1), count=2, codec=codec, producer=(5, 0, 0))  # type: ignore[arg-type]
    assert code(client.ask(PRODUCE, produce(("t", 0, view(bad))))) == ErrorCode.INVALID_RECORD
    answered = part(client.ask(PRODUCE, produce(("t", 0, view(good)))))
    assert (answered.error_code, answered.base_offset) == (ErrorCode.NONE, 0)
    assert log.log_end_offset == 2


@pytest.mark.parametrize("codec", CODECS)
def test_records_without_a_key_are_refused_in_compacted_topics(walker: str, codec: str) -> None:
    site = Site()
    site.topic(config={"cleanup.policy": "compact"})
    client = site.client()
    bad = packed(record() + record(1, key=None), count=2, codec=codec)
    answer = client.ask(PRODUCE, produce(("t", 0, view(bad))))
    assert code(answer) == ErrorCode.INVALID_RECORD
    assert "record 1 has none" in part(answer).error_message
    assert not code(client.ask(PRODUCE, produce(("t", 0, view(packed(record(), count=1, codec=codec))))))


@pytest.mark.parametrize("codec", CODECS)
def test_a_greatest_timestamp_that_is_none_is_put_right(codec: str) -> None:
    site = Site()
    (log,) = site.topic()
    area = record(time=3) + record(1, time=9) + record(2, time=5)
    wrong = view(packed(area, count=3, codec=codec, max_timestamp=2**63 - 1))
    assert not code(site.client().ask(PRODUCE, produce(("t", 0, wrong))))
    (stored,) = read_all(log)
    assert read_header(stored).max_timestamp == NOW_MS + 9
    assert [found.timestamp - NOW_MS for found in records_of(stored)] == [3, 9, 5]
    assert log.reader.max_timestamp() == (2, NOW_MS + 9)


def test_a_large_batch_is_checked_in_turns_and_holds_up_its_own_partition_alone() -> None:
    site = Site()
    first, second = site.topic(partitions=2, config=KERNEL)
    one, two, three = site.client(), site.client(), site.client()
    one.send(PRODUCE, produce(("t", 0, large()), acks=1))
    assert not one.transport.reading, "a connection whose records are kept is not read"
    two.send(PRODUCE, produce(("t", 0, view(packed(record(), count=1, codec="none"))), acks=1))
    assert not two.transport.reading
    three.send(PRODUCE, produce(("t", 1, view(packed(record(), count=1, codec="none"))), acks=1))
    assert code(three.answer()) == ErrorCode.NONE
    three.send(METADATA, MetadataRequest(topics=None))
    assert three.answer().topics
    turns = 0
    while not first.log_end_offset:
        site.workers["checker"].step()
        turns += 1
    assert turns == 3
    assert (part(one.answer()).base_offset, part(two.answer()).base_offset) == (0, 3145)
    assert one.transport.reading
    assert two.transport.reading
    assert second.log_end_offset == 1


def test_partitions_take_turns_and_a_short_check_passes_a_long_one() -> None:
    site = Site()
    site.topic(partitions=2, config=KERNEL)
    long, short = site.client(), site.client()
    long.send(PRODUCE, produce(("t", 0, large(20 * MIB)), acks=1))
    short.send(PRODUCE, produce(("t", 1, large(2 * MIB)), acks=1))
    for _ in range(6):
        site.workers["checker"].step()
    assert code(short.answer()) == ErrorCode.NONE
    assert long.answers() == []
    site.run_until_idle()
    assert code(long.answer()) == ErrorCode.NONE


def test_no_more_than_four_batches_are_begun_at_once() -> None:
    site = Site()
    site.topic(partitions=9, config=KERNEL)
    clients = [site.client() for _ in range(9)]
    for partition, client in enumerate(clients):
        client.send(PRODUCE, produce(("t", partition, large()), acks=1))
    assert len(site.workers["checker"]) == 4
    assert site.dispatcher.working
    site.run_until_idle()
    assert [code(client.answer()) for client in clients] == [ErrorCode.NONE] * 9
    assert not site.dispatcher.working
    assert not site.broker.checking


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_a_bomb_is_refused_and_was_never_whole(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "UNPACKED_BYTES_MAX", 8 * MIB)
    pieces = []
    take = unpacking.Unpacker.take
    monkeypatch.setattr(unpacking.Unpacker, "take", lambda self, size: (pieces.append(size), take(self, size)))
    site = Site()
    (log,) = site.topic(config=KERNEL)
    answer = site.client().ask(PRODUCE, produce(("t", 0, bomb(codec, 8 * MIB)), acks=1))
    assert code(answer) == ErrorCode.MESSAGE_TOO_LARGE
    assert str(8 * MIB) in part(answer).error_message
    assert max(pieces) <= MIB + 128 * 1024
    assert not code(site.client().ask(PRODUCE, produce(("t", 0, bomb(codec, 8 * MIB - 64)), acks=1)))
    assert log.log_end_offset == 1


def test_bombs_in_one_request_leave_the_loop_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """B11: a hundred bombs in one request cost others 2.7 s."""
    on_loop = 0
    take = unpacking.Unpacker.take

    def counted(self: unpacking.Unpacker, size: int) -> None:
        nonlocal on_loop
        on_loop += size
        take(self, size)

    site = Site()
    site.topic(partitions=100, config={"cleanup.policy": "compact", **KERNEL})
    content = bomb("gzip", MIB)
    monkeypatch.setattr(unpacking.Unpacker, "take", counted)
    client = site.client()
    client.send(PRODUCE, produce(*(("t", number, content) for number in range(100)), acks=1))
    assert 0 < on_loop <= record_checks.LOOP_BYTES_MAX // record_checks.UNPACKING_FACTOR + 64 * 1024
    site.run_until_idle()
    assert {found.error_code for topic in client.answer().responses for found in topic.partition_responses} == {0}


def test_a_window_wider_than_8_mib_is_kept_for_16_mib_alone() -> None:
    params = zstandard.ZstdCompressionParameters(window_log=27, compression_level=1)
    packer = zstandard.ZstdCompressor(compression_params=params)
    small, wide = (packer.compressobj() for _ in range(2))
    value = bytes(17 * MIB)
    body = b"\0\0\0\1" + varint(len(value)) + value + b"\0"
    area = varint(len(body)) + body
    site = Site()
    site.topic(config=KERNEL)
    client = site.client()
    content = wide.compress(area) + wide.flush()
    answer = client.ask(PRODUCE, produce(("t", 0, view(batch(content, count=1, codec="zstd"))), acks=1))
    assert code(answer) == ErrorCode.MESSAGE_TOO_LARGE
    content = small.compress(record()) + small.flush()
    assert not code(client.ask(PRODUCE, produce(("t", 0, view(batch(content, count=1, codec="zstd"))), acks=1)))


def test_a_lie_found_by_the_worker_is_told_and_those_behind_go_on() -> None:
    site = Site()
    (log,) = site.topic(config=KERNEL)
    liar, honest = site.client(), site.client()
    area = b"".join(record(number, value=bytes(1000)) for number in range(3000)) + record(7)
    liar.send(PRODUCE, produce(("t", 0, view(packed(area, count=3001, codec="lz4"))), acks=1))
    honest.send(PRODUCE, produce(("t", 0, view(packed(record(), count=1, codec="none"))), acks=1))
    site.run_until_idle()
    assert code(liar.answer()) == ErrorCode.INVALID_RECORD
    assert part(honest.answer()).base_offset == 0
    assert log.log_end_offset == 1


def test_a_lost_connection_or_a_deadline_leaves_nothing_behind() -> None:
    site = Site()
    (log,) = site.topic(config=KERNEL)
    gone, late, behind = site.client(), site.client(), site.client()
    gone.send(PRODUCE, produce(("t", 0, large()), acks=1))
    gone.lose()
    late.send(PRODUCE, produce(("t", 0, large()), acks=1, timeout_ms=500))
    behind.send(PRODUCE, produce(("t", 0, view(packed(record(), count=1, codec="none"))), acks=1))
    site.loop.advance(501)
    assert code(late.answer()) == ErrorCode.REQUEST_TIMED_OUT
    site.run_until_idle()
    assert part(behind.answer()).base_offset == 0
    assert log.log_end_offset == 1
    assert not site.broker.checking


def test_a_check_that_nobody_waits_for_ends_with_its_turn() -> None:
    site = Site()
    (log,) = site.topic(config=KERNEL)
    gone, late = site.client(), site.client()
    gone.send(PRODUCE, produce(("t", 0, large(20 * MIB)), acks=1))
    gone.lose()
    site.workers["checker"].step()
    assert not site.dispatcher.checks.busy
    late.send(PRODUCE, produce(("t", 0, large(20 * MIB)), acks=1, timeout_ms=500))
    site.loop.advance(501)
    assert code(late.answer()) == ErrorCode.REQUEST_TIMED_OUT
    site.workers["checker"].step()
    assert not site.dispatcher.checks.busy
    assert not site.broker.checking
    assert log.log_end_offset == 0


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_a_refused_check_keeps_nothing_in_memory(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A traceback kept with the refusal held the windows until a garbage collection: 244 MB by twelve clients."""
    monkeypatch.setattr(unpacking, "UNPACKED_BYTES_MAX", 4 * MIB)
    site = Site()
    site.topic(config=KERNEL)
    gc.collect()
    gc.disable()
    try:
        client = site.client()
        assert code(client.ask(PRODUCE, produce(("t", 0, bomb(codec, 5 * MIB)), acks=1))) == ErrorCode.MESSAGE_TOO_LARGE
        assert [found for found in gc.get_objects() if isinstance(found, unpacking.Unpacker)] == []
    finally:
        gc.enable()


def test_acks_0_closes_the_connection_of_a_liar() -> None:
    site = Site()
    site.topic()
    client = site.client()
    area, count = LYING_AREAS["garbage"]
    client.send(PRODUCE, produce(("t", 0, view(batch(area, count=count))), acks=0))
    assert client.transport.closed


def test_a_neighbour_of_a_lying_batch_is_written() -> None:
    site = Site()
    site.topic(partitions=2)
    area, count = LYING_AREAS["garbage"]
    good = view(packed(record(), count=1, codec="lz4"))
    answer = site.client().ask(PRODUCE, produce(("t", 0, view(batch(area, count=count))), ("t", 1, good)))
    assert (code(answer), code(answer, 1)) == (ErrorCode.INVALID_RECORD, ErrorCode.NONE)


@pytest.mark.parametrize("codec", [2, 3, 4])
def test_without_its_library_a_codec_is_refused_and_the_others_are_not(
    codec: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, unpacking.MODULES[codec], None)
    site = Site()
    site.topic()
    client = site.client()
    for name in CODECS:
        answer = client.ask(PRODUCE, produce(("t", 0, view(packed(record(), count=1, codec=name)))))
        expected = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if name == CODECS[codec] else ErrorCode.NONE
        assert (name, code(answer)) == (name, expected)


def test_health_and_metrics_name_the_walker_and_the_codecs_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    assert health_text() == "ok"
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert health_text() == "ok, but batches in zstd are refused: the Python packages zstandard are not installed"
    text = metrics_text(site.broker, site.dispatcher, site.server, 0)
    assert 'edge_broker_codec_missing{codec="zstd"} 1' in text
    assert 'edge_broker_codec_missing{codec="lz4"} 0' in text
    assert 'edge_broker_records_walker{walker="compiled"} 1' in text


def test_frames_of_zstd_that_are_unpacked_side_by_side_or_left_do_not_mix() -> None:
    packer = zstandard.ZstdCompressor(write_content_size=False)
    contents = [bytes(range(number, number + 50)) * 20_000 for number in range(4)]
    frames = [packer.compress(content) for content in contents]
    for _ in range(2):  # the second time with the decoder that was kept
        pieces = [iter(unpacking.Unpacker(unpacking.CODEC_ZSTD, frame, 64 * 1024)) for frame in frames]
        unpacked = [bytearray(next(piece)) for piece in pieces]
        next(iter(unpacking.Unpacker(unpacking.CODEC_ZSTD, frames[0], 64 * 1024)))  # and left in the middle
        while any(more := [bytes(next(piece, b"")) for piece in pieces]):
            for content, piece in zip(unpacked, more, strict=True):
                content.extend(piece)
        assert unpacked == contents
    assert max(map(len, unpacking.Unpacker(unpacking.CODEC_ZSTD, frames[0], 1000))) == 1000
    cut_off = unpacking.Unpacker(unpacking.CODEC_ZSTD, frames[0][:-5])
    with pytest.raises(Refusal):
        list(cut_off)
    assert b"".join(map(bytes, unpacking.Unpacker(unpacking.CODEC_ZSTD, frames[1]))) == contents[1]


def test_zstd_may_have_several_frames_and_skippable_ones_and_all_must_be_whole() -> None:
    packer = zstandard.ZstdCompressor(write_checksum=True)
    one, other, skipped = packer.compress(b"one"), packer.compress(b"other"), b"\x5f\x2a\x4d\x18\x03\0\0\0abc"

    def unpacked(packed: bytes) -> bytes:
        return b"".join(map(bytes, unpacking.Unpacker(unpacking.CODEC_ZSTD, packed)))

    assert unpacked(skipped + one + skipped + other + skipped) == b"oneother"
    for cut in range(1, len(one)):
        with pytest.raises(Refusal):
            unpacked(one[:cut])
    for wrong in (one[:-1] + bytes((one[-1] ^ 1,)), one + b"\0", skipped[:-1], one + skipped[:9], b""):
        with pytest.raises(Refusal):
            unpacked(wrong)
