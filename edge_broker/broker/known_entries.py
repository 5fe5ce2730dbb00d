"""Which entries of boards' journals the log of `__edge_ledger` has, as its leader knows it: state, without steps.

The log is read once in each leader epoch, up to its end. Of each journal what came last is remembered, more than one
request holds: an earlier entry is not repeated, as a journal lets go of what was taken before it goes on.

Does not contain: how a request of entries is taken (cluster/ledger_entries.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from edge_broker.protocol.record_batch import Record, read_header, records_of
from edge_broker.storage.log.log_reader import whole_batches
from edge_broker.storage.loss.ledger_journal import ENTRIES_MAX, EntryId, id_of_entry
from edge_broker.storage.replica.replica_log import Replica
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.log.partition_log import PartitionLog

READ_BYTES = 1 << 20
REMEMBERED = 2 * ENTRIES_MAX  # of each journal
JOURNALS_MAX = 256  # of boards, and of their former cards; whose entries came longest ago is forgotten
NO_EPOCH = -1

Entry = tuple[EntryId, Record]


class KnownEntries:
    """Which entries a log has, as far as any may come again."""

    def __init__(self) -> None:
        self._journals: dict[str, deque[tuple[int, bytes]]] = {}

    def add(self, entry: EntryId) -> None:
        """The log has it."""
        journal = self._journals.pop(entry.directory, None)
        if journal is None:
            journal = deque(maxlen=REMEMBERED)
        self._journals[entry.directory] = journal  # whose came last is last
        journal.append((entry.sequence, entry.key))
        if len(self._journals) > JOURNALS_MAX:
            del self._journals[next(iter(self._journals))]

    def copy(self) -> KnownEntries:
        """The same, to go on with."""
        made = KnownEntries()
        made._journals = {directory: journal.copy() for directory, journal in self._journals.items()}
        return made

    def __contains__(self, entry: EntryId) -> bool:
        return (entry.sequence, entry.key) in self._journals.get(entry.directory, ())

    def new(self, entries: Iterable[Entry]) -> list[Entry]:
        """Those that the log has not, each once."""
        found: dict[EntryId, Record] = {}
        for entry, record in entries:
            if entry not in self:
                found.setdefault(entry, record)
        return list(found.items())


class LedgerEntries:
    """This broker's knowledge of the entries, as long as it leads `__edge_ledger`; all calls from the loop."""

    def __init__(self) -> None:
        self.epoch = NO_EPOCH  # of which `known` is
        self.known = KnownEntries()
        self.under_way: set[str] = set()  # directories
        self._reading: tuple[int, LogReading] | None = None

    def reading(self, epoch: int, log: PartitionLog) -> LogReading:
        """The log as it is read in an epoch; what was read of it stays read."""
        if self._reading is None or self._reading[0] != epoch:
            self._reading = epoch, LogReading(log)
        return self._reading[1]

    def begin(self, epoch: int, known: KnownEntries) -> None:
        """The log was read up to its end."""
        self.epoch, self.known, self._reading = epoch, known.copy(), None


class LogReading:
    """Reads a log through, for the entries that it has; `end_offset` is how far."""

    def __init__(self, log: PartitionLog) -> None:
        self.known = KnownEntries()
        self._log, self._replica = log, Replica(log)
        self.end_offset = log.log_start_offset

    @runs_in("reader")
    def read(self) -> None:
        """Read on, up to the log's end of now. StorageFault, Refusal, ProtocolViolation, DamageFound."""
        end = self._log.log_end_offset
        self.end_offset = max(self.end_offset, self._log.log_start_offset)
        while self.end_offset < end:
            chunk = memoryview(self._replica.read(self.end_offset, READ_BYTES, blocking=True) or b"")
            batches = list(whole_batches(chunk))
            for batch in batches:
                for record in records_of(batch):
                    entry = id_of_entry(record.key, record.value)
                    if entry is not None:
                        self.known.add(entry)
            self.end_offset = read_header(batches[-1]).next_offset if batches else end
