"""`edge-broker ledger`: the records of `__edge_ledger`, and the proof that every offset is accounted for.

A broker's record names the topic id in its id, so that losses of a topic that was deleted do not count for a new one of
its name. In a cluster the entries are those of this board's replica of `__edge_ledger`, and of its journal what is not
forwarded yet; the proof goes by those of this board's own disk. Records of gateway and mirror are listed; the proof is
about what this broker had and lost. A loss whose offsets went to other records later (a cut or a failed sync took it
before anybody was shown it) is listed apart.

Why something was lost is what its record says (a header, as the gateway writes, or a field), else what the cause means.

Contains: reading records and partitions for the account. Does not contain: the arithmetic (offset_account.py).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

from drupelet.command.config_check import nearest
from drupelet.errors import ConfigurationError
from drupelet.ledger import LEDGER_TOPIC
from drupelet.quantities import quantity_text
from edge_broker.doctor.batch_content_check import lie_in
from edge_broker.doctor.directory import DataDirectory, PartitionFiles, Piece, bounds_of, pieces
from edge_broker.doctor.offset_account import Account, KnownLoss, Span
from edge_broker.errors import ErrorCode, ProtocolViolation, Refusal, StorageFault
from edge_broker.output import time_text, write_json, write_table
from edge_broker.protocol.record_batch import records_of
from edge_broker.storage.files.atomic_files import fault_of
from edge_broker.storage.log.removed_offsets import RemovedRange, removed_end
from edge_broker.storage.loss.ledger_journal import fields_of
from edge_broker.storage.metadata.broker_id import REGISTRATIONS
from edge_broker.storage.metadata.loss_records import CAUSES, fault_of_record
from edge_broker.storage.metadata.topic_record import JOURNAL_TOPIC, id_text

APART = ("unsynced_cut", "sync_failed", "truncated", "unclean_election")
REASON = "reason"
MEANINGS = {
    "evicted": "the disk or the topic's budget was full: the oldest went before every named group had it",
    "expired_unpassed": "past its retention, and a named group had not read it",
    "deleted_by_request": "deleted by a client, and a named group had not read it",
    "damaged": "on the disk, but no longer what was written",
    "unsynced_cut": "not synced when the power went",
    "sync_failed": "the disk refused to sync it",
    "truncated": "this replica had it and the leader had not: acks=1 at most, unless `unclean_election` has it, too",
    "unclean_election": "a leader had less than others have, or had: after an election, a rebuild, or a write-off",
    "record_too_large": "larger than the broker takes",
    "record_refused": "the target of the mirror takes no such record; it may lie in __edge_dead_letter",
    "mqtt_queue_dropped": "mosquitto dropped it from a full queue or with a session",
    "source_offset_out_of_range": "gone at the source before it was read",
    "source_offset_jump": "the source passed over offsets without a word",
    "source_truncated": "the source took back what it had shown",
}  # of the causes of broker, gateway and mirror
ATTEMPTS = 3  # a broker may be amid a removal: its ledger record is written before the act
LOOKS = 20  # at a partition whose sealed segments go or are replaced while it is read
_COLUMNS = ("time", "cause", "where", "first", "last", "records", "bytes", "node", "clock", "times", "reason")
_PROOF = (
    "partition",
    "log end",
    "available",
    "compacted",
    "control",
    "expired",
    "deleted",
    "ledgered",
    "unaccounted",
    "verdict",
)


class Entry(NamedTuple):
    """A record of the ledger; `times` is how often its id was written, `fields` what the first one said."""

    id: str
    fields: dict[str, Any]
    times: int

    def get(self, name: str) -> Any:
        """A field, None when it is not there."""
        return self.fields.get(name)

    @property
    def reason(self) -> str | None:
        """Why it was lost; None when neither the record nor its cause says so."""
        said = self.get(REASON)
        return said if isinstance(said, str) and said else MEANINGS.get(self.fields["cause"])

    @property
    def topic_id(self) -> str:
        """The topic id in a broker's id; empty in others'."""
        words = self.id.split(":")
        return words[4] if self.get("cause") in CAUSES and len(words) > 4 else ""


class Read(NamedTuple):
    """The ledger's partition: entries by first appearance, unreadable records, and those that are no loss."""

    entries: list[Entry]
    problems: list[str]
    foreign: list[str]  # records of others, from when the ledger could be written by anybody: named, and left out
    disk: str | None = None  # the data directory's identity in a cluster, None where the board stands alone

    @property
    def own(self) -> list[Entry]:
        """Return the entries for the proof: in a cluster, the losses of this very disk."""
        return [entry for entry in self.entries if self.disk is None or entry.get("directory") in (None, self.disk)]


def show(directory: DataDirectory, topic: str | None, cause: str | None, *, as_json: bool) -> int:
    """Print the ledger's records, each id once; 0, 1 when a part cannot be read. ConfigurationError: no such cause."""
    read = read_ledger(directory)
    _refuse_unknown(cause, MEANINGS.keys() | {entry.fields["cause"] for entry in read.entries})
    chosen = [
        entry for entry in read.entries if topic in (None, entry.get("topic")) and cause in (None, entry.get("cause"))
    ]
    if as_json:
        for entry in chosen:
            write_json({**entry.fields, "id": entry.id, "times": entry.times, REASON: entry.reason})
        _write_lines_json(read)
    else:
        write_table(_COLUMNS, map(_row, chosen))
        print(f"{directory.path}: {len(chosen)} of {quantity_text(len(read.entries), 'loss')} in {LEDGER_TOPIC}")
        for line in (*read.problems, *read.foreign):
            print(line)
    return 1 if read.problems else 0


def _refuse_unknown(cause: str | None, known: Collection[str]) -> None:
    if cause is not None and cause not in known:
        near = nearest(cause, sorted(known))
        raise ConfigurationError(
            f"nothing is lost by a cause {cause!r}; "
            + (f"did you mean {near}?" if near else f"there are {', '.join(sorted(known))}")
        )


def _write_lines_json(read: Read) -> None:
    for problem in read.problems:
        write_json({"kind": "problem", "problem": problem})
    for foreign in read.foreign:
        write_json({"kind": "foreign", "foreign": foreign})


def _row(entry: Entry) -> tuple[object, ...]:
    partition, first, last = (entry.get(name) for name in ("partition", "first_offset", "last_offset"))
    never_had_one = "-" if first is None else "unknown"
    return (
        time_text(entry.get("time_ms")),
        entry.get("cause"),
        entry.get("topic") if partition is None else f"{entry.get('topic')}-{partition}",
        "-" if first is None else str(first),
        never_had_one if last is None else str(last),
        _count(entry.get("records")),
        _count(entry.get("bytes")),
        entry.get("node"),
        entry.get("clock"),
        entry.times,
        entry.reason,
    )


def _count(value: object) -> object:
    return "unknown" if value is None else value


def read_ledger(directory: DataDirectory) -> Read:
    """Every record of the ledger; none when there is no ledger yet. ConfigurationError."""
    problems, foreign = list[str](), list[str]()
    disk = _disk(directory, problems)
    journal, ledger = _partitions(directory, JOURNAL_TOPIC), _partitions(directory, LEDGER_TOPIC)
    found: dict[str, Entry] = {}
    forwarded = _forwarded_end(journal, problems)
    sequences: set[int] = set()  # of this disk's entries that were forwarded, and are here
    for partition in (*ledger, *journal):  # what is forwarded meanwhile is in both, or missed
        for text, fields in _records(partition, disk or "", problems, foreign):
            if partition.topic.name == JOURNAL_TOPIC and fields["sequence"] < forwarded:
                continue  # the ledger has it, and its bytes are still in the journal's segment
            known = found.get(text)
            found[text] = Entry(text, fields, 1) if known is None else known._replace(times=known.times + 1)
            if disk is not None and fields.get("directory") == disk:
                sequences.add(fields["sequence"])
    if journal and disk is not None:
        problems += _elsewhere(forwarded, sequences)
    return Read(list(found.values()), problems, foreign, disk)


def _partitions(directory: DataDirectory, topic: str) -> list[PartitionFiles]:
    try:
        return list(directory.partitions(topic))
    except ConfigurationError:  # a directory from before there was one, or of a board that has none
        return []


def _disk(directory: DataDirectory, problems: list[str]) -> str | None:
    try:
        lines = directory.state(REGISTRATIONS, REGISTRATIONS)
    except StorageFault as fault:
        problems.append(str(fault))
        return None
    return lines[0][1] if lines and len(lines[0]) > 1 else None


def _forwarded_end(journal: list[PartitionFiles], problems: list[str]) -> int:
    """Where the journal starts: what it had before was forwarded."""
    try:
        return max((removed_end(files.removed_ranges()) for files in journal), default=0)
    except StorageFault as fault:
        problems.append(str(fault))
        return 0


def _elsewhere(end: int, sequences: set[int]) -> list[str]:
    """Return the entries that this broker has forwarded and has no replica of, or not yet."""
    missing = end - sum(sequence < end for sequence in sequences)
    if missing <= 0:
        return []
    return [
        f"{missing} of this board's losses were forwarded to {LEDGER_TOPIC} and are not on its own disk, so they are "
        "neither listed nor reckoned with here; other boards have them, and any client that reads the topic"
    ]


def _records(
    partition: PartitionFiles, disk: str, problems: list[str], foreign: list[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    segments = partition.segments()
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        bounds = None if following is None else bounds_of(segment, following, compacts=False)
        try:
            for piece in pieces(segment, partition.corrupt_ranges(segment.base_offset), verify=True, bounds=bounds):
                if piece.header is not None:
                    batch = segment.read(piece.header.size, piece.position, blocking=True)
                    where = f"{segment.path} at byte {piece.position}"
                    journal_of = disk if partition.topic.name == JOURNAL_TOPIC else None
                    yield from _decode(memoryview(batch), where, journal_of, problems, foreign)
                elif piece.corrupt_range is None and following is not None:
                    problems.append(f"{segment.path} at byte {piece.position}: {piece.reason}")
        except StorageFault as fault:
            problems.append(str(fault))
        except OSError as error:
            problems.append(str(fault_of(error, segment.path, 0)))


def _decode(
    batch: memoryview, where: str, journal_of: str | None, problems: list[str], foreign: list[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The fields of a batch's entries, by id; of a disk's journal as they are forwarded."""
    try:
        for record in records_of(batch):
            reason = fault_of_record(record.key, record.value)
            if reason:
                foreign.append(f"{where}: the record of offset {record.offset} is no ledger record, left out: {reason}")
            elif journal_of is not None:
                fields = fields_of(record, journal_of)
                yield fields["id"], fields
            else:
                fields = json.loads(record.value or b"")
                said = {name: content.decode(errors="replace") for name, content in record.headers if content}
                yield fields["id"], {REASON: said[REASON], **fields} if REASON in said else fields
    except Refusal as refusal:
        if refusal.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:  # there may be losses in it
            problems.append(f"{where}: {refusal}")
        else:
            foreign.append(f"{where}: a batch that holds no ledger records, left out: {refusal}")
    except ProtocolViolation as error:
        foreign.append(f"{where}: a batch that holds no ledger records, left out: {error}")


# the proof


def prove(directory: DataDirectory, topic: str | None, *, as_json: bool) -> int:
    """Account for every offset of every partition, or those of one topic; 1 when one is in no account or in two."""
    partitions = list(directory.partitions(topic))
    read = read_ledger(directory)
    accounts = [(partition, _account_settled(directory, partition, read.own)) for partition in partitions]
    apart = [entry for entry in read.entries if _apart(entry) and topic in (None, entry.get("topic"))]
    if as_json:
        _prove_json(accounts, apart, read)
    else:
        _prove_text(directory, accounts, apart, [*read.problems, *read.foreign])
    return 1 if read.problems or any(account.problems for _, account in accounts) else 0


def _apart(entry: Entry) -> bool:
    return entry.get("cause") in APART or (entry.get("cause") in CAUSES and entry.get("last_offset") is None)


def _account_settled(directory: DataDirectory, partition: PartitionFiles, entries: list[Entry]) -> Account:
    """The account; under a running broker looked at again while it does not hold, as two files never change at once.

    A look during which compaction or retention changed the partition is no attempt.
    """
    if directory.holder is None:
        return account_of(partition, entries)
    account, attempts = Account(), 0
    for _ in range(LOOKS):
        before = partition.sealed_segments()
        account = account_of(partition, entries)
        if not account.problems:
            break
        attempts += partition.sealed_segments() == before
        if attempts == ATTEMPTS:
            break
        entries = read_ledger(directory).own
    return account


def account_of(partition: PartitionFiles, entries: Iterable[Entry]) -> Account:
    """The account of one partition against the ledger's entries."""
    account = Account()
    end_offset = 0
    try:
        removed = partition.removed_ranges()
        start_offset = _count_removed(account, removed)
        end_offset = _count_segments(account, partition, start_offset)
    except StorageFault as fault:
        account.problems.append(str(fault))
    topic_id = id_text(partition.topic.topic_id)
    account.close(
        end_offset,
        [
            KnownLoss(entry.fields["cause"], entry.fields["first_offset"], entry.fields["last_offset"] + 1, entry.id)
            for entry in entries
            if entry.topic_id == topic_id and entry.get("partition") == partition.partition and not _apart(entry)
        ],
    )
    return account


def _count_removed(account: Account, removed: Iterable[RemovedRange]) -> int:
    end = 0
    for line in removed:
        span = Span(line.first_offset, line.end_offset)
        counts = {"records": line.records, "control": line.control, "compacted": line.compacted}
        account.add_removed(line.cause, span, **counts, loss=line.cause in CAUSES)
        end = line.end_offset
    return end


def _count_segments(account: Account, partition: PartitionFiles, start_offset: int) -> int:
    """Count what is there from `start_offset` on; the log's end."""
    segments = partition.segments()
    offset = start_offset
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        bounds = None if following is None else bounds_of(segment, following, compacts=partition.compacts)
        try:
            for piece in pieces(segment, partition.corrupt_ranges(segment.base_offset), verify=True, bounds=bounds):
                if piece.header is not None or piece.corrupt_range is not None:
                    offset = _count_piece(account, piece, offset, partition.compacts)
                    if piece.header is not None and (lie := lie_in(segment, piece.position, piece.header)):
                        account.remarks.append(f"{segment.path} at byte {piece.position}: {lie}")
                elif following is not None:
                    account.problems.append(f"{segment.path} at byte {piece.position}: {piece.reason}")
        except FileNotFoundError:
            continue  # retention or compaction took it away meanwhile; the account does not hold, and is made again
        except OSError as error:
            raise fault_of(error, segment.path, 0) from error
    return max(offset, segments[-1].base_offset if segments else 0)


def _count_piece(account: Account, piece: Piece, offset: int, compacts: bool) -> int:
    if piece.corrupt_range is not None:
        span = Span(max(piece.corrupt_range.first_offset, offset), piece.corrupt_range.end_offset)
    else:
        assert piece.header is not None
        span = Span(max(piece.header.base_offset, offset), piece.header.next_offset)
    if span.end <= span.first:
        return offset
    if span.first > offset and compacts:
        account.gap(Span(offset, span.first))
    if piece.header is None:
        account.corrupt_range(span)
    else:
        records = min(piece.header.records_count, span.end - span.first)
        account.live(span, records, control=piece.header.is_control)
    return span.end


def _facts(partition: PartitionFiles, account: Account) -> dict[str, Any]:
    return {
        "partition": partition.name,
        "log_end": account.end_offset,
        "available": account.available,
        "compacted": account.compacted,
        "control": account.control,
        "expired": account.expired,
        "deleted": account.deleted,
        "ledgered": account.ledgered,
        "unaccounted": account.unaccounted,
        "problems": account.problems,
        "remarks": account.remarks,
    }


def _prove_json(accounts: list[tuple[PartitionFiles, Account]], apart: list[Entry], read: Read) -> None:
    for partition, account in accounts:
        write_json({"kind": "account", **_facts(partition, account)})
    for entry in apart:
        write_json({"kind": "apart", **entry.fields, "id": entry.id, "times": entry.times, REASON: entry.reason})
    _write_lines_json(read)


def _prove_text(
    directory: DataDirectory, accounts: list[tuple[PartitionFiles, Account]], apart: list[Entry], lines: list[str]
) -> None:
    rows = []
    for partition, account in accounts:
        facts = _facts(partition, account)
        verdict = "holds" if not account.problems else "DOES NOT HOLD"
        rows.append((*(facts[key] for key in facts if key not in ("problems", "remarks")), verdict))
    write_table(_PROOF, rows)
    for partition, account in accounts:
        for problem in account.problems:
            print(f"{partition.name}: {problem}")
        for remark in account.remarks:
            print(f"{partition.name}: {remark} (a crash came between the record and the removal)")
    for line in lines:
        print(line)
    if apart:
        print(
            "\nlost before anybody was shown it, or perhaps lost where the last offset is unknown; "
            "the offsets were given to other records:"
        )
        write_table(_COLUMNS, map(_row, apart))
    wrong = sum(bool(account.problems) for _, account in accounts)
    print(
        f"{directory.path}: log end = available + compacted + control + expired + deleted + ledgered "
        + (f"does not hold for {wrong} of " if wrong else "for ")
        + quantity_text(len(accounts), "partition")
    )
