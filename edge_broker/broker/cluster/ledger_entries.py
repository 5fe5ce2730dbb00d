"""The leader's side of `__edge_ledger`: entries of boards' journals, each taken into the log once.

| a request of entries | answered |
|---|---|
| not on the listener for brokers, or of whom may not act for the cluster (follower_fetch.py) | TOPIC_AUTHORIZATION_FAILED |
| to a broker that does not lead `__edge_ledger` | NOT_LEADER_OR_FOLLOWER |
| with a record that is no ledger record, or names no journal | INVALID_RECORD; nothing is written |
| while one of the same journal is in progress | COORDINATOR_LOAD_IN_PROGRESS: again later |
| with entries that the log has already | those are left out; the others are appended |
| | NONE, once the high watermark covers the log up to them, in the epoch in which this was said |
| else | what a produce with acks=all is refused with |

Which entries the log has, the log says: it is read once in each leader epoch, before the first request of that epoch is
taken, up to its end, which binds. An entry is the same if directory, sequence and key are: a journal that was set back,
as by an old copy of a card, gives numbers again, to other losses, and those are taken. Of each journal what came last is
remembered, more than one request holds: an earlier one is not repeated, as a journal lets go of what was taken before
it goes on. Readers count an entry that still comes twice once, by its id.

Does not contain: what is known of entries (known_entries.py), what a loss is, who forwards when
(cluster/ledger_forwarding.py).
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.broker.known_entries import Entry, LedgerEntries
from edge_broker.broker.operations.cold_reads import DamageMet, read_through
from edge_broker.broker.operations.durable_write import Write, write_all
from edge_broker.broker.outcomes import Outcome
from edge_broker.broker.state.ledger_access import ledger_refusal
from edge_broker.errors import ErrorCode, ProtocolViolation, Refusal, StorageFault
from edge_broker.protocol.record_batch import build_batch, records_of
from edge_broker.storage.log.log_writer import AppendResult
from edge_broker.storage.loss.ledger_journal import id_of_entry
from edge_broker.storage.segment.segment import DamageFound
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.broker.broker import Broker
    from edge_broker.broker.cluster_port import AppendGate, ClusterPort
    from edge_broker.storage.log.partition_log import PartitionLog

WAIT_MS_MAX = 15_000  # then the outcome is unknown, and it is forwarded again
Told = Callable[[ErrorCode], Outcome]


def take_entries(broker: Broker, records: memoryview, told: Told) -> Outcome:
    """Take a batch of entries from a broker; `told` gets the answer. `records` are the caller's to keep."""
    cluster = broker.cluster
    assert cluster is not None
    epoch = cluster.replicas.epoch_led(LEDGER_TOPIC, 0)
    log = broker.store.log(LEDGER_TOPIC, 0)
    if epoch is None or log is None:
        return told(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return _Taking(cluster.entries, broker, log, epoch, records, told).begin()


class _Taking:
    """One request's steps."""

    def __init__(
        self, entries: LedgerEntries, broker: Broker, log: PartitionLog, epoch: int, records: memoryview, told: Told
    ) -> None:
        assert broker.cluster is not None
        self._of, self._broker, self._cluster, self._log, self._epoch = entries, broker, broker.cluster, log, epoch
        self._records, self._told = records, told
        self._bytes_max = log.settings.message_bytes_max
        self._found: list[Entry] = []
        self._directory = ""
        self._error: ErrorCode | None = None
        self._reading = None if entries.epoch == epoch else entries.reading(epoch, log)

    def begin(self) -> Outcome:
        """Look at the entries, and at the log where this is the first request of the epoch, in the worker."""
        return read_through(self._broker.effects, self._work, self._append_new, self._quarantine_failed)

    @runs_in("reader")
    def _work(self) -> DamageMet | None:
        if not self._found and self._error is None:
            self._parse_entries()
        if self._reading is None or self._error is not None:
            return None
        try:
            self._reading.read()
        except DamageFound as found:
            return self._log, found
        except (StorageFault, Refusal, ProtocolViolation):
            self._error = ErrorCode.KAFKA_STORAGE_ERROR
        return None

    def _parse_entries(self) -> None:
        refusal = ledger_refusal(self._records, self._bytes_max)
        if refusal is not None:
            self._error = refusal.code
            return
        found = [(id_of_entry(record.key, record.value), record) for record in records_of(self._records)]
        self._found = [(entry, record) for entry, record in found if entry is not None]
        directories = {entry.directory for entry, _ in self._found}
        if len(self._found) != len(found) or len(directories) != 1:
            self._error = ErrorCode.INVALID_RECORD
        else:
            self._directory = directories.pop()

    def _quarantine_failed(self, _met: DamageMet, _fault: StorageFault) -> None:
        self._error = ErrorCode.KAFKA_STORAGE_ERROR

    def _append_new(self) -> Outcome:
        """Append what the log has not; on the loop, where no other append comes between."""
        of = self._of
        if self._error is not None:
            return self._told(self._error)
        if self._cluster.replicas.epoch_led(LEDGER_TOPIC, 0) != self._epoch:
            return self._told(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if of.epoch != self._epoch:
            if self._reading is None or self._reading.end_offset != self._log.log_end_offset:
                return self._told(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # others have written meanwhile
            of.begin(self._epoch, self._reading.known)
        if self._directory in of.under_way:
            return self._told(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        of.under_way.add(self._directory)
        write = self._write(of.known.new(self._found))
        return write_all(self._broker, [write], lambda: self._append_completed(write), WAIT_MS_MAX)

    def _write(self, new: Sequence[Entry]) -> Write:
        if not new:
            return _Waiting(self._cluster.gate, self._log, self._epoch)
        if len(new) == len(self._found):
            return _EntryWrite(self._log, self._records, new, self._of)
        records = [(record.key, record.value) for _, record in new]
        batch = build_batch(records, timestamp_ms=max(record.timestamp for _, record in new))
        return _EntryWrite(self._log, memoryview(bytearray(batch)), new, self._of)

    def _append_completed(self, write: Write) -> Outcome:
        self._of.under_way.discard(self._directory)
        return self._told(ErrorCode.NONE if write.error is None else write.error.code)


class _EntryWrite(Write):
    """New entries, known as soon as the log has them."""

    __slots__ = ("_new", "_of", "_taken_in")

    def __init__(self, log: PartitionLog, records: memoryview, new: Sequence[Entry], of: LedgerEntries) -> None:
        super().__init__(log, records)
        self._new, self._of, self._taken_in = [entry for entry, _ in new], of, of.epoch

    def try_append(self, broker: Broker) -> None:
        """As Write; in the epoch alone in which it was known what is new."""
        super().try_append(broker)
        if self.appended is not None and self._of.epoch == self._taken_in:
            for entry in self._new:
                self._of.known.add(entry)

    def _lead_in(self, cluster: ClusterPort, log: PartitionLog) -> None:
        super()._lead_in(cluster, log)
        if self.epoch != self._taken_in:
            raise cluster.replicas.not_led(log.topic, log.partition)


class _Waiting(Write):
    """Nothing new: the log has it all up to its end of now, and more disks may still need it."""

    def __init__(self, gate: AppendGate, log: PartitionLog, epoch: int) -> None:
        super().__init__(log, None)
        end = log.log_end_offset
        self.gate, self.epoch = gate, epoch
        self.appended = AppendResult(end, end, -1)

    def try_append(self, broker: Broker) -> None:
        """Nothing is to be done."""
