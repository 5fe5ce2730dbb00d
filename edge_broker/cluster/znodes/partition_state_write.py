"""One change of one state znode, from the request until it is certain what the znode says.

| stage | event | next |
|---|---|---|
| idle | begin | sent |
| sent | Done | idle: what was written holds |
| sent | BAD_VERSION | syncing: another broker was first |
| sent, syncing, reading, checking | CONNECTION_LOSS | unknown |
| unknown | connected, at the next look | syncing |
| syncing | Done | reading |
| syncing | refused, as of a session that moves to another server | unknown: what is read then may be old |
| reading | Node | checking: whether the topic was still the same |
| checking | Stat of the topic's id | idle: what was read holds |
| reading, checking | refused, or what is no state | unknown |
| any | NO_NODE | idle: the partition is gone |
| any | SESSION_EXPIRED | idle: nothing is certain, and no broker may act by it |

Where ZooKeeper refuses a change and the same state holds as before, `refusals` counts: the caller requests it
again later.

A change is one Multi with a check of the topic's id: versions start again with the next topic of the name, whose state
a long write would replace. For the same reason the id is checked after each read.

Until it is idle again `pending` may or may not hold: the maximal in-sync set counts it. A read alone does not end an
unknown outcome, since a server may not have the change yet.

Does not contain: what is written and why.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from edge_broker.cluster.state.cluster_state import PartitionId, PartitionState
from edge_broker.cluster.znodes.znode_codec import decode_state, encode_state, state_path, topic_id_path
from edge_broker.cluster.znodes.zookeeper import (
    ANY_VERSION,
    Answer,
    Check,
    Done,
    Exists,
    Failure,
    Get,
    Multi,
    MultiFailed,
    Node,
    Request,
    SetData,
    Stat,
    Sync,
)

AskThen = Callable[[Request, Callable[[Answer], None]], None]
Settled = Callable[[PartitionState | None, int], None]


class Stage(Enum):
    """As above."""

    IDLE = auto()
    SENT = auto()
    UNKNOWN = auto()
    SYNCING = auto()
    READING = auto()
    CHECKING = auto()


class StateWrite:
    """The changes of one partition's state, one at a time.

    `settled(state, version)` is called once it is certain what holds; (None, -1): the partition is gone. After an
    expired session it is not called.
    """

    def __init__(self, partition: PartitionId, topic_id: str, ask: AskThen, settled: Settled) -> None:
        self._partition, self._topic_id, self._ask, self._settled = partition, topic_id, ask, settled
        self._path = state_path(partition)
        self.refusals = 0  # in a row
        self._refused_at = -1  # the version of the state that was not replaced, for another reason than its version
        self._turn = 0  # answers to what was asked in another turn are not for this one
        self.stage = Stage.IDLE
        self.pending: PartitionState | None = None

    @property
    def busy(self) -> bool:
        """Whether a change is in progress, or its outcome unknown."""
        return self.stage is not Stage.IDLE

    def begin(self, state: PartitionState, version: int) -> None:
        """Replace what has this version."""
        assert not self.busy
        self.stage, self.pending, self._refused_at = Stage.SENT, state, -1
        self._next(self._change(state, version), lambda answer: self._write_answered(answer, version))

    def _change(self, state: PartitionState, version: int) -> Multi:
        there = Check(topic_id_path(self._partition.topic, self._topic_id), ANY_VERSION)
        return Multi((there, SetData(self._path, encode_state(state), version)))

    def session_connected(self) -> None:
        """The session is served again."""
        if self.stage is Stage.UNKNOWN:
            self.resolve()

    def stop(self) -> None:
        """The session has ended, or the partition: a write in progress is not reported."""
        self.stage, self.pending = Stage.IDLE, None
        self._turn += 1

    def _next(self, request: Request, then: Callable[[Answer], None]) -> None:
        self._turn += 1
        turn = self._turn

        def answer_received(answer: Answer) -> None:
            if turn != self._turn:
                return
            answer = answer.failure if isinstance(answer, MultiFailed) else answer
            if answer is Failure.CONNECTION_LOSS:
                self.stage = Stage.UNKNOWN
            elif answer is Failure.SESSION_EXPIRED:
                self.stop()
            elif answer is Failure.NO_NODE:
                self._end(None, -1)
            else:
                then(answer)

        self._ask(request, answer_received)

    def _write_answered(self, answer: Answer, version: int) -> None:
        if answer == Done():
            self._end(self.pending, version + 1)
            return
        if answer is not Failure.BAD_VERSION:
            self._refused_at = version
        self.resolve()

    def resolve(self) -> None:
        """Find out what holds."""
        self.stage = Stage.SYNCING
        self._next(Sync(self._path), self._sync_answered)

    def _sync_answered(self, answer: Answer) -> None:
        if answer == Done():
            self._read()
        else:
            self.stage = Stage.UNKNOWN

    def _read(self) -> None:
        self.stage = Stage.READING
        self._next(Get(self._path), self._have_read)

    def _have_read(self, answer: Answer) -> None:
        self.stage = Stage.UNKNOWN  # unless it is a state
        if isinstance(answer, Node):
            state = decode_state(self._partition, answer)
            self.stage = Stage.CHECKING
            there = Exists(topic_id_path(self._partition.topic, self._topic_id))
            self._next(there, lambda found: self._have_checked(found, state, answer.stat.version))

    def _have_checked(self, found: Answer, state: PartitionState, version: int) -> None:
        if isinstance(found, Stat):
            self._end(state, version)
        else:
            self.stage = Stage.UNKNOWN

    def _end(self, state: PartitionState | None, version: int) -> None:
        self.stop()
        self.refusals = self.refusals + 1 if version >= 0 and version == self._refused_at else 0
        self._settled(state, version)
