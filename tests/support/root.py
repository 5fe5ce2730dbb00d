"""What an ordinary user may not do here: which tests wait for `make test-root`, and a small disk without root.

The marker `root` names a test that mounts, makes devices or asks for other rights of root; its argument names what an
ordinary user needs instead, where the machine grants it:

| marker | an ordinary user runs it |
|---|---|
| `root` | never |
| `root("fuse")` | where he may open /dev/fuse (Debian's own mode is 0666) |
| `root("mount")` | where user namespaces are granted: the disk is a tmpfs in one |
| `root("net")` | the same, and it has a network of its own |

Nothing is skipped: without those rights such tests are deselected, and the last line says how many there are.
"""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import Process


def is_root() -> bool:
    """Whether this process is root."""
    return os.geteuid() == 0


def as_ordinary_user() -> list[str]:
    """What goes before a command that an ordinary user runs: for root nobody, who may write only what anybody may.

    He may read all: the checkout and the interpreter may lie below a folder of mode 0700, as root's home has it.
    """
    reads = "-all,+dac_read_search"
    capabilities = [f"--bounding-set={reads}", f"--inh-caps={reads}", f"--ambient-caps={reads}"]
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *capabilities] if is_root() else []


@functools.cache
def may_open_fuse() -> bool:
    """Whether this user may serve a FUSE file system."""
    return os.access("/dev/fuse", os.R_OK | os.W_OK)


@functools.cache
def may_mount_in_a_namespace() -> bool:
    """Whether this user may mount a tmpfs that only he sees; Ubuntu and many containers refuse it."""
    command = [*_OWN_NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", "/tmp"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@functools.cache
def may_have_a_network() -> bool:
    """Whether this user may make a network that only his processes are in."""
    return subprocess.run([*OWN_NETWORK, "true"], capture_output=True, check=False).returncode == 0


OWN_NETWORK = ("unshare", "--user", "--map-root-user", "--net")
_OWN_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")
_GRANTED: dict[str, Callable[[], bool]] = {
    "fuse": may_open_fuse,
    "mount": may_mount_in_a_namespace,
    "net": may_have_a_network,
}


def may_run(unless: tuple[str, ...]) -> bool:
    """Whether a test whose marker `root` has these arguments runs here."""
    return is_root() or any(_GRANTED[name]() for name in unless)


@contextmanager
def own_tmpfs(directory: Path, size_bytes: int) -> Iterator[Path]:
    """A tmpfs in a user namespace of its own, seen from outside through the process that holds it."""
    mountpoint = directory / "card"
    mountpoint.mkdir()
    script = 'mount -t tmpfs -o "size=$1" tmpfs "$2" && echo mounted && exec sleep infinity'
    command: list[str | Path] = [*_OWN_NAMESPACE, "sh", "-c", script, "sh", str(size_bytes), mountpoint]
    holder = Process("namespace", command, directory, ready="mounted").start()
    try:
        yield Path(f"/proc/{holder.pid}/root{mountpoint}")
    finally:
        holder.kill()
