"""Read and write files of an ext2, 3 or 4 file system inside an image or a device, without mounting, by debugfs.

debugfs always exits with 0 and reports errors on stderr, after a line with its own version. It does not
follow a symbolic link that is the last part of a name.
"""

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from drupelet.errors import ConfigurationError
from hardware.flash.errors import FlashError
from hardware.flash.programs import memory_file, run

NAME = re.compile(r"(/[\w.@+:,=-]+)+")  # what debugfs' own quoting cannot spoil
MISSING = "File not found"


@dataclass(frozen=True)
class ExtPartition:
    """The ext file system that starts at a byte of a file or device."""

    path: Path
    start: int

    def read(self, name: str) -> bytes | None:
        """Read a file; None if there is none, or if the name is a symbolic link."""
        output, errors = self._ask(f"cat {check_name(name)}")
        if MISSING in errors or "Not a directory" in errors:
            return None
        return output if not errors else self._fail(name, errors)

    def exists(self, name: str) -> bool:
        """Return whether there is such a name of any type."""
        return bool(self._ask(f"stat {check_name(name)}")[0])

    def names(self, folder: str) -> list[str]:
        """List the names in a folder; empty if there is none."""
        output = self._ask(f"ls -p {check_name(folder)}")[0].decode("utf-8", "replace")
        entries = [line.split("/") for line in output.splitlines()]
        return sorted(entry[5] for entry in entries if len(entry) > 5 and entry[5] not in {"", ".", ".."})

    def write(self, name: str, content: bytes, mode: int, owner: int = 0, folder_mode: int = 0o755) -> None:
        """Write a regular file over what is there, making the folders that it needs, all of the same user and group."""
        check_name(name)
        folders = [str(folder) for folder in reversed(PurePosixPath(name).parents[:-1])]
        missing = [folder for folder in folders if not self.exists(folder)]
        made = [f"mkdir {folder}" for folder in missing]
        made += [line for folder in missing for line in ownership_requests(folder, 0o40000 | folder_mode, owner)]
        removed = [f"rm {name}"] if self.exists(name) else []
        with memory_file(content) as file:  # it may be a secret: no kill leaves it anywhere
            fields = ownership_requests(name, 0o100000 | mode, owner)
            path = PurePosixPath(name)  # older versions of debugfs write into the current folder only
            source = f"/proc/self/fd/{file}"
            self._change([*made, *removed, f"cd {path.parent}", f"write {source} {path.name}", *fields], (file,))
        if self.read(name) != content:
            raise FlashError(f"{name} was written to {self.path} and reads back differently: use another card.")

    def _change(self, requests: list[str], files: tuple[int, ...]) -> None:
        done = run(["debugfs", "-w", "-f", "-", self._place()], "\n".join(requests).encode() + b"\n", files)
        errors = without_version(done.stderr)
        if errors or done.returncode:
            self._fail(requests[-1], errors)

    def _ask(self, request: str) -> tuple[bytes, str]:
        done = run(["debugfs", "-R", request, self._place()])
        return done.stdout, without_version(done.stderr)

    def _place(self) -> str:
        return f"{self.path}?offset={self.start}"

    def _fail(self, what: str, errors: str) -> bytes:
        raise FlashError(f"debugfs on {self.path} ({what}): {errors or 'no reason given'}.")


def ownership_requests(name: str, mode: int, owner: int) -> list[str]:
    """Make the requests that set an inode's type and mode, and its user and group to the same number."""
    return [
        f"set_inode_field {name} mode 0{mode:o}",
        *(f"set_inode_field {name} {kind} {owner}" for kind in ("uid", "gid")),
    ]


def check_name(name: str) -> str:
    """Return an absolute name that debugfs takes as one word; raises ConfigurationError for others."""
    if not NAME.fullmatch(name) or ".." in name.split("/"):
        raise ConfigurationError(f"{name!r} is not an absolute name of letters, digits and . _ - @ + : , = only.")
    return name


def without_version(errors: bytes) -> str:
    """Drop debugfs' first line, which names its version."""
    lines = errors.decode("utf-8", "replace").splitlines()
    return " ".join(line.strip() for line in lines if line.strip() and not re.match(r"debugfs \d", line))
