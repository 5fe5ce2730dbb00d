"""An Apache Kafka that does not start with changed settings gets its former ones back: the tasks of the role kafka."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.ansible_files import copy_role
from tests.support.runtimes import console_script

# As systemd with a Kafka that starts with `good` settings, fails with bad ones, and starts for ever with slow ones.
SYSTEMCTL = """#!/bin/sh
state=$(cat {folder}/state)
case "$*" in
*--value) echo "$state" ;;
show*) printf 'LoadState=loaded\\nActiveState=%s\\nUnitFileState=enabled\\n' "$state" ;;
is-active*) echo "$state"; [ "$state" = active ] ;;
start* | restart*)
    echo "$@" >>{folder}/asked
    if grep -q slow {folder}/etc/kafka/server.properties; then
        echo activating >{folder}/state
        exec sleep 60
    elif grep -q good {folder}/etc/kafka/server.properties; then
        echo active >{folder}/state
    else
        echo activating >{folder}/state
        echo "Job for kafka.service failed because the control process exited with error code." >&2
        exit 1
    fi ;;
esac
"""
JOURNALCTL = "#!/bin/sh\necho org.apache.kafka.common.config.ConfigException: Invalid value\n"
TASKS = ("Write Kafka's configuration",)


class Board:
    """A board with the role kafka, whose `/etc/` and `/opt/` are folders of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.settings = folder, folder / "etc/kafka/server.properties"
        for name in ("etc/kafka", "etc/systemd/system", "opt/kafka/1", "opt/kafka/2"):
            (folder / name).mkdir(parents=True)
        for role in ("kafka", "drupelet"):
            copy_role(role, folder)
        tasks = folder / "roles/kafka/tasks"
        for name, kept in (
            ("requirements", ()),
            ("configuration", TASKS),
            ("jars", ("Make Kafka's version the current one",)),
        ):
            found = [task for task in yaml.safe_load((tasks / f"{name}.yml").read_text()) if task["name"] in kept]
            (tasks / f"{name}.yml").write_text(yaml.safe_dump(found))
        for path in folder.glob("roles/kafka/*/*.yml"):
            text = path.read_text().replace("/etc/", f"{folder}/etc/").replace("/opt/", f"{folder}/opt/")
            for name in ("root", "kafka"):
                for kind in ("owner", "group"):
                    text = text.replace(f"    {kind}: {name}\n", "")
            path.write_text(text)
        for name, text in (("systemctl", SYSTEMCTL), ("journalctl", JOURNALCTL)):
            (folder / name).write_text(text.format(folder=folder))
            (folder / name).chmod(0o755)
        self.state("inactive")

    def state(self, word: str) -> None:
        (self.folder / "state").write_text(f"{word}\n")

    def play(self, word: str, version: str = "1", **more: object) -> tuple[int, str]:
        """Run the role with a setting; return the exit status and the output."""
        given = {
            "kafka_listen": "127.0.0.1:9092", "kafka_settings": {"word": word}, "kafka_version": version,
            "kafka_folder": {}, "kafka_configuration_folder": {}, "kafka_jars": "none",
            "ansible_python_interpreter": sys.executable, "drupelet_root": str(self.folder / "opt/drupelet"), **more,
        }  # fmt: skip
        (self.folder / "given.json").write_text(json.dumps(given))
        play = [{"hosts": "localhost", "gather_facts": False, "roles": ["kafka"]}]
        (self.folder / "play.yml").write_text(yaml.safe_dump(play))
        done = subprocess.run(
            [str(console_script("ansible-playbook")), "-e", "@given.json", "play.yml"],
            cwd=self.folder, capture_output=True, text=True, check=False, timeout=240,
            env=os.environ | {"PATH": f"{self.folder}:{os.environ['PATH']}"},
        )  # fmt: skip
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    @property
    def asked(self) -> list[str]:
        return (self.folder / "asked").read_text().splitlines()

    @property
    def former(self) -> list[Path]:
        return list(self.folder.glob("opt/drupelet/former/*"))


@pytest.fixture
def board(tmp_path: Path) -> Board:
    board = Board(tmp_path)
    status, said = board.play("good")
    assert status == 0, said
    assert board.asked == ["start kafka.service"]
    return board


def test_settings_with_which_kafka_does_not_start_go_back_with_their_version(board):
    former = board.settings.read_text()
    status, said = board.play("wrong", version="2")
    assert status == 2
    link = board.folder / "opt/kafka/current"
    unit = board.folder / "etc/systemd/system/kafka.service"
    assert "kafka on localhost does not start, systemd says activating. It wrote last: org.apache.kafka" in said
    assert f"Invalid value. The former {board.settings}, {unit}, {link} are back, and it is healthy again." in said
    assert board.settings.read_text() == former
    assert os.readlink(link) == "1"
    assert (board.folder / "state").read_text() == "active\n"
    assert not board.former


@pytest.mark.night  # each play of molecule that changes settings shows it
def test_settings_with_which_kafka_starts_stay(board):
    status, said = board.play("good too")
    assert status == 0, said
    assert "word=good too" in board.settings.read_text()
    assert board.asked[1:] == ["restart kafka.service"]
    assert "changed=0" in board.play("good too")[1]
    assert not board.former


@pytest.mark.night
def test_a_start_that_does_not_end_is_a_failure_too(board):
    handlers = board.folder / "roles/kafka/handlers/main.yml"
    handlers.write_text(handlers.read_text().replace("{{ kafka_start_s }}", "2"))
    status, said = board.play("slow")
    assert status == 2
    assert f"The former {board.settings} is back, and it is healthy again" in said


@pytest.mark.night
def test_a_kafka_that_never_ran_has_nothing_to_go_back_to_and_says_why_it_does_not_start(tmp_path):
    board = Board(tmp_path)
    status, said = board.play("wrong")
    assert status == 2
    assert "kafka on localhost does not start, systemd says activating. It wrote last: org.apache" in said
    assert "The former" not in said


def test_kafka_runs_with_its_changed_files_before_it_is_asked_for_users(board):
    """It is asked by the listener LOCAL, which a Kafka that ran without log-ins does not have yet."""
    access = [{"name": "Users", "shell": f"echo users >>{board.folder}/asked"}]
    (board.folder / "roles/kafka/tasks/access.yml").write_text(yaml.safe_dump(access))
    status, said = board.play("good", kafka_security="secured", security_access={"users": {"admin": "secret"}})
    assert status == 0, said
    assert "listeners=SECURED" in board.settings.read_text()
    assert board.asked[1:] == ["restart kafka.service", "users"]


@pytest.mark.night
def test_a_run_that_ended_before_the_restart_is_continued(board):
    """The next run finds files with which Kafka was never started, and keeps those with which it was."""
    former = board.settings.read_text()
    handlers = board.folder / "roles/kafka/handlers/main.yml"
    whole = handlers.read_text()
    handlers.write_text(yaml.safe_dump([{"name": name, "fail": {}} for name in ("Restart Kafka", "Wait for Kafka")]))
    assert board.play("wrong")[0] == 2
    handlers.write_text(whole)
    status, said = board.play("wrong")
    assert status == 2
    assert "is back, and it is healthy again" in said
    assert board.settings.read_text() == former
