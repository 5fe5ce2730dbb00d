"""The command `edge-broker`.

Lives here: options, help, exit statuses (0 done, 1 failed, 2 bad usage or configuration). Must never come in: the
broker itself, and the tools: they are imported only once the options are known to be good, so that --help and errors
are quick.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from drupelet.arguments import Parser, not_empty
from drupelet.command_line import run
from drupelet.errors import CommandFailed, ConfigurationError, reason
from edge_broker.access.arguments import add_access
from edge_broker.access.user_arguments import add_users
from edge_broker.compiled import walker_name, why_not_compiled
from edge_broker.errors import StorageFault
from edge_broker.tools.arguments import add_tools

EXAMPLE = """examples:
  edge-broker serve --data-dir /var/lib/edge-broker --listen 127.0.0.1:9092
  edge-broker serve --data-dir data --listen 0.0.0.0:9092 --advertise pi-3.local:9092 \\
      --metrics 127.0.0.1:9101 --set edge.network.trusted=true
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
    serve.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="where clients connect; port 0 picks a free one; short for one PLAINTEXT listener, see the key listeners",
    )
    serve.add_argument(
        "--advertise", type=not_empty, metavar="HOST:PORT", help="the address that clients are told; default: --listen"
    )
    serve.add_argument(
        "--metrics", type=not_empty, metavar="HOST:PORT", help="serve /metrics and /health here; default: off"
    )
    serve.add_argument("--config", type=not_empty, metavar="FILE.toml", help="configuration keys as TOML")
    serve.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="one configuration key; repeatable, wins over --config",
    )
    serve.set_defaults(run=_serve)
    keys = commands.add_parser(
        "keys", help="list the configuration keys", epilog="example:\n  edge-broker keys", formatter_class=shape
    )
    keys.set_defaults(run=_keys)
    _add_log(commands)
    _add_ledger(commands)
    add_users(commands)
    add_access(commands)
    add_tools(commands)
    return root


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


def _tool(options: argparse.Namespace) -> int:
    from edge_broker.doctor.commands import run  # noqa: PLC0415 - --help needs none of it

    return run(options)


def _serve(options: argparse.Namespace) -> int:
    from edge_broker.config import Endpoint, read_config  # noqa: PLC0415 - --help needs none of it
    from edge_broker.ensemble import check_ensemble  # noqa: PLC0415
    from edge_broker.listeners import read_listeners  # noqa: PLC0415

    _check_data_dir(options.data_dir)
    text = _read(options.config) if options.config else None
    config = read_config(text, options.config or "", options.set)
    check_ensemble(config)
    listen = Endpoint(*parse_endpoint("--listen", options.listen)) if options.listen is not None else None
    advertise = Endpoint(*parse_endpoint("--advertise", options.advertise)) if options.advertise else None
    metrics = Endpoint(*parse_endpoint("--metrics", options.metrics)) if options.metrics else None
    listeners = read_listeners(config, listen, advertise)

    from edge_broker.app import Options, run  # noqa: PLC0415

    return run(Options(options.data_dir, listeners, metrics, config))


def _check_data_dir(path: str) -> None:
    is_there = os.path.isdir(path)
    if not is_there and os.path.lexists(path):
        raise ConfigurationError(f"--data-dir {path} is no directory: name another one, or move it away")
    place = path if is_there else os.path.dirname(os.path.abspath(path))
    if os.path.isdir(place) and not os.access(place, os.W_OK | os.X_OK) and not os.statvfs(place).f_flag & os.ST_RDONLY:
        what = "written" if is_there else f"made in {place}"
        raise ConfigurationError(
            f"--data-dir {path} cannot be {what} by this user: give it the right to, or name a directory of its own"
        )


def _keys(_options: argparse.Namespace) -> int:
    from edge_broker.config import KEYS  # noqa: PLC0415
    from edge_broker.settings import TOPIC_KEYS, as_text  # noqa: PLC0415

    width = max(map(len, (*KEYS, *TOPIC_KEYS)))
    for title, keys in (("of the broker, with --set or --config", KEYS), ("of a topic, by its clients", TOPIC_KEYS)):
        print(f"{title}:")
        for key in keys.values():
            print(f"{key.name:<{width}}  {as_text(key.default):>20}  {key.doc}")
    return 0


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise ConfigurationError(f"--config {path} cannot be read: {reason(error)}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"--config {path} is not UTF-8 at byte {error.start}: save it as UTF-8") from None


def parse_endpoint(option: str, text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT` (an IPv6 address in brackets); ConfigurationError names the option."""
    from drupelet.addresses import host_and_port  # noqa: PLC0415 - --help needs none of it

    try:
        return host_and_port(text)
    except ValueError:
        raise ConfigurationError(f"{option} is {text!r}; write HOST:PORT, for example 127.0.0.1:9092") from None


if __name__ == "__main__":
    sys.exit(main())
