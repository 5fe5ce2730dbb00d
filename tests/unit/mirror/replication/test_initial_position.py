"""The source's offset at which a stream without state starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.client.log_queries import Content, Contents
from mirror.partition.resume_rules import ResumePoint
from mirror.partition.source_offsets import Commit, PartitionOffsets
from mirror.replication.initial_position import InitialPosition, mirrored_up_to
from tests.unit.mirror.replication.parts import Losses, new_stream


class End:
    """A cluster with one log of contents, by offset; `group` is what the group holds."""

    def __init__(self, log=(), *, start=0, group=None):
        self.log, self.start, self.group, self.read = dict(log), start, group, []

    async def contents_from(self, partition, offset):
        self.read.append(partition.topic)
        found = min((one for one in self.log if one >= offset), default=None)
        if found is None:
            return None
        return Contents([(found, Content(5, b"k", self.log[found], ()))], found + 1)

    async def bounds(self, partitions):
        return dict.fromkeys(partitions, self.start), dict.fromkeys(partitions, 100)

    async def commits(self, partitions):
        return {} if self.group is None else dict.fromkeys(partitions, self.group)


def stream_at(offset, commit=None, topic_id=None):
    stream = new_stream()
    stream.start(PartitionOffsets(offset))
    stream.commit, stream.topic_id = commit, topic_id
    return stream


SOURCE = {offset: b"%d" % offset for offset in range(40, 47)}
COMMIT = Commit(40, 45, 90, 2)


def sent(*values):
    return {90 + index: b"%d" % value for index, value in enumerate(values)}


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ({}, 40),
        (sent(40, 41), 42),
        (sent(40, 41, 40, 41, 42), 43),
        (sent(40, 41, 40, 41, 42) | {95: b"of another producer"}, 43),
    ],
)
async def test_records_after_the_commit_that_the_target_has_count_as_mirrored(target, found):
    end = max(target, default=89) + 1
    assert await mirrored_up_to(End(SOURCE), End(target), stream_at(40), COMMIT, end) == found


async def test_equal_records_count_only_if_one_session_has_sent():
    source = {40: b"same", 41: b"same", 42: b"other"}
    stream = stream_at(40)
    assert await mirrored_up_to(End(source), End(sent()), stream, COMMIT, 90) == 40
    target = {90: b"same", 91: b"same"}
    assert await mirrored_up_to(End(source), End(target), stream, COMMIT, 92) == 40
    assert await mirrored_up_to(End(source), End(target), stream, replace(COMMIT, sent_times=1), 92) == 42


async def test_without_new_records_at_the_target_neither_end_is_read():
    source, target = End(SOURCE), End()
    assert await mirrored_up_to(source, target, stream_at(40), COMMIT, 90) == 40
    assert source.read == target.read == []


def initial(source, target=None):
    losses = Losses()
    return InitialPosition(source, target or End(), losses), losses


async def test_a_position_that_an_operator_has_set_is_taken_as_it_is():
    position, losses = initial(End(start=50))
    commit = Commit(12, 12, by_hand=True)
    assert await position.find(stream_at(40, commit), ResumePoint("source_anew"), 0) == 12
    assert losses.written == []


async def test_a_new_stream_starts_with_the_log():
    position, losses = initial(End(start=50))
    assert await position.find(stream_at(0), ResumePoint("source_anew"), 0) == 50
    assert losses.written == []


async def test_a_topic_that_was_made_again_keeps_the_position_of_this_very_log():
    position, _ = initial(End(start=50))
    stream = stream_at(60, topic_id="b")
    stream.offsets.topic_id = "b"
    assert await position.find(stream, ResumePoint("source_anew"), 0) == 60


@pytest.mark.parametrize(("committed_of", "found"), [("b", 77), ("a", 50), (None, 50)])
async def test_a_topic_that_another_mirror_has_started_goes_on_at_its_commit(committed_of, found):
    position, _ = initial(End(start=50, group=Commit(77, 77, topic_id=committed_of)))
    stream = stream_at(60, topic_id="b")
    stream.offsets.topic_id = "a"
    assert await position.find(stream, ResumePoint("source_anew"), 0) == found


async def test_records_that_expired_before_a_new_target_topic_had_them_are_a_loss():
    position, losses = initial(End(start=50))
    stream = stream_at(30, Commit(30, 30))
    assert await position.find(stream, ResumePoint("target_anew"), 0) == 50
    assert losses.written == [("source_offset_out_of_range", 30, 50)]
    assert await position.find(stream_at(60, Commit(60, 60)), ResumePoint("target_anew"), 0) == 50
    assert len(losses.written) == 1


async def test_a_position_without_state_is_compared_with_the_target():
    position, _ = initial(End(SOURCE), End(sent(40, 41, 42)))
    assert await position.find(stream_at(40), ResumePoint("position"), 93) == 40
    assert await position.find(stream_at(40, COMMIT), ResumePoint("position"), 93) == 43
