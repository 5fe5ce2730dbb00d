"""Chooses the source batches of a stream's next batch, and makes the batch in a worker thread.

| the buffer begins with | the batch has |
|---|---|
| a source batch that is forwarded unchanged | that one alone |
| a source batch far larger than a batch should be | a part of it, so that it does not block all others |
| a large uncompressed one, if packing such a one last saved nothing, on a fast link | that one alone |
| else | as many as fit, up to one that is forwarded, another leader epoch of the source, or a boundary |

Does not contain: connections, sequences, the order of streams (target_connection.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from edge_broker.errors import Refusal
from edge_broker.protocol.record_batch import CODEC_NONE
from edge_broker.protocol.unpacking import CODEC_ZSTD
from kafka_wire.records.batches import (
    BadBatch,
    PackedBatch,
    Piece,
    TooMuchAtOnce,
    bytes_about,
    forward,
    may_be_forwarded,
    merge,
)
from mirror.link.link_model import FORWARDED_FAST_BYTES_MIN, Link
from mirror.partition.stream import PartitionStream

PLAIN = 0.95  # of its size: packing leaves this of noise, images and data that is compressed already
PLAIN_BATCHES = 256  # are forwarded before packing is tried again: records change, and a try is dear


class Job(NamedTuple):
    """The source batches of one batch: merged, or a single one forwarded."""

    stream: PartitionStream
    pieces: list[Piece]
    forward: bool

    @property
    def size(self) -> int:
        """The approximate bytes of the batch."""
        return max(1, int(sum(map(bytes_about, self.pieces)) * self.stream.shrinkage))


def next_job(stream: PartitionStream, link: Link, codec: int, bytes_max: int) -> Job | None:
    """Take the source batches of the stream's next batch out of the buffer, about `bytes_max` once packed.

    The stream is `packing` from then on. Return None if nothing may be sent.
    """
    pieces: list[Piece] = []
    unpacked = packed = 0.0
    while stream.buffer:
        first = stream.buffer[0]
        if stream.boundary is not None and first.first_offset < stream.boundary < first.end_offset:
            stream.cut(stream.boundary)  # it was released and read again
            continue
        if pieces and first.header.leader_epoch != pieces[0].header.leader_epoch:
            break
        if _forwards(stream, first, link, codec):
            if not pieces:
                stream.packing = True
                stream.plain_left = max(0, stream.plain_left - 1)
                return Job(stream, [stream.take()], forward=True)
            break
        share = bytes_about(first)
        too_much = max(
            (unpacked + share * stream.growth) / stream.batch_bytes_max, (packed + share * stream.shrinkage) / bytes_max
        )
        if pieces and too_much > 1:
            break
        if too_much > 2:  # a large source batch, which would block all others
            end = first.first_offset + max(1, int((first.end_offset - first.first_offset) / too_much))
            if end < first.end_offset:
                stream.cut(end)
                continue
        pieces.append(stream.take())
        unpacked += share * stream.growth
        packed += share * stream.shrinkage
        if first.end_offset == stream.boundary:
            break
    stream.packing = bool(pieces)
    return Job(stream, pieces, forward=False) if pieces else None


def _forwards(stream: PartitionStream, piece: Piece, link: Link, codec: int) -> bool:
    size = len(piece.batch)
    is_plain = stream.plain_left > 0 and link.is_fast and piece.header.codec == CODEC_NONE
    goes_on = (is_plain and size >= FORWARDED_FAST_BYTES_MIN) or link.forwards(piece.header.codec, size, codec)
    return goes_on and size <= stream.batch_bytes_max and may_be_forwarded(piece)


def learn(stream: PartitionStream, pieces: Sequence[Piece], packed: PackedBatch, *, was_forwarded: bool) -> None:
    """Note how these source batches were packed, to estimate the next ones."""
    share = sum(map(bytes_about, pieces))
    stream.growth = max(1.0, packed.payload_bytes / share)
    stream.shrinkage = min(1.0, len(packed.batch) / share)
    if not was_forwarded:
        is_plain = all(piece.header.codec == CODEC_NONE for piece in pieces)
        stream.plain_left = PLAIN_BATCHES if is_plain and stream.shrinkage > PLAIN else 0


def pack_all(jobs: Sequence[Job], zstd_level: int) -> list[PackedBatch | Exception]:
    """Return a batch for each job, or the error that prevents it."""
    return [_pack(job, job.stream.codec, zstd_level if job.stream.codec == CODEC_ZSTD else None) for job in jobs]


def _pack(job: Job, codec: int, level: int | None) -> PackedBatch | Exception:
    try:
        return forward(job.pieces[0]) if job.forward else merge(job.pieces, codec, level)
    except (BadBatch, TooMuchAtOnce, Refusal) as error:
        return error
