"""`edge-mirror audit` between Apache Kafka and an edge broker, both ways: all is proven, and what was forged is named.

Invariants: transactions, a cleaned log, a head that went, what is lost in the ledger and a tail that waits add up at
either end, however the digests come: read at both ends, from a command, from files. One record that is lost, changed,
doubled, out of order or of others at the target is told by its offsets, and nothing else is.
"""

from __future__ import annotations

import asyncio
import json
import subprocess

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from drupelet.kafka.client import ClientSettings
from kafka_wire.cluster import Cluster
from mirror.partition.offset_map import End, Step
from mirror.partition.state_records import Head, Topics, head_record, steps_record, topic_name
from tests.support import runtimes
from tests.support.mirror_road import EdgeMirror, Load, bounds, create_topic, produce, read_all, wait_mirrored
from tests.support.processes import ApacheKafka, EdgeBroker, wait_until
from tests.support.waiting import CALL_S

QUICK = {
    "log.cleaner.backoff.ms": 200,
    "log.initial.task.delay.ms": 100,
    "group.initial.rebalance.delay.ms": 0,
}
PROVEN, DIFFERS, BAD_USAGE = 0, 1, 2


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), settings=QUICK) as process:
        yield process


@pytest.fixture(scope="module")
def edge(tmp_path_factory):
    with EdgeBroker(tmp_path_factory.mktemp("edge")) as process:
        yield process


def command(*arguments, topics, site="lab"):
    return [runtimes.console_script("edge-mirror"), "audit", "--topics", topics, "--site", site, *arguments]


def run(words):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)


def audited(*arguments, topics, site="lab", status=PROVEN):
    """Audit, and return what is told of each partition of the topic."""
    done = run(command("--json", *arguments, topics=topics, site=site))
    assert done.returncode == status, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["proven"] == (status == PROVEN)
    for one in told["partitions"]:
        for side in ("source", "target"):
            counts = {name: count for name, count in one[side].items() if name not in ("start", "end")}
            assert sum(counts.values()) == one[side]["end"]
    return [one for one in told["partitions"] if one["topic"] == topics]


def delete(broker, topic, below):
    """Delete the records below an offset."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    place = TopicPartition(topic, 0, below)
    admin.delete_records([place])[place].result(CALL_S)


def every_way(source, target, topic, tmp_path):
    """Audit by all ways to either end, which must tell the same; return what they told."""
    ends = {"source": ["--source", source.bootstrap], "target": ["--target", target.bootstrap]}
    tell = {side: command("--digests-of", side, *ends[side], topics=topic) for side in ends}
    by, files = {}, {}
    for side in ("target", "source"):
        done = run([*tell[side], "--each"])
        assert done.returncode == 0, done.stderr
        files[side] = tmp_path / f"{topic}.{side}"
        files[side].write_text(done.stdout)
        by[side] = " ".join(f"'{word}'" for word in tell[side])
    direct = audited(*ends["source"], *ends["target"], topics=topic)
    ways = [
        [*ends["source"], "--target-by", by["target"]],
        ["--source-by", by["source"], *ends["target"]],
        ["--source-digests", files["source"], "--target-digests", files["target"]],
    ]
    for way in ways:
        assert audited(*way, topics=topic) == direct, way
    return direct


def test_transactions_a_head_that_went_and_a_tail_that_waits(kafka, edge, tmp_path):
    create_topic(kafka.bootstrap, "runs", 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "audit", "linger.ms": 0})
    producer.init_transactions(CALL_S)
    for number in range(10):
        producer.begin_transaction()
        for part in range(3):
            producer.produce("runs", b"%d-%d" % (number, part), key=b"k", headers=[("part", b"%d" % part)])
        producer.flush(CALL_S)
        (producer.abort_transaction if number % 5 == 1 else producer.commit_transaction)(CALL_S)
    with EdgeMirror(tmp_path, kafka.bootstrap, edge.bootstrap, topics="runs", site="lab"):
        wait_until(lambda: len(read_all(edge.bootstrap, "lab.runs")) == 24, 30, "runs mirrored", poll_s=0.3)
    delete(kafka, "runs", 6)
    produce(kafka.bootstrap, "runs", 0, 5)
    [one] = every_way(kafka, edge, "runs", tmp_path)
    assert {name: count for name, count in one["source"].items() if count} == {
        "start": 6, "end": 45, "expired": 6, "mirrored": 21, "aborted": 4, "control": 9, "pending": 5,
    }  # fmt: skip
    assert one["target"]["mirrored"] == one["target"]["end"] - one["target"]["control"] == 24
    assert one["compared"] == 21


def test_a_log_that_was_cleaned(kafka, edge, tmp_path):
    fast = {"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.0"}
    create_topic(kafka.bootstrap, "latest", 1, fast)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0})
    sent = []

    def more():
        sent.append(len(sent))
        producer.produce("latest", b"%d" % len(sent), key=b"k%d" % (len(sent) % 3))
        producer.flush(CALL_S)
        held = read_all(kafka.bootstrap, "latest")
        return held[-1].offset - held[0].offset + 1 > len(held)

    produce(kafka.bootstrap, "latest", 0, 30)
    with EdgeMirror(tmp_path, kafka.bootstrap, edge.bootstrap, topics="latest", site="lab"):
        wait_mirrored(edge.bootstrap, "lab.latest", {0: 30})
        wait_until(more, 60, "the cleaner at work", poll_s=0.1)
        last = [b"%d" % len(sent)]
        wait_until(lambda: [r.value for r in read_all(edge.bootstrap, "lab.latest")][-1:] == last, 30, "mirrored")
    [one] = audited("--source", kafka.bootstrap, "--target", edge.bootstrap, topics="latest")
    assert one["source"]["compacted"]
    assert one["source"]["compacted"] + one["source"]["mirrored"] == one["source"]["end"]
    assert one["target"]["mirrored"] + one["target"]["compacted"] >= 30
    assert not one["target"]["foreign"]


def test_what_the_ledger_has(edge, kafka, tmp_path):
    create_topic(edge.bootstrap, "gone", 1)
    produce(edge.bootstrap, "gone", 0, 20)
    ends = ["--source", edge.bootstrap, "--target", kafka.bootstrap]
    with EdgeMirror(tmp_path / "one", edge.bootstrap, kafka.bootstrap, topics="gone", site="lab"):
        wait_mirrored(kafka.bootstrap, "lab.gone", {0: 20})
    produce(edge.bootstrap, "gone", 20, 40)
    delete(edge, "gone", 30)
    [one] = audited(*ends, topics="gone", status=DIFFERS)
    [silent] = one["differences"]  # no mirror has come by yet, and nobody has written down that these are gone
    assert (silent["kind"], silent["source_offset"], silent["records"]) == ("unaccounted", 20, 10)
    with EdgeMirror(tmp_path / "two", edge.bootstrap, kafka.bootstrap, topics="gone", site="lab"):
        wait_mirrored(kafka.bootstrap, "lab.gone", {0: 30})
    [one] = audited(*ends, topics="gone")
    assert one["source"]["expired"] == 20
    assert one["source"]["ledgered"] == 10
    assert one["source"]["mirrored"] == 10
    assert one["target"]["mirrored"] == 30


def forge(edge, kafka, topic, name, change):
    """Copy a topic to the target as a mirror would, but for what `change` makes of its records."""
    create_topic(kafka.bootstrap, name, 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, "compression.type": "gzip"})
    for record in change(read_all(edge.bootstrap, topic)):
        producer.produce(
            name, record.value, key=record.key, partition=0, timestamp=record.timestamp, headers=list(record.headers)
        )
    assert not producer.flush(CALL_S)


def changed(record, **fields):
    return type(record)(**{**record.__dict__, **fields})


def change_parts(all_):
    """Four records far from each other, each changed in another part."""
    forged = list(all_)
    for offset, fields in PARTS.items():
        forged[offset] = changed(forged[offset], **fields)
    return forged


PARTS = {700: {"key": b"other"}, 900: {"value": b"other"}, 1500: {"headers": ()}, 2600: {"timestamp": 5}}
FORGERIES = {
    "lost": (lambda all_: all_[:700] + all_[701:], [("lost", 700, None)]),
    "changed": (change_parts, [("changed", offset, offset) for offset in PARTS]),
    "doubled": (lambda all_: all_[:701] + all_[700:], [("doubled", None, 701)]),
    "moved": (lambda all_: all_[:700] + all_[701:703] + all_[700:701] + all_[703:], [("moved", 700, 702)]),
    "foreign": (lambda all_: [*all_[:700], changed(all_[700], value=b"mine"), *all_[700:]], []),
}
COMPARED = {"lost": 2999, "changed": 2996, "doubled": 3000, "moved": 2999, "foreign": 3000}


@pytest.fixture(scope="module")
def readings(edge):
    create_topic(edge.bootstrap, "readings", 1)
    produce(edge.bootstrap, "readings", 0, 3000)
    return "readings"


@pytest.mark.parametrize("forgery", FORGERIES)
def test_one_record_that_was_forged(edge, kafka, readings, forgery):
    change, differences = FORGERIES[forgery]
    forge(edge, kafka, readings, f"{forgery}.{readings}", change)
    status = DIFFERS if differences else PROVEN
    source, target = ["--source", edge.bootstrap], ["--target", kafka.bootstrap]
    tell = " ".join(map(str, command("--digests-of", "target", *target, topics=readings, site=forgery)))
    for way in (target, ["--target-by", tell]) if forgery in ("lost", "changed") else (target,):
        [one] = audited(*source, *way, topics=readings, site=forgery, status=status)
        assert [(d["kind"], d["source_offset"], d["target_offset"]) for d in one["differences"]] == differences
        assert one["foreign_from"] == (700 if forgery == "foreign" else None)
        assert one["compared"] == COMPARED[forgery]
        if forgery == "changed":
            assert one["differences"][0]["parts"] == ["key"]


def test_what_may_be_doubled(edge, kafka, readings):
    forge(edge, kafka, readings, f"twice.{readings}", lambda all_: all_[:701] + all_[700:])
    ends = ["--source", edge.bootstrap, "--target", kafka.bootstrap]
    said = run(command(*ends, topics=readings, site="twice"))
    assert f"{readings}-0: first difference: the record at target offset 701 is there twice" in said.stdout
    audited(*ends, "--allow-duplicates", topics=readings, site="twice")


def test_by_the_map(edge, kafka, readings):
    """A foreign record is told from one that vanished at the source, and where each record lies is held against it."""
    ends = ["--source", edge.bootstrap, "--target", kafka.bootstrap]
    name = f"mapped.{readings}"
    forge(edge, kafka, readings, name, FORGERIES["foreign"][0])
    topics = Topics(name, topic_id(edge, readings), topic_id(kafka, name))
    for beyond, status in ((701, PROVEN), (702, DIFFERS)):
        steps = [Step(0, 0, 0, 0), Step(700, 700, 0, beyond)]
        head = Head(topics, 1, 0, 0, 0, 0, len(steps), End(3000, 3000, beyond + 2300))
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for key, value in (steps_record((readings, 0), 0, steps), head_record((readings, 0), head)):
            producer.produce(topic_name("edge-mirror-mapped"), value, key=key)
        assert not producer.flush(CALL_S)
        [one] = audited(*ends, topics=readings, site="mapped", status=status)
        assert one["aligned_by"] == "map"
        assert one["target"]["foreign"] == 1
        told = [(d["kind"], d["source_offset"], d["target_offset"]) for d in one["differences"]]
        assert told == ([] if status == PROVEN else [("misplaced", 700, 701)])


def topic_id(broker, topic):
    """Kafka's text of it."""

    async def asked():
        cluster = Cluster(ClientSettings(broker.bootstrap, "test", 10_000))
        try:
            return (await cluster.topics([topic]))[topic].topic_id
        finally:
            cluster.close()

    return asyncio.run(asked())


def test_while_the_mirror_is_at_work(edge, kafka, tmp_path):
    create_topic(edge.bootstrap, "busy", 2)
    ends = ["--source", edge.bootstrap, "--target", kafka.bootstrap]
    mirror = EdgeMirror(tmp_path, edge.bootstrap, kafka.bootstrap, topics="busy", site="lab")
    with Load(edge.bootstrap, "busy", 2, per_second=2000), mirror:
        wait_until(lambda: bounds(kafka.bootstrap, "lab.busy", 1)[1] > 500, 30, "busy mirrored", poll_s=0.1)
        for _ in range(3):
            found = audited(*ends, topics="busy")
            assert all(one["compared"] > 500 for one in found)


def test_digests_that_cannot_be_used(edge, kafka, readings, tmp_path):
    tell = command("--digests-of", "source", "--source", edge.bootstrap, topics=readings)
    done = run(tell)
    assert done.returncode == 0, done.stderr
    whole, cut_off = tmp_path / "whole", tmp_path / "cut"
    whole.write_text(done.stdout)
    cut_off.write_text("".join(done.stdout.splitlines(keepends=True)[:-1]))
    ends = ["--target", kafka.bootstrap]
    for file, said in (
        (cut_off, "cut off"),
        (tmp_path / "none", "cannot be read"),
        (tmp_path, "is a directory"),
    ):
        done = run(command("--source-digests", file, *ends, topics=readings))
        assert done.returncode == DIFFERS
        assert said in done.stderr
    done = run(command("--source", edge.bootstrap, "--target-digests", whole, topics=readings))
    assert "it is of the source" in done.stderr
    done = run(command("--source-by", "exit 3", *ends, topics=readings))
    assert (done.returncode, "ended with status 3" in done.stderr) == (DIFFERS, True)
    done = run(command("--source", "127.0.0.1:1", *ends, topics=readings))
    assert (done.returncode, "source 127.0.0.1:1" in done.stderr) == (DIFFERS, True)
    done = run(command("--source-digests", whole, topics=readings))
    assert (done.returncode, "target is not set" in done.stderr) == (BAD_USAGE, True)
    for words, topics in (([], "reading"), (["--only", f"{readings}:7"], readings)):
        done = run(command("--source", edge.bootstrap, *ends, *words, topics=topics))
        assert (done.returncode, "nothing was audited" in done.stderr) == (DIFFERS, True)
    done = run(command("--only", "readings", *ends, topics=readings))
    assert (done.returncode, "TOPIC:PARTITION" in done.stderr) == (BAD_USAGE, True)
