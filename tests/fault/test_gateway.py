"""The gateway against kills and absences, with a real mosquitto and a real broker.

Invariants, whatever is killed or cut:
- every message that mosquitto acknowledged to a device arrives, as a record or as a dead letter, and every line of the
  file;
- first occurrences are in the order of publishing, per device;
- while the broker is away nothing is acknowledged to mosquitto: a gateway killed meanwhile finds it all there again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.support.gateway_site import Device, GatewaySite, read_whole, sequences
from tests.support.processes import ApacheKafka, EdgeBroker, TcpProxy, all_stopped, free_port, wait_until

TOPIC = "readings"
PARTITIONS = 2


@pytest.fixture(scope="module")
def link(request, tmp_path_factory):
    """A broker behind a link that can be cut; the module's tests use it in turn, each with topics of its own."""
    kind = {"edge": EdgeBroker, "kafka": ApacheKafka}[request.config.getoption("--broker")]
    port = free_port()
    settings = {"num.partitions": PARTITIONS}
    directory = tmp_path_factory.mktemp("broker")
    with (
        kind(directory, advertise=f"127.0.0.1:{port}", settings=settings) as broker,
        TcpProxy(broker.bootstrap, port=port) as proxy,
    ):
        yield proxy


@pytest.fixture
def site(link, request, tmp_path):
    site = GatewaySite(tmp_path, link.bootstrap, f"{TOPIC}-{request.node.name.split('[')[0].removeprefix('test_')}")
    with all_stopped(site.mosquitto, site.gateway):
        site.mosquitto.start()
        site.gateway.start()
        yield site


def assert_whole(link, site, device: Device) -> None:
    """Wait until all that mosquitto acknowledged is in the log, then check the order."""
    acked = set(device.acked)
    wait_until(lambda: acked <= set(arrived(link, site, device)), 40, f"{len(acked)} readings in the log", poll_s=0.3)
    first = list(dict.fromkeys(arrived(link, site, device)))
    for qos in (1, 2):  # MQTT orders within a QoS only
        of_one_qos = [seq for seq in first if device.qos_of[seq] == qos]
        assert of_one_qos == sorted(of_one_qos)


def arrived(link, site, device: Device) -> list[int]:
    return sequences(read_whole(link.bootstrap, site.topic)).get(device.name, [])


@contextmanager
def repeated(step: Callable[[], None]) -> Iterator[None]:
    """Do something over and over in a thread meanwhile."""
    done = threading.Event()

    def repeat() -> None:
        while not done.wait(0.001):
            step()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_killed_in_the_middle(link, site):
    """The device publishes all the while, so that each kill meets messages in every state."""
    with Device(site.mosquitto.port, "device-1") as device:
        with repeated(lambda: device.publish(qos=1 + device.seq % 2)):
            for _ in range(4):
                wait_until(lambda: site.acked() > 0, 20, "the gateway is at work", poll_s=0.002)
                site.gateway.kill()
                site.gateway.start()
        device.wait_acked()
        assert sorted(device.acked) == list(range(device.seq))
        assert_whole(link, site, device)


def test_killed_between_a_dead_letter_and_its_puback(link, site):
    """No reading among them: each kill meets payloads before, at and after their dead letters."""

    def publish_unusable() -> None:
        device.publish_raw(unusable(device.seq), seq=device.seq)
        device.seq += 1

    with Device(site.mosquitto.port, "device-6") as device:
        with repeated(publish_unusable):
            for _ in range(4):
                wait_until(site.dead_letters, 20, "the gateway writes dead letters", poll_s=0.002)
                site.gateway.kill()
                site.gateway.start()
        device.wait_acked()
        assert sorted(device.acked) == list(range(device.seq))
        wanted = {unusable(seq) for seq in device.acked}
        wait_until(lambda: wanted <= set(letters(link, device)), 40, f"{len(wanted)} dead letters", poll_s=0.3)
        first = list(dict.fromkeys(letters(link, device)))
        assert first == [unusable(seq) for seq in range(device.seq)]


def unusable(seq: int) -> bytes:
    return b"\xff no JSON %d" % seq


def letters(link, device: Device) -> list[bytes]:
    origin = f"sites/a/devices/{device.name}/readings".encode()
    return [found.value() for found in read_whole(link.bootstrap, "dead_letters") if found.key() == origin]


def test_dead_letters_wait_for_a_broker_that_is_away(link, site):
    with Device(site.mosquitto.port, "device-7") as device:
        device.publish()
        wait_until(lambda: site.acked() == 1, 20, "the road is open")
        link.cut("refuse")
        try:
            for seq in range(50):
                device.publish_raw(unusable(seq), seq=seq)
            device.wait_acked()
            wait_until(lambda: site.metric("pending_records") >= 50, 20, "the gateway holds what it cannot hand on")
            assert site.dead_letters() == {}
            site.gateway.kill()  # had anything been acknowledged to mosquitto, it would be lost now
            site.gateway.start()
            wait_until(lambda: site.metric("pending_records") >= 50, 20, "mosquitto delivers it all again")
        finally:
            link.restore()
        wanted = [unusable(seq) for seq in range(50)]
        wait_until(lambda: list(dict.fromkeys(letters(link, device))) == wanted, 40, "all in the topic", poll_s=0.3)


@pytest.mark.parametrize("how", ["refuse", "blackhole"])
def test_broker_away(link, site, how):
    with Device(site.mosquitto.port, f"device-{how}") as device:
        device.publish()
        wait_until(lambda: site.acked() == 1, 20, "the road is open")
        link.cut(how)
        try:
            for _ in range(300):
                device.publish()
            device.wait_acked()
            wait_until(lambda: site.metric("pending_records") >= 300, 20, "the gateway holds what it cannot hand on")
            assert site.acked() == 1
            site.gateway.kill()  # had anything been acknowledged to mosquitto, it would be lost now
            site.gateway.start()
            wait_until(lambda: site.metric("pending_records") >= 300, 20, "mosquitto delivers it all again")
            wait_until(lambda: site.health()[0] == 503, 20, "health tells")
        finally:
            link.restore()
        assert_whole(link, site, device)
        wait_until(lambda: site.health()[0] == 200, 20, "healthy again")


def test_a_lost_connection_is_told_before_anything_is_sent(link, site):
    with Device(site.mosquitto.port, "device-idle") as device:
        device.publish()
        wait_until(lambda: site.acked() == 1, 20, "the road is open")
        link.cut("refuse")
        try:
            _, told = wait_until(lambda: (found := site.health())[0] == 503 and found, 20, "health tells")
        finally:
            link.restore()
        assert f"the connection to the broker is lost ({link.bootstrap} " in told
        wait_until(lambda: site.health()[0] == 200, 20, "healthy again")
        assert site.log().count(" broker_lost ") == 1


def test_broker_away_without_a_kill_leaves_no_duplicates(link, site):
    with Device(site.mosquitto.port, "device-3") as device:
        for cut in (False, True, False):
            if cut:
                link.cut("refuse")
            for _ in range(200):
                device.publish()
            device.wait_acked()
            if cut:
                wait_until(
                    lambda: site.metric("pending_records") >= 200, 20, "the gateway holds what it cannot hand on"
                )
                link.restore()
        wait_until(lambda: site.acked() >= 600, 40, "all acknowledged")
        assert arrived(link, site, device) == list(range(600))


def test_a_full_gateway_stops_reading_and_goes_on(link, tmp_path):
    site = GatewaySite(tmp_path, link.bootstrap, f"{TOPIC}-full", pending_records_max=40)
    with all_stopped(site.mosquitto, site.gateway), Device(site.mosquitto.start().port, "device-5") as device:
        site.gateway.start()
        link.cut("refuse")
        try:
            for _ in range(500):
                device.publish(qos=device.seq % 2)
            device.wait_acked()
            wait_until(lambda: site.metric("pending_records") >= 40, 20, "the gateway is full")
            assert site.metric("pending_records") <= 45  # soft by what each source has in hand
        finally:
            link.restore()
        wait_until(lambda: site.acked() == 500, 40, "all acknowledged")
        assert sorted(arrived(link, site, device)) == list(range(500))


def test_mosquitto_restarted(link, site):
    with Device(site.mosquitto.port, "device-4") as device:
        for _ in range(100):
            device.publish()
        device.wait_acked()
        site.gateway.stop()
        for _ in range(100):
            device.publish()
        device.wait_acked()
        site.mosquitto.stop()
        site.mosquitto.start()
        site.gateway.start()
        assert_whole(link, site, device)
        site.mosquitto.stop()
        site.mosquitto.start()
        wait_until(lambda: site.metric("mqtt_connections_total") == 2, 20, "the gateway is back")
        wait_until(lambda: site.metric("mqtt_connected") == 1, 20, "subscribed")
        wait_until(device.client.is_connected, 20, "the device is back")
        for _ in range(100):
            device.publish()
        device.wait_acked()
        assert_whole(link, site, device)
    told = [
        line.split("session_present=")[1]
        for line in site.gateway.log_path.read_text().splitlines()
        if "_present" in line
    ]
    assert told == ["False", "True", "True"]


def test_file_lines_survive_kills_and_rotation(link, site):
    written = 0
    labels = f'source="file",topic="{site.topic}-logs"'
    for round_number in range(4):
        with site.log_path.open("a") as log:
            for _ in range(200):
                log.write(f"line {written}\n")
                written += 1
        wait_until(lambda: site.metric("records_total", labels) > 0, 20, "lines acknowledged")
        if round_number % 2:
            site.log_path.rename(site.log_path.with_name(f"app.log.{9 - round_number}"))
        site.gateway.kill()
        site.gateway.start()
    expected = [f"line {number}".encode() for number in range(written)]

    def lines() -> list[bytes]:
        return list(dict.fromkeys(line.value() for line in read_whole(link.bootstrap, f"{site.topic}-logs")))

    wait_until(lambda: len(lines()) == written, 30, "every line in the log", poll_s=0.3)
    assert lines() == expected
