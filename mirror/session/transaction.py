"""PURE. Models one transaction of the mirror: its states, how much it carries, and the outcome of one that broke off.

| state | event | next | then |
|---|---|---|---|
| OPEN | full, due, idle (all records are sent) | CLOSING | no more batches are taken; it waits for responses |
| CLOSING | answered | STORING | position and map of each partition are written, in the transaction |
| STORING | stored | COMMITTING | EndTxn (commit), repeated until it gets a response |
| COMMITTING | committed | COMMITTED | the records that it carried are safe |
| any but COMMITTED | broke | BROKEN | the coordinator describes it, and `classify` decides |

Any unknown outcome breaks it: a lost response, a refusal that leaves open whether the batch arrived, a refused commit.
Then nothing is guessed: the next epoch ends it, and the state topic, read as committed, shows how far it had come. A
refusal by which nothing has arrived breaks nothing: that partition continues in the next transaction.

| part of the timeout | bound |
|---|---|
| batches are taken | ROUND_TRIPS round trips, TAKES_S_MIN at least and 1/SHARE of the timeout at most |
| their bytes | what the link carries in that time, FIRST_BYTES before it was measured; one batch whatever its size |
| the source batches for them | the memory; on a fast link a third, so that the next are read while one ends |
| their responses, state and commit | not bounded: only a link that stands still takes long |

Does not contain: clients, clocks, chance: time is an argument, in seconds.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal, NamedTuple

from mirror.link.link_model import FIRST_BYTES

ROUND_TRIPS = 20  # four more are lost to begin and end: a sixth
SHARE = 12
TAKES_S_MIN = 0.25
HELD_SHARE = 3

State = Enum("State", "OPEN CLOSING STORING COMMITTING COMMITTED BROKEN")
Event = Enum("Event", "FULL DUE IDLE ANSWERED STORED COMMITTED BROKE")

NEXT: dict[tuple[State, Event], State] = {
    (State.OPEN, Event.FULL): State.CLOSING,
    (State.OPEN, Event.DUE): State.CLOSING,
    (State.OPEN, Event.IDLE): State.CLOSING,
    (State.CLOSING, Event.ANSWERED): State.STORING,
    (State.STORING, Event.STORED): State.COMMITTING,
    (State.COMMITTING, Event.COMMITTED): State.COMMITTED,
    **{(state, Event.BROKE): State.BROKEN for state in State if state != State.COMMITTED},
}


class Transaction:
    """A transaction begun at `began_at`: its timeout runs at the coordinator since then, or a little later."""

    def __init__(self, began_at: float, takes_s: float, bytes_max: int, held_max: int) -> None:
        """`held_max` counts bytes of source batches: memory held until the commit is missing for the next reads."""
        self.state = State.OPEN
        self.began_at = began_at
        self.due_at = began_at + takes_s
        self._bytes_left, self._held_left = bytes_max, held_max
        self.why = ""

    def on(self, event: Event, why: str = "") -> None:
        """Enter the next state by the table; `why` is a sentence of what broke it, of which the first counts."""
        if event is Event.BROKE and self.state is State.BROKEN:
            return
        self.state = NEXT[self.state, event]
        self.why = why

    def stands(self, *states: State) -> bool:
        """Return whether it is in one of these states."""
        return self.state in states

    @property
    def has_room(self) -> bool:
        """Whether it may take more batches."""
        return self.state is State.OPEN and self._bytes_left > 0 and self._held_left > 0

    def take(self, size: int, held: int) -> None:
        """Note a batch of `size` bytes, made of `held` bytes of source batches; it may exceed the bounds."""
        self._bytes_left -= size
        self._held_left -= held
        if not self.has_room:
            self.on(Event.FULL)


def takes_s(round_trip_s: float | None, timeout_s: float) -> float:
    """Return for how many seconds batches are taken."""
    return min(max(TAKES_S_MIN, ROUND_TRIPS * (round_trip_s or 0.0)), timeout_s / SHARE)


def bytes_max(rate: float | None, seconds: float) -> int:
    """Return how many bytes are taken."""
    return FIRST_BYTES if rate is None else max(1, int(rate * seconds))


def held_max(memory_bytes: int, *, is_fast: bool) -> int:
    """Return how many bytes of source batches are taken: on a slow link, sending never waits for reading."""
    return memory_bytes // HELD_SHARE if is_fast else memory_bytes


class Producer(NamedTuple):
    """The producer of a transaction; `state` is Kafka's name for it, if the coordinator described it."""

    id: int
    epoch: int
    state: str = ""


Verdict = Literal["ours", "timed_out", "another"]
_ENDS_BY_TIME = {"PrepareEpochFence", "PrepareAbort", "CompleteAbort"}


class BrokenTransaction(NamedTuple):
    """A transaction that broke off: its producer, its age, and whether a request was refused as of an old epoch."""

    own_producer: Producer
    age_s: float
    was_fenced: bool


def classify(broken: BrokenTransaction, told: Producer | None, written: Producer | None, timeout_s: float) -> Verdict:
    """Return the outcome of a transaction that broke off.

    | the coordinator returns | it is older than its timeout | the state topic has a newer producer | verdict |
    |---|---|---|---|
    | its epoch | | | `ours`: open, or ended as requested: the next epoch ends it, and the state topic tells |
    | its epoch + 1, aborted | yes | no | `timed_out` |
    | its epoch + 1, aborted | no | | `another` |
    | any other | | | `another` |
    | nothing: it may not be described | yes | no | `timed_out`: no other mirror has shown itself |
    | nothing | no | no | `another` if a request was refused as of an old epoch, else `ours` |
    | nothing | | yes | `another` |

    A coordinator that aborts after the timeout raises the epoch by one. So does a second mirror's InitProducerId, which
    also aborts an open transaction, but at once: before the timeout it can only be another mirror.
    """
    ours, is_old = broken.own_producer, broken.age_s >= timeout_s
    if _is_newer(written, ours):
        return "another"
    if told is None:
        return "timed_out" if is_old else "another" if broken.was_fenced else "ours"
    if told[:2] == ours[:2]:
        return "ours"
    by_time = told.id == ours.id and told.epoch == ours.epoch + 1 and told.state in _ENDS_BY_TIME
    return "timed_out" if is_old and by_time else "another"


def _is_newer(one: Producer | None, than: Producer) -> bool:
    return one is not None and (one.id > than.id or (one.id == than.id and one.epoch > than.epoch))
