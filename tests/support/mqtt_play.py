"""What the role mosquitto does with users in one run: its own tasks by ansible-playbook, at a mosquitto of the test.

`MqttPlay` copies the roles, with `/etc/` below a folder of the test. `systemctl reload` is SIGHUP to the test's
mosquitto, and `journalctl` prints the log of that mosquitto: both are scripts in the PATH of Ansible.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from tests.support.ansible_files import ANSIBLE
from tests.support.ports import can_connect, free_port
from tests.support.runtimes import console_script, mosquitto
from tests.support.waiting import CALL_S, wait_until

PLAY_TIMEOUT_S = 240
SYSTEMCTL = """#!/bin/sh
case $1 in
show) printf 'LoadState=loaded\\nActiveState=active\\nUnitFileState=enabled\\n' ;;
reload) [ ! -e {folder}/pid ] || kill -HUP "$(cat {folder}/pid)" ;;
esac
"""
CONFIGURATION = """\
allow_anonymous false
password_file {etc}/mosquitto/passwd
acl_file {etc}/mosquitto/acl
listener {port} 127.0.0.1
{user}persistence true
persistence_location {folder}/
log_dest stderr
log_type error
log_type warning
log_type notice
connection_messages true
"""


class MqttPlay:
    """A mosquitto with the users of an inventory, and the runs that change them; `said` is the last run's output."""

    def __init__(self, folder: Path) -> None:
        """Begin without users, as a new board."""
        self.port, self.folder, self.etc, self.log = free_port(), folder, folder / "etc", folder / "log"
        self.said = ""
        for name in ("mosquitto", "drupelet"):
            (self.etc / name).mkdir(parents=True)
        self._copy_roles()
        for name, text in (("systemctl", SYSTEMCTL), ("journalctl", "#!/bin/sh\nexec cat {folder}/log\n")):
            (folder / name).write_text(text.format(folder=folder))
            (folder / name).chmod(0o755)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start mosquitto with the files that are there, and wait until it listens."""
        user = "user root\n" if os.geteuid() == 0 else ""
        configuration = self.folder / "mosquitto.conf"
        configuration.write_text(CONFIGURATION.format(etc=self.etc, port=self.port, folder=self.folder, user=user))
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([mosquitto(), "-c", configuration], stderr=log)
        (self.folder / "pid").write_text(str(self._process.pid))
        wait_until(lambda: can_connect(self.port), CALL_S, "mosquitto listens")

    def stop(self) -> None:
        """Stop mosquitto, if it runs."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(CALL_S)
            self._process = None

    def run(self, users: list[dict[str, Any]], *, interrupted: bool = False, **more: Any) -> str:
        """Run the tasks with `mosquitto_users`; `interrupted` ends the run before its handlers. Return its output."""
        tasks: list[dict[str, Any]] = [{"ansible.builtin.include_role": {"name": "mosquitto", "tasks_from": "users"}}]
        if interrupted:
            tasks.append({"ansible.builtin.fail": {"msg": "interrupted"}})
        self._run(tasks, {"mosquitto_users": users, **more}, fails=interrupted)
        return self.said

    def gateway_user(self, name: str, users: list[dict[str, Any]]) -> str:
        """Return the user by which the role gateway of the same board logs in as `name`."""
        tasks: list[dict[str, Any]] = [
            {
                "ansible.builtin.include_role": {"name": "security", "tasks_from": "mqtt", "public": True},
                "vars": {"security_mqtt_name": name},
            },
            {"ansible.builtin.copy": {"content": "{{ security_mqtt.user }}", "dest": str(self.folder / "user")}},
        ]
        self._run(tasks, {"mosquitto_users": users})
        return (self.folder / "user").read_text()

    def users(self) -> list[str]:
        """Return the users in mosquitto's password file."""
        return sorted(line.partition(":")[0] for line in (self.etc / "mosquitto/passwd").read_text().splitlines())

    def _run(self, tasks: list[dict[str, Any]], variables: dict[str, Any], *, fails: bool = False) -> None:
        host = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, **variables}
        groups = {group: {"hosts": {"pi-1": host}} for group in ("mosquitto", "gateway")}
        (self.folder / "hosts.yml").write_text(yaml.safe_dump(groups))
        play = [{"hosts": "pi-1", "gather_facts": False, "tasks": tasks}]
        (self.folder / "play.yml").write_text(yaml.safe_dump(play))
        done = subprocess.run(
            [str(console_script("ansible-playbook")), "-i", "hosts.yml", "play.yml"],
            cwd=self.folder, capture_output=True, text=True, check=False, timeout=PLAY_TIMEOUT_S,
            env=os.environ | {"PATH": f"{self.folder}:{os.environ['PATH']}"},
        )  # fmt: skip
        self.said = " ".join((done.stdout + done.stderr).split())
        assert (done.returncode != 0) == fails, self.said

    def _copy_roles(self) -> None:
        for part in ("roles/mosquitto", "roles/security", "plugins"):
            shutil.copytree(ANSIBLE / part, self.folder / part, symlinks=True)
        for role in ANSIBLE.joinpath("roles").iterdir():  # site_access reads the defaults of all
            (self.folder / "roles" / role.name / "defaults").mkdir(parents=True, exist_ok=True)
            shutil.copy(role / "defaults/main.yml", self.folder / "roles" / role.name / "defaults/main.yml")
        for path in self.folder.glob("roles/*/*/*.yml"):
            text = path.read_text().replace("/etc/", f"{self.etc}/")
            for line in ("owner: root", "group: root", "group: mosquitto"):
                text = text.replace(f"    {line}\n", "")
            path.write_text(text)
