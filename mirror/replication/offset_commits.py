"""Commits positions to the group at the source, each commit interval.

A position is committed when it has changed, and again after `commit_again_ms`, as Apache Kafka deletes positions of
quiet groups.
Does not contain: what a position is (partition/source_offsets.py), which mirror may write (client/active_election.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable

from drupelet.backoff import Backoff
from mirror.client.active_election import Standby
from mirror.client.source_client import Source
from mirror.config import Config
from mirror.errors import NotOurTurnError, SourceError
from mirror.partition.source_offsets import Commit
from mirror.partition.stream import PartitionStream

BACKOFF_FIRST_S = 0.1
LOOK_AT_ALL_S = 60.0


class OffsetCommitter:
    """Commits for one mirror, a member of the group by `standby`. `tell` reports a problem; empty text ends it."""

    def __init__(
        self,
        source: Source,
        standby: Standby,
        lanes: Callable[[], Collection[PartitionStream]],
        config: Config,
        tell: Callable[[str, str], None],
    ) -> None:
        self._source, self._standby, self._lanes, self._config, self._tell = source, standby, lanes, config, tell
        self._changed: set[PartitionStream] = set()  # since the last commit
        self._looked_at_all = time.monotonic()

    def position_changed(self, lane: PartitionStream) -> None:
        """Commit a stream's position with the next commit."""
        self._changed.add(lane)

    async def run(self) -> None:
        """Commit until this is cancelled."""
        backoff = Backoff(BACKOFF_FIRST_S, self._config.backoff_max_ms / 1000)
        while True:
            await asyncio.sleep(self._config.commit_interval_ms / 1000)
            try:
                await self._store(self._next, self._to_commit())
                backoff.reset()
                self._tell("commit", "")
            except NotOurTurnError:
                continue  # the group says first which mirror is active, then the commit follows
            except SourceError as error:
                self._tell("commit", str(error))
                await asyncio.sleep(backoff.next_s())

    async def commit_all(self) -> None:
        """Commit each position that has changed, once; raises SourceError."""
        await self._store(lambda lane: lane.offsets.next_commit(lane.writers.passed_over), self._lanes())

    def _next(self, lane: PartitionStream) -> Commit | None:
        """Return the commit of a stream: a new position, or one so old that Kafka would delete it one day."""
        again = time.monotonic() - lane.stored_at >= self._config.commit_again_ms / 1000
        return lane.offsets.next_commit(lane.writers.passed_over, again=again)

    def _to_commit(self) -> set[PartitionStream]:
        """Return the streams that have changed; now and then all, as Kafka deletes positions that are not renewed."""
        changed, self._changed = self._changed, set()
        if time.monotonic() - self._looked_at_all >= min(LOOK_AT_ALL_S, self._config.commit_again_ms / 1000):
            self._looked_at_all = time.monotonic()
            changed.update(self._lanes())
        return {lane for lane in changed if not lane.is_gone}

    async def _store(
        self, choose: Callable[[PartitionStream], Commit | None], lanes: Iterable[PartitionStream]
    ) -> None:
        chosen = {lane: (lane.offsets, choose(lane)) for lane in lanes}
        commits = {lane.partition: commit for lane, (_, commit) in chosen.items() if commit is not None}
        if not commits:
            return
        try:
            await self._source.commit(commits, self._config.stop_timeout_ms / 1000, self._standby.member)
        except SourceError:
            self._changed.update(chosen)
            raise
        for lane, (offsets, commit) in chosen.items():
            if commit is not None:
                offsets.stored(commit)
                lane.stored_at = time.monotonic()
