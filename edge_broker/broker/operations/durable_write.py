"""One durable append: a batch is appended once nothing is in its way, and is safe once what its answer needs is there.

| a write is | since | next |
|---|---|---|
| open | the beginning, or a roll, a write or a check is in its way | `try_append`, when its log moves |
| written | `appended` is set | settled, once what it `needs` is there or its partition is offline |
| failed | `error` is set | settled |

| needs | is there when |
|---|---|
| WRITTEN | the batch is written |
| MARKED | the partition's in-use mark is on the disk (storage/recovery/dirty_markers.py), or the sync |
| SYNCED | the high watermark covers the batch, in a cluster while this broker leads in the epoch of the append |

The caller uses `write_all`, or `try_append`, `all_settled` and `wait_for` where its answers are its own.

Contains: append, wait, sync, go on. Does not contain: what is written, and what the answer says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING
from weakref import ref

from edge_broker.broker.broker import Broker
from edge_broker.broker.outcomes import Outcome, Wait
from edge_broker.broker.record_checks import Checking, CheckUnderWay
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.storage.log.log_writer import AppendResult, Busy, Writing
from edge_broker.storage.log.partition_log import PartitionLog

if TYPE_CHECKING:
    from edge_broker.broker.cluster_port import AppendGate, ClusterPort


class Needs(IntEnum):
    """The condition for the acknowledgement of a write."""

    WRITTEN = 0
    MARKED = 1
    SYNCED = 2


_SYNCED = Needs.SYNCED


class Write:
    """One batch for one partition; without `log` its maker overrides `log_for`, which sets `bytes_max` too.

    A batch of the broker's own has `bytes_max` 0. `records` is let go of once it is written. `error` holds no frames,
    and through them no request.
    """

    waits_for_lease = False
    """True where it waits in line until a board of a cluster knows whether it leads; else it is refused meanwhile."""

    __slots__ = (
        "__weakref__",
        "appended",
        "bytes_max",
        "checking",
        "epoch",
        "error",
        "gate",
        "kept",
        "log",
        "needs",
        "records",
        "writing",
    )

    def __init__(
        self,
        log: PartitionLog | None,
        records: memoryview | None,
        needs: Needs = _SYNCED,
    ) -> None:
        self.log = log
        self.records = records
        self.needs = needs
        self.bytes_max = 0
        self.kept = False
        self.gate: AppendGate | None = None
        self.epoch = -1  # in which it was appended, in a cluster
        self.appended: AppendResult | None = None
        self.error: Refusal | None = None
        self.checking: Checking | None = None
        self.writing: Writing | None = None

    def log_for(self, broker: Broker) -> PartitionLog:
        """The log, looked up before each attempt; Refusal."""
        assert self.log is not None
        return self.log

    @property
    def is_open(self) -> bool:
        """True until it is written or has failed."""
        return self.appended is None and self.error is None

    @property
    def is_held_up(self) -> bool:
        """True while another attempt would change nothing."""
        if self.checking is not None and not self.checking.done:
            return True
        if self.writing is not None:
            return not self.writing.done
        return self.log is not None and self.log.writer.busy

    def try_append(self, broker: Broker) -> None:
        """Append, unless something must end first."""
        try:
            self.log = log = self.log_for(broker)
            if broker.cluster is not None:
                self._lead_in(broker.cluster, log)
            writing = self.writing
            if writing is not None:
                appended = writing.result()
            else:
                assert self.records is not None
                appended = broker.append(log, self.records, self.bytes_max, checking=self.checking)
        except CheckUnderWay as under_way:
            self._wait_for(under_way.checking)
        except Busy as busy:
            self.writing = busy.writing
        except Refusal as refusal:
            self.fail(refusal.without_frames())
            if refusal.code == ErrorCode.KAFKA_STORAGE_ERROR and not broker.space.refusing:
                broker.space.look_soon()
        except StorageFault as fault:
            self.fail(Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(fault)))
        else:
            self.appended = appended
            self.records = self.writing = self.checking = None
            if self.needs != _SYNCED and not log.marked and log.high_watermark < appended.end_offset:
                broker.effects.mark(log)

    def _lead_in(self, cluster: ClusterPort, log: PartitionLog) -> None:
        """Have it appended by the leader alone; what a worker has begun to write stays of the epoch in which it was."""
        if self.writing is None:
            self.gate = cluster.gate
            cluster.gate.check_append(log, all_in_sync=self.needs == _SYNCED, waits=self.waits_for_lease)
            self.epoch = log.leader_epoch

    def _wait_for(self, checking: Checking) -> None:
        """Leave the records to a check, which goes on as long as this write is open: its request may be forgotten."""
        waiting = ref(self)

        def is_wanted() -> bool:
            write = waiting()
            return write is not None and write.is_open

        self.checking, self.records, checking.wanted = checking, checking.records, is_wanted

    def is_settled(self) -> bool:
        """Whether its answer is known; a partition that went offline before makes it fail."""
        appended = self.appended
        if appended is None:
            return self.error is not None
        log, needs = self.log, self.needs
        assert log is not None
        if self.gate is not None and needs == _SYNCED and (left := self.gate.refuse_old_epoch(log, self.epoch)):
            self.fail(left)
            return True
        if not needs or (log.marked and needs != _SYNCED) or log.high_watermark >= appended.end_offset:
            return True
        if log.fault is not None:
            self.fail(Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(log.fault)))
        return log.fault is not None

    def fail(self, error: Refusal) -> None:
        """It is not written, or the time until then is unknown."""
        self.appended, self.error = None, error
        self.records = self.writing = self.checking = None

    def late(self) -> None:
        """It is not settled in time."""
        refusal = None
        if self.gate is not None and self.log is not None:
            asked = self.gate.refuse_unproved if self.appended is None else self.gate.refuse_expired
            refusal = asked(self.log)
        text = "the disk did not confirm the write in time; retry"
        self.fail(refusal or Refusal(ErrorCode.REQUEST_TIMED_OUT, text))

    def keep_records(self) -> None:
        """Copy what is not written yet: the buffer that the request came in is used again, or of a request's size."""
        if self.writing is not None:
            self.records = None  # it has its own copy
        elif self.records is not None and not self.kept and self.checking is None:
            self.records = memoryview(bytearray(self.records))
            self.kept = True


def all_settled(writes: Sequence[Write]) -> bool:
    """Whether each answer is known."""
    for write in writes:  # noqa: SIM110 - all() with a generator takes twice as long
        if not write.is_settled():
            return False
    return True


def write_all(broker: Broker, writes: Sequence[Write], done: Callable[[], Outcome], wait_ms: int) -> Outcome:
    """Carry writes out, then `done`; those that are not settled after `wait_ms` fail with REQUEST_TIMED_OUT."""
    for write in writes:
        write.try_append(broker)
    return done() if all_settled(writes) else wait_for(broker, writes, done, wait_ms)


def wait_for(
    broker: Broker, writes: Sequence[Write], done: Callable[[], Outcome], wait_ms: int, *, syncs: bool = True
) -> Wait:
    """As `write_all`, of writes that have been tried; `syncs`: unsynced data is synced at once."""
    open_sizes = [len(write.records or b"") for write in writes if write.is_open]
    for write in writes:
        write.keep_records()

    def ready() -> Outcome | None:
        broker.check_bytes = broker.check_bytes_max
        for write in writes:
            if write.is_open and not write.is_held_up:
                write.try_append(broker)
        return done() if all_settled(writes) else None

    def too_late() -> Outcome:
        for write in writes:
            if not write.is_settled():
                write.late()
        return done()

    logs = [write.log for write in writes if write.log is not None]
    return Wait(logs, ready, wait_ms, too_late, syncs=syncs, holds=bool(open_sizes), kept_bytes=sum(open_sizes))
