"""Starts producer sessions at the target, and stores what a batch's sequences mean before the batch may go.

| step of `begin`, for all streams that wait | round trips |
|---|---|
| find or create the state topic, once | 1 to 3 |
| fence their partitions, and at the start the state topic's | 3, 4 with the coordinator's lookup |
| read the state topic, once | 1 and more |
| look up last batches in their logs | 2 and more, the first while the fence is confirmed, except at the start |
| write their heads | 1, with the first step of the first batch |

A stream starts a session at start-up, and whenever the outcome of a batch in flight is unknown. If no fence is possible
(`is_unfenced`), the previous session continues: then the operator must run one mirror at a time.
STATE.md has the reasons. Does not contain: where a stream continues (session_start.py, target_state.py,
resume_rules.py), batches (sender.py), the source's log and its epochs (position_check.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping

from drupelet.backoff import Backoff
from drupelet.observe.log_tree import Log
from edge_broker.errors import ErrorCode, error_name
from kafka_wire.cluster import Partition
from kafka_wire.connection.errors import WireError
from kafka_wire.transactions.fencing import Fence, Fencing, Meanwhile, NoFence, ProducerFenced
from kafka_wire.transactions.last_batch_lookup import LookupResult
from mirror.client.target_client import Target
from mirror.errors import OvertakenError, TargetError
from mirror.partition.state_records import Reading, StateError, StoredState, no_spare_record
from mirror.partition.stream import PartitionStream
from mirror.partition.target_state import PartitionState, Write
from mirror.session.foreign_epochs import ForeignEpochs
from mirror.session.session_start import Host, SessionStart, StartedSession, at_target
from mirror.session.transactional_ids import spare_ids

_log = Log("mirror")

POSITION_S = 1800.0  # after which a position that has moved is stored, if no other write included it
POSITION_RECORDS = 2**28  # after the stored position, that store it at once: a sequence distinguishes 2**30
RENEW_S = 12 * 3600.0
GATHER_S = 0.1  # that streams which may start wait for others
HEAD_S = 0.25  # that the head of a session waits for its first batch
LOOK_S = 60.0


class ProducerSessions(SessionStart):
    """The sessions of one active period; of one event loop. `is_unfenced` once the target has refused to fence."""

    def __init__(self, target: Target, name: str, replicas: int, host: Host, backoff: tuple[float, float]) -> None:
        """`name` is of the state topic and of the transactional id; `backoff` the first and longest wait in seconds."""
        super().__init__(target, host, target.state_topic(name))
        self.is_unfenced = False
        self._name, self._replicas = name, replicas
        self._fencing = target.fencing(name)
        self._announced: dict[int, str] = {}  # spare ids of a mirror with transactions, by the last read
        self._fenced: list[Partition] = []  # the partitions of the last fence
        self._foreign_epochs = ForeignEpochs()
        self._opening, self._is_open, self._was_opened = asyncio.Lock(), False, False
        self._is_unsure = True  # whether a write to the state topic may have arrived
        self._waiting: dict[PartitionStream, asyncio.Future[StartedSession]] = {}
        self._coming: set[PartitionStream] = set()
        self._arrived = asyncio.Event()
        self._asked, self._failed = asyncio.Event(), asyncio.Event()
        self._urgent: dict[PartitionState, PartitionStream] = {}
        self._due: set[PartitionState] = set()
        self._wake = asyncio.Event()
        self._backoff = Backoff(*backoff)
        self._fenced_at = 0.0

    @property
    def target_ms(self) -> int | None:
        """The latest time that the target's clock may show; None if unknown, or if the target does not fence."""
        return None if self.is_unfenced else self._topic.clock.now_ms

    # -- tasks

    async def run(self) -> None:
        """Start sessions, and write the state, until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for loop in (self._prepare(), self._begin_all(), self._ask_again(), self._write_all(), self._look_after()):
                tasks.create_task(loop)

    async def _prepare(self) -> None:
        """Do all that needs no stream while topics are created; a failure is reported when it is done again."""
        with contextlib.suppress(TargetError), map_errors():
            await self._open_with_epoch()

    async def _open(self) -> None:
        async with self._opening:
            if not self._is_open:
                before = self._topic.topic_id
                is_new = await self._topic.open(self._replicas)
                if self._was_opened and (is_new or self._topic.topic_id != before):
                    self._write_again()
                self._is_open = self._was_opened = True

    def _write_again(self) -> None:
        """Write all known state again: the state topic was deleted, and created again."""
        for partition, stored in (self._stored or {}).items():  # of partitions without a session yet
            head = stored.head._replace(first_chunk=stored.held_chunk)
            assert self._stored is not None
            self._stored[partition] = stored._replace(head=head)
            self._due.add(PartitionState(partition, head.topics, self._stored[partition]))
        self._due.update(self._states.values())
        for state in self._due:
            state.store_again()
        self._wake.set()
        self.host.state_topic_lost(self._name)

    async def _open_with_epoch(self, *, renew: bool = False) -> None:
        """Request the next epoch concurrently; a target without fences is reported when one is needed."""
        for error in await asyncio.gather(self._open(), self._fencing.prepare(renew=renew), return_exceptions=True):
            if isinstance(error, BaseException) and not isinstance(error, NoFence):
                raise error

    @contextlib.contextmanager
    def coming(self, stream: PartitionStream) -> Iterator[None]:
        """Note that a stream is about to start a session, if its present step succeeds."""
        self._coming.add(stream)
        try:
            yield
        finally:
            self._coming.discard(stream)
            if not self._coming:
                self._arrived.set()

    async def begin(self, stream: PartitionStream) -> StartedSession:
        """Start a session of a stream with nothing in flight; raises TargetError, and OvertakenError for good."""
        waiting = self._waiting.get(stream)
        if waiting is None:
            waiting = self._waiting[stream] = asyncio.get_running_loop().create_future()
            self._asked.set()
        return await asyncio.shield(waiting)

    def note(self, stream: PartitionStream) -> None:
        """Write the state that must be stored before the stream's next batch may go."""
        assert stream.state is not None
        self._urgent[stream.state] = stream
        self._wake.set()

    def _note_later(self, stream: PartitionStream, state: PartitionState) -> None:
        """Write the head of a session with the first step of its first batch, or alone if none comes soon."""

        def note() -> None:
            if (
                stream.state is state and not stream.is_gone
            ):  # if the topic was created again, its new stream has the state
                self.note(stream)

        asyncio.get_running_loop().call_later(HEAD_S, note)

    async def stop(self, streams: Iterable[PartitionStream]) -> None:
        """Store the positions of streams that have moved; raises TargetError."""
        behind = [stream.state for stream in streams if stream.state is not None and stream.state.is_behind]
        if behind and not self._is_unsure:
            with map_errors():  # after a write that was cut off, `_is_unsure` is set
                await self._topic.write([state.write().records for state in behind])

    # -- start of sessions

    async def _begin_all(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            waiting: dict[PartitionStream, asyncio.Future[StartedSession]] = {}
            try:
                with map_errors():
                    found = await self._begin(waiting)
            except OvertakenError as error:
                self.host.mirror_fenced(str(error))
                found = dict.fromkeys(self._take(waiting), error)
            except TargetError as error:
                found = dict.fromkeys(self._take(waiting), error)
                self.host.report_problem("state topic", str(error))
                if self._is_unsure:
                    self._failed.set()
            else:
                self._backoff.reset()
                self.host.report_problem("state topic", "")
            _resolve_waiting(waiting, found)
            self._wake.set()

    async def _ask_again(self) -> None:
        """Retry after a failure, though no stream waits: the state topic must be known to be intact."""
        while True:
            await self._failed.wait()
            self._failed.clear()
            await self.target.pauses.wait(self._backoff.next_s())
            self._asked.set()

    async def _begin(
        self, waiting: dict[PartitionStream, asyncio.Future[StartedSession]]
    ) -> dict[PartitionStream, StartedSession | TargetError]:
        """Start the sessions of all streams that wait once there is an epoch; `waiting` receives these streams."""
        with_state = self._is_unsure
        if with_state and not self._is_open:
            await self._open_with_epoch(renew=True)

        def choose_partitions() -> list[Partition]:
            self._fenced = [*map(at_target, self._take(waiting)), *([self._topic.partition] if with_state else [])]
            return self._fenced

        early: dict[PartitionStream, LookupResult] = {}

        read: dict[Partition, StoredState] | None = None

        async def meanwhile(fence: Fence) -> None:
            nonlocal read
            if self._stored is not None:
                early.update(await self._look_early(waiting, fence))
            elif with_state:
                read = await self._read_early(fence)

        await self._gather()
        fence = await self._fence(choose_partitions, meanwhile) if self._waiting or with_state else None
        streams = [stream for stream in waiting if not stream.is_gone]
        if with_state:
            await self._begin_state(fence, read)
        found: dict[PartitionStream, StartedSession | TargetError] = {}
        for stream in streams:
            code = 0 if fence is None else fence.refused.get(at_target(stream), 0)
            if code:
                found[stream] = TargetError(f"it cannot be fenced at the target: {_explain(code)}")
        return found | await self._begin_fenced([stream for stream in streams if stream not in found], fence, early)

    def _take(self, waiting: dict[PartitionStream, asyncio.Future[StartedSession]]) -> list[PartitionStream]:
        """Take all streams that wait."""
        some, self._waiting = self._waiting, {}
        waiting.update(some)
        return list(waiting)

    async def _fence(self, chosen: Callable[[], list[Partition]], meanwhile: Meanwhile) -> Fence | None:
        """Fence the chosen partitions once there is an epoch; return None if the target does not fence."""
        try:
            fence = await self._fencing.begin_with(chosen, meanwhile)
        except NoFence as error:
            if not self.is_unfenced:
                _log.warning(
                    "fencing_unavailable", error=error, action="make sure that only one mirror runs for this site"
                )
            self.is_unfenced = True
            await asyncio.sleep(self.host.others_s)
            chosen()
            return None
        self._foreign_epochs.epoch_given(*fence[:2])
        self.is_unfenced, self._fenced_at = False, asyncio.get_running_loop().time()
        return fence

    async def _gather(self) -> None:
        """Wait shortly for streams that are about to ask: fenced alone, they would wait for another epoch."""
        if self._coming:
            self._arrived.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GATHER_S):
                    await self._arrived.wait()

    async def _read_early(self, fence: Fence) -> dict[Partition, StoredState] | None:
        """Read the state while the markers are written; None if its own marker is not seen: then it is read again."""
        try:
            with map_errors():
                found = await self._read_state()
        except TargetError:
            return None  # the next read reports it
        return found if is_marked_by(self._topic.marked_by, fence[:2]) else None

    async def _begin_state(self, fence: Fence | None, read: dict[Partition, StoredState] | None) -> None:
        """Write under an epoch of this mirror alone, and read the state of earlier sessions unless it was `read` early.

        Raises OvertakenError if another mirror has written since: the state in memory is not valid any more.
        """
        if fence is None:
            producer = await self.target.producer()
            self._topic.begin(producer.id, producer.epoch)
        elif (code := fence.refused.get(self._topic.partition)) is not None:
            raise TargetError(f"topic {self._name} cannot be fenced: {error_name(code)}")
        else:
            if read is None and not fence.is_confirmed:
                read = await self._read_early(fence)
                if read is None:
                    raise TargetError(f"topic {self._name} cannot be fenced: its marker is not written yet")
            self._topic.begin(*fence[:2])
        if self._stored is None or self._foreign_epochs:
            found = await self._read_state() if read is None else read
            if fence is not None and (self._announced or not is_marked_by(self._topic.marked_by, fence[:2])):
                found = await self._fence_spares(found)
            if self._stored is None:
                self._stored = found
            elif any((one.head.producer_id, one.head.producer_epoch) in self._foreign_epochs for one in found.values()):
                raise OvertakenError("another mirror has written its state meanwhile")
        self._foreign_epochs.clear()
        self._is_unsure = False

    async def _read_state(self) -> dict[Partition, StoredState]:
        """Return the state of each partition in the state topic."""
        reading = Reading()
        await self._topic.read(reading)
        self._announced = reading.spares
        return reading.partitions()

    async def _fence_spares(self, found: dict[Partition, StoredState]) -> dict[Partition, StoredState]:
        """Take spare ids of mirrors with transactions, and return the state that no other mirror changes any more.

        `found` was read while some were announced, or without this mirror's marker in the state topic. In the second
        case a mirror is about to announce one, and its open transaction hides all that was committed since it began.
        """
        spares = {number: self.target.fencing(name) for number, name in self._wanted_spares().items()}
        found = await self._read_fenced(spares)
        if self._announced:
            await self._topic.write([[no_spare_record(self._name, number)] for number in self._announced])
            self._announced = {}
        return found

    def _wanted_spares(self) -> dict[int, str]:
        """Return the announced spare ids; all of them if one may be announced by now."""
        return self._announced or dict(enumerate(spare_ids(self._name), 1))

    async def _read_fenced(self, spares: Mapping[int, Fencing]) -> dict[Partition, StoredState]:
        """Return the state, read under the next epochs of spare ids: earlier transactions under them have ended."""
        try:
            for spare in spares.values():
                await spare.begin(self._fenced)
        except NoFence as error:
            raise TargetError(f"another mirror may use a spare transactional id: {error}") from error
        return await self._read_state()

    # -- write

    async def _write_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._is_unsure:
                continue
            urgent, self._urgent = self._urgent, {}
            due, self._due = self._due, set()
            some = [state for state in urgent if state.is_urgent] + [state for state in due if state not in urgent]
            if some:
                await self._write([(state, state.write()) for state in some], urgent)

    async def _write(
        self, writes: list[tuple[PartitionState, Write]], streams: dict[PartitionState, PartitionStream]
    ) -> None:
        try:
            with map_errors():
                await self._topic.write([write.records for _, write in writes])
        except asyncio.CancelledError:
            self._is_unsure = True
            raise
        except TargetError as error:
            self._is_unsure, self._is_open = True, False
            self._urgent = streams | self._urgent
            for state, write in writes:
                state.not_stored(write)
            self.host.report_problem("state topic", str(error))
            if isinstance(error, OvertakenError):
                self.host.mirror_fenced(str(error))
            else:
                self._failed.set()
            return
        for state, write in writes:
            state.write_stored(write)
            if state in streams:
                self.host.state_stored(streams[state])

    async def _look_after(self) -> None:
        """Store positions that have moved, and keep the coordinator from forgetting the transactional id."""
        loop = asyncio.get_running_loop()
        stored_at = loop.time()
        while True:
            await asyncio.sleep(LOOK_S)
            is_time = loop.time() - stored_at >= POSITION_S
            stored_at = loop.time() if is_time else stored_at
            self._due |= {
                state
                for state in self._states.values()
                if state.is_behind and (is_time or state.records_behind >= POSITION_RECORDS)
            }
            self._wake.set()
            await self._look_at_topic()
            if not (self.is_unfenced or self._is_unsure) and loop.time() - self._fenced_at >= RENEW_S:
                await self._renew()

    async def _look_at_topic(self) -> None:
        """Check whether the state topic was deleted; otherwise only the next write would, perhaps days later.

        Until then, mirrors that read it at the target would not recognise this one's records.
        """
        if self._is_unsure or not self._is_open:
            return
        with contextlib.suppress(TargetError), map_errors():  # it is away: the next check tells
            if not await self._topic.is_same():
                self._is_unsure, self._is_open = True, False
                self._failed.set()

    async def _renew(self) -> None:
        try:
            with map_errors():
                await self._fencing.extend([self._topic.partition])
        except OvertakenError as error:
            self.host.mirror_fenced(str(error))
        except TargetError as error:
            self.host.report_problem("state topic", str(error))
        else:
            self._fenced_at = asyncio.get_running_loop().time()
            self.host.report_problem("state topic", "")


def _explain(code: int) -> str:
    if code == ErrorCode.CONCURRENT_TRANSACTIONS:
        return f"{error_name(code)}: the transaction before has no end there yet; start the brokers that have it"
    return error_name(code)


def is_marked_by(marked_by: tuple[int, int] | None, session: tuple[int, int]) -> bool:
    """Return whether the last marker read in the state topic is of `session`: a producer id and its epoch."""
    return marked_by == session


def _resolve_waiting(
    waiting: dict[PartitionStream, asyncio.Future[StartedSession]],
    found: Mapping[PartitionStream, StartedSession | TargetError],
) -> None:
    for stream, future in waiting.items():
        if future.done():
            continue
        told = found.get(stream)
        if isinstance(told, StartedSession):
            future.set_result(told)
        elif told is None:
            future.cancel()
        else:
            future.set_exception(told)
            future.exception()  # the caller may be gone


@contextlib.contextmanager
def map_errors() -> Iterator[None]:
    """Raise the exceptions of the target's connections as TargetError."""
    try:
        yield
    except ProducerFenced as error:
        raise OvertakenError(str(error)) from error
    except (WireError, StateError, TimeoutError, OSError) as error:
        raise TargetError(str(error)) from error
