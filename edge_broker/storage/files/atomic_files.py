"""Small files of state: text with a version and a CRC-32C in the first line, replaced whole.

| line | content |
|---|---|
| 1 | `drupelet <kind> <version> <crc32c of all bytes after this line, 8 hex digits>` |
| 2… | one entry each, fields separated by one space |

Contains: replacing a file so that a crash leaves the old or the new one, and the check of what is read back.
Does not contain: what the entries mean. Source: rename(2), fsync(2).
"""

import errno
from collections.abc import Iterable

from edge_broker.errors import StorageFault
from edge_broker.protocol.crc import crc32c
from edge_broker.storage.files.filesystem import Bytes, File, FileSystem

NEW_SUFFIX = ".new"
STATE_BYTES_MAX = 16 << 20
OUT_OF_SPACE = (errno.ENOSPC, errno.EDQUOT)


def fault_of(error: OSError, path: str, position: int) -> StorageFault:
    """Return the system's error as the fault of one place of one file."""
    return StorageFault(error.filename or path, position, error.strerror or repr(error))


def out_of_space(error: BaseException | None) -> bool:
    """True when this error, or one that led to it, says that there is no space: it ends once there is."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in OUT_OF_SPACE:
            return True
        error = error.__cause__
    return False


def synced_all(fs: FileSystem, path: str) -> bool:
    """Sync everything on the file system of `path` at once; False when it failed: each file is asked then."""
    try:
        fs.sync_all(path)
    except OSError:
        return False
    return True


def write_all(file: File, data: Bytes, position: int) -> None:
    """Write every byte; OSError when the system takes no more."""
    view = memoryview(data)
    while view:
        written = file.write(view, position)
        if written <= 0:
            raise OSError(errno.ENOSPC, "the system took no more bytes", file.path)
        position += written
        view = view[written:]


def replace(
    fs: FileSystem, directory: str, name: str, data: bytes, *, sync_name: bool = True, private: bool = False
) -> None:
    """Put synced `data` under a name, whole; without `sync_name` the caller syncs the directory.

    `private`: only the directory's owner may read it. Only one thread may do this for a name; what a crash
    leaves is dropped by `drop_leftovers`.
    """
    temporary = temporary_name(directory, name)
    file = fs.create_private(temporary) if private else fs.create(temporary)
    write_all(file, data, 0)
    file.datasync()
    fs.rename(temporary, f"{directory}/{name}")
    if sync_name:
        fs.sync_directory(directory)


def temporary_name(directory: str, name: str) -> str:
    """Where what replaces a file is written first; the name itself may have no room for a suffix."""
    return f"{directory}/.{crc32c(name.encode()):08x}{NEW_SUFFIX}"


def drop_leftovers(fs: FileSystem, directory: str, names: Iterable[str]) -> None:
    """Remove what was about to replace another file when a crash came. OSError."""
    for name in names:
        if name.endswith(NEW_SUFFIX):
            fs.remove(f"{directory}/{name}")


def read_whole(fs: FileSystem, path: str) -> bytes:
    """The content of a small file; StorageFault above 16 MiB."""
    file = fs.open(path)
    size = file.size()
    if size > STATE_BYTES_MAX:
        raise StorageFault(
            path, STATE_BYTES_MAX, f"{size} bytes is too large for a file of state; put the right file back"
        )
    return bytes(file.read(size, 0)) if size else b""


def encode_state(kind: str, version: int, lines: Iterable[str]) -> bytes:
    """The bytes of a file of state."""
    return with_head(kind, version, "".join(f"{line}\n" for line in lines).encode())


def with_head(kind: str, version: int, body: bytes) -> bytes:
    """Return a body after the line that says what it is."""
    return f"drupelet {kind} {version} {crc32c(body):08x}\n".encode() + body


def decode_state(path: str, data: bytes, kind: str, version_max: int) -> list[list[str]]:
    """The entries of a file of state, in fields; StorageFault when damaged, of another kind or too new."""
    return [line.split(" ") for line in checked_body(path, data, kind, version_max).decode().splitlines()]


def checked_body(path: str, data: bytes, kind: str, version_max: int) -> bytes:
    """Return the content after the first line; StorageFault if damaged, of another kind or too new."""
    head, _, body = data.partition(b"\n")
    words = head.split(b" ")
    if len(words) != 4 or words[0] != b"drupelet" or not words[2].isdigit():
        raise StorageFault(path, 0, f"this is no {kind} file; restore it from a copy or move the data directory away")
    if words[1] != kind.encode():
        raise StorageFault(
            path, 0, f"holds {words[1].decode(errors='replace')} where {kind} belongs; restore the right file"
        )
    if int(words[2]) > version_max:
        raise StorageFault(
            path,
            0,
            f"format version {int(words[2])} is newer than the {version_max} this broker knows; use the newer broker",
        )
    if words[3] != f"{crc32c(body):08x}".encode():
        raise StorageFault(path, len(head) + 1, "the CRC does not match the content; restore the file from a copy")
    return body


def read_state(fs: FileSystem, path: str, kind: str, version_max: int = 1) -> list[list[str]]:
    """Read and check a file of state; FileNotFoundError, StorageFault."""
    return decode_state(path, read_whole(fs, path), kind, version_max)
