"""README.md's first topic as a newcomer follows it: every command as it stands, in one shell, and what it prints.

The first block, which installs, is left out: the commands of this environment run. A free port replaces 9092.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.ports import free_port
from tests.support.waiting import CALL_S, Deadline, wait_until

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"^## A first topic.*?(?=^## )", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```sh\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
INSTALL, TAIL, BROKER = "python3 -m venv", "edge-broker tail greenhouse", "127.0.0.1:9092"
END = "end-of-block"


class Block(NamedTuple):
    """Commands of the page, and the lines that it says they print."""

    commands: str
    shown: list[str]


def blocks(page: str) -> list[Block]:
    """Return the blocks of the section, without the one that installs."""
    section = SECTION.search(page)
    assert section
    found = [Block(match[1], (match[2] or "").splitlines()) for match in BLOCK.finditer(section[0])]
    return [block for block in found if not block.commands.startswith(INSTALL)]


def is_printed(shown: list[str], printed: str) -> bool:
    """Return whether the lines are printed in this order; `…` is anything, and spaces may differ."""
    lines = iter(printed.splitlines())
    patterns = [r"\s+".join(".*" if word == "…" else re.escape(word) for word in line.split()) for line in shown]
    return all(any(re.fullmatch(pattern, line.strip()) for line in lines) for pattern in patterns)


class Shell:
    """A shell that keeps its folder, variables and background processes from one block to the next."""

    def __init__(self, home: Path) -> None:
        path = f"{Path(sys.executable).parent}:{os.defpath}"
        self.process = subprocess.Popen(
            ["bash", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=home,
            env={**os.environ, "HOME": str(home), "PATH": path},
            start_new_session=True,
        )

    def run(self, commands: str) -> str:
        """Run a block and return all that is printed until it ends, background processes included."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{commands}\necho {END}\n".encode())
        self.process.stdin.flush()
        printed, deadline = b"", Deadline(CALL_S)
        while not re.search(rf"^{END}$", printed.decode(), re.MULTILINE):
            deadline.check("the end of a block", printed.decode())
            if select.select([self.process.stdout], [], [], deadline.left_s)[0]:
                more = os.read(self.process.stdout.fileno(), 1 << 16)
                assert more, f"the shell has ended: {printed.decode()}"
                printed += more
        return printed.decode()

    def end(self) -> None:
        """Kill the shell and each process that a failed block left in its session."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


def follow(shell: Shell, commands: str, shown: list[str]) -> None:
    """Run a block until it prints what the page shows: once, but for the readers, which the page runs seconds later."""
    if commands.startswith(TAIL):
        wait_until(lambda: is_printed(shown, shell.run(commands)), CALL_S, f"{shown} from {commands}")
    else:
        printed = shell.run(commands)
        assert is_printed(shown, printed), printed


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.end()


def test_the_first_topic_is_as_the_page_shows_it(shell: Shell, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    steps = blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    assert [bool(step.shown) for step in steps] == [False, True, False, True, True]
    for step in steps:
        commands = step.commands.replace(BROKER, address).replace(TAIL, f"{TAIL} --bootstrap {address}")
        follow(shell, commands, step.shown)
    logs = (tmp_path / "first/gateway.log").read_text() + (tmp_path / "first/broker.log").read_text()
    assert "stopped clean=True" in logs, logs


@pytest.mark.parametrize(
    ("shown", "printed", "is_there"),
    [
        (["… 0/0 … {}"], "2026 0/0    key  {}\n", True),
        (["… 0/0 … {}", "… 0/1 … {}"], "2026 0/0 key {}\n2026 0/1 key {}\n", True),
        (["… 0/0 … {}", "… 0/1 … {}"], "2026 0/1 key {}\n2026 0/0 key {}\n", False),
        (["greenhouse-0 2 holds"], "greenhouse-0 3 holds\n", False),
        ([], "anything\n", True),
    ],
)
def test_what_is_printed_is_compared_line_by_line(shown: list[str], printed: str, is_there: bool) -> None:
    assert is_printed(shown, printed) is is_there
