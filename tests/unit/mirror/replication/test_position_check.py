"""Positions before they are read: which stand, which are asked about, and which go back."""

from __future__ import annotations

import pytest

from kafka_wire.cluster import Leader
from mirror.client.log_queries import Content
from mirror.errors import TargetError, UntoldError
from mirror.partition.leader_epochs import EpochEnd, EpochStart, LeaderEpochs
from mirror.partition.send_state import CREATING_TOPIC
from mirror.partition.source_offsets import PartitionOffsets
from mirror.replication.position_check import Positions
from tests.unit.mirror.replication.parts import TP, Losses, Problems, new_stream


class Source:
    """The source's leader: `ends` are its responses, in turn, the last one stays; `log` has the values of records."""

    def __init__(self, *ends, start=0, end=100, log=None):
        self.ends, self.start, self.end, self.log = list(ends), start, end, log or {}
        self.asked, self.bounds_error = [], None

    async def epoch_ends(self, questions):
        if questions:
            self.asked.append({partition: one[0] for partition, one in questions.items()})
        return {partition: self.ends.pop(0) if len(self.ends) > 1 else self.ends[0] for partition in questions}

    async def bounds(self, partitions):
        if self.bounds_error is not None:
            raise self.bounds_error
        return dict.fromkeys(partitions, self.start), dict.fromkeys(partitions, self.end)

    async def record_at(self, partition, offset):
        return content(self.log, offset)


class Target:
    """The target's log, by offset."""

    def __init__(self, log=None):
        self.log, self.error = log or {}, None

    async def record_at(self, partition, offset):
        if self.error is not None:
            raise self.error
        return content(self.log, offset)

    async def start_offset(self, partition):
        return min(self.log)


def content(log, offset):
    return Content(5, b"k", log[offset], ()) if offset in log else None


class State:
    """The state of a stream; it notes where it goes back to."""

    def __init__(self):
        self.went_back_to = []

    def go_back(self, offset, epoch_start):
        self.went_back_to.append(offset)


class Setup:
    def __init__(self, source, target=None, losses=None):
        self.problems, self.losses, self.restarted = Problems(), losses or Losses(), []
        self.source, self.target = source, target or Target()
        self.positions = Positions(
            source, self.target, self.losses.write_loss, self.restarted.append, self.problems.report
        )


def unread(position, *, epoch=3, topic_id="a", known=(), leader_epoch=None):
    """A stream whose position is to be checked; `known` are starts of leader epochs of what it has read."""
    stream = new_stream()
    stream.start(PartitionOffsets(position))
    stream.offsets.topic_id, stream.topic_id, stream.leader = topic_id, "a", Leader(1, epoch)
    stream.offsets.epochs = LeaderEpochs(EpochStart(*one) for one in known)
    stream.leader_epoch, stream.state = leader_epoch, State()
    return stream


@pytest.mark.parametrize(("position", "epoch"), [(0, 3), (7, -1), (7, 3)])
async def test_a_position_stands_unasked_at_the_start_or_without_leader_epochs(position, epoch):
    stream, setup = unread(position, epoch=epoch), Setup(Source())
    setup.problems["readings-0 position"] = "of before"
    await setup.positions.check([stream])
    assert stream.leader_epoch == epoch
    assert setup.source.asked == []
    assert setup.problems == {}


async def test_a_position_within_its_epoch_at_the_source_stands():
    stream, setup = unread(7, known=[(0, 1)]), Setup(Source(EpochEnd(1, 9)))
    await setup.positions.check([stream])
    assert setup.source.asked == [{TP: 1}]
    assert stream.leader_epoch == 3


async def test_records_that_the_source_lost_are_a_loss_and_are_read_again_from_there():
    stream, setup = unread(7, known=[(0, 1)]), Setup(Source(EpochEnd(1, 5)))
    await setup.positions.check([stream])
    assert setup.losses.written == [("source_truncated", 5, 7)]
    assert stream.read_offset == 5
    assert stream.state.went_back_to == [5]
    assert stream.go_back_to is None


async def test_going_back_waits_until_all_that_was_read_is_safe():
    stream, setup = unread(7, known=[(0, 1)]), Setup(Source(EpochEnd(1, 5)))
    stream.uncommitted.append(object())
    await setup.positions.check([stream])
    assert (stream.go_back_to, stream.leader_epoch) == (5, None)
    assert setup.losses.written == []
    stream.uncommitted.clear()
    await setup.positions.check([stream])
    assert setup.losses.written == [("source_truncated", 5, 7)]
    assert stream.read_offset == 5


async def test_a_session_that_started_elsewhere_while_the_loss_was_written_keeps_its_offsets():
    losses = Losses(lambda stream: stream.start(PartitionOffsets(2)))
    stream, setup = unread(7, known=[(0, 1)]), Setup(Source(EpochEnd(1, 5)), losses=losses)
    await setup.positions.check([stream])
    assert stream.read_offset == 2
    assert stream.state.went_back_to == []


async def test_a_topic_that_was_made_again_starts_with_its_log():
    stream, setup = unread(7, topic_id="b"), Setup(Source())
    await setup.positions.check([stream])
    assert setup.restarted == [stream]
    assert stream.starts_anew
    assert stream.leader_epoch is None
    assert setup.losses.written == []


async def test_a_leader_that_cannot_respond_leaves_the_partition_unread_and_named():
    stream, setup = unread(7, known=[(0, 1)]), Setup(Source("NOT_LEADER_OR_FOLLOWER"))
    await setup.positions.check([stream])
    assert stream.leader_epoch is None
    assert setup.problems == {"readings-0 position": "its leader cannot judge it: NOT_LEADER_OR_FOLLOWER"}


async def test_a_leader_that_no_longer_has_the_epoch_is_asked_where_its_log_starts():
    stream, setup = unread(7, epoch=0, known=[(0, 1)]), Setup(Source(EpochEnd(-1, -1), start=4))
    await setup.positions.check([stream])
    assert setup.losses.written == [("source_truncated", 4, 7)]
    assert stream.read_offset == 4


async def test_bounds_that_are_unknown_hold_up_that_partition_alone():
    first = unread(7, epoch=0, known=[(0, 1)])
    setup = Setup(Source(EpochEnd(-1, -1)))
    setup.source.bounds_error = UntoldError("readings-0 was not answered")
    second = unread(0)
    second.partition = TP._replace(partition=1)
    await setup.positions.check([first, second])
    assert setup.problems == {"readings-0 position": "readings-0 was not answered"}
    assert first.leader_epoch is None
    assert second.leader_epoch == 3


async def test_streams_that_are_read_or_have_no_session_yet_are_left_alone():
    read, without_topic = unread(7, known=[(0, 1)], leader_epoch=3), unread(7, known=[(0, 1)])
    without_topic.send_state = CREATING_TOPIC
    setup = Setup(Source())
    await setup.positions.check([read, without_topic])
    assert setup.source.asked == []


LOG = {offset: b"%d" % offset for offset in range(10)}


@pytest.mark.parametrize(("differs_from", "loss"), [(10, None), (6, 6), (1, 1)])
async def test_a_position_of_an_older_version_is_proved_by_the_records_of_both_ends(differs_from, loss):
    target = {offset + 90: value if offset < differs_from else b"other" for offset, value in LOG.items()}
    stream = unread(10, topic_id=None)
    stream.offsets.target_end = 100
    setup = Setup(Source(log=LOG, end=10), Target(target))
    await setup.positions.check([stream])
    if loss is None:
        assert stream.leader_epoch == 3
        assert stream.offsets.topic_id == "a"
        assert setup.losses.written == []
    else:
        assert setup.losses.written == [("source_truncated", loss, 10)]
        assert stream.read_offset == loss


async def test_a_position_of_an_older_version_without_a_target_end_is_believed_once():
    stream, setup = unread(10, topic_id=None), Setup(Source(log=LOG, end=10))
    await setup.positions.check([stream])
    assert stream.leader_epoch == 3
    assert setup.losses.written == []


async def test_a_target_that_is_away_leaves_a_position_of_an_older_version_unproved():
    stream, setup = unread(10, topic_id=None), Setup(Source(log=LOG, end=10))
    stream.offsets.target_end = 100
    setup.target.error = TargetError("away")
    await setup.positions.check([stream])
    assert stream.leader_epoch is None
    assert setup.problems == {"readings-0 position": "the target cannot prove it: away"}
