"""PURE. Selects part of an audit: a partition, a range of its offsets, and the ends whose servers it needs.

Does not contain: the options of the command (audit/arguments.py).
"""

from __future__ import annotations

import argparse
import re
from typing import NamedTuple

from drupelet.command.arguments import quote_shortened


class Only(NamedTuple):
    """The only partition to report, by its name at the source, and of it the offsets [first, end) of this end."""

    topic: str
    partition: int
    first: int | None = None
    end: int | None = None

    def __str__(self) -> str:
        offsets = "" if self.first is None else f":{self.first}-{self.end}"
        return f"{self.topic}:{self.partition}{offsets}"


def needed_settings(given: argparse.Namespace) -> tuple[str, ...]:
    """Return the settings that must be set: the servers of each end that is read, and the topics."""
    told = {"source": given.source_digests or given.source_by, "target": given.target_digests or given.target_by}
    ends = (given.digests_of,) if given.digests_of else tuple(end for end in told if not told[end])
    return (*ends, "topics")


def only(text: str) -> Only:
    """Parse an option's value: TOPIC:PARTITION, or TOPIC:PARTITION:FIRST-END with the end exclusive."""
    found = re.fullmatch(r"([a-zA-Z0-9._-]+):(\d{1,9})(?::(\d{1,18})-(\d{1,18}))?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"is {quote_shortened(text)}: give TOPIC:PARTITION")
    topic, partition, first, end = found.groups()
    return Only(topic, int(partition), None if first is None else int(first), None if end is None else int(end))
