"""The options of `edge-broker cluster rebuild`.

Contains: options, help. Does not contain: the rebuild, which is imported once the options are known to be good.
"""

from __future__ import annotations

import argparse
from typing import Any

from drupelet.command.arguments import add_command, not_empty, whole_number

INT_MAX = 0x7FFFFFFF
EXAMPLE = """examples:
  edge-broker cluster rebuild --disk 1.json --disk 2.json --disk 3.json --dry-run
  edge-broker cluster rebuild --disk 1.json --disk 2.json --written-off 3 --config /etc/drupelet/broker.toml

After the loss of all ZooKeeper data. Stop all brokers, describe each board's disk (`edge-broker cluster disk --json`),
look at the plan (--dry-run), then write it into the new, empty ensemble. CLUSTER.md has the drill.
Nothing is written while the plan has a refusal. A run that was killed is run again, with the same options.
exit status: 0 written (--dry-run: it could be), 1 refused, 2 bad usage, or ZooKeeper does not answer
"""


def add_rebuild(actions: argparse._SubParsersAction[Any]) -> None:
    """Declare the command."""
    text = "make new znodes of a cluster, from what its boards' disks have"
    rebuild = add_command(actions, "rebuild", text, EXAMPLE)

    def add(option: str, metavar: str, text: str, **more: Any) -> None:
        rebuild.add_argument(option, action="append", default=[], metavar=metavar, help=text, **more)

    add("--disk", "FILE", "output of `cluster disk --json` of a stopped board; one for each", type=not_empty)
    add("--written-off", "ID", "a broker whose disk is gone; repeatable", type=whole_number(0, INT_MAX))
    add("--prefer", "TOPIC-PARTITION=ID", "whose log leads where logs part; repeatable", type=not_empty)
    add("--keep-topic", "TOPIC", "a topic, by name or id, that may have been deleted; * keeps all", type=not_empty)
    add("--drop-topic", "TOPIC", "a topic, by name or id, that does not come back", type=not_empty)
    rebuild.add_argument("--dry-run", action="store_true", help="show the plan; ZooKeeper is not asked")
    rebuild.add_argument("--replace", action="store_true", help="replace znodes of this cluster, as of an older copy")
    rebuild.add_argument("--json", action="store_true", help="one JSON object per line")
    rebuild.add_argument(
        "--config", type=not_empty, metavar="FILE.toml", help="a broker's configuration: zookeeper.connect and its user"
    )
    add("--set", "KEY=VALUE", "one configuration key; repeatable, wins over --config")
    rebuild.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from edge_broker.rebuild.commands import run  # noqa: PLC0415 - --help needs none of it

    return run(options)
