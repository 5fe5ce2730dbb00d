"""The gateway as a process between a real mosquitto and a real broker: what goes in comes out, losses are written down.

Invariants:
- QoS 0, 1 and 2 arrive with key, headers and the reading's own time;
- a message that a route or the broker refuses is in the ledger, and its neighbours arrive;
- what mosquitto acknowledged = what arrived + what the ledger counts as dropped.
"""

from __future__ import annotations

import json
import uuid

import pytest

from tests.support.gateway_site import Device, GatewaySite, read_whole, sequences
from tests.support.processes import all_stopped, wait_until

LEDGER = "__edge_ledger"


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


def test_what_is_refused_is_ledgered_and_its_neighbours_pass(broker, site):
    with Device(site.mosquitto.port, f"poison-{site.topic}") as device:
        device.publish()
        device.publish_raw(b"not json")
        device.publish(padding=5_000)  # above record_bytes_max
        device.publish()
        device.wait_acked()
        wait_until(lambda: site.acked() == 2, 20, "the neighbours acknowledged")
        for cause in ("mqtt_payload_rejected", "record_too_large"):
            wait_until(lambda c=cause: site.metric("ledger_records_total", f'cause="{c}"') == 1, 20, f"ledger: {cause}")
    assert sequences(read_whole(broker.bootstrap, site.topic)) == {device.name: [0, 2]}
    found = {record["cause"]: record for record in ledger(broker, device.name)}
    assert set(found) == {"mqtt_payload_rejected", "record_too_large"}
    assert found["mqtt_payload_rejected"]["bytes"] == len(b"not json")
    for record in found.values():
        assert (record["version"], record["records"], record["partition"]) == (1, 1, None)
        assert record["topic"] == f"mqtt:sites/a/devices/{device.name}/readings"


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
        in_ledger = wait_until(lambda: _dropped(broker, site), 30, "mosquitto's drops in the ledger")
        wait_until(lambda: site.acked() + in_ledger >= 1_500, 30, "the rest acknowledged")
        site.wait_idle()
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
    assert site.health() == (200, "ok\n")
    site.mosquitto.stop()
    _status, text = wait_until(lambda: (found := site.health())[0] == 503 and found, 10, "health tells")
    assert f"mosquitto at 127.0.0.1:{site.mosquitto.port}" in text
    site.mosquitto.start()
    wait_until(lambda: site.health() == (200, "ok\n"), 20, "healthy again")
