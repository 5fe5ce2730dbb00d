"""The journal of a board in a cluster: what it lost, synced on its own disk, until `__edge_ledger` has it.

The journal is the log in which a single node keeps its ledger, under a name that no topic can have: the
same records, the same sync before the act, the same blocks reserved for a full disk. Its entries are forwarded to the
leader of `__edge_ledger` (cluster/ledger_forwarding.py), and goes once enough disks of the cluster have it.

| an entry of `__edge_ledger` | is the journal's record, and |
|---|---|
| `directory` | the identity of the data directory whose journal has it |
| `sequence` | its offset in that journal, which is never given to another record |
| `id`, and the key | of a broker's own loss: the loss's id, then `:disk ` and the directory; others' stay as they are |

The id names the loss and the disk, so that the same loss is the same id however often it is written or forwarded:
readers count it once, whatever became of any answer. The sequence tells the leader which entries it has already.

| the journal | new losses |
|---|---|
| smaller than JOURNAL_BYTES_MAX | written |
| as large | StorageFault: the act waits; what a start finds lost already is written all the same |

| taking over the log of a single node, or of a release in which each broker had a ledger of its own | a crash after it |
|---|---|
| its directory gets the journal's name, durably | done again from here |
| the journal's topic file is written, durably | the old topic file goes at the next start |
| the old topic file is removed, durably | done |

Contains: the entries, the bound, taking over. Does not contain: who leads, sockets.
"""  # noqa: E501

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.errors import ProtocolViolation, StorageFault
from edge_broker.protocol.record_batch import Record, build_batch, read_header, records_of
from edge_broker.storage.files.atomic_files import read_whole, replace
from edge_broker.storage.log.log_reader import whole_batches
from edge_broker.storage.metadata.loss_records import CAUSES, fault_of_record
from edge_broker.storage.metadata.topic_record import JOURNAL_TOPIC, TOPIC_SUFFIX, decode_topic, encode_topic
from edge_broker.storage.retention.segment_removal import remove_forwarded
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.files.data_age import Now
    from edge_broker.storage.files.filesystem import FileSystem
    from edge_broker.storage.log.partition_log import PartitionLog
    from edge_broker.storage.metadata.loss_records import Ledger, Loss

JOURNAL_BYTES_MAX = 16 << 20  # some 40,000 losses
FORWARDED_BYTES_MAX = 256 << 10  # of a journal, read at once; a batch at least
ENTRY_BYTES_MAX = 512 << 10  # of entries in one request, and of one entry
ENTRIES_MAX = 200  # in one request
REASON = "reason"
DISK = ":disk "


class EntryId(NamedTuple):
    """Return the journal that an entry of `__edge_ledger` came by, and its key."""

    directory: str
    sequence: int
    key: bytes


class JournalBatch(NamedTuple):
    """Entries from a journal: a batch, and where the journal is to be read on; `batch` empty: nothing to be told.

    `left_out`: so many records were no ledger records, as others could write them once.
    """

    batch: bytes
    end_offset: int
    left_out: int = 0


class JournalLedger:
    """A Ledger that takes losses into the journal as long as that is not full."""

    def __init__(self, inner: Ledger, log: PartitionLog) -> None:
        self._inner, self._log = inner, log

    @runs_in("files")
    def write(self, losses: Sequence[Loss]) -> None:
        """Return when the losses are synced in the journal; StorageFault or Refusal: they are not, do not act."""
        if is_full(self._log):
            reason = (
                f"the ledger's journal is full: {waiting(self._log)} losses wait for a leader of {LEDGER_TOPIC} that "
                "takes them, and what would be lost now stays until then"
            )
            raise StorageFault(self._log.directory, self._log.log_end_offset, reason)
        self._inner.write(losses)


def is_full(log: PartitionLog) -> bool:
    """Whether a journal takes no more losses. Any thread."""
    return log.size >= JOURNAL_BYTES_MAX


def waiting(log: PartitionLog) -> int:
    """How many records of a journal wait to be forwarded. Any thread."""
    return max(0, log.log_end_offset - log.log_start_offset)


def entry_of(record: Record, directory: str) -> tuple[bytes, bytes] | None:
    """The entry of `__edge_ledger` for a record of a journal; None where that is no ledger record, or is far too large.

    The reason in its header, as the gateway writes it, is a field of the entry.
    """
    if fault_of_record(record.key, record.value):
        return None
    fields = fields_of(record, directory)
    value = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
    return (fields["id"].encode(), value) if len(value) <= ENTRY_BYTES_MAX else None


def fields_of(record: Record, directory: str) -> dict[str, Any]:
    """Return the entry for a journal's ledger record."""
    fields: dict[str, Any] = json.loads(record.value or b"")
    if fields["cause"] in CAUSES and DISK not in fields["id"]:
        fields["id"] += f"{DISK}{directory}"
    for name, content in record.headers:
        if name == REASON and content:
            fields.setdefault(REASON, content.decode(errors="replace"))
    fields["directory"], fields["sequence"] = directory, record.offset
    return fields


def id_of_entry(key: bytes | None, value: bytes | None) -> EntryId | None:
    """By which journal a record of `__edge_ledger` came; None: by none, as a client's."""
    try:
        fields = json.loads(value or b"")
        directory, sequence = fields["directory"], fields["sequence"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(directory, str) or isinstance(sequence, bool) or not isinstance(sequence, int):
        return None
    return EntryId(directory, sequence, key or b"")


@runs_in()
def read_entries(log: PartitionLog, directory: str) -> JournalBatch:
    """The oldest entries of a journal that are synced, as one batch. Refusal, StorageFault, DamageFound.

    Record timestamps are the journal's. Blocks.
    """
    begin = log.log_start_offset
    data = log.reader.read(begin, FORWARDED_BYTES_MAX, blocking=True) if begin < log.high_watermark else b""
    taken = _EntryBatch(begin)
    try:
        for batch in whole_batches(memoryview(data or b"")):
            if not all(taken.take(record, directory) for record in records_of(batch) if record.offset >= begin):
                break
            header = read_header(batch)
            taken.end_offset, taken.timestamp_ms = header.next_offset, max(taken.timestamp_ms, header.max_timestamp)
    except ProtocolViolation as violation:
        raise StorageFault(log.directory, begin, f"the journal cannot be read: {violation}") from violation
    if data and taken.end_offset == begin:
        raise StorageFault(log.directory, begin, "no whole record batch can be read in the journal; restore the file")
    made = bytes(build_batch(taken.entries, timestamp_ms=taken.timestamp_ms)) if taken.entries else b""
    return JournalBatch(made, taken.end_offset, taken.left_out)


class _EntryBatch:
    """Yield the losses of one batch."""

    def __init__(self, begin: int) -> None:
        self.entries: list[tuple[bytes, bytes]] = []
        self.end_offset, self.bytes, self.left_out, self.timestamp_ms = begin, 0, 0, 0

    def take(self, record: Record, directory: str) -> bool:
        """Take a record along; False: the batch is large enough without it."""
        entry = entry_of(record, directory)
        size = 0 if entry is None else sum(map(len, entry))
        if len(self.entries) == ENTRIES_MAX or (self.entries and self.bytes + size > ENTRY_BYTES_MAX):
            return False
        self.bytes, self.end_offset = self.bytes + size, record.offset + 1
        self.timestamp_ms = max(self.timestamp_ms, record.timestamp)
        if entry is None:
            self.left_out += 1
        else:
            self.entries.append(entry)
        return True


@runs_in("files")
def forget(log: PartitionLog, end_offset: int, now: Now) -> None:
    """Let go of what was forwarded; durable when this returns. StorageFault: it may be forwarded again."""
    if log.log_start_offset < end_offset:
        remove_forwarded(log, end_offset, now)


def take_over(fs: FileSystem, data_dir: str) -> None:
    """Let the ledger of a single node be the journal, unless there is one; durable. OSError, StorageFault.

    `__edge_ledger` may be a replica of the cluster's from then on.
    """
    topics = f"{data_dir}/topics"
    old, new = f"{LEDGER_TOPIC}{TOPIC_SUFFIX}", f"{JOURNAL_TOPIC}{TOPIC_SUFFIX}"
    if not fs.exists(f"{topics}/{old}"):
        return
    record = decode_topic(f"{topics}/{old}", read_whole(fs, f"{topics}/{old}"))
    if fs.exists(f"{topics}/{new}"):
        journal = decode_topic(f"{topics}/{new}", read_whole(fs, f"{topics}/{new}"))
        if journal.topic_id != record.topic_id:
            return  # a replica of the cluster's
        fs.sync_directory(topics)  # a killed process may leave a name that no disk has
    else:
        source, target = f"{data_dir}/{LEDGER_TOPIC}-0", f"{data_dir}/{JOURNAL_TOPIC}-0"
        if fs.exists(source):
            fs.rename(source, target)
        fs.sync_directory(data_dir)
        replace(fs, topics, new, encode_topic(record._replace(name=JOURNAL_TOPIC)))
    fs.remove(f"{topics}/{old}")
    fs.sync_directory(topics)
