"""What the client makes of a link that drops everything: run in a network namespace of its own.

    unshare --map-root-user --net -- python -m tests.support.dead_link LOOP

Packets to PEER are dropped by a rule of the namespace, and nobody is told. Prints what each case came to.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

from drupelet.kafka.security import Security
from edge_broker.protocol.messages.fetch import FetchRequest
from edge_broker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafka_wire import apis
from kafka_wire.connection.connection import Connection
from kafka_wire.connection.errors import BrokerRefused, ConnectionLost
from tests.support.scripted_wire import APIS, Peer, playing, until
from tests.support.waiting import CALL_S

PEER = "127.0.0.2"
SILENT_S = 2.0
INIT = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)


def ip(*words: str) -> None:
    """Tell the namespace."""
    subprocess.run(["ip", *words], check=True)


def cut() -> None:
    """Drop what goes to the peer."""
    ip("rule", "add", "to", PEER, "blackhole", "pref", "10")


def mend() -> None:
    """Let it through again."""
    ip("rule", "del", "to", PEER, "blackhole", "pref", "10")


async def play(peer: Peer) -> None:
    """Answer all but fetches."""
    await peer.begin()
    while True:
        request = await peer.request()
        if APIS[request.key].name == "InitProducerId":
            peer.answer(request, InitProducerIdResponse(producer_id=1))


async def opened(port: int) -> Connection:
    """A connection over the link."""
    connection = await Connection.open(Security(), PEER, port, "link", timeout_s=CALL_S, silent_s_max=SILENT_S)
    await connection.ask(apis.INIT_PRODUCER_ID, INIT, timeout_s=CALL_S)
    return connection


async def lost(connection: Connection, *, write: bool) -> dict[str, Any]:
    """Cut the link while an answer is waited for, and bytes are on their way or none: what is told, after how long."""
    under_way = connection.send(apis.FETCH, FetchRequest(), timeout_s=CALL_S)
    await until(lambda: not connection.unacknowledged_bytes, "nothing is on its way")
    cut()
    try:
        if write:
            connection.send(apis.INIT_PRODUCER_ID, INIT, timeout_s=CALL_S)
        began = asyncio.get_running_loop().time()
        try:
            await under_way
        except ConnectionLost as error:
            after_s = asyncio.get_running_loop().time() - began
            return {"said": str(error), "refused": isinstance(error, BrokerRefused), "after_s": after_s}
        raise AssertionError("nothing was lost")
    finally:
        mend()


async def main() -> None:
    """Both cases."""
    ip("link", "set", "lo", "up")
    ip("rule", "add", "pref", "100", "lookup", "local")  # the kernel's own rule for local addresses goes before all
    ip("rule", "del", "pref", "0")
    async with playing(play, PEER) as port:
        found = {
            "waiting": await lost(await opened(port), write=False),
            "writing": await lost(await opened(port), write=True),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1] == "uvloop":
        import uvloop

        uvloop.run(main())
    else:
        asyncio.run(main())
