"""What compaction keeps of single batches, rule by rule."""

import sys

import pytest

from edge_broker.protocol.record_batch import DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, check_batch, read_header
from edge_broker.storage.maintenance.compaction_rules import Compaction, OffsetMap, Transactions, empty_batch, marker_of
from tests.support.record_batches import ABORT, COMMIT, make_batch, marker, records_in

NOW_MS = 1_700_000_000_000
KEEP_MS = 1000


def compaction(latest, end_offset=1000, last_offsets=None, transactions=None, now_ms=NOW_MS):
    offsets = OffsetMap(1 << 16)
    for key, offset in latest.items():
        assert offsets.put(key, offset)
    offsets.end_offset = end_offset
    return Compaction(offsets, transactions or Transactions(), last_offsets or {}, now_ms, KEEP_MS)


def keep(rules, batch):
    return rules.keep(batch, read_header(batch))


THREE = [(b"a", b"1", NOW_MS), (b"b", b"2", NOW_MS + 7), (b"a", b"3", NOW_MS + 3)]


def test_a_batch_whose_records_all_stay_is_kept_verbatim():
    batch = make_batch(THREE, base_offset=10)
    rules = compaction({b"b": 11})
    assert keep(rules, batch) is batch
    assert rules.removed == 0


@pytest.mark.parametrize("codec", range(5))
def test_superseded_records_go_and_the_rest_is_as_it_was(codec):
    batch = make_batch(THREE, base_offset=10, codec=codec, producer=(5, 3, 70), leader_epoch=9)
    before = read_header(batch)
    kept = keep(compaction({b"a": 12, b"b": 40}), batch)
    after = read_header(kept)
    assert records_in([kept]) == [(12, b"a", b"3", NOW_MS + 3)]
    assert after.records_count == 1
    assert after.max_timestamp == NOW_MS + 3
    for name in ("base_offset", "last_offset_delta", "leader_epoch", "attributes", "base_timestamp"):
        assert getattr(after, name) == getattr(before, name)
    assert (after.producer_id, after.producer_epoch, after.base_sequence) == (5, 3, 70)


def test_java_snappy_keeps_its_framing():
    import cramjam

    plain = make_batch(THREE, base_offset=10)
    block = bytes(cramjam.snappy.compress_raw(bytes(plain[61:])))
    framed = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01" + len(block).to_bytes(4, "big") + block
    batch = memoryview(bytearray(bytes(plain[:61]) + framed))
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[22] |= 2
    kept = keep(compaction({b"a": 12, b"b": 11}), batch)
    assert bytes(kept[61:69]) == b"\x82SNAPPY\x00"
    assert [record[0] for record in records_in([kept])] == [11, 12]


def test_with_log_append_time_the_brokers_time_stays():
    batch = make_batch(THREE, base_offset=10, attributes=LOG_APPEND_TIME)
    kept = keep(compaction({b"a": 12}), batch)
    assert read_header(kept).max_timestamp == read_header(batch).max_timestamp == NOW_MS + 7


def test_what_lies_behind_the_map_stays():
    batch = make_batch(THREE, base_offset=10)
    assert keep(compaction({b"a": 99, b"b": 99}, end_offset=10), batch) is batch
    kept = keep(compaction({b"a": 10, b"b": 99}, end_offset=11), batch)
    assert kept is batch
    assert [record[0] for record in records_in([keep(compaction({b"a": 99}, end_offset=12), batch)])] == [11, 12]


def test_records_without_a_key_stay():
    batch = make_batch([(None, b"x", NOW_MS), (b"a", b"1", NOW_MS), (None, None, NOW_MS)], base_offset=4)
    assert [record[0] for record in records_in([keep(compaction({b"a": 9}), batch)])] == [4, 6]


def test_a_batch_without_a_record_left_goes():
    rules = compaction({b"a": 99, b"b": 99})
    assert keep(rules, make_batch(THREE, base_offset=10)) is None
    assert rules.removed == 3


def test_the_last_batch_of_a_producer_leaves_its_header():
    batch = make_batch(THREE, base_offset=10, producer=(5, 3, 70), codec=1, leader_epoch=2)
    assert keep(compaction({b"a": 99, b"b": 99}, last_offsets={5: 50}), batch) is None
    rules = compaction({b"a": 99, b"b": 99}, last_offsets={5: 12})
    kept = keep(rules, batch)
    header = read_header(kept)
    assert (len(kept), header.records_count, header.last_offset, header.leader_epoch) == (61, 0, 12, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 3, 70)
    assert (header.codec, header.base_timestamp, header.max_timestamp) == (0, -1, NOW_MS + 7)
    again = memoryview(bytearray(kept))
    assert keep(rules, again) is again
    assert keep(compaction({}, last_offsets={5: 13}), again) is None


def test_a_tombstone_stays_until_its_horizon():
    batch = make_batch([(b"a", None, NOW_MS - 50), (b"b", b"2", NOW_MS - 20)], base_offset=10, codec=1)
    first = keep(compaction({b"a": 10}), batch)
    header = read_header(first)
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == NOW_MS + KEEP_MS
    assert header.max_timestamp == NOW_MS - 20
    assert records_in([first]) == [(10, b"a", None, NOW_MS - 50), (11, b"b", b"2", NOW_MS - 20)]
    first = memoryview(bytearray(first))
    assert keep(compaction({}, now_ms=NOW_MS + KEEP_MS - 1), first) is first
    second = keep(compaction({}, now_ms=NOW_MS + KEEP_MS), first)
    assert records_in([second]) == [(11, b"b", b"2", NOW_MS - 20)]
    assert read_header(second).base_timestamp == NOW_MS + KEEP_MS


def test_an_untrusted_clock_neither_sets_a_horizon_nor_reaches_one():
    batch = make_batch([(b"a", None, NOW_MS)], base_offset=10)
    assert keep(compaction({}, now_ms=None), batch) is batch
    dated = memoryview(bytearray(keep(compaction({}, now_ms=5), batch)))
    assert keep(compaction({}, now_ms=None), dated) is dated
    end = marker(COMMIT, base_offset=13, producer_id=5)
    assert keep(compaction({}, now_ms=None), end) is end


def test_a_tombstone_behind_the_map_gets_no_horizon_yet():
    batch = make_batch([(b"a", None, NOW_MS)], base_offset=10)
    assert keep(compaction({}, end_offset=10), batch) is batch


def test_a_superseded_tombstone_goes_at_once():
    assert keep(compaction({b"a": 20}), make_batch([(b"a", None, NOW_MS)], base_offset=10)) is None


def test_a_batch_that_cannot_be_unpacked_stays_and_so_do_tombstones_behind_it(monkeypatch):
    opaque = make_batch(THREE, base_offset=2, codec=3)
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    rules = compaction({b"a": 99, b"b": 99}, now_ms=NOW_MS + KEEP_MS)
    before = make_batch([(b"c", None, NOW_MS)], base_offset=1)
    expired = memoryview(bytearray(keep(compaction({b"c": 1, b"d": 1}), before)))
    assert keep(compaction({b"c": 1}, now_ms=NOW_MS + KEEP_MS), expired) is None
    assert keep(rules, opaque) is opaque
    assert "lz4" in str(rules.not_unpacked)
    assert keep(rules, expired) is expired


def test_broken_records_are_kept_whole():
    batch = make_batch(THREE, base_offset=10)
    batch[61] = 126
    rules = compaction({b"a": 99, b"b": 99})
    assert keep(rules, batch) is batch
    assert rules.not_unpacked is not None


def transactions(*batches):
    found = Transactions()
    for batch in batches:
        header = read_header(batch)
        found.note(header, marker_of(batch, header) if header.is_control else None)
    return found


def test_data_of_an_aborted_transaction_goes_and_its_marker_only_later():
    data = make_batch(THREE, base_offset=10, producer=(5, 0, 0), attributes=TRANSACTIONAL)
    end = marker(ABORT, base_offset=13, producer_id=5)
    log = transactions(data, end)
    rules = compaction({}, transactions=log)
    assert keep(rules, data) is None
    assert keep(rules, end) is end
    rules = compaction({}, transactions=log)
    dated = memoryview(bytearray(keep(rules, end)))
    assert read_header(dated).base_timestamp == NOW_MS + KEEP_MS
    assert marker_of(dated, read_header(dated)) == 0
    assert keep(compaction({}), dated) is dated
    assert keep(compaction({}, now_ms=NOW_MS + KEEP_MS), dated) is None
    assert read_header(keep(compaction({}, last_offsets={5: 13}, now_ms=NOW_MS + KEEP_MS), dated)).records_count == 0


def test_the_last_batch_of_a_producer_leaves_its_header_also_when_aborted():
    data = make_batch(THREE, base_offset=10, producer=(5, 0, 0), attributes=TRANSACTIONAL)
    log = transactions(data, marker(ABORT, base_offset=13, producer_id=5))
    assert read_header(keep(compaction({}, last_offsets={5: 12}, transactions=log), data)).records_count == 0


def test_a_commit_marker_stays_while_data_is_there():
    data = make_batch(THREE, base_offset=10, producer=(5, 0, 0), attributes=TRANSACTIONAL)
    end = marker(COMMIT, base_offset=13, producer_id=5)
    rules = compaction({}, transactions=transactions(data, end))
    assert keep(rules, data) is data
    assert keep(rules, end) is end
    gone = compaction({b"a": 99, b"b": 99})
    assert keep(gone, data) is None
    assert keep(gone, end) is end  # as Kafka: the pass that met the data leaves the marker to the next
    assert read_header(keep(compaction({}), end)).attributes & DELETE_HORIZON


def test_transactions_are_told_apart_by_producer_and_marker():
    first = make_batch(THREE, base_offset=0, producer=(5, 0, 0), attributes=TRANSACTIONAL)
    other = make_batch(THREE, base_offset=3, producer=(6, 0, 0), attributes=TRANSACTIONAL)
    second = make_batch(THREE, base_offset=8, producer=(5, 0, 3), attributes=TRANSACTIONAL)
    third = make_batch(THREE, base_offset=12, producer=(5, 0, 6), attributes=TRANSACTIONAL)
    found = transactions(
        first,
        other,
        marker(ABORT, base_offset=6, producer_id=5),
        marker(COMMIT, base_offset=7, producer_id=6),
        second,
        marker(COMMIT, base_offset=11, producer_id=5),
        third,
    )
    assert [found.is_aborted(read_header(batch)) for batch in (first, other, second, third)] == [
        True,
        False,
        False,
        False,
    ]
    assert found.undecided_offset == 12
    assert transactions(first, marker(ABORT, base_offset=6, producer_id=5)).undecided_offset is None


def test_markers_of_other_kinds_stay():
    other = marker(b"\x00\x00\x00\x02", base_offset=6, producer_id=5)
    assert keep(compaction({}), other) is other


def test_an_emptied_marker_goes():
    end = marker(COMMIT, base_offset=6, producer_id=5)
    assert keep(compaction({}), memoryview(empty_batch(read_header(end)))) is None


def test_the_map_keeps_the_latest_offset_and_is_full_at_its_load_factor():
    offsets = OffsetMap(24 * 101)
    assert offsets.capacity == 90
    for number in range(90):
        assert offsets.put(b"%d" % number, number)
    assert not offsets.put(b"another", 1)
    assert offsets.put(b"7", 1 << 60)
    assert [offsets.latest(b"%d" % number) for number in (0, 7, 89)] == [0, 1 << 60, 89]
    assert offsets.latest(b"another") == -1
    assert offsets.count == 90


def test_the_map_takes_no_more_memory_than_it_may():
    for size in (0, 100, 1 << 16, 4 << 20):
        assert OffsetMap(size)._table.nbytes <= max(size, 48)
    assert OffsetMap(4 << 20).capacity > 157_000


def test_checked_batches_are_what_the_encoder_of_the_tests_makes():
    assert check_batch(make_batch(THREE), 1 << 20).records_count == 3
