"""A whole board whose clock is wrong, its broker too: in 1970 everything of ours gets in, in 2060 nobody does.

libfaketime shows its processes the time of a file. Every certificate is valid from now on, for thirty days; clients of
Kafka's own go by the clock and are no part of this. tests/conformance/test_security_clients.py has the same at an
Apache Kafka, whose clock is right.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import runtimes
from tests.support.certificates import Authority
from tests.support.mirror_road import EdgeMirror
from tests.support.notify_socket import NotifySocket
from tests.support.ports import free_port
from tests.support.processes import EdgeBroker, Process, wait_until
from tests.support.waiting import CALL_S

IN_1970, IN_2060 = "1970-01-02", "2060-05-01"
USER, PASSWORD = "board", "a pass-word"
LINES = ["one", "two", "three"]


class Board:
    """A broker with a listener for certificates and one for log-ins, and how its clients get in; all at one clock."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = directory / "clock"
        self.environment = {
            "LD_PRELOAD": str(runtimes.libfaketime()),
            "FAKETIME_TIMESTAMP_FILE": str(self.clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # else timed waits return at once, over and over
        }
        self.authority = Authority(directory / "ca", "our CA")
        self.certificate, self.key = self.authority.sign("client", "DNS:client")
        self.password_file = directory / "password"
        self.password_file.touch(0o600)
        self.password_file.write_text(PASSWORD)
        mutual, login = free_port(), free_port()
        self.mutual, self.login = f"127.0.0.1:{mutual}", f"127.0.0.1:{login}"
        listeners = f"MUTUAL://{self.mutual},LOGIN://{self.login}"
        settings: dict[str, str | int] = {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "MUTUAL:SSL,LOGIN:SASL_SSL",
            "ssl.keystore.location": str(self.authority.store("broker", "IP:127.0.0.1")),
            "ssl.truststore.location": str(self.authority.certificate),
            "listener.name.mutual.ssl.client.auth": "required",
        }
        self.broker = EdgeBroker(directory, port=mutual, settings=settings, protocol="MUTUAL")
        self.broker.environment = self.environment

    def set_clock(self, day: str) -> None:
        """Whatever runs sees this day from now on."""
        new = self.clock.with_suffix(".new")
        new.write_text(f"@{day} 00:00:00\n")
        new.rename(self.clock)

    def run(self, program: str, *words: str | Path, wrong_clock: bool = True) -> tuple[int, str]:
        """Exit status and everything that a command prints."""
        done = subprocess.run(
            [runtimes.console_script(program), *words],
            capture_output=True,
            text=True,
            timeout=CALL_S,
            check=False,
            env={**os.environ, **(self.environment if wrong_clock else {})},
        )
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout + done.stderr

    def tail(self, topic: str, *, wrong_clock: bool = True) -> tuple[int, str]:
        """The records of a topic by our tool, with a certificate."""
        store, config = self.directory / "client.both", self.directory / "client.properties"
        for path, text in (
            (store, self.key.read_text() + self.certificate.read_text()),
            (
                config,
                f"security.protocol=SSL\nssl.truststore.location={self.authority.certificate}\n"
                f"ssl.keystore.location={store}\n",
            ),
        ):
            path.touch(0o600)
            path.write_text(text)
        words = "tail", topic, "--bootstrap", self.mutual, "--command-config", config
        return self.run("edge-broker", *words, wrong_clock=wrong_clock)

    def keys(self, listener: str) -> dict[str, str]:
        """How gateway, mirror and Spark's jobs are told to get in."""
        keys = {"ssl_ca_file": str(self.authority.certificate)}
        if listener == "MUTUAL":
            return keys | {
                "security_protocol": "SSL",
                "ssl_cert_file": str(self.certificate),
                "ssl_key_file": str(self.key),
            }
        return keys | {
            "security_protocol": "SASL_SSL",
            "sasl_username": USER,
            "sasl_password_file": str(self.password_file),
        }

    def gateway(self) -> Process:
        """A gateway that follows a file into the topic `logs`."""
        config, log = self.directory / "gateway.toml", self.directory / "app.log"
        log.touch()
        config.write_text(
            f'state_dir = "{self.directory}/state"\n[kafka]\nbootstrap_servers = "{self.mutual}"\n'
            f"{toml(self.keys('MUTUAL'))}"
            f'[[files]]\npath = "{log}"\ntopic = "logs"\npoll_interval_ms = 20\n'
        )
        command = [runtimes.console_script("edge-gateway"), "run", "--config", config]
        return Process("gateway", command, self.directory, environment=self.environment, ready="edge-gateway ready")

    def mirror(self, target: Board) -> EdgeMirror:
        """A mirror of that topic, by a log-in here and a certificate there."""
        settings = {f"source_{key}": value for key, value in self.keys("LOGIN").items()}
        settings |= {f"target_{key}": value for key, value in target.keys("MUTUAL").items()}
        mirror = EdgeMirror(self.directory, self.login, target.mutual, topics="logs", site="site", settings=settings)
        mirror.environment = self.environment
        return mirror


def toml(values: Mapping[str, str]) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    with started(tmp_path / "board") as board:
        yield board


@contextmanager
def started(directory: Path) -> Iterator[Board]:
    directory.mkdir()
    board = Board(directory)
    board.set_clock(IN_1970)
    words = "user", "add", USER, "--data-dir", board.broker.data_dir, "--password-file", board.password_file
    status, told = board.run("edge-broker", *words)
    assert status == 0, told
    with board.broker:
        yield board


def test_in_1970_a_reading_goes_all_the_way_and_in_2060_nobody_gets_in(board: Board, tmp_path: Path) -> None:
    with started(tmp_path / "central") as central, board.gateway(), board.mirror(central):
        (board.directory / "app.log").write_text("".join(f"{line}\n" for line in LINES))
        wait_until(
            lambda: central.tail("site.logs")[1].count("\n") == len(LINES), 60, lambda: central.tail("site.logs")
        )
        assert [line.split()[-1] for line in central.tail("site.logs")[1].splitlines()] == LINES
    board.set_clock(IN_2060)
    status, told = board.tail("logs")
    assert (status, "that ended on" in told, f"by this host's clock it is {IN_2060}" in told) == (1, True, True), told
    status, _ = board.tail("logs", wrong_clock=False)
    assert status == 1, "its own clock is right, and the broker's says that its certificate has ended"
    says = f"and the clock says {IN_2060}"
    wait_until(
        lambda: "CN=client ended" in (log := board.broker.log_tail(200)) and says in log, 20, board.broker.log_tail
    )
    board.broker.stop()
    status, told = board.run("edge-broker", *board.broker.command[1:])
    assert (status, "every CA in" in told, says in told) == (2, True, True), told


def test_a_job_of_spark_waits_for_the_clock_and_its_unit_says_so(board: Board) -> None:
    """Until it is set: tests/unit/spark/test_security.py."""
    command = [runtimes.console_script("edge-spark"), "run", "windows", "--bootstrap", board.login]
    command += ["--checkpoint", board.directory / "checkpoint"]
    command += [f"--set={key}={value}" for key, value in board.keys("LOGIN").items()]
    waits = "waiting for the clock, which shows 1970-01-02T"
    # Python's sleep fails where libfaketime is to leave the monotonic clock alone, as the board's other parts want it.
    clock = {"LD_PRELOAD": board.environment["LD_PRELOAD"], "FAKETIME": f"@{IN_1970} 00:00:00"}
    with NotifySocket() as systemd:
        job = Process("spark", command, board.directory, environment=clock | systemd.environment())
        with job:
            for _ in range(2):
                told = systemd.wait_until(lambda each: each.get("STATUS", "").startswith(waits), "the unit's status")
                assert int(told["EXTEND_TIMEOUT_USEC"]) > 0
            assert "warning spark waiting_for_clock" in job.log_tail()
