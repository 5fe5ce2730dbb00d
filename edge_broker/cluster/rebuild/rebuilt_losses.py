"""Has this board write down what a rebuild of the cluster may have lost, before it leads what is left.

| stage | event | next |
|---|---|---|
| any | everything was read again, in a rebuilt cluster | Children of /lost, then each of its nodes |
| a node names this disk | its log is open | Enter: the ledger has it as `unclean_election`, from the log's end on |
| entered | | Multi: the state gets its in-sync set, the node goes |
| Done | | done |
| the state is another one, or the topic is gone | | the node goes: an unclean election, or a person, has decided |
| no answer | | all of it once everything is read again; the same entry has the same id |

Until then the in-sync set of the partition is empty, so no broker leads it.

Contains: that. Does not contain: what may be lost (rebuild_plan.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from edge_broker.cluster.effects import Effect, Enter, LostRange
from edge_broker.cluster.partition.partition import Partition
from edge_broker.cluster.state.cluster_state import Identity, PartitionId
from edge_broker.cluster.znodes.partition_state_write import AskThen
from edge_broker.cluster.znodes.znode_codec import (
    LOST,
    LayoutFault,
    MayBeLost,
    decode_lost,
    encode_state,
    lost_path,
    state_path,
    topic_id_path,
)
from edge_broker.cluster.znodes.zookeeper import (
    ANY_VERSION,
    Answer,
    Check,
    Children,
    Delete,
    Failure,
    Get,
    Multi,
    MultiFailed,
    Names,
    Node,
    SetData,
)

WRITTEN_ONCE = 0  # the version of a state without a change since the rebuild


class RebuiltLosses:
    """The losses that this disk must record; `unreadable` hears of a znode that says nothing."""

    def __init__(
        self,
        ask: AskThen,
        emit: Callable[[Effect], None],
        token: Callable[[], int],
        unreadable: Callable[[LayoutFault], None],
    ) -> None:
        self._ask, self._emit, self._token, self._unreadable = ask, emit, token, unreadable
        self._due: dict[PartitionId, MayBeLost] = {}
        self._entering: dict[int, MayBeLost] = {}

    def read_again(self, identity: Identity) -> None:
        """Everything was read again."""
        self._due.clear()
        self._entering.clear()
        self._ask(Children(LOST), partial(self._have_names, identity))

    def _have_names(self, identity: Identity, answer: Answer) -> None:
        for name in answer.names if isinstance(answer, Names) else ():
            path = f"{LOST}/{name}"
            self._ask(Get(path), partial(self._have, identity, path))

    def _have(self, identity: Identity, path: str, answer: Answer) -> None:
        if not isinstance(answer, Node):
            return
        try:
            lost = decode_lost(path, answer)
        except LayoutFault as fault:
            self._unreadable(fault)
            return
        if lost.entry.broker == identity.broker and identity.is_named_by(lost.entry):
            self._due[lost.partition] = lost

    def tick(self, partitions: Mapping[PartitionId, Partition]) -> None:
        """Time has passed; these logs are open."""
        for lost in list(self._due.values()):
            found = partitions.get(lost.partition)
            if found is not None and found.topic.topic_id == lost.topic_id and found.log.online:
                del self._due[lost.partition]
                token = self._token()
                self._entering[token] = lost
                what = LostRange(lost.state.leader_epoch, found.log.log_end_offset, None)
                self._emit(Enter(token, lost.partition, "unclean_election", (what,)))

    def losses_recorded(self, token: int) -> bool:
        """As Enter; False: it was another one's."""
        lost = self._entering.pop(token, None)
        if lost is None:
            return False
        there = Check(topic_id_path(lost.partition.topic, lost.topic_id), ANY_VERSION)
        state = SetData(state_path(lost.partition), encode_state(lost.state), WRITTEN_ONCE)
        path = lost_path(lost.partition)
        self._ask(Multi((there, state, Delete(path))), partial(self._have_written, path))
        return True

    def _have_written(self, path: str, answer: Answer) -> None:
        if isinstance(answer, MultiFailed) and answer.failure in (Failure.BAD_VERSION, Failure.NO_NODE):
            self._ask(Delete(path), lambda _: None)
