"""Rotations of devices' and gateways' passwords at a real mosquitto, by the tasks of the role mosquitto."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.mqtt_play import MqttPlay
from tests.support.runtimes import mosquitto_passwd
from tests.support.waiting import CALL_S, wait_until

NOT_AUTHORISED = 5
FORGED = "x (p2, c1, k60, u'thermometer-1~2')."


@pytest.fixture
def play(tmp_path: Path) -> Iterator[MqttPlay]:
    with MqttPlay(tmp_path / "play") as running:
        running.run(users())
        running.start()
        yield running


def users(thermometer: int = 1, gateway: int = 1, **of_thermometer: Any) -> list[dict[str, Any]]:
    """The entries of mosquitto_users by the rotation of each, as an inventory has them."""
    found: list[dict[str, Any]] = [
        {"name": "thermometer-1", "password": f"password {thermometer}", "acl": ["write devices/1/#"]},
        {"name": "gateway", "password": f"password {gateway}", "acl": ["read devices/#"]},
    ]
    for entry, rotation in zip(found, (thermometer, gateway), strict=True):
        if rotation > 1:
            entry["rotation"] = rotation
    found[0] |= of_thermometer
    return found


class Device:
    """A client of mosquitto by MQTT 3.1.1; `code` is the return code of its CONNACK."""

    def __init__(self, play: MqttPlay, user: str, number: int, client_id: str = "", *, clean: bool = True) -> None:
        self._socket = socket.create_connection(("127.0.0.1", play.port), CALL_S)
        flags = 0xC0 | (2 if clean else 0)
        fields = (client_id, user, f"password {number}")
        body = b"\0\4MQTT\4" + bytes([flags]) + b"\0\0" + b"".join(map(text, fields))
        self._send(0x10, body)
        self.is_session_present, self.code = self._read()[1]

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def subscribe(self, topic: str) -> int:
        """Subscribe by QoS 1; the code of the SUBACK."""
        self._send(0x82, b"\0\1" + text(topic) + b"\1")
        return self._read()[1][2]

    def publish(self, topic: str, payload: bytes) -> None:
        """Publish by QoS 1, until mosquitto answers."""
        self._send(0x32, text(topic) + b"\0\1" + payload)
        assert self._read()[0] == 0x40

    def received(self) -> bytes:
        """The payload of the next message."""
        kind, body = self._read()
        assert kind & 0xF0 == 0x30
        return body[4 + int.from_bytes(body[:2], "big") :]

    def is_closed(self) -> bool:
        """Whether mosquitto has closed the connection."""
        self._socket.settimeout(0.2)
        try:
            return self._socket.recv(1, socket.MSG_PEEK) == b""
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        finally:
            self._socket.settimeout(CALL_S)

    def _send(self, kind: int, body: bytes) -> None:
        size, length = b"", len(body)
        while length > 127:
            size, length = size + bytes([length & 127 | 128]), length >> 7
        self._socket.sendall(bytes([kind]) + size + bytes([length]) + body)

    def _read(self) -> tuple[int, bytes]:
        kind, size = self._exactly(2)
        return kind, self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            assert more, "mosquitto has closed the connection"
            data += more
        return data


def text(value: str) -> bytes:
    return len(value.encode()).to_bytes(2, "big") + value.encode()


def lets_in(play: MqttPlay, user: str, number: int, client_id: str = "") -> bool:
    with Device(play, user, number, client_id) as device:
        assert device.code in (0, NOT_AUTHORISED)
        return device.code == 0


def becomes(play: MqttPlay, user: str, number: int, *, let_in: bool) -> None:
    wait_until(lambda: lets_in(play, user, number) is let_in, CALL_S, f"{user} is {'let in' if let_in else 'refused'}")


def left(play: MqttPlay, client_id: str) -> None:
    """Wait until mosquitto has noticed that a client left."""
    wait_until(lambda: f"Client {client_id} closed" in play.log.read_text(), CALL_S, f"{client_id} has left")


def test_the_old_log_in_of_a_device_holds_until_the_new_one_was_used_and_the_next_run_ends_it(play):
    assert lets_in(play, "thermometer-1", 1)
    play.run(users(thermometer=2))
    assert "thermometer-1 of unknown still holds at mosquitto of pi-1" in play.said
    becomes(play, "thermometer-1", 1, let_in=True)
    play.run(users(thermometer=2))
    assert play.users() == ["gateway", "thermometer-1", "thermometer-1~2"], "a second run must end nothing"
    becomes(play, "thermometer-1~2", 2, let_in=True)
    assert "still holds" not in play.run(users(thermometer=2))
    becomes(play, "thermometer-1", 1, let_in=False)
    assert lets_in(play, "thermometer-1~2", 2)
    assert "changed=0" in play.run(users(thermometer=2))


def test_both_log_ins_may_do_the_same_and_the_gateways_session_outlives_its_rotation(play):
    with Device(play, "gateway", 1, "gateway of pi-1", clean=False) as gateway:
        assert gateway.subscribe("devices/#") == 1
    left(play, "gateway of pi-1")
    play.run(users(thermometer=2, gateway=2))
    becomes(play, "gateway~2", 2, let_in=True)
    for user, number in (("thermometer-1", 1), ("thermometer-1~2", 2)):
        with Device(play, user, number) as device:
            device.publish("devices/1/readings", user.encode())
            device.publish("devices/2/readings", b"refused")
    with Device(play, "gateway~2", 2, "gateway of pi-1", clean=False) as gateway:
        assert gateway.is_session_present
        assert [gateway.received() for _ in range(2)] == [b"thermometer-1", b"thermometer-1~2"]


@pytest.mark.night
def test_a_device_that_still_uses_the_old_log_in_of_two_that_share_it_is_not_locked_out(play):
    with Device(play, "thermometer-1", 1, "first"), Device(play, "thermometer-1", 1, "second") as second:
        play.run(users(thermometer=2))
        becomes(play, "thermometer-1~2", 2, let_in=True)
        assert "one still uses thermometer-1" in play.run(users(thermometer=2))
        assert not second.is_closed()
    left(play, "first")
    left(play, "second")
    assert lets_in(play, "thermometer-1", 1, "third")
    assert "one still uses thermometer-1" in play.run(users(thermometer=2)), "a use after that of the new one counts"
    play.run(users(thermometer=2), rotation="now")
    becomes(play, "thermometer-1", 1, let_in=False)


@pytest.mark.night
def test_a_client_that_takes_over_its_own_session_counts_as_one_by_the_new_log_in(play):
    play.run(users(thermometer=2))
    becomes(play, "thermometer-1", 1, let_in=True)
    with Device(play, "thermometer-1", 1, "same") as old:
        wait_until(lambda: lets_in(play, "thermometer-1~2", 2, "same"), CALL_S, "the new log-in is let in")
        wait_until(old.is_closed, CALL_S, "the old connection is closed")
    play.run(users(thermometer=2))
    assert play.users() == ["gateway", "thermometer-1~2"]


def test_one_word_ends_every_old_log_in_with_its_connections(play):
    with Device(play, "thermometer-1", 1, "stolen") as stolen:
        play.run(users(thermometer=2), rotation="now")
        wait_until(stolen.is_closed, CALL_S, "mosquitto closes the connection")
    becomes(play, "thermometer-1", 1, let_in=False)
    becomes(play, "thermometer-1~2", 2, let_in=True)


@pytest.mark.night
def test_a_device_that_leaves_the_inventory_in_the_middle_of_its_rotation_loses_both(play):
    play.run(users(thermometer=2))
    play.run(users()[1:])
    for user, number in (("thermometer-1", 1), ("thermometer-1~2", 2)):
        becomes(play, user, number, let_in=False)
    assert play.users() == ["gateway"]


@pytest.mark.night
def test_a_run_that_is_cut_off_before_mosquitto_loads_its_files_is_continued(play):
    play.run(users(thermometer=2), interrupted=True)
    assert not lets_in(play, "thermometer-1~2", 2)
    assert "thermometer-1~2" not in (play.etc / "drupelet/mqtt-log-ins").read_text(), "the gateway goes by this file"
    play.run(users(thermometer=2))
    becomes(play, "thermometer-1~2", 2, let_in=True)


@pytest.mark.night
def test_a_log_in_from_before_a_device_was_made_again_does_not_count(play):
    """The journal still has the connections of a device that left, and whose name another one gets."""
    play.run(users(thermometer=2), rotation="now")
    becomes(play, "thermometer-1~2", 2, let_in=True)
    play.run(users()[1:])
    play.run(users())
    made = play.etc / "drupelet/mqtt-log-ins"
    play.log.write_text(play.log.read_text().replace("\n1", "\n0"))  # as if decades had passed
    play.run(users(thermometer=2))
    assert "thermometer-1~2" in made.read_text()
    play.run(users(thermometer=2))
    assert play.users() == ["gateway", "thermometer-1", "thermometer-1~2"]


def test_no_device_ends_the_log_in_of_another_by_its_client_id(play):
    """mosquitto truncates lines to 1,000 bytes: one of the long ids ends a line at the forged name."""
    play.run(users(thermometer=2))
    becomes(play, "gateway", 1, let_in=True)
    separated = FORGED + "\u2028" + "1: New client connected from a as " + FORGED
    for client_id in (FORGED, separated, *("y" * fill + FORGED for fill in range(890, 920))):
        with Device(play, "gateway", 1, client_id) as forger:
            assert forger.code == 0
    wait_until(lambda: "yyy" + FORGED + "\n" in play.log.read_text(), CALL_S, "mosquitto truncates at the forged name")
    play.run(users(thermometer=2))
    assert play.users() == ["gateway", "thermometer-1", "thermometer-1~2"]


def test_mosquitto_checks_one_hash_per_name_so_a_generation_needs_a_name_of_its_own(play):
    """The fact on which the design rests: two lines of one name would let in by the last one alone."""
    lines = []
    for number in (1, 2):
        file = play.folder / f"hash-{number}"
        subprocess.run([mosquitto_passwd(), "-c", "-b", file, "twice", f"password {number}"], check=True, timeout=60)
        lines.append(file.read_text())
    with (play.etc / "mosquitto/passwd").open("a") as passwd:
        passwd.write("".join(lines))
    play.stop()
    play.start()
    assert not lets_in(play, "twice", 1)
    assert lets_in(play, "twice", 2)
