"""What a session in a real mosquitto becomes when the configuration, the client id or mosquitto itself changes.

Invariants:
- two gateways on one client id both say so, and lose nothing between them;
- a route that went out of the file brings nothing more, whatever was killed in between;
- a session that is lost or left behind is in the ledger and in the log.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import socket
import uuid

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.support.gateway_site import Device, GatewaySite, read_whole
from tests.support.processes import EdgeBroker, all_stopped, wait_until
from tests.support.waiting import CALL_S

READINGS = "sites/+/devices/{device}/readings"


@pytest.fixture(scope="module")
def edge(tmp_path_factory):
    with EdgeBroker(tmp_path_factory.mktemp("edge")) as broker:
        yield broker


@pytest.fixture
def site(edge, tmp_path):
    site = GatewaySite(tmp_path, edge.bootstrap, f"readings-{uuid.uuid4().hex[:8]}")
    site.log_path.touch()
    with all_stopped(site.mosquitto, site.gateway):
        site.mosquitto.start()
        site.gateway.start()
        yield site


def ledger(edge, text: str) -> list[dict[str, object]]:
    records = [json.loads(message.value()) for message in read_whole(edge.bootstrap, "__edge_ledger")]
    return [record for record in records if text in str(record)]


def headers(message) -> dict[str, bytes]:
    return dict(message.headers())


@pytest.mark.night
def test_two_gateways_on_one_client_id_say_so_and_lose_nothing(edge, site, tmp_path):
    twin = site.twin(tmp_path / "twin")
    with all_stopped(twin.gateway), Device(site.mosquitto.port, f"device-{site.topic}") as device:
        twin.gateway.start()
        for one in (site, twin):
            said = wait_until(lambda one=one: "another client uses" in (found := one.health()[1]) and found, 30, "told")
            assert f'client_id "drupelet-gateway-{platform.node()}"' in said
            assert "give each gateway its own mqtt.client_id" in said
            assert "another client uses the client_id" in one.log()
        for _ in range(50):
            device.publish()
        device.wait_acked()
        twin.gateway.stop()
        wait_until(lambda: len(values(edge, site.topic)) == 50, 30, "all of them")
    wait_until(lambda: site.health() == (200, "ok\n"), 120, "healthy again")


def values(edge, topic: str) -> set[bytes]:
    return {message.value() for message in read_whole(edge.bootstrap, topic)}


def test_a_removed_route_brings_nothing_more(edge, site):
    extra = f'[[mqtt.routes]]\npattern = "old/#"\ntopic = "{site.topic}"\n\n[[mqtt.routes]]'
    site.gateway.stop()
    site.change("[[mqtt.routes]]", extra)
    site.gateway.start()
    site.gateway.kill()
    site.change(extra, "[[mqtt.routes]]")
    with Device(site.mosquitto.port, f"device-{site.topic}") as device:
        device.client.publish("old/queued", b"was promised", 1).wait_for_publish(CALL_S)
        site.gateway.start()
        wait_until(lambda: "unsubscribed filters=old/#" in site.log(), 20, "unsubscribed")
        for _ in range(5):
            device.client.publish("old/new", b"nobody asked", 1).wait_for_publish(CALL_S)
        device.publish()
        wait_until(lambda: site.acked() == 1, 20, "the reading that is still wanted")
        wait_until(lambda: site.dead_letters() == {"no_route": 1}, 20, "what was queued is kept")
    assert site.dead_letters() == {"no_route": 1}
    assert ledger(edge, "old/") == []


def test_a_session_that_mosquitto_lost_is_told(edge, site):
    site.mosquitto.kill()
    shutil.rmtree(site.root / "mosquitto")
    (site.root / "mosquitto").mkdir()
    site.mosquitto.start()
    wait_until(lambda: site.metric("ledger_records_total", 'cause="mqtt_queue_dropped"') == 1, 30, "ledgered")
    assert "mosquitto has lost our session and its queue" in site.log()
    assert ledger(edge, "mqtt:session/drupelet-gateway-")


def test_a_session_left_behind_is_told_once(edge, site):
    for _ in range(2):
        site.gateway.kill()
        if "client_id" not in site.config_path.read_text():
            site.change("[mqtt]", f'[mqtt]\nclient_id = "{site.topic}"')
        site.gateway.start()
        wait_until(lambda: "mqtt.client_id was changed" in site.log(), 20, "told")
        wait_until(lambda: site.health()[0] == 200 and site.metric("pending_records") <= 1, 20, "nothing waits")
    ids = re.findall(r"mqtt\.client_id was changed.* id=(\S+)", site.log())
    assert len(set(ids)) == 1  # a kill before the broker's answer repeats the record, with its id


def test_properties_retain_and_qos_are_headers(edge, site):
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.connect("127.0.0.1", site.mosquitto.port)
    client.loop_start()
    properties = Properties(PacketTypes.PUBLISH)
    properties.ContentType = "application/json"
    properties.ResponseTopic = "answers/1"
    properties.CorrelationData = b"\x00\xff"
    properties.MessageExpiryInterval = 600
    properties.UserProperty = [("unit", "\u00b0C"), ("unit", "K"), ("", "empty name")]
    topic = "sites/a/devices/d/readings"
    client.publish(topic, b"20.1", 1, retain=True, properties=properties).wait_for_publish(CALL_S)
    client.publish(topic, b"20.2", 0).wait_for_publish(CALL_S)
    client.publish(topic, b"", 1, retain=True).wait_for_publish(CALL_S)  # forgets what is retained
    wait_until(lambda: site.acked() == 2, 20, "both readings")
    client.disconnect()
    client.loop_stop()
    full, plain = sorted(read_whole(edge.bootstrap, site.topic), key=lambda message: message.value())
    found = headers(full)
    assert found["mqtt.qos"] == b"1"
    assert found["mqtt.retain"] == b"1"
    assert found["mqtt.content_type"] == b"application/json"
    assert found["mqtt.response_topic"] == b"answers/1"
    assert found["mqtt.correlation_data"] == b"\x00\xff"
    assert 590 <= int(found["mqtt.message_expiry_s"]) <= 600
    assert [value for name, value in full.headers() if name == "mqtt.user.unit"] == ["\u00b0C".encode(), b"K"]
    assert found["mqtt.user."] == b"empty name"
    assert {name for name, _ in plain.headers() if name.startswith("mqtt.")} == {"mqtt.topic", "mqtt.qos"}
    assert headers(plain)["mqtt.qos"] == b"0"


def test_a_packet_too_large_for_mosquitto_is_counted_and_its_device_named(edge, site):
    with Device(site.mosquitto.port, f"big-{site.topic}") as device:
        device.publish_raw(b"x" * 1_000_000)
        wait_until(lambda: site.metric("mqtt_oversize_total") >= 1, 20, "counted")
        said = f'ok; device "{device.name}" sends packets that are larger than mosquitto\'s max_packet_size\n'
        wait_until(lambda: site.health()[1] == said, 20, "named in /health")
    assert f"packet_too_large client_id={device.name}" in site.log()


def test_a_device_cannot_have_mosquitto_s_log_name_another_one(edge, site):
    """Nothing checks who a client says it is: its id is the only text of mosquitto's line that it chooses."""
    forger = f"x Client pump-7 disconnected due to oversize packet. {site.topic}"
    with Device(site.mosquitto.port, forger) as device:
        device.publish_raw(b"x" * 1_000_000)
        wait_until(lambda: site.metric("mqtt_oversize_total") >= 1, 20, "counted")
        ambiguous = "a device that mosquitto's log does not name for sure"
        said = f"ok; {ambiguous} sends packets that are larger than mosquitto's max_packet_size\n"
        wait_until(lambda: site.health()[1] == said, 20, "said in /health")
    assert "packet_too_large line=" in site.log()
    assert "client_id=pump-7" not in site.log()


def test_a_byte_order_mark_in_a_property_stops_nobody(edge, site):
    """paho calls U+FEFF malformed, mosquitto and MQTT 5 (1.5.4) do not; a message like that comes again and again."""
    with socket.create_connection(("127.0.0.1", site.mosquitto.port), timeout=CALL_S) as device:
        device.sendall(b"\x10\x10\0\x04MQTT\x05\x02\0\x1e\0\0\x03bom")
        device.recv(100)
        topic, mark = b"sites/a/devices/bom/readings", "\ufeff".encode()
        properties = b"\x03\0\x03" + mark + b"\x26\0\x01k\0\x03" + mark
        body = len(topic).to_bytes(2, "big") + topic + b"\0\x01" + bytes([len(properties)]) + properties + b"20.1"
        device.sendall(b"\x32" + bytes([len(body)]) + body)
        assert device.recv(4)[0] == 0x40  # PUBACK
    wait_until(lambda: site.acked() == 1, 20, "the reading with the mark")
    (message,) = read_whole(edge.bootstrap, site.topic)
    assert headers(message)["mqtt.user.k"] == headers(message)["mqtt.content_type"] == mark
