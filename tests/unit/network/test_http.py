"""The metrics port answers GET of two paths and nothing else."""

from __future__ import annotations

import pytest

from edge_broker.network.http import respond
from edge_broker.network.log_lines import logfmt
from edge_broker.network.metrics import family


def answer(request: bytes, wrong: str | None = None) -> bytes:
    return respond(request, lambda: "metric 1\n", lambda: wrong)


def test_metrics() -> None:
    response = answer(b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n")
    assert response.startswith(b"HTTP/1.1 200 OK")
    assert response.endswith(b"\r\n\r\nmetric 1\n")


def test_health_says_what_is_wrong() -> None:
    assert answer(b"GET /health HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200")
    response = answer(b"GET /health HTTP/1.1\r\n\r\n", "partition t-0 offline")
    assert response.startswith(b"HTTP/1.1 503")
    assert b"t-0" in response


@pytest.mark.parametrize(
    ("request_line", "status"),
    [(b"GET / HTTP/1.1", b"404"), (b"POST /metrics HTTP/1.1", b"405"), (b"garbage", b"405"), (b"", b"405")],
)
def test_everything_else_is_refused(request_line: bytes, status: bytes) -> None:
    assert answer(request_line + b"\r\n\r\n").split(b" ")[1] == status


def test_head_has_no_body() -> None:
    assert answer(b"HEAD /metrics HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\n")


def test_labels_are_escaped() -> None:
    text = family("m", "gauge", "Help.", [({"topic": 'a"b\\c\nd'}, 1)])
    assert text == '# HELP m Help.\n# TYPE m gauge\nm{topic="a\\"b\\\\c\\nd"} 1\n'


@pytest.mark.parametrize(
    ("value", "shown"),
    [("plain", "plain"), ("two words", '"two words"'), ('a"b', '"a\\"b"'), ("", '""'), ("a\nb", '"a\\nb"')],
)
def test_logfmt(value: str, shown: str) -> None:
    assert logfmt(value) == shown
