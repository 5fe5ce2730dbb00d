"""kcat (librdkafka 2.0 on Debian 12: older than confluent-kafka's) against the broker as a real process."""

import re
import subprocess
import uuid

import pytest

from tests.support.conformance.limits import MESSAGE_BYTES_MAX
from tests.support.entries import kcat
from tests.support.kafka_reading import read_topic
from tests.support.processes import Process, wait_until
from tests.support.waiting import CALL_S

LINES = [f"line {number}" for number in range(200)]
QUICK = ("-X", "session.timeout.ms=6000", "-X", "heartbeat.interval.ms=300")


def _kcat(bootstrap, *options, text=None, status=0):
    """Run kcat to its end and return what it printed; its exit status must be `status`."""
    command = [*kcat(bootstrap), *options]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=CALL_S, check=False)
    assert done.returncode == status, f"kcat ended with {done.returncode}: {done.stderr}"
    return done


def _produce(bootstrap, topic, lines, *options):
    return _kcat(bootstrap, "-P", "-t", topic, *options, text="".join(f"{line}\n" for line in lines))


def _member(tmp_path, name, broker, group, topic):
    command = [*kcat(broker.bootstrap), "-G", group, *QUICK, "-X", "auto.offset.reset=earliest"]
    return Process(name, [*command, "-u", "-f", "%p %o %s\\n", topic], tmp_path)


def _assigned(member):
    """Return the partitions of the member's last assignment, None while it has none."""
    events = re.findall(r"rebalanced \(memberid [^)]*\): (assigned|revoked): ?(.*)", member.log_path.read_text())
    if not events or events[-1][0] == "revoked":
        return None
    return {int(partition) for partition in re.findall(r"\[(\d+)\]", events[-1][1])}


def test_metadata_lists_broker_and_topic(broker, new_topic):
    topic = new_topic(3)
    listed = _kcat(broker.bootstrap, "-L", "-t", topic).stdout
    assert f"at {broker.bootstrap}" in listed
    assert f'topic "{topic}" with 3 partitions' in listed


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_and_consume(broker, new_topic, codec):
    topic = new_topic()
    _produce(broker.bootstrap, topic, LINES, "-z", codec, "-H", "source=kcat", "-k", "key")
    got = _kcat(broker.bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%o %k %h %s\\n").stdout
    assert got.splitlines() == [f"{offset} key source=kcat {line}" for offset, line in enumerate(LINES)]


def test_compression_reaches_the_broker(broker, new_topic):
    """librdkafka before 2.11 stops compressing, silently, when Produce 0 is not advertised (KAFKA-18659)."""
    topic = new_topic()
    log = _produce(broker.bootstrap, topic, ["x" * 1000] * 100, "-z", "lz4", "-d", "msg").stderr
    produced = re.findall(r"Produce MessageSet with (\d+) message\(s\) \((\d+) bytes", log)
    # How many batches they make is a matter of linger (5 ms) and load; 98 bytes where each record has its own.
    assert sum(int(records) for records, _ in produced) == 100, log
    assert sum(int(size) for _, size in produced) < 10_000, log


def test_offsets_from_the_end_and_by_time(broker, new_topic):
    topic = new_topic()
    _produce(broker.bootstrap, topic, LINES)
    last = _kcat(broker.bootstrap, "-C", "-t", topic, "-o", "-3", "-e", "-q").stdout
    assert last.splitlines() == LINES[-3:]
    assert f"{topic} [0] offset 0" in _kcat(broker.bootstrap, "-Q", "-t", f"{topic}:0:-2").stdout
    assert f"{topic} [0] offset 200" in _kcat(broker.bootstrap, "-Q", "-t", f"{topic}:0:-1").stdout
    assert f"{topic} [0] offset 0" in _kcat(broker.bootstrap, "-Q", "-t", f"{topic}:0:1000").stdout


def test_a_consumer_at_the_end_gets_what_comes(broker, new_topic, tmp_path):
    topic = new_topic()
    command = [*kcat(broker.bootstrap), "-C", "-t", topic, "-u", "-o", "beginning"]
    with Process("tail", command, tmp_path) as tail:
        wait_until(lambda: "Reached end of topic" in tail.log_path.read_text(), 20, "the consumer waits at the end")
        _produce(broker.bootstrap, topic, LINES[:5])
        wait_until(lambda: tail.output().splitlines() == LINES[:5], 10, "the new lines")


def test_group_of_two_members_shares_and_inherits(broker, new_topic, group, tmp_path):
    """The second member dies by SIGKILL, so it is its session timeout that gives its partitions to the first."""
    topic = new_topic(4)
    for partition in range(4):
        _produce(broker.bootstrap, topic, LINES[:50], "-p", str(partition))
    with _member(tmp_path, "first", broker, group, topic) as first:
        wait_until(lambda: _assigned(first) == {0, 1, 2, 3}, 20, "the first member has all partitions")
        wait_until(lambda: len(first.output().splitlines()) == 200, 20, "it read everything")
        second = _member(tmp_path, "second", broker, group, topic).start()
        wait_until(lambda: len(_assigned(second) or ()) == 2, 20, "the second member has two partitions")
        wait_until(lambda: len(_assigned(first) or ()) == 2, 20, "the first member has two partitions")
        assert _assigned(first) | _assigned(second) == {0, 1, 2, 3}
        second.kill()
        wait_until(lambda: _assigned(first) == {0, 1, 2, 3}, 30, "the first member inherits")


def test_commit_and_resume(broker, new_topic, group, tmp_path):
    topic = new_topic()
    for lines in (LINES[:120], LINES[120:]):
        _produce(broker.bootstrap, topic, lines)
        member = _member(tmp_path, f"member-{len(lines)}", broker, group, topic)
        with member:
            wait_until(lambda: len(member.output().splitlines()) >= len(lines), 20, "all new lines")  # noqa: B023
        assert [line.split(" ", 2)[2] for line in member.output_path.read_text().splitlines()] == lines


def test_idempotent_retry_stores_no_duplicate(strict, new_strict_topic):
    topic = new_strict_topic()
    strict.thief.steal(2, after=2)
    settings = [
        f"-X{setting}" for setting in ("enable.idempotence=true", "batch.num.messages=20", "retry.backoff.ms=20")
    ]
    _produce(strict.bootstrap, topic, LINES, "-E", *settings)  # -E: a lost connection does not end kcat
    assert strict.thief.stolen == 2
    assert [read.value.decode() for read in read_topic(strict.bootstrap, topic)] == LINES


def test_a_message_above_the_limit_is_refused(broker, new_topic):
    topic = new_topic()
    options = ["-P", "-t", topic, "-X", "message.max.bytes=8000000"]
    done = subprocess.run(
        [*kcat(broker.bootstrap), *options],
        input=b"x" * MESSAGE_BYTES_MAX,
        capture_output=True,
        timeout=CALL_S,
        check=False,
    )
    assert b"Broker: Message size too large" in done.stderr
    assert read_topic(broker.bootstrap, topic) == []


def test_an_unknown_topic_is_named(strict):
    unknown = f"unknown-{uuid.uuid4().hex[:8]}"
    done = _kcat(strict.bootstrap, "-C", "-t", unknown, "-e", status=1)
    assert "Unknown topic or partition" in done.stderr


def test_an_offset_out_of_range_is_an_error(broker, new_topic):
    topic = new_topic()
    _produce(broker.bootstrap, topic, LINES[:5])
    options = ["-C", "-t", topic, "-p", "0", "-o", "1000", "-e", "-X", "topic.auto.offset.reset=error"]
    assert "out of range" in _kcat(broker.bootstrap, *options, status=1).stderr.lower()
