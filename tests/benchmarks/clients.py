"""What the benchmarks drive a broker with: the Java tools of Apache Kafka 4.3.1, and one bare Metadata request.

Lives here: starting the tools and reading their figures. Must never come in: what is compared with what (broker.py).
"""

from __future__ import annotations

import re
import socket
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support import runtimes

TOOL_S_MAX = 300
CLIENT_HEAP = ("-Xms512m", "-Xmx512m")
_PRODUCED = re.compile(
    r"^(\d+) records sent, ([\d.]+) records/sec .*?([\d.]+) ms avg latency, ([\d.]+) ms max latency,"
    r" (\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th",
    re.MULTILINE,
)
_LATENCY = re.compile(r"Percentiles: 50th = (\d+), 99th = (\d+), 99.9th = (\d+)")
_METADATA_V0 = struct.pack(">hhih5si", 3, 0, 1, 5, b"bench", 0)


def _java(main_class: str, arguments: Sequence[str], directory: Path) -> str:
    command = [*runtimes.kafka_java(*CLIENT_HEAP), main_class, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_S_MAX, check=False, cwd=directory)
    if done.returncode != 0:
        raise RuntimeError(
            f"{main_class} failed with exit status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        )
    return done.stdout


def produce(
    bootstrap: str,
    topic: str,
    records: int,
    size: int | Path,
    properties: Sequence[str],
    directory: Path,
    config: Path | None = None,
) -> dict[str, float]:
    """Run the producer's performance test; records/s and latencies in ms as it reports them.

    `size` is that of random records, or a file with one payload a line; `config` says how to get in.
    """
    what = ["--payload-file", str(size)] if isinstance(size, Path) else ["--record-size", str(size)]
    arguments = ["--topic", topic, "--num-records", str(records), *what, "--throughput", "-1"]
    arguments += ["--bootstrap-server", bootstrap, "--command-property", *properties, *_get_in(config)]
    output = _java("org.apache.kafka.tools.ProducerPerformance", arguments, directory)
    found = _PRODUCED.findall(output)
    if not found or int(found[-1][0]) != records:
        raise RuntimeError(f"the producer did not send {records} records:\n{output[-2000:]}")
    last = found[-1]
    return {"records_per_s": float(last[1]), "p50_ms": float(last[4]), "p99_ms": float(last[6])}


def _get_in(config: Path | None) -> list[str]:
    return [] if config is None else ["--command-config", str(config)]


def consume(bootstrap: str, topic: str, records: int, directory: Path, config: Path | None = None) -> dict[str, float]:
    """Run the consumer's performance test; records/s while fetching."""
    arguments = [
        "--bootstrap-server",
        bootstrap,
        "--topic",
        topic,
        "--num-records",
        str(records),
        "--hide-header",
        "--timeout",
        "60000",
        *_get_in(config),
    ]
    output = _java("org.apache.kafka.tools.ConsumerPerformance", arguments, directory)
    fields = [field.strip() for field in output.strip().splitlines()[-1].split(",")]
    if int(fields[4]) < records:
        raise RuntimeError(f"the consumer read {fields[4]} of {records} records:\n{output[-2000:]}")
    return {"records_per_s": float(fields[9])}


def end_to_end(bootstrap: str, topic: str, messages: int, acks: str, directory: Path) -> dict[str, float]:
    """Run the latency test, one message at a time through producer and consumer; p50 and p99 in ms."""
    arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(messages)]
    arguments += ["--producer-acks", acks, "--record-size", "100"]
    output = _java("org.apache.kafka.tools.EndToEndLatency", arguments, directory)
    found = _LATENCY.search(output)
    average = re.search(r"Avg latency: ([\d.]+) ms", output)
    if not found or not average:
        raise RuntimeError(f"the latency test printed no percentiles:\n{output[-2000:]}")
    return {"mean_ms": float(average[1]), "p50_ms": float(found[1]), "p99_ms": float(found[2])}


def first_metadata(port: int, deadline_s: float = 60) -> None:
    """Return as soon as a Metadata request is answered on `port`; TimeoutError after the deadline."""
    end = time.perf_counter() + deadline_s
    frame = struct.pack(">i", len(_METADATA_V0)) + _METADATA_V0
    while time.perf_counter() < end:
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as connection:
                connection.settimeout(5)
                connection.sendall(frame)
                if len(connection.recv(4)) == 4:
                    return
        except OSError:
            time.sleep(0.002)
    raise TimeoutError(f"no Metadata answer on port {port} within {deadline_s:g} s")
