"""Parse the arguments of every command: plain errors, the nearest name for a misspelt one, --version.

Does not contain: an option of one command; imports at module level that only an error or --version needs.
Source: https://docs.python.org/3/library/argparse.html; _WORDS has its messages, others stay unchanged.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from pathlib import Path

SHOWN_MAX = 60  # characters of the user's text
_CHOICE = re.compile(r"argument (\S+): invalid choice: (.*) \(choose from (.*)\)", re.DOTALL)
_WORDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"the following arguments are required: (.*)"), r"\1 is missing"),
    (re.compile(r"one of the arguments (.*) is required"), r"one of \1 is missing"),
    (re.compile(r"argument (\S+): expected (?:one|at least one) argument"), r"\1 needs a value"),
    (re.compile(r"argument (\S+): not allowed with argument (.*)"), r"\1 and \2 exclude each other"),
    (re.compile(r"argument (\S+): ignored explicit argument (.*)"), r"\1 takes no value, and was given \2"),
    (re.compile(r"ambiguous option: (\S+) could match (.*)"), r"\1 may be any of \2: write it in full"),
    (re.compile(r"argument (\S+): (.*)", re.DOTALL), r"\1 \2"),  # of the types below
)


class Parser(argparse.ArgumentParser):
    """An argument parser that reports an error in one sentence."""

    def __init__(self, *, formatter_class: Any = argparse.HelpFormatter, **named: Any) -> None:
        # argparse asks for the width by shutil, at each option, which brings bz2 and lzma, 0.6 MB.
        shaped: Any = partial(formatter_class, width=_columns() - 2)
        super().__init__(formatter_class=shaped, **named)

    def error(self, message: str) -> NoReturn:
        """End with status 2 and one sentence."""
        said = in_our_words(message)
        self.exit(2, f"{self.prog}: {said}{' See' if said.endswith('?') else '; see'} {self.prog} --help\n")

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse, and refuse unknown arguments: a misspelt option before a missing one, which it may stand for."""
        given = list(sys.argv[1:] if args is None else args)
        self._refuse_unknown(given)
        parsed, rest = super().parse_known_args(given, namespace)
        if rest:
            what = "there is no option" if rest[0].startswith("-") else "there is no place for the argument"
            self.error(f"{what} {quote_shortened(rest[0])}")
        return parsed, rest

    def add_version(self, detail: Callable[[], str] = str) -> None:
        """Add --version; `detail` follows the commit."""
        text = "show the version and the commit it was made from, and exit"
        self.add_argument("--version", action=_Version, detail=detail, help=text)

    def commands(self) -> dict[str, argparse.ArgumentParser]:
        """Return the parsers of its commands by their names; empty for a command that has none."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return dict(action.choices)
        return {}

    def options(self) -> list[str]:
        """Return all options that it accepts."""
        return list(self._option_string_actions)

    def _refuse_unknown(self, given: Iterable[str]) -> None:
        commands, options = self.commands(), self.options()
        for word in given:
            name = word.partition("=")[0]
            if word == "--":
                return
            if word.startswith("--") and " " not in word and not any(each.startswith(name) for each in options):
                self.error(f"there is no option {quote_shortened(name)}{_perhaps(name, options)}")
            if commands and not word.startswith("-"):
                if word not in commands:
                    choice = _perhaps(word, commands) or f": it has {_list(commands)}"
                    self.error(f"there is no command {quote_shortened(word)}{choice}")
                return


class _Version(argparse.Action):
    """Prints the version and the commit; reads them only on request."""

    def __init__(self, option_strings: Sequence[str], dest: str, detail: Callable[[], str], help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)
        self._detail = detail

    def __call__(self, parser: argparse.ArgumentParser, *_rest: object) -> NoReturn:
        from drupelet.installation import version_line  # noqa: PLC0415 - no start should pay for it

        print(f"{version_line(parser.prog)}{self._detail()}")
        parser.exit(0)


def add_command(commands: argparse._SubParsersAction[Any], name: str, text: str, epilog: str) -> Parser:
    """Add a command to those of a Parser; `text` is its line in the list, and as a sentence begins its own help."""
    shape = argparse.RawDescriptionHelpFormatter
    command: Parser = commands.add_parser(
        name, help=text, description=text[:1].upper() + text[1:], epilog=epilog, formatter_class=shape
    )
    return command


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """Return a type of options: a whole number within these bounds, both inclusive."""

    def number(text: str) -> int:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"is {quote_shortened(text)}: give a whole number from {least} to {most}")
        return int(text)

    return number


def not_empty(text: str) -> str:
    """Return a type of options: any text but none, and none that a file's name may not have."""
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError("is empty: give it a value")
    return text


def path(text: str) -> Path:
    """Return a type of options: the path of a file or folder; an empty one is no way to say the current folder."""
    from pathlib import Path  # noqa: PLC0415 - the broker does without

    return Path(not_empty(text))


def quote_shortened(text: str) -> str:
    """Return what the user wrote, in quotes and shortened."""
    return repr(text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…")


def in_our_words(message: str) -> str:
    """Return argparse's message in plain words; an unknown message stays as it is."""
    if chosen := _CHOICE.fullmatch(message):
        name, text, choices = chosen.groups()
        known = [choice.strip("'\"") for choice in choices.split(", ")]
        return f"{name} is {text}{_perhaps(text.strip(chr(39)), known) or ': it can be ' + _list(known)}"
    for pattern, words in _WORDS:
        if pattern.fullmatch(message):
            return _in_the_plural(pattern.sub(words, message))
    return message


def _in_the_plural(said: str) -> str:
    """`A, B is missing` with the verb and the conjunction of several."""
    names, is_missing, _ = said.partition(" is missing")
    if not is_missing or ", " not in names or names.startswith("one of"):
        return said
    return " and ".join(names.rsplit(", ", 1)) + " are missing"


def _perhaps(name: str, known: Iterable[str]) -> str:
    from drupelet.command.config_check import nearest  # noqa: PLC0415 - for a mistake alone

    found = nearest(name, known)
    return f"; did you mean {found}?" if found else ""


def _list(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def _columns() -> int:
    """Return the terminal's width as shutil.get_terminal_size says it: COLUMNS, then the terminal, then 80."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said):
        return int(said)
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80
