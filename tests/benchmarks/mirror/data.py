"""What the cells move: readings of 97 bytes, documents and noise of 1 KB, the same ones in each run.

| data | value |
|---|---|
| a | JSON reading of one of 50 devices, 97 bytes |
| b | JSON document of one device with all its channels, 1 KB |
| c | 1,000 random bytes, which nothing compresses |

Values carry no key. Sequence numbers repeat after a cycle of about 20 MB, which no compression window spans, so that a
backlog of any size is made quickly. Must never come in: a client.
"""

from __future__ import annotations

import json
import random
import re
from functools import cache

CYCLE_RECORDS = {"a": 200_000, "b": 20_000, "c": 20_000}
DEVICES = 50
FIRST_SEQ = 1_000_000
FIRST_TIME_MS = 1_790_000_000_000
CHANNELS = 21
_SEED = 16
_SEQ = re.compile(rb'"seq": ?(\d+)')


def reading(seq: int, chance: random.Random) -> bytes:
    """One reading, whose `seq` sequence_of() finds again."""
    value = {
        "device": f"sensor-n-{chance.randrange(DEVICES):03}",
        "seq": FIRST_SEQ + seq,
        "time_ms": FIRST_TIME_MS + 20 * seq + chance.randrange(20),
        "temperature": round(20 + chance.gauss(0, 2), 2),
        "humidity": round(55 + chance.gauss(0, 6)),
    }
    return json.dumps(value, separators=(",", ":")).encode()


def document(seq: int, chance: random.Random) -> bytes:
    """One document of 1 KB with a sequence number, too."""
    channels = {
        f"channel_{number:02}_temperature_celsius": round(20 + chance.gauss(0, 3), 3) for number in range(CHANNELS)
    }
    head = {"device": f"logger-{chance.randrange(DEVICES):03}", "seq": FIRST_SEQ + seq, "site": "north-ridge"}
    timed = {"time_ms": FIRST_TIME_MS + 1000 * seq, "state": "running"}
    return json.dumps(head | timed | {"channels": channels}).encode()


def sequence_of(value: bytes) -> int:
    """The sequence number that a reading or document was made with; ValueError when there is none."""
    found = _SEQ.search(value)
    if found is None:
        raise ValueError(f"no sequence number in {value[:60]!r}")
    return int(found[1]) - FIRST_SEQ


@cache
def cycle(data: str) -> list[bytes]:
    """All different values of `a`, `b` or `c`."""
    chance = random.Random(_SEED)
    if data == "c":
        return [chance.randbytes(1000) for _ in range(CYCLE_RECORDS["c"])]
    make = {"a": reading, "b": document}[data]
    return [make(seq, chance) for seq in range(CYCLE_RECORDS[data])]


@cache
def mean_bytes(data: str) -> float:
    """Mean size of a value."""
    values = cycle(data)
    return sum(map(len, values)) / len(values)
