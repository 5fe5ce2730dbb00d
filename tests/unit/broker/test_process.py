"""The real process: what SIGTERM answers and refuses, what a start after it and after kill -9 finds."""

from __future__ import annotations

import signal
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from edge_broker.errors import ErrorCode
from edge_broker.handlers import APIS
from edge_broker.protocol.api import API_VERSIONS, CREATE_TOPICS, FETCH, METADATA, PRODUCE
from edge_broker.protocol.codec import decode, encode
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.api_versions import ApiVersionsRequest
from edge_broker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from edge_broker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.processes import EdgeBroker, can_connect, wait_until
from tests.support.storage import batch
from tests.support.waiting import PATIENCE
from tests.unit.broker.test_fetch import BY_NAME, fetch, parts
from tests.unit.broker.test_produce import code, part, produce

INTERVAL_MS = 60_000  # the longest there is, and longer than any wait here: who waits for it waits in vain
ANSWER_S = 50.0
DEADLINE_S = ANSWER_S / PATIENCE


class Wire:
    """A blocking client; one request in flight or several."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.sent: list[tuple[int, int]] = []

    def send(self, key: int, request: Message, version: int = -1) -> None:
        version = APIS[key].max_version if version < 0 else version
        header = key.to_bytes(2, "big") + version.to_bytes(2, "big") + len(self.sent).to_bytes(4, "big") + b"\0\1t"
        body = b"".join(encode(request, version))
        frame = header + (b"\0" if version >= APIS[key].flexible_from else b"") + body
        self.connection.sendall(len(frame).to_bytes(4, "big") + frame)
        self.sent.append((key, version))

    def receive(self) -> Any:
        head = self.exactly(4)
        frame = memoryview(self.exactly(int.from_bytes(head, "big")))
        key, version = self.sent[int.from_bytes(frame[:4], "big")]
        flexible = version >= APIS[key].flexible_from and key != API_VERSIONS
        return decode(APIS[key].response, version, frame, 5 if flexible else 4)

    def exactly(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            more = self.connection.recv(size - len(got))
            assert more, "the broker closed the connection before its answer"
            got += more
        return got

    def ask(self, key: int, request: Message, version: int = -1) -> Any:
        self.send(key, request, version)
        return self.receive()

    def ends(self) -> bool:
        """Whether the broker closes without a further byte."""
        try:
            return self.connection.recv(1) == b""
        except ConnectionResetError:
            return True


@contextmanager
def connected(broker: EdgeBroker) -> Iterator[Wire]:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=ANSWER_S) as connection:
        yield Wire(connection)


def metric(broker: EdgeBroker, name: str) -> float:
    with urllib.request.urlopen(broker.metrics_url, timeout=ANSWER_S) as response:
        lines = response.read().decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"edge_broker_{name} ")))


def make_topic(broker: EdgeBroker, name: str = "t") -> None:
    with connected(broker) as wire:
        made = wire.ask(METADATA, MetadataRequest(topics=[MetadataRequestTopic(name=name)]))
        assert made.topics[0].error_code == ErrorCode.NONE


def high_watermark(broker: EdgeBroker) -> int:
    with connected(broker) as wire:
        found: int = parts(wire.ask(FETCH, fetch(("t", 0, 0)), BY_NAME))[0].high_watermark
        return found


def test_sigterm_answers_what_is_under_way_refuses_what_is_new_and_stops_clean(tmp_path: Path) -> None:
    with EdgeBroker(tmp_path, settings={"edge.flush.interval.min.ms": INTERVAL_MS}) as broker:
        make_topic(broker)
        make_topic(broker, "quiet")
        with connected(broker) as busy, connected(broker) as polling, connected(broker) as idle:
            assert code(busy.ask(PRODUCE, produce(("t", 0, batch())))) is ErrorCode.NONE
            idle.ask(API_VERSIONS, ApiVersionsRequest())
            polling.send(FETCH, fetch(("quiet", 0, 0), max_wait_ms=600_000), BY_NAME)
            busy.send(PRODUCE, produce(("t", 0, batch()), timeout_ms=600_000))
            wait_until(lambda: metric(broker, "requests_waiting") == 2, DEADLINE_S, "both requests wait")
            broker.send_signal(signal.SIGTERM)
            assert part(busy.receive()).base_offset == 1  # before its round was due
            assert [wire.ends() for wire in (busy, polling, idle)] == [True, True, True]
        assert broker.wait(DEADLINE_S) == 0
        assert not can_connect(broker.port)
        assert "stopped clean=True" in broker.log_tail()
        broker.start()
        assert (metric(broker, "leader_epoch"), metric(broker, "started_unclean")) == (0, 0)
        assert high_watermark(broker) == 2


def in_one_send(wire: Wire, key: int, requests: list[Message], version: int) -> None:
    """Send all of them from a thread of its own, as the broker stops reading while it answers."""
    outside, wire.connection = wire.connection, cast(socket.socket, Gathered())
    for request in requests:
        wire.send(key, request, version)
    data, wire.connection = bytes(cast(Gathered, wire.connection).data), outside
    threading.Thread(target=outside.sendall, args=(data,), daemon=True).start()


class Gathered:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.data = bytearray()

    def sendall(self, data: bytes) -> None:
        self.data += data


def test_however_many_requests_come_in_one_send_each_is_answered_in_its_order(tmp_path: Path) -> None:
    with EdgeBroker(tmp_path) as broker:
        make_topic(broker)
        with connected(broker) as wire:
            in_one_send(wire, API_VERSIONS, [ApiVersionsRequest()] * 40_000, 0)
            for _ in range(40_000):
                assert wire.receive().api_keys
        with connected(broker) as wire:
            in_one_send(wire, PRODUCE, [produce(("t", 0, batch()), acks=1)] * 3_000, 9)
            assert [part(wire.receive()).base_offset for _ in range(3_000)] == list(range(3_000))
        assert metric(broker, "protocol_violations_total") == 0


def test_sigterm_syncs_what_nobody_waits_for(tmp_path: Path) -> None:
    with EdgeBroker(tmp_path, settings={"log.flush.interval.ms": 86_400_000}) as broker:
        make_topic(broker)
        with connected(broker) as wire:
            assert code(wire.ask(PRODUCE, produce(("t", 0, batch()), acks=1))) is ErrorCode.NONE
        broker.stop()
        broker.start()
        assert high_watermark(broker) == 1


def test_kill_raises_the_leader_epoch_and_keeps_what_was_acked(tmp_path: Path) -> None:
    with EdgeBroker(tmp_path) as broker:
        with connected(broker) as wire:
            made = wire.ask(
                CREATE_TOPICS,
                CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]),
            )
            assert made.topics[0].error_code == ErrorCode.NONE
            assert part(wire.ask(PRODUCE, produce(("t", 0, batch())))).base_offset == 0
        for epoch in (1, 2):
            broker.kill()
            broker.start()
            assert (metric(broker, "leader_epoch"), metric(broker, "started_unclean")) == (epoch, 1)
            assert high_watermark(broker) == 1
        broker.stop()
        broker.start()
        assert (metric(broker, "leader_epoch"), metric(broker, "started_unclean")) == (2, 0)


def test_a_metrics_port_that_is_taken_ends_the_start_and_leaves_the_store_clean(tmp_path: Path) -> None:
    broker = EdgeBroker(tmp_path)
    with broker:
        broker.stop()
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", broker.metrics_port))
            taken.listen()
            broker.spawn()
            assert broker.wait(DEADLINE_S) == 2
        assert "--metrics" in broker.log_tail(1)
        broker.start()
        assert (metric(broker, "leader_epoch"), metric(broker, "started_unclean")) == (0, 0)


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with EdgeBroker(tmp_path) as broker:
        second = EdgeBroker(tmp_path, name="second", data_dir=broker.data_dir)
        second.spawn()
        assert second.wait(DEADLINE_S) == 1
        assert "another broker runs on this data directory" in second.log_tail(1)
        assert metric(broker, "leader_epoch") == 0


def test_sigterm_under_pipelined_requests_stores_exactly_what_it_answers(tmp_path: Path) -> None:
    with EdgeBroker(tmp_path) as broker:
        make_topic(broker)
        with connected(broker) as wire:
            for _ in range(1000):
                wire.send(PRODUCE, produce(("t", 0, batch())))
            assert part(wire.receive()).base_offset == 0
            broker.send_signal(signal.SIGTERM)
            answered = 1
            while (head := wire.connection.recv(4, socket.MSG_WAITALL)) and len(head) == 4:
                wire.exactly(int.from_bytes(head, "big"))
                answered += 1
        assert broker.wait(DEADLINE_S) == 0
        broker.start()
        assert high_watermark(broker) == answered
