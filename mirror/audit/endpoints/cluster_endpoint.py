"""Reads an end of an audit from a cluster: its topics, its logs, its ledger or its state topic.

Writes nothing to the cluster. Does not contain: comparisons, and what a difference means.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

from drupelet.errors import CommandFailed
from drupelet.ledger import LEDGER_TOPIC
from edge_broker.errors import ProtocolViolation, Refusal
from edge_broker.protocol.record_batch import records_of
from kafka_wire.cluster import Topic
from kafka_wire.connection.errors import WireError
from kafka_wire.partitions import TopicPartition
from kafka_wire.records.batches import BadBatch, Piece
from mirror.audit.compare.ledger_entries import Found, entries_of, note_entry
from mirror.audit.compare.matching import Side
from mirror.audit.digest.digests import Parts, Range, parts_of
from mirror.audit.digest.partition_facts import Facts
from mirror.audit.endpoints.endpoint import UnreadError
from mirror.audit.endpoints.log_reader import LogReader, Silence
from mirror.audit.endpoints.origins import Origins
from mirror.client.source_client import Source
from mirror.client.state_topic import StateTopic
from mirror.config import Config
from mirror.errors import SourceError
from mirror.partition.source_offsets import Commit
from mirror.partition.state_records import Partition, Reading, StateError, StoredState, topic_name
from mirror.topics.selection import TopicNameError, target_name


class LiveEnd:
    """One end, read from its cluster."""

    def __init__(self, side: Side, config: Config, only: TopicPartition | None = None) -> None:
        self.side = side
        self.at_ms = 0
        self._config = config
        self._only = only
        client = config.source_client if side == "source" else config.target_client
        self._timeout_s = client.request_timeout_ms / 1000
        self._silence = Silence(self._timeout_s)
        self._source = Source(client, config.group_id)
        self.target_id: str | None = None
        """The target's cluster id as that end reported it, for the source alone; set it before `open`."""
        self._origins = Origins(self._source, config)
        self._commits: Mapping[TopicPartition, Commit] | None = None
        self._left: list[Facts] = []
        self._now: Facts | None = None
        self._reading: AsyncGenerator[Range] | None = None

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id, once it is open."""
        return self._source.cluster_id

    async def note_positions(self) -> None:
        """Note the present positions: records below them are at the target when it is read from now on."""
        with self._name_errors():
            self._commits = await self._source.commits()

    async def open(self) -> None:
        """Read the topics, the bounds of their partitions, and their entries in the ledger or the state topic."""
        with self._name_errors():
            if self._commits is None and self.side == "source":
                self._commits = await self._source.commits()
            known = await self._source.topics()
            self._commits = {tp: one for tp, one in (self._commits or {}).items() if _is_of(one, known.get(tp.topic))}
            names = self._names(known)
            wanted = {
                TopicPartition(topic, number): name
                for topic, name in names.items()
                for number in known[name].leaders
                if self._only in (None, (topic, number))
            }
            compacted, undescribed = await self._find_compacted(sorted(set(wanted.values())))
            stored = await self._state(known)
            self.at_ms = time.time_ns() // 1_000_000
            here = [TopicPartition(name, partition.partition) for partition, name in wanted.items()]
            starts, ends, unknown = await self._source.known_bounds(here)
            unknown |= {one: undescribed[one.topic] for one in here if one.topic in undescribed}
            ledger = await self._ledger(known)
            if self.side == "source":
                await self._origins.open(known, self.target_id)
        for partition, name in sorted(wanted.items()):
            there = TopicPartition(name, partition.partition)
            commit = self._commits.get(partition)
            topic_id = known[name].topic_id
            told = Facts(
                partition.topic,
                partition.partition,
                name,
                starts.get(there, 0),
                ends.get(there, 0),
                compacted.get(name),
                topic_id,
                unknown=unknown.get(there, ""),
            )
            if self.side == "source":
                position = None if commit is None else commit.offset
                told = told._replace(position=position, ledger=entries_of(ledger, partition, topic_id))
                told = told._replace(reason=self._origins.reason(name, known[name]))
            self._left.append(told._replace(state=stored.get(partition)))

    def _names(self, known: Mapping[str, Topic]) -> dict[str, str]:
        """Return the names of selected topics at the source, each with its name at this end."""
        config = self._config
        if self.side == "source":
            return {name: name for name in config.selection.of(known)}
        prefix = f"{config.site}." if config.name_policy == "prefix" else ""
        names = {name.removeprefix(prefix): name for name in known if name.startswith(prefix)}
        return {topic: names[topic] for topic in config.selection.of(names) if self._is_ours(topic, names[topic])}

    def _is_ours(self, topic: str, name: str) -> bool:
        with contextlib.suppress(TopicNameError):
            return target_name(topic, self._config.name_policy, self._config.site or None) == name
        return False

    async def _find_compacted(self, names: Sequence[str]) -> tuple[dict[str, bool], dict[str, str]]:
        """Return whether each topic compacts, and why the source does not describe one.

        The target may not say: the mirror itself needs no right to describe topics there.
        """
        try:
            settings = await self._source.known_settings(names)
        except SourceError:
            if self.side == "source":
                raise
            return {}, {}
        compacted, undescribed = dict[str, bool](), dict[str, str]()
        for name, found in settings.items():
            if isinstance(found, str):
                undescribed[name] = found
            else:
                compacted[name] = "compact" in found["cleanup.policy"]
        return compacted, undescribed if self.side == "source" else {}

    async def _state(self, known: Mapping[str, Topic]) -> dict[Partition, StoredState]:
        name = topic_name(self._config.group_id)
        if self.side == "source" or name not in known:
            return {}
        reading = Reading(None)
        await StateTopic(self._source.cluster, name, timeout_s=self._timeout_s).read(reading)
        return reading.partitions()

    async def _ledger(self, known: Mapping[str, Topic]) -> Found:
        found: Found = {}
        if self.side == "target" or LEDGER_TOPIC not in known:
            return found
        partition = TopicPartition(LEDGER_TOPIC, 0)
        starts, ends = await self._source.bounds([partition])
        reader = LogReader(self._source, partition, self._silence, keyed=False)
        async with contextlib.aclosing(reader.pieces(starts[partition], ends[partition])) as pieces:
            async for piece in pieces:
                for record in records_of(piece.batch) if isinstance(piece, Piece) else ():
                    note_entry(record.value, found)
        return found

    async def next(self) -> Facts | None:
        """Go on to the next partition."""
        await self._stop_reading()
        self._now = self._left.pop(0) if self._left else None
        if self._now is not None and not self._now.unknown:
            self._reading = self._read(self._now.start, self._now.end)
        return self._now

    def _read(self, first: int, end: int) -> AsyncGenerator[Range]:
        facts = self._now
        assert facts is not None
        partition = TopicPartition(facts.name, facts.partition)
        commit = (self._commits or {}).get(partition)
        reader = LogReader(
            self._source,
            partition,
            self._silence,
            keyed=facts.is_compacted is not False,
            passes_over=self._origins.of(partition, () if commit is None else commit.passed_over),
        )
        return reader.ranges(first, end)

    async def range(self) -> Range | None:
        """Return the next range."""
        if self._reading is None:
            return None
        with self._read_on():
            return await anext(self._reading, None)

    async def read_again(self, first: int, end: int) -> Sequence[Range]:
        """Read these offsets again."""
        with self._read_on():
            return [one async for one in self._read(first, end) if one.records]

    async def parts(self, offset: int) -> Parts | None:
        """Read one record."""
        facts = self._now
        assert facts is not None
        with self._read_on():
            found = await self._source.record_at(TopicPartition(facts.name, facts.partition), offset)
        return None if found is None else parts_of(*found)

    async def _stop_reading(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            await reading.aclose()

    async def close(self) -> None:
        """Close the connections."""
        await self._stop_reading()
        await self._source.close()

    @contextlib.contextmanager
    def _read_on(self) -> Iterator[None]:
        """Raise UnreadError if the partition cannot be read."""
        try:
            yield
        except (SourceError, WireError, BadBatch, Refusal, ProtocolViolation) as error:
            raise UnreadError(self.side, f"the {self.side} cannot be read: {error}") from error

    @contextlib.contextmanager
    def _name_errors(self) -> Iterator[None]:
        try:
            yield
        except (SourceError, WireError, StateError, BadBatch, Refusal, ProtocolViolation) as error:
            servers = self._config.source if self.side == "source" else self._config.target
            raise CommandFailed(f"the {self.side} {servers} cannot be read: {error}") from error


def _is_of(commit: Commit, topic: Topic | None) -> bool:
    """Return whether a position belongs to the topic that has its name now; one without an id may."""
    return topic is None or None in (commit.topic_id, topic.topic_id) or commit.topic_id == topic.topic_id
