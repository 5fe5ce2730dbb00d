"""Spark's connector and the job `readings` against a real broker: read, write, resume from the checkpoint.

Invariants:
- killed with SIGKILL and started again, the job counts each reading once: windows hold what the topic holds;
- the results topic of the windows is compacted, and a late reading writes its key again;
- a record that is no reading stops nothing and is kept with its offset;
- SIGTERM ends with status 0;
- offsets that are gone end the job with status 1 and a sentence, they are never skipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.support import runtimes
from tests.support.kafka_reading import create_topic, read_topic
from tests.support.processes import Process, wait_until
from tests.support.waiting import CALL_S

pytestmark = pytest.mark.timeout(300)
START_MS = 1_764_000_000_000
DEADLINE_S = 90.0


class Site:
    """One job on one topic: its process, what was published, and what came out."""

    def __init__(self, bootstrap: str, topic: str, directory: Path) -> None:
        self.bootstrap, self.topic, self.checkpoint = bootstrap, topic, directory / "checkpoint"
        self.windows, self.alarms = f"{topic}-windows", f"{topic}-alarms"
        names = {"topic": topic, "windows_topic": self.windows, "alarms_topic": self.alarms}
        quick = {"trigger_ms": 200, "finished_trigger_ms": 1000, "lateness_max_ms": 30_000, "ahead_max_ms": 1_000_000}
        settings = [f"--set={key}={value}" for key, value in {**names, **quick}.items()]
        command = [runtimes.console_script("edge-spark"), "run", "readings", "--bootstrap", bootstrap]
        command = [*command, "--checkpoint", self.checkpoint, *settings]
        self.process = Process("spark", command, directory, ready="edge-spark ready", ready_s=DEADLINE_S)
        self.sent: dict[str, list[float]] = {}

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
    return list((site.checkpoint / "finished_windows").glob("date=2025-11-24/*.parquet"))


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
