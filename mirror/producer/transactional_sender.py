"""Sends batches in transactions: they go while a transaction is open, and are safe once it is committed.

| a stream | in addition to sender.py |
|---|---|
| has something to send | it asks for the open transaction, or the next one, and goes once it is in it |
| has a batch acknowledged | the batch is kept (`uncommitted`) until the commit |
| is refused, and nothing has arrived | as without transactions; acknowledged batches are committed with the others |
| is refused otherwise, or gets no response | the transaction broke off: all streams start again, by what is committed |

One transaction is open at a time, over all streams, so that its four round trips serve all; while it ends, the next
batches are read. Does not contain: states and size of a transaction (transaction.py), epochs and state
(transactional_sessions.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence

from edge_broker.errors import ErrorCode, error_name
from edge_broker.protocol.messages.produce import ProduceResponse
from mirror.client.target_client import Target
from mirror.errors import OvertakenError, TargetError
from mirror.link.link_model import InFlightRequest, Link
from mirror.partition.send_state import RESTING, SENDING, UNSURE
from mirror.partition.stream import Batch, PartitionStream
from mirror.producer.batching import Job
from mirror.producer.delivery_resolver import DeliveryResolver
from mirror.producer.sender import Host, Sender, Settings
from mirror.producer.target_connection import TargetConnection
from mirror.producer.transactional_resolver import TransactionalResolver
from mirror.session.marker_partitions import InSync
from mirror.session.transaction import Event, State, Transaction, bytes_max, held_max, takes_s
from mirror.session.transactional_sessions import TROUBLE, NotCommittedError, TransactionalSessions


class TransactionalSender(Sender):
    """Sends for all streams, as `Sender`; `idle` is set while no transaction is open."""

    def __init__(
        self,
        target: Target,
        sessions: TransactionalSessions,
        link: Link,
        settings: Settings,
        host: Host,
        memory_bytes: int,
    ) -> None:
        """`memory_bytes` is the bound of the source batches that are not safe yet."""
        super().__init__(target, sessions, link, settings, host)
        self.pack = self._pack
        self._memory_bytes = memory_bytes
        self.idle = asyncio.Event()
        self.idle.set()
        self._sessions = sessions
        self.in_sync = InSync(target)
        self._streams: set[PartitionStream] = set()
        self.committed_records: dict[PartitionStream, int] = {}  # of a session, up to the last commit
        self._asking: dict[PartitionStream, None] = {}  # streams that have something to send
        self._transaction: Transaction | None = None
        self._in: set[PartitionStream] = set()  # the streams of that
        self._wake, self.step = asyncio.Event(), asyncio.Event()
        self.why_broken, self._was_fenced = "", False  # of a transaction that broke off and is not resolved yet

    def _make_resolver(self) -> DeliveryResolver:
        return TransactionalResolver(
            self.target,
            self.sessions,
            self.host,
            self,
            self.placement,
            self.refusals,
            self.isolation,
            self.make_backoff,
            self,
        )

    @property
    def resolved_event(self) -> asyncio.Event:
        """An event that is set while no transaction is broken."""
        return self._sessions.settled

    # -- tasks

    async def run(self) -> None:
        """Wait for ever; raise an exception that leaves one of the tasks, which is a bug."""
        task = asyncio.ensure_future(self._transact())
        self._tasks.add(task)
        task.add_done_callback(self.task_ended)
        await super().run()

    async def finish(self) -> None:
        """Take nothing more, and wait until all batches in flight are answered and committed."""
        await super().finish()
        self.step.set()
        await self.idle.wait()

    def start(self, stream: PartitionStream) -> None:
        """Begin to send the batches that this stream reads."""
        self._streams.add(stream)
        super().start(stream)

    def drop(self, stream: PartitionStream) -> None:
        """Send nothing of it any more; its batches in flight must not be committed."""
        if stream in self._in and (stream.uncommitted or stream.flight):
            self.break_off(f"{stream.name} is mirrored no more")
        self._in.discard(stream)
        self._streams.discard(stream)
        self.committed_records.pop(stream, None)
        self._asking.pop(stream, None)
        self.in_sync.forget(stream)
        super().drop(stream)
        self.step.set()

    def connection_lost(self, connection: TargetConnection) -> None:
        """Note that a connection ended: without its broker, partitions may lack replicas from now on."""
        self.in_sync.forget()
        super().connection_lost(connection)

    # -- batches of a transaction

    def take(self, stream: PartitionStream, bytes_max: int) -> Batch | Job | None:
        """Take the stream's next batch, if it is in a transaction with room; otherwise it asks for the next one."""
        if stream.send_state is not SENDING or stream.packing:
            return None
        if self._is_left_behind(stream):
            return None
        one = self._transaction
        if one is None or stream not in self._in or not one.has_room or _is_committed_alone(stream):
            self._asking[stream] = None
            self._wake.set()
            self.step.set()
            return None
        taken = super().take(stream, bytes_max)
        if taken is not None:
            pieces = taken.pieces
            one.take(taken.size, sum(len(piece.batch) for piece in pieces))
        self.step.set()
        return taken

    def is_stale(self, stream: PartitionStream) -> bool:
        """Return whether the session of a stream has an epoch that is over."""
        return stream.state is None or stream.state.session[:2] != (self._sessions.producer or ())[:2]

    def _is_left_behind(self, stream: PartitionStream) -> bool:
        """Return whether its session is over; then it starts again."""
        if not self.is_stale(stream):
            return False
        self.resolver.mark_unsure(stream)
        return True

    def _is_remembered(self, stream: PartitionStream, batch: Batch) -> bool:
        """Return True: a batch accepted after a refusal breaks the transaction off, and does not count."""
        return True

    def _on_acked(self, stream: PartitionStream, batch: Batch) -> None:
        stream.uncommitted.append(batch)

    def _response_received(
        self, batches: Sequence[Batch], mark: InFlightRequest, done: asyncio.Future[ProduceResponse]
    ) -> None:
        super()._response_received(batches, mark, done)
        self.step.set()

    async def _pack(self, jobs: Sequence[Job]) -> list[Batch]:
        made = await self.packer.pack(jobs)
        self.step.set()  # evaluated once they are posted
        return made

    # -- transactions, one after the other

    async def _transact(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self.why_broken and self._asking and not self.stopping:
                async with self._sessions.turn:
                    await self._one()
            if self.why_broken:
                await self._mend()

    async def _one(self) -> None:
        streams = await self._take_asking()
        if not streams or self.why_broken or not self._sessions.settled.is_set():
            return
        self.transactional_id = self._sessions.transactional_id
        link, now = self.link, asyncio.get_running_loop().time()
        seconds = takes_s(link.round_trip_s, self._sessions.timeout_s)
        one = self._transaction = Transaction(
            now, seconds, bytes_max(link.rate, seconds), held_max(self._memory_bytes, is_fast=link.is_fast)
        )
        self.idle.clear()
        try:
            await self._admit_all([self._sessions.partition], streams)
            one.due_at += asyncio.get_running_loop().time() - now  # the target starts it with the first partition
            await self._until_answered(one)
            await self._commit(one)
        except TargetError as error:
            self.break_off(str(error), was_fenced=isinstance(error, NotCommittedError))
            return
        except asyncio.CancelledError:
            self._sessions.unsure()
            raise
        if one.stands(State.COMMITTED):
            self._transaction_committed()

    async def _take_asking(self) -> list[PartitionStream]:
        """Take the streams that ask and may go; one whose session is over asks again once it has another."""
        asking, self._asking = self._asking, {}
        streams = [stream for stream in asking if self._may_go(stream)]
        for stream, problem in (await self.in_sync.problems(streams)).items():
            if self._may_go(stream) and stream.send_state not in RESTING:
                self.resolver.back_off(stream, problem)
        streams = [stream for stream in streams if stream.send_state not in RESTING and self._may_go(stream)]
        chosen = chosen_together(streams, self._in)
        self._asking.update(dict.fromkeys(stream for stream in streams if stream not in chosen))
        return chosen

    def _may_go(self, stream: PartitionStream) -> bool:
        return not (stream.is_gone or stream.is_unsure or self._is_left_behind(stream))

    async def _admit_all(self, more: list[tuple[str, int]], streams: Iterable[PartitionStream]) -> None:
        """Add these streams to the transaction; report one that the target refuses, and let it wait."""
        places = {(stream.target_topic, stream.partition.partition): stream for stream in streams}
        refused = await self._sessions.add([*more, *places])
        for at, code in refused.items():
            problem = f"the target takes no transaction for it: {error_name(code)}"
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # deleted, and the start of its session with it
                self.host.report_problem(places[at].name, problem)
                self.target.look_anew(at[0])
                self.resolver.mark_unsure(places[at])
            else:
                self.target.forget(at[0])
                self.resolver.back_off(places[at], problem)
        admitted = [stream for at, stream in places.items() if at not in refused and not stream.is_gone]
        self._in.update(admitted)
        for stream in admitted:
            self.consider(stream)
            if stream.buffer and stream.connection is not None:  # it lingers no longer: the transaction does not wait
                stream.connection.put(stream)

    async def _until_answered(self, one: Transaction) -> None:
        """Send batches until it is full, due, or nothing is left; then wait for the responses."""
        loop = asyncio.get_running_loop()
        while one.stands(State.OPEN, State.CLOSING):
            self.step.clear()
            streams = await self._take_asking() if one.stands(State.OPEN) and not self.stopping else []
            if streams and one.stands(State.OPEN):
                await self._admit_all([], streams)
                continue
            self._asking.update(dict.fromkeys(streams))  # it was full meanwhile
            if one.stands(State.OPEN) and loop.time() >= one.due_at:
                one.on(Event.DUE)
            elif one.stands(State.OPEN) and not self._has_more():
                one.on(Event.IDLE)
            if one.stands(State.CLOSING) and not self._is_answering():
                one.on(Event.ANSWERED)
                return
            left_s = max(0.0, one.due_at - loop.time()) if one.stands(State.OPEN) else None
            try:
                async with asyncio.timeout(left_s):
                    await self.step.wait()
            except TimeoutError:
                continue

    def _is_answering(self) -> bool:
        return bool(self._under_way) or any(stream.packing for stream in self._in)

    def _has_more(self) -> bool:
        """Return whether its streams have batches about to be sent, or waiting for responses to earlier ones."""
        return any(self._has_its_turn(stream) for stream in self._in if not stream.is_unsure)

    def _has_its_turn(self, stream: PartitionStream) -> bool:
        is_full = bool(stream.buffer) and len(stream.flight) >= self._batches_max(stream)
        return stream.packing or is_full or stream in stream.connection.ready or stream in stream.connection.sparse

    async def _commit(self, one: Transaction) -> None:
        if not one.stands(State.STORING):
            return
        states = [stream.state for stream in self._in if stream.state is not None and stream.state.is_behind]
        writes = await self._sessions.store(states)
        if not one.stands(State.STORING):
            return
        one.on(Event.STORED)
        await self._sessions.commit()
        if not one.stands(State.COMMITTING):
            return  # it is committed nevertheless, as the state topic shows
        one.on(Event.COMMITTED)
        self._sessions.writes_committed(writes)

    def _transaction_committed(self) -> None:
        streams, self._in, self._transaction = self._in, set(), None
        self.host.transaction_ended("committed")
        self.in_sync.transaction_committed(stream for stream in streams if stream not in self._failures)
        for stream in streams:
            batches, stream.uncommitted = stream.uncommitted, []
            for batch in batches:
                self.mark_acked(stream, batch)
                assert batch.sent is not None
                self.committed_records[stream] = batch.sent.records_before + batch.sent.size
        self.idle.set()
        for stream in streams:
            self.consider(stream)
        for connection in self.assignment.target_connections:
            connection.wake.set()
        if self._asking:
            self._wake.set()

    # -- transactions that break off

    def break_off(self, why: str, *, was_fenced: bool = False) -> None:
        """Make all streams start again, once the outcome of the transaction is known."""
        if self.why_broken:
            return
        self.why_broken, self._was_fenced = why, was_fenced
        self._sessions.settled.clear()
        if self._transaction is not None:
            self._transaction.on(Event.BROKE, why)
        for stream in self._streams:
            if stream.send_state not in UNSURE:
                self.resolver.mark_unsure(stream)
        self._wake.set()
        self.step.set()

    async def _mend(self) -> None:
        async with self._sessions.turn:
            one, why = self._transaction, self.why_broken
            if one is None:
                self._sessions.unsure()
            else:
                try:
                    await self._sessions.resolve(one.began_at, why, was_fenced=self._was_fenced)
                except OvertakenError as error:
                    self.host.mirror_fenced(str(error))
                    await asyncio.get_running_loop().create_future()  # the host ends it
            self._transaction, self._in, self.why_broken = None, set(), ""
            self.idle.set()
            self._sessions.settled.set()

    def tick(self) -> None:
        """Also report that all is well if nothing is left to be sent: no commit will report it."""
        super().tick()
        if not self.why_broken and all(stream.is_drained and not stream.is_unsure for stream in self._streams):
            self.host.report_problem(TROUBLE, "")


def _is_committed_alone(stream: PartitionStream) -> bool:
    """Return whether a suspect's next batch belongs to the next transaction: each of its batches is committed alone.

    A batch in flight that waits to be sent again is itself the next one.
    """
    is_suspect = stream.is_alone and stream.suspicion.times
    return is_suspect and bool(stream.uncommitted or any(batch.mark is not None for batch in stream.flight))


def chosen_together(asking: Sequence[PartitionStream], inside: Collection[PartitionStream]) -> list[PartitionStream]:
    """Return those that may join the streams inside a transaction: a suspect has a transaction of its own."""
    if any(stream.is_alone for stream in inside):
        return []
    plain = [stream for stream in asking if not stream.is_alone]
    return plain if plain or inside else list(asking[:1])
