"""A broker that answers what a test tells it to, over a real socket: what no good one sends must be borne, too."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from edge_broker.protocol.api import API_VERSIONS, read_request_header
from edge_broker.protocol.codec import decode, encode
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from edge_broker.wire_client import apis

APIS = {asked.api.key: asked.api for asked in (apis.API_VERSIONS, *apis.ALL)}
Answer = Callable[[Any], Message | bytes | None]


class ScriptedBroker:
    """Answers each API by a function of the request: a message, raw bytes for a whole frame, None for silence."""

    def __init__(self, answers: dict[int, Answer], spoil: Callable[[bytes], bytes] = bytes) -> None:
        """Serve what `answers` has; `spoil` changes the bytes of every message but ApiVersions'."""
        self.answers = answers
        self.spoil = spoil
        self.asked: list[Message] = []
        broker = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with suppress(ConnectionError):  # a client that was told nonsense is gone
                    while size := int.from_bytes(self.rfile.read(4), "big"):
                        broker._answer(self, memoryview(self.rfile.read(size)))

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.port: int = self._server.server_address[1]
        self.bootstrap = f"127.0.0.1:{self.port}"

    def __enter__(self) -> ScriptedBroker:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, handler: socketserver.StreamRequestHandler, frame: memoryview) -> None:
        key, version, correlation_id, _, position = read_request_header(frame, APIS)
        api = APIS[key]
        request = decode(api.request, version, frame, position)
        self.asked.append(request)
        answer = self._versions() if key == API_VERSIONS and key not in self.answers else self.answers[key](request)
        if isinstance(answer, Message):
            flexible = version >= api.flexible_from and key != API_VERSIONS
            content = b"".join(encode(answer, version))
            content = content if key == API_VERSIONS else self.spoil(content)
            body = correlation_id.to_bytes(4, "big") + (b"\0" if flexible else b"") + content
            answer = len(body).to_bytes(4, "big") + body
        if answer is not None:
            handler.wfile.write(answer)

    def _versions(self) -> Message:
        served = [
            ApiVersion(api_key=key, min_version=APIS[key].min_version, max_version=APIS[key].max_version)
            for key in self.answers
        ]
        return ApiVersionsResponse(api_keys=[*served, ApiVersion(api_key=API_VERSIONS)])
