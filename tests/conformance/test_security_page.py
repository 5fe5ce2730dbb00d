"""SECURITY.md as a stranger follows it: every command as it stands, in a home of its own, and what it prints.

Put in place of the page's words: his machine's name, as the page says; the loopback address and a free port, as tests
stay on this machine; Kafka's start scripts, which come with its tarball, by calls of the same classes. He types at
prompts what his files say. What is printed is compared in shape: numbers and spaces may differ, `…` is anything.
"""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support import runtimes
from tests.support.conformance.page_blocks import PageBlock, blocks, shape
from tests.support.java_tools import CONSUMER, QUICK_START, QUIET
from tests.support.ports import free_port
from tests.support.processes import Process
from tests.support.waiting import CALL_S, Deadline, wait_until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text()
SERVE = "edge-broker serve "
PROMPT = re.compile(r"Password of (\w+): $|Once more: $")
STATE = 'trap \'echo "cd $PWD; umask $(umask)" >"$HOME/terminal"\' EXIT; . "$HOME/terminal"; set -e\n'


class Terminal:
    """A terminal of the stranger's; its folder and umask stay from one block to the next."""

    def __init__(self, home: Path) -> None:
        self.environment = {"HOME": str(home), "PATH": f"{home}/bin:{Path(sys.executable).parent}:{os.defpath}"}
        self.state = home / "terminal"
        self.state.write_text(f"cd {home}; umask 022")

    def run(self, commands: str) -> tuple[int, str]:
        """Exit status and everything that is printed."""
        child, terminal = pty.fork()
        if child == 0:
            os.execvpe("bash", ["bash", "--norc", "-c", STATE + commands], {**os.environ, **self.environment})
        try:
            text = self._until_the_end(terminal)
        finally:
            os.close(terminal)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return status, text.replace("\r\n", "\n")

    def _until_the_end(self, terminal: int) -> str:
        text, said, user, deadline = "", 0, "", Deadline(CALL_S)
        while True:
            deadline.check("the end of a command", text)
            if not select.select([terminal], [], [], deadline.left_s)[0]:
                continue
            try:
                text += os.read(terminal, 1 << 16).decode(errors="replace")
            except OSError:  # the last one that had it has gone
                return text
            if prompt := PROMPT.search(text, said):
                user, said = prompt[1] or user, len(text)
                os.write(terminal, f"the password of {user}\n".encode())


def check(block: PageBlock, printed: str) -> None:
    """What the page shows must be printed, in its order."""
    lines = iter([line.strip() for line in printed.splitlines()])
    for wanted in block.shown.splitlines():
        assert any(re.fullmatch(shape(wanted), line) for line in lines), (
            f"SECURITY.md, line {block.line}: {wanted!r} is not printed where the page shows it:\n{printed}"
        )


def is_refused(block: PageBlock) -> bool:
    """Whether the page shows that the last command of a block is refused."""
    return bool(re.match(r"edge-broker: |…Broker: ", (block.shown.splitlines() or [""])[-1]))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A new user's, with Kafka's start script for its console consumer."""
    script = tmp_path / "bin/kafka-console-consumer.sh"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {shlex.join([*runtimes.kafka_java(*QUICK_START, QUIET), CONSUMER])} "$@"\n')
    script.chmod(0o755)
    runtimes.kcat()
    runtimes.openssl()
    return tmp_path


def replaced(text: str, words: Mapping[str, str]) -> str:
    for old, new in words.items():
        text = text.replace(old, new)
    return text


class Stranger:
    """Who follows the page, with the broker in a terminal of its own once the page starts it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.terminal = Terminal(home)
        self.broker: Process | None = None
        self.changes = 0

    def follow(self, block: PageBlock) -> None:
        """Do what a block says, and look at what is printed."""
        if block.commands.startswith(SERVE):
            self._serve(block)
            return
        status, printed = self.terminal.run(block.commands)
        assert (status != 0) == is_refused(block), f"SECURITY.md, line {block.line}: {status}\n{printed}"
        check(block, printed)
        if self.broker is not None:
            self.changes += len(re.findall(r"^(?:added|removed): ", printed, re.MULTILINE))
            wait_until(lambda: self._seen() == self.changes, 20, "the broker to have seen what commands changed")

    def _serve(self, block: PageBlock) -> None:
        command = ["bash", "-c", f'. "$HOME/terminal"; exec {block.commands}']
        self.broker = Process(
            "serve", command, self.home, environment=self.terminal.environment, ready=block.shown.strip()
        )
        self.broker.start()
        self.terminal = Terminal(self.home)
        self.terminal.run("cd secured")

    def _seen(self) -> int:
        """How many users and ACLs commands have changed beside the broker, as it says itself."""
        assert self.broker is not None
        told = re.findall(r" (?:acls_added|acls_removed|users_changed)=(\d+)", self.broker.log_tail(1000))
        return sum(map(int, told))


def test_the_page_holds_from_the_first_line_to_the_last(home: Path) -> None:
    words = {"pi-1.local": "localhost", "0.0.0.0": "127.0.0.1", "9093": str(free_port())}
    stranger = Stranger(home)
    try:
        for block in blocks(replaced(PAGE, words)):
            stranger.follow(block)
        assert stranger.broker is not None
        assert "the password of" not in stranger.broker.log_tail(1000)
        stranger.broker.stop()
    finally:
        if stranger.broker is not None:
            stranger.broker.kill()


def test_the_certificates_of_the_page_are_believed_by_who_is_strict(tmp_path: Path) -> None:
    """Python from 3.13 on is: with OpenSSL's X509_STRICT it believes no CA that does not say what its key is for."""
    terminal = Terminal(tmp_path)
    for block in list(blocks(PAGE))[:2]:
        assert terminal.run(block.commands)[0] == 0
    status, printed = terminal.run("openssl verify -x509_strict -verify_hostname pi-1.local -CAfile ca.pem broker.pem")
    assert (status, printed.strip()) == (0, "broker.pem: OK")


def test_there_are_ten_commands() -> None:
    first, _, _ = PAGE.partition("## Next steps")
    assert re.findall(r"^\*\*(\d+)\.\*\*", first, re.MULTILINE) == [str(number) for number in range(1, 11)]
    assert len(list(blocks(first))) == 10


def test_every_test_that_the_page_names_is_there() -> None:
    names = set(re.findall(r"`(test_\w+?)(?:\.py)?`", PAGE))
    files = list((ROOT / "tests").rglob("test_*.py"))
    there = {file.stem for file in files} | {
        name for file in files for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)
    }
    assert names <= there, names - there
