"""The pure pieces of storage: names, topic files, topic-level keys, indexes, producers, epochs, files of state."""

import uuid

import pytest

from edge_broker.configuration.settings import LEFT_TO_KERNEL_MS, TOPIC_KEYS, LogSettings
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.protocol.record_batch import read_header
from edge_broker.storage.files import atomic_files
from edge_broker.storage.log import leader_epochs, producer_state
from edge_broker.storage.metadata import topic_record
from edge_broker.storage.metadata.topic_config import (
    check_new_config,
    check_topic_config,
    describe_topic_config,
    topic_settings,
)
from edge_broker.storage.segment import segment_index
from edge_broker.testing.clock import NOW_MS
from edge_broker.testing.disk import SimulatedDisk
from tests.support.storage import NOW, batch

TOPIC_ID = uuid.UUID("0123456789abcdef0123456789abcdef")


@pytest.mark.parametrize("name", ["a", "a.b_c-D9", "...", "x" * 249, "__consumer_offsets"])
def test_names_that_kafka_takes(name):
    topic_record.check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a/b", "a b", "ä", "a\n", "a\0", "a,b", "../x"])
def test_names_that_kafka_refuses(name):
    with pytest.raises(Refusal) as refused:
        topic_record.check_topic_name(name)
    assert refused.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_partition_directories_are_told_from_other_names():
    assert topic_record.split_partition_directory("a-b-12") == ("a-b", 12)
    for name in ("topics", "a-", "-1", "a-1x", "leader-epoch", "store"):
        assert topic_record.split_partition_directory(name) is None


@pytest.mark.parametrize("compacted", [False, True])
def test_topic_file_comes_back(compacted):
    record = topic_record.TopicRecord("t", TOPIC_ID, 3, {"retention.ms": "5"}, compacted=compacted)
    data = topic_record.encode_topic(record)
    assert topic_record.decode_topic("p", data) == record
    assert (b"compacted" in data) is compacted, "an older broker's file has no such field"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda data: data.replace(b'"partitions": 3', b'"partitions": 7'), "CRC"),
        (lambda data: data.replace(b'"version": 1', b'"version": 2'), "use the newer broker"),
        (lambda data: data[:40], "restore it from a copy"),
        (lambda data: b"[]", "restore it from a copy"),
        (lambda data: b"\xff\xfe", "restore it from a copy"),
    ],
)
def test_damaged_topic_file_is_told(change, complaint):
    with pytest.raises(StorageFault, match=complaint):
        topic_record.decode_topic(
            "t.json", change(topic_record.encode_topic(topic_record.TopicRecord("t", TOPIC_ID, 3, {})))
        )


def test_partition_metadata_is_kafkas():
    data = topic_record.encode_partition_metadata(TOPIC_ID)
    assert data == b"version: 0\ntopic_id: ASNFZ4mrze8BI0VniavN7w\n"
    assert topic_record.decode_partition_metadata(data) == TOPIC_ID
    assert topic_record.decode_partition_metadata(b"topic_id: x\n") is None
    assert topic_record.decode_partition_metadata(b"nothing") is None


def test_topic_settings_lie_over_the_defaults():
    defaults = LogSettings(retention_ms=7, segment_bytes=9000)
    settings = topic_settings(
        defaults,
        {"segment.bytes": "5000", "cleanup.policy": "compact, delete", "flush.messages": str(LEFT_TO_KERNEL_MS)},
    )
    assert (settings.retention_ms, settings.segment_bytes, settings.cleanup_policy) == (7, 5000, "compact,delete")
    assert settings.deletes
    assert not topic_settings(defaults, {"cleanup.policy": "compact"}).deletes
    assert topic_settings(defaults, {"flush.ms": str(LEFT_TO_KERNEL_MS)}).durability == "kernel"


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("retention.m", "1", "did you mean 'retention.ms'"),
        ("qqqq", "1", "known are"),
        ("retention.ms", "soon", "write decimal digits"),
        ("retention.ms", "-2", "use -1 to"),
        ("segment.bytes", "5", "use 4096 to"),
        ("cleanup.policy", "burn", "use delete or compact"),
        ("cleanup.policy", "compact,burn", "use delete or compact"),
        ("compression.type", "none", "use uncompressed or zstd"),
        ("compression.gzip.level", "0", "use -1 or 1"),
        ("min.insync.replicas", "0", "use 1 to"),
        ("flush.messages", "0", "use 1 to"),
        ("preallocate", "yes", "use true or false"),
        ("remote.storage.enable", "true", "only false is taken"),
        ("leader.replication.throttled.replicas", "0:1:2", "partition:broker"),
        ("segment.index.bytes", "3", "use 4 to"),
        ("min.cleanable.dirty.ratio", "NaN", "use 0 to 1"),
        ("edge.durability", "synced", "use sync or interval or kernel"),
    ],
)
def test_wrong_topic_configuration_names_key_and_remedy(key, value, complaint):
    with pytest.raises(Refusal, match=complaint) as refused:
        check_topic_config({key: value})
    assert refused.value.code == ErrorCode.INVALID_CONFIG
    assert key in refused.value.message


@pytest.mark.parametrize(
    ("default_ms", "config", "durability", "flush_ms"),
    [
        (1000, {}, "sync", 1000),
        (LEFT_TO_KERNEL_MS, {}, "kernel", LEFT_TO_KERNEL_MS),
        (1000, {"flush.ms": str(LEFT_TO_KERNEL_MS)}, "kernel", LEFT_TO_KERNEL_MS),
        (LEFT_TO_KERNEL_MS, {"flush.ms": "5"}, "sync", 5),
        (1000, {"edge.durability": "interval"}, "interval", 1000),
        (1000, {"edge.durability": "interval", "flush.ms": "9"}, "interval", 9),
        (1000, {"edge.durability": "kernel", "flush.ms": "9"}, "kernel", 9),
        (1000, {"edge.durability": "kernel", "flush.ms": str(LEFT_TO_KERNEL_MS)}, "kernel", LEFT_TO_KERNEL_MS),
        (LEFT_TO_KERNEL_MS, {"edge.durability": "sync"}, "sync", 1000),
        (LEFT_TO_KERNEL_MS, {"edge.durability": "interval"}, "interval", 1000),
    ],
)
def test_durability_follows_from_flush_ms_unless_it_is_set(default_ms, config, durability, flush_ms):
    settings = topic_settings(LogSettings(flush_ms=default_ms), config)
    assert (settings.durability, settings.flush_ms) == (durability, flush_ms)
    assert settings.left_to_kernel == (durability == "kernel")
    assert settings.sync_awaited == (durability == "sync")
    (entry,) = (one for one in describe_topic_config(LogSettings(), config) if one.key.name == "edge.durability")
    assert entry.explicit == ("edge.durability" in config)


@pytest.mark.parametrize("durability", ["sync", "interval"])
def test_a_durability_that_flush_ms_contradicts_is_refused(durability):
    with pytest.raises(Refusal, match="set one of them") as refused:
        check_topic_config({"edge.durability": durability, "flush.ms": str(LEFT_TO_KERNEL_MS)})
    assert refused.value.code == ErrorCode.INVALID_CONFIG


def test_every_topic_key_is_described_with_the_value_that_holds():
    entries = {
        entry.key.name: entry for entry in describe_topic_config(LogSettings(), {"flush.ms": str(LEFT_TO_KERNEL_MS)})
    }
    assert set(entries) == set(TOPIC_KEYS)
    assert entries["flush.ms"].explicit
    assert (entries["edge.durability"].value, entries["edge.durability"].explicit) == ("kernel", False)
    assert entries["compression.type"].value == "producer"
    assert (entries["retention.ms"].value, entries["retention.ms"].explicit) == ("604800000", False)


@pytest.mark.parametrize(
    "config",
    [
        {"compression.type": "lz4"},
        {"compression.gzip.level": "-1"},
        {"compression.zstd.level": "-131072"},
        {"min.insync.replicas": "2"},
        {"flush.messages": "1"},
        {"unclean.leader.election.enable": "TRUE"},
        {"preallocate": " true "},
        {"segment.index.bytes": "4"},
        {"message.timestamp.after.max.ms": "0"},
        {"leader.replication.throttled.replicas": "0:1,1:1"},
        {"follower.replication.throttled.replicas": "*"},
        {"remote.storage.enable": "false"},
        {"local.retention.ms": "-2"},
    ],
    ids=lambda config: next(iter(config)),
)
def test_what_has_no_effect_here_is_taken_kept_and_said_to_have_none(config):
    check_new_config(config)
    (entry,) = (one for one in describe_topic_config(LogSettings(), config) if one.explicit)
    assert {entry.key.name: entry.value} == config
    assert not entry.key.setting
    assert (
        "Without effect" in entry.key.doc
        or "in a cluster" in entry.key.doc
        or entry.key.name == "remote.storage.enable"
    )
    assert vars(topic_settings(LogSettings(), config)) == vars(LogSettings())


@pytest.mark.parametrize(
    ("key", "value", "setting", "holds"),
    [
        ("flush.ms", "0", "flush_ms", 1),
        ("max.message.bytes", "0", "message_bytes_max", 61),
        ("index.interval.bytes", "0", "index_interval_bytes", 64),
        ("retention.bytes", "-2", "retention_bytes", -1),
        ("cleanup.policy", "", "cleanup_policy", ""),
        ("cleanup.policy", "delete,delete", "cleanup_policy", "delete,delete"),
    ],
)
def test_what_kafka_takes_beyond_what_a_log_can_go_by_is_shown_as_it_was_set(key, value, setting, holds):
    assert getattr(topic_settings(LogSettings(), {key: value}), setting) == holds
    assert {one.value for one in describe_topic_config(LogSettings(), {key: value}) if one.key.name == key} == {value}


def test_compaction_lags_that_contradict_each_other_are_refused_and_opened_where_they_are_stored():
    config = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}
    with pytest.raises(Refusal, match="raise the other") as refused:
        check_new_config(config)
    assert refused.value.code == ErrorCode.INVALID_CONFIG
    assert topic_settings(LogSettings(), config).max_compaction_lag_ms == 5


def test_every_configuration_of_an_older_version_opens():
    older = {
        "cleanup.policy": "delete,compact",
        "compression.type": "producer",
        "file.delete.delay.ms": "5",
        "flush.messages": str(LEFT_TO_KERNEL_MS),
        "flush.ms": "1",
        "index.interval.bytes": "64",
        "max.message.bytes": str(1 << 30),
        "min.insync.replicas": "1",
        "segment.bytes": "4096",
        "segment.ms": "1",
        "edge.durability": "interval",
        "edge.required.groups": "mirror, other",
    }
    settings = topic_settings(LogSettings(), older)
    assert (settings.cleanup_policy, settings.segment_bytes, settings.groups) == (
        "delete,compact",
        4096,
        ("mirror", "other"),
    )


def test_a_setting_that_is_not_declared_is_a_bug():
    with pytest.raises(TypeError, match="retention_sm"):
        LogSettings(retention_sm=5)


def test_index_files_are_kafkas_bytes_and_come_back():
    tail = segment_index.TailIndex()
    tail.add(0, 9, 0)
    tail.add(10, 19, 4096)
    tail.add_time(1000, 9)
    tail.add_time(1000, 19)
    tail.add_time(2000, 19)
    assert tail.offset_entries().hex() == "0000000900000000" + "0000001300001000"
    assert tail.time_entries().hex() == "00000000000003e8" + "00000009" + "00000000000007d0" + "00000013"
    loaded = segment_index.load_offsets(tail.offset_entries(), 8192)
    assert loaded is not None
    assert [segment_index.position_before(loaded, offset) for offset in (0, 9, 18, 19, 99)] == [0, 0, 0, 4096, 4096]
    assert [tail.position_before(offset) for offset in (0, 9, 10, 99)] == [0, 0, 4096, 4096]
    assert [tail.offset_before_time(time) for time in (1000, 1001, 2001)] == [-1, 9, 19]
    assert [segment_index.offset_before_time(tail.time_entries(), time) for time in (1000, 1001, 2001)] == [-1, 9, 19]
    assert segment_index.last_time(tail.time_entries()) == (2000, 19)


def test_index_files_that_cannot_be_right_are_not_believed():
    assert segment_index.load_offsets(b"\0" * 7, 100) is None
    assert segment_index.load_offsets(bytes(16), 100) is None
    loaded = segment_index.load_offsets(bytes.fromhex("00000009000000000000001300001000"), 4096)
    assert loaded is not None
    assert len(loaded) == 1
    times = bytes.fromhex("00000000000003e80000000900000000000007d000000013")
    assert segment_index.trim_times(times, 19) == times[:12]
    assert segment_index.trim_times(times[:13], 99) == b""
    assert segment_index.trim_times(bytes(12), 99) == b""


def header(producer, count=1):
    return read_header(batch(*[b"v"] * count, producer=producer))


def admit(known, producer, count=1, offset=100, first_epoch=False):
    first, news = known.admit(header(producer, count), offset, NOW_MS, first_epoch=first_epoch)
    if news is not None:
        known.keep(producer[0], news)
    return first


def test_last_five_batches_are_known_again_and_older_ones_are_out_of_order():
    known = producer_state.Producers()
    for sequence in range(7):
        assert admit(known, (1, 0, sequence), offset=sequence) is None
    for sequence in range(2, 7):
        assert admit(known, (1, 0, sequence)) == (sequence, sequence, sequence, sequence)
    with pytest.raises(Refusal) as refused:
        admit(known, (1, 0, 1))
    assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize(
    ("producer", "code"),
    [
        ((1, 4, 10), ErrorCode.INVALID_PRODUCER_EPOCH),
        ((1, 5, 12), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ((1, 5, 9), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ((1, 6, 11), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
def test_wrong_epochs_and_sequences_are_refused_and_change_nothing(producer, code):
    known = producer_state.Producers()
    admit(known, (1, 5, 10))
    before = known.by_id()
    with pytest.raises(Refusal) as refused:
        admit(known, producer)
    assert refused.value.code == code
    assert known.by_id() == before


def test_new_epoch_starts_at_zero_and_forgets_the_old_batches():
    known = producer_state.Producers()
    admit(known, (1, 5, 10))
    assert admit(known, (1, 6, 0), offset=7) is None
    assert known.by_id()[1].batches == ((0, 0, 7, 7),)


def test_sequences_go_on_at_zero_after_the_greatest():
    known = producer_state.Producers()
    admit(known, (1, 0, 2**31 - 2), count=4)
    assert known.by_id()[1].batches[0].last_sequence == 1
    assert admit(known, (1, 0, 2)) is None
    other = producer_state.Producers()
    admit(other, (1, 0, 2**31 - 1))
    assert admit(other, (1, 0, 0)) is None


def test_batches_follow_one_another():
    known = producer_state.Producers()
    assert admit(known, (1, 0, 0), 2, offset=10) is None
    assert admit(known, (1, 0, 2), offset=12) is None
    assert known.by_id()[1].batches == ((0, 1, 10, 11), (2, 2, 12, 12))


@pytest.mark.parametrize(
    ("first_epoch", "code"), [(False, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), (True, ErrorCode.UNKNOWN_PRODUCER_ID)]
)
def test_who_never_wrote_begins_at_zero_and_who_may_have_been_forgotten_anywhere(first_epoch, code):
    """Else librdkafka takes the answer for sequence 1 for one that speaks of sequence 0, too."""
    known = producer_state.Producers(forgotten_max=producer_state.NOBODY)
    with pytest.raises(Refusal) as refused:
        admit(known, (7, 0, 1), first_epoch=first_epoch)
    assert refused.value.code == code
    assert len(known) == 0
    assert admit(known, (7, 0, 0), first_epoch=first_epoch) is None
    assert admit(known, (7, 0, 1), first_epoch=first_epoch) is None
    known.forget(7)
    assert admit(known, (7, 0, 2), first_epoch=first_epoch) is None
    assert admit(known, (6, 0, 2), first_epoch=first_epoch) is None
    with pytest.raises(Refusal):
        admit(known, (8, 0, 1), first_epoch=first_epoch)


def test_idle_producers_are_forgotten():
    known = producer_state.Producers(forgotten_max=producer_state.NOBODY)
    known.replay(header((1, 0, 0)), NOW_MS)
    known.expire(NOW._replace(age_ms=NOW_MS + 1000), 1000)
    assert len(known) == 1
    known.expire(NOW._replace(age_ms=NOW_MS + 1001), 1000)
    assert len(known) == 0
    assert known.forgotten_max == 1


def test_snapshot_comes_back_and_damage_is_noticed():
    known = producer_state.Producers()
    admit(known, (7, 2, 5), count=3)
    admit(known, (8, 0, 0))
    place = producer_state.SnapshotPosition(103, 100, 700, NOW_MS, 102, 5, forgotten_max=6)
    data = producer_state.encode_snapshot(place, known.by_id())
    found = producer_state.decode_snapshot(data)
    assert (found[0], dict(found[1])) == (place, known.by_id())
    for at in range(len(data)):
        assert producer_state.decode_snapshot(data[:at]) is None
        flipped = bytearray(data)
        flipped[at] ^= 4
        assert producer_state.decode_snapshot(bytes(flipped)) is None


def test_epoch_ends_follow_kip_101():
    cache = leader_epochs.LeaderEpochs([(2, 10), (4, 30)])
    ask = [cache.end(epoch, 6, 50) for epoch in (-1, 1, 2, 3, 4, 5, 6, 7)]
    assert ask == [(-1, -1), (1, 10), (2, 30), (2, 30), (4, 50), (4, 50), (6, 50), (-1, -1)]
    assert cache.end(2, 6, 20) == (2, 20)
    assert leader_epochs.LeaderEpochs().end(0, 0, 0) == (0, 0)


def test_the_epoch_of_an_offset():
    cache = leader_epochs.LeaderEpochs([(2, 10), (4, 30)])
    assert [cache.at(offset) for offset in (9, 10, 29, 30, 99)] == [-1, 2, 2, 4, 4]


def test_epochs_of_what_is_gone_are_dropped():
    cache = leader_epochs.LeaderEpochs([(1, 0), (2, 10), (4, 30)])
    cache.note(4, 40)
    cache.note(3, 40)
    assert cache.latest == 4
    cache.cut(15, 30)
    assert cache.starts == ((2, 10),)


def test_the_first_batch_of_a_log_drops_greater_epochs():
    cache = leader_epochs.LeaderEpochs([(1, 0), (3, 57), (5, 63)])
    cache.note(2, 63, first=True)
    assert cache.starts == ((1, 0), (2, 63))
    cache = leader_epochs.LeaderEpochs([(1, 0), (3, 57)])
    cache.note(2, 63)
    assert cache.starts == ((1, 0), (3, 57)), "a lower epoch amid a log is damage, and changes nothing"


def test_state_files_notice_damage_kind_and_version():
    data = atomic_files.encode_state("things", 1, ["a 1", "b 2"])
    assert atomic_files.decode_state("p", data, "things", 1) == [["a", "1"], ["b", "2"]]
    for wrong, complaint in (
        (data.replace(b"b 2", b"b 3"), "CRC"),
        (data[:-1], "CRC"),
        (b"", "is no things file"),
        (data.replace(b"things", b"others"), "holds others"),
        (atomic_files.encode_state("things", 2, []), "use the newer broker"),
    ):
        with pytest.raises(StorageFault, match=complaint):
            atomic_files.decode_state("p", wrong, "things", 1)


def test_a_replaced_file_is_the_old_or_the_new_one_after_a_crash_at_any_step():
    for step in range(1, 8):
        for seed in range(8):
            disk = SimulatedDisk(seed)
            disk.put("/f", b"old")
            disk.crash_at = step
            try:
                atomic_files.replace(disk, "", "f", b"new content")
                done = True
            except BaseException:  # noqa: BLE001 - the simulated power cut
                done = False
            disk.crash()
            assert disk.content("/f") in ((b"new content",) if done else (b"old", b"new content"))
