"""Read the small files in which Linux describes a machine, below a root that may be another machine's captured tree.

Contains: bounded reads of /proc, /sys and the device tree, the replay of captured commands. Does not contain: the
meaning of values (`board`, `health`), writes. Absence is an answer (`None`), as each field is missing on some machine.
"""

import glob
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

FILE_BYTES_MAX = 64 * 1024
COMMAND_TIMEOUT_S = 2.0
CAPTURED_COMMANDS = "captured_commands"


@dataclass(frozen=True)
class SystemFiles:
    """The files of one machine: the running one with root `/`, a captured or mock one with any other root."""

    root: Path = Path("/")

    @property
    def live(self) -> bool:
        """Whether this is the running machine."""
        return self.root == Path("/")

    def path(self, name: str) -> Path:
        """Place an absolute name such as `/proc/cpuinfo` below the root."""
        return self.root / name.lstrip("/")

    def data(self, name: str) -> bytes | None:
        """Read at most 64 KiB of a file; None if it is absent or the kernel refuses the read."""
        try:
            with open(f"{self.root}/{name}", "rb") as file:  # a Path per read is half of its time
                return file.read(FILE_BYTES_MAX)
        except OSError:  # sysfs answers EIO, ENODATA or EACCES for values that this machine cannot tell
            return None

    def text(self, name: str) -> str | None:
        """Read a file as one string without surrounding blanks and the device tree's trailing NUL."""
        data = self.data(name)
        return None if data is None else data.decode("utf-8", "replace").strip("\0 \t\r\n")

    def integer(self, name: str, base: int = 10) -> int | None:
        """Read a file that holds one number; None if it is absent or holds something else."""
        text = self.text(name)
        try:
            return None if text is None else int(text, base)
        except ValueError:
            return None

    def cell(self, name: str) -> int | None:
        """Read a device tree property that holds one 32-bit big-endian integer."""
        data = self.data(name)
        return int.from_bytes(data, "big") if data is not None and len(data) == 4 else None

    def exists(self, name: str) -> bool:
        """Return whether the name exists; False also without permission."""
        return os.path.exists(self.path(name))

    def match(self, pattern: str) -> list[str]:
        """List the absolute names that match a glob, in name order."""
        return ["/" + name for name in sorted(glob.glob(pattern.lstrip("/"), root_dir=self.root))]

    def resolve(self, name: str) -> str:
        """Follow the links of a name, as /sys/block/sda leads to the bus that the disk is on."""
        real = os.path.realpath(self.path(name))
        return "/" + os.path.relpath(real, os.path.realpath(self.root))

    def command(self, *words: str, timeout_s: float = COMMAND_TIMEOUT_S, any_status: bool = False) -> str | None:
        """Run a read-only command and return its output; None if it is absent, takes too long or fails.

        `any_status` takes the output of a command that failed too. Below another root nothing is run: the output is
        read from `captured_commands/<words joined by _>`.
        """
        if not self.live:
            return self.text(f"{CAPTURED_COMMANDS}/{'_'.join(words)}")
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=timeout_s, check=not any_status)  # noqa: S603
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()
