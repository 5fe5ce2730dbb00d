"""Two boards with brokers of their own, against which playbooks run for real."""

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


class TwoBoards:
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
