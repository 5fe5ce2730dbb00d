"""A gateway on a board whose clock stands at 1970, then is set; `edge-broker tail` shows the right times.

libfaketime shows the gateway another wall clock; `clock_trusted` says when it is synchronised, as the kernel would.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, ConfigResource

from tests.support import runtimes
from tests.support.processes import EdgeBroker, Process, wait_until
from tests.support.waiting import CALL_S


class Board:
    """A broker with the right clock, and a gateway that follows a file with a wrong one."""

    def __init__(self, directory: Path, broker: EdgeBroker) -> None:
        self.directory = directory
        self.broker = broker
        self.log = directory / "app.log"
        self.log.touch()

    def gateway(self, *, trusted: str, clock: str) -> Process:
        """A gateway at this clock, which is synchronised or not."""
        (self.directory / "clock").write_text(f"{clock}\n")
        config = self.directory / "gateway.toml"
        config.write_text(
            f'state_dir = "{self.directory}/state"\nclock_trusted = "{trusted}"\n'
            f'[kafka]\nbootstrap_servers = "{self.broker.bootstrap}"\n'
            f'[[files]]\npath = "{self.log}"\ntopic = "logs"\npoll_interval_ms = 20\n'
        )
        environment = {
            "LD_PRELOAD": str(runtimes.libfaketime()),
            "FAKETIME_TIMESTAMP_FILE": str(self.directory / "clock"),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }
        command = [runtimes.console_script("edge-gateway"), "run", "--config", config]
        return Process("gateway", command, self.directory, environment=environment, ready="edge-gateway ready")

    def write(self, line: str) -> None:
        """One more line, acknowledged by the broker."""
        with self.log.open("a") as file:
            file.write(f"{line}\n")
        wait_until(lambda: line in self.tail("logs"), 30, lambda: self.tail("logs"))

    def tail(self, topic: str, *words: str) -> str:
        """What the tool prints of a topic; nothing while there is none."""
        command = [runtimes.console_script("edge-broker"), "tail", topic, "--bootstrap", self.broker.bootstrap, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_S, check=False, env=os.environ)
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout

    def rows(self, topic: str) -> list[dict[str, Any]]:
        """The records as JSON."""
        return [json.loads(line) for line in self.tail(topic, "--json").splitlines()]


def test_records_of_1970_get_their_right_time_once_the_board_is_synchronised(tmp_path: Path) -> None:
    before_ms = time.time_ns() // 1_000_000
    with EdgeBroker(tmp_path) as broker:
        board = Board(tmp_path, broker)
        with board.gateway(trusted="false", clock="@1970-01-02 00:00:00"):
            board.write("unset")
        (unset,) = board.rows("logs")
        assert unset["timestamp"] < 10 * 86_400_000, "the log is as the board had it"
        assert unset["corrected_timestamp"] is None
        assert board.tail("logs").split("  ")[0].endswith("?")
        assert {header["name"] for header in unset["headers"]} >= {"boot_id", "boot_time_ms"}
        with board.gateway(trusted="true", clock="+0"):
            wait_until(lambda: board.rows("boot_times"), 30, broker.log_tail)
            board.write("set")
        after_ms = time.time_ns() // 1_000_000
        corrected, exact = board.rows("logs")
        assert corrected["timestamp"] == unset["timestamp"]
        assert before_ms - 1_000 <= corrected["corrected_timestamp"] <= after_ms + 1_000
        assert "corrected_timestamp" not in exact
        assert not {header["name"] for header in exact["headers"]} & {"boot_id", "boot_time_ms"}
        lines = board.tail("logs").splitlines()
        assert [line.split("  ")[0][-1] == "*" for line in lines] == [True, False]
        with board.gateway(trusted="true", clock="+3650d"):
            board.write("stepped")
        assert len(board.rows("boot_times")) == 1, "published once a boot"
        assert cleanup_policy(broker, "boot_times") == "compact"


def cleanup_policy(broker: EdgeBroker, topic: str) -> str:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    return str(admin.describe_configs([resource])[resource].result(CALL_S)["cleanup.policy"].value)
