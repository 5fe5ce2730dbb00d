"""Generations of a log-in: the users `mirror-pi-1` and `mirror-pi-1~2` are one client before and after a rotation.

The names come from the collection (ansible/plugins/action/site_access.py). The broker grants nothing by them: it
records which generation a client used last. PURE.
"""

from __future__ import annotations

import re

NUMBER = re.compile(r"[1-9]\d{0,6}")


def generation_of(user: str) -> tuple[str, int]:
    """Split a user's name into the name of its first generation and the number of its own."""
    base, _, number = user.rpartition("~")
    return (base, int(number)) if base and NUMBER.fullmatch(number) and number != "1" else (user, 1)
