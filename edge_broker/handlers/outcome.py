"""What a handler may answer with.

| outcome | meaning | who goes on |
|---|---|---|
| Reply | the response is ready | sent in the connection's order |
| Wait | nothing to say until one of these logs moves | `ready` at each move, `at_deadline` once |
| Park | a group will answer this token | whoever completes the group |
| Do | this work may block | `work` in a worker thread, then `then` with its result on the loop |

Lives here: these four values. Must never come in: how they are resolved (network/dispatcher.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from edge_broker.protocol.message import Message
from edge_broker.storage.log import PartitionLog

WorkerName: TypeAlias = Literal["disk", "files", "reader", "writer"]


class Reply:
    """Send `response` now; None sends nothing (Produce with acks=0)."""

    __slots__ = ("response",)

    def __init__(self, response: Message | None) -> None:
        self.response = response


class Wait:
    """Ask `ready` again whenever one of `logs` moves.

    `syncs`: unsynced data of `logs` is synced at once, as somebody waits for it. `holds`: the request keeps a copy of
    its records, so that its connection may send no more meanwhile.
    """

    __slots__ = ("at_deadline", "holds", "logs", "ready", "syncs", "wait_ms")

    def __init__(
        self,
        logs: Sequence[PartitionLog],
        ready: Callable[[], Outcome | None],
        wait_ms: int,
        at_deadline: Callable[[], Outcome],
        *,
        syncs: bool = True,
        holds: bool = False,
    ) -> None:
        self.logs = logs
        self.syncs = syncs
        self.holds = holds
        self.ready = ready
        self.wait_ms = wait_ms
        self.at_deadline = at_deadline


class Park:
    """The answer comes later under the request's own token."""

    __slots__ = ()


class Do:
    """Run `work` in a worker thread; `then` gets its result on the loop.

    | worker | what it does |
    |---|---|
    | disk | syncs and rolls, which answers wait for; nothing else |
    | writer | appends that would block |
    | reader | cold reads |
    | files | whatever else changes files, however long it takes |

    Each runs its jobs one after another. A StorageFault or Refusal that `work` raises goes to `failed`.
    """

    __slots__ = ("failed", "then", "work", "worker")

    def __init__(
        self,
        work: Callable[[], Any],
        then: Callable[[Any], Outcome],
        failed: Callable[[Exception], Outcome],
        worker: WorkerName = "files",
    ) -> None:
        self.work = work
        self.then = then
        self.failed = failed
        self.worker = worker


Outcome: TypeAlias = Reply | Wait | Park | Do
