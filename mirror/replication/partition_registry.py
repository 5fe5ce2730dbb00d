"""Keeps one stream for each partition that is mirrored: discovers topics, adds, checks and drops partitions.

| step of `discover` | by |
|---|---|
| topics of the source, those that are selected | topics/selection.py |
| streams of partitions that are gone, or of another topic of that name, are dropped | |
| new partitions are admitted, unless they came from the target | origins/admission.py |
| their positions in the group, the log's bounds, the topic's config | client/source_client.py |
| positions of all streams that may not be read are checked | position_check.py |

Does not contain: which stream is read when (source_reader.py), what a position means (partition/source_offsets.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from drupelet.observe.log_tree import Log
from kafka_wire.cluster import Topic
from kafka_wire.partitions import TopicPartition
from kafka_wire.records.codecs import codec_number
from mirror.client.source_client import Source
from mirror.client.target_client import Target
from mirror.config import Config
from mirror.errors import PositionsError, SourceError
from mirror.origins.admission import Admission
from mirror.origins.screening import Screen
from mirror.partition.provenance import is_sent, same_cluster
from mirror.partition.source_offsets import Commit, PartitionOffsets
from mirror.partition.stream import Memory, PartitionStream
from mirror.replication.active_period import ActivePeriod
from mirror.replication.position_check import Positions
from mirror.status.problems import NOT_YET

_log = Log("mirror")

LINES_MAX = 40  # about partitions that start at once


class PartitionRegistry:
    """All streams of one mirror, by partition, in an active period."""

    def __init__(
        self,
        source: Source,
        target: Target,
        config: Config,
        screen: Screen,
        positions: Positions,
        period: ActivePeriod,
        memory: Memory,
        problems: Mapping[str, str],
        report_problem: Callable[[str, str], None],
        *,
        refuse: Callable[[str], None],
        stream_dropped: Callable[[PartitionStream], None],
    ) -> None:
        """`refuse` ends the mirror: both ends are one cluster. `stream_dropped` is called once for each stream."""
        self.streams: dict[TopicPartition, PartitionStream] = {}
        self.admission = Admission(screen, self.streams, self.drop, report_problem)
        self.must_check = False
        """Whether a session has started since positions were last checked."""
        self._source, self._target, self._config = source, target, config
        self._positions, self._period, self._memory = positions, period, memory
        self._problems, self._report_problem = problems, report_problem
        self._refuse, self._stream_dropped = refuse, stream_dropped
        self._nothing_selected = False
        self._waiting: set[TopicPartition] = set()  # that cannot start, as the source does not describe them

    # -- existing streams

    async def discover(self) -> bool:
        """Bring the streams in line with the source's topics; return whether all of them may be read.

        Raises SourceError, OriginsChangedError.
        """
        found = await self._source.topics()
        if self._source.cluster_id is not None and self._source.cluster_id == self._target.cluster_id:
            text = same_cluster(self._source.cluster_id)  # its bootstrap servers are of several clusters
            self._refuse(text)
            raise SourceError(text)
        names = self._config.selection.of(found)
        self._note_near_miss(self._config.selection.near_miss(found))
        # By plain tuples, as in client/fetcher.py: they equal a TopicPartition, and most are known already.
        wanted = {(name, number): found[name] for name in names for number in found[name].leaders}
        self.admission.keep_only({name for name, _ in wanted})
        for partition, stream in list(self.streams.items()):
            if partition not in wanted:
                self.drop(stream, "topic_gone")
            elif stream.topic_id not in (None, wanted[partition].topic_id):
                self.drop(stream, "topic_recreated")
            else:
                stream.metadata_received(wanted[partition])
        new = {TopicPartition(*one): topic for one, topic in wanted.items() if one not in self.streams}
        all_added = await self._add(new, found)
        await self.check_positions()
        return all_added and all(stream.is_read or not stream.has_session for stream in self.streams.values())

    async def check_positions(self) -> None:
        """Check the positions of streams that may not be read yet; raises SourceError."""
        self.must_check = False
        self.admission.refuse_blind()
        await self._positions.check(list(self.streams.values()))

    async def check_again(self, partitions: Iterable[TopicPartition]) -> None:
        """Check these positions by the present leader epochs; raises SourceError, OriginsChangedError."""
        self.require_check(partitions)
        await self.discover()

    def require_check(self, partitions: Iterable[TopicPartition]) -> None:
        """Let none of these be read before its position is checked again."""
        for partition in partitions:
            if partition in self.streams:
                self.streams[partition].leader_epoch = None

    def drop(self, stream: PartitionStream, event: str) -> None:
        """Mirror a partition no more; `event` names the log line, empty text: none."""
        del self.streams[stream.partition]
        if event:
            _log.warning(event, **stream.fields(), acked=stream.offsets.acked)
        self._period.sender.drop(stream)
        self._stream_dropped(stream)
        for name in (stream.name, f"{stream.name} position", f"{stream.name} source"):
            self._report_problem(name, "")

    def drop_all(self) -> None:
        """Drop every stream without a log line, as an active period ends."""
        for stream in list(self.streams.values()):
            self.drop(stream, "")

    def _note_near_miss(self, near: str | None) -> None:
        """Log once that no topic is selected: the pattern may be misspelt, or the topics are yet to come."""
        if near is not None and not self._nothing_selected:
            meant = {"did_you_mean": near} if near else {}
            _log.warning(
                "no_topic_matched", topics=self._config.topics, **meant, result="the mirror starts when there is one"
            )
        self._nothing_selected = near is not None

    # -- new partitions

    async def _add(self, new: dict[TopicPartition, Topic], found: Mapping[str, Topic]) -> bool:
        """Start streams of new partitions; return False if the positions of some are unknown yet."""
        new, ends = await self.admission.candidates(found, new)
        if self._problems.get("target") == NOT_YET and self.admission.screen.has_asked_target:
            self._report_problem("target", "")  # no stream may ever report it, if all topics came from there
        if not new:
            self._report_problem("positions", "")
            self._note_waiting({})
            return True
        try:
            commits = await self._source.commits(list(new))
        except PositionsError as error:  # streams that exist are read on
            self._report_problem("positions", str(error))
            return False
        self._report_problem("positions", "")
        new = self.admission.known_before(new, commits)
        has_claims = bool(self.admission.screen.claims)  # a topic may be refused for records that have expired since
        starts, _, unknown = await self._source.known_bounds([tp for tp in new if has_claims or tp not in commits])
        new = {tp: topic for tp, topic in new.items() if tp not in unknown}
        positions = {tp: max(commits[tp].offset if tp in commits else 0, starts.get(tp, 0)) for tp in new}
        positions = await self.admission.past_known(new, positions, commits)
        verdicts = self.admission.verdicts_on({tp.topic: topic for tp, topic in new.items()}, positions)
        new = {tp: topic for tp, topic in new.items() if is_sent(verdicts[tp.topic])}
        described = await self._source.known_settings(sorted({partition.topic for partition in new}))
        for partition, topic in new.items():
            settings = described[partition.topic]
            if isinstance(settings, str):
                unknown[partition] = settings
                continue
            stream = self.new_stream(partition, settings)
            if stream is None:
                continue
            stream.writers.checked_below = ends.get(partition, 0)
            commit = commits.get(partition)
            stream.origin = self.admission.origin_of(verdicts[partition.topic], is_known=commit is not None)
            self._start(
                stream,
                topic,
                commit,
                PartitionOffsets.resume(commit) if commit else PartitionOffsets(starts[partition]),
            )
            if len(new) <= LINES_MAX:
                how = "mirroring_resumed" if commit else "mirroring_started"
                _log.info(how, **stream.fields(), offset=stream.read_offset, to=stream.target_topic)
        if len(new) > LINES_MAX:
            names = {partition.topic for partition in new}
            _log.info(
                "mirroring_started_many",
                topics=len(names),
                partitions=len(new),
                resumed=len(commits.keys() & new.keys()),
            )
        self._note_waiting(unknown)
        return not unknown

    def _start(self, stream: PartitionStream, topic: Topic, commit: Commit | None, offsets: PartitionOffsets) -> None:
        stream.metadata_received(topic)
        stream.commit = commit
        if commit is not None and commit.topic_id == topic.topic_id:
            stream.writers.passed_over = commit.passed_over
        stream.start(offsets)
        if commit is None:
            stream.offsets.topic_id = topic.topic_id
        self.streams[stream.partition] = stream
        self._period.sender.start(stream)

    def _note_waiting(self, unknown: Mapping[TopicPartition, str]) -> None:
        """Name the partitions that cannot start yet: the others do."""
        for partition in self._waiting - unknown.keys():
            self._report_problem(f"{partition.topic}-{partition.partition} source", "")
        for partition, why in unknown.items():
            self._report_problem(f"{partition.topic}-{partition.partition} source", why)
        self._waiting = set(unknown)

    def new_stream(self, partition: TopicPartition, settings: Mapping[str, str]) -> PartitionStream | None:
        """Return a stream of a partition whose topic has these settings; None if its topic can have no target name."""
        config = self._config
        name = self.admission.target_name(partition.topic, config.name_policy, config.site or None)
        if name is None:
            return None
        stream, own = PartitionStream(partition, name, settings, self._memory), config.of_topic(partition.topic)
        stream.urgent, stream.codec = own.urgent, codec_number(own.compression or config.compression)
        return stream
