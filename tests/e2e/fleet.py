"""A fleet of MQTT devices as a process of its own: QoS 1, sequence numbers, and a journal of what was sent and acked.

Each device is one MQTT session over one TCP connection. It keeps at most one message in flight and keeps later readings
in its own memory, so its order is the order of its sequence numbers, whatever happens to the connection.
The journal is append-only, a line per event: `P DEVICE SEQ NOW_MS TIME_MS` (published), `A DEVICE SEQ NOW_MS` (PUBACK).
What was written to `P` and never to `A` was not acked. Nothing here knows Kafka.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import random
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

SPIKE_CHANCE = 1 / 300
LATE_CHANCE = 1 / 250
LATE_S = (2.0, 9.0)
DRAIN_S = 20.0


class Sensor:
    """A temperature that drifts, with noise and rare spikes."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._mean = chance.uniform(16.0, 27.0)
        self._slope = 0.0

    def read(self) -> float:
        """One value in degrees Celsius."""
        self._slope = 0.98 * self._slope + self._chance.gauss(0.0, 0.002)
        self._mean += self._slope
        value = self._mean + self._chance.gauss(0.0, 0.15)
        if self._chance.random() < SPIKE_CHANCE:
            value += self._chance.choice((-1, 1)) * self._chance.uniform(8.0, 15.0)
        return round(value, 2)


@dataclass(frozen=True, slots=True)
class Reading:
    """One message: `time_ms` is when it was measured, earlier than its publication where it is late."""

    seq: int
    time_ms: int
    value: float


def now_ms() -> int:
    """Wall clock in milliseconds."""
    return time.time_ns() // 1_000_000


class Journal:
    """Append-only lines, each written with one call, so that a kill leaves whole lines."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, *words: object) -> None:
        """Append one line."""
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


class Device:
    """One MQTT session; `offer` may be called from any thread."""

    def __init__(self, name: str, site: str, address: tuple[str, int], journal: Journal, seed: int) -> None:
        self.name = name
        self._address = address
        self._topic = f"sites/{site}/devices/{name}/readings"
        self._journal = journal
        self._sensor = Sensor(random.Random(seed))
        self._waiting: deque[Reading] = deque()
        self._in_flight: Reading | None = None
        self._connected = False
        self._next_seq = 0
        self._lock = threading.RLock()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=f"{site}-{name}", clean_session=False)
        self._client.reconnect_delay_set(min_delay=1, max_delay=4)
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = self._on_disconnect
        self._client.on_publish = self._on_publish

    def start(self) -> None:
        """Connect, and stay connected until `stop`."""
        self._client.connect(*self._address, keepalive=30)
        self._client.loop_start()

    def stop(self) -> None:
        """Say goodbye and end the network thread."""
        self._client.disconnect()
        self._client.loop_stop()

    def drop_connection(self) -> None:
        """Break the TCP connection as a bad network would; the client connects again by itself."""
        connection = self._client.socket()
        if isinstance(connection, socket.socket):
            connection.shutdown(socket.SHUT_RDWR)

    def offer(self, late_ms: int = 0) -> None:
        """Measure now; publish as soon as the connection allows. A late reading was measured `late_ms` ago."""
        with self._lock:
            self._waiting.append(Reading(self._next_seq, now_ms() - late_ms, self._sensor.read()))
            self._next_seq += 1
            self._pump()

    def idle(self) -> bool:
        """Whether every reading so far has been acked."""
        with self._lock:
            return self._in_flight is None and not self._waiting

    def _pump(self) -> None:
        if not self._connected or self._in_flight is not None or not self._waiting:
            return
        reading = self._in_flight = self._waiting.popleft()
        self._journal.write("P", self.name, reading.seq, now_ms(), reading.time_ms)
        payload = {"device": self.name, "seq": reading.seq, "time_ms": reading.time_ms, "value": reading.value}
        self._client.publish(self._topic, json.dumps(payload, separators=(",", ":")), qos=1)

    def _on_connect(self, _client: object, _data: object, _flags: object, reason: Any, _properties: object) -> None:
        if reason.is_failure:
            print(f"{self.name}: mosquitto refused the connection: {reason}", file=sys.stderr)
            return
        with self._lock:
            self._connected = True  # paho itself repeats the message in flight
            self._pump()

    def _on_disconnect(self, *_: object) -> None:
        with self._lock:
            self._connected = False

    def _on_publish(self, *_: object) -> None:
        with self._lock:
            if self._in_flight is None:  # the ack of a repeated copy
                return
            self._journal.write("A", self.name, self._in_flight.seq, now_ms())
            self._in_flight = None
            self._pump()


def run(devices: Sequence[Device], interval_s: float, breaks_per_s: float, stopped: Callable[[], bool]) -> None:
    """Let every device measure once per interval, spread evenly, until `stopped`."""
    chance = random.Random(7)
    start = time.monotonic()
    due = [(start + interval_s * place / len(devices), place) for place in range(len(devices))]
    heapq.heapify(due)
    next_break = start + chance.expovariate(breaks_per_s)
    while not stopped():
        moment, place = heapq.heappop(due)
        time.sleep(max(0.0, moment - time.monotonic()))
        late = chance.random() < LATE_CHANCE
        devices[place].offer(int(1_000 * chance.uniform(*LATE_S)) if late else 0)
        heapq.heappush(due, (moment + interval_s, place))
        if time.monotonic() > next_break:
            chance.choice(devices).drop_connection()
            next_break += chance.expovariate(breaks_per_s)


def drain(devices: Sequence[Device]) -> bool:
    """Wait until every reading is acked; False when that takes longer than DRAIN_S."""
    end = time.monotonic() + DRAIN_S
    while not all(device.idle() for device in devices):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line of the fleet."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.fleet", description="MQTT devices that keep a journal.")
    parser.add_argument("--mqtt", required=True, metavar="HOST:PORT", help="mosquitto")
    parser.add_argument(
        "--journal", required=True, type=Path, metavar="FILE", help="append-only record of P and A lines"
    )
    parser.add_argument("--site", default="demo", help="second level of the MQTT topic (default: %(default)s)")
    parser.add_argument("--devices", type=int, default=50, help="number of devices (default: %(default)s)")
    parser.add_argument("--first-device", type=int, default=0, help="number of the first one (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=4.0, help="readings per second and device (default: %(default)s)")
    parser.add_argument(
        "--breaks", type=float, default=0.2, help="broken connections per second (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the values (default: %(default)s)")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT, then wait for the outstanding PUBACKs; exit status 1 when they do not come."""
    options = arguments(words)
    host, _, port = options.mqtt.rpartition(":")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    journal = Journal(options.journal)
    numbers = range(options.first_device, options.first_device + options.devices)
    devices = [
        Device(f"device-{n:02d}", options.site, (host, int(port)), journal, options.seed * 1_000 + n) for n in numbers
    ]
    for device in devices:
        device.start()
    print(f"fleet of {len(devices)} devices ready", flush=True)
    run(devices, 1 / options.rate, options.breaks, stop.is_set)
    drained = drain(devices)
    for device in devices:
        device.stop()
    if not drained:
        print(f"some readings were not acked by mosquitto within {DRAIN_S:g} s", file=sys.stderr)
    return 0 if drained else 1


if __name__ == "__main__":
    sys.exit(main())
