"""The link to the datacenter as a process of its own: the test proxy, cut and restored by signals.

`kill -USR1 PID` cuts it: nothing passes, nothing is closed, as when a radio is out of reach. `kill -USR2 PID` restores
it, resetting the connections that stalled, as the middleboxes on the way have forgotten them: requests and answers in
flight are gone. Once a second it writes `{"up": bool, "bytes_up": N, "bytes_down": N}` to the status file.
It knows no protocol, so a Kafka broker behind it must advertise the link's address.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.proxy import TcpProxy

CUT, RESTORE = signal.SIGUSR1, signal.SIGUSR2
ENDS = (signal.SIGTERM, signal.SIGINT)


def write_status(proxy: TcpProxy, path: Path) -> None:
    """Replace the status file."""
    state = {"up": not proxy.is_cut, "bytes_up": proxy.bytes_up, "bytes_down": proxy.bytes_down}
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(state))
    partial.replace(path)


def serve(proxy: TcpProxy, status_path: Path) -> None:
    """Obey signals until SIGTERM or SIGINT."""
    while True:
        write_status(proxy, status_path)
        received = signal.sigtimedwait({CUT, RESTORE, *ENDS}, 1.0)
        if received is None:
            continue
        if received.si_signo in ENDS:
            return
        if received.si_signo == CUT:
            proxy.cut("blackhole")
        else:
            proxy.drop_connections()
            proxy.restore()


def main(words: Sequence[str] | None = None) -> int:
    """Run the link."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.link", description="A TCP link that can be cut.")
    parser.add_argument("--port", required=True, type=int, help="where to listen on 127.0.0.1")
    parser.add_argument("--target", required=True, metavar="HOST:PORT", help="what is at the other end")
    parser.add_argument("--status", required=True, type=Path, metavar="FILE", help="JSON, rewritten once a second")
    options = parser.parse_args(words)
    # Blocked before the proxy's thread exists, so that only sigtimedwait ever gets them.
    signal.pthread_sigmask(signal.SIG_BLOCK, {CUT, RESTORE, *ENDS})
    with TcpProxy(options.target, port=options.port) as proxy:
        print("link ready", flush=True)
        serve(proxy, options.status)
    return 0


if __name__ == "__main__":
    sys.exit(main())
