"""Which partitions there are: discovered, added, checked, dropped."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from kafka_wire.cluster import Leader, Topic
from kafka_wire.partitions import TopicPartition
from mirror.errors import PositionsError, SourceError
from mirror.origins.screening import screen_of
from mirror.partition.send_state import CREATING_TOPIC, SENDING
from mirror.partition.source_offsets import Commit
from mirror.partition.stream import Memory
from mirror.replication.partition_registry import PartitionRegistry
from mirror.status.problems import Troubles
from mirror.topics.overrides import rules_from
from tests.unit.mirror.replication.parts import CONFIG, TP, Period

LOGS = TopicPartition("logs", 0)


class Source:
    """The source: topics with one partition each, by name with their topic ids."""

    def __init__(self, **topics):
        self.ids, self.cluster_id, self.group, self.group_error, self.unknown = topics, "source-id", {}, None, {}
        self.described = {}

    async def topics(self):
        return {name: Topic(topic_id, 0, {0: Leader(1, 4)}) for name, topic_id in self.ids.items()}

    async def commits(self, partitions):
        if self.group_error is not None:
            raise self.group_error
        return {one: commit for one, commit in self.group.items() if one in partitions}

    async def known_bounds(self, partitions):
        known = [one for one in partitions if one not in self.unknown]
        unknown = {one: why for one, why in self.unknown.items() if one in partitions}
        return dict.fromkeys(known, 30), dict.fromkeys(known, 100), unknown

    async def known_settings(self, names):
        return {name: self.described.get(name, {"cleanup.policy": "delete"}) for name in names}

    async def ends(self, partitions):
        return dict.fromkeys(partitions, 100)


class Positions:
    """A position check after which every stream may be read, unless the source is away."""

    def __init__(self):
        self.checked, self.is_away = [], False

    async def check(self, streams):
        if self.is_away:
            return
        self.checked += [stream.name for stream in streams if not stream.is_read]
        for stream in streams:
            stream.leader_epoch = stream.leader.epoch


class Setup:
    def __init__(self, source, config=CONFIG):
        self.source, self.period, self.problems, self.positions = source, Period(), Troubles(), Positions()
        self.refused, self.dropped = [], []
        target = SimpleNamespace(cluster_id="target-id")
        screen = screen_of(SimpleNamespace(source=source, target=target), config)
        screen.candidates = self.candidates
        self.target, self.left_out = target, set()
        self.registry = PartitionRegistry(
            source, target, config, screen, self.positions, self.period, Memory(), self.problems, self.report,
            refuse=self.refused.append, stream_dropped=self.dropped.append,
        )  # fmt: skip

    async def candidates(self, found, new, mirrored):
        admitted = {one: topic for one, topic in new.items() if one.topic not in self.left_out}
        return admitted, dict.fromkeys(admitted, 0)

    def report(self, name, text):
        self.problems.note(name, text, 1.0)

    @property
    def names(self):
        return sorted(stream.name for stream in self.registry.streams.values())


async def test_selected_partitions_become_streams_that_are_checked_and_started():
    setup = Setup(Source(readings="a", other="b"))
    assert await setup.registry.discover()
    assert setup.names == ["readings-0"]
    stream = setup.registry.streams[TP]
    assert setup.period.started == [stream]
    assert setup.positions.checked == ["readings-0"]
    assert (stream.target_topic, stream.read_offset, stream.offsets.topic_id) == ("lab.readings", 30, "a")


async def test_a_partition_with_a_commit_goes_on_there_and_knows_what_was_left_out():
    setup = Setup(Source(readings="a"))
    setup.source.group[TP] = Commit(44, 44, topic_id="a", passed_over=(7,))
    await setup.registry.discover()
    stream = setup.registry.streams[TP]
    assert stream.read_offset == 44
    assert tuple(stream.writers.passed_over) == (7,)
    assert stream.commit == setup.source.group[TP]


async def test_streams_have_the_settings_of_their_topic():
    rules = rules_from({"logs": {"urgent": True, "compression": "none"}})
    setup = Setup(Source(readings="a", logs="b"), replace(CONFIG, rules=rules, compression="zstd"))
    await setup.registry.discover()
    readings, logs = setup.registry.streams[TP], setup.registry.streams[LOGS]
    assert (readings.urgent, logs.urgent) == (False, True)
    assert readings.codec != logs.codec == 0


@pytest.mark.parametrize(("topics", "event"), [({}, "topic_gone"), ({"readings": "b"}, "topic_recreated")])
async def test_a_topic_that_is_gone_or_another_one_is_dropped(topics, event, caplog):
    setup = Setup(Source(readings="a"))
    await setup.registry.discover()
    stream = setup.registry.streams[TP]
    setup.report("readings-0 source", "CORRUPT_MESSAGE")
    setup.source.ids = topics
    with caplog.at_level("WARNING"):
        await setup.registry.discover()
    assert event in caplog.text
    assert setup.period.dropped == setup.dropped == [stream]
    assert "readings-0 source" not in setup.problems
    assert (TP in setup.registry.streams) == bool(topics)


async def test_a_new_leader_epoch_has_the_position_checked_again():
    setup = Setup(Source(readings="a"))
    await setup.registry.discover()
    setup.registry.streams[TP].leader_epoch = 3
    await setup.registry.discover()
    assert setup.positions.checked == ["readings-0"] * 2


async def test_a_partition_that_the_source_does_not_describe_waits_and_is_named_and_the_others_start():
    setup = Setup(Source(readings="a", logs="b"))
    setup.source.described["logs"] = "topic logs cannot be described: denied"
    assert not await setup.registry.discover()
    assert setup.names == ["readings-0"]
    assert setup.problems["logs-0 source"] == "topic logs cannot be described: denied"
    setup.source.described.clear()
    assert await setup.registry.discover()
    assert setup.names == ["logs-0", "readings-0"]
    assert "logs-0 source" not in setup.problems


async def test_a_partition_whose_bounds_are_unknown_waits():
    setup = Setup(Source(readings="a", logs="b"))
    setup.source.unknown = {LOGS: "LEADER_NOT_AVAILABLE"}
    assert not await setup.registry.discover()
    assert setup.names == ["readings-0"]
    assert setup.problems["logs-0 source"] == "LEADER_NOT_AVAILABLE"


async def test_while_the_groups_positions_are_unknown_nothing_starts():
    setup = Setup(Source(readings="a"))
    setup.source.group_error = PositionsError("the coordinator loads")
    assert not await setup.registry.discover()
    assert setup.names == []
    assert setup.problems["positions"] == "the coordinator loads"
    setup.source.group_error = None
    assert await setup.registry.discover()
    assert "positions" not in setup.problems


async def test_topics_that_came_from_the_target_have_no_stream():
    setup = Setup(Source(readings="a", logs="b"))
    setup.left_out = {"logs"}
    assert await setup.registry.discover()
    assert setup.names == ["readings-0"]


async def test_two_ends_of_one_cluster_end_the_mirror():
    setup = Setup(Source(readings="a"))
    setup.target.cluster_id = "source-id"
    with pytest.raises(SourceError):
        await setup.registry.discover()
    assert len(setup.refused) == 1
    assert "source-id" in setup.refused[0]
    assert setup.names == []


@pytest.mark.parametrize(("send_state", "is_done"), [(CREATING_TOPIC, True), (SENDING, False)])
async def test_only_streams_with_a_session_are_waited_for(send_state, is_done):
    setup = Setup(Source(readings="a"))
    await setup.registry.discover()
    stream = setup.registry.streams[TP]
    stream.send_state = send_state
    setup.positions.is_away = True
    setup.registry.require_check([TP, LOGS])
    assert stream.leader_epoch is None
    assert await setup.registry.discover() == is_done


async def test_a_check_after_a_session_has_started_is_done_once():
    setup = Setup(Source(readings="a"))
    setup.registry.must_check = True
    await setup.registry.check_positions()
    assert not setup.registry.must_check


async def test_at_the_end_of_an_active_period_every_stream_is_dropped():
    setup = Setup(Source(readings="a", logs="b"))
    await setup.registry.discover()
    setup.registry.drop_all()
    assert setup.names == []
    assert len(setup.period.dropped) == len(setup.dropped) == 2


async def test_that_no_topic_is_selected_is_logged_once_until_there_is_one(caplog):
    setup = Setup(Source(redings="a"))
    with caplog.at_level("WARNING"):
        for _ in range(2):
            await setup.registry.discover()
        assert caplog.text.count("no_topic_matched") == 1
        setup.source.ids = {"readings": "a"}
        await setup.registry.discover()
        setup.source.ids = {"redings": "a"}
        await setup.registry.discover()
    assert caplog.text.count("no_topic_matched") == 2
