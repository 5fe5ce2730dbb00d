"""PURE. Declares the options of `edge-mirror audit`. Does not contain: imports that take long."""

from __future__ import annotations

import argparse

from drupelet.command.arguments import not_empty, path
from mirror.audit.digest.selection import only
from mirror.config import SIDES

AUDIT_EXAMPLE = """example, over a thin link, with digests alone on it:
  edge-mirror audit --config m.toml --target-by 'ssh central edge-mirror audit --config m.toml --digests-of target'
"""


def add_audit(audit: argparse.ArgumentParser) -> None:
    """Declare the options of `audit`, in addition to those of every command."""
    audit.add_argument("--json", action="store_true", help="print JSON instead of tables")
    audit.add_argument("--allow-duplicates", action="store_true", help="a record twice at the target is no difference")
    audit.add_argument(
        "--only", metavar="TOPIC:PARTITION", type=only, help="this partition alone, by its name at the source"
    )
    text = "write the digests of this end to standard output, for an audit elsewhere; no other end is asked"
    audit.add_argument("--digests-of", choices=SIDES, help=text)
    audit.add_argument("--each", action="store_true", help="with --digests-of: each record's digest, 16 bytes")
    for end in SIDES:
        way = audit.add_mutually_exclusive_group()
        way.add_argument(f"--{end}-digests", metavar="FILE", type=path, help=f"the output of --digests-of {end}")
        text = f"a shell command that writes the digests of the {end}, say over ssh; it runs again if they differ"
        way.add_argument(f"--{end}-by", metavar="COMMAND", type=not_empty, help=text)
