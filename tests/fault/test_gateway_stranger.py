"""What no device of ours would publish, through a real mosquitto into a real broker: nothing stops the gateway.

Invariants, whatever the payload and the topic:
- every message that mosquitto acknowledged is there whole, as a record or as a dead letter;
- nothing is in the ledger, and the gateway runs on;
- the log stays short.
"""

from __future__ import annotations

import json
import random
import time

import pytest

from tests.support.gateway_site import Device, GatewaySite, read_whole
from tests.support.processes import EdgeBroker, all_stopped, wait_until

MESSAGES = 250
PAYLOAD_BYTES_MAX = 820_000  # with the topic below mosquitto's packet_bytes_max
LOG_LINES_MAX = 60


class Stranger:
    """Makes payloads and topics from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def payload(self) -> bytes:
        pick = self._random
        return pick.choice(
            [
                lambda: pick.randbytes(pick.randrange(400)),
                lambda: b"",
                lambda: pick.randbytes(256 << 10),
                lambda: pick.choice([b"[", b'{"time_ms":', b'{"a":[']) * pick.randrange(1, 60_000),
                lambda: b'{"time_ms":' + b"9" * pick.randrange(1, 300_000) + b"}",
                lambda: b'{"value":"' + b"x" * pick.randrange(PAYLOAD_BYTES_MAX) + b'"}',
                *[lambda: self._json(0).encode("utf-8", "surrogatepass")] * 6,
            ]
        )()

    def _json(self, depth: int) -> str:
        pick = self._random
        kind = pick.randrange(9 if depth < 4 else 7)
        if kind == 0:
            return pick.choice(["null", "true", "NaN", "-Infinity", "1e999", "-0", "1764000000", "1764000000123.5"])
        if kind == 1:
            return str(pick.randrange(-(10 ** pick.randrange(1, 400)), 10 ** pick.randrange(1, 400)))
        if kind == 2:
            return repr(pick.random() * 10 ** pick.randrange(-10, 20))
        if kind == 3:
            return json.dumps(self._text(8), ensure_ascii=pick.random() < 0.5)
        if kind == 4:
            return pick.choice(['"\\ud800"', '"\ud800"', '"\\u0000"'])
        if kind < 7:
            return json.dumps(
                pick.choice(
                    ["2026-11-21T10:00Z", "0001-01-01T00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-11-21T25"]
                )
            )
        if kind == 7:
            return "[" + ",".join(self._json(depth + 1) for _ in range(pick.randrange(4))) + "]"
        names = ('"time_ms"', '"value"', '"device"', '"time_ms"')  # a name may come twice
        return "{" + ",".join(f"{pick.choice(names)}:{self._json(depth + 1)}" for _ in range(pick.randrange(5))) + "}"

    def topic(self) -> str:
        pick = self._random
        names = ["", "x" * pick.randrange(1, 60_000), '{x!r}%s"\\', self._text(8), *[f"d{pick.randrange(9)}"] * 3]
        return f"sites/a/devices/{pick.choice(names)}/readings"

    def _text(self, characters_max: int) -> str:
        """Return text that mosquitto takes in a topic: no control characters, no wildcards, no non-characters."""
        ranges = [(0xA0, 0xD7FF), (0xE000, 0xFDCF), (0x10000, 0x1F000)]
        count = self._random.randrange(1, characters_max)
        return "".join(chr(self._random.randrange(*self._random.choice(ranges))) for _ in range(count))


@pytest.mark.timeout(300)
def test_whatever_a_stranger_publishes_is_kept_and_stops_nothing(request, tmp_path):
    seed = request.config.getoption("--seed") or time.time_ns() % 1_000_000
    print(f"\nseed {seed}: repeat it with --seed {seed}")
    stranger, sent = Stranger(seed), set()
    with EdgeBroker(tmp_path / "broker") as broker:
        site = GatewaySite(tmp_path, broker.bootstrap, "readings")
        with all_stopped(site.mosquitto, site.gateway), Device(site.mosquitto.start().port, "stranger") as device:
            site.gateway.start()
            for number in range(MESSAGES):
                topic, payload = stranger.topic(), stranger.payload()
                info = device.client.publish(topic, payload, qos=1 + number % 2, retain=number % 10 == 0)
                wait_until(info.is_published, 30, f"mosquitto takes {len(payload)} bytes")
                sent.add((topic.encode(), payload))
            wait_until(lambda: site.acked() + sum(site.dead_letters().values()) >= MESSAGES, 60, "all acknowledged")
            site.gateway.check()
        kept = [message for name in ("readings", "dead_letters") for message in read_whole(broker.bootstrap, name, 60)]
        ledgered = read_whole(broker.bootstrap, "__edge_ledger")
    assert {(dict(message.headers())["mqtt.topic"], message.value() or b"") for message in kept} == sent
    assert ledgered == []
    lines = site.gateway.log_path.read_text().splitlines()
    assert [line for line in lines if " error " in line or "Traceback" in line] == []
    assert len(lines) < LOG_LINES_MAX
