"""A broker's /health and status, as its operator reads them."""

from __future__ import annotations

import subprocess
import urllib.error
import urllib.request

from tests.support import runtimes
from tests.support.processes import EdgeBroker
from tests.support.waiting import CALL_S


def status(board: EdgeBroker) -> tuple[int, str]:
    command = [str(runtimes.console_script("edge-broker")), "cluster", "status", "--bootstrap-server", board.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_S, check=False)
    return done.returncode, (done.stdout.splitlines() or [done.stderr])[-1]


def health(board: EdgeBroker) -> str:
    try:
        with urllib.request.urlopen(board.metrics_url.replace("/metrics", "/health"), timeout=CALL_S) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as refused:
        with refused:
            return f"{refused.code} {refused.read().decode()}"
