"""Verifies one board end to end: a reading goes in over MQTT and must come out of the central Kafka, whole.

Run by the board's own /opt/drupelet/current/bin/python, as root; verify.yml copies and calls it. Standard input is a
JSON object (the fields of `Order`), so that the password is in no command line; standard output a JSON list of steps.
Exit status: 0 every step passed, 1 a step failed. Addresses, TLS and log-ins are read from the board's own gateway.toml
and mirror.toml: what is verified is what is there. verify.toml, where there is one, has a user of the check's own, in
the tables [board] and [central] with the keys of gateway.toml's [kafka] (`security_protocol`, `sasl_username`, …).
Nothing may be changed here beside the reading itself and the position of the group `edge-verify` in the ledger; no
topic is created by asking for it.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

try:
    from aiokafka import AIOKafkaConsumer, TopicPartition
    from aiokafka.errors import KafkaError
    from paho.mqtt import client as paho
    from paho.mqtt.enums import CallbackAPIVersion
except ModuleNotFoundError:  # a broker alone has neither: there is its health to verify, and no road
    KafkaError = OSError

CONFIGURATION = Path("/etc/drupelet")
LEDGER_TOPIC = "__edge_ledger"
LEDGER_GROUP = "edge-verify"
REQUEST_TIMEOUT_MS = 40_000
PASSED = ("ok", "loss", "unknown")  # a recorded loss is shown, and fails nothing
HEARD_S = 6.0  # a watch that has just begun to listen has that long to hear something
UNKNOWN = "unknown: "  # how /health begins where a watch hears nothing: no failure, and not well either
SECURED = ("security_protocol", "ssl_", "sasl_")  # how the keys begin that say how a broker is connected to
VALUE_MAX = 0.1  # Spark's alarms take at least 0.1 for a device's spread: such readings never raise one
POLL_S = 0.3


class StepFailed(Exception):
    """A step did not pass; the message is the cause in one sentence."""


class WatchSilent(Exception):
    """A watch of the part hears nothing, so a loss would not show; the message says which and why."""


class LossFound(Exception):
    """The board has written down losses since the last time; the message says which."""


@dataclass(frozen=True, slots=True)
class Order:
    """The verification to run: `health` has HOST:PORT per service, `results` the place of Spark's, if it has any."""

    device: str
    timeout_s: float
    health: Mapping[str, str]
    mqtt_topic: str = ""
    topic: str = "readings"
    username: str = ""
    password: str = field(default="", repr=False)
    results: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A line of the table; `result` is ok, loss, unknown, failed or not tried."""

    step: str
    result: str
    seconds: float
    detail: str


async def run_step(name: str, work: Awaitable[str]) -> Step:
    """Run one step; whatever stands in its way becomes its detail."""
    started = time.monotonic()
    result = "ok"
    try:
        detail = await work
    except LossFound as loss:
        result, detail = "loss", str(loss)
    except WatchSilent as silent:
        result, detail = "unknown", str(silent)
    except (StepFailed, KafkaError, OSError, TimeoutError) as error:
        result, detail = "failed", str(error) or type(error).__name__
    return Step(name, result, round(time.monotonic() - started, 1), detail)


def have_passed(steps: list[Step]) -> bool:
    """Tell whether every step did."""
    return all(step.result in PASSED for step in steps)


async def healthy(part: str, address: str, timeout_s: float) -> str:
    """Wait until /health answers 200; its last words are the cause. WatchSilent where it says `unknown` for HEARD_S."""
    url = f"http://{address}/health"
    deadline, heard_by = time.monotonic() + timeout_s, time.monotonic() + min(HEARD_S, timeout_s)
    while True:
        status, text = await asyncio.to_thread(get, url, part)
        is_silent = status == 200 and text.startswith(UNKNOWN)
        if is_silent and time.monotonic() > heard_by:
            raise WatchSilent(text.removeprefix(UNKNOWN).strip())
        if status == 200 and not is_silent:
            return url
        if time.monotonic() > deadline:
            raise StepFailed(f"{url} says {status or 'nothing'}: {text.strip()[:200]}")
        await asyncio.sleep(POLL_S)


def get(url: str, part: str) -> tuple[int, str]:
    """Return status and body, or 0 and why there is none."""
    told = {"metrics_token_file": "metrics-token"} if part == "broker" else configuration(f"{part}.toml") or {}
    token = CONFIGURATION / told.get("metrics_token_file", "")
    headers = {"Authorization": f"Bearer {token.read_text().strip()}"} if token.is_file() else {}
    asked = urllib.request.Request(url, headers=headers)  # noqa: S310 (the inventory's own http address)
    try:
        with urllib.request.urlopen(asked, timeout=5) as answer:  # noqa: S310 (as above)
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except OSError as error:
        return 0, str(error)


def publish(mqtt: Mapping[str, Any], order: Order, payload: bytes) -> str:
    """Publish one message with QoS 1; return when mosquitto has answered that it took it."""
    address = f"{mqtt['host']}:{mqtt['port']}"
    answers: list[Any] = []
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.username_pw_set(order.username or None, order.password or None)
    if mqtt.get("tls", "ssl_ca_file" in mqtt or "ssl_cert_file" in mqtt):
        client.tls_set_context(tls_context(mqtt))
    client.on_connect = lambda *given: answers.append(given[3])
    client.on_publish = lambda *given: answers.append(given[3])
    client.connect(mqtt["host"], mqtt["port"])
    client.loop_start()
    try:
        answer_within(answers, order.timeout_s, f"{address} refuses user {order.username or '(none)'}")
        client.publish(order.mqtt_topic, payload, qos=1)
        answer_within(answers, order.timeout_s, f"{address} does not take {order.mqtt_topic}")
        client.disconnect()
    finally:
        client.loop_stop()
    return order.mqtt_topic


def tls_context(mqtt: Mapping[str, Any]) -> Any:
    """Return how the gateway believes mosquitto and who it is, from its own files; raises StepFailed."""
    try:  # inside the function: not every board has it
        from drupelet.tls.contexts import client_context  # noqa: PLC0415
    except ImportError:  # a release before 0.2.0
        from drupelet.tls import client_context  # noqa: PLC0415

    files = [
        CONFIGURATION / mqtt[key] if key in mqtt else None for key in ("ssl_ca_file", "ssl_cert_file", "ssl_key_file")
    ]
    try:
        return client_context(*files)
    except (OSError, ValueError) as error:
        raise StepFailed(f"{', '.join(str(file) for file in files if file)} cannot be used: {error}") from error


def answer_within(answers: list[Any], timeout_s: float, refusal: str) -> None:
    """Wait for mosquitto's next answer and raise unless it is yes."""
    deadline = time.monotonic() + timeout_s
    while not answers:
        if time.monotonic() > deadline:
            raise StepFailed(f"{refusal}: no answer within {timeout_s:g} s")
        time.sleep(0.02)
    reason = answers.pop(0)
    if reason.is_failure or reason.getName() != "Success":  # "No matching subscribers": no client receives it
        raise StepFailed(f"{refusal}: {reason}")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where a Kafka is, and the keys that say how it is connected to."""

    bootstrap: str
    keys: Mapping[str, Any]

    @classmethod
    def of(cls, bootstrap: str, side: str, table: Mapping[str, Any], prefix: str = "") -> Cluster:
        """Take the keys of verify.toml's table `side`, else those of `table` whose names begin with `prefix`."""
        own = (configuration("verify.toml") or {}).get(side)
        given = (
            own if own is not None else {k.removeprefix(prefix): v for k, v in table.items() if k.startswith(prefix)}
        )
        return cls(bootstrap, {key: value for key, value in given.items() if key.startswith(SECURED)})

    def consumer(self, **settings: Any) -> Any:
        """Return a consumer without automatic commits; raises StepFailed for a wrong key."""
        arguments = self._settings().arguments() if self.keys else {"bootstrap_servers": self.bootstrap}
        return AIOKafkaConsumer(**arguments, **settings, enable_auto_commit=False, auto_offset_reset="earliest")

    async def start(self, consumer: Any, timeout_s: float) -> None:
        """Start a consumer; raises StepFailed that says what TLS or a log-in has against it."""
        try:
            async with asyncio.timeout(timeout_s):
                await consumer.start()
        except TimeoutError:
            raise StepFailed(f"{self.bootstrap} does not answer within {timeout_s:g} s") from None
        except (KafkaError, OSError):
            if not self.keys:
                raise
            try:  # inside the function: a release without log-ins has neither
                from drupelet.kafka.connection import trouble  # noqa: PLC0415
            except ImportError:  # a release before 0.2.0
                from drupelet.kafka_connection import trouble  # noqa: PLC0415

            settings = self._settings()
            told = await asyncio.to_thread(trouble, settings.security, settings.servers)
            if told is None:
                raise
            raise StepFailed(told) from None

    def _settings(self) -> Any:
        from drupelet.errors import ConfigurationError  # noqa: PLC0415 (an older release has no such keys)

        try:
            from drupelet.kafka.client import ClientSettings  # noqa: PLC0415
            from drupelet.kafka.security import security_from  # noqa: PLC0415
        except ImportError:  # a release before 0.2.0
            from drupelet.kafka_client import ClientSettings  # noqa: PLC0415
            from drupelet.kafka_security import security_from  # noqa: PLC0415

        try:
            security = security_from(self.keys, CONFIGURATION, lambda key: f"{CONFIGURATION}: {key}")
            return ClientSettings(self.bootstrap, "edge-verify", REQUEST_TIMEOUT_MS, security)
        except ConfigurationError as error:
            raise StepFailed(str(error)) from error


class Tail:
    """A topic from the moment of `open` on; one that does not exist yet is read from its start."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.topic = topic
        self._cluster = cluster
        self._consumer: Any = None

    async def open(self, timeout_s: float) -> str:
        """Connect and take up the position: the present end."""
        self._consumer = self._cluster.consumer()
        await self._cluster.start(self._consumer, timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                places = await partitions(self._consumer, self.topic)
                follow(self._consumer, await self._consumer.end_offsets(places))
        except TimeoutError:
            raise StepFailed(f"{self._cluster.bootstrap} does not answer within {timeout_s:g} s") from None
        return self._cluster.bootstrap

    async def find(self, wanted: Callable[[Any], bool], timeout_s: float) -> list[Any]:
        """Return the wanted records of the first fetch that has some, or none when the time is over."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if not self._consumer.assignment():
                follow(self._consumer, dict.fromkeys(await partitions(self._consumer, self.topic), 0))
                await asyncio.sleep(POLL_S)
                continue
            fetched = await self._consumer.getmany(timeout_ms=int(POLL_S * 1000))
            found = [record for records in fetched.values() for record in records if wanted(record)]
            if found:
                return found
        return []

    async def close(self) -> None:
        """Let the connection go."""
        if self._consumer is not None:
            await self._consumer.stop()


async def partitions(consumer: Any, topic: str) -> list[Any]:
    """List a topic's partitions; asked for all topics, as asking for one by name can create it."""
    cluster = await consumer._client.fetch_all_metadata()  # aiokafka's documented calls tell no partitions
    return [TopicPartition(topic, number) for number in sorted(cluster.partitions_for_topic(topic) or ())]


def follow(consumer: Any, offsets: Mapping[Any, int]) -> None:
    """Read partitions from these offsets on; said at once, so that aiokafka looks for no position of its own."""
    consumer.assign(list(offsets))
    for place, offset in offsets.items():
        consumer.seek(place, offset)


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading that no other client can have published."""

    device: str
    run: str
    time_ms: int

    @classmethod
    def now(cls, device: str) -> Reading:
        """Make one with a fresh run id."""
        return cls(device, secrets.token_hex(6), time.time_ns() // 1_000_000)

    @property
    def value(self) -> float:
        """The run id as a small number, by which Spark's result is known."""
        return int(self.run, 16) / 2**48 * VALUE_MAX

    @property
    def payload(self) -> bytes:
        """The JSON that is published."""
        fields = {"device": self.device, "run": self.run, "time_ms": self.time_ms, "value": self.value}
        return json.dumps(fields).encode()

    def is_in(self, record: Any) -> bool:
        """Tell whether a record is this reading, whole."""
        return bool(record.value == self.payload)

    def is_in_window(self, record: Any, window_ms: int) -> bool:
        """Tell whether a record is Spark's result of the window that has this reading."""
        start_ms = self.time_ms - self.time_ms % window_ms
        if record.key != f"{self.device}|{start_ms}".encode():
            return False
        window = json.loads(record.value)
        return bool(window["min"] <= self.value <= window["max"] and window["count"] >= 1)


async def arrival(tail: Tail, wanted: Callable[[Any], bool], order: Order, why: Callable[[], str] = str) -> str:
    """Wait for a record and say where it is."""
    found = await tail.find(wanted, order.timeout_s)
    if not found:
        raise StepFailed(f"nothing in {tail.topic} within {order.timeout_s:g} s{why()}")
    times = f", {len(found)} times" if len(found) > 1 else ""
    return f"{tail.topic}-{found[0].partition} offset {found[0].offset}{times}"


class Road:
    """The way of a reading over this board: where each place is, and which of its topics are watched."""

    def __init__(self, order: Order, gateway: Mapping[str, Any], mirror: Mapping[str, Any] | None) -> None:
        self._order = order
        self._mqtt = {"host": "127.0.0.1", "port": 1883, **gateway["mqtt"]}
        self._mirror = mirror
        self._watched = {"reading on the board": Tail(board_cluster(gateway), order.topic)}
        if mirror is not None:
            central = Cluster.of(mirror["target"], "central", mirror, "target_")
            self._watched["reading in central"] = Tail(central, central_name(mirror, order.topic))
            if "board" in gateway:
                topic = gateway["board"].get("topic", "board_health")
                self._watched["health in central"] = Tail(central, central_name(mirror, topic))
        if order.results:
            topic = order.results["topic"]
            results = Cluster.of(order.results["bootstrap"], "board", gateway["kafka"])
            self._watched["result of Spark"] = Tail(results, topic)
            if mirror is not None and re.fullmatch(mirror["topics"], topic):
                self._watched["result in central"] = Tail(central, central_name(mirror, topic))

    async def steps(self) -> list[Step]:
        """Publish a reading and wait for it everywhere; what comes after a failure is not tried."""
        try:
            limit_s = self._order.timeout_s
            opened = await asyncio.gather(*(run_step(name, tail.open(limit_s)) for name, tail in self._watched.items()))
            if not have_passed(opened):
                return [step if step.result == "failed" else untried_step(step.step) for step in opened]
            reading = Reading.now(self._order.device)
            published = await run_step("MQTT", asyncio.to_thread(publish, self._mqtt, self._order, reading.payload))
            if not have_passed([published]):
                return [published, *map(untried_step, self._watched)]
            return [published, *await asyncio.gather(*(self._arrival(name, reading) for name in self._watched))]
        finally:
            await asyncio.gather(*(tail.close() for tail in self._watched.values()))

    def _arrival(self, name: str, reading: Reading) -> Awaitable[Step]:
        wanted: Callable[[Any], bool] = reading.is_in
        if name.startswith("health"):
            wanted = bool
        elif name.startswith("result"):
            window_ms = (self._order.results or {})["window_ms"]
            wanted = partial(reading.is_in_window, window_ms=window_ms)
        why = self._lag if name.endswith("in central") else str
        return run_step(name, arrival(self._watched[name], wanted, self._order, why))

    def _lag(self) -> str:
        status, text = get(f"http://{(self._mirror or {}).get('metrics')}/metrics", "mirror")
        behind = sum(float(number) for number in re.findall(r"^edge_mirror_lag_records\{.*\} (\S+)$", text, re.M))
        return f"; the mirror has {behind:g} records still to send" if status == 200 else ""


def board_cluster(gateway: Mapping[str, Any]) -> Cluster:
    """Return the board's own broker, as the gateway has it."""
    return Cluster.of(gateway["kafka"]["bootstrap_servers"], "board", gateway["kafka"])


def central_name(mirror: Mapping[str, Any], topic: str) -> str:
    """Return what the mirror calls a topic at its target."""
    prefixed = mirror.get("site") and mirror.get("policy") != "identity"
    return f"{mirror['site']}.{topic}" if prefixed else topic


def untried_step(name: str) -> Step:
    """Return the line of a step that an earlier failure left no sense in."""
    return Step(name, "not tried", 0.0, "")


async def ledger(cluster: Cluster, timeout_s: float) -> str:
    """Say what the board has written down as lost; raises LossFound if some of it is new since the last time."""
    consumer = cluster.consumer(group_id=LEDGER_GROUP)
    try:
        await cluster.start(consumer, timeout_s)
        async with asyncio.timeout(timeout_s):
            entries, new = await read_ledger(consumer)
    finally:
        await consumer.stop()
    if new:
        raise LossFound(f"new since the last verify: {summary(new)}; in all: {summary(entries)}")
    return f"nothing new since the last verify; in all: {summary(entries)}"


async def read_ledger(consumer: Any) -> tuple[list[Any], list[Any]]:
    """Return all entries and the new ones, and keep the place; an entry that was written twice counts once."""
    places = await partitions(consumer, LEDGER_TOPIC)
    if not places:
        return [], []
    follow(consumer, await consumer.beginning_offsets(places))
    known = {place: await consumer.committed(place) or 0 for place in places}
    ends = await consumer.end_offsets(places)
    entries: dict[str, Any] = {}
    new: dict[str, Any] = {}
    while any([await consumer.position(place) < ends[place] for place in places]):
        for place, records in (await consumer.getmany(timeout_ms=200)).items():
            for record in records:
                entry = json.loads(record.value)
                entries[entry["id"]] = entry
                if record.offset >= known[place]:
                    new[entry["id"]] = entry
    await consumer.commit(ends)
    return list(entries.values()), list(new.values())


def summary(entries: list[Any]) -> str:
    """Count ledger entries by cause, with the records they stand for where that is known."""
    causes = Counter(entry["cause"] for entry in entries)
    lost = Counter({cause: sum(e["records"] or 0 for e in entries if e["cause"] == cause) for cause in causes})
    return ", ".join(f"{cause} {causes[cause]} ({lost[cause]} records)" for cause in sorted(causes)) or "none"


def configuration(name: str) -> Any:
    """Read one of the board's configuration files, or None where it has none."""
    path = CONFIGURATION / name
    return tomllib.loads(path.read_text()) if path.exists() else None


async def verify(order: Order) -> list[Step]:
    """Verify the services, then the road, then the ledger."""
    health = [
        run_step(f"{name} health", healthy(name, address, order.timeout_s)) for name, address in order.health.items()
    ]
    steps = list(await asyncio.gather(*health))
    if not have_passed(steps) or not order.mqtt_topic:
        return steps
    gateway = configuration("gateway.toml")
    steps += await Road(order, gateway, configuration("mirror.toml")).steps()
    steps.append(await run_step("ledger", ledger(board_cluster(gateway), order.timeout_s)))
    return steps


def main() -> int:
    """Read the order, verify, print the steps."""
    steps = asyncio.run(verify(Order(**json.load(sys.stdin))))
    print(json.dumps([asdict(step) for step in steps]))
    return 0 if have_passed(steps) else 1


if __name__ == "__main__":
    sys.exit(main())
