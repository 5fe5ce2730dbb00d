"""A change of topics: a piece of work for each in the worker, while their names are taken.

| step | where | what the others see |
|---|---|---|
| the request is checked again, the names are taken | loop, one step | a request that needs one of the names waits |
| each piece is done; one that fails costs no other | worker `files` | the old |
| the names are free, results and refusals are reported | loop | the new |

Does not contain: what a piece does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from edge_broker.broker.broker import Broker
from edge_broker.broker.outcomes import Outcome, RunInWorker
from edge_broker.errors import ErrorCode, Refusal, StorageFault

K = TypeVar("K")
R = TypeVar("R")


def change(
    broker: Broker,
    names: Collection[str],
    pieces: Mapping[K, Callable[[], R]],
    then: Callable[[dict[K, R | Refusal]], Outcome],
    over: Callable[[], None] = lambda: None,
) -> RunInWorker:
    """Do the pieces with these free names taken; `then` gets each result, or why there is none.

    A StorageFault is reported as KAFKA_STORAGE_ERROR. `over` is called however it ends, before `then`.
    """
    broker.topics.take_names(names)

    def work() -> dict[K, R | Refusal]:
        return {key: _try_piece(piece) for key, piece in pieces.items()}

    def change_failed(error: Exception) -> Outcome:
        return then({key: Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) for key in pieces})

    def free() -> None:
        over()
        broker.topics.free_names(names)

    return RunInWorker(work, then, change_failed, over=free)


def _try_piece(piece: Callable[[], R]) -> R | Refusal:
    try:
        return piece()
    except Refusal as refusal:
        return refusal.without_frames()
    except StorageFault as fault:
        return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(fault))
