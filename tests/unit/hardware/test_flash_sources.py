"""Images as streams: every packing, told by content; damaged files; lengths and hashes that are known beforehand.

Invariants: what comes out is what went in, for any packing; a cut or damaged file is an error, never a short image;
the least length is never more than the real one; a published hash is compared with the thing it was made of.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from drupelet.errors import ConfigurationError
from hardware.flash.errors import FlashError
from hardware.flash.image.sources import ImageSource, PublishedImage, expected_from_list, sha256_given

CONTENT = bytes(range(256)) * 3000 + b"\0" * 500_001


def zipped(content: bytes, *more: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("card.img", *more):
            archive.writestr(name, content)
    return file.getvalue()


def blocks_xz(content: bytes) -> bytes:
    """Two streams, as `cat a.xz b.xz` gives."""
    half = len(content) // 2
    return lzma.compress(content[:half]) + lzma.compress(content[half:])


def frames_zst(content: bytes) -> bytes:
    packer = zstandard.ZstdCompressor()
    return packer.compress(content[:1000]) + packer.compress(content[1000:])


def unsized_zst(content: bytes) -> bytes:
    packer = zstandard.ZstdCompressor(write_content_size=False)
    return packer.compress(content)


PACKINGS: dict[str, tuple[Callable[[bytes], bytes], bool]] = {  # how, and whether the length is known beforehand
    "raw": (bytes, True),
    "xz": (lzma.compress, True),
    "two-stream-xz": (blocks_xz, True),
    "padded-xz": (lambda content: lzma.compress(content[:9]) + bytes(8) + lzma.compress(content[9:]) + bytes(4), True),
    "gz": (gzip.compress, True),
    "zst": (zstandard.ZstdCompressor().compress, True),
    "two-frame-zst": (frames_zst, True),
    "unsized-zst": (unsized_zst, False),
    "zip": (zipped, True),
    "zip-with-notes": (lambda content: zipped(content, "README.txt"), True),
}


def unpacked(source: ImageSource, buffer_bytes: int = 70_000) -> bytes:
    buffer, found = memoryview(bytearray(buffer_bytes)), b""
    while count := source.fill(buffer):
        found += bytes(buffer[:count])
    return found


@pytest.mark.parametrize("packing", PACKINGS)
def test_what_comes_out_is_what_went_in(packing: str, tmp_path: Path) -> None:
    pack, sized = PACKINGS[packing]
    path = tmp_path / "no-suffix-to-go-by"
    path.write_bytes(pack(CONTENT))
    with ImageSource(path) as source:
        assert unpacked(source) == CONTENT
        assert source.done_fraction() == 1.0
        assert source.unpacked_bytes_min == len(CONTENT) if sized else source.unpacked_bytes_min < len(CONTENT)


@pytest.mark.parametrize("packing", [name for name in PACKINGS if name != "raw"])
@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_file_is_an_error(packing: str, damage: str, tmp_path: Path) -> None:
    packed = bytearray(PACKINGS[packing][0](CONTENT))
    if damage == "cut":
        del packed[len(packed) * 2 // 3 :]
    else:
        packed[len(packed) // 3] ^= 0xFF
    path = tmp_path / "card"
    path.write_bytes(packed)
    if "zst" in packing and damage == "changed":  # its frames carry no checksum: the published SHA-256 is for that
        assert len(outcome(path)) == len(CONTENT)
        return
    with pytest.raises(FlashError, match=f"{path} is damaged: .*Download it again."):
        outcome(path)


def outcome(path: Path) -> bytes:
    with ImageSource(path) as source:
        return unpacked(source)


@pytest.mark.parametrize("magic", [b"\x1f\x8b", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"PK\x03\x04"])
def test_a_stump_is_an_error(magic: bytes, tmp_path: Path) -> None:
    path = tmp_path / "card"
    path.write_bytes(magic)
    with pytest.raises(FlashError, match="cut short"):
        ImageSource(path)


def test_a_zip_of_two_images_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "card"
    path.write_bytes(zipped(CONTENT, "second.img"))
    with pytest.raises(ConfigurationError, match="holds 2 images"):
        ImageSource(path)


def test_an_absent_image_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="absent cannot be read"):
        ImageSource(tmp_path / "absent")


PACKED, UNPACKED = (hashlib.sha256(text).hexdigest() for text in (b"packed", b"unpacked"))
LIST = {
    "imager": {},
    "os_list": [
        {"name": "category", "subitems": [{"name": "deeper", "subitems": [{"name": "a", "url": "https://x/other.img.xz"}]}]},
        {
            "name": "Lite",
            "url": "https://downloads.example.org/lite/2026-06-18-lite.img.xz",
            "extract_size": 2_747_269_120,
            "extract_sha256": UNPACKED.upper(),
            "image_download_sha256": PACKED,
        },
        {"name": "elsewhere", "subitems_url": "https://downloads.example.org/more.json"},
    ],
}  # fmt: skip


@pytest.mark.parametrize("size", [True, 1.5, "9", None])
def test_a_size_of_the_image_list_that_is_no_whole_number_counts_as_unknown(size: object) -> None:
    entry = {"url": "https://x/a.img.xz", "extract_size": size, "image_download_sha256": PACKED}
    assert expected_from_list(json.dumps({"os_list": [entry]}).encode(), "a.img.xz", "l") == PublishedImage(PACKED)


def test_the_image_list_knows_the_image_packed_and_unpacked() -> None:
    text = json.dumps(LIST).encode()
    assert expected_from_list(text, "2026-06-18-lite.img.xz", "l") == PublishedImage(
        PACKED, UNPACKED, None, 2_747_269_120
    )
    assert expected_from_list(text, "2026-06-18-lite.img", "l") == PublishedImage(None, UNPACKED, None, 2_747_269_120)
    assert expected_from_list(text, "other.img.xz", "l") == PublishedImage()
    with pytest.raises(ConfigurationError, match="has 2 images: give --sha256"):
        expected_from_list(text, "unheard-of.img.xz", "l")


@pytest.mark.parametrize("text", [b"", b"[1]", b'{"os_list": [1]}', b"<html>"])
def test_what_is_not_an_image_list_is_said(text: bytes) -> None:
    with pytest.raises(ConfigurationError, match="image list"):
        expected_from_list(text, "x", "l")


def test_a_given_hash_may_be_of_either() -> None:
    for digest in (PACKED, UNPACKED):
        assert sha256_given(f"{digest.upper()}  image.xz\n").mismatch(PACKED, UNPACKED) is None
    other = hashlib.sha256().hexdigest()
    assert other in (sha256_given(other).mismatch(PACKED, UNPACKED) or "")
    assert "packed" in (PublishedImage(packed=other).mismatch(PACKED, UNPACKED) or "")
    assert PublishedImage(PACKED, UNPACKED).mismatch(PACKED, UNPACKED) is None
    with pytest.raises(ConfigurationError, match="64 hex digits"):
        sha256_given("md5-of-something")


def test_a_second_stream_that_begins_with_an_error_is_not_rubbish(tmp_path: Path) -> None:
    """Each byte of the second stream's first 40: lzma alone would end there without a word."""
    first, second = lzma.compress(CONTENT[:1000]), bytearray(lzma.compress(CONTENT))
    for position in range(40):
        second[position] ^= 0x10
        path = tmp_path / "card"
        path.write_bytes(first + second)
        with pytest.raises(FlashError), ImageSource(path) as source:
            unpacked(source)
        second[position] ^= 0x10


def test_skippable_zstd_frames_are_passed(tmp_path: Path) -> None:
    path = tmp_path / "card"
    note = b"\x50\x2a\x4d\x18\x05\x00\x00\x00notes"
    path.write_bytes(zstandard.ZstdCompressor(write_checksum=True).compress(CONTENT) + note)
    with ImageSource(path) as source:
        assert source.unpacked_bytes_min == len(CONTENT)
        assert unpacked(source) == CONTENT
