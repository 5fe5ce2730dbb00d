"""The outcomes that a handler may return.

| outcome | meaning | who goes on |
|---|---|---|
| Reply | the response is ready | sent in the connection's order |
| Wait | nothing to say until one of these logs moves | `ready` at each move, `at_deadline` once |
| Park | a group will answer this token | the request that completes the group |
| RunInWorker | this work may block | `work` in a worker thread, then `then` with its result on the loop |
| AfterName | another request is making or erasing a topic of this name | `retry` once the name is free |
| Steps | this may be long | the event loop, some steps at a time; others come between |

Contains: the six values. Does not contain: how they are resolved (network/dispatch/dispatcher.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import wraps
from typing import Any, Literal, TypeAlias, TypeVar

from edge_broker.protocol.message import Message
from edge_broker.storage.log.partition_log import PartitionLog

WorkerName: TypeAlias = Literal["disk", "files", "reader", "writer", "checker", "logins"]


class Reply:
    """Send `response` now; None sends nothing (Produce with acks=0).

    `size` is what is known of its bytes; if there is no memory for them `retry` is called later, and the response is
    released until then. `closes`: the connection is closed after it.
    """

    __slots__ = ("closes", "response", "retry", "size")

    def __init__(
        self,
        response: Message | None,
        *,
        size: int = 0,
        retry: Callable[[], Outcome] | None = None,
        closes: bool = False,
    ) -> None:
        self.response = response
        self.closes = closes
        self.size = size
        self.retry = retry


class Wait:
    """Ask `ready` again whenever one of `logs` moves.

    `syncs`: unsynced data of `logs` is synced at once, as a client waits for it. `holds`: the request keeps a copy of
    its records, `kept_bytes` of them, so that its connection may send no more meanwhile. `patient`: nothing is lost
    when its deadline comes early, as it does when memory is short.
    """

    __slots__ = ("at_deadline", "holds", "kept_bytes", "logs", "patient", "ready", "syncs", "wait_ms")

    def __init__(
        self,
        logs: Sequence[PartitionLog],
        ready: Callable[[], Outcome | None],
        wait_ms: int,
        at_deadline: Callable[[], Outcome],
        *,
        syncs: bool = True,
        holds: bool = False,
        kept_bytes: int = 0,
        patient: bool = False,
    ) -> None:
        self.logs = logs
        self.patient = patient
        self.syncs = syncs
        self.holds = holds
        self.kept_bytes = kept_bytes
        self.ready = ready
        self.wait_ms = wait_ms
        self.at_deadline = at_deadline


class Park:
    """The answer comes later under the request's own token; `keeps`: what was asked is needed for it until then."""

    __slots__ = ("keeps",)

    def __init__(self, *, keeps: bool = False) -> None:
        self.keeps = keeps


class RunInWorker:
    """Run `work` in a worker thread; `then` gets its result on the loop.

    | worker | what it does |
    |---|---|
    | disk | syncs and rolls, which answers wait for; nothing else |
    | writer | appends that would block |
    | reader | cold reads |
    | files | whatever else changes files, however long it takes |
    | checker | the records of large batches, a piece at a time (network/dispatch/record_check_jobs.py) |
    | logins | passwords, which take milliseconds each by intent |

    Each runs its jobs one after another. A StorageFault or Refusal that `work` raises goes to `failed`. `over` is
    called on the loop before either of them, and also where `work` ends with a bug: it gives back what was taken.
    Work without a waiter is `background`: it runs in slices, so that other work waits for one slice only.
    """

    __slots__ = ("background", "failed", "over", "then", "work", "worker")

    def __init__(
        self,
        work: Callable[[], Any],
        then: Callable[[Any], Outcome],
        failed: Callable[[Exception], Outcome],
        worker: WorkerName = "files",
        over: Callable[[], None] | None = None,
        *,
        background: bool = False,
    ) -> None:
        self.work = work
        self.then = then
        self.failed = failed
        self.worker = worker
        self.over = over
        self.background = background


class AfterName:
    """Wait until the topic name `name` is free, then `retry`: it may find the name taken once more.

    First come, first served. Nothing runs while the name stays taken.
    """

    __slots__ = ("name", "retry")

    def __init__(self, name: str, retry: Callable[[], Outcome]) -> None:
        self.name = name
        self.retry = retry


class Steps:
    """Take `steps` one by one; it yields the parts of the answer as they are made, or None, and returns what is next.

    A checked condition may have changed in the next step. One step is a millisecond of work at most. `retry`
    starts again: it is called if the response finds no memory, and is None if something was changed already.
    """

    __slots__ = ("retry", "steps")

    def __init__(self, steps: Taken, retry: Callable[[], Outcome] | None = None) -> None:
        self.steps = steps
        self.retry = retry


Outcome: TypeAlias = Reply | Wait | Park | RunInWorker | AfterName | Steps
Taken: TypeAlias = Generator[Any, None, "Outcome"]
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
T = TypeVar("T")


def run_steps(steps: Generator[Any, None, T]) -> T:
    """Run all steps at once, and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def reads_in_steps(handler: Callable[[A, B, C], Taken]) -> Callable[[A, B, C], Steps]:
    """Make a handler of a generator that only reads, and so can start again."""

    @wraps(handler)
    def begin(broker: A, context: B, request: C) -> Steps:
        return Steps(handler(broker, context, request), lambda: begin(broker, context, request))

    return begin


def changes_in_steps(handler: Callable[[A, B, C], Taken]) -> Callable[[A, B, C], Steps]:
    """Make a handler of a generator that changes something on its way."""

    @wraps(handler)
    def begin(broker: A, context: B, request: C) -> Steps:
        return Steps(handler(broker, context, request))

    return begin
