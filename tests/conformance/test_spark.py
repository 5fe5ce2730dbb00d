"""Spark's connector and the job `readings` against a real broker: read, write, resume from the checkpoint.

Invariants:
- killed with SIGKILL and started again, the job counts each reading once: windows hold what the topic holds;
- the results topic of the windows is compacted, and a late reading writes its key again;
- each late reading is in the topic of late readings, under its place in the input, and in no window, whatever was
  killed: exactly those that the batches' own offsets and the topic's content say, computed again in plain Python;
- a record that is no reading stops nothing and is kept with its offset;
- in a standalone cluster the batches run on its executors, and the first one that is launched starts;
- SIGTERM ends with status 0, to its whole group and Ctrl-C too, with one line and no trace;
- that a cluster has no executor is said;
- offsets that are gone end the job with status 1 and a sentence, they are never skipped.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.support import runtimes
from tests.support.kafka_reading import create_topic, read_topic
from tests.support.ports import free_port
from tests.support.processes import JVM_STOP_STATUSES, Process, wait_until
from tests.support.waiting import CALL_S

pytestmark = pytest.mark.timeout(300)
START_MS = 1_764_000_000_000
DEADLINE_S = 90.0


class Site:
    """One job on one topic: its process, what was published, and what came out."""

    def __init__(self, bootstrap: str, topic: str, directory: Path, master: str | None = None) -> None:
        self.bootstrap, self.topic, self.checkpoint = bootstrap, topic, directory / "checkpoint"
        self.windows, self.alarms, self.late = f"{topic}-windows", f"{topic}-alarms", f"{topic}-late"
        names = {"topic": topic, "windows_topic": self.windows, "late_topic": self.late, "alarms_topic": self.alarms}
        quick = {"trigger_ms": 200, "malformed_trigger_ms": 1000, "lateness_max_ms": 30_000, "ahead_max_ms": 1_000_000}
        quick["spark.sql.streaming.minBatchesToRetain"] = 10_000  # what each batch read is what late readings hang on
        settings = [f"--set={key}={value}" for key, value in {**names, **quick}.items()]
        command = [runtimes.console_script("edge-spark"), "run", "readings", "--bootstrap", bootstrap]
        command = [*command, "--checkpoint", self.checkpoint, *settings]
        command += ["--master", master] if master is not None else []
        self.process = Process("spark", command, directory, ready="edge-spark ready", ready_s=DEADLINE_S)
        self.sent: dict[str, list[float]] = {}

    def said(self) -> str:
        return self.process.log_path.read_text()

    def publish(self, seconds: range | list[int], value: float = 20.0) -> None:
        records = []
        for second in seconds:
            for device in ("d1", "d2"):
                time_ms, reading = START_MS + second * 1000, value + second % 3
                self.sent.setdefault(f"{device}|{time_ms // 10_000 * 10_000}", []).append(reading)
                body = {"device": device, "seq": second, "time_ms": time_ms, "value": reading}
                records.append((device, json.dumps(body)))
        self.publish_raw(*records)

    def publish_raw(self, *records: tuple[str | None, str]) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all"})  # gone before the topic may be
        for key, value in records:
            producer.produce(self.topic, value, key=key)
        assert producer.flush(CALL_S) == 0

    def results(self, topic: str) -> list[tuple[str, dict[str, Any]]]:
        return [(str(read.key, "utf-8"), json.loads(read.value or b"")) for read in read_topic(self.bootstrap, topic)]

    def windows_match(self) -> bool:
        self.process.check()
        found = dict(self.results(self.windows))
        figures = {key: (each["count"], each["min"], each["max"]) for key, each in found.items()}
        return figures == {key: (len(all_), min(all_), max(all_)) for key, all_ in self.sent.items()}

    def wait_for_windows(self) -> None:
        wait_until(self.windows_match, DEADLINE_S, "windows equal to what was published", poll_s=0.5)


@pytest.fixture
def site(broker, new_topic, tmp_path: Path) -> Iterator[Site]:
    described = Site(broker.bootstrap, new_topic(2), tmp_path)
    yield described
    described.process.kill()


def malformed(site: Site) -> list[dict[str, Any]]:
    files = sorted((site.checkpoint / "malformed").glob("batch=*/*.json"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_the_job_resumes_after_a_kill_and_never_skips(site: Site) -> None:
    site.publish(range(15))
    site.publish_raw((None, '{"device":'))
    with site.process as job:
        site.wait_for_windows()
        wait_until(lambda: malformed(site), DEADLINE_S, "the malformed record")
        site.publish(range(15, 25))
        job.kill()  # in mid-batch, most likely
        site.publish(range(25, 40))
        site.publish([41], value=70.0)
        job.start()
        site.publish([3], value=15.0)  # late: its window was written long before
        site.wait_for_windows()
        wait_until(lambda: site.results(site.alarms), DEADLINE_S, "an alarm")
        site.publish([200])  # moves the watermark, so that windows end
        site.wait_for_windows()
        wait_until(lambda: finished_files(site), DEADLINE_S, "Parquet files of finished windows")
    assert [(each["text"], each["problem"]) for each in malformed(site)] == [
        ('{"device":', "no `device`, as JSON or as key"),
    ]
    assert {(each["device"], each["value"]) for _, each in site.results(site.alarms)} == {("d1", 72.0), ("d2", 72.0)}
    assert len([key for key, _ in site.results(site.windows) if key == f"d1|{START_MS}"]) >= 2
    assert policy(site.bootstrap, site.windows) == "compact"
    end_on_lost_offsets(site)  # here, as each start of a JVM costs many seconds


def finished_files(site: Site) -> list[Path]:
    return list((site.checkpoint / "finished_windows").glob("batch=*/date=2025-11-24/*.parquet"))


@pytest.mark.night
def test_late_readings_are_counted_and_kept_through_kills(site: Site) -> None:
    series = disordered_series(devices=6, seconds=600)
    sent = 0
    with site.process as job:
        for number, chunk in enumerate(batched(series, 250)):
            planned = len(planned_batches(site))
            site.publish_raw(*chunk)
            sent += len(chunk)
            if number % 6 == 5:
                wait_until(lambda: len(planned_batches(site)) > planned, DEADLINE_S, "a batch that has begun")  # noqa: B023
                job.kill()
                job.start()
            wait_until(lambda: accounted(site) == sent, DEADLINE_S, "every reading in a window or among the late")  # noqa: B023
        expected = late_by_the_batches(site)
        assert len(expected) > 60
        wait_until(lambda: late_ever(site) == len(expected), DEADLINE_S, "a progress line with all late readings")
    assert {key: figures(value) for key, value in dict(site.results(site.late)).items()} == expected
    assert windows_without(site, expected) == window_counts(site)


def late_ever(site: Site) -> int:
    """What the newest progress line counts; 0 before the first one."""
    return int(["0", *re.findall(r"late_records_ever=(\d+)", site.process.log_path.read_text())][-1])


def batched(series: list[tuple[str, str]], size: int) -> Iterator[list[tuple[str, str]]]:
    yield from (series[start : start + size] for start in range(0, len(series), size))


def disordered_series(devices: int, seconds: int) -> list[tuple[str, str]]:
    """Readings of each device at each second, as they come: some by minutes late, one device always by two."""
    chance = random.Random(14)
    readings = []
    for second in range(seconds):
        for device in range(devices):
            delay_s = chance.choice([0, 0, 1, 5, 20, 20, 90, 300]) + (120 if device == 0 else 0)
            body = {"device": f"d{device}", "time_ms": START_MS + second * 1000, "value": chance.gauss(20, 2)}
            readings.append((second + delay_s, (f"d{device}", json.dumps(body))))
    return [record for _, record in sorted(readings)]


def figures(late: dict[str, Any]) -> tuple[str, int, int]:
    return late["device"], late["time_ms"], late["watermark_ms"]


def accounted(site: Site) -> int:
    site.process.check()
    return sum(window_counts(site).values()) + len(dict(site.results(site.late)))


def window_counts(site: Site) -> dict[str, int]:
    return {key: window["count"] for key, window in dict(site.results(site.windows)).items()}


def planned_batches(site: Site) -> list[Path]:
    """The files in which Spark writes what a batch will read, before it reads, in order."""
    files = (site.checkpoint / "windows_progress/offsets").glob("[0-9]*")
    return sorted(files, key=lambda path: int(path.name))


def late_by_the_batches(site: Site) -> dict[str, tuple[str, int, int]]:
    """Which readings came after the watermark, by the ranges that Spark's own log says each batch took."""
    readings = {
        (read.partition, read.offset): json.loads(read.value) for read in read_topic(site.bootstrap, site.topic)
    }
    found: dict[str, tuple[str, int, int]] = {}
    newest_ms, begin = -1, {0: 0, 1: 0}
    for path in planned_batches(site):
        end = {int(part): int(to) for part, to in json.loads(path.read_text().splitlines()[2])[site.topic].items()}
        taken = [(part, offset) for part in end for offset in range(begin[part], end[part])]
        watermark_ms = newest_ms - 30_000
        for part, offset in taken:
            reading = readings[part, offset]
            if reading["time_ms"] // 10_000 * 10_000 + 10_000 <= watermark_ms:
                found[f"{site.topic}|{part}|{offset}"] = (reading["device"], reading["time_ms"], watermark_ms)
        newest_ms = max([newest_ms, *(readings[place]["time_ms"] for place in taken)])
        begin = end
    return found


def windows_without(site: Site, late: dict[str, Any]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for read in read_topic(site.bootstrap, site.topic):
        if f"{site.topic}|{read.partition}|{read.offset}" not in late:
            reading = json.loads(read.value or b"")
            key = f"{reading['device']}|{reading['time_ms'] // 10_000 * 10_000}"
            counts[key] = counts.get(key, 0) + 1
    return counts


def policy(bootstrap: str, topic: str) -> str | None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})  # must outlive its answer
    answer = admin.describe_configs([resource])[resource].result(CALL_S)
    return answer["cleanup.policy"].value


def end_on_lost_offsets(site: Site) -> None:
    admin = AdminClient({"bootstrap.servers": site.bootstrap})
    admin.delete_topics([site.topic])[site.topic].result(CALL_S)
    wait_until(lambda: site.topic not in admin.list_topics(timeout=CALL_S).topics, 30, "the topic to be gone")
    create_topic(site.bootstrap, site.topic, 2)
    site.process.spawn()
    assert site.process.wait(DEADLINE_S) == 1
    assert f"offsets that {site.checkpoint} needs are gone" in site.process.log_path.read_text()


class Daemon(Process):
    """Spark's master or worker, and what its web page says."""

    def __init__(self, role: str, directory: Path, *words: str | Path) -> None:
        self.port, self.web_port = free_port(), free_port()
        listening = ["--port", str(self.port), "--web-port", str(self.web_port)]
        command = [runtimes.console_script("edge-spark"), role, *listening, *words]
        super().__init__(
            role, command, directory, ready=self.is_up, ready_s=DEADLINE_S, stop_statuses=JVM_STOP_STATUSES
        )

    def is_up(self) -> bool:
        try:
            return self.page()["status"] == "ALIVE" if self.name == "master" else self.page()["cores"] > 0
        except OSError:
            return False

    def page(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.web_port}/json/", timeout=CALL_S) as answer:
            page: dict[str, Any] = json.load(answer)
        return page


@pytest.mark.night  # 70 s; the job itself is shown above
def test_a_job_runs_on_the_executors_of_a_cluster(broker, new_topic, tmp_path: Path) -> None:
    with Daemon("master", tmp_path) as master:
        url = f"spark://127.0.0.1:{master.port}"
        work = ["--cores", "2", "--memory", "512m", "--work-dir", tmp_path / "work", url]
        site = Site(broker.bootstrap, new_topic(2), tmp_path, master=url)
        site.publish(range(15))
        with site.process:
            wait_until(
                lambda: "no executor has registered" in site.said(), DEADLINE_S, "a line that there is no worker"
            )
            with Daemon("worker", tmp_path, *work) as worker:
                wait_until(lambda: site.windows_match() or worker.page()["finishedexecutors"], DEADLINE_S, "windows")
                assert worker.page()["finishedexecutors"] == [], executors_said(tmp_path)
                assert [executor["id"] for executor in worker.page()["executors"]] == [0]
                assert "executors_registered executors=1" in site.said()
                end_group(site, signal.SIGTERM)


def test_ctrl_c_while_spark_starts_ends_it_with_one_sentence(site: Site) -> None:
    site.process.spawn()
    wait_until(lambda: "waiting_for_jvm" in site.said(), DEADLINE_S, "the start of the JVM")
    end_group(site, signal.SIGINT)


def end_group(site: Site, number: signal.Signals) -> None:
    """A signal to the job, its JVM and all that they started, as a terminal sends Ctrl-C: the job has the last word."""
    before = len(site.said())
    os.killpg(site.process.pid, number)
    assert site.process.wait(DEADLINE_S) == 0
    said = site.said()[before:].replace("WARNING: Using incubator modules: jdk.incubator.vector\n", "")  # Java's
    assert re.fullmatch(r"(\S+ info spark progress .*\n)*\S+ info spark stopped job=readings\n", said), said


def executors_said(directory: Path) -> list[str]:
    """The last line of each executor that a worker has launched."""
    return [path.read_text().strip().splitlines()[-1] for path in directory.glob("work/*/*/stderr")]
