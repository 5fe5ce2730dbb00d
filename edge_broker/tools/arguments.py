"""The options of `edge-broker topics`, `tail`, `groups` and `cluster status`.

Contains: options, help. Does not contain: the tools themselves, which are imported once the options are known to
be good.
"""

from __future__ import annotations

import argparse
from typing import Any

from drupelet.command.arguments import path, quote_shortened, whole_number
from edge_broker.tools.limits import LAST, LAST_MAX

BOOTSTRAP = "127.0.0.1:9092"
TIMEOUT_S = 10.0
INT_MAX = 0x7FFFFFFF

STATUS = "exit status: 0 done, 1 it cannot be told or read, 2 bad usage, or no such topic or group"
TOPICS_EXAMPLE = f"""examples:
  edge-broker topics                                   every topic: those with a problem first, then the largest
  edge-broker topics readings                          its partitions, and the settings that were changed
  edge-broker topics --bootstrap pi-3.local:9092 --json
  edge-broker topics --bootstrap pi-3.local:9093 --command-config client.properties

records: end - start, so compacted records and transaction markers count. bytes: only of brokers that tell them.
{STATUS}
"""
TAIL_EXAMPLE = f"""examples:
  edge-broker tail readings                            the last {LAST} records
  edge-broker tail readings -n 100 --partition 2
  edge-broker tail readings --follow                   and what comes from now on, until Ctrl-C
  edge-broker tail readings --from 15m                 everything of the last 15 minutes; also s, h and d
  edge-broker tail readings --from 2026-05-01T12:00    everything since then, in UTC unless an offset is given
  edge-broker tail readings --from 4711 -n 1 --json    one record, whole: values in the table are cut

A time that ends in * is corrected: its board's clock was not set; one that ends in ? is not known yet. In JSON
`timestamp` is the record's own time, which --from goes by, `corrected_timestamp` the right one, null where unknown.
Only reads, and commits no offsets. Bytes that are no text are shown escaped; in JSON they are base64.
Records of transactions that are open or aborted are shown, too.
{STATUS}
"""
GROUPS_EXAMPLE = f"""examples:
  edge-broker groups                                   every group, the one with most lag first
  edge-broker groups edge-mirror-site-1                its members, and its place in each partition
  edge-broker groups --json

lag: records between the committed offset and the end. behind: the age of the first record that waits.
{STATUS}
"""
CLUSTER_EXAMPLE = """examples:
  edge-broker cluster status                                   brokers, and partitions with a problem
  edge-broker cluster status --bootstrap-server pi-3.local:9092 --json
  edge-broker cluster status >/dev/null || echo "look after the cluster"

lag: records that leaders have and this broker lacks. behind: the age of the first of them, where it may be read yet.
if it goes now: partitions that would have no leader, or refuse acks=all for min.insync.replicas, and do not now.
What is shown is what the named broker knows; ZooKeeper is not asked.
exit status: 0 well; 1 a partition lacks a replica or a leader, a broker does not answer, or there is no controller;
2 bad usage, or the named broker does not answer
"""


def add_tools(commands: argparse._SubParsersAction[Any]) -> argparse._SubParsersAction[Any]:
    """Declare the commands; the actions of `cluster`, for those that need no running broker."""
    topics = _command(commands, "topics", "list topics, or the partitions and settings of one", TOPICS_EXAMPLE)
    topics.add_argument("topic", nargs="?", metavar="TOPIC", help="this topic's partitions and settings")
    tail = _command(commands, "tail", "print the last records of a topic, and those that come", TAIL_EXAMPLE)
    tail.add_argument("topic", metavar="TOPIC", help="the topic to read")
    tail.add_argument(
        "-n", dest="number", type=whole_number(0, LAST_MAX), metavar="N", help=f"so many records (default: {LAST})"
    )
    tail.add_argument("-f", "--follow", action="store_true", help="go on with what comes, until Ctrl-C")
    tail.add_argument("--partition", type=whole_number(0, INT_MAX), metavar="P", help="this partition alone")
    tail.add_argument(
        "--from",
        dest="begin",
        metavar="OFFSET|TIME",
        help="begin at an offset, or at a time as 15m or 2026-05-01T12:00",
    )
    groups = _command(commands, "groups", "list groups, or the members and lag of one", GROUPS_EXAMPLE)
    groups.add_argument("group", nargs="?", metavar="GROUP", help="this group's members and partitions")
    shape, text = argparse.RawDescriptionHelpFormatter, "what a cluster of brokers is like"
    cluster = commands.add_parser("cluster", help=text, description=text, epilog=CLUSTER_EXAMPLE, formatter_class=shape)
    actions: argparse._SubParsersAction[Any] = cluster.add_subparsers(metavar="ACTION", required=True, dest="action")
    text = "who is there, who leads, what lacks replicas, and what stops if a board goes"
    _command(actions, "status", text, CLUSTER_EXAMPLE)
    return actions


def _command(commands: argparse._SubParsersAction[Any], name: str, text: str, epilog: str) -> argparse.ArgumentParser:
    shape = argparse.RawDescriptionHelpFormatter
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{text[:1].upper()}{text[1:]}.", epilog=epilog, formatter_class=shape
    )
    command.add_argument(
        "--bootstrap-server",
        "--bootstrap",
        dest="bootstrap",
        default=BOOTSTRAP,
        metavar="HOST:PORT",
        help="any broker of the cluster (default: %(default)s)",
    )
    command.add_argument(
        "--command-config",
        type=path,
        metavar="FILE",
        help="TLS and log-in, as Kafka's tools read them: security.protocol, ssl.truststore.location, sasl.jaas.config",
    )
    command.add_argument(
        "--timeout", type=_seconds, default=TIMEOUT_S, metavar="SECONDS", help="for each answer (default: %(default)g)"
    )
    command.add_argument("--json", action="store_true", help="one JSON object per line")
    command.set_defaults(run=_run, tool=name)
    return command


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"is {quote_shortened(text)}: give 0.1 to 3600 seconds")
    return seconds


def _run(options: argparse.Namespace) -> int:
    from edge_broker.tools.commands import run  # noqa: PLC0415 - --help needs none of it

    return run(options)
