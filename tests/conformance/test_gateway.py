"""The gateway as a process between a real mosquitto and a real broker: what goes in comes out, losses are written down.

Invariants:
- QoS 0, 1 and 2 arrive with key, headers and the reading's own time;
- a message that a route or the broker refuses is a dead letter, whole, and its neighbours arrive;
- what mosquitto acknowledged = what arrived + what the ledger counts as dropped.
"""

from __future__ import annotations

import json
import time
import uuid

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests.support.gateway_site import Device, GatewaySite, read_whole, sequences
from tests.support.processes import EdgeBroker, all_stopped, wait_until

LEDGER = "__edge_ledger"
UNITS = ("s", "ms", "us", "ns", "iso", "received")


@pytest.fixture
def topic() -> str:
    return f"readings-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def site(broker, topic, tmp_path):
    site = GatewaySite(tmp_path, broker.bootstrap, topic)
    site.log_path.write_text("first\nsecond\n")
    with all_stopped(site.mosquitto, site.gateway):
        site.mosquitto.start()
        site.gateway.start()
        yield site


def ledger(broker, name: str) -> list[dict[str, object]]:
    records = [json.loads(message.value()) for message in read_whole(broker.bootstrap, LEDGER)]
    return [record for record in records if name in str(record["topic"])]


def test_every_qos_arrives_with_key_headers_and_its_own_time(broker, site):
    with Device(site.mosquitto.port, f"device-{site.topic}") as device:
        for qos in (0, 1, 2) * 40:
            device.publish(qos)
        device.wait_acked()
        wait_until(lambda: site.acked() == 120, 30, "120 readings acknowledged by the broker")
    messages = read_whole(broker.bootstrap, site.topic)
    arrived = sequences(messages)[device.name]
    for qos in (0, 1, 2):  # MQTT orders within a QoS only: QoS 2 takes a round trip more
        assert [seq for seq in arrived if seq % 3 == qos] == list(range(qos, 120, 3))
    assert len(arrived) == 120
    for message in messages:
        headers = dict(message.headers())
        assert message.key() == device.name.encode()
        assert message.timestamp()[1] == json.loads(message.value())["time_ms"]
        assert headers["mqtt.topic"] == f"sites/a/devices/{device.name}/readings".encode()
        assert headers["source"] == b"mqtt"
        assert abs(int(headers["received_ms"]) - message.timestamp()[1]) < 60_000


def test_files_and_the_board_arrive(broker, site):
    site.log_path.rename(site.log_path.with_name("app.log.1"))
    site.log_path.write_text("third\n")
    wait_until(lambda: site.metric("records_total", f'source="file",topic="{site.topic}-logs"') == 3, 20, "three lines")
    wait_until(lambda: site.metric("records_total", f'source="board",topic="{site.topic}-health"') >= 2, 20, "health")
    lines = read_whole(broker.bootstrap, f"{site.topic}-logs")
    assert [line.value() for line in lines] == [b"first", b"second", b"third"]
    assert [dict(line.headers())["position"] for line in lines] == [b"0", b"6", b"0"]
    assert {line.key() for line in lines} == {str(site.log_path).encode()}
    health = json.loads(read_whole(broker.bootstrap, f"{site.topic}-health")[0].value())
    assert health["memory_total_bytes"] > 0
    assert health["time_ms"] > 0
    assert isinstance(health["board"], str)


PAYLOADS = {  # what a stranger's device may send to the route -> what becomes of it
    "plain number": (b"20.1", "received"),
    "no time": (b'{"value": 1.5}', "received"),
    "float milliseconds": (b'{"time_ms": 1764000000123.4}', "ms"),
    "seconds": (b'{"time_ms": 1764000000}', "s"),
    "float seconds": (b'{"time_ms": 1764000000.123}', "s"),
    "microseconds": (b'{"time_ms": 1764000000123456}', "us"),
    "nanoseconds": (b'{"time_ms": 1764000000123456789}', "ns"),
    "iso": (b'{"time_ms": "2025-11-24T16:00:00.123Z"}', "iso"),
    "clock at 1970": (b'{"time_ms": 12345}', "received"),
    "bool": (b'{"time_ms": true}', "received"),
    "empty": (b"", "not_json"),
    "text": (b"not json", "not_json"),
    "binary": (bytes(range(256)), "not_json"),
    "array": (b"[1, 2]", "no_reading"),
    "NaN": (b"NaN", "no_reading"),
    "deep": (b"[" * 3_000, "json_too_deep"),
    "large": (b'{"padding": "' + b"x" * 5_000 + b'"}', "record_too_large"),  # above record_bytes_max
}


def test_every_payload_arrives_as_a_record_or_as_a_dead_letter(broker, site):
    good = {payload: unit for payload, unit in PAYLOADS.values() if unit in UNITS}
    bad = {payload: reason for payload, reason in PAYLOADS.values() if reason not in UNITS}
    started_ms = time.time_ns() // 1_000_000
    with Device(site.mosquitto.port, f"poison-{site.topic}") as device:
        device.publish_raw(b"not json either", qos=0)
        for payload, _ in PAYLOADS.values():
            device.publish_raw(payload)
        device.wait_acked()
        wait_until(lambda: site.acked() == len(good), 20, "the records acknowledged")
        wait_until(lambda: sum(site.dead_letters().values()) == len(bad) + 1, 20, "the dead letters acknowledged")
    ended_ms = time.time_ns() // 1_000_000
    messages = read_whole(broker.bootstrap, site.topic)
    assert {message.value() or b"": headers(message)["time_unit"].decode() for message in messages} == good
    for message in messages:
        unit, timestamp_ms = good[message.value()], message.timestamp()[1]
        if unit == "received":
            assert started_ms <= timestamp_ms <= ended_ms
        else:
            assert 1_764_000_000_000 <= timestamp_ms <= 1_764_000_000_123
    letters = [found for found in read_whole(broker.bootstrap, "dead_letters") if is_from(found, device)]
    assert len(letters) == len(bad) + 1
    found = {letter.value() or b"": headers(letter)["dead_letter.reason"].decode() for letter in letters}
    assert found == bad | {b"not json either": "not_json"}
    for letter in letters:
        assert headers(letter)["dead_letter.route"] == b"sites/+/devices/{device}/readings"
        assert headers(letter)["dead_letter.topic"] == site.topic.encode()
        assert started_ms <= int(headers(letter)["received_ms"]) <= ended_ms
        assert headers(letter)["received_ms"] == str(letter.timestamp()[1]).encode()
    assert ledger(broker, device.name) == []
    counted: dict[str, int] = {}
    for reason in [*bad.values(), "not_json"]:
        counted[reason] = counted.get(reason, 0) + 1
    assert site.dead_letters() == counted


def test_a_route_that_refuses_everything_is_told(broker, site):
    with Device(site.mosquitto.port, f"hopeless-{site.topic}") as device:
        for _ in range(5):
            device.publish_raw(b"not json")
        _, text = wait_until(lambda: (found := site.health())[0] == 503 and found, 10, "health tells")
        assert text == "sites/+/devices/{device}/readings: none of the last 5 messages can be used (not_json)\n"
        device.publish_raw(b"20.1")
        wait_until(lambda: site.health() == (200, "ok\n"), 10, "healthy again")


def test_dead_letters_are_evicted(broker, site):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wait_until(lambda: "dead_letters" in admin.list_topics(timeout=10).topics, 20, "the dead-letter topic")
    (described,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "dead_letters")]).values()
    settings = {name: entry.value for name, entry in described.result(10).items()}
    if "edge.priority" in settings:  # Apache Kafka has no such key
        assert (settings["edge.priority"], settings["retention.ms"]) == ("4", "-1")
        assert settings["edge.budget.bytes"] == str(256 << 20)
    else:
        assert settings["retention.ms"] == str(30 * 86_400_000)
    assert settings["cleanup.policy"] == "delete"
    assert len(admin.list_topics("dead_letters", timeout=10).topics["dead_letters"].partitions) == 1


def test_an_evicted_dead_letter_is_in_the_ledger(topic, tmp_path):
    """On the edge broker, which evicts; the topic has the gateway's settings, and a budget that can be filled."""
    budget = {"retention.ms": "-1", "edge.priority": "4", "edge.budget.bytes": str(2 << 20)}
    with EdgeBroker(tmp_path / "broker") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for created in admin.create_topics([NewTopic(f"{topic}-dead", 1, 1, config=budget)]).values():
            created.result(10)
        site = GatewaySite(tmp_path, broker.bootstrap, topic, dead_letter_topic=f"{topic}-dead")
        with all_stopped(site.mosquitto, site.gateway), Device(site.mosquitto.start().port, topic) as device:
            site.gateway.start()
            for number in range(40):
                device.publish_raw(b"not json %02d" % number + b"x" * 200_000)
            wait_until(lambda: site.dead_letters() == {"not_json": 40}, 30, "every dead letter acknowledged")
            wait_until(lambda: evicted(broker, f"{topic}-dead"), 30, "the ledger has what eviction took")
        left = {message.offset() for message in read_whole(broker.bootstrap, f"{topic}-dead")}
        gone = evicted(broker, f"{topic}-dead")
    assert gone
    assert len(left | gone) >= 40  # at least once
    assert left | gone == set(range(max(left) + 1))


def evicted(broker, name: str) -> set[int]:
    return {
        offset
        for record in ledger(broker, name)
        if record["cause"] == "evicted"
        for offset in range(int(record["first_offset"]), int(record["last_offset"]) + 1)
    }


def test_a_dead_letter_that_the_broker_finds_too_large_is_cut_marked_and_ledgered(broker, topic, tmp_path):
    payload = b"not json" + b"x" * 800_000
    small = NewTopic(f"{topic}-dead", 1, 1, config={"max.message.bytes": "100000"})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for created in admin.create_topics([small]).values():
        created.result(10)
    site = GatewaySite(tmp_path, broker.bootstrap, topic, dead_letter_topic=small.topic)
    with all_stopped(site.mosquitto, site.gateway):
        site.mosquitto.start()
        site.gateway.start()
        with Device(site.mosquitto.port, f"large-{topic}") as device:
            device.publish_raw(payload)
            device.publish()
            wait_until(lambda: site.dead_letters() == {"not_json": 1}, 30, "the dead letter acknowledged")
            wait_until(lambda: site.acked() == 1, 20, "its neighbour acknowledged")
            wait_until(lambda: ledger(broker, device.name), 20, "what was cut is in the ledger")
    (letter,) = read_whole(broker.bootstrap, small.topic)
    assert letter.value() == payload[:65_536]
    assert headers(letter)["dead_letter.payload_bytes"] == str(len(payload)).encode()
    (record,) = ledger(broker, device.name)
    assert (record["cause"], record["records"]) == ("record_too_large", 1)
    assert record["bytes"] == len(payload) - 65_536
    assert record["topic"] == f"mqtt:sites/a/devices/{device.name}/readings"


def test_a_line_too_long_is_a_dead_letter_and_its_neighbours_pass(broker, site):
    line = b"y" * 300_000
    with site.log_path.open("ab") as log:
        log.write(line + b"\nthird\n")
    wait_until(lambda: site.metric("records_total", f'source="file",topic="{site.topic}-logs"') == 3, 20, "three lines")
    wait_until(lambda: site.metric("ledger_records_total", 'cause="record_too_large"') == 1, 20, "the rest ledgered")
    letters = read_whole(broker.bootstrap, "dead_letters")
    (letter,) = [found for found in letters if found.key() == str(site.log_path).encode()]
    assert letter.value() == line[:65_536]
    assert headers(letter)["dead_letter.payload_bytes"] == b"300000"
    assert headers(letter)["position"] == b"13"
    assert [record["bytes"] for record in ledger(broker, f"{site.topic}-logs")] == [300_000 - 65_536]


def headers(message) -> dict[str, bytes]:
    return dict(message.headers())


def is_from(letter, device: Device) -> bool:
    return f"/devices/{device.name}/".encode() in headers(letter).get("mqtt.topic", b"")


def test_what_mosquitto_dropped_is_in_the_ledger_to_the_message(broker, topic, tmp_path):
    site = GatewaySite(tmp_path, broker.bootstrap, topic, queued_bytes_max=65_536)
    with all_stopped(site.mosquitto, site.gateway):
        site.mosquitto.start()
        site.gateway.start()
        site.gateway.stop()
        with Device(site.mosquitto.port, f"flood-{topic}") as device:
            for _ in range(1_500):
                device.publish(padding=400)
            device.wait_acked()
        site.gateway.start()
        # mosquitto may count some of its drops only after the gateway's first look: a second ledger record follows
        wait_until(
            lambda: site.acked() + _dropped(broker, site) >= 1_500, 30, "all acknowledged or ledgered", poll_s=0.3
        )
        site.wait_idle()
    in_ledger = _dropped(broker, site)
    arrived = sequences(read_whole(broker.bootstrap, topic))[device.name]
    assert len(arrived) == len(set(arrived))
    assert in_ledger > 0
    assert len(arrived) + in_ledger == len(device.acked) == 1_500


def _dropped(broker, site) -> int:
    """Return what this site's gateway wrote to the ledger; other tests share the topic, so its own log tells which."""
    told = [line for line in site.gateway.log_path.read_text().splitlines() if "cause=mqtt_queue_dropped" in line]
    ids = {word.removeprefix("id=") for line in told for word in line.split() if word.startswith("id=")}
    records = [json.loads(message.value()) for message in read_whole(broker.bootstrap, LEDGER)]
    return sum({str(record["id"]): record["records"] for record in records if record["id"] in ids}.values())


def test_health_names_what_is_wrong(broker, site):
    wait_until(lambda: site.health() == (200, "ok\n"), 20, "every watch has heard something")
    site.mosquitto.stop()
    _status, text = wait_until(lambda: (found := site.health())[0] == 503 and found, 10, "health tells")
    assert f"mosquitto at 127.0.0.1:{site.mosquitto.port}" in text
    site.mosquitto.start()
    wait_until(lambda: site.health() == (200, "ok\n"), 20, "healthy again")


def test_a_time_under_another_name_is_logged_once_and_noted(broker, site):
    with Device(site.mosquitto.port, "renamed") as device:
        for second in range(3):
            device.publish_raw(b'{"ts": %d, "value": 1}' % (1_764_000_000 + second))
        device.wait_acked()
        wait_until(lambda: "time_overlooked" in site.log(), 10, "a line about it")
        site.wait_idle()
    said = 'sites/+/devices/{device}/readings: readings have no time_ms but "ts", so the time of receipt counts'
    status, text = site.health()
    assert status == 200
    assert text.startswith(f"ok; {said}")
    assert site.log().count("time_overlooked") == 1
    units = [dict(message.headers())["time_unit"] for message in read_whole(broker.bootstrap, site.topic)]
    assert units == [b"received"] * 3
