"""Putting a compacted segment in the place of those it was made from, so that a crash leaves the old ones or the new.

| step | a crash after it |
|---|---|
| `<base>.cleaned` is written, synced, its name too | the next start removes it |
| `swap` is written and synced: what follows is decided | the next start goes on from here |
| indexes, summaries, corrupt ranges and snapshots that speak of the old bytes are removed, durably | the same |
| `<base>.cleaned` is renamed to `<base>.log`, the other old segments are removed, durably | the same |
| new indexes are written | the same, or they are made from the log |
| `swap` is removed, durably | done |

Contains: the steps, for the running broker and for a start. Does not contain: what is compacted, when.
Source: Kafka's LocalLog.replaceSegments and its suffixes .cleaned and .swap.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.errors import StorageFault
from edge_broker.storage.files.atomic_files import encode_state, read_state, replace

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import FileSystem

KIND = "swap"
FILE = "swap"
CLEANED_SUFFIX = ".cleaned"
_OF_OLD_BYTES = ("index", "timeindex", "summary", "holes", "snapshot")


class Swap(NamedTuple):
    """Offsets [base_offset, end_offset) are now in one segment file of `size` bytes."""

    base_offset: int
    end_offset: int
    size: int

    def path(self, directory: str, suffix: str) -> str:
        """The new segment's name with a suffix."""
        return f"{directory}/{self.base_offset:020d}{suffix}"


def begin_swap(fs: FileSystem, directory: str, swap: Swap) -> None:
    """Decide it: `<base>.cleaned` is synced and its name durable before. OSError."""
    replace(fs, directory, FILE, encode_state(KIND, 1, [" ".join(map(str, swap))]))


def take_back_swap(fs: FileSystem, directory: str) -> None:
    """Undo a decision whose name could not be synced; `<base>.cleaned` must stay until it is. OSError."""
    if fs.exists(f"{directory}/{FILE}"):
        _remove(fs, directory, [FILE])


def carry_out_swap(fs: FileSystem, directory: str, swap: Swap) -> None:
    """Put the new segment in place, whatever of it was done before. OSError, StorageFault."""
    cleaned = swap.path(directory, CLEANED_SUFFIX)
    path = swap.path(directory, ".log")
    new = cleaned if fs.exists(cleaned) else path
    if not fs.exists(new) or fs.size(new) != swap.size:
        raise StorageFault(
            new, 0, f"is not the compacted segment of {swap.size} bytes that was there; restore the file"
        )
    if new is cleaned:
        _remove(fs, directory, [name for name in fs.names(directory) if _is_of(name, swap, _OF_OLD_BYTES)])
        fs.rename(cleaned, path)  # durable before or with the removals: `swap` outlives both
    names = fs.names(directory)
    _remove(fs, directory, [name for name in names if _is_of(name, swap, ("log",)) and name != path[-24:]])


def end_swap(fs: FileSystem, directory: str) -> None:
    """Forget that there was one. OSError."""
    _remove(fs, directory, [FILE])


def settle_swap(fs: FileSystem, directory: str, names: list[str]) -> list[str]:
    """Finish what a crash interrupted, or undo it where it was not decided; the names then. OSError, StorageFault."""
    if FILE in names:
        fs.sync_directory(directory)  # a killed process may leave names that no disk has
        carry_out_swap(fs, directory, _read(fs, directory))
        end_swap(fs, directory)
        return fs.names(directory)
    strays = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    if strays:
        _remove(fs, directory, strays)
    return [name for name in names if name not in strays]


def _read(fs: FileSystem, directory: str) -> Swap:
    path = f"{directory}/{FILE}"
    try:
        ((base_offset, end_offset, size),) = read_state(fs, path, KIND)
        return Swap(int(base_offset), int(end_offset), int(size))
    except ValueError as error:
        raise StorageFault(path, 0, f"is no {KIND} file ({error}); restore it from a copy") from None


def _is_of(name: str, swap: Swap, suffixes: tuple[str, ...]) -> bool:
    """True for a file of the replaced segments; a snapshot at their very start speaks of what lies before them."""
    base, _, suffix = name.partition(".")
    if suffix not in suffixes or not base.isdigit():
        return False
    return swap.base_offset + (suffix == "snapshot") <= int(base) < swap.end_offset


def _remove(fs: FileSystem, directory: str, names: Iterable[str]) -> None:
    for name in names:
        try:
            fs.remove(f"{directory}/{name}")
        except FileNotFoundError:  # a roll drops old snapshots at the same time
            continue
    fs.sync_directory(directory)
