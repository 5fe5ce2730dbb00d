"""Mirrors the source to the target: starts, active periods, stop. Each task has an owner of its own.

| task   | does                                                          | owner                                     |
|--------|---------------------------------------------------------------|-------------------------------------------|
| read   | in an active period: discovers partitions, checks their       | partition_registry.py, position_check.py, |
|        | positions, reads batches, resolves gaps before it reads on    | source_reader.py, gap_resolver.py         |
| commit | stores positions in the source's group, every commit interval | offset_commits.py                         |
| follow | keeps the configs of topics at the target in sync             | topic_config_sync.py                      |
| watch  | lags, stalls, problems, log lines when a side falls silent    | health_watch.py                           |

Every task works for ever and backs off by itself; an exception that leaves one is a bug and ends the process.
Does not contain: clients (clients.py), the sender and its sessions (active_period.py), their events
(target_events.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import time

from drupelet.observe.log_tree import Log
from kafka_wire.connection.errors import WireError
from mirror.client.clients import Connect
from mirror.config import Config
from mirror.errors import NotOurTurnError, OriginsChangedError, OvertakenError, SourceError, TargetError
from mirror.link.link_model import Link
from mirror.origins.screening import screen_of
from mirror.partition.stream import Memory, PartitionStream
from mirror.replication.active_period import ActivePeriod
from mirror.replication.backoffs import PartitionBackoffs, new_backoff
from mirror.replication.gap_resolver import GapResolver
from mirror.replication.health_watch import HealthWatch
from mirror.replication.initial_position import InitialPosition
from mirror.replication.loss_writer import LossWriter
from mirror.replication.offset_commits import OffsetCommitter
from mirror.replication.partition_registry import PartitionRegistry
from mirror.replication.position_check import Positions
from mirror.replication.refused_records import RefusedRecords
from mirror.replication.source_reader import SourceReader
from mirror.replication.target_events import TargetEvents
from mirror.replication.topic_config_sync import Following
from mirror.status.lag_watch import WatchedParts
from mirror.status.metrics import Metrics
from mirror.status.problems import Troubles
from mirror.status.rates import Progress
from mirror.status.report import Report

_log = Log("mirror")

UNDER_WAY_SHARE = 4
STEADY_S = 30.0  # of reading without a problem, after which the backoff starts again from its shortest


class Replicator:
    """Mirrors until it is stopped; `trouble()` says what is wrong, `metrics` counts."""

    def __init__(self, config: Config, metrics: Metrics, connect: Connect) -> None:
        self.config = config
        self.metrics = metrics
        self.memory = Memory()
        self.clients = connect(self.memory.room.set)
        self.problems = Troubles()
        self.refusal = ""
        """Why `run` has ended by itself: these two ends may not be mirrored."""
        self._refused = asyncio.Event()
        self._network_changed = asyncio.Event()
        source, target, ledger, standby, node = self.clients
        report_problem = self._report_problem
        link = Link(config.buffer_bytes_max // UNDER_WAY_SHARE, is_metered=config.metered)
        losses = LossWriter(ledger, config, metrics, node, report_problem)
        self._progress = Progress()
        self._config_sync = Following(source, target)
        self._backoffs = PartitionBackoffs(config, report_problem)
        self.period = ActivePeriod(target, link, config, self.problems)
        positions = Positions(source, target, losses.write_loss, self._restart_with_log, report_problem)
        self.registry = PartitionRegistry(
            source,
            target,
            config,
            screen_of(self.clients, config),
            positions,
            self.period,
            self.memory,
            self.problems,
            report_problem,
            refuse=self.refuse,
            stream_dropped=self._stream_dropped,
        )
        streams = self.registry.streams
        watched = WatchedParts(streams, self._progress, link, self.memory, self.problems, metrics)
        self._health = HealthWatch(config, self.clients, watched, self.period)
        self._committer = OffsetCommitter(source, standby, streams.values, config, report_problem)
        self._events = TargetEvents(
            self.registry,
            self.period,
            standby,
            self.memory,
            metrics,
            self._progress,
            committer=self._committer,
            config_sync=self._config_sync,
            initial_position=InitialPosition(source, target, losses),
            refused_records=RefusedRecords(config, losses, self._config_sync, report_problem),
            report_problem=report_problem,
            refuse=self.refuse,
        )
        gaps = GapResolver(
            source,
            losses,
            config,
            streams,
            self._backoffs,
            self.period,
            check_again=self.registry.check_again,
            count_duplicates=self._events.records_doubled,
        )
        self.reader = SourceReader(
            source, config, self.registry, gaps, self._backoffs, self.period, self.memory, metrics, report_problem
        )
        for side in ("source", "target"):
            self.problems.start(side)

    # -- start and stop --------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Mirror until `stop` is set; then wait for the acknowledgements in flight, commit, and close."""
        async with asyncio.TaskGroup() as tasks:
            syncing = self._config_sync.run(self.registry.streams.values, self.config.refresh_interval_ms / 1000)
            loops = self._mirror(tasks), self._committer.run(), self._health.run(), syncing, self.clients.standby.run()
            mirroring, *others = [tasks.create_task(loop) for loop in (*loops, self._health.ask_ends())]
            await _first_set(stop, self._refused)
            await self._wind_up(mirroring)
            for task in others:
                task.cancel()
        await self._commit_last()
        await self._close()

    async def _wind_up(self, mirroring: asyncio.Task[None]) -> None:
        mirroring.cancel()
        if not self.period.is_active:
            return
        if not self._events.fenced_by:  # else no response to any batch will come
            await self.period.finish()
        await self._end_period()

    async def _commit_last(self) -> None:
        try:
            await self._committer.commit_all()
            async with asyncio.timeout(self.config.stop_timeout_ms / 1000):
                if self.registry.streams:
                    await self.period.sessions.stop(self.registry.streams.values())
                await self.clients.standby.leave()
        except (SourceError, TargetError, WireError, TimeoutError) as error:
            _log.warning("last_commit_failed", error=error)

    async def _close(self) -> None:
        source, target, ledger, *_ = self.clients
        await asyncio.gather(source.close(), target.close(), ledger.close())
        _log.info("stopped")

    def refuse(self, text: str) -> None:
        """End `run`: the two ends are one cluster."""
        if not self.refusal:
            _log.error("same_cluster_refused", error=text)
        self.refusal = text
        self._report_problem("target", text)
        self._refused.set()

    def retry_now(self) -> None:
        """Start all waiting attempts at once: the network has changed."""
        self._network_changed.set()
        source, target, ledger, *_ = self.clients
        for end in (source, target, ledger):
            end.retry_now()

    # -- active periods --------------------------------------------------------------------------------------------

    async def _mirror(self, tasks: asyncio.TaskGroup) -> None:
        """Run one active period after another, each once the group names this mirror."""
        backoff = new_backoff(self.config)
        while True:
            await self.clients.standby.until_writes()
            self.period.start(tasks, self._events)
            try:
                await self._read_with_retries()
            except OvertakenError as error:
                _log.error("mirror_fenced", by="another mirror of this site", error=error)
                self._report_problem("target", f"another mirror has taken over: {error}")
            except NotOurTurnError as error:
                self._report_problem("source", "")
                self._report_problem("target", "")
                _log.warning("standby_entered", reason=error)
            except OriginsChangedError as error:
                _log.info("origins_changed", topic=error, action="none: new epochs tell of it")
            self.registry.drop_all()
            await self._end_period()
            self._events.fenced_by = ""
            await asyncio.sleep(backoff.next_s())

    async def _end_period(self) -> None:
        for name in await self.period.end():
            self._report_problem(name, "")

    async def _read_with_retries(self) -> None:
        """Read until the active period is over; after an error of the source, reconnect with backoff."""
        backoff = new_backoff(self.config)
        while True:
            opened_at = time.monotonic()
            try:
                self.registry.require_check(self.registry.streams)
                await self._read()
            except NotOurTurnError:
                raise
            except SourceError as error:
                self._report_problem("source", str(error))
            if time.monotonic() - opened_at > STEADY_S:
                backoff.reset()
            self.metrics.restarts.labels("source").inc()
            await self.clients.source.close()
            self._network_changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff.next_s()):
                    await self._network_changed.wait()

    async def _read(self) -> None:
        refresh_at, backoff, registry = 0.0, new_backoff(self.config), self.registry
        while True:
            if self._events.fenced_by:
                raise OvertakenError(self._events.fenced_by)
            if not self.clients.standby.writes:
                raise NotOurTurnError("the group has given the word to another mirror")
            if registry.must_check:
                await registry.check_positions()
            if time.monotonic() >= refresh_at or any(stream.may_go_back for stream in registry.streams.values()):
                all_read = await registry.discover()
                self._report_problem("source", "")
                if all_read:
                    backoff.reset()
                refresh_s = self.config.refresh_interval_ms / 1000
                refresh_at = time.monotonic() + (refresh_s if all_read else min(refresh_s, backoff.next_s()))
            if await self.reader.read_batches():
                refresh_at = min(refresh_at, time.monotonic() + backoff.next_s())

    def _restart_with_log(self, stream: PartitionStream) -> None:
        self.period.sender.begin_anew(stream)

    def _stream_dropped(self, stream: PartitionStream) -> None:
        partition = stream.partition
        self._backoffs.forget(partition)
        self._progress.forget(partition)
        self._health.forget(stream)
        self._config_sync.forget(partition.topic)
        with contextlib.suppress(KeyError):
            self.metrics.lag.remove(partition.topic, str(partition.partition))

    # -- state for reports -----------------------------------------------------------------------------------------

    @property
    def is_unfenced(self) -> bool:
        """Whether the target accepts batches that an older mirror still sends."""
        return self.period.is_unfenced

    def trouble(self) -> str:
        """Return what is wrong in one line, or empty text."""
        return "; ".join(self.problems.sentences())

    def notes(self) -> list[str]:
        """Return a sentence for each kind of topics that are left out in part, and for lost state topics."""
        return [*self.registry.admission.screen.notes(), *self._events.notes]

    def report(self) -> Report:
        """Return the state of both sides, the link and all partitions."""
        return self._health.report()

    def _report_problem(self, name: str, text: str) -> None:
        self.problems.note(name, text, time.monotonic())


async def _first_set(*events: asyncio.Event) -> None:
    """Wait until one of these is set."""
    waiters = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiter in waiters:
            waiter.cancel()
