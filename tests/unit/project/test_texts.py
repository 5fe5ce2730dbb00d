"""Completion as bash and zsh do it and man pages as man shows them, each against the parser it was made from."""

from __future__ import annotations

import argparse
import importlib
import os
import pty
import select
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import build_texts
from spark.catalogue import SUMMARIES as JOBS
from tests.support import runtimes

ROOT = Path(__file__).parents[3]
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "OPTIONS", "EXIT STATUS", "FILES", "EXAMPLES", "SEE ALSO"]
ASK_BASH = """
. "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
function=$(complete -p "$1" | sed -n 's/.* -F \\([^ ]*\\) .*/\\1/p')
"$function" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
SHELL_S = 60.0


def parser_of(program: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = importlib.import_module(f"{SCRIPTS[program].partition('.')[0]}.cli").parser()
    return parser


def every(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for command in build_texts.commands_of(parser).values():
        yield from every(command)


def make(out: Path) -> Path:
    subprocess.run([sys.executable, ROOT / "build_texts.py", out], check=True, cwd=out.parent)
    return out


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("made") / "texts")


def bash(texts: Path, *words: str, cwd: Path = ROOT) -> list[str]:
    script = texts / "share/bash-completion/completions" / words[0]
    command = ["bash", "--norc", "-c", ASK_BASH, "bash", script, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=cwd).stdout.split()


def zsh(texts: Path, typed: str, wanted: str) -> str:
    """What an interactive zsh shows once `typed`, with a Tab in it, has brought `wanted`, or nothing more comes."""
    shell, terminal = pty.fork()
    if shell == 0:
        home = {"HOME": str(texts), "ZDOTDIR": str(texts), "TERM": "dumb", "PATH": os.defpath, "LC_ALL": "C.UTF-8"}
        os.execve(runtimes.zsh(), ["zsh", "-f", "-i"], home)
    try:
        folder = texts / "share/zsh/site-functions"
        os.write(terminal, f"fpath=({folder} $fpath); autoload -U compinit; compinit -u -D; echo rea''dy\n".encode())
        read_until(terminal, "ready\r\n")
        os.write(terminal, typed.encode())
        return read_until(terminal, wanted)
    finally:
        os.close(terminal)
        os.kill(shell, 9)
        os.waitpid(shell, 0)


def read_until(terminal: int, wanted: str) -> str:
    shown, until = "", time.monotonic() + SHELL_S
    while wanted not in shown and time.monotonic() < until:
        if select.select([terminal], [], [], 0.2)[0]:
            shown += os.read(terminal, 65536).decode(errors="replace")
    return shown


@pytest.mark.parametrize("program", SCRIPTS)
def test_bash_offers_every_command_and_option(texts: Path, program: str) -> None:
    for parser in every(parser_of(program)):
        words = parser.prog.split()
        assert set(bash(texts, *words, "")) >= set(build_texts.commands_of(parser))
        offered = {
            name
            for name, option in parser._option_string_actions.items()
            if name.startswith("--") and option.help != argparse.SUPPRESS
        }
        assert set(bash(texts, *words, "--")) == offered


@pytest.mark.parametrize("program", SCRIPTS)
def test_bash_offers_every_choice_of_an_option(texts: Path, program: str) -> None:
    for parser in every(parser_of(program)):
        for action in parser._actions:
            if action.option_strings and action.choices:
                words = [*parser.prog.split(), action.option_strings[-1]]
                assert bash(texts, *words, "") == list(map(str, action.choices))


@pytest.mark.parametrize("command", ["run", "list"])
def test_bash_offers_the_jobs_of_spark(texts: Path, command: str) -> None:
    assert set(bash(texts, "edge-spark", command, "")) >= set(JOBS)
    assert bash(texts, "edge-spark", command, "al") == ["alarms"]


def test_bash_offers_files_and_folders_where_they_are_wanted(texts: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data.toml").touch()
    assert bash(texts, "edge-broker", "serve", "--data-dir", "da", cwd=tmp_path) == ["data"]
    assert "data.toml" in bash(texts, "edge-gateway", "check", "--config", "da", cwd=tmp_path)
    assert bash(texts, "edge-board", "flash", "data.", cwd=tmp_path) == ["data.toml"]


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("edge-broker led\t", "edge-broker ledger "),
        ("edge-broker log du\t", "edge-broker log dump "),
        ("edge-broker serve --data-\t", "edge-broker serve --data-dir "),
        ("edge-gateway mosq\t", "edge-gateway mosquitto-conf "),
        ("edge-mirror run --policy id\t", "--policy identity "),
        ("edge-spark work\t", "edge-spark worker "),
        ("edge-board show --mock pi_z\t", "--mock pi_zero_2w "),
    ],
)
def test_zsh_completes_what_was_begun(texts: Path, typed: str, wanted: str) -> None:
    shown = zsh(texts, typed, wanted)
    assert wanted in shown


@pytest.mark.parametrize("program", SCRIPTS)
def test_a_man_page_has_every_command_and_option_and_no_mistake(texts: Path, program: str) -> None:
    page = texts / f"share/man/man1/{program}.1"
    environment = {**os.environ, "MANWIDTH": "300", "LC_ALL": "C.UTF-8"}
    command = [runtimes.man(), "--warnings=w", "--local-file", "--pager=cat", page]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stderr == ""
    shown = done.stdout
    assert [line for line in shown.splitlines() if line in SECTIONS] == SECTIONS
    assert f"{program} - " in shown
    for parser in every(parser_of(program)):
        assert all(option in shown for option in parser._option_string_actions)
        assert parser.prog in shown
    for line in (parser_of(program).epilog or "").splitlines():
        assert line.strip().removeprefix("examples:").removeprefix("example:").strip() in shown


def test_the_same_parsers_give_the_same_bytes(texts: Path, tmp_path: Path) -> None:
    again = make(tmp_path / "texts")
    done = subprocess.run(["diff", "-r", texts, again], capture_output=True, text=True, check=False)
    assert done.stdout == ""


def test_every_page_says_where_things_are_kept() -> None:
    assert set(build_texts.KEPT_IN) == set(SCRIPTS)
    assert shutil.which("bash")
