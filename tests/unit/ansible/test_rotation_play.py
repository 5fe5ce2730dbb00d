"""playbooks/rotation.yml by ansible-playbook, on two boards whose files are in folders of the test.

The brokers' users are in a file of each board: a script has the place of the Python that runs access.py there.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.ansible_files import ANSIBLE
from tests.support.runtimes import console_script

SECRET = "a secret of 24 characters"
NEVER, SEEN = {"first_log_in": "never", "last_log_in": "never"}, {"first_log_in": "2026", "last_log_in": "2026"}
ACCESS = """#!{python}
import json, pathlib, sys
order = json.load(sys.stdin)
file = pathlib.Path(order["data_dir"], "held.json")
held = json.loads(file.read_text())
if "show" in order:
    print(json.dumps({{"held": held}}))
else:
    gone = set(order["known"]) - set(order["users"]) - set(order["kept"])
    new = {{name: held.get(name, {never}) for name in (set(held) | set(order["users"])) - gone}}
    file.write_text(json.dumps(new))
    pathlib.Path(order["data_dir"], "moved.json").write_text(json.dumps(order["moved"]))
    meanwhile = sorted(set(held) ^ set(order["planned"]))
    print(json.dumps({{"changed": sorted(set(held) ^ set(new)), "meanwhile": meanwhile}}))
"""


SYSTEMCTL = """#!/bin/sh
case $1 in
show) echo $((($(cut -d. -f1 /proc/uptime) - $(date +%s) + $(cat {folder}/started)) * 1000000)) ;;
is-active) echo active ;;
esac
"""


class Site:
    """Two boards, pi-1 and pi-2, each with a broker; the gateway of pi-1 uses the broker of pi-2 now."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.variables: dict[str, dict[str, Any]] = {"pi-1": {"gateway_kafka": "10.0.0.2:9092"}, "pi-2": {}}
        for part in ("roles", "plugins", "playbooks"):
            shutil.copytree(ANSIBLE / part, folder / part, symlinks=True)
        self.groups = {"gateway": ["pi-1"]}
        more = [folder / "playbooks/rotation.yml", folder / "roles/spark/vars/main.yml"]
        for path in (*folder.glob("roles/*/tasks/*.yml"), *more):
            text = path.read_text()
            for line in ("owner: root", "group: root"):
                text = text.replace(f"    {line}\n", "")
            text = text.replace("become: true", "become: false")
            # A task that is delegated reads the files of the other board.
            there = "    src: /etc/drupelet/broker-log-ins\n  delegate_to: "
            text = text.replace(
                there, f"    src: {folder}/{{{{ security_newest.server }}}}/etc/broker-log-ins\n  delegate_to: "
            )
            path.write_text(text.replace(" /etc/drupelet/", f" {folder}/{{{{ inventory_hostname }}}}/etc/"))
        for host in self.variables:
            self.make_board(host)
        (folder / "systemctl").write_text(SYSTEMCTL.format(folder=folder))
        (folder / "systemctl").chmod(0o755)

    def make_board(self, host: str) -> None:
        """Make the folders of a board, and what its tasks run."""
        (self.folder / host / "etc").mkdir(parents=True, exist_ok=True)
        (self.folder / host / "current/bin").mkdir(parents=True)
        python = self.folder / host / "current/bin/python"
        python.write_text(ACCESS.format(python=sys.executable, never=NEVER))
        python.chmod(0o755)
        (python.parent / "edge-broker").symlink_to("/bin/true")

    def has_password(self, host: str, user: str, generation: int, file: str) -> None:
        """Give a board the password of a user of pi-1, and start its services after that."""
        purpose = f"drupelet\0pi-1\0{user}\0{generation}"
        password = base64.b32encode(hmac.digest(SECRET.encode(), purpose.encode(), "sha256"))[:32].decode().lower()
        path = self.folder / host / "etc" / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(password)
        self.started_s_ago(0)

    def has_password_of_spark(self, host: str, generation: int) -> None:
        """Give a board the password of Spark's log-in at pi-1, and start its services after that."""
        self.has_password(host, "spark-pi-1", generation, "spark/kafka-password")

    def started_s_ago(self, seconds: int) -> None:
        """Let the services of all boards have started so long ago."""
        (self.folder / "started").write_text(str(int(time.time()) + 2 - seconds))

    def uses(self, bootstrap: str, generation: int = 1) -> None:
        """Let the gateway of pi-1 run with a configuration that names this broker, and with this password."""
        (self.folder / "pi-1/etc/gateway.toml").write_text(f'[kafka]\nbootstrap_servers = "{bootstrap}"\n')
        self.has_password("pi-1", "gateway-pi-1", generation, "gateway-password")

    def holds(self, host: str, users: dict[str, dict[str, str]]) -> None:
        """Give a broker these users, all made by the site."""
        (self.folder / host / "held.json").write_text(json.dumps(users))
        for name in ("broker-users", "broker-log-ins"):
            (self.folder / host / "etc" / name).write_text("".join(f"{user}\n" for user in users))

    def run(self, *words: str, playbook: str = "rotation", code: int = 0) -> str:
        hosts = {
            name: {
                "ansible_connection": "local",
                "ansible_python_interpreter": sys.executable,
                "ansible_host": f"10.0.0.{name[-1]}",
                "drupelet_root": str(self.folder / name),
                "broker_data_dir": str(self.folder / name),
                "broker_listen": "0.0.0.0:9092",
                "security_secret": SECRET,
                **variables,
            }
            for name, variables in self.variables.items()
        }
        groups = {name: {"hosts": dict.fromkeys(members)} for name, members in self.groups.items()}
        groups.setdefault("broker", {"hosts": dict.fromkeys(hosts)})
        (self.folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts, "children": groups}}))
        done = subprocess.run(
            [str(console_script("ansible-playbook")), "-i", "hosts.yml", f"playbooks/{playbook}.yml", *words],
            cwd=self.folder, capture_output=True, text=True, check=False, timeout=240,
            env=os.environ
            | {"ANSIBLE_ROLES_PATH": f"{self.folder}/roles", "PATH": f"{self.folder}:{os.environ['PATH']}"},
        )  # fmt: skip
        said = " ".join((done.stdout + done.stderr).split())
        assert done.returncode == code, said
        return said

    def users(self, host: str) -> set[str]:
        return set(json.loads((self.folder / host / "held.json").read_text()))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site")


def test_a_gateway_that_moved_keeps_its_user_at_the_former_broker_until_a_run_sees_it_at_the_new_one(site):
    """It may have got its former files back after it was at the new broker."""
    site.holds("pi-1", {"admin": SEEN, "gateway-pi-1": SEEN})
    site.holds("pi-2", {"admin": SEEN, "gateway-pi-1": SEEN, "verify-pi-1": NEVER})
    site.uses("10.0.0.1:9092")
    assert "gateway-pi-1 of pi-1 still holds at pi-1" in site.run()
    assert site.users("pi-1") == {"admin", "gateway-pi-1"}
    assert json.loads((site.folder / "pi-1/moved.json").read_text()) == ["gateway-pi-1"]
    site.uses("10.0.0.2:9092")
    site.started_s_ago(60)
    assert "gateway-pi-1 of pi-1 still holds at pi-1" in site.run(), "it was not restarted with its new files"
    site.started_s_ago(0)
    assert "still holds" not in site.run()
    assert site.users("pi-1") == {"admin"}
    assert (site.folder / "pi-1/etc/broker-log-ins").read_text() == "admin\n"


def test_one_word_ends_the_user_of_a_gateway_that_moved_and_was_not_seen(site):
    site.holds("pi-1", {"admin": SEEN, "gateway-pi-1": SEEN})
    site.holds("pi-2", {"admin": SEEN, "gateway-pi-1": NEVER})
    said = site.run("-e", "rotation=now")
    assert (
        "its service moved to pi-2 and was not seen there in this run: what still uses it is refused until pi-1" in said
    )
    assert said.index("moved to pi-2") < said.index("TASK [broker : Make users and rights]")
    assert site.users("pi-1") == {"admin"}


@pytest.mark.parametrize("words", [[], ["--check"]])
def test_what_the_word_locks_out_is_listed_before_it_happens(site, words):
    site.variables["pi-1"]["security_rotation"] = 2
    site.holds("pi-2", {"admin": SEEN, "gateway-pi-1": SEEN, "gateway-pi-1~2": NEVER, "verify-pi-1~2": NEVER})
    site.holds("pi-1", {"admin": SEEN})
    said = site.run("-e", "rotation=now", *words)
    line = "gateway-pi-1 of pi-1 ends at pi-2 now, and gateway-pi-1~2 has not logged in: what still uses it is refused"
    assert said.index(line) < said.index("TASK [broker : Make users and rights]")
    assert ("gateway-pi-1" in site.users("pi-2")) == bool(words)


def test_the_word_with_a_limit_names_the_brokers_that_keep_old_log_ins(site):
    site.variables["pi-1"]["security_rotation"] = 2
    site.holds("pi-2", {"admin": SEEN, "gateway-pi-1": SEEN, "gateway-pi-1~2": NEVER, "verify-pi-1~2": NEVER})
    said = site.run("-e", "rotation=now", "--limit", "pi-1")
    assert "The limit leaves out pi-2: old log-ins hold there until a run with rotation=now reaches them." in said
    assert "gateway-pi-1" in site.users("pi-2")


@pytest.mark.night
def test_a_rotation_and_a_move_at_once_end_when_the_new_generation_was_used_at_the_new_broker(site):
    site.variables["pi-1"]["security_rotation"] = 2
    site.holds("pi-1", {"admin": SEEN, "gateway-pi-1": SEEN})
    site.holds("pi-2", {"admin": SEEN, "gateway-pi-1": SEEN, "gateway-pi-1~2": NEVER, "verify-pi-1~2": NEVER})
    site.uses("10.0.0.2:9092")
    site.run()
    assert "gateway-pi-1" in site.users("pi-1") & site.users("pi-2")
    site.uses("10.0.0.2:9092", generation=2)
    site.run()
    assert not {"gateway-pi-1"} & (site.users("pi-1") | site.users("pi-2"))


@pytest.mark.night
def test_the_log_in_that_sparks_boards_share_ends_in_the_run_in_which_each_of_them_uses_the_new_one(site):
    site.groups = {"spark_jobs": ["pi-1"], "spark_worker": ["pi-2"]}
    for variables in site.variables.values():
        variables.update(spark_bootstrap="10.0.0.1:9092", security_rotation=2, spark_secret="x" * 24)
    site.holds("pi-1", {"admin": SEEN, "spark-pi-1": SEEN, "spark-pi-1~2": SEEN})
    site.holds("pi-2", {"admin": SEEN})
    site.has_password_of_spark("pi-1", 2)
    site.has_password_of_spark("pi-2", 1)
    assert "it ends in the first run in which each of pi-2, pi-1 uses spark-pi-1~2" in site.run()
    site.has_password_of_spark("pi-2", 2)
    site.started_s_ago(60)
    assert "still holds" in site.run(), "services that were started before the password was written have the old one"
    site.has_password_of_spark("pi-2", 2)
    assert "still holds" not in site.run()
    assert site.users("pi-1") == {"admin", "spark-pi-1~2"}
