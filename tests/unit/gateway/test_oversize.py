"""mosquitto's lines about packets that are too large, in the forms of mosquitto 2.0.11 and 2.1.2.

Invariants: a line names a client only where no other client can have made mosquitto write it; all are counted; ids that
are made up fill neither the log nor /health.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from drupelet.observe.log_window import LENGTH_S
from gateway.metrics import Metrics
from gateway.sources.mqtt.mosquitto import MosquittoWatch
from gateway.sources.mqtt.oversize import (
    AMBIGUOUS,
    CLIENTS_MAX,
    LOGGED_EVERY_S,
    SHOWN_S,
    UNNAMED,
    OversizeClients,
    OversizePacket,
    oversize_packet,
)
from gateway.sources.mqtt.sys_signals import LOG_TOPIC
from tests.support.gateway.publisher import FakePublisher
from tests.support.tasks import running_task

END = " disconnected due to oversize packet."
LARGE = "packets that are larger than mosquitto's max_packet_size"


def packet(text: str) -> OversizePacket | None:
    return oversize_packet(text.encode())


@pytest.mark.parametrize(
    "line",
    [
        f"1796030871: Client pump-7{END}",
        f"Client pump-7{END}",  # log_timestamp false
        f"2026-11-30T09:27:51+0100: Client pump-7{END}",  # log_timestamp_format
        "1796030871: Client pump-7 [10.0.0.7:33806] disconnected: oversize packet.",
        "1796030871: Client pump-7 [fe80::1%eth0:33806] disconnected: oversize packet.",
        "1796030871: Client pump-7 [::ffff:10.0.0.7:33806] disconnected: oversize packet.",
        "1796030871: Client pump-7 [/run/mosquitto/m-1.sock:0] disconnected: oversize packet.",  # a Unix socket's path
        "1796030871: Client pump-7 [/run/my sockets/m:0] disconnected: oversize packet.",
        "1796030871: Client pump-7 [unix-socket:0] disconnected: oversize packet.",  # its path cannot be told
        "1796030871: Client pump-7 [(null):0] disconnected: oversize packet.",  # a proxy has told no address
    ],
)
def test_a_whole_line_names_the_client(line: str) -> None:
    assert packet(line) == ("pump-7", "")


@pytest.mark.parametrize(
    "line",
    [
        f"1: New client connected from 10.0.0.9:1 as x Client pump-7{END} (p2, c1, k60).",
        f"1: New client connected from 10.0.0.9:1 as x (p2, c1, k60, u'Client pump-7{END}').",
        f"1: Client x Client pump-7{END} closed its connection.",
        f"1: Client pump-7{END} disconnected.",
        f"1: Client pump-7{END}\n",
        f"1: Client pump-7{END} x",
        f"x\n1: Client pump-7{END}",
        f"1: Bad socket read/write on client Client pump-7{END}: Success",
        f"Error: 1: Client pump-7{END}",
        f"1: Client {END}",
        "1: Client pump-7 [10.0.0.7] disconnected: oversize packet.",
        "1: Client pump-7 [10.0.0.7:1] disconnected: oversize payload.",
        "1: Client pump-7 [10.0.0.7:1]] disconnected: oversize packet.",
        "1: Client pump-7 [10.0.0.7:1\n] disconnected: oversize packet.",
        "1: Client pump-7 disconnected, not authorised.",
        "1: Client pump-7 disconnected due to protocol error.",
        "",
    ],
)
def test_another_line_says_nothing_whatever_it_holds(line: str) -> None:
    assert packet(line) is None


@pytest.mark.parametrize(
    "client_id",
    [
        "x1 Client pump-7 disconnected, oversize packet",
        "y Client pump-7",
        "disconnected due to oversize packet. z",
        "pump-7 [10.0.0.7:1]",
        "pump-7 [10.0.0.7:1",
        "pump-7 [10.0.0.7:1] disconnected: oversize packet.",
        "pump-7 ",
        "pump-7\t",
        "pump-7\u00a0",
        "pump-7\u200b",
        "\u202e7-pmup",
        "pump\n1: Client pump-7",
        "\x1b[31mpump-7",
        "pump\x9b7",
        "p" * 257,
    ],
)
@pytest.mark.parametrize("end", [END, " [10.0.0.9:1] disconnected: oversize packet."])
def test_an_id_that_could_be_a_piece_of_a_line_is_ambiguous(client_id: str, end: str) -> None:
    assert packet(f"1: Client {client_id}{end}") == (None, AMBIGUOUS)


def test_an_id_that_is_no_text_is_ambiguous_and_one_that_was_not_sent_is_unnamed() -> None:
    assert oversize_packet(b"1: Client \xff" + END.encode()) == (None, AMBIGUOUS)
    assert packet(f"1: Client <unknown>{END}") == (None, UNNAMED)
    assert packet("1: Client <unknown> [10.0.0.9:1] disconnected: oversize packet.") == (None, UNNAMED)


def test_made_up_ids_fill_neither_the_log_nor_the_note() -> None:
    clients = OversizeClients()
    logged = [clients.note_packet(f"d{number}", 0.1 * number) for number in range(50)]
    assert sum(logged) == CLIENTS_MAX
    note = str(clients.note(5.0))
    assert note.count("device ") == CLIENTS_MAX
    assert note.endswith(f'device "d49", others send {LARGE}')
    assert not clients.note_packet("d0", LOGGED_EVERY_S - 0.1)
    assert clients.note_packet("d0", LOGGED_EVERY_S)


def test_a_note_ends_with_its_time() -> None:
    clients = OversizeClients()
    assert clients.note(0.0) is None
    clients.note_packet("a", 0.0)
    clients.note_packet(None, 1.0)
    assert clients.note(1.0) == f'device "a", a device that mosquitto\'s log does not name for sure send {LARGE}'
    assert clients.note(SHOWN_S + 0.5) == f"a device that mosquitto's log does not name for sure sends {LARGE}"
    assert clients.note(SHOWN_S + 1.5) is None


def test_a_forged_line_is_counted_once_and_names_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    watch = MosquittoWatch(FakePublisher().as_publisher(), tmp_path / "m.json", "me", metrics)
    forger = "x1 Client pump-7 disconnected, oversize packet"
    for line in (
        f"1: New client connected from 127.0.0.1:1 as {forger} (p2, c1, k60).",
        f"1: Client {forger}{END}",
        f"1: Client {forger} disconnected.",
    ):
        watch.message_received(LOG_TOPIC, line.encode())
    assert watch.note() == f"a device that mosquitto's log does not name for sure sends {LARGE}"
    (record,) = [record for record in caplog.records if record.message == "packet_too_large"]
    fields = vars(record)["drupelet_fields"]
    assert (fields["client_id"], fields["reason"]) == (None, AMBIGUOUS)
    assert fields["line"] == f"1: Client {forger}{END}"
    assert "edge_gateway_mqtt_oversize_total 1.0" in generate_latest(metrics.registry).decode()


class PlayedTimers:
    """As an event loop whose time passes only when the test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.due: list[tuple[float, Callable[[], object]]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay: float, callback: Callable[[], object]) -> PlayedTimers:
        self.due.append((self.now_s + delay, callback))
        return self

    def cancel(self) -> None:
        self.due.clear()

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        for at_s, callback in list(self.due):
            if at_s <= self.now_s:
                callback()


def sums(caplog: pytest.LogCaptureFixture) -> list[tuple[object, object]]:
    told = [vars(record)["drupelet_fields"] for record in caplog.records if record.message.endswith("_summed")]
    return [(fields["left_out"], fields["seconds"]) for fields in told]


def test_packets_without_a_line_are_summed_though_no_other_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A device that sends one too large packet after another, and then is switched off."""
    timers = PlayedTimers()
    watch = MosquittoWatch(FakePublisher().as_publisher(), tmp_path / "m.json", "me", Metrics(), timers=lambda: timers)
    for _ in range(30):
        watch.message_received(LOG_TOPIC, f"1: Client pump-7{END}".encode())
    assert [record.message for record in caplog.records] == ["packet_too_large"]
    timers.advance(LENGTH_S - 0.1)
    assert not sums(caplog)
    timers.advance(0.1)
    assert sums(caplog) == [(29, "10.0")]
    timers.advance(10 * LENGTH_S)
    assert sums(caplog) == [(29, "10.0")]


async def test_a_stop_writes_the_sum_of_packets_without_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watch = MosquittoWatch(FakePublisher().as_publisher(), tmp_path / "m.json", "me", Metrics())
    async with running_task(watch.run()):
        await watch.noted.wait()
        for number in range(CLIENTS_MAX + 3):
            watch.message_received(LOG_TOPIC, f"1: Client pump-{number}{END}".encode())
    assert [left_out for left_out, _ in sums(caplog)] == [3]


def test_a_quote_in_an_id_ends_no_name(tmp_path: Path) -> None:
    watch = MosquittoWatch(FakePublisher().as_publisher(), tmp_path / "m.json", "me", Metrics())
    watch.message_received(LOG_TOPIC, f'1: Client a",device"pump-7{END}'.encode())
    assert watch.note() == f'device "a\\",device\\"pump-7" sends {LARGE}'
