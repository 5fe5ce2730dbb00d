"""The command `edge-broker`.

Contains: options, help, exit statuses (0 done, 1 failed, 2 bad usage or configuration). Does not contain: the
broker itself, and the tools: they are imported only once the options are known to be good, so that --help and errors
are quick.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from drupelet.command.arguments import Parser, add_command, not_empty, whole_number
from drupelet.command.command_line import run
from drupelet.errors import CommandFailed, ConfigurationError, reason
from drupelet.quantities import is_or_are, quantity_text
from edge_broker.access.arguments import add_access
from edge_broker.access.user_arguments import add_users
from edge_broker.compiled import walker_name, why_not_compiled
from edge_broker.errors import StorageFault
from edge_broker.rebuild.arguments import add_rebuild
from edge_broker.tools.arguments import INT_MAX, add_tools

EXAMPLE = """examples:
  edge-broker serve --data-dir /var/lib/edge-broker --listen 127.0.0.1:9092
  edge-broker serve --data-dir data --listen 0.0.0.0:9092 --advertise pi-3.local:9092 \\
      --metrics 127.0.0.1:9101 --set edge.network.trusted=true
  edge-broker check --config /etc/drupelet/broker.toml --metrics 127.0.0.1:9101
  edge-broker keys          every configuration key with its default and meaning
  edge-broker log --help    look into a data directory, stopped or running
  edge-broker ledger --help what is lost, and the proof that nothing else is
  edge-broker user --help   who may log in, before the first start and beside a running broker
  edge-broker acl --help    who may do what, before the first start and beside a running broker
  edge-broker topics        topics of a running broker; also: tail, groups
  edge-broker cluster --help  brokers of a cluster, and what stops if one goes
"""
TROUBLE = 2
LOG_EXAMPLE = """examples:
  edge-broker log ls --data-dir data                        partitions: offsets, bytes, corrupt ranges, the last start
  edge-broker log ls --data-dir data readings               its segments too
  edge-broker log dump --data-dir data readings-0           every batch; --records: what is in them
  edge-broker log dump --data-dir data readings --producers the newest snapshot of idempotent producers
  edge-broker log check --data-dir data                     every file against its CRC and its neighbours
  edge-broker log repair --data-dir data --dry-run          what a repair would do
  edge-broker log repair --data-dir data                    do it; nothing is deleted, see data/aside

ls, dump and check only read, and a broker may run meanwhile. repair needs the directory for itself.
exit status: 0 done (check, repair: sound), 1 damage or failure, 2 bad usage
"""
CHECK_EXAMPLE = """examples:
  edge-broker check --config /etc/drupelet/broker.toml
  edge-broker check --config broker.toml --set log.retention.ms=86400000 --strict

It gives the sentences by which serve refuses a configuration, all of them at once, and changes nothing.
Files, secrets and addresses that this host lacks are warnings, as another host may have them; --strict refuses them.
exit status: 0 serve would start with it, 2 bad usage or configuration
"""
DISK_EXAMPLE = """examples:
  edge-broker cluster disk --data-dir data                  topics and deletions, logs with their leader epochs
  edge-broker cluster disk --data-dir data --json >1.json   to be carried to where the cluster is rebuilt

It only reads, and a broker may run meanwhile. It shows no secret: of users and ACLs the generation alone.
epochs: leader epoch @ offset of its first record.
exit status: 0 done, 1 failure, 2 bad usage
"""
WRITE_OFF_EXAMPLE = """examples:
  edge-broker cluster write-off --data-dir data --dry-run              what may be lost
  edge-broker cluster write-off --data-dir data --disk 3.json --dry-run  only what board 3 lacks
  edge-broker cluster write-off --data-dir data --partition readings-0

After an older copy of ZooKeeper's data was put back, this board objects to its states (CLUSTER.md). Written off, it
acts by them: it truncates what ZooKeeper's leader lacks, acknowledged records too. Put newer data back instead, or
rebuild the znodes (`edge-broker cluster rebuild --help`), where that is possible. Stop the broker first.
--disk: `edge-broker cluster disk --json` of a board that goes on; what all of them have is not lost.
exit status: 0 done (--dry-run: it could be), 1 nothing to write off, 2 bad usage, failure, or a broker runs
"""
LEDGER_EXAMPLE = """examples:
  edge-broker ledger --data-dir data                        every loss, each once
  edge-broker ledger --data-dir data --topic readings --cause evicted --json
  edge-broker ledger --data-dir data --prove                nothing else is lost, offset by offset

A broker may run meanwhile.
--prove: log end = available + compacted away + control records + expired by policy + ledgered, for each partition.
exit status: 0 done (--prove: it holds), 1 it does not hold or the ledger cannot be read, 2 bad usage
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status. That of `cluster` is for monitoring: 1 tells of the cluster, trouble is 2."""
    words = sys.argv[1:] if arguments is None else arguments
    return run("edge-broker", lambda: _work(words), trouble=TROUBLE if words[:1] == ["cluster"] else None)


def _work(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except StorageFault as fault:
        raise CommandFailed(str(fault)) from fault
    return status


def _walker() -> str:
    why_not = f" ({why_not_compiled()})" if why_not_compiled() else ""
    return f", {walker_name()} walker{why_not}"


def parser() -> Parser:
    """Describe the command line."""
    shape = argparse.RawDescriptionHelpFormatter
    root = Parser(
        prog="edge-broker",
        description="A light broker that speaks the Kafka protocol.",
        epilog=EXAMPLE,
        formatter_class=shape,
    )
    root.add_version(_walker)
    commands = root.add_subparsers(metavar="COMMAND", required=True)
    serve = commands.add_parser("serve", help="serve in the foreground", epilog=EXAMPLE, formatter_class=shape)
    serve.add_argument(
        "--data-dir",
        type=not_empty,
        required=True,
        metavar="DIR",
        help="where logs and offsets are kept; made when missing",
    )
    _add_configuration(serve)
    serve.set_defaults(run=_serve)
    keys = commands.add_parser(
        "keys", help="list the configuration keys", epilog="example:\n  edge-broker keys", formatter_class=shape
    )
    keys.set_defaults(run=_keys)
    _add_check(commands)
    _add_log(commands)
    _add_ledger(commands)
    add_users(commands)
    add_access(commands)
    actions = add_tools(commands)
    _add_disk(actions)
    _add_write_off(actions)
    add_rebuild(actions)
    return root


def _add_configuration(command: Parser) -> None:
    """Add the options that say what is served, and how."""
    command.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="where clients connect; port 0 picks a free one; short for one PLAINTEXT listener, see the key listeners",
    )
    command.add_argument(
        "--advertise", type=not_empty, metavar="HOST:PORT", help="the address advertised to clients; default: --listen"
    )
    command.add_argument(
        "--metrics", type=not_empty, metavar="HOST:PORT", help="serve /metrics and /health here; default: off"
    )
    command.add_argument("--config", type=not_empty, metavar="FILE.toml", help="configuration keys as TOML")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="one configuration key; repeatable, wins over --config",
    )


def _add_check(commands: argparse._SubParsersAction[Parser]) -> None:
    text = "check a configuration, list every problem, and what this host lacks for it"
    check = add_command(commands, "check", text, CHECK_EXAMPLE)
    _add_configuration(check)
    check.add_argument(
        "--data-dir", type=not_empty, metavar="DIR", help="the data directory of serve; only looked at; default: none"
    )
    check.add_argument(
        "--strict", action="store_true", help="what this host lacks is a problem too: files, secrets, addresses"
    )
    check.set_defaults(run=_check)


def _add_log(commands: argparse._SubParsersAction[Parser]) -> None:
    shape = argparse.RawDescriptionHelpFormatter
    log = commands.add_parser(
        "log", help="look into a data directory, stopped or running", epilog=LOG_EXAMPLE, formatter_class=shape
    )
    actions = log.add_subparsers(metavar="ACTION", required=True, dest="action")
    for name, text in (
        ("ls", "list partitions; with a NAME their segments"),
        ("dump", "show every batch"),
        ("check", "check every file"),
        ("repair", "make a stopped directory sound again, moving aside what is broken"),
    ):
        action = actions.add_parser(name, help=text, description=text, epilog=LOG_EXAMPLE, formatter_class=shape)
        action.add_argument(
            "--data-dir", type=not_empty, required=True, metavar="DIR", help="the broker's data directory"
        )
        action.add_argument("--json", action="store_true", help="one JSON object per line")
        action.add_argument("name", nargs="?", metavar="TOPIC[-PARTITION]", help="default: everything")
        if name == "dump":
            what = action.add_mutually_exclusive_group()
            what.add_argument("--records", action="store_true", help="show the records of each batch, too")
            what.add_argument("--producers", action="store_true", help="show the newest producer snapshot instead")
        if name == "repair":
            action.add_argument("--dry-run", action="store_true", help="say what would be done, and change nothing")
        action.set_defaults(run=_tool)


def _add_ledger(commands: argparse._SubParsersAction[Parser]) -> None:
    shape = argparse.RawDescriptionHelpFormatter
    text = "print what is lost, or prove that nothing else is"
    ledger = commands.add_parser("ledger", help=text, description=text, epilog=LEDGER_EXAMPLE, formatter_class=shape)
    ledger.add_argument("--data-dir", type=not_empty, required=True, metavar="DIR", help="the broker's data directory")
    ledger.add_argument("--json", action="store_true", help="one JSON object per line")
    ledger.add_argument("--topic", metavar="TOPIC", help="this topic alone")
    what = ledger.add_mutually_exclusive_group()
    what.add_argument("--cause", metavar="CAUSE", help="this cause alone, such as evicted or damaged")
    what.add_argument("--prove", action="store_true", help="account for every offset of every partition")
    ledger.set_defaults(run=_tool, action="ledger")


def _add_disk(actions: argparse._SubParsersAction[Any]) -> None:
    text = "what a board's data directory has of its cluster, for a rebuild without ZooKeeper's data"
    disk = add_command(actions, "disk", text, DISK_EXAMPLE)
    disk.add_argument("--data-dir", type=not_empty, required=True, metavar="DIR", help="the broker's data directory")
    disk.add_argument(
        "--broker-id",
        type=whole_number(0, INT_MAX),
        metavar="ID",
        help="its broker.id; default: as its file broker-id has it, which earlier releases did not write",
    )
    disk.add_argument("--json", action="store_true", help="one line of JSON")
    disk.set_defaults(run=_tool, action="disk")


def _add_write_off(actions: argparse._SubParsersAction[Any]) -> None:
    text = "let a stopped board, which objects to ZooKeeper's states, act by them, and ledger what may be lost"
    write_off = add_command(actions, "write-off", text, WRITE_OFF_EXAMPLE)
    write_off.add_argument(
        "--data-dir", type=not_empty, required=True, metavar="DIR", help="the board's data directory"
    )

    def add(option: str, metavar: str, text: str) -> None:
        write_off.add_argument(option, action="append", default=[], type=not_empty, metavar=metavar, help=text)

    add("--partition", "TOPIC-PARTITION", "of this partition alone; repeatable; default: all")
    add("--disk", "FILE", "output of `cluster disk --json` of a board that goes on; repeatable")
    write_off.add_argument("--dry-run", action="store_true", help="show what may be lost; nothing is changed")
    write_off.add_argument("--json", action="store_true", help="one JSON object per line")
    write_off.set_defaults(run=_tool, action="write-off")


def _tool(options: argparse.Namespace) -> int:
    from edge_broker.doctor.commands import run  # noqa: PLC0415 - --help needs none of it

    return run(options)


def _serve(options: argparse.Namespace) -> int:
    from edge_broker.configuration.config import parse_endpoint, read_config  # noqa: PLC0415 - --help needs none of it
    from edge_broker.configuration.ensemble import check_ensemble  # noqa: PLC0415
    from edge_broker.configuration.listeners import read_listeners  # noqa: PLC0415
    from edge_broker.host_check import check_data_dir, check_own_secrets  # noqa: PLC0415

    check_data_dir(options.data_dir)
    text = _read(options.config) if options.config else None
    config = read_config(text, options.config or "", options.set)
    check_own_secrets(config)
    check_ensemble(config)
    listen = parse_endpoint("--listen", options.listen) if options.listen is not None else None
    advertise = parse_endpoint("--advertise", options.advertise) if options.advertise else None
    metrics = parse_endpoint("--metrics", options.metrics) if options.metrics else None
    listeners = read_listeners(config, listen, advertise)

    from edge_broker.app import Options, run  # noqa: PLC0415

    return run(Options(options.data_dir, listeners, metrics, config))


def _check(options: argparse.Namespace) -> int:
    from edge_broker.configuration.listeners import listeners_text  # noqa: PLC0415
    from edge_broker.configuration_check import Serve, check_configuration  # noqa: PLC0415 - --help needs none of it
    from edge_broker.host_check import check_host, is_of_older_version  # noqa: PLC0415

    if not options.config and not options.set and not options.listen:
        raise ConfigurationError("nothing to check; add --config FILE.toml, or the options of serve")
    text = _read(options.config) if options.config else None
    is_old = options.data_dir is not None and is_of_older_version(options.data_dir)
    checked = check_configuration(
        Serve(text, options.config or "", options.set, options.listen, options.advertise, options.metrics, is_old)
    )
    problems, notes = checked.problems, list[str]()
    if not problems:
        lacks, notes = check_host(checked, options.data_dir)
        problems, notes = (lacks, notes) if options.strict else ([], [*lacks, *notes])
    for note in notes:
        print(f"WARNING: {note}", file=sys.stderr)
    for problem in problems[:-1]:
        print(f"edge-broker: {problem}", file=sys.stderr)
    if problems:
        raise ConfigurationError(problems[-1])
    print(f"{options.config or 'configuration'}: ok")
    print(f"  listeners {listeners_text(checked.listeners)}")
    print(f"  advertised {listeners_text(checked.listeners, advertised=True)}")
    count = len(checked.config.explicit)
    print(f"  {quantity_text(count, 'key')} {is_or_are(count)} set, all others have their defaults")
    return 0


def _keys(_options: argparse.Namespace) -> int:
    from edge_broker.configuration.config import KEYS  # noqa: PLC0415
    from edge_broker.configuration.settings import TOPIC_KEYS, as_text  # noqa: PLC0415

    width = max(map(len, (*KEYS, *TOPIC_KEYS)))
    for title, keys in (("of the broker, with --set or --config", KEYS), ("of a topic, by its clients", TOPIC_KEYS)):
        print(f"{title}:")
        for key in keys.values():
            print(f"{key.name:<{width}}  {as_text(key.default):>20}  {key.doc}")
    return 0


def _read(path: str) -> str:
    from drupelet.tls.file_reads import read_named  # noqa: PLC0415 - --help needs none of it

    try:
        return read_named(path).decode()
    except OSError as error:
        raise ConfigurationError(f"--config {path} cannot be read: {reason(error)}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"--config {path} is not UTF-8 at byte {error.start}: save it as UTF-8") from None


if __name__ == "__main__":
    sys.exit(main())
