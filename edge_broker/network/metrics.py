"""The broker's figures in Prometheus' text form, gathered when they are asked for.

Lives here: names, types and help of every metric. Must never come in: counters that cost something on the hot path.
"""

from __future__ import annotations

import resource
from collections.abc import Iterable

from edge_broker.handlers.broker import Broker
from edge_broker.network.dispatcher import Dispatcher
from edge_broker.network.server import Server

Sample = tuple[dict[str, str], float]


def metrics_text(broker: Broker, dispatcher: Dispatcher, server: Server, started_ms: int) -> str:
    """Every metric, sampled now."""
    store = broker.store
    logs = [log for topic in store.topics.values() for log in topic.partitions]
    labelled = [({"topic": log.topic, "partition": str(log.partition)}, log) for log in logs]
    usage = resource.getrusage(resource.RUSAGE_SELF)
    families: list[tuple[str, str, str, list[Sample]]] = [
        (
            "log_end_offset",
            "gauge",
            "Next offset of a partition, synced or not.",
            [(at, log.log_end_offset) for at, log in labelled],
        ),
        (
            "high_watermark",
            "gauge",
            "End of what is synced and shown.",
            [(at, log.high_watermark) for at, log in labelled],
        ),
        ("log_start_offset", "gauge", "First offset still held.", [(at, log.log_start_offset) for at, log in labelled]),
        (
            "partition_offline",
            "gauge",
            "1 for a partition whose storage failed.",
            [(at, int(log.fault is not None)) for at, log in labelled],
        ),
        ("bytes_in_total", "counter", "Bytes of requests received.", [({}, server.bytes_in)]),
        ("bytes_out_total", "counter", "Bytes of responses handed to connections.", [({}, server.bytes_out)]),
        (
            "requests_total",
            "counter",
            "Requests by API.",
            [({"api": name}, n) for name, n in dispatcher.requests.items()],
        ),
        ("requests_waiting", "gauge", "Requests that wait for a log or a group.", [({}, dispatcher.unanswered)]),
        ("protocol_violations_total", "counter", "Connections closed for what they sent.", [({}, server.violations)]),
        ("handler_failures_total", "counter", "Requests lost to a bug of the broker.", [({}, dispatcher.failures)]),
        ("connections", "gauge", "Open client connections.", [({}, len(server.connections))]),
        ("sync_rounds_total", "counter", "Rounds of fdatasync.", [({}, dispatcher.syncer.rounds)]),
        ("sync_seconds_total", "counter", "Time spent in fdatasync.", [({}, dispatcher.syncer.seconds)]),
        ("leader_epoch", "gauge", "Leader epoch; rises at every unclean start.", [({}, store.leader_epoch)]),
        ("started_unclean", "gauge", "1 when the last stop was not clean.", [({}, int(store.started_unclean))]),
        ("start_time_seconds", "gauge", "When the broker started, by the wall clock.", [({}, started_ms / 1000)]),
        ("cpu_seconds_total", "counter", "CPU time, user and system.", [({}, usage.ru_utime + usage.ru_stime)]),
    ]
    return "".join(family("edge_broker_" + name, kind, text, samples) for name, kind, text, samples in families)


def family(name: str, kind: str, text: str, samples: Iterable[tuple[dict[str, str], float]]) -> str:
    """One metric with its samples in the text exposition format."""
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{_labels(labels)} {value}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return "{" + pairs + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def health_problem(broker: Broker) -> str | None:
    """One line about what is wrong, None when nothing is."""
    offline = [log for topic in broker.store.topics.values() for log in topic.partitions if log.fault is not None]
    if offline:
        return f"{len(offline)} partitions offline, first {offline[0].topic}-{offline[0].partition}: {offline[0].fault}"
    if broker.groups_fault is not None:
        return broker.groups_fault
    if not broker.groups_loaded:
        return "committed offsets are still being loaded"
    return None
