"""Keep each idempotent producer's last batches, so that a retry is answered and not written twice.

| producer's batch | answer |
|---|---|
| unknown producer id, sequence 0 | accepted |
| the same, another sequence, and it may have been forgotten | accepted: it expired, or went for lack of memory |
| the same, never forgotten | a gap: OUT_OF_ORDER_SEQUENCE_NUMBER (45) |
| the same, in the first leader epoch | a gap: UNKNOWN_PRODUCER_ID (59) |
| one of its last 5 batches again (same epoch and sequences) | the first write's offsets, nothing is written |
| older epoch | INVALID_PRODUCER_EPOCH (47) |
| newer epoch | accepted from sequence 0, else OUT_OF_ORDER_SEQUENCE_NUMBER (45) |
| same epoch, next sequence (after 2147483647 comes 0) | accepted |
| same epoch, any other sequence | OUT_OF_ORDER_SEQUENCE_NUMBER (45) |

Kafka accepts a gap at the beginning. But where a leader has refused a producer's first batch and takes the second one,
or another leader has lost the first, librdkafka tells its user that both are stored: an answer for a sequence speaks
for all before it. With 45 clients send all again under their next epoch. In the first leader epoch the topic may
replace a deleted one: with 59 they start again in it. The greatest forgotten id tells which producers may have been
forgotten, as ids rise.

Any client may write with any producer id, so all partitions together keep BYTES_MAX of them
(producer_state_limit.py), and
so does one partition while a start reads it; those that wrote longest ago go first. None of them has a transaction
open, as batches of transactions are refused.

Contains: the state machine and its snapshot bytes. Does not contain: files, clocks.
Source: KIP-98, KIP-360, Kafka's ProducerStateManager and ProducerAppendInfo.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from edge_broker.errors import ErrorCode, Refusal
from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.record_batch import BatchHeader
from edge_broker.storage.files.data_age import Now
from edge_broker.storage.segment.segment_summary import NO_COUNTS, Counts, LastWrite

BATCHES_KEPT = 5
SEQUENCE_MAX = 0x7FFFFFFF
SNAPSHOT_VERSION = 3
VERSION_WITHOUT_FORGOTTEN = 2
NOBODY = -1  # was forgotten
ANYBODY = (1 << 63) - 1  # may have been
BYTES_MAX = 8 << 20  # some 18,000 producers with one batch each, or 6,000 with five
PRODUCER_BYTES = 250  # of memory: the objects, their numbers, and a place in the dict
WRITTEN_BYTES = 220
_HEAD = struct.Struct(">HI")
_POSITION = struct.Struct(">qqqqqqIIIqqB36sI")
_FORGOTTEN = struct.Struct(">q")
_PRODUCER = struct.Struct(">qhqB")
_WRITTEN = struct.Struct(">iiqq")


class WrittenBatch(NamedTuple):
    """One batch of a producer, as it was written; all four are inclusive."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


class Producer(NamedTuple):
    """Epoch, age of the store at the last append, and the last batches (at least one, at most 5)."""

    epoch: int
    used_age_ms: int
    batches: tuple[WrittenBatch, ...]

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that it takes."""
        return PRODUCER_BYTES + WRITTEN_BYTES * len(self.batches)


class SnapshotPosition(NamedTuple):
    """Where a snapshot was taken, and what the segment was like there (-1 or AGE_UNKNOWN: unknown)."""

    offset: int
    segment_base: int
    position: int
    max_timestamp: int
    max_timestamp_offset: int
    born_age_ms: int
    counts: Counts = NO_COUNTS
    forgotten_max: int = ANYBODY


class Producers:
    """The producers of one partition. Entries are replaced and never changed, so that a worker may copy them.

    The one that wrote last is the last one; `held` is the memory of all, in bytes. An unknown producer with a greater
    id than `forgotten_max` never wrote.
    """

    __slots__ = ("__weakref__", "_known", "forgotten_max", "held")

    def __init__(self, known: Mapping[int, Producer] | None = None, *, forgotten_max: int = ANYBODY) -> None:
        self._known: dict[int, Producer] = dict(known or {})
        self.forgotten_max = forgotten_max
        self.held = sum(producer.held_bytes for producer in self._known.values())

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._known

    def by_id(self) -> dict[int, Producer]:
        """A copy of what is known, by producer id."""
        return dict(self._known)

    def admit(
        self, batch: BatchHeader, base_offset: int, age_ms: int, *, first_epoch: bool
    ) -> tuple[WrittenBatch | None, Producer | None]:
        """The first write of a batch that came before, or what to `keep` once this one is written; Refusal.

        `first_epoch`: the log has had no other leader epoch.
        """
        producer_id = batch.producer_id
        if producer_id < 0 or batch.is_control:
            return None, None
        known = self._known.get(producer_id)
        written = _written_batch(batch, base_offset)
        if known is not None:
            again = _same(known, batch.producer_epoch, written)
            if again is not None:
                return again, None
            _check(known, batch, producer_id)
        elif batch.base_sequence and producer_id > self.forgotten_max:
            raise _gap(batch, first_epoch=first_epoch)
        return None, _next(known, batch.producer_epoch, written, age_ms)

    def keep(self, producer_id: int, producer: Producer) -> int:
        """Remember what `admit` returned, now that it is written; by how many bytes `held` grew."""
        before = self._known.pop(producer_id, None)
        self._known[producer_id] = producer
        grown = 0
        if before is None:
            grown = producer.held_bytes
        elif len(before.batches) != len(producer.batches):
            grown = producer.held_bytes - before.held_bytes
        self.held += grown
        return grown

    def in_order(self) -> Iterator[tuple[int, Producer]]:
        """Each producer, the one that wrote longest ago first; nothing may change meanwhile."""
        return iter(self._known.items())

    def forget(self, producer_id: int) -> int:
        """Know a producer no more; the bytes that it took."""
        held = self._known.pop(producer_id).held_bytes
        self.held -= held
        self.forgotten_max = max(self.forgotten_max, producer_id)
        return held

    def bound(self, bytes_max: int) -> None:
        """Forget those that wrote longest ago, a quarter at once, while more is held than `bytes_max`."""
        if self.held > bytes_max:
            for producer_id, _ in _by_age(self._known):
                self.forget(producer_id)
                if self.held <= bytes_max * 3 // 4:
                    return

    def replay(self, batch: BatchHeader, age_ms: int) -> None:
        """Take a batch from the log for granted."""
        news = self.state_after(batch, age_ms)
        if news is not None:
            self.keep(batch.producer_id, news)
            self.bound(BYTES_MAX)

    def state_after(self, batch: BatchHeader, age_ms: int) -> Producer | None:
        """Return the entry to `keep` of a batch with offsets, without a check; None: of no producer."""
        if batch.producer_id < 0 or batch.is_control:
            return None
        known = self._known.get(batch.producer_id)
        return _next(known, batch.producer_epoch, _written_batch(batch, batch.base_offset), age_ms)

    def expire(self, now: Now, after_ms: int) -> None:
        """Forget producers that were idle for longer than `after_ms`, as far as is known."""
        idle = [known_id for known_id, known in self._known.items() if now.elapsed_ms(known.used_age_ms) > after_ms]
        for producer_id in idle:
            self.forget(producer_id)


def _by_age(known: Mapping[int, Producer]) -> list[tuple[int, Producer]]:
    return sorted(known.items(), key=lambda entry: entry[1].used_age_ms)


def _written_batch(batch: BatchHeader, base_offset: int) -> WrittenBatch:
    last_sequence = batch.base_sequence + batch.last_offset_delta & SEQUENCE_MAX
    return WrittenBatch(batch.base_sequence, last_sequence, base_offset, base_offset + batch.last_offset_delta)


def _same(known: Producer, epoch: int, written: WrittenBatch) -> WrittenBatch | None:
    if epoch == known.epoch:
        for before in known.batches:
            if before.base_sequence == written.base_sequence and before.last_sequence == written.last_sequence:
                return before
    return None


def _check(known: Producer, batch: BatchHeader, producer_id: int) -> None:
    epoch, sequence = batch.producer_epoch, batch.base_sequence
    if epoch < known.epoch:
        raise Refusal(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {producer_id} wrote with epoch {epoch} after epoch {known.epoch} was seen",
        )
    expected = 0 if epoch > known.epoch else known.batches[-1].last_sequence + 1 & SEQUENCE_MAX
    if sequence != expected:
        raise Refusal(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {producer_id} epoch {epoch} sent sequence {sequence} where {expected} was due",
        )


def _gap(batch: BatchHeader, *, first_epoch: bool) -> Refusal:
    code = ErrorCode.UNKNOWN_PRODUCER_ID if first_epoch else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    what = f"producer {batch.producer_id} epoch {batch.producer_epoch} sent sequence {batch.base_sequence}"
    return Refusal(code, f"{what} first; what was before that is not here, so send all of it again under another epoch")


def _next(known: Producer | None, epoch: int, written: WrittenBatch, age_ms: int) -> Producer:
    if known is None or known.epoch != epoch:
        return Producer(epoch, age_ms, (written,))
    return Producer(epoch, age_ms, (*known.batches[1 - BATCHES_KEPT :], written))


def encode_snapshot(place: SnapshotPosition, known: Mapping[int, Producer]) -> bytes:
    """The bytes of a .snapshot file."""
    *fields, counts, forgotten_max = place
    *numbers, written = counts
    boot = written.boot_id.encode()[:36]
    parts = [_POSITION.pack(*fields, *numbers, written.age_ms, written.trusted, boot, len(known))]
    parts.append(_FORGOTTEN.pack(forgotten_max))
    for producer_id, producer in known.items():
        parts.append(_PRODUCER.pack(producer_id, producer.epoch, producer.used_age_ms, len(producer.batches)))
        parts.extend(_WRITTEN.pack(*written) for written in producer.batches)
    body = b"".join(parts)
    return _HEAD.pack(SNAPSHOT_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> tuple[SnapshotPosition, Iterator[tuple[int, Producer]]] | None:
    """Yield the contents of a .snapshot file, one producer at a time, as older versions wrote any number of them.

    None when it is torn, damaged or of another version: the log serves then.
    """
    if len(data) < _HEAD.size + _POSITION.size:
        return None
    version, crc = _HEAD.unpack_from(data)
    if version not in (VERSION_WITHOUT_FORGOTTEN, SNAPSHOT_VERSION) or crc != crc32c(data[_HEAD.size :]):
        return None
    *fields, count = _POSITION.unpack_from(data, _HEAD.size)
    place, at = _place_of(*fields), _HEAD.size + _POSITION.size
    if version == SNAPSHOT_VERSION:
        place = place._replace(forgotten_max=_FORGOTTEN.unpack_from(data, at)[0])
        at += _FORGOTTEN.size
    return place, _producers_in(data, at, count)


def _producers_in(data: bytes, at: int, count: int) -> Iterator[tuple[int, Producer]]:
    for _ in range(count):
        producer_id, epoch, used_age_ms, batches = _PRODUCER.unpack_from(data, at)
        at += _PRODUCER.size
        end = at + batches * _WRITTEN.size
        written = tuple(WrittenBatch(*fields) for fields in _WRITTEN.iter_unpack(data[at:end]))
        yield producer_id, Producer(epoch, used_age_ms, written)
        at = end


def producers_of_snapshot(known: Iterator[tuple[int, Producer]], forgotten_max: int) -> Producers:
    """Producers of a snapshot, in the order in which they wrote last, at most BYTES_MAX of them."""
    found = Producers(forgotten_max=forgotten_max)
    for producer_id, producer in known:
        found.keep(producer_id, producer)
        found.bound(BYTES_MAX)
    return Producers(dict(_by_age(found.by_id())), forgotten_max=found.forgotten_max)


def _place_of(
    offset: int,
    segment_base: int,
    position: int,
    max_timestamp: int,
    max_timestamp_offset: int,
    born_age_ms: int,
    records: int,
    control: int,
    batches: int,
    first_timestamp: int,
    age_ms: int,
    trusted: int,
    boot_id: bytes,
) -> SnapshotPosition:
    written = LastWrite(age_ms, bool(trusted), boot_id.rstrip(b"\0").decode())
    counts = Counts(records, control, batches, first_timestamp, written)
    return SnapshotPosition(offset, segment_base, position, max_timestamp, max_timestamp_offset, born_age_ms, counts)
