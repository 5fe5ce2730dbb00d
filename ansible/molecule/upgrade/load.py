"""A device that never rests: publishes numbered readings with QoS 1 and writes down which of them were answered.

`publish` runs until SIGTERM; `check` reads the board's and the central broker and prints how many answered readings
there are and which are missing (exit status 1). Runs on a board, by its /opt/drupelet/.../bin/python; standard input of
both is a JSON object. mosquitto is never killed here, so what it has answered must arrive.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion

ANSWERED = Path("/root/answered")
TOPIC = "sites/plant-7/devices/thermometer-1/readings"
INTERVAL_S = 0.05
READ_S = 40


def publish(password: str) -> None:
    """Publish a reading every 50 ms; a line is in the file once mosquitto has answered."""
    numbers: dict[int, int] = {}
    going = [True]
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id="load", clean_session=False)
    client.username_pw_set("thermometer-1", password)
    with ANSWERED.open("w") as answered:
        client.on_publish = lambda *given: print(numbers.pop(given[2]), file=answered, flush=True)
        client.connect("127.0.0.1")
        signal.signal(signal.SIGTERM, lambda *_: going.clear())
        number = 0
        while going:
            number += 1
            mid = client.publish(TOPIC, json.dumps({"load": number}), qos=1).mid
            numbers[mid] = number
            until = time.monotonic() + INTERVAL_S
            while (left := until - time.monotonic()) > 0:
                if client.loop(left) != paho.MQTT_ERR_SUCCESS:
                    with contextlib.suppress(OSError):  # mosquitto is being restarted
                        client.reconnect()
        client.disconnect()


async def read(bootstrap: str, topic: str, wanted: set[int]) -> set[int]:
    """Read a topic from its start until nothing is missing, for at most 40 s; return what is."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        missing, deadline = set(wanted), time.monotonic() + READ_S
        while missing and time.monotonic() < deadline:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                missing -= {json.loads(record.value).get("load") for record in records}
        return missing
    finally:
        await consumer.stop()


async def check(places: dict[str, Any], answered: set[int]) -> int:
    """Compare what was answered with each place."""
    print(f"{len(answered)} answered")
    missing = {f"{at}/{topic}": await read(at, topic, answered) for at, topic in places["topics"]}
    for place, numbers in missing.items():
        print(f"{place}: {len(numbers)} missing {sorted(numbers)[:5]}")
    return 1 if any(missing.values()) or len(answered) < places["at_least"] else 0


if __name__ == "__main__":
    order = json.load(sys.stdin)
    if sys.argv[1] == "publish":
        publish(order["password"])
    else:
        sys.exit(asyncio.run(check(order, {int(line) for line in ANSWERED.read_text().split()})))
