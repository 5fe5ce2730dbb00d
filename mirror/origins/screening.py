"""Decides which topics and batches of the source are sent, by the claims of other mirrors (partition/provenance.py).

| a topic that is new to the mirror | is |
|---|---|
| while no mirror writes to the source | admitted |
| without any record, while a mirror does | left until its first record: by then the head of its writer is stored |
| passed over, or refused | held, until the claims have changed or the topic was created again |
| of a writer whose fate the target's cluster id decides, while the target was never reached | left |
| any, while a state topic cannot be read | held, with a sentence: the origin of its records is unknown |
| that MirrorMaker 2 may have brought from the target (topics/mirrormaker.py) | refused |
| while no state topic may be seen (`is_blind`) | held, except `accept_unseen` and topics of the last release |

Does not contain: partition streams, offsets, log lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

from kafka_wire.cluster import Topic
from kafka_wire.partitions import TopicPartition
from kafka_wire.records.batches import Piece, SkippedRange
from mirror.client.source_client import Source
from mirror.client.target_client import Target as TargetEnd
from mirror.config import Config
from mirror.errors import SourceError, TargetError
from mirror.origins.claim_reader import ClaimsReader
from mirror.origins.offset_syncs import OffsetSyncs
from mirror.partition.provenance import RIGHTS, UNSEEN, Claims, Fate, Origin, Target, TopicVerdict, deleted_state
from mirror.partition.state_records import is_state_topic
from mirror.topics.mirrormaker import (
    SETTLED_S,
    alias_of,
    aliases,
    is_read,
    may_keep_its_name,
    offset_syncs,
    refusal,
    refusal_without_prefix,
    without_prefix,
)

NAMED_MAX = 3
MARKERS_MAX = 16  # offsets of a log that are read: a longer one has records
KNOWN_MAX = 16  # batches below the offset from which claims name all writers, that are read one by one
REFRESH_SHARE = 20  # times the duration of a refresh pass between two refreshes that producers cause
REFRESH_S_MAX = 1.0
TRIED_AGAIN_S = 3600.0  # after which a topic that was refused for a batch in it is read again: that may have expired
SYNCS_S = 5.0  # between two readings of offset syncs, except for new topics
REJUDGED_S = 60.0  # after which claims are read again, and held topics classified by them


class Ends(Protocol):
    """The two clusters."""

    @property
    def source(self) -> Source:
        """The source cluster."""

    @property
    def target(self) -> TargetEnd:
        """The target cluster."""


class _HeldTopic(NamedTuple):
    topic_id: str | None
    version: int


class Screen:
    """The decisions on the source's topics; of one event loop. `reasons` has a sentence for each topic left out."""

    def __init__(self, ends: Ends, timeout_s: float, accepted: str = "", accepted_unseen: str = "") -> None:
        """Take two regular expressions of topics that are sent nevertheless.

        `accepted`: though MirrorMaker 2 may have brought them; `accepted_unseen`: though this mirror is blind.
        """
        self._accepted, self._accepted_unseen = re.compile(accepted), re.compile(accepted_unseen)
        self._syncs = OffsetSyncs(lambda: ends.target)
        self._same_named: dict[str, bool] = {}  # topics as MirrorMaker 2 brings them; whether an offset sync names it
        self._syncs_at = self._asked_at = -REJUDGED_S  # when they were read, and the target's topics were queried
        self._names, self._there = frozenset[str](), frozenset[str]()  # topics of the source then, and of the target
        self._written: dict[str, float] = {}  # topics that are known to have records, and since when
        self._is_first_look = True
        self.reasons: dict[str, TopicVerdict] = {}
        self._ends = ends
        self._reader = ClaimsReader(lambda: ends.source, timeout_s)
        self._target_ids: frozenset[str] = frozenset()
        self._held: dict[str, _HeldTopic] = {}
        self._by_writer: dict[
            str, tuple[_HeldTopic, float]
        ] = {}  # for a batch in it, which no verdict shows; until when
        self._ended_at, self._duration_s = -REJUDGED_S, 0.0
        self._looked_at = -REJUDGED_S
        self._is_target_read: bool | None = None  # by MirrorMaker 2; None: the target was not queried yet
        self._asked_about: frozenset[str] = frozenset()  # topics that MirrorMaker 2 had brought at the target's query
        self._brought: frozenset[str] = frozenset()  # aliases whose topics may have come from the target
        self._brought_version = 0
        self.has_asked_target = False
        """Whether the target has answered."""
        self.is_fresh = False
        """Whether the claims were read after the last batches."""
        self._ids_version = -1  # of the claims, when the target's topics were queried

    @property
    def claims(self) -> Claims:
        """All claims that were read."""
        return self._reader.claims

    @property
    def version(self) -> int:
        """A number that grows whenever a verdict may have changed."""
        return self.claims.version + self._brought_version

    @property
    def unreadable(self) -> str:
        """Why the records from the target cannot be recognised; empty if they can."""
        return "; ".join(
            f"topic {name} cannot be read ({why}), so nothing tells which records came from the target: {RIGHTS}"
            for name, why in self._reader.unreadable.items()
        )

    @property
    def is_blind(self) -> bool:
        """Whether other mirrors may write to the source without this one seeing it."""
        return self._reader.is_blind

    def is_unseen(self, name: str) -> bool:
        """Return whether a topic is refused as this mirror is blind, unless it has mirrored the topic before."""
        return self.is_blind and not self._accepted_unseen.fullmatch(name)

    @property
    def deleted_topics(self) -> frozenset[str]:
        """State topics of other mirrors that were deleted while this mirror ran."""
        return frozenset(self._reader.deleted)

    # -- topics

    async def candidates(
        self, found: Mapping[str, Topic], new: Mapping[TopicPartition, Topic], known: Iterable[str] = ()
    ) -> tuple[dict[TopicPartition, Topic], dict[TopicPartition, int]]:
        """Return the new partitions that may be admitted, and the logs' ends before the claims were read.

        `found` are all topics of the source, `known` those that were admitted. Raises SourceError.
        """
        now = asyncio.get_running_loop().time()
        if self.is_blind or (new and now - self._looked_at >= REJUDGED_S):
            await self.check_visible()
        admitted = frozenset(known)
        await self.note_mirrormaker(found, admitted)
        if self._reader.differs(found):
            await self._reader.refresh(found)
        if not (self._reader.has_mirrors or any(map(is_state_topic, found))):
            return {tp: topic for tp, topic in new.items() if not self._is_held(tp.topic, topic)}, {}
        is_due = now - self._ended_at >= REJUDGED_S
        wanted = {tp: topic for tp, topic in new.items() if is_due or not self._is_held(tp.topic, topic)}
        if not wanted:
            return {}, {}
        ends = await self._ends.source.ends(wanted)
        written = set(admitted)
        for tp, end in ends.items():
            if tp.topic not in written and await self._has_records(tp, end):
                written.add(tp.topic)
        wanted = {tp: topic for tp, topic in wanted.items() if tp.topic in written}
        if wanted:
            await self.refresh()
        if self.unreadable:
            return {}, {}
        if not self.knows_target:
            wanted = {tp: topic for tp, topic in wanted.items() if not self.claims.of_topic(tp.topic)}
        return wanted, ends

    async def check_visible(self) -> None:
        """Find out whether this mirror is blind; raises SourceError."""
        was_blind = self.is_blind
        await self._reader.check_visible()
        self._looked_at = asyncio.get_running_loop().time()
        if was_blind and not self.is_blind:
            self._held.clear()

    async def note_mirrormaker(self, found: Mapping[str, Topic], admitted: Collection[str] = ()) -> None:
        """Note which topics of the source MirrorMaker 2 brings; query the target whether MirrorMaker 2 reads it.

        A topic that was admitted is held no more until an offset sync names it. Raises SourceError.
        """
        here = aliases(found)
        theirs = frozenset(name for name in found if alias_of(name, here) is not None) if here else frozenset()
        if theirs - self._asked_about:
            with contextlib.suppress(TargetError):  # it is away, and these topics wait for it
                there = await self._ends.target.topics()
                self._is_target_read, self._there = is_read(there), frozenset(there)
                self._asked_about = theirs
        same_named = await self._same_named_now(found, without_prefix(found, here, self._there), admitted)
        if same_named is not None and same_named != self._same_named:
            self._same_named = same_named
            self._brought_version += 1
        brought = frozenset() if self._is_target_read is False and theirs <= self._asked_about else here
        if brought != self._brought:
            self._brought = brought
            self._brought_version += 1

    async def _same_named_now(
        self, found: Mapping[str, Topic], here: frozenset[str], admitted: Collection[str]
    ) -> dict[str, bool] | None:
        """Return which topics MirrorMaker 2 brings under the same name, if it brings none under another.

        None: the target is away, and nothing is sent meanwhile.
        """
        now = asyncio.get_running_loop().time()
        if here and (now - self._asked_at >= REJUDGED_S or not self._names.issuperset(found)):
            try:
                self._there = frozenset(await self._ends.target.topics())
            except TargetError:
                return None
            self._asked_at, self._names = now, frozenset(found)
        await self._note_written(found, now, is_suspected=bool(here))
        syncs = offset_syncs(self._there) if here else []
        both = {name for name in found.keys() & self._there if may_keep_its_name(name)}
        if not syncs or not both:
            return {}
        unsettled = {name for name in both.difference(admitted) if now - self._written.get(name, now) < SETTLED_S}
        if unsettled or now - self._syncs_at >= SYNCS_S:
            with contextlib.suppress(TargetError):  # they may not be read: the syncs read until now hold
                await self._syncs.read(syncs)
                self._syncs_at = now
        if not self._syncs.is_whole:
            return dict.fromkeys(both, False)
        return dict.fromkeys(unsettled, False) | dict.fromkeys(both & self._syncs.topics, True)

    async def _note_written(self, found: Mapping[str, Topic], now: float, *, is_suspected: bool) -> None:
        """Note since when topics of both clusters have records, if MirrorMaker 2 may write them."""
        new = found.keys() - self._written.keys()
        for gone in self._written.keys() - found.keys():
            del self._written[gone]
        if self._is_first_look or not is_suspected:  # MirrorMaker 2 creates its own topics first
            self._written.update(dict.fromkeys(new, -SETTLED_S))
        elif wanted := [TopicPartition(name, one) for name in new & self._there for one in found[name].leaders]:
            ends = await self._ends.source.ends(wanted)
            self._written.update({partition.topic: now for partition, end in ends.items() if end})
        self._is_first_look = False

    async def _has_records(self, partition: TopicPartition, end: int) -> bool:
        """Return whether a log holds more than the markers of fences, which come before the head of their writer."""
        offset = 0
        while offset < end <= MARKERS_MAX:
            found = await self._ends.source.batch_at(partition, offset)
            if not isinstance(found, SkippedRange):
                return True
            offset = found.end_offset
        return end > MARKERS_MAX

    async def pass_known(
        self, partition: TopicPartition, topic_id: str | None, offset: int, passed_over: Collection[int]
    ) -> int:
        """Return the offset below which the writer of each batch from `offset` on is known; raises SourceError.

        A mirror that has lost its state fences each partition, and names its writers from the marker's end on.
        `passed_over` are writers that are known without a claim.
        """
        since = self.claims.known_from(partition.topic, topic_id, partition.partition, self._target)
        for _ in range(KNOWN_MAX):
            if offset >= since:
                break
            found = await self._ends.source.batch_at(partition, offset)
            if found is None:
                break
            if isinstance(found, Piece) and not self._is_known(found.header.producer_id, passed_over):
                break
            offset = found.end_offset
        return offset

    def _is_known(self, producer_id: int, passed_over: Collection[int]) -> bool:
        """Return whether a producer is known; one without an id is no mirror."""
        return producer_id < 0 or producer_id in passed_over or self.claims.names(producer_id)

    def _is_held(self, name: str, topic: Topic) -> bool:
        return self._held.get(name) == _HeldTopic(topic.topic_id, self.version)

    def verdict_on(self, name: str, topic_id: str | None, read_from: Mapping[int, int]) -> TopicVerdict | None:
        """Return the verdict on a topic that is read from these offsets; None if its cluster has no id."""
        reason = "" if self.claims.of_topic(name) else self._mirrormaker_refusal(name)
        if reason:
            self.leave_out(name, topic_id, reason)
            return self.reasons[name]
        source, target = self._ends.source.cluster_id, self._target
        if source is None:
            return None
        held, until = self._by_writer.get(name, (None, 0.0))
        if held == _HeldTopic(topic_id, self.version) and asyncio.get_running_loop().time() < until:
            return self.reasons[name]
        verdict = self.claims.verdict(name, topic_id, source, target, read_from)
        if verdict.kind == "sent":
            self._held.pop(name, None)
        else:
            self._held[name] = _HeldTopic(topic_id, self.version)
        if verdict.reason:
            self.reasons[name] = verdict
        else:
            self.reasons.pop(name, None)
        return verdict

    def _mirrormaker_refusal(self, name: str) -> str:
        """Return why a topic that MirrorMaker 2 may have brought from the target is refused; empty: it is not."""
        if self._accepted.fullmatch(name):
            return ""
        if name in self._same_named:
            return refusal_without_prefix(is_known=self._same_named[name])
        alias = alias_of(name, self._brought)
        return "" if alias is None else refusal(alias)

    def fate_of(self, partition: TopicPartition, producer_id: int) -> Fate:
        """Return what becomes of a producer's batches."""
        return self.claims.fate_of(*partition, producer_id, self._target)

    def unknown_at(self, partition: TopicPartition, topic_id: str | None, offset: int) -> str:
        """Return why the writer of a batch is unknown whose producer no claim names; empty: a client of the source."""
        topic, number = partition
        return self.claims.unknown_at(topic, topic_id, number, offset, self._target)

    def leave_out(self, name: str, topic_id: str | None, reason: str, *, by_writer: bool = False) -> None:
        """Leave out a topic that was admitted, until the claims have changed; `by_writer`: for a batch in it."""
        self._held[name] = _HeldTopic(topic_id, self.version)
        if by_writer:
            self._by_writer[name] = self._held[name], asyncio.get_running_loop().time() + TRIED_AGAIN_S
        self.reasons[name] = TopicVerdict("refused", Origin(frozenset()), reason=reason)

    def notes(self) -> list[str]:
        """Return a sentence for all topics that are passed over, and one for topics with records passed over."""
        kinds = {
            "passed_over": "passed over, as a mirror made it from records of the target; "
            "records that others write into it are not sent either",
            "sent": "sent without the records that came from the target",
        }
        told = [UNSEEN] if self.is_blind else []
        told += [deleted_state(name) for name in sorted(self.deleted_topics)]
        for kind, text in kinds.items():
            names = sorted(name for name, verdict in self.reasons.items() if verdict.kind == kind)
            more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
            told += [f"{', '.join(names[:NAMED_MAX])}{more}: {text}"] if names else []
        return told

    def forget(self, names: Iterable[str]) -> None:
        """Note that these topics exist no more."""
        for name in names:
            self.reasons.pop(name, None)
            self._held.pop(name, None)
            self._by_writer.pop(name, None)

    @property
    def _target(self) -> Target:
        return Target(self._ends.target.cluster_id or "", self._target_ids)

    # -- claims

    def batches_read(self) -> None:
        """Note that batches of the source have come: the heads of their writers may be newer than the claims read.

        The call that reads batches and `refresh` are of one task. No clock tells their order, as uvloop's has 1 ms.
        """
        self.is_fresh = False

    def wait_s(self) -> float:
        """Return for how long a refresh should wait, as the last one was just now."""
        passed = asyncio.get_running_loop().time() - self._ended_at
        return max(0.0, min(REFRESH_S_MAX, REFRESH_SHARE * self._duration_s) - passed)

    async def refresh(self, *, asks_target: bool = True) -> None:
        """Read the present claims, and the target's ids that decide their fate; raises SourceError."""
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        await self._reader.refresh()
        self.is_fresh = True
        if asks_target and self.claims and not self.knows_target:
            await self._ask_target()
        self._ended_at = loop.time()
        self._duration_s = self._ended_at - began_at

    @property
    def knows_target(self) -> bool:
        """Return whether the target has returned the ids that the claims need."""
        if self._ends.target.cluster_id is None:
            return False
        return not self.claims.names_unknown_clusters or self._ids_version == self.claims.version

    async def _ask_target(self) -> None:
        version = self.claims.version
        try:
            topics = await self._ends.target.topics(None if self.claims.names_unknown_clusters else [])
        except TargetError:
            return  # it is away, and the topics of these claims wait for it
        self.has_asked_target = True
        self._target_ids |= {topic.topic_id for topic in topics.values() if topic.topic_id is not None}
        self._ids_version = version

    def check_readable(self) -> None:
        """Raise SourceError if the records from the target cannot be recognised."""
        if self.unreadable:
            raise SourceError(self.unreadable)


def screen_of(ends: Ends, config: Config) -> Screen:
    """Return the screen of a mirror with this configuration."""
    return Screen(ends, config.request_timeout_ms / 1000, config.accept_from_mirrormaker, config.accept_unseen)
