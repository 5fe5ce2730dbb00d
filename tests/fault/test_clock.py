"""A broker whose wall clock is wrong, and set while it runs: libfaketime shows it another time of day.

What must hold: no record younger than its retention goes, none older stays, producers and groups notice nothing. Each
time a second topic, whose records are past their retention at once, shows that retention did run after the jump.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from edge_broker.storage.files.atomic_files import read_state
from edge_broker.storage.files.data_age import KIND, age_of
from edge_broker.storage.files.filesystem import Disk
from tests.support import runtimes
from tests.support.processes import EdgeBroker, wait_until
from tests.support.waiting import CALL_S, Deadline

RECORDS = 48
BATCH_RECORDS = 6  # a segment holds one such batch
YEAR, TEN_YEARS, WEEK = "365d", "3650d", "7d"
SETTINGS = {
    "log.retention.check.interval.ms": 100,
    "log.segment.bytes": 4096,
    "producer.id.expiration.ms": 60_000,
    "log.roll.ms": 3_600_000,
}
# Whether the broker believes its clock, and whose time records carry: a clock that lies and is believed makes old what
# producers with the right time send, so it stamps them itself.
NOTICED_S = 5.0
WARY, TRUSTING = ("false", "CreateTime"), ("true", "LogAppendTime")
BELIEVING = "true", "CreateTime"
CONFIGS = {"kept": {"retention.ms": "600000"}, "short": {"retention.ms": "1"}}


class Site:
    """A broker, the clock it is shown, and clients with the right one."""

    def __init__(self, directory: Path, clock: tuple[str, str], shift: str) -> None:
        trusted, self.timestamps = clock
        self.clock = directory / "clock"
        self.shift(shift)
        self.broker = EdgeBroker(directory, settings={**SETTINGS, "edge.clock.trusted": trusted})
        self.broker.environment = {
            "LD_PRELOAD": str(runtimes.libfaketime()),
            "FAKETIME_TIMESTAMP_FILE": str(self.clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # else timed waits return at once, over and over
        }
        self.sent = 0
        self._asking: Consumer | None = None

    def shift(self, shift: str) -> None:
        """Set the broker's clock this far from the right one."""
        new = self.clock.with_suffix(".new")
        new.write_text(f"{shift}\n")
        new.rename(self.clock)

    def stepped(self, shift: str) -> None:
        """Set the clock, and wait until the broker has looked at it."""
        before = self.looks()
        self.shift(shift)
        wait_until(lambda: self.looks() > before, 30, self.broker.log_tail)

    def looks(self) -> int:
        """How often the broker has noted that its clock is another one."""
        return len(re.findall(r"\bclock(_stepped)? ", self.broker.log_tail(1000)))

    def make_topics(self) -> None:
        """One topic that keeps its records for ten minutes, one for a millisecond."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        stamp = {"message.timestamp.type": self.timestamps}
        topics = [NewTopic(name, num_partitions=1, config={**config, **stamp}) for name, config in CONFIGS.items()]
        for made in admin.create_topics(topics).values():
            made.result(CALL_S)

    def produce(self, producer: Producer) -> None:
        """Send records to both topics; each is acked."""
        errors: list[object] = []
        for number in range(RECORDS):
            for topic in CONFIGS:
                producer.produce(topic, bytes(500), on_delivery=lambda error, _: errors.append(error))
            self.sent += 1
            if number % BATCH_RECORDS == BATCH_RECORDS - 1:
                producer.flush(CALL_S)
        assert errors == [None] * (RECORDS * len(CONFIGS))

    def retention_ran(self) -> None:
        """Wait until what is due by now is gone: everything that is sealed of the topic that keeps nothing."""
        end = self.watermarks("short")[1]
        wait_until(lambda: self.watermarks("short")[0] >= end - 2 * BATCH_RECORDS, 60, "retention after the jump")

    def watermarks(self, topic: str) -> tuple[int, int]:
        if self._asking is None:
            self._asking = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "watermarks"})
        first, end = self._asking.get_watermark_offsets(TopicPartition(topic, 0), timeout=CALL_S)
        return first, end

    def forget(self) -> None:
        """Let the asking client go, before the broker goes."""
        if self._asking is not None:
            self._asking.close()
            self._asking = None

    def check(self) -> None:
        """Every record of the topic that keeps its records is there."""
        self.retention_ran()
        assert self.watermarks("kept") == (0, self.sent)

    def producer(self) -> Producer:
        return Producer({"bootstrap.servers": self.broker.bootstrap, "enable.idempotence": True, "linger.ms": 1000})


def group_member(site: Site) -> tuple[Consumer, list[str]]:
    """A member of a group, and what its group told it of rebalances."""
    told: list[str] = []
    member = Consumer(
        {
            "bootstrap.servers": site.broker.bootstrap,
            "group.id": "steady",
            "session.timeout.ms": 30_000,
            "auto.offset.reset": "earliest",
        }
    )
    member.subscribe(
        ["kept"],
        on_assign=lambda *_: told.append("assigned"),
        on_revoke=lambda *_: told.append("revoked"),
        on_lost=lambda *_: told.append("lost"),
    )
    return member, told


def drain(member: Consumer, records: int) -> None:
    deadline = Deadline(60)
    while records:
        message = member.poll(1)
        deadline.check("all records are read", f"{records} are missing")
        if message is not None:
            if message.error() is not None:
                raise KafkaException(message.error())
            records -= 1


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory in memory: what is shown here takes many syncs and no disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="edge-clock-") as directory:
        yield Path(directory)


@pytest.mark.parametrize(
    ("clock", "first", "then"),
    [
        (WARY, f"+{YEAR}", "+0"),
        (WARY, "+0", f"+{YEAR}"),
        (WARY, "+0", f"-{WEEK}"),
        (TRUSTING, "+0", f"+{YEAR}"),
        (TRUSTING, "+0", f"-{WEEK}"),
    ],
)
def test_a_clock_that_is_set_while_the_broker_runs(memory: Path, clock: tuple[str, str], first: str, then: str) -> None:
    site = Site(memory, clock, first)
    with site.broker:
        site.make_topics()
        producer = site.producer()
        site.produce(producer)
        member, told = group_member(site)
        drain(member, site.sent)
        site.check()
        site.shift(then)
        site.produce(producer)  # the same idempotent producer: its sequence goes on
        drain(member, RECORDS)
        site.check()
        member.close()
        site.forget()
        assert told == ["assigned", "revoked"], "only leaving the group may take the partition away"


@pytest.mark.parametrize("then", [(f"+{TEN_YEARS}",), (f"-{TEN_YEARS}",), (f"+{TEN_YEARS}", "+0", f"+{YEAR}")])
def test_a_believed_clock_that_steps_makes_no_record_older_than_its_time_on_disk(
    memory: Path, then: tuple[str, ...]
) -> None:
    """Producers are right: by the clock their records are ten years old, and nothing younger stands before them."""
    site = Site(memory, BELIEVING, "+0")
    with site.broker:
        site.make_topics()
        for shift in then:
            site.stepped(shift)
            site.produce(site.producer())
            site.check()
        site.forget()
        site.broker.kill()
    with site.broker:
        site.produce(site.producer())
        site.check()
        site.forget()


@pytest.mark.parametrize(
    ("clock", "then"),
    [  # each clock and each way; the other two of the four are set above, while it runs
        (WARY, f"+{YEAR}"),
        pytest.param(WARY, f"-{WEEK}", marks=pytest.mark.night),
        pytest.param(TRUSTING, f"+{YEAR}", marks=pytest.mark.night),
        (TRUSTING, f"-{WEEK}"),
        (BELIEVING, f"+{TEN_YEARS}"),
    ],
)
def test_a_clock_that_is_wrong_from_the_next_start_on(memory: Path, clock: tuple[str, str], then: str) -> None:
    site = Site(memory, clock, "+0")
    with site.broker:
        site.make_topics()
        site.produce(site.producer())
    site.shift(then)
    for end in (site.broker.stop, site.broker.kill):
        with site.broker:
            site.produce(site.producer())
            site.check()
            site.forget()
            end()


def test_a_step_is_on_the_disk_within_seconds(memory: Path) -> None:
    """A power cut before that makes it look like time without power, where a clock chip keeps it."""
    site = Site(memory, BELIEVING, "+0")
    with site.broker:
        site.make_topics()
        site.produce(site.producer())
        for direction in ("forward", "back"):
            lines = site.looks()
            site.shift(f"+{TEN_YEARS}" if direction == "forward" else f"-{TEN_YEARS}")
            wait_until(lambda lines=lines: site.looks() > lines, NOTICED_S, site.broker.log_tail)
            wait_until(lambda: stepped_days(site) != 0, NOTICED_S, "the file has the step")
        site.forget()
        site.broker.kill()


def stepped_days(site: Site) -> int:
    """How far the clock was set, as the file of the data directory has it."""
    age = age_of(read_state(Disk(), str(site.broker.data_dir / "age"), KIND))
    return age.stepped_ms // 86_400_000
