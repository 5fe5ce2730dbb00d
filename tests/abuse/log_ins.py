"""Honest clients that log in while the others abuse, in a process of their own: each mechanism, over TLS and without.

`python -m tests.abuse.log_ins LOGIN_PORT BOTH_PORT`. For each line on its standard input it prints as JSON how long the
log-ins since the last one took, each with its connection, and why those were refused that were.
"""

from __future__ import annotations

import json
import selectors
import ssl
import sys
import time

from edge_broker.protocol.api import METADATA
from edge_broker.protocol.messages.metadata import MetadataRequest
from tests.abuse.strangers import trusting
from tests.support.login_client import LoginClient
from tests.support.secured_edge import MECHANISMS
from tests.support.secured_kafka import PASSWORD, USER

ELSEWHERE = "127.0.0.2"  # than where the abusers come from
REST_S = 0.1


def log_in(port: int, context: ssl.SSLContext | None, mechanism: str) -> None:
    """Come, log in, ask for something, and go."""
    with LoginClient(port, context, ELSEWHERE) as client:
        client.log_in(mechanism, USER, PASSWORD)
        client.ask(METADATA, 4, MetadataRequest(topics=None))


def main() -> None:
    """Log in over and over until the input ends."""
    ports, context = (int(sys.argv[1]), int(sys.argv[2])), trusting()
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin, selectors.EVENT_READ)
    seconds: list[float] = []
    refused: list[str] = []
    print("ready", flush=True)
    while True:
        for mechanism in MECHANISMS.split(","):
            for port, secured in zip(ports, (None, context), strict=True):
                begin = time.perf_counter()
                try:
                    log_in(port, secured, mechanism)
                    seconds.append(time.perf_counter() - begin)
                except OSError as error:
                    refused.append(f"{mechanism}{' by TLS' if secured else ''}: {error!r}")
                if selector.select(REST_S):
                    if not sys.stdin.readline():
                        return
                    print(json.dumps({"seconds": seconds, "refused": refused}), flush=True)
                    seconds, refused = [], []


if __name__ == "__main__":
    main()
