"""Publishes readings, and waits until Spark's results are what the topic of readings says.

Run on a test host, where kcat is. `readings.py publish` writes 40 readings of two devices, dated now, the last of them
far from the others; `readings.py wait SECONDS` computes windows and alarms from all readings and compares them with the
results topics; exit status 1 and both sides when they differ at the end. Spark must not be imported here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

BROKER = ("-b", "127.0.0.1:9092", "-q")
WINDOW_MS = 10_000
FAR = 500.0


def publish() -> None:
    """Write 20 readings of each device, acked by the broker."""
    start_ms = time.time_ns() // 1_000_000
    lines = []
    for number in range(20):
        for device in ("d1", "d2"):
            value = FAR if (number, device) == (19, "d2") else 20.0 + number % 3
            body = {"device": device, "time_ms": start_ms + number, "value": value}
            lines.append(f"{device}|{json.dumps(body)}\n")
    command = ["kcat", "-P", *BROKER, "-t", "readings", "-K|", "-X", "acks=all"]
    subprocess.run(command, input="".join(lines), text=True, check=True)  # noqa: S603


def records(topic: str) -> list[tuple[str, dict[str, Any]]]:
    """Read a topic whole: keys and JSON values, in order."""
    command = ["kcat", "-C", *BROKER, "-t", topic, "-o", "beginning", "-e", "-f", "%k\t%s\n"]
    read = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
    pairs = (line.split("\t", 1) for line in read.splitlines())
    return [(key, json.loads(value)) for key, value in pairs]


def compute_expected() -> tuple[dict[str, Any], set[Any]]:
    """Compute windows and alarms from the readings."""
    values: dict[str, list[float]] = {}
    far = set()
    for device, reading in records("readings"):
        start_ms = reading["time_ms"] // WINDOW_MS * WINDOW_MS
        values.setdefault(f"{device}|{start_ms}", []).append(reading["value"])
        if reading["value"] == FAR:
            far.add((device, reading["time_ms"]))
    return {key: figures(min(all_), sum(all_) / len(all_), max(all_), len(all_)) for key, all_ in values.items()}, far


def read_results() -> tuple[dict[str, Any], set[Any]]:
    """Read Spark's results: the newest window per key, each alarm once."""
    windows = {
        key: figures(each["min"], each["mean"], each["max"], each["count"]) for key, each in records("readings_windows")
    }
    return windows, {(key, each["time_ms"]) for key, each in records("readings_alarms")}


def figures(lowest: float, mean: float, highest: float, count: int) -> tuple[float, float, float, int]:
    """Put a window's figures side by side; the mean as far as the order of adding lets it be equal."""
    return lowest, round(mean, 9), highest, count


def wait(seconds: float) -> int:
    """Wait until what was found is what was expected."""
    deadline = time.monotonic() + seconds
    while True:
        right, seen = compute_expected(), read_results()
        if right == seen:
            print(f"{len(right[0])} windows and {len(right[1])} alarms are right")
            return 0
        if time.monotonic() > deadline:
            print(f"expected: {right}\nfound: {seen}")
            return 1
        time.sleep(0.5)


if __name__ == "__main__":
    if sys.argv[1] == "publish":
        publish()
    else:
        sys.exit(wait(float(sys.argv[2])))
