"""The options of `edge-broker acl`.

Contains: options, help. Does not contain: the commands themselves, which are imported once the options are known
to be good.
"""

from __future__ import annotations

import argparse
from typing import Any

from drupelet.command.arguments import not_empty, quote_shortened

EXAMPLE = """examples:
  edge-broker acl add --data-dir data --allow User:gateway --producer --topic readings --prefixed
  edge-broker acl add --data-dir data --allow User:mirror --consumer --topic readings --prefixed --group edge-mirror
  edge-broker acl add --data-dir data --allow User:ops --operation describe --operation alter --cluster
  edge-broker acl add --data-dir data --deny User:guest --operation all --topic '*' --host 10.0.0.9
  edge-broker acl list --data-dir data
  edge-broker acl list --data-dir data --principal User:gateway --json
  edge-broker acl remove --data-dir data --principal User:guest

A broker may run meanwhile: what is added and removed holds within a second, in a cluster on all
boards. --topic '*' means every topic.
--producer: write, describe and create, of topics. --consumer: read and describe, of topics; read, of groups.
ACLs have an effect where authorizer.class.name names Kafka's StandardAuthorizer; they are those of kafka-acls.
exit status: 0 done, 1 failure, 2 bad usage
"""
OPERATIONS = (
    "all", "read", "write", "create", "delete", "alter", "describe", "cluster_action", "describe_configs",
    "alter_configs", "idempotent_write", "two_phase_commit",
)  # fmt: skip


def add_access(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command."""
    shape = argparse.RawDescriptionHelpFormatter
    text = "list, add and remove rights in a data directory, also beside a running broker"
    acl = commands.add_parser("acl", help=text, description=text, epilog=EXAMPLE, formatter_class=shape)
    actions = acl.add_subparsers(metavar="ACTION", required=True, dest="action")
    for name, text in (
        ("add", "give rights with --allow, take them with --deny"),
        ("list", "list rights, all or those that are named"),
        ("remove", "remove the rights that are named"),
    ):
        action = actions.add_parser(name, help=text, description=text, epilog=EXAMPLE, formatter_class=shape)
        action.add_argument(
            "--data-dir", type=not_empty, required=True, metavar="DIR", help="the broker's data directory"
        )
        _add_resources(action)
        if name == "add":
            _add_whom(action)
        else:
            action.add_argument(
                "--principal", type=_principal, metavar="USER", help="rights of this principal alone: User:NAME"
            )
            action.add_argument("--json", action="store_true", help="one JSON object per line")
        if name == "remove":
            action.add_argument("--all", action="store_true", help="remove every right there is")
        action.set_defaults(run=_run)


def _add_resources(action: argparse.ArgumentParser) -> None:
    for name, meaning in (
        ("topic", "a topic; repeatable"),
        ("group", "a consumer group; repeatable"),
        ("transactional-id", "a transactional id; repeatable"),
    ):
        action.add_argument(f"--{name}", type=not_empty, action="append", default=[], metavar="NAME", help=meaning)
    action.add_argument("--cluster", action="store_true", help="the cluster itself")
    action.add_argument("--prefixed", action="store_true", help="the names are beginnings of names")


def _add_whom(action: argparse.ArgumentParser) -> None:
    for name, meaning in (("allow", "this principal may"), ("deny", "this principal may not, whatever else it may")):
        action.add_argument(
            f"--{name}",
            type=_principal,
            action="append",
            default=[],
            metavar="USER",
            help=f"{meaning}: User:NAME",
        )
    action.add_argument(
        "--operation",
        action="append",
        default=[],
        type=str.lower,
        choices=OPERATIONS,
        metavar="OPERATION",
        help=f"what: {', '.join(OPERATIONS)}",
    )
    action.add_argument("--producer", action="store_true", help="what a producer needs")
    action.add_argument("--consumer", action="store_true", help="what a consumer needs")
    action.add_argument(
        "--host",
        type=_address,
        action="append",
        default=[],
        metavar="ADDRESS",
        help="from here alone (default: anywhere)",
    )


def _principal(text: str) -> str:
    """A type of options: a principal; the only kind of one here is User, as Kafka writes it."""
    kind, _, name = text.partition(":")
    if kind != "User" or not name:
        raise argparse.ArgumentTypeError(f"is {quote_shortened(text)}: write User:NAME, or User:* for everybody")
    return text


def _address(text: str) -> str:
    """A type of options: what a client's address is compared with; a name would fit none, and deny nothing."""
    import ipaddress  # noqa: PLC0415 - --help needs none of it

    try:
        return text if text == "*" else str(ipaddress.ip_address(text))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"is {quote_shortened(text)}: write an address, such as 10.0.0.9, as names are not looked up"
        ) from None


def _run(options: argparse.Namespace) -> int:
    from edge_broker.access.acls import run  # noqa: PLC0415 - --help needs none of it

    return run(options)
