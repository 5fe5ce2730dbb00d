"""Record batches whose header and CRC are right and whose inside lies, each with a name; and honest ones beside them.

Lives here: a writer of records that lets every field lie, packing by each codec, the catalogue. Must never come in:
what a broker answers to them (the tests say so).
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Iterator, Sequence

import cramjam
import lz4.frame
import zstandard

from edge_broker.protocol.crc import crc32c

NOW_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Headers = Sequence[tuple[bytes | None, bytes | None]]


def unsigned(value: int) -> bytes:
    """An unsigned varint of any length."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def varint(value: int) -> bytes:
    """A zigzag varint of any length, longer than Kafka's 32 or 64 bits where the number is."""
    return unsigned(value * 2 if value >= 0 else -value * 2 - 1)


def sized(content: bytes | None, size: int | None = None) -> bytes:
    """Bytes behind their length, or behind another one."""
    length = size if size is not None else -1 if content is None else len(content)
    return varint(length) + (content or b"")


def record(
    delta: int = 0,
    *,
    time: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: Headers = (),
    size: int | None = None,
    key_size: int | None = None,
    value_size: int | None = None,
    count: int | None = None,
    delta_bytes: bytes | None = None,
    time_bytes: bytes | None = None,
    attributes: int = 0,
    behind: bytes = b"",
) -> bytes:
    """One record; `size`, `count` and the like stand where the right ones belong, `behind` follows the headers."""
    body = bytes([attributes]) + (time_bytes or varint(time)) + (delta_bytes or varint(delta))
    body += sized(key, key_size) + sized(value, value_size)
    body += varint(len(headers) if count is None else count)
    body += b"".join(sized(name) + sized(content) for name, content in headers) + behind
    return varint(len(body) if size is None else size) + body


def xerial(content: bytes, block: int = 32 * 1024) -> bytes:
    """Snappy in the framing of the Java library."""
    out = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    for position in range(0, len(content), block):
        packed = bytes(cramjam.snappy.compress_raw(content[position : position + block]))
        out += struct.pack(">i", len(packed)) + packed
    return out


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": lambda content: gzip.compress(content, mtime=0),
    "snappy": xerial,
    "lz4": lambda content: lz4.frame.compress(content, block_linked=False, store_size=False),
    "zstd": zstandard.ZstdCompressor().compress,
}


def batch(
    area: bytes,
    *,
    count: int,
    codec: str | int = "none",
    base_timestamp: int = NOW_MS,
    max_timestamp: int | None = None,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """A batch with a right CRC around a record area, which is taken as it is: pack it before."""
    number = CODECS.index(codec) if isinstance(codec, str) else codec
    checked = struct.pack(
        ">hiqqqhii",
        attributes | number,
        count - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        base_timestamp if max_timestamp is None else max_timestamp,
        *producer,
        count,
    )
    checked += area
    return struct.pack(">qiibI", 0, len(checked) + 9, 0, 2, crc32c(checked)) + checked


def packed(area: bytes, *, count: int, codec: str, **fields: int) -> bytes:
    """The batch of a record area, packed by its codec."""
    return batch(PACKERS[codec](area), count=count, codec=codec, **fields)  # type: ignore[arg-type]


ONE = record()
TWO = record() + record(1)

# Record areas with the number of records that the header claims. What is wrong stands in the name.
LYING_AREAS: dict[str, tuple[bytes, int]] = {
    "garbage": (b"\xde\xad\xbe\xef" * 16, 1),
    "record length -1": (record(size=-1), 1),
    "record length 0": (record(size=0), 1),
    "record length 2^31-1": (record(size=2**31 - 1), 1),
    "record length 1 too small": (record(size=len(ONE) - 2), 1),
    "record length 1 too large": (record(size=len(ONE)), 1),
    "record length 1 too large, another follows": (record(size=len(ONE)) + record(1), 2),
    "record with attributes 128": (record(attributes=128), 1),
    "record with a byte behind its headers": (record(behind=b"\0"), 1),
    "count 10^9 with one record": (ONE, 10**9),
    "count 3 with two records": (TWO, 3),
    "count 1 with three records": (TWO + record(2), 1),
    "count 1, no records": (b"", 1),
    "a byte behind the last record": (ONE + b"\0", 1),
    "offset delta 2^40": (record(2**40), 1),
    "offset delta 7": (record(7), 1),
    "offset delta -1": (record(-1), 1),
    "offset deltas 0, 0": (record() + record(), 2),
    "offset deltas 1, 0": (record(1) + record(), 2),
    "offset deltas 0, 2": (record() + record(2), 2),
    "offset delta over 32 bits in 5 bytes": (record(delta_bytes=b"\x80\x80\x80\x80\x70"), 1),
    "2^31-1 headers": (record(count=2**31 - 1), 1),
    "-1 headers": (record(count=-1), 1),
    "one header too few": (record(headers=[(b"h", b"x")], count=0), 1),
    "one header too many": (record(headers=[(b"h", b"x")], count=2), 1),
    "header key null": (record(headers=[(None, b"x")]), 1),
    "header key of length -2": (record(count=1, behind=varint(-2) + sized(b"x")), 1),
    "header key beyond the record": (record(count=1, behind=varint(100) + b"h"), 1),
    "header value beyond the record": (record(count=1, behind=sized(b"h") + varint(100)), 1),
    "header value of length -2": (record(count=1, behind=sized(b"h") + varint(-2)), 1),
    "key beyond the record": (record(key_size=50), 1),
    "key of length 2^31-1": (record(key_size=2**31 - 1), 1),
    "key of length -2": (record(key=None, key_size=-2), 1),
    "value beyond the record": (record(value_size=50), 1),
    "value of length -2": (record(value=None, value_size=-2), 1),
    "key reaches into the next record": (record(key_size=len(ONE) + 2) + record(1), 2),
    "varint of 20 bytes": (record(delta_bytes=b"\x80" * 19 + b"\0"), 1),
    "varint of 6 bytes": (record(delta_bytes=b"\x80" * 5 + b"\0"), 1),
    "varlong of 11 bytes": (record(time_bytes=b"\x80" * 10 + b"\0"), 1),
    "varlong over 64 bits in 10 bytes": (record(time_bytes=b"\x80" * 9 + b"\x02"), 1),
    "area ends in a varint": (b"\x80", 1),
    "area ends in a record": (ONE[:-2], 1),
}

LYING_TIMES: dict[str, tuple[bytes, int, int]] = {  # record area, count, base timestamp
    "timestamp 2^63-1": (record(time=2**63 - 1), 1, 0),
    "timestamp -2^63": (record(time=-(2**63)), 1, 0),
    "base timestamp 2^63-1": (ONE, 1, 2**63 - 1),
    "base timestamp -2^63": (ONE, 1, -(2**63)),
    "base timestamp 2^63-1, delta 1": (record(time=1), 1, 2**63 - 1),
    "second timestamp 2^62": (ONE + record(1, time=2**62), 2, NOW_MS),
}

HONEST_AREAS: dict[str, tuple[bytes, int]] = {
    "one": (ONE, 1),
    "three": (TWO + record(2), 3),
    "null key, null value": (record(key=None, value=None), 1),
    "empty key, empty value": (record(key=b"", value=b""), 1),
    "headers": (record(headers=[(b"a", b"1"), (b"b", None), (b"", b""), (b"a", b"2")]), 1),
    "header key that is no UTF-8": (record(headers=[(b"\xff\xfe", b"1")]), 1),
    "times around the base": (ONE + record(1, time=-5000) + record(2, time=12), 3),
    "varint of 5 bytes for 0": (record(delta_bytes=b"\x80\x80\x80\x80\x00"), 1),
    "varlong of 10 bytes for 0": (record(time_bytes=b"\x80" * 9 + b"\x00"), 1),
    "large": (b"".join(record(n, value=bytes(1000)) for n in range(900)), 900),
}


def _payloads() -> dict[str, tuple[str, bytes]]:
    gz, snap, frame, zs = (PACKERS[name](TWO) for name in CODECS[1:])
    noise = b"\xde\xad\xbe\xef" * 16
    linked = lz4.frame.compress(bytes(200_000), block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=True)
    found: dict[str, tuple[str, bytes]] = {f"{name} that is none": (name, noise) for name in CODECS[1:]}
    found |= {f"{name} of nothing": (name, b"") for name in CODECS[1:]}
    for name, content in zip(CODECS[1:], (gz, snap, frame, zs), strict=True):
        found[f"{name} cut off"] = (name, content[:-1])
        found[f"{name} cut off by 6"] = (name, content[:-6])
        found[f"{name} with a byte behind it"] = (name, content + b"\x01")
        found[f"{name} twice"] = (name, content + content)
        found[f"{name} with no records inside"] = (name, PACKERS[name](b""))
    found["gzip of two members"] = ("gzip", PACKERS["gzip"](ONE) + PACKERS["gzip"](record(1)))
    found["gzip with a wrong CRC"] = ("gzip", gz[:-8] + b"\0\0\0\0" + gz[-4:])
    found["gzip with a wrong length"] = ("gzip", gz[:-4] + b"\0\0\0\0")
    found["snappy that claims 2^31-1 bytes"] = ("snappy", unsigned(2**31 - 1) + b"\0a")
    found["snappy block of size -1"] = ("snappy", snap[:16] + struct.pack(">i", -1) + snap[20:])
    found["lz4 with linked blocks"] = ("lz4", linked)
    found["lz4 with a wrong header checksum"] = ("lz4", frame[:6] + bytes([frame[6] ^ 1]) + frame[7:])
    summed = lz4.frame.compress(TWO, block_linked=False, content_checksum=True, store_size=False)
    found["lz4 with a wrong content checksum"] = ("lz4", summed[:-1] + bytes([summed[-1] ^ 1]))
    checked = zstandard.ZstdCompressor(write_checksum=True).compress(TWO)
    found["zstd with a wrong checksum"] = ("zstd", checked[:-1] + bytes([checked[-1] ^ 1]))
    return found


LYING_PAYLOADS = _payloads()  # codec and packed bytes, all said to hold two records

HONEST_PAYLOADS: dict[str, tuple[str, bytes]] = {
    "snappy without framing": ("snappy", bytes(cramjam.snappy.compress_raw(TWO))),
    "snappy in blocks of 5 bytes": ("snappy", xerial(TWO, 5)),
    "lz4 with a content checksum": (
        "lz4",
        lz4.frame.compress(TWO, block_linked=False, content_checksum=True, store_size=False),
    ),
    "lz4 with block checksums": (
        "lz4",
        lz4.frame.compress(TWO, block_linked=False, block_checksum=True, store_size=False),
    ),
    "lz4 with its size": ("lz4", lz4.frame.compress(TWO, block_linked=False, store_size=True)),
    "zstd without its size": ("zstd", zstandard.ZstdCompressor(write_content_size=False).compress(TWO)),
    "zstd with a checksum": ("zstd", zstandard.ZstdCompressor(write_checksum=True).compress(TWO)),
}


def catalogue() -> Iterator[tuple[str, bytes]]:
    """Every batch here by its name, areas packed by each codec."""
    for name, (area, count) in (LYING_AREAS | HONEST_AREAS).items():
        for codec in CODECS:
            yield f"{name}, {codec}", packed(area, count=count, codec=codec)
    for name, (area, count, base) in LYING_TIMES.items():
        for codec in CODECS:
            yield f"{name}, {codec}", packed(area, count=count, codec=codec, base_timestamp=base)
    for name, (codec, content) in (LYING_PAYLOADS | HONEST_PAYLOADS).items():
        yield name, batch(content, count=2, codec=codec)
