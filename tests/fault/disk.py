"""The forgetful disk of the tests as a child process: mounted, told what to do, unmounted however the test ends.

Must never come in: what a broker or a client does with it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.processes import Process, ProcessError

ANSWER_S = 300.0  # the disk itself says earlier what it waits for


class FuseDisk(Process):
    """`tests.fault.fuse_disk` on `DIRECTORY/disk`; the methods are what its control socket offers."""

    def __init__(
        self,
        directory: Path,
        *,
        seed: int = 0,
        ordered: bool = False,
        bytes_max: int | None = None,
        rate: int | None = None,
    ) -> None:
        """Describe a disk; `ordered`: names are kept in order; `bytes_max` and `rate` (bytes per second) bound it."""
        self.mountpoint = directory / "disk"
        self._control = f"fuse-disk-{os.getpid()}-{uuid.uuid4().hex}"
        command: list[str | Path] = [sys.executable, "-m", "tests.fault.fuse_disk", self.mountpoint]
        command += ["--control", self._control, "--seed", str(seed)]
        command += ["--ordered"] if ordered else []
        command += ["--bytes-max", str(bytes_max)] if bytes_max is not None else []
        command += ["--rate", str(rate)] if rate is not None else []
        root = str(Path(__file__).parents[2])
        super().__init__("fuse-disk", command, directory, environment={"PYTHONPATH": root}, ready="mounted")

    def spawn(self) -> None:
        """Make the place to mount on, then mount."""
        self.mountpoint.mkdir(parents=True, exist_ok=True)
        super().spawn()

    def _ask(self, do: str, **request: Any) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_S + request.get("seconds", 0))
            connection.connect(f"\0{self._control}")
            connection.sendall(json.dumps({"do": do, **request}).encode() + b"\n")
            answer: dict[str, Any] = json.loads(connection.makefile().readline())
        if "error" in answer:
            raise ProcessError(f"fuse-disk: {do}: {answer['error']}")
        return answer

    def freeze(self, steps: int) -> None:
        """Hang at the n-th change from now and at everything after it: nothing later will be on the disk."""
        self._ask("freeze", steps=steps)

    def wait_frozen(self, seconds: float) -> bool:
        """Whether that moment has come, waiting for it so many seconds."""
        return bool(self._ask("frozen", seconds=seconds)["frozen"])

    def spare(self) -> bool:
        """Call a freeze off; False when it has happened."""
        return bool(self._ask("spare")["spared"])

    def cut(self, process: Process, *, keep: bool = False) -> None:
        """Cut the power: `process` is gone with what was not synced (`keep`: with nothing), the disk is back."""
        process.send_signal(signal.SIGKILL)  # first, so that it never learns how its last calls end
        self._ask("off")
        process.kill()
        self._ask("on", keep=keep)

    def fault(
        self,
        kinds: Sequence[str],
        path: str = "",
        *,
        error: str | None = None,
        size: int | None = None,
        skip: int = 0,
        count: int = 1 << 62,
    ) -> None:
        """Fail `count` calls after `skip`, of these kinds on paths that match, with an errno's name; or write short."""
        self._ask("fault", kinds=list(kinds), path=path, error=error, size=size, skip=skip, count=count)

    def hang(self, kinds: Sequence[str], path: str = "") -> None:
        """Block calls of these kinds on paths that match, until `release`."""
        self._ask("hang", kinds=list(kinds), path=path)

    def release(self) -> None:
        """End every hang and fault."""
        self._ask("release")

    def limit(self, bytes_max: int | None) -> None:
        """Bound the room; what is there stays."""
        self._ask("limit", bytes=bytes_max)

    def throttle(self, rate: int | None) -> None:
        """Bound the speed, in bytes per second."""
        self._ask("rate", bytes=rate)

    def state(self) -> dict[str, Any]:
        """`steps` so far, calls `hanging` now, and how often each fault has `struck`."""
        return self._ask("state")
