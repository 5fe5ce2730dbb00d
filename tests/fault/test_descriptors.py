"""A broker that may have few files open: connections that ask for nothing keep nobody out, and a line says why."""

from __future__ import annotations

import socket
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Producer

from tests.support.processes import EdgeBroker
from tests.support.waiting import CALL_S

LIMIT = 1024
IDLE = 1100


def test_idle_connections_leave_descriptors_for_others_and_for_files(tmp_path: Path) -> None:
    broker = EdgeBroker(tmp_path)
    broker.command = ["prlimit", f"--nofile={LIMIT}:{LIMIT}", *broker.command]
    with broker, ExitStack() as idle:
        for _ in range(IDLE):
            idle.enter_context(socket.create_connection(("127.0.0.1", broker.port), CALL_S))
        with urllib.request.urlopen(broker.metrics_url.replace("metrics", "health"), timeout=CALL_S) as answer:
            health = answer.read().decode()
        assert health.startswith("ok, but the limit of 1024 open files has room for 320 connections")
        idle.close()
        producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
        errors: list[object] = []
        producer.produce("t", b"reading", on_delivery=lambda error, _: errors.append(error))
        producer.flush(CALL_S)
        assert errors == [None]
        log = broker.log_path.read_text()
    assert "connections_bounded" in log
    assert "connection_refused" in log
    assert "LimitNOFILE=" in log
