"""The two that are compared, as processes on a host: edge-mirror, by its command line alone, and MirrorMaker 2.

Both call a topic `NAME.TOPIC` at the target, NAME being the cell's, and so begin anew in each cell. Must never come in:
what is measured, a module of the mirror.
"""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks.mirror.cells import MIRROR
from tests.support import runtimes
from tests.support.linked_hosts import Host
from tests.support.processes import JVM_STOP_STATUSES, Process

METRICS_PORT = 9399
HTTP_S = 5.0
RESTARTS = re.compile(r"^edge_mirror_restarts_total(?:{.*})? (\S+)$", re.MULTILINE)
MIRRORED = re.compile(r"^edge_mirror_records_total(?:{.*})? (\S+)$", re.MULTILINE)
_TICKS = os.sysconf("SC_CLK_TCK")
# MirrorMaker 2 as somebody sets it up who knows it: zstd, batches that fill, no heartbeats and checkpoints on the wire.
MM2_HEAP = "1g"
MM2_TUNED = {
    "tasks.max": "4",
    "replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "emit.heartbeats.enabled": "false",
    "emit.checkpoints.enabled": "false",
    "sync.topic.acls.enabled": "false",
    "refresh.topics.interval.seconds": "5",
    "offset.flush.interval.ms": "5000",
    "center.producer.compression.type": "zstd",
    "center.producer.batch.size": "524288",
    "center.producer.linger.ms": "100",
    "center.producer.buffer.memory": "67108864",
    "center.producer.request.timeout.ms": "120000",
    "center.producer.delivery.timeout.ms": "300000",
    "{name}.consumer.max.poll.records": "5000",
    "{name}.consumer.fetch.max.wait.ms": "100",
    "{name}.consumer.auto.offset.reset": "earliest",
}


class Way(NamedTuple):
    """From where to where, under which name, and what is moved."""

    name: str
    source: str
    target: str
    topics: tuple[str, ...]

    @property
    def pattern(self) -> str:
        """The topics as an expression."""
        return "|".join(self.topics)

    def at_target(self, topic: str) -> str:
        """A topic's name there."""
        return f"{self.name}.{topic}"


class Subject(Process):
    """A mirror as a process; CPU and memory are those of it and its children, over this life."""

    def used(self) -> tuple[float, float]:
        """CPU seconds so far and the greatest resident memory in MiB."""
        ids = _tree(self.pid)
        return sum(map(_cpu_s, ids)), sum(map(_peak_mb, ids))


class EdgeMirror(Subject):
    """edge-mirror run, of any checkout."""

    def __init__(self, host: Host, directory: Path, way: Way, program: Path, settings: Mapping[str, object]) -> None:
        """`settings` are keys of its configuration file."""
        directory.mkdir(parents=True, exist_ok=True)
        self._host = host
        config = directory / f"{way.name}.toml"
        config.write_text("".join(f"{key} = {_toml(value)}\n" for key, value in settings.items()))
        command: list[str | Path] = [*host.inside, program, "run", "--source", way.source, "--target", way.target]
        command += ["--topics", way.pattern, "--site", way.name, "--config", config]
        command += ["--metrics", f"127.0.0.1:{METRICS_PORT}"]
        super().__init__(f"edge-mirror-{way.name}", command, directory)

    def told(self) -> dict[str, Any]:
        """What it says of itself: its health in a line, and how often it had to make a client anew."""
        return {"health": self._page("health"), "restarts": self._sum(RESTARTS)}

    def mirrored(self) -> int:
        """How many records the target has acknowledged, by its metrics; 0 while it does not answer."""
        return int(self._sum(MIRRORED))

    def _sum(self, metric: re.Pattern[str]) -> float:
        return sum(map(float, metric.findall(self._page("metrics"))))

    def _page(self, name: str) -> str:
        return self._host.call(_get, f"http://127.0.0.1:{METRICS_PORT}/{name}")


class MirrorMaker(Subject):
    """MirrorMaker 2 of Apache Kafka 4.3.1, dedicated mode."""

    def __init__(self, host: Host, directory: Path, way: Way) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        properties = directory / f"{way.name}.properties"
        ends = {f"{way.name}.bootstrap.servers": way.source, "center.bootstrap.servers": way.target}
        flow = {f"{way.name}->center.enabled": "true", f"{way.name}->center.topics": way.pattern}
        lines = {"clusters": f"{way.name}, center", **ends, **flow, f"center->{way.name}.enabled": "false", **MM2_TUNED}
        properties.write_text("".join(f"{key.format(name=way.name)} = {value}\n" for key, value in lines.items()))
        classpath = f"{runtimes.kafka_jars()}/*:{runtimes.mirrormaker_jars()}/*"
        java = [
            str(runtimes.java()),
            f"-Xmx{MM2_HEAP}",
            "-cp",
            classpath,
            "org.apache.kafka.connect.mirror.MirrorMaker",
        ]
        command = [*host.inside, *java, str(properties)]
        super().__init__(f"mm2-{way.name}", command, directory, stop_statuses=JVM_STOP_STATUSES)

    def told(self) -> dict[str, Any]:
        """It says nothing of itself but in its log."""
        return {"health": "running"}


def subject(
    side: str, host: Host, directory: Path, way: Way, program: Path, settings: Mapping[str, object]
) -> EdgeMirror | MirrorMaker:
    """The one that a side names."""
    if side == MIRROR:
        return EdgeMirror(host, directory, way, program, settings)
    return MirrorMaker(host, directory, way)


def _toml(value: object) -> str:
    """A value as TOML has it; a table is written in a line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value)


def _get(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=HTTP_S) as answer:
            return str(answer.read().decode().strip())
    except urllib.error.HTTPError as error:
        return error.read().decode().strip()
    except OSError as error:
        return f"no answer: {error}"


def _tree(pid: int) -> list[int]:
    found, left = [], [pid]
    while left:
        each = left.pop()
        found.append(each)
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            left += map(int, children.read_text().split())
    return found


def _cpu_s(pid: int) -> float:
    columns = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(columns[11]) + int(columns[12])) / _TICKS


def _peak_mb(pid: int) -> float:
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) / 1024
