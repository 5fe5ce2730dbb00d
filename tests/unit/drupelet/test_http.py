"""The metrics port answers GET of two paths and nothing else; who sends too much or no HTTP gets no answer."""

from __future__ import annotations

import asyncio

import pytest

from drupelet.observe import http
from drupelet.observe.http import Pages, respond, serve_http

PAGES = Pages(lambda: b"metric 1\n", lambda: None)


def test_a_part_may_tell_how_it_stands_as_json() -> None:
    asked = b"GET /status HTTP/1.1\r\n\r\n"
    assert respond(asked, PAGES).startswith(b"HTTP/1.1 404")
    told = respond(asked, PAGES._replace(status=lambda: b"{}"))
    assert b"Content-Type: application/json\r\n" in told
    assert told.endswith(b"\r\n\r\n{}")
    assert respond(asked, PAGES._replace(status=lambda: b"{}", token=b"t")).startswith(b"HTTP/1.1 401")


def test_metrics() -> None:
    response = respond(b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n", PAGES)
    assert response.startswith(b"HTTP/1.1 200 OK")
    assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n" in response
    assert response.endswith(b"\r\n\r\nmetric 1\n")


@pytest.mark.parametrize("well", ["", None])
def test_health_says_what_is_wrong(well: str | None) -> None:
    head = b"GET /health HTTP/1.1\r\n\r\n"
    good = respond(head, PAGES._replace(problem=lambda: well, well=lambda: "ok, but no zstd"))
    assert good.startswith(b"HTTP/1.1 200")
    assert good.endswith(b"\r\n\r\nok, but no zstd\n")
    bad = respond(head, PAGES._replace(problem=lambda: "partition t-0 offline"))
    assert bad.startswith(b"HTTP/1.1 503")
    assert bad.endswith(b"\r\n\r\npartition t-0 offline\n")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [(b"GET / HTTP/1.1", b"404"), (b"POST /metrics HTTP/1.1", b"405"), (b"garbage", b"405"), (b"", b"405")],
)
def test_everything_else_is_refused(request_line: bytes, status: bytes) -> None:
    assert respond(request_line + b"\r\n\r\n", PAGES).split(b" ")[1] == status


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (b"", b"401"),
        (b"Authorization: Bearer t0ken\r\n", b"200"),
        (b"Host: a\r\nauthorization:bearer  t0ken \r\n", b"200"),
        (b"Authorization: Bearer t0ke\r\n", b"401"),
        (b"Authorization: Bearer t0ken2\r\n", b"401"),
        (b"Authorization: Basic t0ken\r\n", b"401"),
        (b"X-Authorization: Bearer t0ken\r\n", b"401"),
    ],
)
@pytest.mark.parametrize("path", [b"/metrics", b"/health", b"/"])
def test_a_token_is_asked_for_on_every_path(header: bytes, status: bytes, path: bytes) -> None:
    response = respond(b"GET " + path + b" HTTP/1.1\r\n" + header + b"\r\n", PAGES._replace(token=b"t0ken"))
    assert response.split(b" ")[1] == (b"404" if path == b"/" and status == b"200" else status)
    assert (b"WWW-Authenticate: Bearer\r\n" in response) == (status == b"401")
    assert (b"metric 1" in response) == (path == b"/metrics" and status == b"200")


def test_head_has_the_length_and_no_body() -> None:
    response = respond(b"HEAD /metrics HTTP/1.1\r\n\r\n", PAGES)
    assert b"Content-Length: 9\r\n" in response
    assert response.endswith(b"\r\n\r\n")


async def test_a_visitor_who_sends_no_request_gets_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_S_MAX", 0.2)
    server = await serve_http("127.0.0.1", 0, PAGES)
    port = server.sockets[0].getsockname()[1]

    async def ask(request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        try:
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()

    assert await ask(b"x" * 100_000) == b""
    assert await ask(b"GET /metrics HTTP/1.1\r\n") == b""
    assert (await ask(b"GET /health HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\nok\n")
    server.close()


async def test_connections_that_ask_for_nothing_keep_nobody_out() -> None:
    """Each would hold a descriptor of the part for five seconds."""
    server = await serve_http("127.0.0.1", 0, PAGES)
    port = server.sockets[0].getsockname()[1]
    idle = []
    try:
        for _ in range(http.CONNECTIONS_MAX + 1):
            idle.append(await asyncio.open_connection("127.0.0.1", port))
        assert await idle[0][0].read() == b"", "the oldest gives its place up"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /health HTTP/1.1\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
    finally:
        for _, writer in idle:
            writer.close()
        server.close()
        await server.wait_closed()
