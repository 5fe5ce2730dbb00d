"""The former configuration of a service: kept during a change, and put back where the service fails with the new."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.ansible_files import ANSIBLE

SCRIPT = ANSIBLE / "roles/drupelet/files/former.py"
SYSTEMCTL = """#!/bin/sh
echo "$@" >>{folder}/asked
case $1 in
show) cat {folder}/state ;;
restart) [ ! -e {folder}/slow ] || exec sleep 60; cp {folder}/service.toml {folder}/in-use.toml ;;
esac
"""
JOURNALCTL = """#!/bin/sh
for word; do match=$word; done
cat "{folder}/journal.$match" 2>/dev/null
exit 0
"""


class Health(BaseHTTPRequestHandler):
    """A service that is well with the settings `good`, and that asks for a token where its file has one."""

    board: Path

    def do_GET(self) -> None:
        used = (self.board / "in-use.toml").read_text()
        token = (self.board / "token").read_text().strip() if "metrics_token_file" in used else ""
        if token and self.headers.get("Authorization") != f"Bearer {token}":
            status, said = 401, "show the token"
        else:
            status, said = (200, "ok") if "good" in used else (503, "the target does not answer")
        self.send_response(status)
        self.end_headers()
        self.wfile.write(said.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


class Board:
    """A folder with a service's files, and programs that stand for systemd's."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "opt"
        self.toml, self.unit, self.token = (folder / name for name in ("service.toml", "edge-x.service", "token"))
        handler = type("Here", (Health,), {"board": folder})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.toml.write_text(self.settings("good"))
        (folder / "in-use.toml").write_text(self.settings("good"))
        self.unit.write_text("[Service]\nMemoryMax=64M\n")
        for release in ("1-old", "2-new"):
            (self.root / release).mkdir(parents=True)
        (self.root / "current").symlink_to("1-old")
        self.state("active")
        for name, text in (("systemctl", SYSTEMCTL), ("journalctl", JOURNALCTL)):
            (folder / name).write_text(text.format(folder=folder))
            (folder / name).chmod(0o755)

    def settings(self, word: str, more: str = "") -> str:
        return f'metrics = "127.0.0.1:{self.server.server_port}"\nkind = "{word}"\n{more}'

    def state(self, word: str) -> None:
        (self.folder / "state").write_text(f"{word}\n")

    def ask(self, command: str, *words: str, service: str = "edge-x") -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-I", "-", command, str(self.root), service, *words],
            input=SCRIPT.read_text(), env=os.environ | {"PATH": f"{self.folder}:{os.environ['PATH']}"},
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def keep(self) -> dict[str, Any]:
        return self.ask("keep", str(self.toml), str(self.unit), str(self.token))

    @property
    def restarts(self) -> int:
        asked = self.folder / "asked"
        return asked.read_text().count("restart edge-x.service") if asked.exists() else 0


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    board = Board(tmp_path)
    thread = threading.Thread(target=board.server.serve_forever)
    thread.start()
    yield board
    board.server.shutdown()
    thread.join()
    board.server.server_close()


def use(board: Board, text: str) -> None:
    """Write new settings and start the service with them, as role and handler do."""
    board.toml.write_text(text)
    (board.folder / "in-use.toml").write_text(text)


def test_a_service_that_fails_with_new_files_gets_the_former_ones_back(board):
    board.toml.chmod(0o640)
    assert board.keep() == {"kept": True, "health": 200}
    use(board, board.settings("bad"))
    board.unit.write_text("[Service]\nMemoryMax=1M\n")
    (board.root / "current").unlink()
    (board.root / "current").symlink_to("2-new")
    answer = board.ask("restore", "20")
    assert answer["healthy"]
    assert answer["restored"] == [str(board.toml), str(board.unit), str(board.root / "current")]
    assert board.toml.read_text() == board.settings("good")
    assert board.toml.stat().st_mode & 0o777 == 0o640
    assert "MemoryMax=64M" in board.unit.read_text()
    assert os.readlink(board.root / "current") == "1-old"
    assert board.restarts == 1
    assert not list((board.root / "former").iterdir())


def test_files_that_are_as_before_leave_nothing_and_a_second_run_changes_nothing(board):
    for _ in range(2):
        board.keep()
        assert board.ask("compare") == {"changed": []}
        assert not list((board.root / "former").iterdir())
    assert board.restarts == 0


def test_a_file_that_a_run_wrote_which_ended_there_is_found_by_the_next_run(board):
    board.keep()
    board.toml.write_text(board.settings("bad"))
    # That run ended here: the service was never restarted. The next run writes the same file.
    board.keep()
    assert board.ask("compare") == {"changed": [str(board.toml)]}
    (board.folder / "in-use.toml").write_text(board.toml.read_text())
    assert board.ask("restore", "20")["healthy"]
    assert board.toml.read_text() == board.settings("good")


def test_a_service_that_does_not_run_keeps_nothing_and_has_nothing_to_go_back_to(board):
    board.state("activating")
    assert board.keep() == {"kept": False, "health": 0}
    use(board, board.settings("bad"))
    answer = board.ask("restore", "1")
    assert answer["restored"] == []
    assert board.toml.read_text() == board.settings("bad")
    assert board.restarts == 0


def test_a_service_that_was_not_well_before_need_not_be_better_with_its_former_files(board):
    use(board, board.settings("lonely"))
    assert board.keep() == {"kept": True, "health": 503}
    use(board, board.settings("bad"))
    answer = board.ask("restore", "20")
    assert answer["healthy"]
    assert answer["said"] == "the target does not answer"


def test_former_files_that_do_not_help_either_are_put_back_and_that_is_said(board):
    board.keep()
    board.toml.write_text(board.settings("bad"))
    board.server.RequestHandlerClass.do_GET = lambda handler: handler.send_error(503)
    answer = board.ask("restore", "1")
    assert not answer["healthy"]
    assert board.toml.read_text() == board.settings("good")


def test_a_token_that_the_role_removed_comes_back_and_is_shown(board):
    board.token.write_text("secret\n")
    board.token.chmod(0o640)
    use(board, board.settings("good", f'metrics_token_file = "{board.token}"\n'))
    assert board.keep() == {"kept": True, "health": 200}
    assert (board.root / "former").stat().st_mode & 0o777 == 0o700
    assert (board.root / "former/edge-x.json").stat().st_mode & 0o777 == 0o600
    use(board, board.settings("bad"))
    board.token.unlink()
    answer = board.ask("restore", "20")
    assert answer["healthy"]
    assert board.token.read_text() == "secret\n"
    assert board.token.stat().st_mode & 0o777 == 0o640


def test_a_file_that_did_not_exist_before_is_removed(board):
    board.keep()
    board.token.write_text("new\n")
    assert board.ask("restore", "20")["restored"] == [str(board.token)]
    assert not board.token.exists()


def test_a_link_to_a_folder_comes_back_as_a_link(board):
    """Apache Kafka's versions have a folder each, and a link names the one in use."""
    link = board.folder / "version"
    link.symlink_to("opt/1-old")
    files = [str(board.toml), str(link)]
    board.ask("keep", *files)
    assert board.ask("compare") == {"changed": []}
    board.ask("keep", *files)
    link.unlink()
    link.symlink_to("opt/2-new")
    board.ask("keep", *files)
    assert board.ask("compare") == {"changed": [str(link)]}
    assert board.ask("restore", "20")["restored"] == [str(link)]
    assert os.readlink(link) == "opt/1-old"


def test_a_service_of_others_leaves_the_release_alone(board):
    """Its run may have ended half-way, and another one may have changed the release since."""
    board.ask("keep", str(board.toml), service="mosquitto")
    (board.root / "current").unlink()
    (board.root / "current").symlink_to("2-new")
    assert board.ask("compare", service="mosquitto") == {"changed": []}
    assert not list((board.root / "former").iterdir())


def test_a_restart_that_does_not_end_is_given_up(board):
    board.keep()
    use(board, board.settings("bad"))
    (board.folder / "slow").touch()
    answer = board.ask("restore", "1")
    assert not answer["healthy"]
    assert board.toml.read_text() == board.settings("good")


def test_errors_are_the_last_lines_that_are_no_information(board):
    lines = ["2026-01-01T00:00:00.000Z info broker started", "2026-01-01T00:00:01.000Z error broker died reason=disk"]
    lines += ["edge-x: listeners is 7; write HOST:PORT"] * 4
    (board.folder / "journal._SYSTEMD_UNIT=edge-x.service").write_text("\n".join(lines) + "\n")
    assert board.ask("restore", "1")["errors"] == [lines[1], lines[2]]


def test_the_error_of_a_java_program_is_its_cause_and_not_the_end_of_its_stack_trace(board):
    lines = ["[main] ERROR kafka.Kafka$ - Exiting Kafka due to fatal exception"]
    lines += ["org.apache.kafka.common.config.ConfigException: Invalid value many for configuration log.retention.ms"]
    lines += [f"\tat kafka.server.KafkaConfig.{name}(KafkaConfig.scala:{name})" for name in range(9)]
    lines += ["\t... 3 more"]
    (board.folder / "journal._SYSTEMD_UNIT=edge-x.service").write_text("\n".join(lines) + "\n")
    assert board.ask("restore", "1")["errors"] == lines[:2]


def test_errors_are_those_of_systemd_where_the_service_wrote_none(board):
    (board.folder / "journal.UNIT=edge-x.service").write_text("edge-x.service: Main process exited, code=killed\n")
    assert board.ask("restore", "1")["errors"] == ["edge-x.service: Main process exited, code=killed"]


def test_a_service_without_metrics_is_well_when_systemd_says_that_it_is_active(board):
    board.toml.write_text("kind = 'good'\n")
    assert board.keep() == {"kept": True, "health": 200}
    board.toml.write_text("kind = 'bad'\n")
    assert board.ask("restore", "5")["healthy"]
    board.keep()
    board.toml.write_text("kind = 'bad'\n")
    board.state("failed")
    answer = board.ask("restore", "1")
    assert (answer["healthy"], answer["said"]) == (False, "systemd says that it is failed")


def test_the_address_of_a_broker_is_that_of_its_unit(board):
    board.toml.write_text('"log.retention.ms" = 1\n')
    board.unit.write_text(f"ExecStart=/x serve --metrics 127.0.0.1:{board.server.server_port} --config y\n")
    assert board.keep() == {"kept": True, "health": 200}


@pytest.mark.parametrize("step", ["former", "former/edge-x.json.part"])
def test_what_a_power_cut_left_of_keeping_is_no_former_file(board, step):
    (board.root / "former").mkdir(mode=0o700)
    if step != "former":
        (board.root / step).write_text("{")
    assert board.keep() == {"kept": True, "health": 200}
    assert board.ask("compare") == {"changed": []}
