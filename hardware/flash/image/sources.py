"""Read an image as a stream of bytes: raw, or unpacked from xz, gz, zst or zip, recognised by its first bytes.

Contains: opening, unpacking, the minimum length of the result, its expected SHA-256. Does not contain: writes.
Sources: the .xz file format 1.1 (2.1.2 stream footer, 4 index); RFC 1952 (ISIZE); RFC 8878;
rpi-imager's os-list-schema.json.

| first bytes | packed as | least length known from |
|---|---|---|
| FD 37 7A 58 5A 00 | xz | the index at the end of each stream; exact |
| 1F 8B | gzip | the last four bytes, modulo 2**32 |
| 28 B5 2F FD | zstd | the frames' headers, those that say |
| 50 4B 03 04 | zip | the directory; it must hold one image |
| others | raw | the file |
"""

import gzip
import hashlib
import io
import json
import lzma
import re
import stat
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import zstandard

from drupelet.errors import ConfigurationError, reason
from drupelet.kafka.connection_errors import explain
from hardware.flash.errors import FlashError

MAGIC = {b"\xfd7zXZ\0": "xz", b"\x1f\x8b": "gz", b"\x28\xb5\x2f\xfd": "zst", b"PK\x03\x04": "zip"}
READ_BYTES = 1 << 20
XZ_FOOTER_BYTES = 12
XZ_INDEX_BYTES_MAX = 1 << 20
XZ_PIECE_BYTES = 128 << 10
ZST_HEADER_BYTES_MAX = 18
ZST_SKIPPABLE = 0x184D_2A50
ZST_RUN = 1  # a block that is one byte, repeated
LIST_URL = "https://downloads.raspberrypi.com/os_list_imagingutility_v4.json"
LIST_BYTES_MAX = 32 << 20
PACKED_BYTES_MIN = 18  # the least that any of them takes
SHA256 = re.compile(r"[0-9a-f]{64}")
UNPACKING_ERRORS = (
    lzma.LZMAError, EOFError, OSError, zlib.error, zipfile.BadZipFile, zstandard.ZstdError,
    RuntimeError,  # zipfile's, for a member that is encrypted or packed in a way that it does not know
)  # fmt: skip


class Stream(Protocol):
    """A decompressor: fills a buffer as far as it can."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill the buffer from its start; 0 at the end."""


class ImageSource:
    """An open image file; a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filled_bytes = 0
        self._peeked = b""
        self._open = ExitStack()
        self._file = self._open.enter_context(open_image(path))
        head = self._file.read(6)
        self.packing = next((name for magic, name in MAGIC.items() if head.startswith(magic)), "raw")
        self.size = self._file.seek(0, io.SEEK_END)
        try:
            if self.packing != "raw" and self.size < PACKED_BYTES_MIN:
                raise damage_error(path, "it is cut short")
            self.unpacked_bytes_min = self._least_length()
            self._file.seek(0)
            self._stream = self._unpacking()
        except UNPACKING_ERRORS as error:
            self._open.close()
            raise damage_error(path, error) from error
        except BaseException:
            self._open.close()
            raise

    def __enter__(self) -> "ImageSource":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def unpacked_bytes_exact(self) -> bool:
        """Whether `unpacked_bytes_min` is the length; gzip says it modulo 2**32, zstd may not say it."""
        return self.packing in {"raw", "xz", "zip"}

    def peek(self, size: int) -> bytes:
        """Return the first bytes, at most `size`, before anything is filled; `fill` gives them again."""
        buffer = memoryview(bytearray(size - len(self._peeked)))
        self._peeked += bytes(buffer[: self._unpack(buffer)])
        return self._peeked

    def fill(self, buffer: memoryview) -> int:
        """Fill the buffer, but for the end, and return how much; raises FlashError for a damaged file."""
        known, self._peeked = self._peeked[: len(buffer)], self._peeked[len(buffer) :]
        buffer[: len(known)] = known
        return len(known) + self._unpack(buffer[len(known) :])

    def _unpack(self, buffer: memoryview) -> int:
        count = 0
        try:
            while count < len(buffer):
                more = self._stream.readinto(buffer[count:])
                if not more:
                    break
                count += more
        except UNPACKING_ERRORS as error:
            raise damage_error(self.path, error) from error
        self._filled_bytes += count
        if count < len(buffer) and self._filled_bytes < self.unpacked_bytes_min:
            raise damage_error(self.path, f"it ends after {self._filled_bytes} of {self.unpacked_bytes_min} bytes")
        return count

    def done_fraction(self) -> float:
        """Return how much of the file is used up, from 0 to 1; reads may run ahead of it."""
        return min(1.0, self._file.tell() / self.size) if self.size else 1.0

    def _least_length(self) -> int:
        if self.packing == "xz":
            return xz_unpacked_bytes(self._file)
        if self.packing == "gz":
            self._file.seek(-4, io.SEEK_END)
            return int.from_bytes(self._file.read(4), "little")
        if self.packing == "zst":
            return zst_unpacked_bytes(self._file)
        return self._zip_member().file_size if self.packing == "zip" else self.size

    def _unpacking(self) -> Stream:
        if self.packing == "raw":
            return self._file
        packed = cast(BinaryIO, io.BufferedReader(self._file, READ_BYTES))
        if self.packing == "xz":
            return XzStream(packed)
        if self.packing == "gz":
            return self._open.enter_context(gzip.open(packed))
        if self.packing == "zst":
            unpacker = zstandard.ZstdDecompressor()
            return self._open.enter_context(unpacker.stream_reader(packed, read_across_frames=True))
        archive = self._open.enter_context(zipfile.ZipFile(packed))
        return cast(Stream, self._open.enter_context(archive.open(self._zip_member())))

    def _zip_member(self) -> zipfile.ZipInfo:
        members = [each for each in zipfile.ZipFile(self._file).infolist() if not each.is_dir()]
        images = [each for each in members if each.filename.endswith(".img")]
        if len(images) > 1:
            raise ConfigurationError(f"{self.path} holds {len(images)} images: unpack the one that you want.")
        if not images and len(members) != 1:
            raise ConfigurationError(
                f"{self.path} is no image of a card, it is a zip archive of {len(members)} files, none of them a .img. "
                "Nothing was written."
            )
        return (images or members)[0]


def open_image(path: Path) -> io.FileIO:
    """Open a file or a device; raises ConfigurationError for all else, such as a pipe, which cannot be read twice."""
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
            what = "folder" if stat.S_ISDIR(mode) else "pipe or the like"
            raise ConfigurationError(f"{path} is a {what}: give the file of an image.")
        return path.open("rb", buffering=0)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {reason(error)}.") from error


class XzStream:
    """Unpacks one xz stream after another, in small pieces: lzma.open needs a quarter more time.

    Padding between streams is skipped; `xz_unpacked_bytes` has checked it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ)

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer from its start, at most XZ_PIECE_BYTES; 0 at the end; raises LZMAError or EOFError."""
        while True:
            packed = b""
            if self._unpacker.eof:
                packed = self._next_stream()
                if not packed:
                    return 0
                self._unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ)
            elif self._unpacker.needs_input:
                packed = self._file.read(READ_BYTES)
                if not packed:
                    raise EOFError("it is cut short")
            piece = self._unpacker.decompress(packed, min(len(buffer), XZ_PIECE_BYTES))
            if piece:
                buffer[: len(piece)] = piece
                return len(piece)

    def _next_stream(self) -> bytes:
        rest = self._unpacker.unused_data.lstrip(b"\0")
        while not rest:
            more = self._file.read(READ_BYTES)
            if not more:
                return b""
            rest = more.lstrip(b"\0")
        return rest


def damage_error(path: Path, reason: object) -> FlashError:
    """Return the error for an image file that changed."""
    return FlashError(f"{path} is damaged: {reason}. Download it again.")


def xz_unpacked_bytes(file: BinaryIO) -> int:
    """Add up the lengths in the indexes of all streams, from the end on; raises LZMAError if they do not fit together.

    lzma takes a stream that begins with an error for rubbish after the one before: only the length tells.
    """
    end, total = file.seek(0, io.SEEK_END), 0
    while end > 0:
        footer = read_at(file, end - XZ_FOOTER_BYTES, XZ_FOOTER_BYTES)
        if footer[8:] == bytes(4):  # padding between streams
            end -= 4
            continue
        index_bytes = (int.from_bytes(footer[4:8], "little") + 1) * 4
        if footer[10:] != b"YZ" or index_bytes > min(XZ_INDEX_BYTES_MAX, end):
            raise lzma.LZMAError("the end of a stream is missing")
        numbers = list(xz_numbers(read_at(file, end - XZ_FOOTER_BYTES - index_bytes, index_bytes)[1:-4]))
        records = numbers[1 : 1 + 2 * numbers[0]]
        total += sum(records[1::2])
        end -= index_bytes + 2 * XZ_FOOTER_BYTES + sum(-(-packed // 4) * 4 for packed in records[::2])
        if end < 0 or read_at(file, end, 6) != b"\xfd7zXZ\0":
            raise lzma.LZMAError("the beginning of a stream is missing")
    return total


def read_at(file: BinaryIO, position: int, size: int) -> bytes:
    """Read bytes at a position; raises EOFError for one before the beginning, is short at the end."""
    if position < 0:
        raise EOFError("its beginning is missing")
    file.seek(position)
    return file.read(size)


def xz_numbers(data: bytes) -> Iterator[int]:
    """Decode the index's numbers: seven bits a byte, the lowest first, the top bit set on all but the last."""
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            yield value
            value = shift = 0


def zst_unpacked_bytes(file: BinaryIO) -> int:
    """Walk over all frames, block header by block header, adding up the lengths that they say; raises if one is cut.

    The unpacker itself takes a cut frame for the end. RFC 8878: 3.1.1 frames, 3.1.1.2 blocks, 3.1.2 skippable frames.
    """
    size, position, total = file.seek(0, io.SEEK_END), 0, 0
    while position < size:
        head = read_at(file, position, ZST_HEADER_BYTES_MAX)
        if int.from_bytes(head[:4], "little") & 0xFFFF_FFF0 == ZST_SKIPPABLE:
            position += 8 + int.from_bytes(head[4:8], "little")
            continue
        frame = zstandard.get_frame_parameters(head)
        total += frame.content_size if frame.content_size < 1 << 63 else 0
        position += zstandard.frame_header_size(head)
        last = False
        while not last:
            block = int.from_bytes(read_at(file, position, 3), "little")
            last, kind, length = bool(block & 1), block >> 1 & 3, block >> 3
            position += 3 + (1 if kind == ZST_RUN else length)
            if position > size:
                raise zstandard.ZstdError("it is cut short")
        position += 4 if frame.has_checksum else 0
    if position != size:
        raise zstandard.ZstdError("it is cut short")
    return total


@dataclass(frozen=True)
class PublishedImage:
    """The published SHA-256 of an image, packed or unpacked (`either` if it is not known which)."""

    packed: str | None = None
    unpacked: str | None = None
    either: str | None = None
    unpacked_bytes: int | None = None

    @property
    def is_known(self) -> bool:
        """Whether there is anything to compare with."""
        return bool(self.packed or self.unpacked or self.either)

    def mismatch(self, packed: str, unpacked: str) -> str | None:
        """Return what differs from what was published; None if nothing does."""
        for name, wanted, found in (("packed", self.packed, packed), ("unpacked", self.unpacked, unpacked)):
            if wanted and wanted != found:
                return f"its SHA-256 {name} is {found}, published is {wanted}"
        if self.either and self.either not in {packed, unpacked}:
            return f"its SHA-256 is {packed} (unpacked: {unpacked}), given was {self.either}"
        return None


def sha256_given(text: str) -> PublishedImage:
    """Take a SHA-256 in hex, or the first word of a `.sha256` file; raises ConfigurationError for anything else."""
    words = text.split() or [""]
    digest = words[0].lower()
    if not SHA256.fullmatch(digest):
        raise ConfigurationError(f"{text[:80]!r} is not a SHA-256: give its 64 hex digits.")
    return PublishedImage(either=digest)


def expected_from_list(text: bytes, image_name: str, place: str) -> PublishedImage:
    """Find an image in Raspberry Pi's image list by the file name of its URL; raises ConfigurationError without one."""
    try:
        entries = list(walk(json.loads(text)))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigurationError(f"{place} is no image list: give {LIST_URL} or a copy of it.") from error
    for entry in entries:
        name = str(entry["url"]).rsplit("/", 1)[-1]
        if image_name in {name, name.rpartition(".")[0]}:  # the second: the same, unpacked beforehand
            sizes = entry.get("extract_size")
            digests = [entry.get(name) for name in ("image_download_sha256", "extract_sha256")]
            packed, unpacked = (str(digest).lower() if digest else None for digest in digests)
            packed = packed if image_name == name else None
            return PublishedImage(packed, unpacked, unpacked_bytes=sizes if type(sizes) is int else None)
    raise ConfigurationError(f"{image_name} is not in the image list, which has {len(entries)} images: give --sha256.")


def walk(node: Any) -> Iterator[dict[str, Any]]:
    """List the images of an image list, those in sub-lists that it contains too."""
    for entry in node.get("os_list", node.get("subitems", [])):
        if "url" in entry:
            yield entry
        yield from walk({"subitems": entry.get("subitems", [])})


def read_list(place: str) -> bytes:
    """Read an image list from a file or an https URL, at most 32 MiB."""
    try:
        with urllib.request.urlopen(place, timeout=30) if place.startswith("https://") else open(place, "rb") as file:  # noqa: S310
            content = cast(bytes, file.read(LIST_BYTES_MAX + 1))
    except OSError as error:
        why = getattr(error, "reason", None)  # of urllib.error.URLError
        said = explain(why) if isinstance(why, OSError) else f"cannot be read: {reason(error)}"
        raise ConfigurationError(f"the image list {place} {said}.") from error
    if len(content) > LIST_BYTES_MAX:
        raise ConfigurationError(f"the image list {place} is larger than {LIST_BYTES_MAX} bytes.")
    return content


def file_sha256(path: Path) -> str:
    """Compute the SHA-256 of a file as it is."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
