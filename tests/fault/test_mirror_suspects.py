"""One record above the target's socket.request.max.bytes stands alone: it is named, and the others go on.

Does not contain: batches that have their connection closed for another reason (tests/unit/mirror/test_suspects.py).
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from tests.support.mirror_road import EdgeMirror, bounds, create_topic, read_all
from tests.support.processes import EdgeBroker, wait_until
from tests.support.waiting import CALL_S

LARGE_BYTES = 12 << 20
SMALL_REQUESTS = {"socket.request.max.bytes": 8 << 20}
ARRIVES_S = 60.0
ANY_SIZE = {"max.message.bytes": str(64 << 20)}
FAST = {"refresh_interval_ms": 500, "backoff_max_ms": 1000}


@contextmanager
def two_brokers(directory, target_settings):
    source = EdgeBroker(directory, name="source", settings={"message.max.bytes": 64 << 20})
    with source, EdgeBroker(directory, name="target", settings=target_settings) as target:
        create_topic(source.bootstrap, "readings", 1, ANY_SIZE)
        create_topic(source.bootstrap, "others", 1)
        yield source.bootstrap, target


def write(bootstrap, topic, count, size):
    """Produce noise, so that packing takes none of it away."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.max.bytes": 100 << 20})
    for _ in range(count):
        producer.produce(topic, os.urandom(size), key=b"k")
        producer.flush(CALL_S)


def status(mirror):
    """The report of the mirror itself."""
    return json.loads(mirror.get("/status")[1])


@pytest.mark.parametrize("on_refused", ["stop", "dead_letter"])
def test_a_record_above_the_target_s_request_limit_is_named_and_the_others_go_on(tmp_path, on_refused):
    with two_brokers(tmp_path, SMALL_REQUESTS) as (source, target):
        write(source, "readings", 3, 100)
        write(source, "readings", 1, LARGE_BYTES)
        write(source, "readings", 3, 100)
        tables = f'[topic."readings"]\non_refused = "{on_refused}"\n'
        with EdgeMirror(
            tmp_path, source, target.bootstrap, topics="readings|others", site="lab", settings=FAST, tables=tables
        ) as mirror:
            wait_until(lambda: bounds(target.bootstrap, "lab.readings")[1] >= 3, ARRIVES_S, "the first", poll_s=0.5)
            write(source, "others", 40, 1000)
            wait_until(lambda: bounds(target.bootstrap, "lab.others")[1] == 40, ARRIVES_S, "others", poll_s=0.5)
            if on_refused == "dead_letter":
                wait_until(lambda: bounds(target.bootstrap, "lab.readings")[1] == 6, ARRIVES_S, "the rest", poll_s=0.5)
                (put_aside,) = read_all(source, "__edge_dead_letter")
                assert dict(put_aside.headers)["dead_letter.offset"] == b"3"
                wait_until(lambda: mirror.get("/health")[0] == 200, ARRIVES_S, "healthy", poll_s=0.5)
                return
            wait_until(lambda: "offset 3" in mirror.get("/health")[1], ARRIVES_S, "its name", poll_s=0.5)
            said = mirror.get("/health")[1]
            assert "readings-0" in said
            assert "socket.request.max.bytes" in said
            assert status(mirror)["topics"][-1]["lag_records"] == 4
            restarts = mirror.metric("edge_mirror_restarts_total")
            write(source, "others", 40, 1000)
            wait_until(lambda: bounds(target.bootstrap, "lab.others")[1] == 80, ARRIVES_S, "more", poll_s=0.5)
            assert mirror.metric("edge_mirror_restarts_total") <= restarts + 1


def test_a_limit_that_is_raised_lets_the_record_pass_by_itself(tmp_path):
    with two_brokers(tmp_path, SMALL_REQUESTS) as (source, target):
        write(source, "readings", 1, LARGE_BYTES)
        with EdgeMirror(
            tmp_path, source, target.bootstrap, topics="readings|others", site="lab", settings=FAST
        ) as mirror:
            wait_until(lambda: "offset 0" in mirror.get("/health")[1], ARRIVES_S, "its name", poll_s=0.5)
            target.stop()
            same_place = {"port": target.port, "data_dir": target.data_dir}
            with EdgeBroker(tmp_path, name="target-2", **same_place) as raised:
                wait_until(lambda: bounds(raised.bootstrap, "lab.readings")[1] == 1, ARRIVES_S, "it", poll_s=0.5)
                wait_until(lambda: mirror.get("/health")[0] == 200, ARRIVES_S, "healthy", poll_s=0.5)
