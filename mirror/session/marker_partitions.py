"""Keeps partitions that cannot take a marker out of transactions, as far as the target's metadata tells.

A transaction ends once each of its partitions has its marker; until then its coordinator begins no other one. So one
partition without a leader, or with fewer in-sync replicas than min.insync.replicas, holds up all others.

| a partition that is to be added to a transaction | is |
|---|---|
| was in one that was committed, less than KNOWN_S ago | added |
| any other, and each one once a connection to the target was lost | queried, with the others: one request |
| has a leader, and enough in-sync replicas | added |
| has not | left out: it is named, and waits alone |
| is not described: the topic was deleted, or the target does not answer | added: the coordinator tells more |

Does not contain: partitions that fall short while a transaction has them (transactional_ids.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence

from mirror.client.log_queries import leader_of
from mirror.client.target_client import Target
from mirror.errors import ShortError, TargetError
from mirror.partition.stream import PartitionStream

KNOWN_S = 3.0
LOOK_S = 5.0  # that the transaction waits for a query: a broker that hangs blocks no other


class InSync:
    """The partitions of one sender."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._known_until: dict[PartitionStream, float] = {}

    def transaction_committed(self, streams: Iterable[PartitionStream]) -> None:
        """Note that a transaction with these partitions is committed."""
        until = asyncio.get_running_loop().time() + KNOWN_S
        self._known_until.update(dict.fromkeys(streams, until))

    def forget(self, stream: PartitionStream | None = None) -> None:
        """Query a partition before it is added again, or each one."""
        if stream is None:
            self._known_until.clear()
        else:
            self._known_until.pop(stream, None)

    async def problems(self, streams: Sequence[PartitionStream]) -> dict[PartitionStream, str]:
        """Return why some of these partitions cannot take a marker now."""
        now = asyncio.get_running_loop().time()
        unknown = [stream for stream in streams if self._known_until.get(stream, 0.0) <= now]
        if not unknown:
            return {}
        problems: dict[PartitionStream, str] = {}
        with contextlib.suppress(TargetError, TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._check(unknown, problems)
        return problems

    async def _check(self, streams: Sequence[PartitionStream], problems: dict[PartitionStream, str]) -> None:
        """Note the problems of these partitions; raises TargetError."""
        found = await self._target.topics(sorted({stream.target_topic for stream in streams}))
        for stream in streams:
            if stream.target_topic not in found:
                continue
            if leader_of(found, stream.at_target).node < 0:
                problems[stream] = f"{stream.target_topic}-{stream.partition.partition} has no leader"
                continue
            try:
                await self._target.check_in_sync(stream.at_target)
            except ShortError as error:
                problems[stream] = str(error)
