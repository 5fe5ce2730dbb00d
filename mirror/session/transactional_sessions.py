"""Starts producer sessions in transactions: one epoch for all streams, and state that is committed with the records.

| producer_sessions.py | in transactions |
|---|---|
| fences some streams alone | new ones, between two transactions; if any other starts again, all start again |
| looks up its last batch | the state topic, read as committed, tells; the lookup, whether the target lost its end |
| writes steps before batches, positions seldom | writes both at the end of each transaction (`store`) |
| continues without a fence | waits, and reports why |

If a stream's head is of a session without transactions, it is committed before the first batch. Otherwise the remains
of an aborted first transaction could be taken for mirrored records. The same holds for a stream that starts in another
log: otherwise each session before its first commit would start again, and forget a batch that is being split.

A transaction that broke off is resolved before any other request for its id (`resolve`; `classify` in transaction.py).
`turn` is held while one is open. If a partition takes no marker, another id carries on (transactional_ids.py).
Does not contain: batches, and when a transaction ends (producer/transactional_sender.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

from drupelet.backoff import Backoff
from drupelet.observe.log_tree import Log
from edge_broker.errors import ErrorCode, error_name
from kafka_wire.cluster import Partition
from kafka_wire.connection.errors import WireError
from kafka_wire.transactions.fencing import BOUND_S, Fence, Meanwhile, NoFence, OutOfPatience
from kafka_wire.transactions.last_batch_lookup import LookupResult
from mirror.client.target_client import Target
from mirror.errors import OvertakenError, TargetError
from mirror.partition.resume_rules import ResumePoint
from mirror.partition.state_records import Reading, Record, StoredState, no_spare_record, spare_record
from mirror.partition.stream import PartitionStream
from mirror.partition.target_state import PartitionState, Write
from mirror.session.marker_partitions import InSync
from mirror.session.producer_sessions import ProducerSessions, is_marked_by, map_errors
from mirror.session.session_start import Host, StartedSession
from mirror.session.transaction import BrokenTransaction, Producer, Verdict, classify
from mirror.session.transactional_ids import MARKERS_S, RETURN_S, Id, Ids, spare_ids

_log = Log("mirror")

TROUBLE = "transaction"
NAMED_MAX = 3  # partitions in one log line
Writes = list[tuple[PartitionState, Write]]


class NotCommittedError(TargetError):
    """The target has a newer epoch: another mirror, or the timeout, has ended the transaction."""


@contextlib.contextmanager
def as_newer() -> Iterator[None]:
    """Raise OvertakenError as NotCommittedError: the coordinator must say which producer has the id now."""
    try:
        with map_errors():
            yield
    except OvertakenError as error:
        code = str(error).rpartition(": ")[2]
        raise NotCommittedError(f"the target goes by a newer epoch ({code})") from error


class TransactionalSessions(ProducerSessions):
    """The sessions of one active period, as `ProducerSessions`; `producer` is None while no epoch is in force."""

    def __init__(
        self,
        target: Target,
        name: str,
        replicas: int,
        host: Host,
        backoff: tuple[float, float],
        timeout_ms: int,
    ) -> None:
        """`timeout_ms` is requested for one transaction; the target may allow less."""
        super().__init__(target, name, replicas, host, backoff)
        self._topic = target.state_topic(name, transactional_id=name)
        names = [name, *spare_ids(name)]
        own, *spares = (Id(one, number, target.transactions(one, timeout_ms)) for number, one in enumerate(names))
        for one in (own, *spares):
            one.transactions.markers_s = MARKERS_S
        self._ids = Ids(own, spares, self._topic.partition)
        self.transactions = self._fencing = own.transactions
        self._on_spare = asyncio.Event()
        self._in_sync = InSync(target)
        self.producer: Producer | None = None
        self.turn = asyncio.Lock()
        self.settled = asyncio.Event()
        self.settled.set()
        self._asking_again = Backoff(*backoff)
        self._was_asked_again = False  # whether a commit was repeated under this epoch
        self._read: tuple[str | None, Reading, int] | None = None  # the topic's id, the committed state, its end
        self._answered: list[Record] = []  # of the last commit: only a read of the topic proves it

    @property
    def transactional_id(self) -> str:
        """The id of the transactions that are begun now."""
        return self._ids.current.name

    @property
    def timeout_s(self) -> float:
        """The seconds after which the coordinator aborts a transaction."""
        return self.transactions.transaction_timeout_ms / 1000

    @property
    def partition(self) -> Partition:
        """The state topic's partition, which is in every transaction."""
        return self._topic.partition

    async def run(self) -> None:
        """Start sessions and write the state, until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super().run())
            tasks.create_task(self._leave_spare())

    # -- start of sessions

    async def _begin(
        self, waiting: dict[PartitionStream, asyncio.Future[StartedSession]]
    ) -> dict[PartitionStream, StartedSession | TargetError]:
        while True:
            await self.settled.wait()
            async with self.turn:
                if self.settled.is_set():
                    await self._choose_id()
                    return await super()._begin(waiting)

    async def _choose_id(self) -> None:
        """Choose an id that can begin a transaction, for the next epoch."""
        ids = self._ids
        if self._is_unsure:
            await self._change_id()
        else:
            await ids.refresh()
        if ids.is_spare or ids.unmarked_partitions:
            await self._leave_out_short()

    async def _leave_out_short(self) -> None:
        """Refuse streams whose partitions would take no marker now: no further id could carry on for the others."""
        for stream, problem in (await self._in_sync.problems(list(self._waiting))).items():
            waiting = self._waiting.pop(stream)
            if not waiting.done():
                waiting.set_exception(TargetError(problem))
                waiting.exception()  # the caller may be gone

    async def _change_id(self) -> None:
        ids = self._ids
        was = ids.current
        await ids.choose()
        self.transactions = self._fencing = ids.current.transactions
        self._topic.transactional_id = ids.current.name
        if ids.is_spare:
            self._on_spare.set()
        else:
            self._on_spare.clear()
        if ids.current is not was:
            held = [f"{topic}-{number}" for topic, number in sorted(ids.unmarked_partitions)[:NAMED_MAX]]
            _log.warning("transactional_id_changed", transactional_id=ids.current.name, partitions_without_end=held)

    async def _leave_spare(self) -> None:
        """Start all sessions again under the own id, once that is free."""
        while True:
            await self._on_spare.wait()
            await asyncio.sleep(RETURN_S)
            async with self.turn:
                if self._is_unsure or not self.settled.is_set():
                    continue
                with contextlib.suppress(TargetError), map_errors():  # the next round asks again
                    if await self._ids.own.is_free():
                        self._on_spare.clear()
                        self.unsure()
                        self._failed.set()

    async def _fence(self, chosen: Callable[[], list[Partition]], meanwhile: Meanwhile) -> Fence | None:
        def choose_marked() -> list[Partition]:
            return [at for at in chosen() if at not in self._ids.unmarked_partitions]

        try:
            if self._is_unsure:
                fence = await self.transactions.begin_with(choose_marked, meanwhile)
                self._was_asked_again = False
            else:
                fence = await self._extend(choose_marked())
        except NoFence as error:
            if self._ids.is_spare:
                self._ids.refuse_spares(str(error))
            raise TargetError(f"transactions = true, but the target runs none for us: {error}") from error
        self._fenced_at, self.producer = asyncio.get_running_loop().time(), Producer(*fence[:2])
        left = self._ids.unmarked_partitions.intersection(self._fenced)
        return fence._replace(refused=fence.refused | dict.fromkeys(left, int(ErrorCode.CONCURRENT_TRANSACTIONS)))

    async def _extend(self, partitions: list[Partition]) -> Fence:
        try:
            return await self.transactions.extend(partitions)
        except OutOfPatience:  # a marker of the last fence, or transaction, is missing: another id may carry on
            self.unsure()
            raise

    async def _begin_state(self, fence: Fence | None, read: dict[Partition, StoredState] | None) -> None:
        await super()._begin_state(fence, read)
        if self._ids.is_spare:
            try:
                await self._announce_spare()
            except BaseException:
                self.unsure()
                raise

    async def _announce_spare(self) -> None:
        """Announce the spare to mirrors that take the own id from now on; raises OvertakenError if one has before."""
        assert self.producer is not None
        one = self._ids.current
        await self._commit_records([spare_record(self._name, one.number, one.name, self.producer[:2])])
        end = asyncio.get_running_loop().time() + BOUND_S
        while (told := await self.transactions.describe()) is None or told.state != "CompleteCommit":
            if asyncio.get_running_loop().time() > end:
                raise TargetError(f"topic {self._name} shows no announcement of the spare transactional id")
            await self.target.pauses.wait(self._asking_again.next_s())
        self._asking_again.reset()
        if not await self._ids.own.is_ours():
            raise OvertakenError("the transactional id has a newer epoch")

    async def _fence_spares(self, found: dict[Partition, StoredState]) -> dict[Partition, StoredState]:
        assert self.producer is not None
        ids, is_marked = self._ids, is_marked_by(self._topic.marked_by, self.producer[:2])
        if ids.is_spare:  # no mirror is given an epoch of the own id, so none takes spares
            wanted = []
        else:
            wanted = [one for one in ids.spares if one.number in self._wanted_spares() and not ids.waits(one)]
        if wanted:
            found = await self._read_fenced({one.number: one.transactions for one in wanted})
        elif not is_marked:
            raise TargetError(f"topic {self._name} does not show its marker yet")
        if records := [no_spare_record(self._name, one.number) for one in wanted if one.number in self._announced]:
            await self._commit_records(records)
        return found

    async def _read_state(self) -> dict[Partition, StoredState]:
        """Return the state of each partition, reading only the last commit's records and later ones again.

        A coordinator that is killed after its response may end that commit without its markers; the next transaction
        aborts it then (Apache Kafka 4.3.1, if it starts before it knows the leaders).
        """
        topic_id, reading, offset = self._read or (None, Reading(), 0)
        self._read, self._answered = None, []
        if topic_id != self._topic.topic_id:  # created again
            reading, offset = Reading(), 0
        end = await self._topic.read(reading, offset)
        self._read = self._topic.topic_id, reading, end
        self._announced = reading.spares
        return reading.partitions()

    async def _begin_fenced(
        self, streams: list[PartitionStream], fence: Fence | None, early: Mapping[PartitionStream, LookupResult]
    ) -> dict[PartitionStream, StartedSession | TargetError]:
        others = {stream for stream in streams if not self._state(stream).session.is_transactional}
        found = await super()._begin_fenced(streams, fence, early)
        begun = [stream for stream in streams if isinstance(found[stream], StartedSession)]
        await self._commit([self._state(one) for one in begun if one in others or _is_in_another_log(found[one])])
        return found

    async def _enter(
        self, stream: PartitionStream, state: PartitionState, resumed: ResumePoint, end: int, fence: Fence | None
    ) -> None:
        assert fence is not None, "nothing goes on without one"
        state.begin(self._topics(stream), *fence[:2], resumed, end, is_transactional=True, origin=self._origin(stream))

    def note(self, stream: PartitionStream) -> None:
        """Do nothing: no state has to be stored before the transaction's end."""

    # -- write

    async def add(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Add these to the transaction; return the codes of those that are refused. Raises TargetError.

        It also raises if a commit of this epoch was repeated: the first one may arrive late, and commit the transaction
        that would begin. Under the next epoch it is refused.
        """
        if self._was_asked_again:
            raise TargetError("a commit without a response may still be in flight: another epoch refuses it")
        with as_newer():
            refused = await self.transactions.add(partitions)
        if self.partition in refused:
            code = refused[self.partition]
            raise TargetError(f"topic {self.partition[0]} takes no transaction: {error_name(code)}")
        return refused

    async def store(self, states: Iterable[PartitionState]) -> Writes:
        """Write these in the open transaction; raises TargetError."""
        writes = [(state, state.write()) for state in states]
        with as_newer():
            await self._topic.write([write.records for _, write in writes])
        return writes

    async def commit(self) -> None:
        """Commit the open transaction, repeating until it gets a response; NotCommittedError if it ended otherwise."""
        while True:
            try:
                code = await self.transactions.commit()
            except (WireError, OSError) as error:
                self._was_asked_again = True
                if await self._is_decided():
                    self.host.report_problem(TROUBLE, "")
                    return
                self.host.report_problem(TROUBLE, f"whether it is committed is not known yet: {error}")
                await self.target.pauses.wait(self._asking_again.next_s())
                continue
            self._asking_again.reset()
            self.host.report_problem(TROUBLE, "")
            if code:
                raise NotCommittedError(f"the commit is refused ({error_name(code)})")
            return

    async def _is_decided(self) -> bool:
        """Return whether a commit without a response stands, though a partition may have no marker yet."""
        assert self.producer is not None
        try:
            told = await self.transactions.describe()
        except (WireError, OSError):
            return False
        return told is not None and told[1:3] == self.producer[:2] and told.state == "PrepareCommit"

    async def _commit(self, states: Sequence[PartitionState]) -> None:
        """Store these in a transaction of their own."""
        if states:
            self.writes_committed(await self._commit_alone(lambda: self.store(states)))

    async def _commit_records(self, records: list[Record]) -> None:
        """Write these in a transaction of their own."""

        async def write() -> Writes:
            with as_newer():
                await self._topic.write([records])
            return []

        await self._commit_alone(write)
        self._answer(records)

    async def _commit_alone(self, store: Callable[[], Awaitable[Writes]]) -> Writes:
        """Run `store` in a transaction of its own."""
        began_at = asyncio.get_running_loop().time()
        try:
            await self.add([self.partition])
            writes = await store()
            await self.commit()
        except asyncio.CancelledError:
            self.unsure()
            raise
        except TargetError as error:
            await self.resolve(began_at, str(error), was_fenced=isinstance(error, NotCommittedError))
            raise TargetError(f"the state cannot be written: {error}") from error
        return writes

    def writes_committed(self, writes: Writes) -> None:
        """Note the writes of a transaction that is committed."""
        for state, write in writes:
            state.write_stored(write)
        self._answer([record for _, write in writes for record in write.records])

    def _answer(self, records: list[Record]) -> None:
        """Note the records of the last commit."""
        if self._read is not None and records:
            topic_id, reading, _ = self._read
            for key, value in self._answered:
                reading.take(key, value)
            self._answered = records
            self._read = (topic_id, reading, self._topic.written_from) if self._topic.written_from >= 0 else None

    async def _write_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._due or self._is_unsure:
                continue
            async with self.turn:
                due, self._due = self._due, set()
                try:
                    await self._commit([state for state in due if state.is_behind and self._holds(state)])
                except OvertakenError as error:
                    self.host.mirror_fenced(str(error))
                except TargetError as error:
                    self.host.report_problem("state topic", str(error))
                    self._failed.set()

    def _holds(self, state: PartitionState) -> bool:
        return self._states.get(state.partition) is state

    async def _look_at_topic(self) -> None:
        """Leave the check to the next commit: if that fails, all sessions start again."""

    async def _renew(self) -> None:
        async with self.turn:
            if not self._is_unsure and self.settled.is_set():
                await super()._renew()

    async def stop(self, streams: Iterable[PartitionStream]) -> None:
        """Store the positions of streams that have moved; raises TargetError."""
        if not self._is_unsure and self.settled.is_set():
            states = [stream.state for stream in streams if stream.state is not None and stream.state.is_behind]
            await self._commit([state for state in states if self._holds(state)])

    # -- transactions that broke off

    def unsure(self) -> None:
        """Make all streams start under another epoch, by what is committed then."""
        self._is_unsure, self._stored, self.producer = True, None, None
        self._is_open = False  # another may lead the state topic
        self._states.clear()

    async def resolve(self, began_at: float, why: str, *, was_fenced: bool) -> None:
        """Resolve a transaction that broke off, however long that takes, and make all streams start again.

        The turn is held meanwhile. Raises OvertakenError if another mirror has the id now.
        """
        try:
            verdict = await self._verdict(began_at, was_fenced=was_fenced)
        finally:
            self.unsure()  # also if a stop cancels this: `stop` must not overwrite a state of unknown outcome
        if verdict == "another":
            raise OvertakenError(f"the transactional id has a newer epoch, which no timeout gave it: {why}")
        self.host.transaction_ended("timed_out" if verdict == "timed_out" else "broke_off")
        if verdict == "timed_out":
            timeout = f"{self.timeout_s:g} s"
            _log.warning("transaction_timed_out", after=timeout, reason=why, result="its records are sent again")
            self.host.report_problem(
                TROUBLE, f"one timed out at the target after {timeout}, its records are sent again: {why}"
            )
        else:
            _log.warning("transaction_broken", reason=why, result="uncommitted records are sent again")

    async def _verdict(self, began_at: float, *, was_fenced: bool) -> Verdict:
        while True:
            assert self.producer is not None
            try:
                with map_errors():
                    told = await self.transactions.describe()
                    written = None if told is not None else await self._writer()
            except TargetError as error:
                self.host.report_problem(TROUBLE, f"how it stands cannot be asked now: {error}")
                await self.target.pauses.wait(self._asking_again.next_s())
                continue
            self._asking_again.reset()
            self.host.report_problem(TROUBLE, "")
            broken = BrokenTransaction(self.producer, asyncio.get_running_loop().time() - began_at, was_fenced)
            described = None if told is None else Producer(told.producer_id, told.producer_epoch, told.state)
            return classify(broken, described, written, self.timeout_s)

    async def _writer(self) -> Producer | None:
        """Return the newest producer that has committed a head."""
        reading = Reading()
        await self._topic.read(reading)
        heads = [stored.head for stored in reading.partitions().values()]
        newest = max(((head.producer_id, head.producer_epoch) for head in heads), default=None)
        return None if newest is None else Producer(*newest)


def _is_in_another_log(found: StartedSession | TargetError) -> bool:
    return isinstance(found, StartedSession) and found.resumed.verdict in ("source_anew", "target_anew")
