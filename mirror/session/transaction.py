"""PURE. One transaction of the mirror: its states, how much it carries, and what has become of one that broke off.

| state | event | next | what is done then |
|---|---|---|---|
| OPEN | full, due, idle (all there was is sent) | CLOSING | nothing more is taken; answers are waited for |
| CLOSING | answered | STORING | position and map of each partition are written, in the transaction |
| STORING | stored | COMMITTING | EndTxn (commit), again until it is answered |
| COMMITTING | committed | COMMITTED | what it carried is safe |
| any but COMMITTED | broke | BROKEN | the coordinator is asked how it stands, and `judged` |

Whatever is unsure breaks it: an answer that is lost, a refusal that does not say that nothing has arrived, a commit
that is refused. Nothing is guessed then: the next epoch ends it, and the state topic, read as committed, tells how far
it had come. A refusal by which nothing has arrived breaks nothing: that partition goes on in the next transaction.

How long one takes, of its timeout:

| part | bound |
|---|---|
| batches are taken | ROUND_TRIPS round trips, TAKES_S_MIN at least and 1/SHARE of the timeout at most |
| their bytes | what the link carries in that time, FIRST_BYTES before it was measured; one batch whatever its size |
| what was read of the source for them | the memory; on a fast link a third, so that the next is read while one ends |
| their answers, state and commit | not bounded: only a link that stands still takes long |

No client, no clock and no chance may come in here: time is an argument, in seconds.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal, NamedTuple

from mirror.link.link_model import FIRST_BYTES

ROUND_TRIPS = 20  # four are lost to begin and end: a sixth
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
    """One that was begun at `began_at`: its timeout runs at the coordinator since then, or a little later."""

    def __init__(self, began_at: float, takes_s: float, bytes_max: int, held_max: int) -> None:
        """`held_max` is of the source's bytes: what is held until the commit is missed where the next is read."""
        self.state = State.OPEN
        self.began_at = began_at
        self.due_at = began_at + takes_s
        self._bytes_left, self._held_left = bytes_max, held_max
        self.why = ""

    def on(self, event: Event, why: str = "") -> None:
        """Go on by the table; `why` is a sentence of what broke it, of which the first counts."""
        if event is Event.BROKE and self.state is State.BROKEN:
            return
        self.state = NEXT[self.state, event]
        self.why = why

    def stands(self, *states: State) -> bool:
        """Whether it is in one of these."""
        return self.state in states

    @property
    def has_room(self) -> bool:
        """Whether more may be taken."""
        return self.state is State.OPEN and self._bytes_left > 0 and self._held_left > 0

    def take(self, size: int, held: int) -> None:
        """Note a batch of so many bytes, of so many of the source's; it may be larger than what was left."""
        self._bytes_left -= size
        self._held_left -= held
        if not self.has_room:
            self.on(Event.FULL)


def takes_s(round_trip_s: float | None, timeout_s: float) -> float:
    """For how long batches are taken."""
    return min(max(TAKES_S_MIN, ROUND_TRIPS * (round_trip_s or 0.0)), timeout_s / SHARE)


def bytes_max(rate: float | None, seconds: float) -> int:
    """How many bytes are taken."""
    return FIRST_BYTES if rate is None else max(1, int(rate * seconds))


def held_max(memory_bytes: int, *, is_fast: bool) -> int:
    """How many of the source's bytes are taken: on a slow link reading is never what is waited for."""
    return memory_bytes // HELD_SHARE if is_fast else memory_bytes


class Producer(NamedTuple):
    """Whose transaction it is; `state` by Kafka's name, of what the coordinator tells."""

    id: int
    epoch: int
    state: str = ""


Verdict = Literal["ours", "timed_out", "another"]
_ENDS_BY_TIME = {"PrepareEpochFence", "PrepareAbort", "CompleteAbort"}


class Broken(NamedTuple):
    """A transaction that broke off: whose, how old it is, and whether something was refused as of an old epoch."""

    ours: Producer
    age_s: float
    was_fenced: bool


def judged(broken: Broken, told: Producer | None, written: Producer | None, timeout_s: float) -> Verdict:
    """Tell what has become of it.

    | the coordinator tells | it is older than its timeout | the state topic is by a newer one | verdict |
    |---|---|---|---|
    | our epoch | | | `ours`: it is open, or ended as we said: the next epoch ends it, and the state tells |
    | our epoch + 1, aborted | yes | no | `timed_out` |
    | our epoch + 1, aborted | no | | `another` |
    | any other | | | `another` |
    | nothing: it may not be asked | yes | no | `timed_out`: nobody else has shown himself |
    | nothing | no | no | `another` if something was refused as of an old epoch, else `ours` |
    | nothing | | yes | `another` |

    A coordinator that aborts by time raises the epoch by one; so does a second mirror's InitProducerId, which aborts
    what is open, too, but at once: of one that is younger than its timeout it can be nobody else.
    """
    ours, is_old = broken.ours, broken.age_s >= timeout_s
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
