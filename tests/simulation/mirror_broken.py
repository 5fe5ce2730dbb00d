"""Rules of the mirror, each broken on purpose, and of those of its transactions the seed that finds it.

A rule is (where, name, what stands in its place). Must never come in: what finds it (test_mirror_runs.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kafka_wire.records.batches import pieces_of
from mirror.partition import leader_epochs, resume_rules, target_state
from mirror.partition.offset_map import OffsetMap
from mirror.partition.resume_rules import ResumePoint
from mirror.partition.stream import PartitionStream
from mirror.partition.target_state import PartitionState
from mirror.producer import delivery_resolver
from mirror.producer.failures import batch_isolation
from mirror.producer.sender import Sender
from mirror.producer.transactional_sender import TransactionalSender
from mirror.replication import gap_rules, source_reader
from mirror.session import producer_sessions, session_start
from mirror.session.marker_partitions import InSync
from mirror.session.producer_sessions import ProducerSessions
from mirror.session.transactional_sessions import TransactionalSessions, Writes

Rule = tuple[Any, str, Any]


def no_look(was: Any, now: Any, life: Any, known: OffsetMap, *_: Any, **__: Any) -> ResumePoint:
    return ResumePoint("position", known.end.records, known.end.source_offset)


def append_what_is_given_back(lane: PartitionStream, pieces: list[Any]) -> None:
    lane.buffer.extend(pieces)
    lane.buffer_bytes += sum(len(piece.batch) for piece in pieces)


async def no_fence(them: ProducerSessions, chosen: Callable[[], Any], _: Any) -> Any:
    chosen()
    return await them._fencing.begin_with(lambda: [them._topic.partition])


BROKEN: dict[str, Rule] = {
    "the log is not looked at": (target_state, "resume", no_look),
    "partitions are not fenced": (ProducerSessions, "_fence", no_fence),
    "a look counts though the marker was not there yet": (session_start, "shows_marker", lambda *_: True),
    "the state counts as read though another could still write": (producer_sessions, "is_marked_by", lambda *_: True),
    "a batch goes before the state is stored": (PartitionState, "may_go", lambda *_: True),
    "a write that failed counts as stored": (PartitionState, "not_stored", PartitionState.write_stored),
    "what is given back is put behind": (PartitionStream, "return_to_buffer", append_what_is_given_back),
    "a gap is not ledgered": (gap_rules, "classify_jump", lambda *, compacted: "compacted"),
    "the source's cut is not judged": (leader_epochs, "resume_offset", lambda position, *_, **__: position),
    "a deleted head is not ledgered": (
        gap_rules, "classify_out_of_range", lambda position, start, end: gap_rules.OutOfRange(start, start, start),
    ),
    "aborted data is sent": (
        source_reader, "pieces_of", lambda data, offset, aborted: pieces_of(data, offset),
    ),
    "where it went is not noted": (PartitionState, "_shift", lambda *_: None),
    "what may be forgotten is sent again as it is": (delivery_resolver, "may_be_sent_again", lambda *_: True),
    "any break while alone condemns": (batch_isolation, "is_proof", lambda *_, **__: True),
}  # fmt: skip

FOUND_BY = {
    "the log is not looked at": 5,
    "partitions are not fenced": 13,
    "a look counts though the marker was not there yet": 71,
    "the state counts as read though another could still write": 1225,
    "a write that failed counts as stored": 37,
    "what is given back is put behind": 9,
    "the source's cut is not judged": 22,
    "where it went is not noted": 9,
    "what may be forgotten is sent again as it is": 155,
    "any break while alone condemns": 96,
}
"""Seeds that find a rule in less than 2 s: lower ones miss it, or play a mirror that does not stop trying."""


def keep_what_was_not_committed(them: TransactionalSessions) -> None:
    them._is_unsure, them.producer, them._is_open = True, None, False


async def store_nothing(_: TransactionalSessions, states: Iterable[PartitionState]) -> Writes:
    return [(one, one.write()) for one in states]


async def no_problems(*_: Any) -> dict[PartitionStream, str]:
    return {}


BROKEN_WITH_TRANSACTIONS: dict[str, tuple[Rule, int]] = {
    "a batch counts as safe before the commit": ((TransactionalSender, "_on_acked", Sender._on_acked), 5),
    "what was aborted counts as mirrored": ((resume_rules, "_is_past", lambda *_, **__: False), 16),
    "what broke off is taken for committed": ((TransactionalSessions, "unsure", keep_what_was_not_committed), 7),
    "a former life's head is not committed first": (
        (TransactionalSessions, "_begin_fenced", ProducerSessions._begin_fenced), 172,
    ),
    "the position is not in the transaction": ((TransactionalSessions, "store", store_nothing), 5),
    "a partition that is short of replicas is added to a transaction": ((InSync, "problems", no_problems), 2300),
    "another begins behind a commit that was told twice": (
        (TransactionalSessions, "_was_asked_again", property(lambda _: False, lambda *_: None)), 7972,
    ),
}  # fmt: skip
