"""The znode with the users and ACLs of a cluster: read, watched, and replaced by its version alone.

| stage | event | next |
|---|---|---|
| any | begin: the session is served, also again | Sync, then Get of /format and of the node, watched |
| syncing | refused, as of a session that moves | the same at the next `retry`: what is read then may be old |
| reading | Node, and /format says that it was made | there: told |
| reading | Node, and it does not | /format again: there, as it was made meanwhile, else foreign: told |
| reading | NO_NODE | Exists, watched; then by /format lost, or never made: told |
| reading | NO_AUTH, or /format is gone, too | barred: told |
| reading | REFUSED | all of it at the next `retry`: it says nothing of what is there |
| there | a watch | Get, watched |
| writing | Stat | there, as written: told, and the writer that it holds |
| writing | BAD_VERSION, NO_NODE, NODE_EXISTS, MultiFailed | Sync, then Get; then the writer learns whether it holds |
| writing | CONNECTION_LOSS, SESSION_EXPIRED | the same, once the session is served again |

Only a Multi that says so in /format as well makes the node, with its parent: a node that another client has put there
before is not the cluster's, and a missing one was lost. The node is a child of one that is the brokers' alone, since a
client that may write to the chroot may remove its children. A session's Sync every sixth of its timeout (member.py)
brings changes in that time at most, as a watch comes before the response of a later read.

Does not contain: what the bytes mean (security/state.py), who changes them (broker).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import NamedTuple

from edge_broker.cluster.znodes.partition_state_write import AskThen
from edge_broker.cluster.znodes.znode_codec import (
    FORMAT,
    SECURITY,
    SECURITY_STATE,
    LayoutFault,
    encode,
    has_security,
    with_security,
)
from edge_broker.cluster.znodes.zookeeper import (
    Answer,
    Create,
    Done,
    Exists,
    Failure,
    Get,
    Multi,
    Node,
    Operation,
    Request,
    SetData,
    Stat,
    Sync,
)

AWAY = (Failure.CONNECTION_LOSS, Failure.SESSION_EXPIRED)
Told = Callable[[bool], None]


class NodeState(Enum):
    """The known state of the node."""

    THERE = auto()
    NEVER_MADE = auto()
    LOST = auto()
    FOREIGN = auto()  # it is there, and /format does not say so
    BARRED = auto()


class NodeReading(NamedTuple):
    """The last reading; `version` is the node's."""

    standing: NodeState
    data: bytes = b""
    version: int = -1


class SecurityNode:
    """This broker's knowledge of the node; `told` hears of each reading, also of one that is like the last."""

    def __init__(self, ask: AskThen, told: Callable[[NodeReading], None]) -> None:
        self._ask_then, self._told = ask, told
        self._turn = 0
        self._unsettled: list[tuple[bytes, Told]] = []
        self._format: Node | None = None
        self._is_stale = False  # something is to be read

    def begin(self) -> None:
        """The session is served."""
        self._turn += 1
        self._sync()

    def end(self) -> None:
        """The session is over, or its connection: watches are gone."""
        self._turn += 1

    def node_changed(self) -> None:
        """The node was made, changed, or is gone."""
        self._read()

    # reading

    def _ask(self, request: Request, then: Callable[[Answer], None]) -> None:
        turn = self._turn

        def answer_received(answer: Answer) -> None:
            if turn == self._turn and answer not in AWAY:
                then(answer)

        self._ask_then(request, answer_received)

    def retry(self) -> None:
        """Time has passed: read what could not be read."""
        if self._is_stale:
            self._sync()

    def _sync(self) -> None:
        self._is_stale = True
        self._ask(Sync(), lambda answer: self._read() if answer == Done() else None)

    def _read(self) -> None:
        self._is_stale = True
        self._ask(Get(FORMAT), self._have_format)

    def _have_format(self, answer: Answer) -> None:
        if self._tells(answer):
            self._format = answer if isinstance(answer, Node) else None
            self._ask(Get(SECURITY_STATE, watch=True), self._have)

    def _tells(self, answer: Answer) -> bool:
        """Whether an answer gives the contents; a read that is not allowed is reported, a failed one is repeated."""
        if answer is Failure.NO_AUTH:
            self._resolve(NodeReading(NodeState.BARRED))
        return isinstance(answer, Node | Stat) or answer is Failure.NO_NODE

    def _have(self, answer: Answer) -> None:
        if not self._tells(answer):
            return
        if isinstance(answer, Node) and self._was_made:
            self._resolve(NodeReading(NodeState.THERE, answer.data, answer.stat.version))
        elif isinstance(answer, Node):
            self._ask(Get(FORMAT), partial(self._have_both, answer))
        else:
            self._ask(Exists(SECURITY_STATE, watch=True), self._have_none)

    def _have_both(self, node: Node, answer: Answer) -> None:
        """Both are made at once: where the format says so only now, it was read before that."""
        if not self._tells(answer):
            return
        self._format = answer if isinstance(answer, Node) else None
        standing = NodeState.THERE if self._was_made else NodeState.FOREIGN
        self._resolve(NodeReading(standing, node.data, node.stat.version))

    def _have_none(self, answer: Answer) -> None:
        if not self._tells(answer):
            return
        if isinstance(answer, Stat):
            self._read()
        elif self._format is None:
            self._resolve(NodeReading(NodeState.BARRED))
        else:
            self._resolve(NodeReading(NodeState.LOST if self._was_made else NodeState.NEVER_MADE))

    @property
    def _was_made(self) -> bool:
        try:
            return self._format is not None and has_security(self._format)
        except LayoutFault:
            return False

    def _resolve(self, found: NodeReading) -> None:
        self._is_stale = False
        unsettled, self._unsettled = self._unsettled, []
        self._told(found)
        for data, told in unsettled:
            told(found.standing is NodeState.THERE and found.data == data)

    # writing

    def write(self, data: bytes, version: int, told: Told) -> None:
        """Replace what has this version; `told` is called once it is certain whether that holds."""
        self._ask_then(SetData(SECURITY_STATE, data, version), partial(self._write_answered, data, told))

    def make(self, data: bytes, told: Told) -> None:
        """Make the node where it was never made; `told` as in `write`."""
        if self._format is None:
            told(False)
            return
        format_of_now = SetData(FORMAT, with_security(self._format), self._format.stat.version)
        self._make((format_of_now, Create(SECURITY, encode({})), Create(SECURITY_STATE, data)), data, told)

    def make_again(self, data: bytes, told: Told) -> None:
        """Make the node where it was lost; its parent may be there still. `told` as in `write`."""
        self._ask_then(Create(SECURITY, encode({})), lambda _: None)
        self._make((Create(SECURITY_STATE, data),), data, told)

    def _make(self, operations: tuple[Operation, ...], data: bytes, told: Told) -> None:
        self._ask_then(Multi(operations), partial(self._write_answered, data, told))

    def _write_answered(self, data: bytes, told: Told, answer: Answer) -> None:
        if isinstance(answer, Stat):
            self._told(NodeReading(NodeState.THERE, data, answer.version))
            told(True)
            return
        self._unsettled.append((data, told))
        if answer not in AWAY:  # what was made is read as well, so that it is watched
            self._sync()
