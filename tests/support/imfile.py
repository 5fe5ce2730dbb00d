"""rsyslog's imfile, the peer that the gateway's files are compared with: it follows one file into another file.

A plain `rsyslogd -n` with a configuration, a work directory and a pid file of its own; never the host's service.
Source: rsyslog's "imfile: Text File Input Module".
"""

from __future__ import annotations

from pathlib import Path

from tests.support import runtimes
from tests.support.processes import Process

_CONFIGURATION = """\
global(workDirectory="{directory}/work" maxMessageSize="64k")
module(load="imfile" mode="inotify")
template(name="line" type="string" string="%msg%\\n")
ruleset(name="followed") {{ action(type="omfile" file="{arrived}" template="line") }}
input(type="imfile" file="{followed}" tag="followed" reopenOnTruncate="on" persistStateInterval="1" ruleset="followed")
"""


class Imfile(Process):
    """An rsyslogd that follows the file `followed`; its lines arrive in `DIRECTORY/arrived`."""

    def __init__(self, directory: Path, followed: Path) -> None:
        (directory / "work").mkdir(parents=True)
        self.arrived_path = directory / "arrived"
        config = directory / "rsyslog.conf"
        config.write_text(
            _CONFIGURATION.format(directory=directory, arrived=self.arrived_path, followed=followed),
        )
        self._state = directory / "work"
        command: list[str | Path] = [runtimes.rsyslogd(), "-n", "-f", config, "-i", directory / "rsyslog.pid"]
        super().__init__("rsyslogd", command, directory, ready=lambda: any(self._state.iterdir()))

    def arrived(self) -> list[bytes]:
        """Return the lines that arrived, in order."""
        return self.arrived_path.read_bytes().splitlines() if self.arrived_path.exists() else []
