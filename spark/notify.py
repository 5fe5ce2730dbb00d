"""What a job tells systemd. What the state is must not come in here, nor how it is sent (drupelet/host/systemd.py)."""

import os
from functools import partial

from drupelet.host.systemd import Notifier
from spark.logs import log


def tell(*assignments: str) -> None:
    """Send `NAME=value` lines to the socket that systemd named in the environment, if there is one."""
    Notifier(os.environ, partial(log, "warning", "notify_failed")).tell(*assignments)
