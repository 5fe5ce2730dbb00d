"""Producers that are never the bound: many connections from one process, each with several requests in flight.

Every request is the same ready-made frame with one record batch, so that a request costs one send and a part of one
receive; every answer's length and error code is checked. `python -m tests.benchmarks.load` is one such process: it says
`ready`, waits for a line, works for the given time, and says in JSON what was answered.

Lives here: the raw clients. Must never come in: what is compared with what. Source: Kafka protocol, Produce, Fetch.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from edge_broker.protocol.api import FETCH, PRODUCE
from edge_broker.protocol.codec import decode, encode
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from edge_broker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from edge_broker.protocol.record_batch import SIZE_OVERHEAD, build_batch, read_header
from tests.support.processes import wait_until

PRODUCE_VERSION = 9
FETCH_VERSION = 12
ANSWER_S_MAX = 30.0
BATCH_OVERHEAD = 61
NOT_YET = (3, 6)  # UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER


class Load(NamedTuple):
    """What one process sends: `producers` connections, each `in_flight` requests of one batch of `records`."""

    port: int
    topic: str
    partitions: int
    producers: int
    first_producer: int
    record_bytes: int
    records: int
    in_flight: int
    acks: int
    warm_s: float
    seconds: float
    requests_max: int


class Sent(NamedTuple):
    """What was answered after the warm-up, and how long each request took, in ms."""

    requests: int
    seconds: float
    latencies_ms: list[float]


def frame(api_key: int, version: int, request: Message) -> bytes:
    """A request as it goes over the wire, flexible header."""
    body = b"".join(encode(request, version))
    header = struct.pack(">hhih5sb", api_key, version, 7, 5, b"bench", 0)
    return struct.pack(">i", len(header) + len(body)) + header + body


def batch_of(records: int, record_bytes: int) -> bytes:
    """A record batch of random values."""
    values = [(None, os.urandom(record_bytes)) for _ in range(records)]
    return build_batch(values, timestamp_ms=time.time_ns() // 1_000_000)


def produce_frame(topic: str, partition: int, batch: bytes, acks: int) -> bytes:
    """A Produce request with one batch."""
    data = PartitionProduceData(index=partition, records=memoryview(batch))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    return frame(PRODUCE, PRODUCE_VERSION, ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=topics))


def connect(port: int) -> socket.socket:
    """A connection with Nagle's delay off."""
    connection = socket.create_connection(("127.0.0.1", port), ANSWER_S_MAX)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def exactly(connection: socket.socket, size: int) -> bytes:
    """So many bytes of a blocking connection."""
    parts = bytearray()
    while len(parts) < size:
        more = connection.recv(size - len(parts))
        if not more:
            raise RuntimeError("the broker closed the connection before its answer")
        parts += more
    return bytes(parts)


def ask(connection: socket.socket, request: bytes) -> bytes:
    """Send a frame; the answer without its size."""
    connection.sendall(request)
    return exactly(connection, int.from_bytes(exactly(connection, 4), "big"))


class _Producer:
    """One connection."""

    def __init__(self, load: Load, number: int, batch: bytes) -> None:
        self.frame = memoryview(produce_frame(load.topic, number % load.partitions, batch, load.acks))
        self.socket = connect(load.port)
        self.answer_bytes = 4 + len(self._first())
        self.error_at = 4 + 4 + 1 + 1 + 1 + len(load.topic) + 1 + 4
        self.socket.setblocking(False)
        self.rest: memoryview | None = None
        self.got = bytearray()
        self.sent_at: deque[float] = deque()
        self.to_send = 0

    def _first(self) -> bytes:
        """One request in peace: what a good answer looks like. A new topic's leader may not know it yet."""
        end = time.perf_counter() + ANSWER_S_MAX
        while True:
            answer = ask(self.socket, bytes(self.frame))
            if error_of(answer) not in NOT_YET or time.perf_counter() > end:
                _check_produced(answer)
                return answer
            time.sleep(0.05)

    def send(self) -> None:
        """Send what is due, as far as the socket takes it."""
        while True:
            if self.rest is None:
                if not self.to_send:
                    return
                self.to_send -= 1
                self.rest = self.frame
                self.sent_at.append(time.perf_counter())
            try:
                sent = self.socket.send(self.rest)
            except BlockingIOError:
                return
            self.rest = self.rest[sent:] if sent < len(self.rest) else None

    def answers(self) -> int:
        """How many whole answers have come; RuntimeError when one is an error."""
        data = self.socket.recv(65536)
        if not data:
            raise RuntimeError("the broker closed a connection")
        self.got += data
        count = len(self.got) // self.answer_bytes
        for number in range(count):
            at = number * self.answer_bytes
            size = int.from_bytes(self.got[at : at + 4], "big") + 4
            error = self.got[at + self.error_at : at + self.error_at + 2]
            if size != self.answer_bytes or error != b"\0\0":
                _check_produced(bytes(self.got[at + 4 : at + size]))
                raise RuntimeError(f"an answer of {size} bytes where {self.answer_bytes} were due")
        del self.got[: count * self.answer_bytes]
        return count


def error_of(answer: bytes) -> int:
    """The error code of the one partition of a Produce answer."""
    response = decode(ProduceResponse, PRODUCE_VERSION, memoryview(answer), 5)
    return response.responses[0].partition_responses[0].error_code


def _check_produced(answer: bytes) -> None:
    error = error_of(answer)
    if error:
        raise RuntimeError(f"a produce request was answered with error {error}")


def run(load: Load, begin: float | None = None) -> Sent:
    """Work until the time or the count is over."""
    batch = batch_of(load.records, load.record_bytes)
    producers = [_Producer(load, load.first_producer + number, batch) for number in range(load.producers)]
    if begin is None:
        print("ready", flush=True)
        sys.stdin.readline()
    selector = selectors.EpollSelector()
    for producer in producers:
        selector.register(producer.socket, selectors.EVENT_READ, producer)
        producer.to_send = load.in_flight
        producer.send()
    try:
        return _loop(load, selector)
    finally:
        selector.close()
        for producer in producers:
            producer.socket.close()


def _loop(load: Load, selector: selectors.EpollSelector) -> Sent:
    now = time.perf_counter()
    warm, end = now + load.warm_s, now + load.warm_s + load.seconds
    latencies: list[float] = []
    total = counted = 0
    last = now
    while now < end and total < load.requests_max:
        events = selector.select(1.0)
        now = time.perf_counter()
        if not events and now - last > ANSWER_S_MAX:
            raise RuntimeError(f"no answer for {ANSWER_S_MAX:g} s")
        for key, mask in events:
            producer: _Producer = key.data
            if mask & selectors.EVENT_READ:
                count = producer.answers()
                total += count
                last = now
                for _ in range(count):
                    taken = now - producer.sent_at.popleft()
                    if warm <= now < end:
                        counted += 1
                        latencies.append(taken * 1000)
                producer.to_send += count
            producer.send()
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if producer.rest is not None else 0)
            if key.events != wanted:
                selector.modify(producer.socket, wanted, producer)
    return Sent(counted, min(last, end) - warm, latencies)


def spread(load: Load, processes: int, sample: Callable[[], object] = lambda: None) -> Sent:
    """The same load from several processes at once; `sample` is called when the warm-up and when the time is over."""
    processes = min(processes, load.producers)
    share = [load.producers * (n + 1) // processes - load.producers * n // processes for n in range(processes)]
    children = []
    try:
        for number, producers in enumerate(share):
            mine = load._replace(
                producers=producers,
                first_producer=sum(share[:number]),
                requests_max=max(load.requests_max * producers // load.producers, 1),
            )
            command = [sys.executable, "-m", "tests.benchmarks.load", json.dumps(mine._asdict())]
            children.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        for child in children:
            assert child.stdout is not None
            if child.stdout.readline().strip() != "ready":
                raise RuntimeError("a load process did not get ready; what it said is above")
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        for pause_s in (load.warm_s, load.seconds):
            time.sleep(pause_s)
            sample()
        found = [json.loads(child.communicate(timeout=load.warm_s + load.seconds + 60)[0]) for child in children]
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
            child.wait()
    latencies = [latency for one in found for latency in one["latencies_ms"]]
    return Sent(sum(one["requests"] for one in found), max(one["seconds"] for one in found), latencies)


class Reader:
    """One consumer of one partition, one Fetch at a time."""

    def __init__(self, port: int, topic: str) -> None:
        self.offset = 0
        self._topic = topic
        self._socket = connect(port)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def wait_for_leader(self) -> None:
        """Return once the partition is served: Apache Kafka names a topic's leader before that one knows of it."""
        wait_until(self._is_served, 30, f"the leader of {self._topic} serves", poll_s=0.05)

    def _is_served(self) -> bool:
        self.ask(0)
        try:
            self.take()
        except RuntimeError:
            return False
        return True

    def ask(self, wait_ms: int, bytes_max: int = 1 << 20) -> None:
        """Send a Fetch from `offset` on that waits for the first byte."""
        partition = FetchPartition(partition=0, fetch_offset=self.offset, partition_max_bytes=bytes_max)
        topics = [FetchTopic(topic=self._topic, partitions=[partition])]
        request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=50 << 20, topics=topics)
        self._socket.sendall(frame(FETCH, FETCH_VERSION, request))

    def take(self) -> tuple[float, int]:
        """When the answer was there, and how many records it brought; moves `offset`."""
        answer = exactly(self._socket, int.from_bytes(exactly(self._socket, 4), "big"))
        at = time.perf_counter()
        part: Any = decode(FetchResponse, FETCH_VERSION, memoryview(answer), 5).responses[0].partitions[0]
        if part.error_code:
            raise RuntimeError(f"a fetch was answered with error {part.error_code}")
        records, position, count = part.records or b"", 0, 0
        while len(records) - position > BATCH_OVERHEAD:
            header = read_header(records, position)
            if position + SIZE_OVERHEAD + header.batch_length > len(records):
                break
            count += header.next_offset - max(header.base_offset, self.offset)
            self.offset = header.next_offset
            position += header.size
        return at, count

    def take_one(self) -> float:
        """When the one record that was due was there."""
        at, count = self.take()
        if count != 1:
            raise RuntimeError(f"a fetch brought {count} records where one was due")
        return at


def end_to_end(port: int, topic: str, messages: int, acks: int) -> list[float]:
    """One record of 100 B at a time from a producer to a consumer that waits at the end; each latency in ms."""
    request = produce_frame(topic, 0, batch_of(1, 100), acks)
    reader, producer = Reader(port, topic), connect(port)
    latencies = []
    try:
        reader.wait_for_leader()
        for _ in range(messages):
            reader.ask(5000)
            begin = time.perf_counter()
            producer.sendall(request)
            latencies.append((reader.take_one() - begin) * 1000)
            _check_produced(exactly(producer, int.from_bytes(exactly(producer, 4), "big")))
    finally:
        reader.close()
        producer.close()
    return latencies


def woken(port: int, topic: str, messages: int, consumers: int) -> list[float]:
    """One record of 100 B at a time, acks=1, to `consumers` that wait for it at the end; each one's latency in ms."""
    request, producer, latencies = produce_frame(topic, 0, batch_of(1, 100), 1), connect(port), []
    readers = [Reader(port, topic) for _ in range(consumers)]
    try:
        readers[0].wait_for_leader()
        for _ in range(messages):
            for reader in readers:
                reader.ask(30_000)
            begin = time.perf_counter()
            producer.sendall(request)
            for reader in readers:
                latencies.append((reader.take_one() - begin) * 1000)
            _check_produced(exactly(producer, int.from_bytes(exactly(producer, 4), "big")))
    finally:
        for connection in (*readers, producer):
            connection.close()
    return latencies


def wait_in_vain(port: int, topic: str, consumers: int, wait_ms: int, seconds: float) -> int:
    """Consumers that wait at the end of an empty log, each asking again once its time is over; how many answers."""
    readers, answers = [Reader(port, topic) for _ in range(consumers)], 0
    try:
        readers[0].wait_for_leader()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for reader in readers:
                reader.ask(wait_ms)
            answers += sum(1 for reader in readers if reader.take()[1] == 0)
    finally:
        for reader in readers:
            reader.close()
    return answers


def main() -> int:
    """Be one load process."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("load", type=json.loads, help="a Load as JSON")
    sent = run(Load(**parser.parse_args().load))
    print(json.dumps(sent._asdict()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
