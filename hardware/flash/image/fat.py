"""Read and write files of a FAT file system inside an image or a device, without mounting, by mtools.

mtools and no Python library: pyfatfs needs PyFilesystem2, which has had no release since 2022 and cannot be
imported with a current setuptools. Every distribution has mtools, which works at an offset of a file or a device.

Does not contain: the choice of files for a card (`first_boot`).
"""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hardware.flash.errors import FlashError
from hardware.flash.programs import run

NOT_FOUND = (b"not found", b"No such file", b"does not exist")


@dataclass(frozen=True)
class FatPartition:
    """The FAT file system that starts at a byte of a file or device."""

    path: Path
    start: int

    @property
    def drive(self) -> str:
        """The place in mtools' notation."""
        return f"{self.path}@@{self.start}"

    def read(self, name: str) -> bytes | None:
        """Read a file; None if there is none. The name is relative to the top, FAT ignores its case."""
        done = run(["mcopy", "-i", self.drive, f"::/{name}", "-"])
        if done.returncode == 0:
            return done.stdout
        if any(words in done.stderr for words in NOT_FOUND):
            return None
        raise FlashError(f"{name} cannot be read from the boot partition of {self.path}: {reason(done.stderr)}.")

    def write(self, name: str, content: bytes) -> None:
        """Write a file over what is there, making the folders that it needs."""
        for folder in reversed(PurePosixPath(name).parents[:-1]):
            self._make_folder(str(folder))
        done = run(["mcopy", "-o", "-i", self.drive, "-", f"::/{name}"], content)
        if done.returncode != 0:
            raise FlashError(f"{name} cannot be written to the boot partition of {self.path}: {reason(done.stderr)}.")

    def _make_folder(self, name: str) -> None:
        if run(["mdir", "-b", "-i", self.drive, f"::/{name}/"]).returncode == 0:
            return
        done = run(["mmd", "-i", self.drive, f"::/{name}"])
        if done.returncode != 0:
            raise FlashError(f"the folder {name} cannot be made on {self.path}: {reason(done.stderr)}.")


def reason(errors: bytes) -> str:
    """Take the last line of what a program said."""
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].rstrip(".") if lines else "no reason given"
