"""The broker as every handler sees it: store, groups, configuration, clock, and the effects that it leaves.

Contains: one value with all of them, and the append. Does not contain: sockets, threads, timers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from edge_broker.broker.broker_time import Time
from edge_broker.broker.context import Session
from edge_broker.broker.effects import Effects
from edge_broker.broker.record_checks import REFUSAL_BYTES, Checking, CheckUnderWay, loop_bytes_max
from edge_broker.broker.state.authentication import LogIns
from edge_broker.broker.state.authorization import Rights, configured_authorizer
from edge_broker.broker.state.disk_space import DiskSpace
from edge_broker.broker.state.fetch_sessions import FetchSessions
from edge_broker.broker.state.group_registry import Groups
from edge_broker.broker.state.log_in_record import LogInRecord
from edge_broker.broker.state.security_state import Security
from edge_broker.broker.state.topic_registry import Topics
from edge_broker.clock import Clock
from edge_broker.configuration.config import BrokerConfig, Endpoint
from edge_broker.configuration.listeners import Listener
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.protocol.record_batch import CODEC_MASK, TRANSACTIONAL, BatchHeader, check_batch, read_header
from edge_broker.protocol.records_check import check_records
from edge_broker.storage.files.write_throttle import WriteThrottle
from edge_broker.storage.log import single_node_watermark
from edge_broker.storage.log.log_writer import AppendResult, Busy, RollDue, WriteUnderWay
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.maintenance.log_cleaner import LogCleaner
from edge_broker.storage.maintenance.scrubber import Scrubber
from edge_broker.storage.metadata.security_log import SecurityLog
from edge_broker.storage.metadata.security_store import SecurityStore
from edge_broker.storage.segment.segment import WouldBlockError

if TYPE_CHECKING:
    from edge_broker.broker.cluster_port import ClusterPort
    from edge_broker.cluster.znodes.metadata_image import DeletedTopic


class Broker:
    """State of one broker; owned by the event loop.

    `effects` is what handlers leave to the shell (effects.py), `topics` the door to what is stored (topic_registry.py),
    `rights` what sessions may do (authorization.py), `security` has users and ACLs (security_state.py), `log_ins`
    makes users of
    sessions (authentication.py), `space` says who may write (disk_space.py), `groups` has the coordinators
    (group_registry.py), `time` what time it is (broker_time.py).

    `answers_room` says how many bytes of records an answer may have just now, `peers` are there (ADDRESS:PORT), if that
    is known. `notes` are what a person should know of a broker that is well, by what they are of.
    `offsets_retention_ms` is None where committed offsets stay. `cluster` is None for a broker that stands alone.
    """

    def __init__(self, config: BrokerConfig, store: LogStore, clock: Clock, listeners: Iterable[Listener]) -> None:
        self.config = config
        self.store = store
        self.clock = clock
        self.time = Time(clock, store)
        self.groups = Groups(config, store, self.is_connected, self.time.clock_lead())
        self.notes: dict[str, list[str]] = {}
        self.listeners = {listener.name: listener for listener in listeners}
        self.node_id = config.integer("broker.id")
        self.scrubber = Scrubber(store)
        self.cleaner = LogCleaner(
            store, config.integer("log.cleaner.dedupe.buffer.size"), config.integer("edge.disk.free.min.bytes")
        )
        self.effects = Effects()
        self.rights = Rights(configured_authorizer(config), self.effects)
        self.security_log = SecurityLog(store.fs, store.data_dir, clock.wall_ms)
        self.security = Security(
            SecurityStore.open(store.fs, store.data_dir, clock.new_bytes, clock.pause, self.security_log),
            self.effects,
            self.rights.authorizer,
            has_super_users=bool(config.super_users),
        )
        record = LogInRecord(store.fs, store.data_dir, clock, self.effects)
        self.log_ins = LogIns(config, clock, lambda: self.security.state, self.effects, record, self.security_log)
        self.topics = Topics(store, self.effects, self.rights, config.networks("edge.ledger.writers"))
        self.appended_bytes = 0
        self.faults_noted: dict[PartitionLog, str] = {}
        self.space = DiskSpace(
            config,
            store,
            self.effects,
            self.time.now,
            self.groups.committed_offset,
            self.led_logs,
            self.spares,
            self.evicts_below,
        )
        self.checking: dict[PartitionLog, Checking] = {}
        self.check_bytes = self.check_bytes_max = loop_bytes_max()
        self.throttle = WriteThrottle()
        self.producer_ids: range = range(0)
        self.waiting_for_ids: list[int] = []  # in a cluster, the tokens of who waits for the next block
        retention_minutes = config.integer("offsets.retention.minutes")
        self.offsets_retention_ms = None if retention_minutes < 0 else retention_minutes * 60_000
        self.fetch_bytes_max = config.integer("fetch.max.bytes")
        self.fetch_sessions = FetchSessions(
            config.integer("max.incremental.fetch.session.cache.slots"),
            lambda: int.from_bytes(clock.new_bytes(4)) >> 1,
            self.is_connected,
        )
        self.answers_room: Callable[[], int] = lambda: 1 << 62
        self.peers: set[str] | None = None
        self.cluster: ClusterPort | None = None

    def join(self, cluster: ClusterPort, on_topics_deleted: Callable[[Sequence[DeletedTopic]], None]) -> None:
        """Be one of several: who leads, and what may be shown, is the cluster's to say.

        `on_topics_deleted` hears of topics that are gone before any request does.
        """
        self.cluster = self.topics.cluster = self.groups.cluster = cluster
        cluster.on_deleted = on_topics_deleted
        cluster.on_moved = self.effects.high_watermark_moved

    def advance_high_watermark(self, log: PartitionLog) -> None:
        """Let a log show what it may, whenever one of its ends may have moved."""
        if self.cluster is None or not self.store.directory.is_replicated(log.topic):
            single_node_watermark.advance_high_watermark(log.state)
        else:
            self.cluster.replication.log_moved(log)

    def led_logs(self) -> frozenset[PartitionLog] | None:
        """The logs of which this broker decides what goes from their front; None: of all, as it stands alone. Loop."""
        store, cluster = self.store, self.cluster
        if store.directory.registrations is None:
            return None
        return frozenset(
            log
            for topic in store.topics.values()
            for log in topic.partitions
            if not store.directory.is_replicated(topic.name)
            or (cluster is not None and cluster.replicas.surely_leads(topic.name, log.partition))
        )

    def spares(self) -> bool:
        """Return whether other boards have room for something that this broker leads (cluster/partition/room.py)."""
        return self.cluster is not None and self.cluster.replication.has_spare_replicas()

    def evicts_below(self) -> dict[PartitionLog, int]:
        """Return below which offset logs are evicted for other boards' disks (room.py); empty on one board."""
        return self.cluster.replication.eviction_offsets() if self.cluster is not None else {}

    def epoch_end(self, log: PartitionLog, leader_epoch: int) -> tuple[int, int]:
        """Return the greatest epoch not above this one and its end, as far as visible to readers; (-1, -1) if unknown.

        In a cluster a new leader shows little at first; the records after that are the same that readers had.
        """
        if self.cluster is None:
            return log.reader.epoch_end(leader_epoch)
        state = log.state
        return state.epochs.end(leader_epoch, state.leader_epoch, state.log_end_offset)

    def advertised_to(self, session: Session) -> Endpoint:
        """The advertised address for a client: that of the listener that it connected to."""
        return self.listeners[session.listener].advertised

    def is_connected(self, peer: str) -> bool:
        """Whether the client ADDRESS:PORT is still there, as far as anybody knows."""
        return self.peers is None or peer in self.peers

    def append(
        self,
        log: PartitionLog,
        records: memoryview,
        batch_bytes_max: int,
        *,
        checking: Checking | None = None,
    ) -> AppendResult:
        """Check and append a batch; the broker's own, with `batch_bytes_max` 0, needs no check.

        Refusal; StorageFault: the partition is offline now; Busy: ask again when it moves, with the `checking` that it
        carries, if any.

        While a log rolls, is written to, or has a batch checked, nothing overtakes what already waits for it. `records`
        may be used again at once, but for a CheckUnderWay's: those are its own from then on.
        """
        writer = log.writer
        if writer.rolling or writer.writing is not None or log in self.checking:
            raise Busy
        if checking is not None:
            header = checking.result()
        elif batch_bytes_max:
            header = self._check(log, records, batch_bytes_max)
        else:
            header = read_header(records)
        begin = self.clock.seconds()
        try:
            try:
                now = self.time.at(begin, stamps=log.state.settings.log_append_time)
                appended = None if self.throttle.slow else writer.append(records, header, now, opens=False)
            except WouldBlockError:
                appended = None
            if appended is None:
                return self._append_behind(log, records, header)
        except RollDue:
            self.effects.roll(log)
            raise
        except StorageFault as fault:
            log.fail(fault)
            self.effects.offline([log])
            raise
        if not appended.duplicate:
            self.note_write_time(self.clock.seconds() - begin, len(records))
            self.batch_appended(log, len(records))
        return appended

    def note_write_time(self, seconds: float, size: int) -> None:
        """A write of the loop took so long: the next one is the worker's where the disk makes writers wait."""
        if self.throttle.held_up(seconds, size):
            self.throttle.wrote_slowly(seconds, self._unsynced_bytes())

    def batch_appended(self, log: PartitionLog, size: int) -> None:
        """A batch of so many bytes was written to a log."""
        if self.cluster is not None or log.state.settings.left_to_kernel:
            self.advance_high_watermark(log)
        self.effects.log_appended(log)
        self.appended_bytes += size
        self.space.room_bytes -= size

    def _check(self, log: PartitionLog, records: memoryview, batch_bytes_max: int) -> BatchHeader:
        """The header of what a client sent, all of it checked; Refusal, or CheckUnderWay when it takes long."""
        header = check_batch(records, batch_bytes_max)
        if header.attributes & TRANSACTIONAL:
            raise Refusal(
                ErrorCode.INVALID_TXN_STATE, "the batch belongs to a transaction; transactions are not served"
            )
        size, settings = len(records), log.state.settings
        allowance = self.check_bytes
        self.check_bytes -= REFUSAL_BYTES  # given back unless the check refuses it, which costs more than a walk
        if size <= allowance and not header.attributes & CODEC_MASK:
            check_records(records, header, keys_required=settings.compacts, times_checked=not settings.log_append_time)
            self.check_bytes = allowance - size
            return header
        checking = Checking.of(log, records, header, allowance)
        self.check_bytes = allowance - checking.cost
        if not checking.done:
            self.effects.check(checking)
            self.checking[log] = checking
            raise CheckUnderWay(checking)
        return header

    def _unsynced_bytes(self) -> int:
        logs = (log for topic in self.store.topics.values() for log in topic.partitions)
        return sum(log.writer.unsynced_bytes for log in logs if not log.settings.left_to_kernel)

    def _append_behind(self, log: PartitionLog, records: memoryview, header: BatchHeader) -> AppendResult:
        """Leave the write to the worker; the caller waits for it. Records written before are acknowledged."""
        started = log.writer.begin_write(memoryview(bytearray(records)), header, self.time.now())
        if isinstance(started, AppendResult):
            return started
        self.effects.write(log)
        raise WriteUnderWay(started)

    def note_fault(self, log: PartitionLog, fault: StorageFault) -> None:
        """Log what could not be read, once: clients ask for it again and again."""
        if log.fault is None and self.faults_noted.get(log) != str(fault):
            self.faults_noted[log] = str(fault)
            self.effects.note(f"{log.topic}-{log.partition} could not be read: {fault}")
