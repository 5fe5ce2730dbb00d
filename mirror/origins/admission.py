"""Admits topics of the source, and decides for each producer whether its batches are sent, by screening.py.

| call | when |
|---|---|
| `keep_only` | the source's topics were found: notes on all others are dropped |
| `candidates`, `past_known`, `verdicts_on` | partitions are new: which of them are admitted, with which origin |
| `turn_to_writer` | the next batch of a partition is of another producer than the last one |
| `recheck_streams` | the claims of other mirrors may have changed |
| `refuse_blind` | state topics may not be seen, and positions are about to be checked |

A topic that is refused is a problem, by its name, until it is admitted or exists no more.
Does not contain: requests for records, positions, what a claim means (partition/provenance.py).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from drupelet.observe.log_tree import Log
from kafka_wire.cluster import Topic
from kafka_wire.partitions import TopicPartition
from kafka_wire.records.batches import Piece
from mirror.errors import OriginsChangedError, SourceError
from mirror.origins.screening import Screen
from mirror.partition.provenance import (
    BLIND,
    MERGED,
    UNKNOWN_SINCE,
    Origin,
    TopicVerdict,
    carries,
    is_sent,
    mirror_name,
)
from mirror.partition.source_offsets import Commit
from mirror.partition.stream import PartitionStream
from mirror.topics.selection import Policy, TopicNameError, target_name

_log = Log("mirror")

TARGET_AWAY_S = 1.0  # between queries of a target that decides whether a batch is sent


class Admission:
    """The admission of one mirror's streams, `streams`, which are the host's; of one event loop."""

    def __init__(
        self,
        screen: Screen,
        streams: Mapping[TopicPartition, PartitionStream],
        drop: Callable[[PartitionStream, str], None],
        report_problem: Callable[[str, str], None],
    ) -> None:
        """`drop` ends a partition stream; `report_problem` reports what is wrong with a name, empty text ends that."""
        self.screen = screen
        self._streams, self._drop, self._report_problem = streams, drop, report_problem
        self._checked_version = 0
        self._deleted: frozenset[str] = frozenset()  # state topics of other mirrors, as the log has named them
        self._unnamed: set[str] = set()  # topics that can have no name at the target
        self._refused: set[str] = set()  # topics of which it is unknown which records came from the target

    def keep_only(self, names: Collection[str]) -> None:
        """Forget the notes on topics that are selected no more, or exist no more."""
        self.screen.forget(self.screen.reasons.keys() - set(names))
        for gone in (self._unnamed | self._refused) - set(names):
            self._refused.discard(gone)
            self._unnamed.discard(gone)
            self._report_problem(gone, "")

    # -- topics

    async def candidates(
        self, found: Mapping[str, Topic], new: Mapping[TopicPartition, Topic]
    ) -> tuple[dict[TopicPartition, Topic], dict[TopicPartition, int]]:
        """Return the new partitions that may be admitted, as `Screen.candidates`, once all streams are classified.

        Raises SourceError, OriginsChangedError.
        """
        was_blind = self.screen.is_blind
        admitted, ends = await self.screen.candidates(found, new, {partition.topic for partition in self._streams})
        if was_blind and self._streams and not self.screen.is_blind:
            raise OriginsChangedError(min(self._streams).topic)
        self._report_problem("source mirrors", self.screen.unreadable)
        for name in sorted(self.screen.deleted_topics - self._deleted):
            action = "start its mirror, which writes it again, before this one is restarted"
            _log.warning("state_topic_deleted", topic=name, mirror=mirror_name(name), action=action)
        self._deleted = self.screen.deleted_topics
        self.recheck_streams()
        return admitted, ends

    def known_before(
        self, new: dict[TopicPartition, Topic], commits: Mapping[TopicPartition, Commit]
    ) -> dict[TopicPartition, Topic]:
        """Return all, or, while this mirror is blind, those of topics that were mirrored before; refuse the others."""
        known = {partition.topic for partition in [*self._streams, *commits]}
        unseen = {tp.topic: topic for tp, topic in new.items() if tp.topic not in known}
        unseen = {name: topic for name, topic in unseen.items() if self.screen.is_unseen(name)}
        for name, topic in unseen.items():
            self._refuse(name, topic.topic_id, BLIND)
        return {tp: topic for tp, topic in new.items() if tp.topic not in unseen}

    def refuse_blind(self) -> None:
        """Refuse, while this mirror is blind, the topics that it mirrored while it was not, by their stored origin."""
        if not self.screen.is_blind:
            return
        for stream in list(self._streams.values()):
            name = stream.partition.topic
            had_origin = stream.state is not None and stream.state.origin is not None
            if not stream.is_gone and had_origin and self.screen.is_unseen(name):
                self._refuse(name, stream.topic_id, BLIND)

    async def past_known(
        self,
        new: Mapping[TopicPartition, Topic],
        positions: Mapping[TopicPartition, int],
        commits: Mapping[TopicPartition, Commit],
    ) -> dict[TopicPartition, int]:
        """Return the offsets to classify topics of new partitions by: from there on all writers are known.

        For a partition whose leader does not answer it is the position.
        """
        offsets = dict(positions)
        for tp, topic in new.items():
            commit = commits.get(tp)
            is_same = commit is not None and commit.topic_id == topic.topic_id
            passed_over = commit.passed_over if commit is not None and is_same else ()
            with contextlib.suppress(SourceError):
                offsets[tp] = await self.screen.pass_known(tp, topic.topic_id, positions[tp], passed_over)
        return offsets

    def verdicts_on(
        self, topics: Mapping[str, Topic], positions: Mapping[TopicPartition, int]
    ) -> dict[str, TopicVerdict | None]:
        """Return the verdicts on topics that are read from these positions; topics that are not sent are reported."""
        verdicts = {}
        for name, topic in topics.items():
            read_from = {tp.partition: offset for tp, offset in positions.items() if tp.topic == name}
            before = self.screen.reasons.get(name)
            verdict = verdicts[name] = self.screen.verdict_on(name, topic.topic_id, read_from)
            is_refused = verdict is not None and verdict.kind == "refused"
            if is_refused or name in self._refused:
                self._report_problem(name, verdict.reason if verdict is not None and is_refused else "")
                (self._refused.add if is_refused else self._refused.discard)(name)
            elif verdict is not None and verdict.reason and verdict != before:
                event = "topic_passed_over" if verdict.kind == "passed_over" else "records_passed_over"
                _log.info(event, topic=name, reason=verdict.reason)
        return verdicts

    def origin_of(self, verdict: TopicVerdict | None, *, is_known: bool) -> Origin | None:
        """Return the origin of a new partition stream; `is_known`: the source's group has a position of it."""
        if verdict is None or self.screen.is_blind:
            return None
        return verdict.origin._replace(since=UNKNOWN_SINCE if is_known else 0)

    def target_name(self, topic: str, policy: Policy, site: str | None) -> str | None:
        """Return a topic's name at the target; None, and a problem, if it can have no name there."""
        try:
            return target_name(topic, policy, site)
        except TopicNameError as error:
            self._report_problem(topic, str(error))
            self._unnamed.add(topic)
            return None

    def recheck_streams(self) -> None:
        """Classify the topics that are read again, if the claims have changed; raises OriginsChangedError."""
        if self.screen.version == self._checked_version:
            return
        self._checked_version = self.screen.version
        by_topic: dict[str, list[PartitionStream]] = {}
        for stream in self._streams.values():
            by_topic.setdefault(stream.partition.topic, []).append(stream)
        positions = {tp: stream.read_offset for tp, stream in self._streams.items()}
        verdicts = self.verdicts_on(
            {name: Topic(streams[0].topic_id, 0, {}) for name, streams in by_topic.items()}, positions
        )
        for name, verdict in verdicts.items():
            for stream in by_topic[name]:
                stream.writers.forget()
                if not is_sent(verdict):
                    self._drop(stream, "")
                elif verdict is not None and not carries(stream.origin, verdict.origin):
                    raise OriginsChangedError(name)

    def _refuse(self, name: str, topic_id: str | None, reason: str, *, by_writer: bool = False) -> None:
        self._drop_all(stream for stream in self._streams.values() if stream.partition.topic == name)
        self.screen.leave_out(name, topic_id, reason, by_writer=by_writer)
        self._refused.add(name)
        self._report_problem(name, reason)

    def _drop_all(self, streams: Iterable[PartitionStream]) -> None:
        for stream in list(streams):
            self._drop(stream, "")

    # -- batches

    async def turn_to_writer(self, stream: PartitionStream, piece: Piece, log_end: int | None) -> bool:
        """Find out whether a producer's batches came from the target; return False if the stream is not read on now.

        Raises SourceError, OriginsChangedError.
        """
        header, writers, reading = piece.header, stream.writers, stream.reading
        key = header.producer_id, header.producer_epoch
        passes_over = writers.known.get(key, False)
        if key not in writers.known and header.producer_id >= 0:
            if piece.end_offset > writers.checked_below and not await self._check_claims(stream, log_end):
                return False
            if stream.is_gone or stream.reading is not reading:
                return False
            if self.screen.claims.names(header.producer_id) and not await self._asks_target(stream):
                return False
            fate = self.screen.fate_of(stream.partition, header.producer_id)
            if fate == "own" and header.producer_id in writers.passed_over:
                fate = "passed_over"  # the state topic that named it was deleted, and this mirror started since
            reason = MERGED if fate == "unknown" else ""
            if fate == "own":
                reason = self.screen.unknown_at(stream.partition, stream.topic_id, piece.first_offset)
            if reason:
                self._refuse(stream.partition.topic, stream.topic_id, reason, by_writer=True)
                return False
            passes_over = fate == "passed_over"
        writers.turn_to(*key, passes_over=passes_over)
        return True

    async def _asks_target(self, stream: PartitionStream) -> bool:
        """Return whether the target has returned what decides a writer's fate; else the stream waits until it has."""
        if self.screen.knows_target:
            return True
        reading = stream.reading
        if self.screen.wait_s() <= 0:
            await self.screen.refresh()
            self.screen.check_readable()
            self.recheck_streams()
        if not self.screen.knows_target:
            stream.rest_until = time.monotonic() + TARGET_AWAY_S
        return self.screen.knows_target and not stream.is_gone and stream.reading is reading

    async def _check_claims(self, stream: PartitionStream, log_end: int | None) -> bool:
        """Read the claims of other mirrors, unless that was done since the last responses; False: later."""
        if not self.screen.is_fresh:
            wait_s = self.screen.wait_s()
            if wait_s > 0:
                stream.rest_until = time.monotonic() + wait_s
                return False
            await self.screen.refresh()
            self.screen.check_readable()
        stream.writers.checked_below = max(stream.writers.checked_below, log_end or 0)
        self.recheck_streams()
        return True
