"""The command `edge-board`: show what a board is and how it is doing, as a table or as JSON; write its card.

Here: arguments, output, exit status. What `flash` does is in `flash.command`.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from hardware import JSON
from hardware.board import read_board
from hardware.flash.arguments import add_flash
from hardware.mock import mock_names, write_mock

CPU_INTERVAL_S = 0.2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: 0 done (or healthy), 1 something is wrong with the board, 2 bad usage."""
    parsed = parser().parse_args(arguments)
    if "flash" in parsed:
        from hardware.flash.command import flash  # noqa: PLC0415 - a board itself needs none of it

        return flash(parsed)
    try:
        with chosen_root(parsed) as root:
            status: int = parsed.command(root, parsed.json)
    except ModuleNotFoundError as error:  # a broker-only installation
        print(
            f"edge-board: the Python package {error.name} is missing: pip install 'drupelet[hardware]'",
            file=sys.stderr,
        )
        return 2
    return status


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    root = argparse.ArgumentParser(
        prog="edge-board",
        description="Tell what a board is and how it is doing; write its card.",
        epilog="example: edge-board show",
    )
    root.add_argument("--version", action="version", version=f"%(prog)s {version('drupelet')}")
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    show = commands.add_parser("show", help="model, memory, storage, clock", epilog="example: edge-board show --json")
    show.set_defaults(command=show_board)
    health = commands.add_parser(
        "health",
        help="load, heat, supply, wear, clock trust; exit status 1 if something is wrong now",
        epilog="example: edge-board health --json",
    )
    health.set_defaults(command=show_health)
    add_flash(commands.add_parser("flash", help="write an image to a card, ready for its first boot"))
    for command in (show, health):
        command.add_argument("--json", action="store_true", help="one JSON object instead of a table")
        place = command.add_mutually_exclusive_group()
        place.add_argument("--root", type=Path, default=Path("/"), metavar="DIR", help="read another machine's files")
        place.add_argument("--mock", choices=mock_names(), help="read a board that comes with this package")
    return root


@contextmanager
def chosen_root(parsed: argparse.Namespace) -> Iterator[Path]:
    """Give the tree to read: the running machine, a directory, or a mock board for as long as it is read."""
    if parsed.mock is None:
        yield parsed.root
        return
    with tempfile.TemporaryDirectory() as directory:
        yield write_mock(parsed.mock, Path(directory))


def show_board(root: Path, as_json: bool) -> int:
    """Print what the board is."""
    write(read_board(root), as_json)
    return 0


def show_health(root: Path, as_json: bool) -> int:
    """Print how the board is doing; 1 if something is wrong now. What is unknown is not wrong."""
    from hardware.health import problems, read_health  # noqa: PLC0415 - psutil is not needed to show a board

    health = read_health(root, cpu_interval_s=CPU_INTERVAL_S)
    found: list[JSON] = [*problems(health)]
    write({**health, "problems": found}, as_json)
    return 1 if found else 0


def write(fields: dict[str, JSON], as_json: bool) -> None:
    """Print fields as one JSON object, or as a table with `unknown` for null."""
    if as_json:
        sys.stdout.write(json.dumps(fields, ensure_ascii=False, indent=2) + "\n")
        return
    rows = list(table(fields))
    width = max(len(name) for name, _ in rows)
    sys.stdout.writelines(f"{name:{width}}  {text}\n" for name, text in rows)


def table(fields: dict[str, JSON], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Flatten fields into rows: nested names are joined by a dot, list entries are numbered from 0."""
    for name, value in fields.items():
        nested = dict(enumerate(value)) if isinstance(value, list) else value
        if isinstance(nested, dict) and nested:
            yield from table({str(key): each for key, each in nested.items()}, f"{prefix}{name}.")
        else:
            yield prefix + name, text_of(value)


def text_of(value: JSON) -> str:
    """Say one value as a person would."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "unknown"
    return "none" if value in ([], {}) else str(value)


if __name__ == "__main__":
    sys.exit(main())
