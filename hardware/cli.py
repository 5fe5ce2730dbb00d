"""The command `edge-board`: show a board and its health, as a table or as JSON; write its card.

Contains: arguments, output, exit status. Does not contain: the steps of `flash` (`flash.command`).
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from drupelet.command.arguments import Parser, path
from drupelet.command.command_line import run as run_command
from drupelet.errors import ConfigurationError
from hardware import JSON
from hardware.board import read_board
from hardware.flash.arguments import add_flash
from hardware.mock import mock_names, write_mock
from hardware.problems import FIELDS, Status, check, find_problems, unknown_fields, unknown_texts
from hardware.smart import BRIDGE_TYPES
from hardware.table import write

CPU_INTERVAL_S = 0.2
SMART_UNASKED = "not asked: it needs root and can reset some USB bridges; ask with --smart"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: 0 done (or healthy), 1 something is wrong with the board, 2 bad usage.

    With --check the statuses are a monitoring plugin's, where 2 is CRITICAL: bad usage is 3, UNKNOWN, there.
    """
    words = sys.argv[1:] if arguments is None else arguments
    trouble = Status.UNKNOWN if "--check" in words else None
    return run_command("edge-board", lambda: run(words), extra="hardware", trouble=trouble)


def run(arguments: Sequence[str]) -> int:
    """Run the command."""
    parsed = parser().parse_args(arguments)
    if "flash" in parsed:
        from hardware.flash.command import flash  # noqa: PLC0415 - a board itself needs none of it

        return flash(parsed)
    with chosen_root(parsed) as root:
        status: int = parsed.command(root, parsed)
    return status


def parser() -> Parser:
    """Describe the command line."""
    root = Parser(
        prog="edge-board",
        description="Tell what a board is and how it is doing; write its card.",
        epilog="example: edge-board show",
    )
    root.add_version()
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    show = commands.add_parser("show", help="model, memory, storage, clock", epilog="example: edge-board show --json")
    show.set_defaults(command=show_board)
    add_health(commands.add_parser("health", help="load, heat, supply, wear, links, clock trust; and what is wrong"))
    add_flash(commands.add_parser("flash", help="write an image to a card, ready for its first boot"))
    show.add_argument("--json", action="store_true", help=JSON_HELP)
    add_place(show)
    return root


JSON_HELP = "one JSON object instead of a table"


def add_health(command: argparse.ArgumentParser) -> None:
    """Describe `edge-board health`."""
    command.set_defaults(command=show_health)
    command.epilog = "example: edge-board health --check"
    command.description = "Tell how the board is doing; exit status 0 if nothing is wrong, 1 if something is, 2 usage."
    form = command.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help=JSON_HELP)
    form.add_argument(
        "--check",
        action="store_true",
        help="one line for Nagios, Icinga and others; exit status 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN or bad usage",
    )
    command.add_argument(
        "--ignore",
        action="append",
        default=[],
        choices=FIELDS,
        metavar="FIELD",
        help=f"no problem: {', '.join(FIELDS)}",
    )
    command.add_argument(
        "--smart",
        nargs="?",
        const="auto",
        choices=BRIDGE_TYPES,
        metavar="TYPE",
        help="ask NVMe and USB disks for SMART, as root, which can reset some USB bridges; "
        f"TYPE of the bridge where smartctl does not know it: {', '.join(BRIDGE_TYPES[1:])}",
    )
    add_place(command)


def add_place(command: argparse.ArgumentParser) -> None:
    """Describe the arguments that choose the machine."""
    place = command.add_mutually_exclusive_group()
    place.add_argument("--root", type=path, default=Path("/"), metavar="DIR", help="read another machine's files")
    place.add_argument("--mock", choices=mock_names(), help="read a board that comes with this package")


@contextmanager
def chosen_root(parsed: argparse.Namespace) -> Iterator[Path]:
    """Yield the tree to read: the running machine, a directory, or a mock board while it is read."""
    if parsed.mock is None:
        if not parsed.root.is_dir():
            raise ConfigurationError(f"--root {parsed.root} is no directory: name one with another machine's files")
        yield parsed.root
        return
    with tempfile.TemporaryDirectory() as directory:
        yield write_mock(parsed.mock, Path(directory))


def show_board(root: Path, parsed: argparse.Namespace) -> int:
    """Print the description of the board."""
    write(read_board(root), parsed.json)
    return 0


def show_health(root: Path, parsed: argparse.Namespace) -> int:
    """Print the board's health and its problems. An unknown field is no problem."""
    from hardware.health import read_health  # noqa: PLC0415 - psutil is not needed to show a board
    from hardware.silence import silent_fields  # noqa: PLC0415 - as above

    health = read_health(root, cpu_interval_s=CPU_INTERVAL_S, smart=parsed.smart)
    silent = silent_fields(health, root)
    if parsed.check:
        status, line = check(health, parsed.ignore, silent)
        print(line)
        return status
    found = find_problems(health, parsed.ignore)
    first: dict[str, JSON] = {"problems": [problem.text for problem in found]}
    if not parsed.json:
        first |= {problem.field: health[problem.field] for problem in found}
        health["smart"] = SMART_UNASKED if health["smart"] is None else health["smart"]
    write({**first, **{name: value for name, value in health.items() if name not in first}}, parsed.json)
    if not parsed.json and (fields := unknown_fields(health, parsed.ignore)):
        print(f"not judged, as this machine does not tell: {', '.join(fields)}")
    if not parsed.json:
        for text in unknown_texts(silent, parsed.ignore):
            print(f"UNKNOWN: {text}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
