"""Blocks of producer ids: no broker of the cluster is given one twice, since the znode of the next one goes by version.

| stage | event | next |
|---|---|---|
| idle | a block is requested | reading: Get |
| reading | Node | taking: SetData of its version, with the end of the block as the next id |
| reading | NO_NODE | making: Create |
| making | Stat | reading |
| taking | Stat | idle: the block is reported |
| making, taking | BAD_VERSION, NODE_EXISTS, NO_NODE | syncing: another one was first |
| syncing | Done | reading |
| any | CONNECTION_LOSS | idle: no block is reported; the next request reads again |
| any | any other failure; a znode that cannot be read, or has no ids left | idle: no block is reported |

After a lost connection a block may be taken without a report. No broker uses it: the next read is after it,
or the change was not done and comes too late, as its version has gone.

A block begins at the greatest of three numbers: the znode's next id, the end of what this broker was given, and
BLOCK_IDS times the zxid that wrote the znode, as an epoch. A client that deletes or forges the znode cannot lower that
zxid: each write has a greater one, and a block ends at BLOCK_IDS times the zxid that takes it at most. In a rebuilt
cluster zxids begin again, and the format's `epoch_base` makes epochs of them.

Known limit: an ensemble that is set back or replaced may repeat zxids. Then this broker still gives no id that it was
given, or that a log of it knows (handlers/init_producer_id.py). It does not know what only other brokers were given.

Contains: that. Does not contain: which id of a block a client gets, the disk. Source: KIP-98, Kafka's
ZkProducerIdManager; ZooKeeper's Internals (zxids).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from edge_broker.cluster.znodes.partition_state_write import AskThen
from edge_broker.cluster.znodes.znode_codec import PRODUCER_IDS, LayoutFault, decode_producer_ids, encode_producer_ids
from edge_broker.cluster.znodes.zookeeper import Answer, Create, Done, Failure, Get, Node, SetData, Stat, Sync

BLOCK_IDS = 1000
IDS_END = 1 << 63
ANOTHER_WAS_FIRST = (Failure.BAD_VERSION, Failure.NODE_EXISTS, Failure.NO_NODE)

Told = Callable[[range | None], None]


class ProducerIds:
    """The blocks that this broker takes; `unreadable` hears of a znode that gives no ids."""

    def __init__(
        self, ask: AskThen, unreadable: Callable[[LayoutFault], None], epoch_base: Callable[[], int] = lambda: 0
    ) -> None:
        self._ask, self._unreadable, self._epoch_base = ask, unreadable, epoch_base
        self._waiting: deque[Told] = deque()
        self._seen = 0  # no id below is given, whatever the znode says

    def take(self, told: Told, above: int = 0) -> None:
        """Have a block of BLOCK_IDS taken; `told` is called once, with None where there is none: ask again later.

        No id below `above` is taken: the end of what this broker was given, as its disk has it.
        """
        self._seen = max(self._seen, above)
        self._waiting.append(told)
        if len(self._waiting) == 1:
            self._read()

    def _read(self) -> None:
        self._ask(Get(PRODUCER_IDS), self._have_read)

    def _have_read(self, answer: Answer) -> None:
        if isinstance(answer, Node):
            self._take_behind(answer)
        elif answer is Failure.NO_NODE:
            self._ask(Create(PRODUCER_IDS, encode_producer_ids(self._seen)), self._have_made)
        else:
            self._end_all()

    def _have_made(self, answer: Answer) -> None:
        if isinstance(answer, Stat):
            self._read()  # its zxid is part of where the block begins
        else:
            self._have_none(answer)

    def _take_behind(self, node: Node) -> None:
        try:
            written = self._epoch_base() + node.stat.mzxid
            first = max(decode_producer_ids(node), self._seen, written * BLOCK_IDS)
            if first + BLOCK_IDS > IDS_END:
                raise LayoutFault(PRODUCER_IDS, "has no producer ids left")
        except LayoutFault as fault:
            self._unreadable(fault)
            self._end_all()
            return
        block = range(first, first + BLOCK_IDS)
        change = SetData(PRODUCER_IDS, encode_producer_ids(block.stop), node.stat.version)
        self._ask(change, partial(self._have_taken, block))

    def _have_taken(self, block: range, answer: Answer) -> None:
        if isinstance(answer, Stat):
            self._seen = block.stop
            told = self._waiting.popleft()
            if self._waiting:
                self._read()
            told(block)
        else:
            self._have_none(answer)

    def _have_none(self, answer: Answer) -> None:
        if answer in ANOTHER_WAS_FIRST:
            self._ask(Sync(PRODUCER_IDS), self._have_synced)
        else:
            self._end_all()

    def _have_synced(self, answer: Answer) -> None:
        if answer == Done():
            self._read()
        else:
            self._end_all()

    def _end_all(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for told in waiting:
            told(None)
