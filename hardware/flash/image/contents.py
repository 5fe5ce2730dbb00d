"""PURE: recognise an image by its first megabyte, unpacked, before anything is overwritten.

A card's image has a partition table (MBR or GPT) or is one FAT file system. Any other content is refused, with its name
if that is known. Does not contain: the recognition of the system, which needs its file systems (`images`).
"""

import re
from dataclasses import dataclass

from drupelet.errors import ConfigurationError
from hardware.flash.image.tables import PROTECTIVE, Partition, Read, fat_label, is_ext, mbr_entries, partitions

HEAD_BYTES = 1 << 20
CD_MARK = 32769
TEXT_BYTES = 4096
CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
PACKED = "packed by {}, which is not unpacked here: unpack it first"
TWICE = "packed twice: unpack it once first"
DISK = "a disk of a virtual machine ({}): convert it by qemu-img convert -O raw"
MARKS = {  # (position, bytes) -> what begins so
    (0, b"\x1f\x8b"): TWICE,
    (0, b"\xfd7zXZ\0"): TWICE,
    (0, b"\x28\xb5\x2f\xfd"): TWICE,
    (0, b"PK\x03\x04"): "a zip archive in a packed file: unpack it once first",
    (0, b"PK\x05\x06"): "an empty zip archive",
    (0, b"BZh"): PACKED.format("bzip2"),
    (0, b"7z\xbc\xaf\x27\x1c"): PACKED.format("7-Zip"),
    (0, b"Rar!"): PACKED.format("RAR"),
    (0, b"\x04\x22\x4d\x18"): PACKED.format("lz4"),
    (0, b"LZIP"): PACKED.format("lzip"),
    (0, b"QFI\xfb"): DISK.format("qcow2"),
    (0, b"KDMV"): DISK.format("VMDK"),
    (0, b"vhdxfile"): DISK.format("VHDX"),
    (257, b"ustar"): "a tar archive",
    (0, b"\x7fELF"): "a program",
    (0, b"MZ"): "a program for Windows",
    (0, b"%PDF"): "a PDF",
    (0, b"\x89PNG"): "a picture",
    (0, b"\xff\xd8\xff"): "a photo",
    (0, b"hsqs"): "a squashfs file system without a partition table",
    (0, b"SQLite format 3"): "a database",
    (0, b"!<arch>\n"): "a Debian package or a library",
}


@dataclass(frozen=True)
class Layout:
    """A card's image: its partitions; one that begins at byte 0 is the whole image, of unknown end."""

    partitions: tuple[Partition, ...]

    @property
    def end(self) -> int:
        """The minimum length of the image."""
        return max(partition.end for partition in self.partitions)

    @property
    def bootable(self) -> bool:
        """Whether a FAT file system may exist, from which all Pis boot."""
        return any(partition.fat_type for partition in self.partitions)


def reader(head: bytes) -> Read:
    """Read from the first bytes alone."""
    return lambda start, size: head[start : start + size]


def layout_of(name: object, head: bytes) -> Layout:
    """Return the layout of a card's image; raises ConfigurationError with the name of any other content."""
    read = reader(head)
    if not is_cd(head):
        found = partitions(read) if has_table(head) else []
        if not found and fat_label(read, 0) is not None:
            found = [Partition(0, 0, fat_type=True)]
        if found:
            return Layout(tuple(found))
    raise ConfigurationError(
        f"{name} is no image of a card, it is {what_else(head)}. "
        "Nothing was written: give a .img, or one packed by xz, gz, zst or zip."
    )


def has_table(head: bytes) -> bool:
    """Return whether the first sector is a partition table's: each entry begins with 00 or 80."""
    entries = mbr_entries(head[:512])
    return bool(entries) and all(status in {0, 0x80} or not any(rest) for status, *rest in entries)


def is_cd(head: bytes) -> bool:
    """Return whether it is a CD's image, which may also have a partition table for PCs."""
    return head[CD_MARK : CD_MARK + 5] == b"CD001"


def what_else(head: bytes) -> str:
    """Return the name of a content that is no disk image."""
    if not head:
        return "empty"
    if is_cd(head):
        return "the image of a CD (ISO 9660), from which no Pi starts"
    named = (words for (at, mark), words in MARKS.items() if head[at : at + len(mark)] == mark)
    return next(named, None) or describe_unnamed(head)


def describe_unnamed(head: bytes) -> str:
    """Return a description of content without a known signature."""
    if not any(head):
        return "nothing but zeros at its beginning"
    if is_ext(reader(head), 0):
        return "a file system without a partition table"
    if any(kind == PROTECTIVE for _, kind, _, _ in mbr_entries(head[:512])):
        return "a disk whose GPT is damaged"
    return "text" if is_text(head[:TEXT_BYTES]) else "something without a partition table"


def is_text(head: bytes) -> bool:
    """Return whether it reads as text; its end may be in the middle of a character."""
    return not CONTROLS.search(head.decode("utf-8", "ignore")) and len(head.decode("utf-8", "ignore")) * 4 >= len(head)
