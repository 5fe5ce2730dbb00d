"""The first line of the gateway's README, as it stands: the example configuration, mosquitto_pub, a broker, Spark.

Invariants:
- the reading lies in the topic under its device's name, byte for byte;
- Spark's jobs find it sound, at the time of receipt, as it names none.
"""

from __future__ import annotations

import getpass
import re
import shlex
import subprocess
import time
from pathlib import Path

import pytest

from spark.config import Settings
from spark.session import start_session, stop_session
from spark.streams import transforms
from tests.support import runtimes
from tests.support.command import as_command
from tests.support.gateway_site import read_whole
from tests.support.ports import free_port
from tests.support.processes import Mosquitto, Process, all_stopped, wait_until

pytestmark = pytest.mark.timeout(300)
README = Path(__file__).parents[2] / "gateway/README.md"
RECORDS = "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY, \
headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


def example(root: Path, bootstrap: str, mqtt_port: int) -> str:
    """Return what `edge-gateway example` prints, with this machine's addresses and paths in it."""
    program = runtimes.console_script("edge-gateway")
    text = subprocess.run([program, "example"], check=True, capture_output=True, text=True).stdout
    for old, new in {
        'state_dir = "/var/lib/drupelet/gateway"': f'state_dir = "{root}/state"',
        'metrics = "127.0.0.1:9404"': f'metrics = "127.0.0.1:{free_port()}"',
        '"127.0.0.1:9092"': f'"{bootstrap}"',
        "# port = 1883": f"port = {mqtt_port}",
        "\n[journal]\n": f'\n[[files]]\npath = "{root}/syslog"\n',
        '# listeners = ["127.0.0.1:1883"]': f'listeners = ["127.0.0.1:{mqtt_port}"]',
        '# persistence_dir = "/var/lib/mosquitto"': f'persistence_dir = "{root}/mosquitto"',
        '# user = "mosquitto"': f'user = "{getpass.getuser()}"',
    }.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def documented_line() -> list[str]:
    (line,) = re.findall(r"(?m)^mosquitto_pub .*$", README.read_text(encoding="utf-8"))
    return shlex.split(line)


def test_the_documented_line_arrives_and_spark_can_use_it(broker, tmp_path):
    program, port = runtimes.console_script("edge-gateway"), free_port()
    config = tmp_path / "gateway.toml"
    config.write_text(example(tmp_path, broker.bootstrap, port))
    (tmp_path / "mosquitto").mkdir()
    rendered = subprocess.run([program, "mosquitto-conf", "--config", config], check=True, capture_output=True)
    (tmp_path / "mosquitto.conf").write_bytes(rendered.stdout)
    mosquitto = Mosquitto(tmp_path, config=tmp_path / "mosquitto.conf")
    gateway = Process("gateway", [program, "run", "--config", config], tmp_path, ready="edge-gateway ready")
    line = documented_line()
    payload = line[line.index("-m") + 1].encode()
    before = len(read_whole(broker.bootstrap, "readings"))
    with all_stopped(mosquitto, gateway):
        mosquitto.start()
        gateway.start()
        started_ms = time.time_ns() // 1_000_000
        subprocess.run([runtimes.mosquitto_pub(), *line[1:], "-p", str(port)], check=True, timeout=20)
        found = wait_until(lambda: read_whole(broker.bootstrap, "readings")[before:], 20, "the reading in the topic")
    ended_ms = time.time_ns() // 1_000_000
    (message,) = found
    assert (message.key(), message.value()) == (b"thermometer-1", payload)
    assert dict(message.headers())["time_unit"] == b"received"
    assert started_ms <= message.timestamp()[1] <= ended_ms
    with as_command():  # starting a session sets up logging, and the environment of its JVM
        assert_sound_for_spark(message)


def assert_sound_for_spark(message) -> None:
    timestamp_ms = message.timestamp()[1]
    session = start_session(Settings(master="local[1]", spark={"spark.sql.shuffle.partitions": "1"}), "reading")
    try:
        row = (
            message.topic(),
            message.partition(),
            message.offset(),
            message.key(),
            message.value(),
            message.headers(),
        )
        columns = RECORDS.replace("timestamp TIMESTAMP, ", "")
        records = session.createDataFrame([row], columns).selectExpr("*", f"timestamp_millis({timestamp_ms}) timestamp")
        parsed = transforms.parse(records, Settings().ahead_max_ms)
        assert transforms.select_malformed(parsed).collect() == []
        (reading,) = transforms.readings(parsed).collect()
    finally:
        stop_session(session)
    assert (reading.device, reading.value, reading.time_ms) == ("thermometer-1", 21.5, timestamp_ms)
