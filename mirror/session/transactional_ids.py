"""Chooses the transactional id of a mirror with transactions: its own, or a spare one while its own is blocked.

| its own id | a spare id | state topic's markers | id that begins |
|---|---|---|---|
| is free, or its last transaction is another mirror's | | are written | its own |
| waits for markers, for MARKERS_S | is free, or was never taken | are written | the first such spare |
| the same | each waits for markers | | none: all partitions wait |
| any waits for markers | | are missing | none: all partitions wait |

Partitions for whose markers any id waits are in no transaction meanwhile.

An id waits for markers if DescribeTransactions returns PrepareCommit or PrepareAbort under the very epoch that this
mirror was given, or under the next one if that aborted this mirror's open transaction (`is_held`). The outcome stands
then, no other client was given an epoch since, and none is until all markers are written.

| step onto a spare | so that |
|---|---|
| next epoch of the spare, markers under it | no other mirror continues under the spare |
| the state topic is read | it is as the last transaction left it: all markers there are written |
| the spare is announced in the state topic, until that is visible | a mirror that takes the own id later reads it |
| the own id still has this mirror's epoch | no mirror has taken it before, and has read no announcement |
| data | |

A mirror that reads announcements under its own id takes these spares, too, reads again, and removes the announcements.
A released version refuses them, as records of version 3. Kafka before 3.0 has no DescribeTransactions: there all
partitions wait for the own id. Does not contain: requests (kafka_wire/transactions/transactions.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from drupelet.backoff import Backoff
from edge_broker.errors import error_name
from kafka_wire.cluster import Partition
from kafka_wire.transactions.transactions import Transactions
from mirror.errors import TargetError

SPARES = 3
MARKERS_S = 3.0
RETURN_S = 2.0  # between two checks whether the own id is free again
_ASK_S = 0.05, 0.5  # first and longest wait


def spare_ids(name: str) -> list[str]:
    """Return the spare transactional ids of a mirror."""
    return [f"{name}~{number}" for number in range(2, SPARES + 2)]


class Id(NamedTuple):
    """A transactional id, its number (the own id has 0), and the client of its transactions."""

    name: str
    number: int
    transactions: Transactions

    async def read_unmarked(self) -> frozenset[Partition]:
        """Return the partitions for whose markers it waits, of a transaction of this mirror.

        A transaction of a fence that broke off may be open still. It is aborted: the next epoch would raise this one.
        """
        if self.transactions.producer[1] < 0:
            return frozenset()
        told = await self.transactions.describe()
        if told is not None and told.state == "Ongoing" and told[1:3] == self.transactions.producer:
            if code := await self.transactions.abort():
                raise TargetError(f"the open transaction of {self.name} cannot be aborted: {error_name(code)}")
            told = await self.transactions.describe()
        if told is None or not told.is_decided or not self.transactions.is_held(told):
            return frozenset()
        return told.partitions

    async def is_ours(self) -> bool:
        """Return whether no other client was given an epoch of it since this mirror was."""
        told = await self.transactions.describe()
        return told is not None and self.transactions.is_held(told)

    async def is_free(self) -> bool:
        """Return whether it is this mirror's, and all markers of its last transaction are written."""
        told = await self.transactions.describe()
        return told is not None and self.transactions.is_held(told) and not told.is_decided


class Ids:
    """All ids of one mirror; every coroutine raises WireError, and TargetError if none can begin."""

    def __init__(self, own: Id, spares: Sequence[Id], state_at: Partition) -> None:
        self.own, self.spares = own, spares
        self.current = own
        self._waits: dict[int, frozenset[Partition]] = {}
        self._state_at = state_at
        self._refused = ""

    @property
    def is_spare(self) -> bool:
        """Whether a spare is in use."""
        return self.current is not self.own

    @property
    def unmarked_partitions(self) -> frozenset[Partition]:
        """Partitions that no transaction may have: another id waits for their markers."""
        return frozenset().union(*self._waits.values())

    def waits(self, one: Id) -> bool:
        """Return whether an id waited for markers at the last check: no client is given an epoch of it."""
        return bool(self._waits.get(one.number))

    def refuse_spares(self, why: str) -> None:
        """Note that the target grants this mirror no spares."""
        self._refused = why

    async def choose(self) -> None:
        """Choose the id of the next epoch, by the first table; wait for the own id up to MARKERS_S."""
        own = await self.own.read_unmarked()
        if own and not self.is_spare:
            own = await self._wait_for_own(own)
        self._waits = {one.number: await one.read_unmarked() for one in self.spares} | {self.own.number: own}
        usable = [self.own] if self._refused else [self.own, *self.spares]
        free = [one for one in usable if not self.waits(one)]
        if not free or self._state_at in self.unmarked_partitions:
            raise TargetError(_waiting_for(self.unmarked_partitions, self._refused))
        self.current = free[0]

    async def refresh(self) -> None:
        """Check again which partitions lack their markers, for each id that waits."""
        for one in (self.own, *self.spares):
            if self.waits(one):
                self._waits[one.number] = await one.read_unmarked()

    async def _wait_for_own(self, unmarked: frozenset[Partition]) -> frozenset[Partition]:
        loop, backoff = asyncio.get_running_loop(), Backoff(*_ASK_S)
        end = loop.time() + MARKERS_S
        while unmarked and loop.time() < end:
            await asyncio.sleep(backoff.next_s())
            unmarked = await self.own.read_unmarked()
        return unmarked


def _waiting_for(unmarked: frozenset[Partition], refused: str) -> str:
    topic, number = min(unmarked)
    more = f" and {len(unmarked) - 1} more" if len(unmarked) > 1 else ""
    why = f"; no other transactional id can be used: {refused}" if refused else ""
    return (
        f"no transaction can begin: the last one has no end in {topic}-{number}{more}, which has no leader or too few "
        f"in-sync replicas; start the brokers that have it{why}"
    )
