"""Which positions are committed to the source's group, and when."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest

from mirror.client.active_election import Member
from mirror.errors import NotOurTurnError, SourceError
from mirror.partition.send_state import GONE
from mirror.partition.source_offsets import Commit, PartitionOffsets
from mirror.replication import offset_commits
from mirror.replication.offset_commits import OffsetCommitter
from tests.support.waiting import CALL_S
from tests.unit.mirror.replication.parts import CONFIG, TP, Problems, new_stream

MEMBER = Member(3, "m-1", None)


class Source:
    """The group; the next commits fail with `failures`."""

    def __init__(self, *failures):
        self.failures, self.commits, self.members, self.tried = list(failures), [], [], asyncio.Event()

    async def commit(self, commits, timeout_s, member):
        self.tried.set()
        if self.failures:
            raise self.failures.pop(0)
        self.commits.append(dict(commits))
        self.members.append(member)


def committer_of(source, *streams, config=CONFIG, problems=None):
    standby, problems = SimpleNamespace(member=MEMBER), Problems() if problems is None else problems
    return OffsetCommitter(source, standby, lambda: streams, config, problems.report)


def at_offset(offset):
    stream = new_stream(read_offset=offset)
    stream.start(PartitionOffsets.resume(Commit(0, 0)))
    stream.skip(offset)
    return stream


async def until(condition, *tasks):
    async with asyncio.timeout(CALL_S):
        while not condition():
            assert not any(task.done() for task in tasks)
            await asyncio.sleep(0.001)


async def test_all_positions_that_changed_are_committed_once_as_this_member():
    source, stream = Source(), at_offset(7)
    committer = committer_of(source, stream)
    await committer.commit_all()
    await committer.commit_all()
    [commits] = source.commits
    assert commits[TP].offset == 7
    assert source.members == [MEMBER]


async def test_a_position_that_changed_is_committed_by_the_loop():
    source, stream = Source(), at_offset(7)
    committer = committer_of(source, stream)
    task = asyncio.create_task(committer.run())
    committer.position_changed(stream)
    await until(lambda: source.commits, task)
    task.cancel()
    assert source.commits[0][TP].offset == 7


async def test_a_failed_commit_is_a_problem_and_is_tried_again():
    source, stream, problems = Source(SourceError("the coordinator is away")), at_offset(7), Problems()
    named = []
    committer = committer_of(source, stream, problems=problems)
    task = asyncio.create_task(committer.run())
    committer.position_changed(stream)
    await until(lambda: named.append(dict(problems)) or source.commits, task)
    await until(lambda: not problems, task)
    task.cancel()
    assert {"commit": "the coordinator is away"} in named
    assert source.commits[0][TP].offset == 7


async def test_while_another_mirror_is_active_nothing_is_a_problem():
    source, stream, problems = Source(NotOurTurnError("not the one")), at_offset(7), Problems()
    committer = committer_of(source, stream, problems=problems)
    task = asyncio.create_task(committer.run())
    committer.position_changed(stream)
    await until(source.tried.is_set, task)
    assert problems == {}
    await until(lambda: source.commits, task)  # and is committed once this mirror is the active one
    task.cancel()


async def test_a_stream_that_was_dropped_is_not_committed():
    source, gone, stream = Source(), at_offset(7), at_offset(9)
    gone.send_state = GONE
    committer = committer_of(source)
    committer.position_changed(gone)
    assert committer._to_commit() == set()
    committer.position_changed(stream)
    assert committer._to_commit() == {stream}
    assert committer._to_commit() == set()


async def test_a_quiet_position_is_committed_again_before_kafka_drops_it(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(offset_commits.time, "monotonic", lambda: now[0])
    source, stream = Source(), at_offset(7)
    committer = committer_of(source, stream, config=replace(CONFIG, commit_again_ms=100_000))
    await committer.commit_all()
    assert committer._to_commit() == set()
    now[0] += offset_commits.LOOK_AT_ALL_S
    assert committer._to_commit() == {stream}
    assert committer._next(stream) is None
    now[0] += 100.0
    assert committer._next(stream).offset == 7


async def test_a_failed_commit_at_the_stop_is_raised():
    committer = committer_of(Source(SourceError("away")), at_offset(7))
    with pytest.raises(SourceError, match="away"):
        await committer.commit_all()
