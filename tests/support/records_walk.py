"""Batches from a seed, and what each walker of records finds in them."""

from __future__ import annotations

import random
import struct

from edge_broker.protocol.records_walk import RecordsWalk
from edge_broker.protocol.renumbering import WantedPiece
from tests.support.lying_batches import HONEST_AREAS, LYING_AREAS, NOW_MS, batch, record, varint

AREAS = [(area, count, NOW_MS) for area, count in (HONEST_AREAS | LYING_AREAS).values()]


def outcome(walk: RecordsWalk) -> tuple[int, int, int, int, int]:
    """What a caller may see of a walk that has ended."""
    return walk.verdict, walk.records, walk.bad_time, walk.keyless, walk.max_timestamp


def changed(area: bytes, rnd: random.Random) -> bytes:
    """The area with a few bytes changed, put in, left out or doubled."""
    out = bytearray(area)
    for _ in range(rnd.randint(0, 4)):
        at = rnd.randrange(len(out) + 1)
        kind = rnd.randrange(5)
        if kind == 0 and at < len(out):
            out[at] = rnd.choice((0, 1, 2, 127, 128, 255, rnd.randrange(256)))
        elif kind == 1:
            out[at:at] = rnd.choice((varint(rnd.randint(-3, 300)), b"\x80" * rnd.randint(1, 11), rnd.randbytes(3)))
        elif kind == 2:
            del out[at : at + rnd.randint(1, 5)]
        elif kind == 3:
            out[at:at] = out[at : at + rnd.randint(1, 40)]
        else:
            del out[at:]
    return bytes(out)


def random_area(rnd: random.Random) -> tuple[bytes, int, int]:
    """Records of all sizes, mostly honest, with the count that belongs to them."""
    count = rnd.choice((1, 2, 3, 70, 200))
    sizes = (0, 1, 5, 63, 64, 65, 127, 128, 8191, 8192, 20_000) if count < 5 else (0, 1, 5, 63, 64, 200)

    def content() -> bytes | None:
        return rnd.choice((None, bytes(rnd.choice(sizes))))

    area = b"".join(
        record(
            delta,
            time=rnd.choice((0, 1, -1, 64, 8192, 1 << 20, -(1 << 20), 1 << 21, 1 << 40, -(1 << 41))),
            key=content(),
            value=content(),
            headers=[(bytes(rnd.choice((0, 3, 70))), content()) for _ in range(rnd.choice((0, 0, 1, 3)))],
        )
        for delta in range(count)
    )
    return area, count + rnd.choice((0,) * 9 + (-1, 1)), rnd.choice((0, NOW_MS, -1, 2**63 - 1, -(2**63)))


def of_seed(seed: int) -> tuple[bytes, int, int, bool, bool]:
    rnd = random.Random(seed)
    area, count, base = rnd.choice(AREAS) if rnd.random() < 0.5 else random_area(rnd)
    if rnd.random() < 0.8:
        area = changed(area, rnd)
    if rnd.random() < 0.05:
        area = rnd.randbytes(rnd.randint(0, 80))
    return area, count, base, rnd.random() < 0.3, rnd.random() < 0.8


def piece_of(rnd: random.Random, base_offset: int) -> bytes:
    """A batch whose area is honest, lying, or has holes; its header may lie as well."""
    area, count, base, _, _ = of_seed(rnd.randrange(1 << 32))
    last = count - 1
    if rnd.random() < 0.5:
        deltas = sorted(rnd.sample(range(300), rnd.randrange(20)))
        area = b"".join(record(delta, time=rnd.choice((0, 3, -(1 << 40))), value=b"v" * delta) for delta in deltas)
        count, last = len(deltas), max([*deltas, rnd.randrange(400)])
    made = bytearray(
        batch(
            area,
            count=count,
            base_timestamp=base,
            max_timestamp=rnd.choice((base, 0, 2**63 - 1)),
            last_offset_delta=last,
            attributes=rnd.choice((0, 0, 0, 8, 0x7FFF)),
        )
    )
    struct.pack_into(">q", made, 0, base_offset)
    if rnd.random() < 0.1:
        made[rnd.randrange(61)] = rnd.randrange(256)
    return bytes(made)


def pieces_of_seed(seed: int) -> tuple[bytearray, list[WantedPiece]]:
    """Several pieces, with what is wanted of them: all, a part, nothing."""
    rnd = random.Random(seed)
    area, wanted, offset = bytearray(), [], rnd.choice((0, 5, 2**40, 2**63 - 2000))
    for _ in range(rnd.choice((1, 1, 2, 5))):
        made = piece_of(rnd, offset)
        first = offset + rnd.choice((0, 0, 0, 1, 50))
        wanted.append(WantedPiece(len(made), first, first + rnd.choice((400, 400, 3, 0, -1))))
        area += made
        offset += rnd.choice((0, 300, 301))
    return area, wanted
