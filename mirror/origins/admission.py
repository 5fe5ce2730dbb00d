"""Admits topics of the source, and decides for each producer whether its batches are sent, by screening.py.

| call | when |
|---|---|
| `keep_only` | the source's topics were found: notes on all others are dropped |
| `candidates`, `past_known`, `judged` | partitions are new: which of them are admitted, with which origin |
| `turn_to_writer` | the next batch of a partition is of another producer than the last one |
| `judge_lanes` | the claims of other mirrors may have changed |
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
    """The admission of one mirror's streams, `lanes`, which are the host's; of one event loop."""

    def __init__(
        self,
        screen: Screen,
        lanes: Mapping[TopicPartition, PartitionStream],
        drop: Callable[[PartitionStream, str], None],
        tell: Callable[[str, str], None],
    ) -> None:
        """`drop` ends a partition stream; `tell` reports what is wrong with a name, empty text ends that."""
        self.screen = screen
        self._lanes, self._drop, self._tell = lanes, drop, tell
        self._judged_version = 0
        self._deleted: frozenset[str] = frozenset()  # state topics of other mirrors, as the log has named them
        self._unnamed: set[str] = set()  # topics that can have no name at the target
        self._refused: set[str] = set()  # topics of which it is unknown which records came from the target

    def keep_only(self, names: Collection[str]) -> None:
        """Forget the notes on topics that are selected no more, or exist no more."""
        self.screen.forget(self.screen.reasons.keys() - set(names))
        for gone in (self._unnamed | self._refused) - set(names):
            self._refused.discard(gone)
            self._unnamed.discard(gone)
            self._tell(gone, "")

    # -- topics

    async def candidates(
        self, found: Mapping[str, Topic], new: Mapping[TopicPartition, Topic]
    ) -> tuple[dict[TopicPartition, Topic], dict[TopicPartition, int]]:
        """Return the new partitions that may be admitted, as `Screen.candidates`, once all streams are classified.

        Raises SourceError, OriginsChangedError.
        """
        was_blind = self.screen.is_blind
        admitted, ends = await self.screen.candidates(found, new, {partition.topic for partition in self._lanes})
        if was_blind and self._lanes and not self.screen.is_blind:
            raise OriginsChangedError(min(self._lanes).topic)
        self._tell("source mirrors", self.screen.unreadable)
        for name in sorted(self.screen.deleted - self._deleted):
            action = "start its mirror, which writes it again, before this one is restarted"
            _log.warning("state_topic_deleted", topic=name, mirror=mirror_name(name), action=action)
        self._deleted = self.screen.deleted
        self.judge_lanes()
        return admitted, ends

    def known_before(
        self, new: dict[TopicPartition, Topic], commits: Mapping[TopicPartition, Commit]
    ) -> dict[TopicPartition, Topic]:
        """Return all, or, while this mirror is blind, those of topics that were mirrored before; refuse the others."""
        known = {partition.topic for partition in [*self._lanes, *commits]}
        unseen = {tp.topic: topic for tp, topic in new.items() if tp.topic not in known}
        unseen = {name: topic for name, topic in unseen.items() if self.screen.is_unseen(name)}
        for name, topic in unseen.items():
            self._refuse(name, topic.topic_id, BLIND)
        return {tp: topic for tp, topic in new.items() if tp.topic not in unseen}

    def refuse_blind(self) -> None:
        """Refuse, while this mirror is blind, the topics that it mirrored while it was not, by their stored origin."""
        if not self.screen.is_blind:
            return
        for lane in list(self._lanes.values()):
            name = lane.partition.topic
            had_origin = lane.state is not None and lane.state.origin is not None
            if not lane.is_gone and had_origin and self.screen.is_unseen(name):
                self._refuse(name, lane.topic_id, BLIND)

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

    def judged(
        self, topics: Mapping[str, Topic], positions: Mapping[TopicPartition, int]
    ) -> dict[str, TopicVerdict | None]:
        """Return the verdicts on topics that are read from these positions; topics that are not sent are reported."""
        verdicts = {}
        for name, topic in topics.items():
            read_from = {tp.partition: offset for tp, offset in positions.items() if tp.topic == name}
            before = self.screen.reasons.get(name)
            verdict = verdicts[name] = self.screen.judge(name, topic.topic_id, read_from)
            is_refused = verdict is not None and verdict.kind == "refused"
            if is_refused or name in self._refused:
                self._tell(name, verdict.reason if verdict is not None and is_refused else "")
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
            self._tell(topic, str(error))
            self._unnamed.add(topic)
            return None

    def judge_lanes(self) -> None:
        """Classify the topics that are read again, if the claims have changed; raises OriginsChangedError."""
        if self.screen.version == self._judged_version:
            return
        self._judged_version = self.screen.version
        by_topic: dict[str, list[PartitionStream]] = {}
        for lane in self._lanes.values():
            by_topic.setdefault(lane.partition.topic, []).append(lane)
        positions = {tp: lane.read_offset for tp, lane in self._lanes.items()}
        verdicts = self.judged({name: Topic(lanes[0].topic_id, 0, {}) for name, lanes in by_topic.items()}, positions)
        for name, verdict in verdicts.items():
            for lane in by_topic[name]:
                lane.writers.forget()
                if not is_sent(verdict):
                    self._drop(lane, "")
                elif verdict is not None and not carries(lane.origin, verdict.origin):
                    raise OriginsChangedError(name)

    def _refuse(self, name: str, topic_id: str | None, reason: str, *, by_writer: bool = False) -> None:
        self._drop_all(lane for lane in self._lanes.values() if lane.partition.topic == name)
        self.screen.hold(name, topic_id, reason, by_writer=by_writer)
        self._refused.add(name)
        self._tell(name, reason)

    def _drop_all(self, lanes: Iterable[PartitionStream]) -> None:
        for lane in list(lanes):
            self._drop(lane, "")

    # -- batches

    async def turn_to_writer(self, lane: PartitionStream, piece: Piece, log_end: int | None) -> bool:
        """Find out whether a producer's batches came from the target; return False if the stream is not read on now.

        Raises SourceError, OriginsChangedError.
        """
        header, writers, reading = piece.header, lane.writers, lane.reading
        key = header.producer_id, header.producer_epoch
        passes_over = writers.known.get(key, False)
        if key not in writers.known and header.producer_id >= 0:
            if piece.end_offset > writers.checked_below and not await self._check_claims(lane, log_end):
                return False
            if lane.is_gone or lane.reading is not reading:
                return False
            if self.screen.claims.names(header.producer_id) and not await self._asks_target(lane):
                return False
            fate = self.screen.fate_of(lane.partition, header.producer_id)
            if fate == "own" and header.producer_id in writers.passed_over:
                fate = "passed_over"  # the state topic that named it was deleted, and this mirror started since
            reason = MERGED if fate == "unknown" else ""
            if fate == "own":
                reason = self.screen.unknown_at(lane.partition, lane.topic_id, piece.first_offset)
            if reason:
                self._refuse(lane.partition.topic, lane.topic_id, reason, by_writer=True)
                return False
            passes_over = fate == "passed_over"
        writers.turn_to(*key, passes_over=passes_over)
        return True

    async def _asks_target(self, lane: PartitionStream) -> bool:
        """Return whether the target has returned what decides a writer's fate; else the stream waits until it has."""
        if self.screen.knows_target:
            return True
        reading = lane.reading
        if self.screen.wait_s() <= 0:
            await self.screen.refresh()
            self.screen.check_readable()
            self.judge_lanes()
        if not self.screen.knows_target:
            lane.rest_until = time.monotonic() + TARGET_AWAY_S
        return self.screen.knows_target and not lane.is_gone and lane.reading is reading

    async def _check_claims(self, lane: PartitionStream, log_end: int | None) -> bool:
        """Read the claims of other mirrors, unless that was done since the last responses; False: later."""
        if not self.screen.is_fresh:
            wait_s = self.screen.wait_s()
            if wait_s > 0:
                lane.rest_until = time.monotonic() + wait_s
                return False
            await self.screen.refresh()
            self.screen.check_readable()
        lane.writers.checked_below = max(lane.writers.checked_below, log_end or 0)
        self.judge_lanes()
        return True
