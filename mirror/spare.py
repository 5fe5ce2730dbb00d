"""Which transactional id a mirror with transactions goes by: its own, or a spare one while its own takes nothing.

| its own id | the spare id | state topic's marker | id that begins | partitions that wait |
|---|---|---|---|---|
| is free, or its last transaction is not ours | is free, or was never taken | | its own | none |
| the same | waits for markers | is written | its own | those without a marker |
| waits for markers, for MARKERS_S | is free, or was never taken | is written | the spare | those without a marker |
| the same | waits for markers | | none | all |
| either waits for markers | | is missing | none | all |

An id waits for markers where DescribeTransactions returns PrepareCommit or PrepareAbort under the very epoch that this
mirror was given: the outcome stands, no one else was given an epoch since, and no one is until all markers are written.

| step onto the spare | so that |
|---|---|
| next epoch of the spare, markers under it | no one else goes on under the spare |
| the state topic is read | it is as the last transaction of the own id left it: its marker there is written |
| the spare is announced in the state topic, until that is visible | a mirror that takes the own id later reads it |
| the own id is still under our epoch | no one has taken it before, and has read no announcement |
| data | |

A mirror that reads an announcement under its own id takes the spare, too, reads again, and removes it. A released
version refuses it, as a record of version 3. Does not contain: how they are asked (kafka_wire/transactions.py).
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from drupelet.backoff import Backoff
from kafka_wire.cluster import Partition
from kafka_wire.transactions import Transactions
from mirror.errors import TargetError

MARKERS_S = 3.0
RETURN_S = 2.0  # between two looks whether the own id is free again
_ASK_S = 0.05, 0.5  # first and longest wait


def spare_id(name: str) -> str:
    """Return the spare transactional id of a mirror."""
    return f"{name}~2"


class Id(NamedTuple):
    """A transactional id, and what runs its transactions."""

    name: str
    transactions: Transactions

    async def unmarked(self) -> frozenset[Partition]:
        """Return the partitions for whose markers it waits, of a transaction that ended under our epoch."""
        if self.transactions.producer[1] < 0:
            return frozenset()
        told = await self.transactions.described()
        if told is None or not told.is_decided or told[1:3] != self.transactions.producer:
            return frozenset()
        return told.partitions

    async def is_ours(self) -> bool:
        """Return whether no one was given an epoch of it since this mirror was."""
        told = await self.transactions.described()
        return told is not None and told[1:3] == self.transactions.producer

    async def is_free(self) -> bool:
        """Return whether it is ours, and all markers of its last transaction are written."""
        told = await self.transactions.described()
        return told is not None and told[1:3] == self.transactions.producer and not told.is_decided


class Ids:
    """Both ids of one mirror; every coroutine raises WireError, and TargetError where neither can begin."""

    def __init__(self, own: Id, spare: Id, state_at: Partition) -> None:
        self.own, self.spare = own, spare
        self.current = own
        self.unmarked: frozenset[Partition] = frozenset()
        """Partitions that are to be in no transaction: that of the other id has no marker there yet."""
        self._state_at = state_at
        self._refused = ""

    @property
    def is_spare(self) -> bool:
        """Whether the spare is in use."""
        return self.current is self.spare

    def refuse_spare(self, why: str) -> None:
        """Note that the target does not let us have the spare."""
        self._refused = why

    async def choose(self) -> None:
        """Choose the id of the next epoch, by the first table; its own is waited for a little."""
        own = await self.own.unmarked()
        if own and not self.is_spare:
            own = await self._wait_for_own(own)
        spare = await self.spare.unmarked()
        if (own and spare) or self._state_at in own | spare or (own and self._refused):
            raise TargetError(_waiting_for(own | spare, self._refused))
        self.current, self.unmarked = (self.spare, own) if own else (self.own, spare)

    async def refresh(self) -> None:
        """Ask which partitions have their markers now, where some had none."""
        if self.unmarked:
            other = self.own if self.is_spare else self.spare
            self.unmarked &= await other.unmarked()

    async def _wait_for_own(self, unmarked: frozenset[Partition]) -> frozenset[Partition]:
        loop, backoff = asyncio.get_running_loop(), Backoff(*_ASK_S)
        end = loop.time() + MARKERS_S
        while unmarked and loop.time() < end:
            await asyncio.sleep(backoff.next_s())
            unmarked = await self.own.unmarked()
        return unmarked


def _waiting_for(unmarked: frozenset[Partition], refused: str) -> str:
    topic, number = min(unmarked)
    more = f" and {len(unmarked) - 1} more" if len(unmarked) > 1 else ""
    why = f"; no other transactional id can be used: {refused}" if refused else ""
    return (
        f"no transaction can begin: the last one has no end in {topic}-{number}{more}, which has no leader or too few "
        f"in-sync replicas; start the brokers that have it{why}"
    )
