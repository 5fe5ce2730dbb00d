"""What of a lane the next batch is made of, and its making in a worker thread.

| of the buffer | the batch has |
|---|---|
| begins with one of the source's that goes on as it is | that one alone |
| begins with one that is far larger than a batch is to be | a part of it, so that it does not hold up all others |
| begins with a large plain one, and what was packed last of such became no smaller, on a fast link | that one alone |
| else | as many as fit, up to one that goes on as it is, another leader epoch of the source, or a boundary |

Must never come in: connections, sequences, when a lane has its turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from edge_broker.errors import Refusal
from edge_broker.protocol.record_batch import CODEC_NONE
from edge_broker.protocol.unpacking import CODEC_ZSTD
from kafka_wire.records.batches import (
    BadBatch,
    Packed,
    Piece,
    TooMuchAtOnce,
    bytes_about,
    forwarded,
    may_be_forwarded,
    merged,
)
from mirror.link.link_model import FORWARDED_FAST_BYTES_MIN, Link
from mirror.partition.stream import PartitionStream

PLAIN = 0.95  # of its size: what packing leaves of noise, images and what its owner has packed itself
PLAIN_BATCHES = 256  # go on as they are before packing is tried again: records change, and a try is dear


class Job(NamedTuple):
    """Pieces that one batch is made of: merged, or the one there is as it is."""

    lane: PartitionStream
    pieces: list[Piece]
    forward: bool

    @property
    def size(self) -> int:
        """The bytes of the batch, about."""
        return max(1, int(sum(map(bytes_about, self.pieces)) * self.lane.shrinkage))


def next_job(lane: PartitionStream, link: Link, codec: int, bytes_max: int) -> Job | None:
    """Take out of the buffer what the lane's next batch is made of, about `bytes_max` when it is packed.

    The lane is `packing` from then on. None when nothing may be sent.
    """
    pieces: list[Piece] = []
    unpacked = packed = 0.0
    while lane.buffer:
        first = lane.buffer[0]
        if lane.boundary is not None and first.first_offset < lane.boundary < first.end_offset:
            lane.cut(lane.boundary)  # it was let go and read again
            continue
        if pieces and first.header.leader_epoch != pieces[0].header.leader_epoch:
            break
        if _forwards(lane, first, link, codec):
            if not pieces:
                lane.packing = True
                lane.plain_left = max(0, lane.plain_left - 1)
                return Job(lane, [lane.take()], forward=True)
            break
        share = bytes_about(first)
        too_much = max(
            (unpacked + share * lane.growth) / lane.batch_bytes_max, (packed + share * lane.shrinkage) / bytes_max
        )
        if pieces and too_much > 1:
            break
        if too_much > 2:  # a large one of the source's, which would hold up all others
            end = first.first_offset + max(1, int((first.end_offset - first.first_offset) / too_much))
            if end < first.end_offset:
                lane.cut(end)
                continue
        pieces.append(lane.take())
        unpacked += share * lane.growth
        packed += share * lane.shrinkage
        if first.end_offset == lane.boundary:
            break
    lane.packing = bool(pieces)
    return Job(lane, pieces, forward=False) if pieces else None


def _forwards(lane: PartitionStream, piece: Piece, link: Link, codec: int) -> bool:
    size = len(piece.batch)
    is_plain = lane.plain_left > 0 and link.is_fast and piece.header.codec == CODEC_NONE
    goes_on = (is_plain and size >= FORWARDED_FAST_BYTES_MIN) or link.forwards(piece.header.codec, size, codec)
    return goes_on and size <= lane.batch_bytes_max and may_be_forwarded(piece)


def learn(lane: PartitionStream, pieces: Sequence[Piece], packed: Packed, *, was_forwarded: bool) -> None:
    """Note what became of these, for those behind them."""
    share = sum(map(bytes_about, pieces))
    lane.growth = max(1.0, packed.payload_bytes / share)
    lane.shrinkage = min(1.0, len(packed.batch) / share)
    if not was_forwarded:
        is_plain = all(piece.header.codec == CODEC_NONE for piece in pieces)
        lane.plain_left = PLAIN_BATCHES if is_plain and lane.shrinkage > PLAIN else 0


def pack_all(jobs: Sequence[Job], zstd_level: int) -> list[Packed | Exception]:
    """Make a batch of each, or say why one cannot be made."""
    return [_pack(job, job.lane.codec, zstd_level if job.lane.codec == CODEC_ZSTD else None) for job in jobs]


def _pack(job: Job, codec: int, level: int | None) -> Packed | Exception:
    try:
        return forwarded(job.pieces[0]) if job.forward else merged(job.pieces, codec, level)
    except (BadBatch, TooMuchAtOnce, Refusal) as error:
        return error
