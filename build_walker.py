"""Builds the compiled walker of records into wheels, and for this machine into an editable checkout: a hatchling hook.

Wheels and editable checkouts also get completion and man pages, wheels and source archives the commit (build_texts.py).

| asked for | compiled by | where it cannot |
|---|---|---|
| a wheel, DRUPELET_WALKERS=all | the ziglang wheel, for x86_64 and aarch64 on whatever machine | the build fails |
| a wheel | what DRUPELET_WALKERS=all left in the cache; else cc, for this machine | the wheel is built without it |
| an editable checkout | cc, for this machine, into edge_broker/compiled | the pure-Python walker serves |

A board that installs a wheel needs neither compiler nor ziglang. ziglang is asked for only where it has something to
do: what it built stays in ~/.cache/drupelet/walker, under the checksum of source and flags. The libraries use no C
library, so that one serves every system of its kind, and come out the same to the byte, as releases are named by it.

Source: https://hatch.pypa.io/latest/plugins/build-hook/custom/
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("edge_broker/compiled/walk.c")
COMMIT = "drupelet/commit.txt"
MACHINES = ("x86_64", "aarch64")
ZIGLANG = "ziglang==0.17.1"  # pinned: another version may compile to other bytes
SHTAB = "shtab==1.13.0"  # pinned for the same reason: completion scripts are part of the wheel
FLAGS = ("-O2", "-shared", "-fPIC", "-ffreestanding", "-nostdlib", "-fno-stack-protector", "-Wall", "-Wextra", "-s")


class WalkerHook(BuildHookInterface[Any]):
    """Puts `walk-MACHINE.so` beside its source."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What the build needs besides hatchling: shtab; ziglang, when a wheel for all machines has to be compiled."""
        compiling = _all_wanted() and any(not _cached(self._source, one).exists() for one in MACHINES)
        return [SHTAB, ZIGLANG] if compiling else [SHTAB]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and name the results as part of the wheel."""
        self._make_texts(build_data, commit=version != "editable")
        if self.target_name != "wheel":
            return
        if version == "editable":
            self._build_here(self._source.parent / _name(os.uname().machine))
            return
        for machine in MACHINES:
            built = _cached(self._source, machine)
            if not built.exists() and _all_wanted():
                _compile(
                    [sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-musl"], self._source, built
                )
            elif not built.exists() and machine == os.uname().machine:
                built = Path(self.directory) / _name(machine)
                self._build_here(built)
            if built.exists():
                build_data["force_include"][str(built)] = str(SOURCE.parent / _name(machine))

    def _make_texts(self, build_data: dict[str, Any], *, commit: bool) -> None:
        """Have build_texts.py write, and name what it wrote; a source archive has the commit already."""
        texts = Path(self.directory).absolute() / "texts"
        shutil.rmtree(texts, ignore_errors=True)
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "build_texts.py", str(texts)]
        subprocess.run(command, cwd=self.root, env=environment, check=True)  # noqa: S603 - our own
        if commit and not Path(self.root, COMMIT).exists():
            build_data["force_include"][str(texts / "commit.txt")] = COMMIT
        if self.target_name == "wheel":
            build_data["shared_data"][str(texts / "share")] = "share"

    @property
    def _source(self) -> Path:
        return Path(self.root) / SOURCE

    def _build_here(self, target: Path) -> None:
        """Compile for this machine if there is a compiler; without one the pure-Python walker serves."""
        compiler = shutil.which("cc")
        if compiler is None or os.uname().machine not in MACHINES:
            self.app.display_warning("No C compiler for this machine: the pure-Python walker will serve.")
        elif not target.exists() or target.stat().st_mtime < self._source.stat().st_mtime:
            try:
                _compile([compiler], self._source, target)
            except (OSError, subprocess.CalledProcessError) as error:
                self.app.display_warning(f"The pure-Python walker will serve: {error}")


def _all_wanted() -> bool:
    return os.environ.get("DRUPELET_WALKERS") == "all"


def _name(machine: str) -> str:
    return f"walk-{machine}.so"


def _cached(source: Path, machine: str) -> Path:
    """Where what ziglang made of this source lies."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "drupelet/walker"
    made_of = hashlib.sha256(source.read_bytes() + " ".join((ZIGLANG, *FLAGS)).encode()).hexdigest()
    return cache / made_of[:16] / _name(machine)


def _compile(compiler: list[str], source: Path, target: Path) -> None:
    """Compile under another name and rename: two builds may run at once."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        command = [*compiler, *FLAGS, "-o", str(unfinished), source.name]
        subprocess.run(command, cwd=source.parent, check=True)  # noqa: S603 - the compiler that was chosen above
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
