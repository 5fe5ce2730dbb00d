"""PURE. What `edge-mirror audit` may be told on the command line. Must never come in: what takes long to import."""

from __future__ import annotations

import argparse
import re
from typing import NamedTuple

from drupelet.arguments import not_empty, path, shown
from mirror.config import SIDES

AUDIT_EXAMPLE = """example, over a thin link, with digests alone on it:
  edge-mirror audit --config m.toml --target-by 'ssh central edge-mirror audit --config m.toml --digests-of target'
"""


class Only(NamedTuple):
    """What alone is told: a partition, by its name at the source, and of it the offsets [first, end) of this end."""

    topic: str
    partition: int
    first: int | None = None
    end: int | None = None

    def __str__(self) -> str:
        offsets = "" if self.first is None else f":{self.first}-{self.end}"
        return f"{self.topic}:{self.partition}{offsets}"


def needed(given: argparse.Namespace) -> tuple[str, ...]:
    """The settings that must be there: of each end that is asked, its servers."""
    told = {"source": given.source_digests or given.source_by, "target": given.target_digests or given.target_by}
    ends = (given.digests_of,) if given.digests_of else tuple(end for end in told if not told[end])
    return (*ends, "topics")


def add_audit(audit: argparse.ArgumentParser) -> None:
    """Declare its options beside those of every command."""
    audit.add_argument("--json", action="store_true", help="print JSON instead of tables")
    audit.add_argument("--allow-duplicates", action="store_true", help="what is at the target twice is no difference")
    audit.add_argument(
        "--only", metavar="TOPIC:PARTITION", type=only, help="this partition alone, by its name at the source"
    )
    text = "write the digests of this end to standard output, for an audit elsewhere; no other end is asked"
    audit.add_argument("--digests-of", choices=SIDES, help=text)
    audit.add_argument("--each", action="store_true", help="with --digests-of: each record's digest, 16 bytes")
    for end in SIDES:
        way = audit.add_mutually_exclusive_group()
        way.add_argument(f"--{end}-digests", metavar="FILE", type=path, help=f"what --digests-of {end} has written")
        text = f"a shell command that writes the digests of the {end}, as over ssh; it is asked again where they differ"
        way.add_argument(f"--{end}-by", metavar="COMMAND", type=not_empty, help=text)


def only(text: str) -> Only:
    """A type of options: TOPIC:PARTITION, or TOPIC:PARTITION:FIRST-END with the end exclusive."""
    found = re.fullmatch(r"([a-zA-Z0-9._-]+):(\d{1,9})(?::(\d{1,18})-(\d{1,18}))?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"is {shown(text)}: give TOPIC:PARTITION")
    topic, partition, first, end = found.groups()
    return Only(topic, int(partition), None if first is None else int(first), None if end is None else int(end))
