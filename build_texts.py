"""Makes what a wheel has and a checkout has not: shell completion and man pages out of the parsers, and the commit.

    python build_texts.py OUT      writes OUT/commit.txt, date included, and OUT/share/…, as a virtual environment has

| in share | from |
|---|---|
| bash-completion/completions/PROGRAM, zsh/site-functions/_PROGRAM | shtab |
| man/man1/PROGRAM.1 | the pages below |

All of it is made when a wheel is built (build_walker.py), so that a board imports nothing for it and a Tab starts no
Python there. argparse-manpage was weighed for the pages: it breaks usage lines, and leaves out the examples.
What a value is, is told by its metavar: DIR is a folder, FILE, IMAGE and SRC are files.
Must never come in: an option or a command by its name. Source: man-pages(7), groff_man(7).
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import shtab

ROOT = Path(__file__).parent
FOLDERS = re.compile(r"\bDIR\b")
FILES = re.compile(r"\b(FILE|IMAGE|SRC|DEVICE)\b")
KEPT_IN = {  # what the programs read and write without being told where, and where the Ansible roles tell them
    "edge-broker": {
        "/etc/drupelet/broker.toml": "configuration keys, on a board of the Ansible role",
        "/var/lib/edge-broker": "the data directory there",
    },
    "edge-gateway": {
        "/etc/drupelet/gateway.toml": "the configuration, on a board of the Ansible role",
    },
    "edge-mirror": {
        "/etc/drupelet/mirror.toml": "the configuration, on a board of the Ansible role",
    },
    "edge-spark": {
        "$XDG_STATE_HOME/drupelet/spark/JOB": "a job's checkpoint, where --checkpoint names no other",
        "$SPARK_CONF_DIR/spark-defaults.conf": "further settings of Spark",
    },
    "edge-board": {
        "/proc, /sys, /etc": "what is read, below --root",
    },
}
STATUSES = {
    "0": "done",
    "1": "failed, or the output could not be written",
    "2": "bad usage or configuration",
    "130": "Ctrl-C, where it does not mean a clean stop",
    "141": "who read the output has gone",
}


def main(out: Path) -> None:
    """Write all of it."""
    sys.path.insert(0, str(ROOT))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    from drupelet.installation import commit, commit_date  # noqa: PLC0415 - the checkout's, not an installed one

    date = commit_date(str(ROOT))
    write(out / "commit.txt", f"{commit()}\n" + ("" if date is None else f"{date}\n"))
    for program, place in project["scripts"].items():
        parser = importlib.import_module(f"{place.partition('.')[0]}.cli").parser()
        mark(parser)
        share = out / "share"
        write(share / "bash-completion/completions" / program, shtab.complete(parser, "bash"))
        write(share / "zsh/site-functions" / f"_{program}", shtab.complete(parser, "zsh"))
        write(share / "man/man1" / f"{program}.1", page(parser, project["version"], sorted(project["scripts"])))


def write(path: Path, text: str) -> None:
    """Write a file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


# --- completion ------------------------------------------------------------------------------------------------------


def mark(parser: argparse.ArgumentParser) -> None:
    """Tell shtab what is a file and what a folder, in every command."""
    for action in parser._actions:
        metavar = str(action.metavar)
        if action.choices is None and action.nargs != 0 and (FOLDERS.search(metavar) or FILES.search(metavar)):
            action.complete = shtab.DIRECTORY if FOLDERS.search(metavar) else shtab.FILE  # type: ignore[attr-defined]
    for command in commands_of(parser).values():
        mark(command)


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands of a parser; empty where it has none."""
    found = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return next((dict(action.choices) for action in found), {})


# --- man pages -------------------------------------------------------------------------------------------------------


def page(parser: argparse.ArgumentParser, version: str, programs: list[str]) -> str:
    """The man page of a program."""
    name, text = parser.prog, (parser.description or "").rstrip(".")
    leaves = list(leaves_of(parser, ""))
    lines = [
        f'.TH {roff(name.upper())} 1 "" "Drupelet {version}" "Drupelet"',
        ".SH NAME",
        f"{roff(name)} \\- {roff(text[:1].lower() + text[1:])}",
    ]
    lines.append(".SH SYNOPSIS")
    for leaf, _ in leaves:
        lines += synopsis(leaf)
    lines += [*synopsis(parser, *options_of(parser)), ".SH DESCRIPTION", roff(f"{text}.")]
    lines.append(".SH COMMANDS")
    for leaf, summary in leaves:
        lines += [f".SS {roff(leaf.prog.removeprefix(f'{name} '))}", roff(sentence(leaf.description or summary))]
        for action in (*places_of(leaf), *(each for each in options_of(leaf) if not _is_help(each))):
            lines += entry(leaf, action)
    lines.append(".SH OPTIONS")
    for action in options_of(parser):
        lines += entry(parser, action)
    lines.append(".SH EXIT STATUS")
    for status, meaning in STATUSES.items():
        lines += [".TP", bold(status), roff(meaning)]
    lines.append(".SH FILES")
    for file, meaning in KEPT_IN[name].items():
        lines += [".TP", italic(file), roff(meaning)]
    lines += [".SH EXAMPLES", *examples(parser, *(leaf for leaf, _ in leaves)), ".SH SEE ALSO"]
    lines.append(",\n".join(f"{bold(other)}(1)" for other in programs if other != name))
    return "\n".join(lines) + "\n"


def leaves_of(parser: argparse.ArgumentParser, summary: str) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """The commands that have no commands of their own, each with its line in --help."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest: each.help or "" for each in action._choices_actions}
            for name, command in action.choices.items():
                yield from leaves_of(command, helps.get(name, ""))
            return
    yield parser, summary


def options_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """What is written with a dash."""
    return [each for each in parser._actions if each.option_strings and each.help != argparse.SUPPRESS]


def _is_help(action: argparse.Action) -> bool:
    return isinstance(action, argparse._HelpAction)


def places_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """What is written without one."""
    return [each for each in parser._actions if not each.option_strings and each.help != argparse.SUPPRESS]


def synopsis(parser: argparse.ArgumentParser, *only: argparse.Action) -> list[str]:
    """How a command is written."""
    words = []
    for action in only or (*options_of(parser), *places_of(parser)):
        if _is_help(action):
            continue
        word = " ".join(
            filter(None, (bold(action.option_strings[-1]) if action.option_strings else "", value_of(action)))
        )
        required = action.required if action.option_strings else action.nargs != "?"
        words.append(word if required else f"[{word}]")
    return [".SY " + roff(parser.prog).replace(" ", "\\ "), *words, ".YS"]


def entry(parser: argparse.ArgumentParser, action: argparse.Action) -> list[str]:
    """An option or argument with what it means."""
    if _is_help(action):
        return [".TP", bold("-h, --help"), "show a help message and exit; every command takes it"]
    names = ", ".join(map(bold, action.option_strings))
    text = (action.help or "") % {**vars(action), "prog": parser.prog}
    if action.choices is not None and action.metavar is None:
        text = f"{text}: {', '.join(map(str, action.choices))}" if text else ", ".join(map(str, action.choices))
    return [".TP", " ".join(filter(None, (names, value_of(action)))), roff(text)]


def value_of(action: argparse.Action) -> str:
    """The value that an action takes, as --help names it; empty for none."""
    if action.nargs == 0:
        return ""
    own = (action.option_strings or [action.dest])[-1].lstrip("-").upper()
    name = own if action.metavar is None else str(action.metavar)
    return f"[{italic(name)}]" if action.nargs == "?" and action.option_strings else italic(name)


def examples(*parsers: argparse.ArgumentParser) -> list[str]:
    """What stands below --help, each once, as it stands there."""
    lines: list[str] = []
    for text in dict.fromkeys(parser.epilog for parser in parsers if parser.epilog):
        body = re.sub(r"^examples?: *\n?", "", text)
        lines += [".PP", ".EX", *(roff(line.removeprefix("  ")) for line in body.rstrip().splitlines()), ".EE"]
    return lines


def sentence(text: str) -> str:
    """A line of --help as a sentence."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def bold(text: str) -> str:
    """In bold: what is written as it stands."""
    return f"\\fB{escaped(text)}\\fR"


def italic(text: str) -> str:
    """In italics: what is replaced."""
    return f"\\fI{escaped(text)}\\fR"


def roff(text: str) -> str:
    """A line of text that no character of is a request."""
    line = escaped(text)
    return f"\\&{line}" if line[:1] in (".", "'") else line


def escaped(text: str) -> str:
    """Text whose characters mean themselves: dashes can be copied, backslashes stay."""
    return text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("'", "\\(aq")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
