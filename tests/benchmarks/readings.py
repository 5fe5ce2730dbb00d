"""JSON readings as devices send them, and what the codec library alone takes to unpack what a producer made of them.

Lives here: the payloads and that one cost. Must never come in: what is compared with what (broker.py).
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import lz4.frame
import zstandard

from edge_broker.protocol.record_batch import CODEC_LZ4, CODEC_ZSTD, HEADER_SIZE, BatchHeader
from tests.support.lying_batches import NOW_MS

PAYLOADS = 20_000
_UNPACK = {
    CODEC_LZ4: lz4.frame.decompress,
    CODEC_ZSTD: lambda packed: zstandard.ZstdDecompressor().decompressobj().decompress(packed),
}


def write_readings(path: Path) -> int:
    """Write readings, one a line, the same each time; their mean size in bytes."""
    rnd = random.Random(12)
    lines = [
        json.dumps(
            {
                "device": f"sensor-{rnd.randrange(200):03}",
                "seq": number,
                "time_ms": NOW_MS + 50 * number + rnd.randrange(40),
                "value": round(20 + rnd.gauss(0, 3), 2),
                "unit": "celsius",
                "site": "north-ridge",
            }
        )
        for number in range(PAYLOADS)
    ]
    path.write_text("\n".join(lines) + "\n")
    return sum(map(len, lines)) // len(lines)


def unpacking_s(directory: Path) -> tuple[float, int]:
    """CPU seconds that the library takes for all batches of a partition's logs, and the bytes that come out."""
    took, unpacked = 0.0, 0
    for path in sorted(directory.glob("*.log")):
        content = path.read_bytes()
        position = 0
        while position + HEADER_SIZE <= len(content):
            header = BatchHeader(content, position)
            packed = content[position + HEADER_SIZE : position + header.size]
            begin = time.process_time()
            out = _UNPACK[header.codec](packed)
            took += time.process_time() - begin
            unpacked += len(out)
            position += header.size
    return took, unpacked
