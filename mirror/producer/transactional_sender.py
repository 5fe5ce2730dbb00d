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
        lives: TransactionalSessions,
        link: Link,
        settings: Settings,
        host: Host,
        memory_bytes: int,
    ) -> None:
        """`memory_bytes` is the bound of the source batches that are not safe yet."""
        super().__init__(target, lives, link, settings, host)
        self.pack = self._pack
        self._memory_bytes = memory_bytes
        self.idle = asyncio.Event()
        self.idle.set()
        self._lives = lives
        self.in_sync = InSync(target)
        self._lanes: set[PartitionStream] = set()
        self.committed_records: dict[PartitionStream, int] = {}  # of a session, up to the last commit
        self._asking: dict[PartitionStream, None] = {}  # streams that have something to send
        self._transaction: Transaction | None = None
        self._in: set[PartitionStream] = set()  # the streams of that
        self._wake, self.step = asyncio.Event(), asyncio.Event()
        self.why_broken, self._was_fenced = "", False  # of a transaction that broke off and is not resolved yet

    def _make_resolver(self) -> DeliveryResolver:
        return TransactionalResolver(
            self.target,
            self.lives,
            self.host,
            self,
            self.placement,
            self.refusals,
            self.isolation,
            self.make_backoff,
            self,
        )

    @property
    def settled(self) -> asyncio.Event:
        """An event that is set while no transaction is broken."""
        return self._lives.settled

    # -- tasks

    async def run(self) -> None:
        """Wait for ever; raise an exception that leaves one of the tasks, which is a bug."""
        task = asyncio.ensure_future(self._transact())
        self._tasks.add(task)
        task.add_done_callback(self.ended)
        await super().run()

    async def finish(self) -> None:
        """Take nothing more, and wait until all batches in flight are answered and committed."""
        await super().finish()
        self.step.set()
        await self.idle.wait()

    def start(self, lane: PartitionStream) -> None:
        """Begin to send the batches that this stream reads."""
        self._lanes.add(lane)
        super().start(lane)

    def drop(self, lane: PartitionStream) -> None:
        """Send nothing of it any more; its batches in flight must not be committed."""
        if lane in self._in and (lane.uncommitted or lane.flight):
            self.break_off(f"{lane.name} is mirrored no more")
        self._in.discard(lane)
        self._lanes.discard(lane)
        self.committed_records.pop(lane, None)
        self._asking.pop(lane, None)
        self.in_sync.forget(lane)
        super().drop(lane)
        self.step.set()

    def connection_lost(self, pipe: TargetConnection) -> None:
        """Note that a connection ended: without its broker, partitions may lack replicas from now on."""
        self.in_sync.forget()
        super().connection_lost(pipe)

    # -- batches of a transaction

    def take(self, lane: PartitionStream, bytes_max: int) -> Batch | Job | None:
        """Take the stream's next batch, if it is in a transaction with room; otherwise it asks for the next one."""
        if lane.send_state is not SENDING or lane.packing:
            return None
        if self._is_left_behind(lane):
            return None
        one = self._transaction
        if one is None or lane not in self._in or not one.has_room or _is_committed_alone(lane):
            self._asking[lane] = None
            self._wake.set()
            self.step.set()
            return None
        taken = super().take(lane, bytes_max)
        if taken is not None:
            pieces = taken.pieces
            one.take(taken.size, sum(len(piece.batch) for piece in pieces))
        self.step.set()
        return taken

    def is_stale(self, stream: PartitionStream) -> bool:
        """Return whether the session of a stream has an epoch that is over."""
        return stream.state is None or stream.state.life[:2] != (self._lives.producer or ())[:2]

    def _is_left_behind(self, lane: PartitionStream) -> bool:
        """Return whether its session is over; then it starts again."""
        if not self.is_stale(lane):
            return False
        self.resolver.mark_unsure(lane)
        return True

    def _is_remembered(self, lane: PartitionStream, batch: Batch) -> bool:
        """Return True: a batch accepted after a refusal breaks the transaction off, and does not count."""
        return True

    def _on_acked(self, lane: PartitionStream, batch: Batch) -> None:
        lane.uncommitted.append(batch)

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
                async with self._lives.turn:
                    await self._one()
            if self.why_broken:
                await self._mend()

    async def _one(self) -> None:
        lanes = await self._asked()
        if not lanes or self.why_broken or not self._lives.settled.is_set():
            return
        self.transactional_id = self._lives.transactional_id
        link, now = self.link, asyncio.get_running_loop().time()
        seconds = takes_s(link.round_trip_s, self._lives.timeout_s)
        one = self._transaction = Transaction(
            now, seconds, bytes_max(link.rate, seconds), held_max(self._memory_bytes, is_fast=link.is_fast)
        )
        self.idle.clear()
        try:
            await self._admit_all([self._lives.partition], lanes)
            one.due_at += asyncio.get_running_loop().time() - now  # the target starts it with the first partition
            await self._until_answered(one)
            await self._commit(one)
        except TargetError as error:
            self.break_off(str(error), was_fenced=isinstance(error, NotCommittedError))
            return
        except asyncio.CancelledError:
            self._lives.unsure()
            raise
        if one.stands(State.COMMITTED):
            self._committed()

    async def _asked(self) -> list[PartitionStream]:
        """Take the streams that ask and may go; one whose session is over asks again once it has another."""
        asking, self._asking = self._asking, {}
        lanes = [lane for lane in asking if self._may_go(lane)]
        for lane, problem in (await self.in_sync.problems(lanes)).items():
            if self._may_go(lane) and lane.send_state not in RESTING:
                self.resolver.back_off(lane, problem)
        lanes = [lane for lane in lanes if lane.send_state not in RESTING and self._may_go(lane)]
        chosen = chosen_together(lanes, self._in)
        self._asking.update(dict.fromkeys(lane for lane in lanes if lane not in chosen))
        return chosen

    def _may_go(self, lane: PartitionStream) -> bool:
        return not (lane.is_gone or lane.is_unsure or self._is_left_behind(lane))

    async def _admit_all(self, more: list[tuple[str, int]], lanes: Iterable[PartitionStream]) -> None:
        """Add these streams to the transaction; report one that the target refuses, and let it wait."""
        places = {(lane.target_topic, lane.partition.partition): lane for lane in lanes}
        refused = await self._lives.add([*more, *places])
        for at, code in refused.items():
            problem = f"the target takes no transaction for it: {error_name(code)}"
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # deleted, and the start of its session with it
                self.host.tell(places[at].name, problem)
                self.target.look_anew(at[0])
                self.resolver.mark_unsure(places[at])
            else:
                self.target.forget(at[0])
                self.resolver.back_off(places[at], problem)
        admitted = [lane for at, lane in places.items() if at not in refused and not lane.is_gone]
        self._in.update(admitted)
        for lane in admitted:
            self.consider(lane)
            if lane.buffer and lane.pipe is not None:  # it lingers no longer: the transaction does not wait
                lane.pipe.put(lane)

    async def _until_answered(self, one: Transaction) -> None:
        """Send batches until it is full, due, or nothing is left; then wait for the responses."""
        loop = asyncio.get_running_loop()
        while one.stands(State.OPEN, State.CLOSING):
            self.step.clear()
            lanes = await self._asked() if one.stands(State.OPEN) and not self.stopping else []
            if lanes and one.stands(State.OPEN):
                await self._admit_all([], lanes)
                continue
            self._asking.update(dict.fromkeys(lanes))  # it was full meanwhile
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
        return bool(self._under_way) or any(lane.packing for lane in self._in)

    def _has_more(self) -> bool:
        """Return whether its streams have batches about to be sent, or waiting for responses to earlier ones."""
        return any(self._has_its_turn(lane) for lane in self._in if not lane.is_unsure)

    def _has_its_turn(self, lane: PartitionStream) -> bool:
        is_full = bool(lane.buffer) and len(lane.flight) >= self._batches_max(lane)
        return lane.packing or is_full or lane in lane.pipe.ready or lane in lane.pipe.sparse

    async def _commit(self, one: Transaction) -> None:
        if not one.stands(State.STORING):
            return
        states = [lane.state for lane in self._in if lane.state is not None and lane.state.is_behind]
        writes = await self._lives.store(states)
        if not one.stands(State.STORING):
            return
        one.on(Event.STORED)
        await self._lives.commit()
        if not one.stands(State.COMMITTING):
            return  # it is committed nevertheless, as the state topic shows
        one.on(Event.COMMITTED)
        self._lives.committed(writes)

    def _committed(self) -> None:
        lanes, self._in, self._transaction = self._in, set(), None
        self.host.transaction_ended("committed")
        self.in_sync.committed(lane for lane in lanes if lane not in self._failures)
        for lane in lanes:
            batches, lane.uncommitted = lane.uncommitted, []
            for batch in batches:
                self.mark_acked(lane, batch)
                assert batch.sent is not None
                self.committed_records[lane] = batch.sent.records_before + batch.sent.size
        self.idle.set()
        for lane in lanes:
            self.consider(lane)
        for pipe in self.dealing.pipes:
            pipe.wake.set()
        if self._asking:
            self._wake.set()

    # -- transactions that break off

    def break_off(self, why: str, *, was_fenced: bool = False) -> None:
        """Make all streams start again, once the outcome of the transaction is known."""
        if self.why_broken:
            return
        self.why_broken, self._was_fenced = why, was_fenced
        self._lives.settled.clear()
        if self._transaction is not None:
            self._transaction.on(Event.BROKE, why)
        for lane in self._lanes:
            if lane.send_state not in UNSURE:
                self.resolver.mark_unsure(lane)
        self._wake.set()
        self.step.set()

    async def _mend(self) -> None:
        async with self._lives.turn:
            one, why = self._transaction, self.why_broken
            if one is None:
                self._lives.unsure()
            else:
                try:
                    await self._lives.settle(one.began_at, why, was_fenced=self._was_fenced)
                except OvertakenError as error:
                    self.host.overtaken(str(error))
                    await asyncio.get_running_loop().create_future()  # the host ends it
            self._transaction, self._in, self.why_broken = None, set(), ""
            self.idle.set()
            self._lives.settled.set()

    def tick(self) -> None:
        """Also report that all is well if nothing is left to be sent: no commit will report it."""
        super().tick()
        if not self.why_broken and all(lane.is_drained and not lane.is_unsure for lane in self._lanes):
            self.host.tell(TROUBLE, "")


def _is_committed_alone(lane: PartitionStream) -> bool:
    """Return whether a suspect's next batch belongs to the next transaction: each of its batches is committed alone.

    A batch in flight that waits to be sent again is itself the next one.
    """
    is_suspect = lane.is_alone and lane.suspicion.times
    return is_suspect and bool(lane.uncommitted or any(batch.mark is not None for batch in lane.flight))


def chosen_together(asking: Sequence[PartitionStream], inside: Collection[PartitionStream]) -> list[PartitionStream]:
    """Return those that may join the streams inside a transaction: a suspect has a transaction of its own."""
    if any(lane.is_alone for lane in inside):
        return []
    plain = [lane for lane in asking if not lane.is_alone]
    return plain if plain or inside else list(asking[:1])
