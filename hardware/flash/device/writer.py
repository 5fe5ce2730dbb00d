"""Write an image to a card or a file: all but block 0, then read back and check, block 0 last.

The order is essential: an interrupted write must never boot.
| step | action | if it is interrupted after that |
|---|---|---|
| wipe | zeros over the first and the last MiB, synced | no partition table, old or new: nothing boots |
| copy | all but the first 4096 bytes, synced | the same |
| check | the target is read back past the page cache, and compared | the same |
| (the caller) | first-boot files | the same |
| finish | the first 4096 bytes, synced, read back | the card is whole |

Contains: the order, buffers, O_DIRECT. Does not contain: the choice of the target (`targets`), the image's content.
Rates: reading, checking and writing each have a thread. SHA-256, slower than a fast disk, is computed once, of the
bytes read back; the write keeps a CRC-32 of each chunk for the comparison.
Memory: two buffers of 4 MiB, and that of the decompressor.
"""

import errno
import fcntl
import hashlib
import mmap
import os
import stat
import zlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from drupelet.errors import ConfigurationError, reason
from hardware.flash.errors import FlashError

BLOCK_BYTES = 4096  # written last; also the alignment that O_DIRECT needs on any device
CHUNK_BYTES = 4 << 20
WIPE_BYTES = 1 << 20
DIRECT_REFUSED = {errno.EINVAL, errno.EOPNOTSUPP}

Report = Callable[[int], None]
Fill = Callable[[memoryview], int]


@dataclass(frozen=True)
class WrittenImage:
    """The written image: its length, the head not yet written, the CRC-32 of each chunk."""

    size: int
    head: bytes
    checks: tuple[int, ...]


class Target:
    """An open device or file to write an image to; a context manager. Opens a device exclusively."""

    def __init__(self, path: Path, *, create: bool) -> None:
        self.path = path
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            self._file = os.open(path, flags | (0 if create else os.O_EXCL), 0o600)
        except OSError as error:
            raise ConfigurationError(open_failed(path, error)) from error
        self._is_device = stat.S_ISBLK(os.fstat(self._file).st_mode)
        self._direct = False
        self._go_direct(True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def copy(self, fill: Fill, report: Report) -> WrittenImage:
        """Wipe, then write all bytes of `fill` but block 0, which stays zero; synced when this returns."""
        self._wipe()
        head, checks, position = b"", [], 0
        buffers = [mmap.mmap(-1, CHUNK_BYTES) for _ in range(2)]
        with ThreadPoolExecutor(2) as pool:
            filling: Future[int] = pool.submit(fill, memoryview(buffers[0]))
            while count := filling.result():
                view = memoryview(buffers[0])[:count]
                buffers.reverse()
                filling = pool.submit(fill, memoryview(buffers[0]))
                checking = pool.submit(zlib.crc32, view)
                head = head or bytes(view[:BLOCK_BYTES])
                self._write(view[BLOCK_BYTES if position == 0 else 0 :], position or BLOCK_BYTES)
                checks.append(checking.result())
                position += count
                report(position)
        self._end_at(position)
        self._sync()
        return WrittenImage(position, head, tuple(checks))

    def check(self, written: WrittenImage, report: Report) -> str:
        """Read all back but block 0 and compare; returns the SHA-256, raises FlashError naming the first difference."""
        self._drop_cache()
        digest, position = hashlib.sha256(), 0
        buffers = [memoryview(mmap.mmap(-1, CHUNK_BYTES)) for _ in range(2)]
        hashing: Future[None] | None = None
        with ThreadPoolExecutor(1) as pool:
            for wanted in written.checks:
                count = min(CHUNK_BYTES, written.size - position)
                self._read(buffers[0], position, count)
                if position == 0:
                    buffers[0][: len(written.head)] = written.head
                if zlib.crc32(buffers[0][:count]) != wanted:
                    raise FlashError(
                        f"{self.path} reads back differently between byte {position} and {position + count}: "
                        "it is broken or smaller than it says, use another."
                    )
                if hashing:
                    hashing.result()
                hashing = pool.submit(digest.update, buffers[0][:count])
                buffers.reverse()
                position += count
                report(position)
        return digest.hexdigest()

    def finish(self, head: bytes) -> None:
        """Sync other writers' data, then write block 0 and read it back."""
        self._sync()
        self._drop_cache()
        block = memoryview(mmap.mmap(-1, BLOCK_BYTES))
        block[: len(head)] = head
        self._write(block[: len(head)], 0)
        self._sync()
        self._drop_cache()
        self._read(block, 0, len(head))
        if block[: len(head)] != head:
            raise FlashError(f"block 0 of {self.path} reads back differently: use another card.")

    def sync_and_drop(self) -> None:
        """Sync other writers' data, and drop it from the page cache so that the next read comes from the device."""
        self._sync()
        self._drop_cache()

    def _wipe(self) -> None:
        zeros = memoryview(mmap.mmap(-1, WIPE_BYTES + BLOCK_BYTES))
        if not self._is_device:
            os.ftruncate(self._file, 0)
            self._write(zeros[:BLOCK_BYTES], 0)
        else:
            end = os.lseek(self._file, 0, os.SEEK_END)
            self._write(zeros[: min(WIPE_BYTES, end)], 0)
            tail = max(0, end - WIPE_BYTES) // BLOCK_BYTES * BLOCK_BYTES
            self._write(zeros[: end - tail], tail)  # to the last sector, where an old GPT has its copy
        self._sync()
        self._go_direct(True)

    def _write(self, view: memoryview, position: int) -> None:
        """Write it all; zeros into a new file are left as a hole."""
        if not self._is_device and position and not any_set(view):
            return
        try:
            while view:
                if len(view) % BLOCK_BYTES:
                    self._go_direct(False)  # the last bytes of an image need not fill a block
                count = os.pwrite(self._file, view, position)
                view, position = view[count:], position + count
        except OSError as error:
            raise FlashError(write_failed(self.path, position, error)) from error

    def _read(self, buffer: memoryview, position: int, size: int) -> None:
        """Read into the buffer; ignore the bytes past `size` that alignment requires."""
        end = min(len(buffer), -(-size // BLOCK_BYTES) * BLOCK_BYTES)
        done = 0
        try:
            while done < size:
                count = os.preadv(self._file, [buffer[done:end]], position + done)
                if count == 0:
                    raise FlashError(f"{self.path} ends at byte {position + done}: it is smaller than it says.")
                done += count
        except OSError as error:
            raise FlashError(
                f"{self.path} cannot be read back at byte {position + done} ({reason(error)}): use another."
            ) from error

    def _end_at(self, size: int) -> None:
        if not self._is_device:
            os.ftruncate(self._file, size)

    def _sync(self) -> None:
        try:
            os.fsync(self._file)
        except OSError as error:
            raise FlashError(
                f"{self.path} did not take what was written ({reason(error)}): use another card."
            ) from error

    def _drop_cache(self) -> None:
        """Make the next reads come from the device: by O_DIRECT, or by dropping the cache if that is refused."""
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)
        self._go_direct(True)

    def _go_direct(self, wanted: bool) -> None:
        if wanted == self._direct:
            return
        flags = fcntl.fcntl(self._file, fcntl.F_GETFL)
        try:
            fcntl.fcntl(self._file, fcntl.F_SETFL, flags | os.O_DIRECT if wanted else flags & ~os.O_DIRECT)
        except OSError as error:
            if error.errno not in DIRECT_REFUSED:  # a file system such as tmpfs may know no direct way
                raise
            return
        self._direct = wanted


def any_set(view: memoryview) -> bool:
    """Return whether any byte is not zero; the first few mostly show it."""
    return any(view[:64]) or bytes(view) != bytes(len(view))  # two bytes objects compare by memcmp, views do not


def open_failed(path: Path, error: OSError) -> str:
    """Return why a target cannot be opened."""
    if error.errno == errno.EBUSY:
        return f"{path} is in use by the kernel: unmount it, and stop what holds it (`lsblk {path}` shows it)."
    if error.errno in {errno.EACCES, errno.EPERM}:
        return f"{path} may not be written by this user: run this with sudo."
    if error.errno == errno.EROFS:
        return f"{path} is read-only: move the card's lock switch."
    return f"{path} cannot be opened: {reason(error)}: give another --to."


def write_failed(path: Path, position: int, error: OSError) -> str:
    """Return why a write failed."""
    if error.errno == errno.ENOSPC:
        return f"{path} is full after {position} bytes: the image is larger, use a larger card or disk."
    return f"{path} cannot be written at byte {position} ({reason(error)}): use another card."
