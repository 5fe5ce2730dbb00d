"""A gateway on a board whose clock stands at 1970, then is set; `edge-broker tail` shows the right times.

libfaketime shows the gateway another wall clock; `clock_trusted` says when it is synchronised, as the kernel would.

Invariants:
- every record that was noted by the wrong clock carries the boot and the time since boot, the device's own time or not;
- once the clock is set, tail shows the right time, also where broker or gateway were stopped at that moment;
- a client that may not create or write the topic is told by `check --connect` and by /health, and its records arrive.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from edge_broker.configuration.config import STANDARD_AUTHORIZER
from tests.support import runtimes
from tests.support.conformance.journald import Journald
from tests.support.gateway_site import Device, GatewaySite
from tests.support.ports import free_port
from tests.support.processes import EdgeBroker, Process, all_stopped, wait_until
from tests.support.secured_edge import SecuredEdge
from tests.support.secured_kafka import PASSWORD, USER
from tests.support.waiting import CALL_S


class Board:
    """A broker with the right clock, and a gateway that follows a file with a wrong one."""

    def __init__(self, directory: Path, broker: EdgeBroker) -> None:
        self.directory = directory
        self.broker = broker
        self.server, self.security = broker.bootstrap, ""
        self.metrics_port = free_port()
        self.log = directory / "app.log"
        self.log.touch()

    def configure(self, trusted: str) -> Path:
        """Write the gateway's configuration: its clock is synchronised or not."""
        config = self.directory / "gateway.toml"
        config.write_text(
            f'state_dir = "{self.directory}/state"\nmetrics = "127.0.0.1:{self.metrics_port}"\n'
            f'clock_trusted = "{trusted}"\n'
            f'[kafka]\nbootstrap_servers = "{self.server}"\n{self.security}'
            f'[[files]]\npath = "{self.log}"\ntopic = "logs"\npoll_interval_ms = 20\n'
        )
        return config

    def gateway(self, *, trusted: str, clock: str) -> Process:
        """A gateway at this clock, which is synchronised or not."""
        command = [runtimes.console_script("edge-gateway"), "run", "--config", self.configure(trusted)]
        environment = at_clock(self.directory, clock)
        return Process("gateway", command, self.directory, environment=environment, ready="edge-gateway ready")

    def health(self) -> str:
        """What /health says; nothing before it answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/health", timeout=CALL_S) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def check(self) -> tuple[int, str]:
        """Return the status of `check --connect`, and what it says of the topic of the boots' times."""
        command = [runtimes.console_script("edge-gateway"), "check", "--connect", "--config", self.configure("auto")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_S, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        told = [line for line in done.stdout.splitlines() if line.startswith("kafka topic boot_times")]
        return done.returncode, "\n".join(told)

    def epoch_ms(self) -> int | None:
        """When the boot began, as the gateway keeps it."""
        boots = json.loads((self.directory / "state/clock.json").read_text())["boots"]
        return boots[-1]["epoch_ms"]

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


def test_readings_of_devices_keep_their_time_and_received_ms_can_be_corrected(tmp_path: Path) -> None:
    before_ms = time.time_ns() // 1_000_000
    with EdgeBroker(tmp_path) as broker:
        board, site = Board(tmp_path, broker), GatewaySite(tmp_path, broker.bootstrap, "readings")
        site.change('clock_trusted = "true"', 'clock_trusted = "false"')
        site.gateway.environment = at_clock(tmp_path, "@1970-01-02 00:00:00")
        with site.mosquitto, site.gateway, Device(site.mosquitto.port, "thermometer") as device:
            device.publish()
            device.publish_raw(b'{"value": 2}')
            device.publish_raw(b"{")
            wait_until(lambda: site.acked() == 2 and site.dead_letters(), 30, "the messages are acknowledged")
            assert site.health()[1].startswith("ok; the clock is not synchronised")
        with board.gateway(trusted="true", clock="+0"):
            wait_until(lambda: board.rows("boot_times"), 30, broker.log_tail)
        after_ms = time.time_ns() // 1_000_000
        own, unset = board.rows("readings")
        (letter,) = board.rows("dead_letters")
        (boot,) = board.rows("boot_times")
        (health, *_) = board.rows("readings-health")
    assert before_ms - 1_000 <= own["timestamp"] <= after_ms + 1_000
    assert "corrected_timestamp" not in own
    epoch_ms = json.loads(boot["value"])["boot_epoch_ms"]
    for row in (own, unset, letter):
        headers = {header["name"]: header["value"] for header in row["headers"]}
        assert int(headers["received_ms"]) < 10 * 86_400_000
        assert before_ms - 1_000 <= epoch_ms + int(headers["boot_time_ms"]) <= after_ms + 1_000
    for row in (unset, letter, health):
        assert row["timestamp"] < 10 * 86_400_000
        assert before_ms - 1_000 <= row["corrected_timestamp"] <= after_ms + 1_000


def test_a_broker_that_is_away_when_the_clock_is_set_has_the_time_later(tmp_path: Path) -> None:
    broker = EdgeBroker(tmp_path)
    board = Board(tmp_path, broker)
    with broker, board.gateway(trusted="false", clock="@1970-01-02 00:00:00"):
        board.write("unset")
    with board.gateway(trusted="true", clock="+0"):
        wait_until(lambda: board.epoch_ms() is not None, 30, "the gateway knows when the boot began")
    epoch_ms = board.epoch_ms()
    with broker, board.gateway(trusted="false", clock="-3650d"):
        wait_until(lambda: board.rows("boot_times"), 60, broker.log_tail)
        (boot,) = board.rows("boot_times")
        (row,) = board.rows("logs")
        assert cleanup_policy(broker, "boot_times") == "compact"
    assert json.loads(boot["value"])["boot_epoch_ms"] == epoch_ms
    assert abs(row["corrected_timestamp"] - time.time_ns() // 1_000_000) < 600_000


def test_a_client_without_the_rights_to_the_topic_is_told_and_its_records_arrive(tmp_path: Path) -> None:
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with SecuredEdge(tmp_path, settings=settings) as broker:
        board = Board(tmp_path, broker)
        (tmp_path / "password").write_text(f"{PASSWORD}\n")
        (tmp_path / "password").chmod(0o600)
        board.server = broker.login
        board.security = (
            'security_protocol = "SASL_PLAINTEXT"\nsasl_mechanism = "PLAIN"\n'
            f'sasl_username = "{USER}"\nsasl_password_file = "{tmp_path}/password"\n'
        )
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for topic in ("logs", "dead_letters", "__edge_ledger"):
            give(admin, topic, AclOperation.WRITE, AclOperation.CREATE)
        assert board.check() == (
            1,
            "kafka topic boot_times may not be written by this client: give it the right to WRITE there",
        )
        give(admin, "boot_times", AclOperation.WRITE)
        status, told = board.check()
        assert (status, "is not there, and this client may not create it: create it with" in told) == (1, True), told
        with board.gateway(trusted="false", clock="@1970-01-02 00:00:00"):
            board.write("unset")
        with board.gateway(trusted="true", clock="+0"):
            wait_until(lambda: "is not published: boot_times: " in board.health(), 30, board.health)
            board.write("set")
            assert "boot_times" not in broker_topics(admin)
            admin.create_topics([NewTopic("boot_times", 1, 1, config={"cleanup.policy": "compact"})])[
                "boot_times"
            ].result(CALL_S)
            wait_until(lambda: board.rows("boot_times"), 90, broker.log_tail)
            wait_until(lambda: board.health() == "ok\n", 30, board.health)
        assert board.check() == (
            0,
            "kafka topic boot_times: ok, but its settings are unknown: "
            "give this client the right to DESCRIBE_CONFIGS there",
        )
        give(admin, "boot_times", AclOperation.DESCRIBE_CONFIGS)
        assert board.check() == (0, "kafka topic boot_times: ok")


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_that_deletes_the_times_with_age_gets_them_once_it_is_compacted(tmp_path: Path, policy: str) -> None:
    """The gateway keeps the time, /health and `check --connect` say why, and what to do."""
    with EdgeBroker(tmp_path) as broker:
        board, admin = Board(tmp_path, broker), AdminClient({"bootstrap.servers": broker.bootstrap})
        set_up = NewTopic("boot_times", 1, 1, config={"cleanup.policy": policy})
        admin.create_topics([set_up])["boot_times"].result(CALL_S)
        said = f"has cleanup.policy={policy}, so the broker deletes the times of boots with age: "
        said += "set cleanup.policy=compact"
        assert board.check() == (1, f"kafka topic boot_times {said}")
        with board.gateway(trusted="false", clock="@1970-01-02 00:00:00"):
            board.write("unset")
        with board.gateway(trusted="true", clock="+0"):
            wait_until(lambda: f"is not published: boot_times: {said}" in board.health(), 30, board.health)
            assert not board.rows("boot_times")
            compact(admin, "boot_times")
            wait_until(lambda: board.rows("boot_times"), 90, broker.log_tail)
            wait_until(lambda: board.health() == "ok\n", 30, board.health)
        assert board.check() == (0, "kafka topic boot_times: ok")


@pytest.mark.root
def test_entries_of_the_journal_carry_their_own_boot(tmp_path: Path) -> None:
    """They were written in a boot before the gateway's, and journald has the machine's time since boot."""
    with EdgeBroker(tmp_path) as broker:
        board, journald = Board(tmp_path, broker), Journald(tmp_path)
        gateway = board.gateway(trusted="false", clock="@1970-01-02 00:00:00")
        config = board.directory / "gateway.toml"
        text = config.read_text()
        where = f'directory = "{journald.run_directory}/log/journal"\n'
        config.write_text(f'{text}[journal]\ntopic = "journal"\nstart = "beginning"\n{where}')
        with all_stopped(journald.process):
            journald.boot()
            before_ms = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000
            journald.log("before")
            after_ms = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000
            boot_id = journald.boot_id.read_text().strip()
            with gateway:
                wait_until(lambda: "before" in board.tail("journal"), 30, "the entry arrives")
        row = next(row for row in board.rows("journal") if row["value"] == "before")
    headers = {header["name"]: header["value"] for header in row["headers"]}
    assert headers["boot_id"] == boot_id
    assert before_ms <= int(headers["boot_time_ms"]) <= after_ms


def at_clock(directory: Path, clock: str) -> dict[str, str]:
    """The environment of a process that sees this wall clock."""
    (directory / "clock").write_text(f"{clock}\n")
    return {
        "LD_PRELOAD": str(runtimes.libfaketime()),
        "FAKETIME_TIMESTAMP_FILE": str(directory / "clock"),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
    }


def give(admin: AdminClient, topic: str, *operations: AclOperation) -> None:
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    acls = [
        AclBinding(ResourceType.TOPIC, topic, literal, f"User:{USER}", "*", operation, allow)
        for operation in operations
    ]
    for future in admin.create_acls(acls).values():
        future.result(CALL_S)


def broker_topics(admin: AdminClient) -> set[str]:
    return set(admin.list_topics(timeout=CALL_S).topics)


def compact(admin: AdminClient, topic: str) -> None:
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(CALL_S)


def cleanup_policy(broker: EdgeBroker, topic: str) -> str:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    return str(admin.describe_configs([resource])[resource].result(CALL_S)["cleanup.policy"].value)
