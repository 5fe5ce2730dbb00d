"""Reads both brokers whole, as any Kafka consumer would, and draws up the account of every topic and Spark's results.

Clients and files are read here; the arithmetic is in accounting.py and spark_results.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.e2e import read_back, spark_results
from tests.e2e.accounting import Evidence, Published, TopicAccount, account
from tests.e2e.observe import JournalReader, Metrics
from tests.e2e.parts import MIRRORED, Road
from tests.e2e.read_back import Readable, Record, Tail

GATEWAY_TOPICS = ("readings", "logs", "board_health")


@dataclass(frozen=True)
class Findings:
    """What the demo ends with."""

    accounts: Sequence[TopicAccount]
    windows: Mapping[str, Mapping[str, Any]]
    alarms: Sequence[Mapping[str, Any]]
    agreement: spark_results.WindowAgreement
    finished_windows: int
    ledger: Sequence[Mapping[str, Any]]


def published_readings(journal: JournalReader) -> list[Published]:
    """What the fleet sent, in order per device, and whether mosquitto acked it."""
    acked = {f"{words[1]}|{words[2]}" for words in journal.lines if words[0] == "A"}
    sent = [words for words in journal.lines if words[0] == "P"]
    return [Published(w[1], f"{w[1]}|{w[2]}", int(w[3]), f"{w[1]}|{w[2]}" in acked) for w in sent]


def published_lines(journal: JournalReader) -> list[Published]:
    """What the log writer wrote, in order; nobody answers it."""
    return [Published("log", f"line|{words[1]}", int(words[2]), None) for words in journal.lines if words[0] == "W"]


def latencies_ms(readable: Sequence[Readable], published: Sequence[Published] | None) -> list[float]:
    """From the device's sending (or the record's own timestamp where no journal names it) to readable at central."""
    if published is None:
        return [float(record.seen_ms - record.timestamp_ms) for record in readable]
    sent_ms = {record.identity: record.produced_ms for record in published}
    return [float(record.seen_ms - sent_ms[record.identity]) for record in readable if record.identity in sent_ms]


def findings(road: Road, tail: Tail, fleet: JournalReader, log: JournalReader, gateway: Metrics | None) -> Findings:
    """Read everything back; raises ReadBackError when a broker cannot be read to its end."""
    journals = {"readings": published_readings(fleet), "logs": published_lines(log)}
    positions = read_back.committed(road.edge.bootstrap, road.mirror_group, MIRRORED)
    edge = {topic: read_back.read_whole(road.edge.bootstrap, topic) for topic in MIRRORED}
    accounts = []
    for topic in MIRRORED:
        published = journals.get(topic)
        central = read_back.read_whole(road.central_bootstrap, road.at_central(topic))
        evidence = Evidence(
            topic=topic,
            edge=read_back.stored(topic, edge[topic]),
            central=read_back.stored(topic, central),
            mirror_positions=positions.get(topic, {}),
            published=published,
            acked_by_broker=acked_by_broker(gateway, topic),
            latencies_ms=latencies_ms(tail.records[topic], published),
        )
        accounts.append(account(evidence))
    windows = spark_results.latest((record.key.decode(), value(record)) for record in edge["readings_windows"])
    return Findings(
        accounts=accounts,
        windows=windows,
        alarms=[value(record) for record in edge["readings_alarms"]],
        agreement=spark_results.windows_agree([value(record) for record in edge["readings"]], windows),
        finished_windows=finished_windows(road),
        ledger=[value(record) for record in edge["__edge_ledger"]],
    )


def finished_windows(road: Road) -> int:
    """The rows in Spark's Parquet files, those of batches that are whole."""
    done = spark_results.complete_files(road.finished_windows)
    return sum(spark_results.parquet_rows(path) for path in done)


def acked_by_broker(gateway: Metrics | None, topic: str) -> int | None:
    """What the gateway counted as acknowledged by the broker; None for topics that others write."""
    if gateway is None or topic not in GATEWAY_TOPICS:
        return None
    return round(gateway.total("edge_gateway_records_total", topic=topic))


def value(record: Record) -> Any:
    """The record's JSON."""
    return json.loads(record.value)
