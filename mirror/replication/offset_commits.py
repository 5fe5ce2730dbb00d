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
    """Commits for one mirror, a member of the group by `standby`. `report_problem`: empty text ends one."""

    def __init__(
        self,
        source: Source,
        standby: Standby,
        streams: Callable[[], Collection[PartitionStream]],
        config: Config,
        report_problem: Callable[[str, str], None],
    ) -> None:
        self._source, self._standby, self._streams, self._config, self._report_problem = (
            source,
            standby,
            streams,
            config,
            report_problem,
        )
        self._changed: set[PartitionStream] = set()  # since the last commit
        self._looked_at_all = time.monotonic()

    def position_changed(self, stream: PartitionStream) -> None:
        """Commit a stream's position with the next commit."""
        self._changed.add(stream)

    async def run(self) -> None:
        """Commit until this is cancelled."""
        backoff = Backoff(BACKOFF_FIRST_S, self._config.backoff_max_ms / 1000)
        while True:
            await asyncio.sleep(self._config.commit_interval_ms / 1000)
            try:
                await self._store(self._next, self._to_commit())
                backoff.reset()
                self._report_problem("commit", "")
            except NotOurTurnError:
                continue  # the group says first which mirror is active, then the commit follows
            except SourceError as error:
                self._report_problem("commit", str(error))
                await asyncio.sleep(backoff.next_s())

    async def commit_all(self) -> None:
        """Commit each position that has changed, once; raises SourceError."""
        await self._store(lambda lane: lane.offsets.next_commit(lane.writers.passed_over), self._streams())

    def _next(self, stream: PartitionStream) -> Commit | None:
        """Return the commit of a stream: a new position, or one so old that Kafka would delete it one day."""
        again = time.monotonic() - stream.stored_at >= self._config.commit_again_ms / 1000
        return stream.offsets.next_commit(stream.writers.passed_over, repeat=again)

    def _to_commit(self) -> set[PartitionStream]:
        """Return the streams that have changed; now and then all, as Kafka deletes positions that are not renewed."""
        changed, self._changed = self._changed, set()
        if time.monotonic() - self._looked_at_all >= min(LOOK_AT_ALL_S, self._config.commit_again_ms / 1000):
            self._looked_at_all = time.monotonic()
            changed.update(self._streams())
        return {stream for stream in changed if not stream.is_gone}

    async def _store(
        self, choose: Callable[[PartitionStream], Commit | None], streams: Iterable[PartitionStream]
    ) -> None:
        chosen = {stream: (stream.offsets, choose(stream)) for stream in streams}
        commits = {stream.partition: commit for stream, (_, commit) in chosen.items() if commit is not None}
        if not commits:
            return
        try:
            await self._source.commit(commits, self._config.stop_timeout_ms / 1000, self._standby.member)
        except SourceError:
            self._changed.update(chosen)
            raise
        for stream, (offsets, commit) in chosen.items():
            if commit is not None:
                offsets.commit_stored(commit)
                stream.stored_at = time.monotonic()
