"""Notify systemd of a job. Does not contain: the job's state, the socket protocol (drupelet/host/systemd.py)."""

import os
from functools import partial

from drupelet.host.systemd import Notifier
from spark.logs import log


def notify(*assignments: str) -> None:
    """Send `NAME=value` lines to the socket that systemd named in the environment, if there is one."""
    Notifier(os.environ, partial(log, "warning", "notify_failed")).notify(*assignments)
