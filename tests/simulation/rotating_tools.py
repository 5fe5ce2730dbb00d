"""Tools that rotate a log file as logrotate, log4j2 and lumberjack do it, on real files with a clock of their own.

Each file's time of change is the program's clock, not the machine's.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import random
import re
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import zstandard

UNREADABLE = ".lz4"
READERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
    ".zst": zstandard.decompress,
}
COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lambda data: lzma.compress(data, preset=0),
    ".zst": zstandard.compress,
    UNREADABLE: lambda data: b"\x04" + data,
}


class RotatingTool(ABC):
    """Rotates `path`; `rotated` is what the gateway needs to be given to find its files."""

    keeps_inode = False

    def __init__(self, chance: random.Random, directory: Path) -> None:
        self._chance = chance
        self.path = directory / "app.log"
        self.path.touch()
        self.rotated: Path | None = None
        self._keep = chance.choice((1, 2, 3, 5, 100))
        self._creates = chance.random() < 0.7
        self._ending = chance.choice((None, None, None, ".gz", ".bz2", ".xz", ".zst", UNREADABLE))
        self._delays = chance.random() < 0.5
        self.can_lose = self._keep < 100 or self._ending == UNREADABLE

    def __str__(self) -> str:
        compressed = f", {self._ending}{' delayed' if self._delays else ''}" if self._ending else ""
        return f"{type(self).__name__}, keeps {self._keep}{compressed}{'' if self._creates else ', nocreate'}"

    def append(self, content: bytes, clock_s: float) -> None:
        """Append to the file as the program does."""
        with self.path.open("ab") as file:
            file.write(content)
        self._stamp(self.path, clock_s)

    def lines_kept(self) -> set[bytes]:
        """Return the lines of all files that exist and can be read, beginnings of lines among them."""
        files = [path for path in self.path.parent.rglob("*") if path.is_file() and path.suffix != UNREADABLE]
        contents = (READERS.get(path.suffix, bytes)(path.read_bytes()) for path in files)
        return {line for content in contents for line in content.split(b"\n")}

    @abstractmethod
    def rotate(self, clock_s: float) -> bool:
        """Rotate once; False: the tool has refused."""

    @property
    def leaves_last(self) -> bool:
        """Whether the file that was rotated last is left alone until the next rotation."""
        return self._ending is None or self._delays

    def _stamp(self, path: Path, clock_s: float) -> None:
        os.utime(path, (clock_s, clock_s))

    def _create(self, clock_s: float) -> None:
        if self._creates:
            self.path.touch()
            self._stamp(self.path, clock_s)

    def _compress(self, path: Path) -> Path:
        """Do as gzip(1) does: write aside, keep the time, remove."""
        if self._ending is None:
            return path
        status, target = path.stat(), path.with_name(path.name + self._ending)
        target.write_bytes(COMPRESSORS[self._ending](path.read_bytes()))
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
        path.unlink()
        return target


class Numbered(RotatingTool):
    """logrotate's default: app.log.1 is the newest."""

    def _directory(self) -> Path:
        return self.path.parent

    def _existing(self) -> dict[int, Path]:
        names = re.compile(re.escape(self.path.name) + r"\.(\d+)(?:\.\w+)?")
        found = ((names.fullmatch(name), name) for name in os.listdir(self._directory()))
        return {int(match[1]): self._directory() / name for match, name in found if match}

    def rotate(self, clock_s: float) -> bool:
        for number, path in sorted(self._existing().items(), reverse=True):
            ending = "" if path.suffix not in COMPRESSORS else path.suffix
            if number == self._keep:
                path.unlink()
            else:
                path.rename(path.with_name(f"{self.path.name}.{number + 1}{ending}"))
        newest = self._directory() / f"{self.path.name}.1"
        self._move(newest, clock_s)
        delayed = self._existing().get(2)
        if self._ending and not self._delays:
            self._compress(newest)
        elif self._ending and delayed is not None and delayed.suffix not in COMPRESSORS:
            self._compress(delayed)
        return True

    def _move(self, newest: Path, clock_s: float) -> None:
        self.path.rename(newest)
        self._create(clock_s)


class OldDirectory(Numbered):
    """logrotate with olddir."""

    def __init__(self, chance: random.Random, directory: Path) -> None:
        super().__init__(chance, directory)
        (directory / "old").mkdir()
        self.rotated = directory / "old" / "app.log*"

    def _directory(self) -> Path:
        return self.path.parent / "old"


class CopyTruncate(Numbered):
    """logrotate with copytruncate, at a moment when the program writes nothing.

    It keeps all copies: content that comes, is copied and deleted between two looks leaves no trace in the file itself.
    """

    keeps_inode = True

    def __init__(self, chance: random.Random, directory: Path) -> None:
        super().__init__(chance, directory)
        self._keep = 100
        self.can_lose = self._ending == UNREADABLE

    def _move(self, newest: Path, clock_s: float) -> None:
        shutil.copyfile(self.path, newest)
        self._stamp(newest, clock_s)
        os.truncate(self.path, 0)
        self._stamp(self.path, clock_s)


class Dated(RotatingTool):
    """logrotate with dateext, lumberjack, log4j2 with dates: names by the clock, which refuse to be used twice."""

    _FORMATS = (
        "app.log-%Y%m%d-%H%M%S",
        "app-%Y-%m-%dT%H-%M-%S.000.log",
        "app_%Y%m%d_%H%M%S.log",
        "app.%Y%m%d%H%M%S.log",
    )

    def __init__(self, chance: random.Random, directory: Path) -> None:
        super().__init__(chance, directory)
        self._format = chance.choice(self._FORMATS)
        self._order: list[Path] = []

    def rotate(self, clock_s: float) -> bool:
        target = self.path.with_name(time.strftime(self._format, time.gmtime(clock_s)))
        if any(path.name.startswith(target.name) for path in self._order):
            return False
        self.path.rename(target)
        self._create(clock_s)
        if self._ending and self._delays and self._order:
            last = self._order[-1]
            self._order[-1] = last if last.suffix in COMPRESSORS else self._compress(last)
        self._order.append(self._compress(target) if self._ending and not self._delays else target)
        while len(self._order) > self._keep:
            self._order.pop(0).unlink()
        return True


class CountedUpwards(RotatingTool):
    """log4j2 with fileIndex="max": app-1.log is the oldest, and all shift down at the bound."""

    def __init__(self, chance: random.Random, directory: Path) -> None:
        super().__init__(chance, directory)
        self._ending = None
        self.can_lose = self._keep < 100
        self._count = 0

    def rotate(self, clock_s: float) -> bool:
        if self._count == self._keep:
            self._name(1).unlink()
            for number in range(2, self._count + 1):
                self._name(number).rename(self._name(number - 1))
        else:
            self._count += 1
        self.path.rename(self._name(self._count))
        self._create(clock_s)
        return True

    def _name(self, number: int) -> Path:
        return self.path.with_name(f"app-{number}.log")


TOOLS: tuple[type[RotatingTool], ...] = (Numbered, OldDirectory, CopyTruncate, Dated, CountedUpwards)
