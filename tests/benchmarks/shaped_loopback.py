"""A network of one's own whose loopback is as slow, and carries packets as small, as a board's cable.

Lives here: how to get in there. Must never come in: what is measured. Source: unshare(2), tc-tbf(8).
"""

from __future__ import annotations

import ctypes
import os
import subprocess

MTU = 1500
BURST, WAITING = "4k", "30ms"  # what goes at once, and how long a packet may wait before it is dropped
_CLONE_NEWNET = 0x40000000


def enter(rate: str) -> None:
    """Put this process, and all that it starts from now on, behind a link of that rate, in tc's units; needs root.

    OSError: no namespace can be made. CalledProcessError: tc refuses the rate, and has said why.
    """
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)}: a network of one's own needs root")
    for command in (
        f"ip link set lo mtu {MTU} up",
        f"tc qdisc add dev lo root tbf rate {rate} burst {BURST} latency {WAITING}",
    ):
        subprocess.run(command.split(), check=True)
