"""Receives the events of the sender and the producer sessions: counts, logs, and passes them to their owners.

Each callback is called on the event loop and returns at once, except `place` and `refused_record`, which have owners
of their own. Does not contain: any reaction beyond a call of the owner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from drupelet.observe.log_tree import Log
from drupelet.printable import label_text
from mirror.client.active_election import Standby
from mirror.partition.stream import Batch, Memory, PartitionStream
from mirror.replication.active_period import ActivePeriod
from mirror.replication.initial_position import InitialPosition
from mirror.replication.offset_commits import OffsetCommitter
from mirror.replication.partition_registry import PartitionRegistry
from mirror.replication.refused_records import RefusedRecords
from mirror.replication.topic_config_sync import Following
from mirror.status.metrics import Metrics
from mirror.status.rates import Progress

_log = Log("mirror")


class TargetEvents:
    """The events of one mirror in all its active periods; the names are those of the two protocols it implements."""

    def __init__(
        self,
        registry: PartitionRegistry,
        period: ActivePeriod,
        standby: Standby,
        memory: Memory,
        metrics: Metrics,
        progress: Progress,
        *,
        committer: OffsetCommitter,
        config_sync: Following,
        initial_position: InitialPosition,
        refused_records: RefusedRecords,
        report_problem: Callable[[str, str], None],
        refuse: Callable[[str], None],
    ) -> None:
        """`refuse` ends the mirror: both ends are one cluster."""
        self._registry, self._period, self._standby, self._memory = registry, period, standby, memory
        self._metrics, self._progress, self._config_sync = metrics, progress, config_sync
        self.place = initial_position.find
        self.refused_record = refused_records.resolve
        self.report_problem = report_problem
        self.refuse = refuse
        self.offsets_changed = committer.position_changed
        self.fenced_by = ""
        """Why this mirror has lost its active period to another one; empty text: it has not."""
        self.notes: list[str] = []
        """The sentences of `/health` on a state topic that was lost."""

    @property
    def others_s(self) -> float:
        """For so long, in seconds, another mirror of the site may still write."""
        return self._standby.others_s

    def batch_acked(self, stream: PartitionStream, batch: Batch) -> None:
        """Count a batch that is safe at the target."""
        labels = (label_text(stream.partition.topic), str(stream.partition.partition))
        metrics = self._metrics
        metrics.records.labels(*labels).inc(batch.packed.records)
        metrics.bytes.labels(*labels).inc(batch.packed.payload_bytes)
        self._progress.records_acked(stream, batch.packed.records, batch.packed.payload_bytes)
        metrics.sent.inc(len(batch.packed.batch))

    def session_started(self, stream: PartitionStream, lost: int) -> None:
        """Check positions again: a session of the stream has started, and the target had lost so many records."""
        self._metrics.target_lost.inc(lost)
        if lost:
            _log.error("target_lost", **stream.fields(), to=stream.target_topic, records=lost)
        self._registry.must_check = True
        self._memory.room.set()

    def records_doubled(self, stream: PartitionStream, records: int) -> None:
        """Count records that are at the target and are sent again."""
        self._metrics.duplicates.inc(records)
        _log.warning("duplicates", **stream.fields(), records=records)

    def state_stored(self, stream: PartitionStream) -> None:
        """Send a stream's batches that waited for the state topic."""
        if not stream.is_gone:
            self._period.sender.consider(stream)

    def state_topic_lost(self, name: str) -> None:
        """Note that the state topic was deleted while this mirror ran."""
        then = "is written again, and offsets from before are translated no more"
        self.notes = [f"{name} was deleted at the target while this mirror ran: it {then}"]
        _log.warning("state_topic_deleted", topic=name, action=f"none: it {then}")

    def transaction_ended(self, outcome: str) -> None:
        """Count a transaction."""
        self._metrics.transactions.labels(outcome).inc()

    def mirror_fenced(self, text: str) -> None:
        """End the active period: another mirror has fenced this one."""
        self.fenced_by = self.fenced_by or text
        self._memory.room.set()

    def topic_created(self, stream: PartitionStream, settings: Mapping[str, str]) -> None:
        """Note that the stream's topic was created; under another name than the source's it is the mirror's alone."""
        self._period.sessions.topic_made(stream.target_topic)
        for each in self._registry.streams.values():
            is_alone = each.target_topic == stream.target_topic != each.partition.topic
            if is_alone and each.origin is not None:
                each.origin = each.origin._replace(is_alone=True)
        self._config_sync.topic_created(stream, settings)
        fields = {"topic": stream.target_topic, "partitions": stream.partitions, "settings": _text(settings)}
        left_out = {key: value for key, value in stream.settings.items() if key not in settings}
        if left_out:
            _log.warning("topic_created", **fields, not_taken=_text(left_out))
        else:
            _log.info("topic_created", **fields)

    def connection_lost(self) -> None:
        """Count a connection to the target that ended."""
        self._metrics.restarts.labels("target").inc()


def _text(settings: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in settings.items())
