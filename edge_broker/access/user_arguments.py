"""The options of `edge-broker user`.

Contains: options, help. Does not contain: the commands themselves, which are imported once the options are known
to be good; an option for a password.
"""

from __future__ import annotations

import argparse
from typing import Any

from drupelet.command.arguments import not_empty, whole_number

ITERATIONS = 4096, 16384  # those of security/scram.py, which --help need not import
EXAMPLE = """examples:
  edge-broker user add gateway --data-dir data                                 asks for the password
  edge-broker user add gateway --data-dir data --password-file gateway.password
  pwgen 24 1 | tee gateway.password | edge-broker user add gateway --data-dir data
  edge-broker user list --data-dir data
  edge-broker user remove gateway --data-dir data
  edge-broker user restore --data-dir data                                     where /health says so

A broker may run meanwhile: what is changed holds within a second. Users log in by SCRAM-SHA-256, SCRAM-SHA-512 and
PLAIN on listeners of SASL_SSL (or SASL_PLAINTEXT); add for a user that is there changes its password, which ends no
connection. remove ends the user's connections. What a user may do then, edge-broker acl says.
list shows the log-ins at the broker of the directory by the user's present password, the last one to the day.
Of a board in a cluster it holds on all boards, once the broker of the directory runs and reaches ZooKeeper.
The password is asked for, or is the first line of --password-file or of the standard input.
exit status: 0 done, 1 failure, 2 bad usage
"""


def add_users(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command."""
    shape = argparse.RawDescriptionHelpFormatter
    text = "list, add and remove users in a data directory, also beside a running broker"
    user = commands.add_parser("user", help=text, description=text, epilog=EXAMPLE, formatter_class=shape)
    actions = user.add_subparsers(metavar="ACTION", required=True, dest="action")
    for name, text in (
        ("add", "add a user, or change the password of one"),
        ("list", "list users, by which mechanisms they log in, and when they first and last did"),
        ("remove", "remove a user and end its connections"),
        ("restore", "make what this board has known the users and ACLs of its cluster, whose own are lost or damaged"),
    ):
        action = actions.add_parser(name, help=text, description=text, epilog=EXAMPLE, formatter_class=shape)
        if name in ("add", "remove"):
            action.add_argument("name", type=not_empty, metavar="NAME", help="the user, as User:NAME is its principal")
        action.add_argument(
            "--data-dir", type=not_empty, required=True, metavar="DIR", help="the broker's data directory"
        )
        if name == "add":
            action.add_argument(
                "--password-file", type=not_empty, metavar="FILE", help="a file with the password on its first line"
            )
            action.add_argument("--password", type=_no_argument, help=argparse.SUPPRESS)
            action.add_argument(
                "--iterations",
                type=whole_number(*ITERATIONS),
                default=ITERATIONS[0],
                metavar="N",
                help="of the hash, {} (default) to {}".format(*ITERATIONS),
            )
        if name == "list":
            action.add_argument("--json", action="store_true", help="one JSON object per line")
        action.set_defaults(run=_run)


def _no_argument(_password: str) -> None:
    """Refuse a password where every user of this host could read it, without repeating it."""
    raise argparse.ArgumentTypeError(
        "is no option, as every user of this host can read arguments: leave it out to be asked, or use --password-file"
    )


def _run(options: argparse.Namespace) -> int:
    from edge_broker.access.users import run  # noqa: PLC0415 - --help needs none of it

    return run(options)
