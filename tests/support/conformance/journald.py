"""systemd-journald, run for one test."""

from __future__ import annotations

import signal
import subprocess
import uuid
from pathlib import Path

from tests.support.processes import Process, wait_until
from tests.support.waiting import CALL_S

JOURNALD = """\
mount --bind "$1" /run
mkdir -p /run/log/journal /run/systemd/journal
mount --bind "$2" /proc/sys/kernel/random/boot_id
SYSTEMD_LOG_TARGET=console exec /lib/systemd/systemd-journald
"""


class Journald:
    """A journald that sees a /run of its own, which outlives it, and a boot of its own at each start."""

    def __init__(self, directory: Path) -> None:
        self.run_directory = directory / "run"
        self.run_directory.mkdir()
        self.boot_id = directory / "boot_id"
        self.ready = self.run_directory / "systemd/journal/stdout"
        self.process = Process(
            "journald",
            ["unshare", "--mount", "bash", "-c", JOURNALD, "journald", self.run_directory, self.boot_id],
            directory,
            ready=self.ready.exists,
            stop_statuses=(0, -signal.SIGTERM),
        )

    def boot(self) -> None:
        self.process.kill()
        self.ready.unlink(missing_ok=True)
        self.boot_id.write_text(f"{uuid.uuid4()}\n")
        self.process.start()

    def run(self, *command: str, text: str = "") -> str:
        inside = ["nsenter", "--target", str(self.process.pid), "--mount", *command]
        return subprocess.run(inside, input=text, check=True, capture_output=True, text=True, timeout=CALL_S).stdout

    def log(self, *lines: str) -> None:
        self.run("systemd-cat", "--identifier=trial", text="".join(f"{line}\n" for line in lines))
        newest = ("journalctl", "--identifier=trial", "--lines=1", "--output=cat")
        wait_until(lambda: lines[-1].endswith(self.run(*newest).strip() or "?"), 10, "journald has taken the lines")
