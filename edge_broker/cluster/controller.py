"""The controller creates and deletes topics, and balances leaders: the broker with the ephemeral /controller.

| state | event | next |
|---|---|---|
| not asked | the session is served | asking: Create |
| asking | Stat | holding |
| asking | NODE_EXISTS | waiting: Get, watched, which tells who holds it |
| asking, waiting | CONNECTION_LOSS | not asked |
| waiting | it is gone | asking |
| waiting | it is not the brokers' | barred |
| barred | `claim_again`, which the member calls now and then | asking |
| any | the session ended | not asked |

It needs no epoch: making and deleting a topic is one Multi that holds as a whole or not at all, with any other
controller. The leader executes a leadership transfer, as it alone knows when the new leader has everything.

Does not contain: elections, which in-sync replicas decide by themselves (election.py).
Source: KAFKA-6082 (what an epoch is for elsewhere), KIP-460.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, auto

from edge_broker.cluster.inter_broker_messages import HandOver
from edge_broker.cluster.partition.election import is_offline
from edge_broker.cluster.state.cluster_state import NO_LEADER, PartitionId, PartitionState, Registration, Topic
from edge_broker.cluster.state.lines import UNMARKED_LINE, Line
from edge_broker.cluster.state.placement import Replicas, place
from edge_broker.cluster.znodes.partition_state_write import AskThen
from edge_broker.cluster.znodes.znode_codec import (
    CONTROLLER,
    decode_controller,
    deleted_path,
    encode,
    encode_controller,
    encode_state,
    encode_topic,
    state_path,
    topic_id_path,
    topic_path,
)
from edge_broker.cluster.znodes.zookeeper import (
    ANY_VERSION,
    Answer,
    Check,
    Create,
    Delete,
    Done,
    Failure,
    Get,
    Multi,
    MultiFailed,
    Node,
    Operation,
    SetData,
    Stat,
)
from edge_broker.errors import ErrorCode

Told = Callable[[ErrorCode], None]
NO_CONTROLLER = -1


class ControllerState(Enum):
    """As above."""

    NOT_ASKED = auto()
    ASKING = auto()
    WAITING = auto()
    HOLDING = auto()
    BARRED = auto()  # a foreign znode is in the way


class Controller:
    """This broker's claim on the office, and its work while it holds it."""

    def __init__(self, broker: int, ask: AskThen, first_line: Callable[[], Line] = lambda: UNMARKED_LINE) -> None:
        """`first_line` returns the line of a new partition's state."""
        self._broker, self._ask, self._first_line = broker, ask, first_line
        self._turn = 0
        self._session_id = 0
        self.state = ControllerState.NOT_ASKED
        self.holder = NO_CONTROLLER

    @property
    def holds(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self.state is ControllerState.HOLDING

    # the office

    def session_connected(self, session_id: int) -> None:
        """The session is served, and may be another one."""
        self.end()
        self._session_id = session_id
        self._claim()

    def end(self) -> None:
        """The session, or its connection, is lost."""
        self._turn += 1
        self.state = ControllerState.NOT_ASKED

    def _claim(self) -> None:
        self.state = ControllerState.ASKING
        create = Create(CONTROLLER, encode_controller(self._broker), ephemeral=True)
        self._next(create, self._claim_answered)

    def _claim_answered(self, answer: Answer) -> None:
        if isinstance(answer, Stat):
            self.state, self.holder = ControllerState.HOLDING, self._broker
        else:
            self.state = ControllerState.WAITING
            self._next(Get(CONTROLLER, watch=True), self._holder_read)

    def _holder_read(self, answer: Answer) -> None:
        if not isinstance(answer, Node):
            self.holder = NO_CONTROLLER
            if answer is Failure.NO_NODE:
                self._claim()
            else:
                self.state = ControllerState.BARRED
            return
        self.holder = decode_controller(answer)
        if answer.stat.ephemeral_owner == self._session_id:
            self.state = ControllerState.HOLDING  # its own claim, whose answer was lost

    def znode_changed(self) -> None:
        """Something happened to the office."""
        if self.state in (ControllerState.WAITING, ControllerState.HOLDING, ControllerState.BARRED):
            self._claim()

    def claim_again(self) -> None:
        """Time has passed: a foreign znode may be gone, without a watch."""
        if self.state is ControllerState.BARRED:
            self._claim()

    def _next(self, request: Create | Get, then: Callable[[Answer], None]) -> None:
        self._turn += 1
        turn = self._turn

        def answer_received(answer: Answer) -> None:
            if turn == self._turn and answer not in (Failure.CONNECTION_LOSS, Failure.SESSION_EXPIRED):
                then(answer)

        self._ask(request, answer_received)

    # topics

    def make_topic(
        self,
        name: str,
        topic: Topic,
        registrations: Mapping[int, Registration],
        told: Told,
    ) -> None:
        """Make a topic whose replicas are placed; the first of each partition that is there leads."""
        operations: list[Operation] = [
            Create(topic_path(name), encode_topic(topic)),
            Create(topic_id_path(name, topic.topic_id), encode({})),
        ]
        for number, replicas in enumerate(topic.replicas):
            operations.append(self._new_state(PartitionId(name, number), replicas, registrations))
        self._ask(Multi(tuple(operations)), lambda answer: told(_error(answer)))

    def change_topic(
        self,
        name: str,
        topic: Topic,
        version: int,
        have: int,
        registrations: Mapping[int, Registration],
        told: Told,
    ) -> None:
        """Give a topic another configuration, or more partitions than it has, if it is still of this version."""
        operations: list[Operation] = [
            Check(topic_id_path(name, topic.topic_id), ANY_VERSION),
            SetData(topic_path(name), encode_topic(topic), version),
        ]
        for number in range(have, len(topic.replicas)):
            operations.append(self._new_state(PartitionId(name, number), topic.replicas[number], registrations))
        self._ask(Multi(tuple(operations)), lambda answer: told(_error(answer)))

    def delete_topic(self, name: str, topic: Topic, told: Told) -> None:
        """Remove a topic and its states, and record that it was deleted; another one of its name stays."""
        mine = Delete(topic_id_path(name, topic.topic_id))
        states = [Delete(state_path(PartitionId(name, number))) for number in range(len(topic.replicas))]
        gone = Create(deleted_path(topic.topic_id), encode({"topic": name}))
        self._ask(Multi((mine, *states, Delete(topic_path(name)), gone)), lambda answer: told(_error(answer)))

    def _new_state(
        self, partition: PartitionId, replicas: Replicas, registrations: Mapping[int, Registration]
    ) -> Create:
        """Every replica that is there is in sync, as there is nothing yet."""
        there = tuple(registrations[broker].replica for broker in replicas if broker in registrations)
        leader = there[0].broker if there else NO_LEADER
        return Create(state_path(partition), encode_state(PartitionState(leader, 0, there, line=self._first_line())))


def place_topic(
    topic_id: str,
    partitions: int,
    factor: int,
    config: Mapping[str, str],
    registrations: Mapping[int, Registration],
    topics: Mapping[str, Topic],
) -> Topic:
    """A topic whose replicas are placed on who is there; ValueError."""
    racks = {broker: each.rack for broker, each in registrations.items()}
    there = [replicas for topic in topics.values() for replicas in topic.replicas]
    return Topic(topic_id, place(racks, partitions, factor, there), config)


def out_of_balance(
    topics: Mapping[str, Topic],
    states: Mapping[PartitionId, PartitionState],
    registrations: Mapping[int, Registration],
    percent: int,
) -> Iterator[tuple[int, HandOver]]:
    """Leaders that are not the preferred ones though those are in sync and there, with the wish for each.

    Of brokers of whose partitions more than `percent` in a hundred are led by others, or by none.
    """
    should, do = Counter[int](), Counter[int]()
    for name, topic in topics.items():
        for number, replicas in enumerate(topic.replicas):
            if (state := states.get(PartitionId(name, number))) is not None:
                should[replicas[0]] += 1
                do[replicas[0]] += state.leader == replicas[0]
    few = {broker for broker, count in should.items() if (count - do[broker]) * 100 > count * percent}
    for name, topic in sorted(topics.items()):
        for number, replicas in enumerate(topic.replicas):
            state = states.get(PartitionId(name, number))
            if state is None or state.leader in (NO_LEADER, replicas[0]) or replicas[0] not in few:
                continue
            entry, registered = state.entry(replicas[0]), registrations.get(replicas[0])
            if entry is None or registered is None or is_offline(state, replicas[0], registrations):
                continue
            if registered.replica == entry:
                yield state.leader, HandOver(PartitionId(name, number), replicas[0])


_ERRORS: dict[Failure, ErrorCode] = {
    Failure.NODE_EXISTS: ErrorCode.TOPIC_ALREADY_EXISTS,
    Failure.NO_NODE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    Failure.BAD_VERSION: ErrorCode.NOT_CONTROLLER,  # another broker has changed it meanwhile: clients try again
    Failure.CONNECTION_LOSS: ErrorCode.REQUEST_TIMED_OUT,  # it may be there, or gone: asked again, it says so
    Failure.SESSION_EXPIRED: ErrorCode.NOT_CONTROLLER,
}


def _error(answer: Answer) -> ErrorCode:
    if isinstance(answer, Done):
        return ErrorCode.NONE
    failure = answer.failure if isinstance(answer, MultiFailed) else answer
    assert isinstance(failure, Failure), answer
    return _ERRORS.get(failure, ErrorCode.UNKNOWN_SERVER_ERROR)
