"""Loads groups: reads a partition of `__consumer_offsets` back and makes its coordinator, in the reader thread.

| who | loads | up to |
|---|---|---|
| a single node | all partitions, at its start | what the disk has confirmed |
| a member of a cluster | each partition that it begins to lead | the log's end: a leader's log is binding |

The result of a load that ends in another leader epoch than it began in is discarded.

Contains: loading, one partition after another, and dropping what is led elsewhere. Does not contain: what a record
means (coordinator), who leads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edge_broker.broker.broker import Broker
from edge_broker.broker.operations.cold_reads import DamageMet, read_through
from edge_broker.broker.operations.groups.deleted_topic_offsets import bury_again, forget_deleted_before
from edge_broker.broker.operations.groups.group_log import apply_group_effects
from edge_broker.broker.outcomes import Outcome, Reply
from edge_broker.clock import Clock
from edge_broker.coordinator.group_coordinator import GroupCoordinator
from edge_broker.coordinator.group_requests import NO_EPOCH, ClockLead, GroupSettings
from edge_broker.coordinator.offset_records import AGE_HEADER
from edge_broker.errors import ProtocolViolation, Refusal, StorageFault
from edge_broker.protocol.record_batch import Record, read_header, records_of
from edge_broker.storage.files.data_age import Now
from edge_broker.storage.log.log_reader import whole_batches
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.metadata.topic_record import OFFSETS_TOPIC
from edge_broker.storage.segment.segment import DamageFound
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.replica.replica_log import Replica

LOAD_BYTES = 1 << 20


def load_groups(broker: Broker) -> Outcome:
    """Load every partition, on a single node; each is served once it is loaded.

    Corruption is quarantined, and the groups are what the rest says of them. Requests that must know what is
    committed wait for the topic's name.
    """
    if broker.cluster is not None:
        return Reply(None)  # who leads does, partition by partition
    topic = broker.store.topics.get(OFFSETS_TOPIC)
    logs = [] if topic is None else list(topic.partitions)
    broker.groups.load([log.partition for log in logs])
    if not logs:
        return Reply(None)
    broker.topics.take_names([OFFSETS_TOPIC])
    return _load(broker, logs)


def _load(broker: Broker, logs: Sequence[PartitionLog]) -> Outcome:
    """Load the first of these, then the others."""
    if not logs:
        broker.topics.free_names([OFFSETS_TOPIC])
        return Reply(None)
    log = logs[0]
    loading = Loading(broker.groups.settings, broker.clock, broker.time.now(), log)

    def partition_loaded() -> Outcome:
        _serve(broker, log.partition, loading)
        return _load(broker, logs[1:])

    def quarantine_failed(_met: DamageMet, fault: StorageFault) -> None:
        loading.stop(fault)

    return read_through(broker.effects, loading.work, partition_loaded, quarantine_failed)


def _serve(broker: Broker, partition: int, loading: Loading) -> None:
    if loading.coordinator is None:
        reason = f"committed offsets cannot be read, groups are not served: {loading.fault}"
        broker.groups.fail(partition, reason)
    else:
        broker.effects.note(*loading.coordinator.load_notes)
        broker.groups.serve(partition, loading.coordinator)


def lead_offsets(broker: Broker, partition: int) -> Outcome:
    """Load a partition of `__consumer_offsets` that this broker has begun to lead, and serve its groups then.

    It may be called more than once in an epoch, and also when the partition is led elsewhere meanwhile.
    """
    assert broker.cluster is not None
    epoch, groups = broker.cluster.replicas.epoch_led(OFFSETS_TOPIC, partition), broker.groups
    if epoch is None or groups.is_loading(partition, epoch) or groups.is_loaded(partition, epoch):
        return Reply(None)
    _stop(broker, groups.lead(partition, epoch))
    log = broker.store.log(OFFSETS_TOPIC, partition)
    if log is None:
        groups.fail(partition, f"{OFFSETS_TOPIC}-{partition} is led here and has no log here")
        return Reply(None)
    from edge_broker.storage.replica.replica_log import Replica  # noqa: PLC0415 - for a cluster alone

    loading = Loading(groups.settings, broker.clock, broker.time.now(), log, Replica(log), epoch)

    def partition_loaded() -> Outcome:
        if groups.is_loading(partition, epoch):  # else another leads by now, or has led since
            _serve(broker, partition, loading)
            if loading.coordinator is not None:
                forget_deleted_before(broker, loading.coordinator)
        return Reply(None)

    def quarantine_failed(_met: DamageMet, fault: StorageFault) -> None:
        loading.stop(fault)

    return read_through(broker.effects, loading.work, partition_loaded, quarantine_failed)


def resign_offsets(broker: Broker, partition: int) -> Outcome:
    """Drop the groups of a partition that another broker leads: waiting clients must look for that one."""
    _stop(broker, broker.groups.resign(partition))
    return Reply(None)


def try_again(broker: Broker) -> None:
    """Load what is led here and could not be loaded, and have logs told what they did not keep."""
    for partition in list(broker.groups.faults):
        broker.effects.start(lead_offsets(broker, partition))
    bury_again(broker)


def _stop(broker: Broker, former: GroupCoordinator | None) -> None:
    if former is not None:
        apply_group_effects(broker, former.stop(broker.clock.steady_ms()))


class Loading:
    """Takes the newest value of every key from a whole log, then makes its `coordinator`, else `fault` says why not.

    Of a `replica` all that is written is read, else what may be shown.
    """

    def __init__(
        self,
        settings: GroupSettings,
        clock: Clock,
        now: Now,
        log: PartitionLog,
        replica: Replica | None = None,
        epoch: int = NO_EPOCH,
    ) -> None:
        self.coordinator: GroupCoordinator | None = None
        self.fault: Exception | None = None
        self._settings = settings
        self._clock = clock
        self._now = now
        self._log = log
        self._replica = replica
        self._epoch = epoch
        self._end = log.high_watermark if replica is None else replica.log_end_offset
        self._newest: dict[bytes, bytes | None] = {}
        self._ages_ms: dict[bytes, int] = {}
        self._offset = 0

    def stop(self, fault: Exception) -> None:
        """There will be no groups."""
        self.fault = fault

    @runs_in("reader")
    def work(self) -> DamageMet | None:
        """Read on; the groups are there when it has met no damage, unless there is a fault."""
        try:
            if self.fault is None:
                self._load()
                self._make()
        except DamageFound as found:
            return self._log, found
        except (StorageFault, Refusal) as error:
            self.stop(error)
        return None

    def _make(self) -> None:
        now_ms = self._clock.steady_ms()
        self.coordinator = GroupCoordinator.load(
            self._settings,
            self._newest.items(),
            now_ms,
            partition=self._log.partition,
            epoch=self._epoch,
            clock_lead=ClockLead(self._now.wall_ms - now_ms, self._now.age_ms - now_ms),
            ages_ms=self._ages_ms,
        )
        self._newest, self._ages_ms = {}, {}

    def _load(self) -> None:
        log, source = self._log, self._replica or self._log.reader
        self._offset = max(self._offset, log.log_start_offset)
        while self._offset < self._end:
            chunk = memoryview(source.read(self._offset, LOAD_BYTES, blocking=True) or b"")
            if not chunk:
                return  # what is left was lost, and is in the ledger
            try:
                behind = self._take(chunk)
            except ProtocolViolation as violation:
                reason = f"damaged after offset {self._offset}: {violation}; restore the file"
                raise StorageFault(log.directory, 0, reason) from violation
            if behind <= self._offset:
                raise StorageFault(
                    log.directory, 0, f"no whole record batch can be read at offset {self._offset}; restore the file"
                )
            self._offset = behind

    def _take(self, chunk: memoryview) -> int:
        """Enter the records of a chunk's whole batches; return the offset after them, 0 if it holds none."""
        offset = 0
        for batch in whole_batches(chunk):
            for record in records_of(batch):
                if record.key is not None:
                    self._newest.pop(record.key, None)  # the order of the log decides, also among different keys
                    self._newest[record.key] = record.value
                    if self._replica is None:  # ages are of a data directory, and another broker may have written it
                        self._keep_age(record.key, record)
            offset = read_header(batch).next_offset
        return offset

    def _keep_age(self, key: bytes, record: Record) -> None:
        self._ages_ms.pop(key, None)
        for name, value in record.headers:
            if name == AGE_HEADER and value is not None and len(value) == 8:
                self._ages_ms[key] = min(int.from_bytes(value, signed=True), self._now.age_ms)
