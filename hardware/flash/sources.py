"""An image as a stream of bytes: raw, or unpacked from xz, gz, zst or zip, told by its first bytes and not by its name.

Here: opening, unpacking, how long the result is at least, and what its SHA-256 should be. Never here: any write.
Sources: the .xz file format 1.1 (2.1.2 stream footer, 4 index); RFC 1952 (ISIZE); rpi-imager's os-list-schema.json.

| first bytes | packed as | least length known from |
|---|---|---|
| FD 37 7A 58 5A 00 | xz | the index at the end |
| 1F 8B | gzip | the last four bytes, modulo 2**32 |
| 28 B5 2F FD | zstd | the frame's header, if it says |
| 50 4B 03 04 | zip | the directory; it must hold one image |
| others | raw | the file |
"""

import gzip
import hashlib
import io
import json
import lzma
import re
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import zstandard

from hardware.flash.errors import ConfigurationError, FlashError

MAGIC = {b"\xfd7zXZ\0": "xz", b"\x1f\x8b": "gz", b"\x28\xb5\x2f\xfd": "zst", b"PK\x03\x04": "zip"}
READ_BYTES = 1 << 20
XZ_FOOTER_BYTES = 12
XZ_INDEX_BYTES_MAX = 1 << 20
LIST_BYTES_MAX = 32 << 20
PACKED_BYTES_MIN = 18  # the least that any of them takes
SHA256 = re.compile(r"[0-9a-f]{64}")
UNPACKING_ERRORS = (lzma.LZMAError, EOFError, OSError, zlib.error, zipfile.BadZipFile, zstandard.ZstdError)


class Stream(Protocol):
    """What unpacks: fills a buffer as far as it can."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill the buffer from its start; 0 at the end."""


class ImageSource:
    """An open image file; a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open = ExitStack()
        try:
            self._file = self._open.enter_context(path.open("rb", buffering=0))
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from error
        head = self._file.read(6)
        self.packing = next((name for magic, name in MAGIC.items() if head.startswith(magic)), "raw")
        self.size = self._file.seek(0, io.SEEK_END)
        try:
            if self.packing != "raw" and self.size < PACKED_BYTES_MIN:
                raise FlashError(f"{path} is damaged: it is cut short. Download it again.")
            self.unpacked_bytes_min = self._least_length()
            self._file.seek(0)
            self._stream = self._unpacking()
        except BaseException:
            self._open.close()
            raise

    def __enter__(self) -> "ImageSource":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def fill(self, buffer: memoryview) -> int:
        """Fill the buffer, but for the end, and return how much; raises FlashError for a damaged file."""
        count = 0
        try:
            while count < len(buffer):
                more = self._stream.readinto(buffer[count:])
                if not more:
                    break
                count += more
        except UNPACKING_ERRORS as error:
            raise FlashError(f"{self.path} is damaged: {error}. Download it again.") from error
        return count

    def done_fraction(self) -> float:
        """How much of the file is used up, from 0 to 1; reads may run ahead of it."""
        return min(1.0, self._file.tell() / self.size) if self.size else 1.0

    def _least_length(self) -> int:
        if self.packing == "xz":
            return xz_unpacked_bytes(self._file) or 0
        if self.packing == "gz":
            self._file.seek(-4, io.SEEK_END)
            return int.from_bytes(self._file.read(4), "little")
        if self.packing == "zst":
            return zst_unpacked_bytes(self._file)
        return self._zip_member().file_size if self.packing == "zip" else self.size

    def _unpacking(self) -> Stream:
        if self.packing == "raw":
            return self._file
        packed = io.BufferedReader(self._file, READ_BYTES)
        if self.packing == "xz":
            return self._open.enter_context(lzma.open(packed))
        if self.packing == "gz":
            return self._open.enter_context(gzip.open(packed))
        if self.packing == "zst":
            unpacker = zstandard.ZstdDecompressor()
            return self._open.enter_context(unpacker.stream_reader(packed, read_across_frames=True))
        archive = self._open.enter_context(zipfile.ZipFile(packed))
        return cast(Stream, self._open.enter_context(archive.open(self._zip_member())))

    def _zip_member(self) -> zipfile.ZipInfo:
        try:
            members = [each for each in zipfile.ZipFile(self._file).infolist() if not each.is_dir()]
        except zipfile.BadZipFile as error:
            raise FlashError(f"{self.path} is damaged: {error}. Download it again.") from error
        images = [each for each in members if each.filename.endswith(".img")] or members
        if len(images) != 1:
            raise ConfigurationError(f"{self.path} holds {len(images)} images: unpack the one that you want.")
        return images[0]


def xz_unpacked_bytes(file: BinaryIO) -> int | None:
    """Add up the lengths in an xz file's index; None unless the file is one stream without padding."""
    size = file.seek(-XZ_FOOTER_BYTES, io.SEEK_END) + XZ_FOOTER_BYTES
    footer = file.read(XZ_FOOTER_BYTES)
    index_bytes = (int.from_bytes(footer[4:8], "little") + 1) * 4
    if footer[10:] != b"YZ" or index_bytes > min(XZ_INDEX_BYTES_MAX, size - 2 * XZ_FOOTER_BYTES):
        return None
    file.seek(size - XZ_FOOTER_BYTES - index_bytes)
    numbers = xz_numbers(file.read(index_bytes)[1:-4])
    try:
        records = [(next(numbers), next(numbers)) for _ in range(next(numbers))]
    except StopIteration:
        return None
    blocks = sum(-(-packed // 4) * 4 for packed, _ in records)
    return sum(length for _, length in records) if blocks + index_bytes + 2 * XZ_FOOTER_BYTES == size else None


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
    """Read the length from the first frame's header; 0 if it does not say."""
    file.seek(0)
    try:
        length = zstandard.get_frame_parameters(file.read(18)).content_size
    except zstandard.ZstdError as error:
        raise FlashError(f"{file.name} is damaged: {error}. Download it again.") from error
    return 0 if length >= 1 << 63 else int(length)


@dataclass(frozen=True)
class Expected:
    """What is published about an image: its SHA-256 packed or unpacked (either, where it is not known which)."""

    packed: str | None = None
    unpacked: str | None = None
    either: str | None = None
    unpacked_bytes: int | None = None

    @property
    def known(self) -> bool:
        """Whether there is anything to compare with."""
        return bool(self.packed or self.unpacked or self.either)

    def mismatch(self, packed: str, unpacked: str) -> str | None:
        """Say what differs from what was published; None if nothing does."""
        for name, wanted, found in (("packed", self.packed, packed), ("unpacked", self.unpacked, unpacked)):
            if wanted and wanted != found:
                return f"its SHA-256 {name} is {found}, published is {wanted}"
        if self.either and self.either not in {packed, unpacked}:
            return f"its SHA-256 is {packed} (unpacked: {unpacked}), given was {self.either}"
        return None


def sha256_given(text: str) -> Expected:
    """Take a SHA-256 in hex, or the first word of a `.sha256` file; raises ConfigurationError for anything else."""
    words = text.split() or [""]
    digest = words[0].lower()
    if not SHA256.fullmatch(digest):
        raise ConfigurationError(f"{text[:80]!r} is not a SHA-256: give its 64 hex digits.")
    return Expected(either=digest)


def expected_from_list(text: bytes, image_name: str) -> Expected:
    """Find an image in Raspberry Pi's image list by the file name of its URL; raises ConfigurationError without one."""
    try:
        entries = list(walk(json.loads(text)))
    except (ValueError, AttributeError, RecursionError) as error:
        raise ConfigurationError(f"the image list is not what it should be: {error}.") from error
    for entry in entries:
        name = str(entry["url"]).rsplit("/", 1)[-1]
        if image_name in {name, name.rpartition(".")[0]}:  # the second: the same, unpacked beforehand
            sizes = entry.get("extract_size")
            digests = [entry.get(name) for name in ("image_download_sha256", "extract_sha256")]
            packed, unpacked = (str(digest).lower() if digest else None for digest in digests)
            packed = packed if image_name == name else None
            return Expected(packed, unpacked, unpacked_bytes=sizes if isinstance(sizes, int) else None)
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
        raise ConfigurationError(f"the image list {place} cannot be read: {error}.") from error
    if len(content) > LIST_BYTES_MAX:
        raise ConfigurationError(f"the image list {place} is larger than {LIST_BYTES_MAX} bytes.")
    return content


def file_sha256(path: Path) -> str:
    """Compute the SHA-256 of a file as it is."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
