"""Resolves what keeps a stream from sending: a batch of unknown outcome, a refusal, a session that is to start.

| the batches in flight, once the last response has come or the connection is lost | then |
|---|---|
| one is too large, or a record is refused, and nothing has arrived | it is split (failures/refusals.py) |
| another refusal by which nothing has arrived | the same batches are sent again, after a wait that grows |
| no response, or too few replicas, and the target still deduplicates (failures/retry_window.py) | they are sent again |
| all else | a new producer session: the target's log shows which batches arrived, the others are packed again |
| the producer's epoch is an old one | another mirror has taken over: the host stops this one |

Does not contain: what a response means (failures/produce_errors.py), requests (sender.py), connections
(leader_placement.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from drupelet.backoff import Backoff
from edge_broker.errors import ErrorCode, error_name
from mirror.client.append_time_clock import boot_s, wall_ms
from mirror.client.target_client import Target
from mirror.errors import OvertakenError, SameClusterError, TargetError
from mirror.partition.send_state import CREATING_TOPIC, DRAINING, GONE, RESOLVING, STARTING_SESSION, UNSURE
from mirror.partition.stream import Batch, PartitionStream
from mirror.partition.target_state import Contradiction
from mirror.producer.failures.batch_isolation import Break, Isolation
from mirror.producer.failures.produce_errors import (
    FENCED,
    LOST,
    MOVED,
    OPEN,
    SHORT,
    TAKEN_APART,
    first_refused,
    nothing_arrived,
)
from mirror.producer.failures.refusals import Refusals
from mirror.producer.failures.retry_window import YOUNG_S, may_be_sent_again
from mirror.producer.leader_placement import LeaderPlacement
from mirror.session.producer_sessions import ProducerSessions
from mirror.session.session_start import StartedSession

RESEND_S = 0.1


class SessionListener(Protocol):
    """The owner of the streams, as it hears of their topics and sessions."""

    def session_started(self, stream: PartitionStream, lost: int) -> None:
        """Read a stream whose session starts elsewhere; `lost` acknowledged records are not at the target any more."""

    def mirror_fenced(self, text: str) -> None:
        """Stop: another mirror has taken over."""

    def refuse(self, text: str) -> None:
        """Send nothing to this target."""

    def report_problem(self, name: str, text: str) -> None:
        """Report what is wrong with `name`; no text when it is over."""

    def topic_created(self, stream: PartitionStream, settings: dict[str, str]) -> None:
        """Note that the topic of a stream was created, with these settings."""


class StreamSender(Protocol):
    """The sender, as the resolver calls it."""

    def consider(self, stream: PartitionStream) -> None:
        """Send of a stream if it has something to send."""

    def mark_acked(self, stream: PartitionStream, batch: Batch) -> None:
        """Note that a batch is safe at the target, and all before it."""

    def spawn(self, stream: PartitionStream, work: Coroutine[Any, Any, None]) -> None:
        """Run something for a stream, until that is dropped."""


class DeliveryResolver:
    """Resolves for all streams of one sender; `failures` has the wait of each stream with a problem."""

    def __init__(
        self,
        target: Target,
        sessions: ProducerSessions,
        host: SessionListener,
        sender: StreamSender,
        placement: LeaderPlacement,
        refusals: Refusals,
        isolation: Isolation,
        make_backoff: Callable[[], Backoff],
    ) -> None:
        self.failures: dict[PartitionStream, Backoff] = {}
        self._target, self._sessions, self._host, self._sender = target, sessions, host, sender
        self._placement, self._refusals, self._isolation = placement, refusals, isolation
        self._make_backoff = make_backoff

    async def ensure_topic(self, stream: PartitionStream) -> None:
        """Create the topic of a stream if it does not exist, and start its first producer session."""
        await self._start_session(stream, self._make_backoff(), is_there=False)
        stream.resume_sending()
        self._host.report_problem(stream.name, "")
        self._sender.consider(stream)
        stream.memory.room.set()

    async def _start_session(self, stream: PartitionStream, backoff: Backoff, *, is_there: bool) -> None:
        """Start a producer session, and create the topic unless it `is_there`; retries until that succeeds."""
        while True:
            try:
                with self._sessions.coming(stream):
                    if not is_there:
                        made = await self._target.ensure_topic(stream.at_target, stream.partitions, stream.settings)
                        if made is not None:
                            self._host.topic_created(stream, made)
                    try:
                        await self._placement.join_leader(stream)  # and connects meanwhile
                        await self._target.check_in_sync(stream.at_target)
                    except TargetError:
                        self._target.look_anew(stream.target_topic)
                        is_there = False  # it may have been deleted
                        raise
                if stream.send_state is CREATING_TOPIC:
                    stream.enter(STARTING_SESSION)
                self._apply_session_start(stream, await self._sessions.begin(stream))
            except OvertakenError:
                await _for_ever()
            except SameClusterError as error:
                self._host.refuse(str(error))
                await _for_ever()
            except TargetError as error:
                if stream.send_state is STARTING_SESSION:
                    stream.enter(CREATING_TOPIC)
                self._host.report_problem(stream.name, str(error))
                self._target.forget(stream.target_topic)
                self._refusals.block(stream)
                await self._target.pauses.wait(backoff.next_s())
            else:
                self._refusals.forget([stream])
                return

    def _apply_session_start(self, stream: PartitionStream, begun: StartedSession) -> None:
        """Continue where a session starts: each batch in flight is safe, or is packed again."""
        resumed, known = begun.resumed, begun.records_before
        stream.remembered_ms = -1
        while stream.flight and known < resumed.records:
            first = stream.flight.pop(0)
            known += first.packed.records
            self._sender.mark_acked(stream, first)
        if not self._sessions.is_unfenced:
            stream.remembered_ms = wall_ms()  # the fence's marker is what the target has last
        for batch in reversed(stream.flight):
            stream.return_to_buffer(batch.pieces)
        stream.flight.clear()
        stream.offsets.requeue()
        is_elsewhere = resumed.verdict in ("source_anew", "target_anew") or known != resumed.records
        if is_elsewhere or not stream.has_session:
            stream.begin_at(resumed.source_offset)
            self._host.session_started(stream, resumed.lost)

    def back_off(self, stream: PartitionStream, problem: str) -> None:
        """Report the problem of a stream, and send nothing of it for a while, longer each time."""
        self._host.report_problem(stream.name, problem)
        stream.back_off()
        self._refusals.block(stream)
        self._sender.spawn(
            stream, self._end_backoff(stream, self.failures.setdefault(stream, self._make_backoff()).next_s())
        )

    async def _end_backoff(self, stream: PartitionStream, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        stream.end_backoff()
        self._refusals.attempt(stream)
        self._sender.consider(stream)

    def mark_unsure(self, stream: PartitionStream) -> None:
        """Send nothing of a stream until the outcome of each batch in flight is known."""
        stream.mark_unsure()
        self.start_resolving(stream)

    def start_resolving(self, stream: PartitionStream) -> None:
        """Find out which batches in flight have arrived, once the last one is answered."""
        if stream.send_state is DRAINING and stream.is_quiet:
            stream.enter(RESOLVING)
            self._sender.spawn(stream, self._resolve(stream))

    async def _resolve(self, stream: PartitionStream) -> None:
        await self._resolve_in_flight(stream)
        stream.resume_sending()
        if stream not in self._refusals.held:
            self.note_if_drained(stream)
        self._sender.consider(stream)

    def note_if_drained(self, stream: PartitionStream) -> None:
        """Report the end of a problem of a stream with nothing left to send: no response will."""
        if stream.is_drained and self.failures.pop(stream, None) is not None:
            self._host.report_problem(stream.name, "")

    async def _resolve_in_flight(self, stream: PartitionStream) -> None:
        backoff = self.failures.setdefault(stream, self._make_backoff())
        codes = [LOST if batch.outcome is None else batch.outcome for batch in stream.flight]
        code = next((code for code in codes if code), LOST)
        if FENCED.intersection(codes):
            self._host.mirror_fenced(f"{stream.name} is refused at the target, as of an older mirror")
            await _for_ever()
        if codes and code != LOST and code not in TAKEN_APART:
            said = next((batch.said for batch in stream.flight if batch.said), "") or error_name(code)
            self._host.report_problem(stream.name, f"the target refuses what is sent: {said}")
        if codes and nothing_arrived(stream.flight):
            for batch in stream.flight:
                batch.outcome = None
            await self._retry(stream, code, backoff)
            return
        broken = await self._isolation.note(stream)
        if code == LOST:
            await asyncio.sleep(RESEND_S)
        else:
            await self._refusals.wait(stream, backoff.next_s())  # batches in flight may have arrived: they are kept
        stream.resend_from = first_refused(stream.flight)
        is_open = bool(codes) and (OPEN | SHORT).issuperset(codes) and stream.resend_from is None
        if is_open and await self._try_resend(stream, broken, backoff):
            return
        if code in MOVED | SHORT:
            self._target.forget(stream.target_topic)
        await self._start_session(stream, backoff, is_there=True)
        if broken is not None:
            await self._isolation.hold_back(stream, broken, backoff)

    async def _try_resend(self, stream: PartitionStream, broken: Break | None, backoff: Backoff) -> bool:
        """Send the batches without a response again as they are, if the target still deduplicates them."""
        is_other = stream.contradicts or stream.starts_anew or stream.answered_below
        if is_other or not any(batch.lost for batch in stream.flight) or not self._is_deduplicated(stream):
            return False
        if broken is not None:
            if not broken.may_resend:
                return False
            await self._isolation.pause(stream, broken, backoff)
        try:
            await self._placement.join_leader(stream)
        except TargetError:
            return False
        for batch in stream.flight:
            batch.outcome = None
        asyncio.get_running_loop().call_later(YOUNG_S, self.check_age, stream)
        return True

    def _is_deduplicated(self, stream: PartitionStream) -> bool:
        waiting = (batch for batch in stream.flight if batch.mark is None)
        return may_be_sent_again(waiting, self._sessions.target_ms, boot_s())

    def check_age(self, stream: PartitionStream) -> None:
        """Look a batch up that waits to be sent again, if the target may not deduplicate it any more."""
        if stream.send_state not in (*UNSURE, GONE) and not self._is_deduplicated(stream):
            self.mark_unsure(stream)

    async def _retry(self, stream: PartitionStream, code: int, backoff: Backoff) -> None:
        """Send the refused batches again, in parts if one was too large."""
        try:
            if code in TAKEN_APART:
                await self._refusals.take_apart(stream, error_name(code), backoff)
                return
            if code in MOVED:
                self._target.forget(stream.target_topic)
            await self._refusals.wait(stream, backoff.next_s(), tuple(stream.flight))
        except Contradiction:
            stream.contradicts = True
            await self._start_session(stream, backoff, is_there=True)
            return
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # deleted, or not known yet to this leader
            self._target.look_anew(stream.target_topic)
            await self._start_session(stream, backoff, is_there=False)
        else:
            await self._find_leader(stream, backoff)

    async def _find_leader(self, stream: PartitionStream, backoff: Backoff) -> None:
        try:
            await self._placement.join_leader(stream)
        except TargetError as error:
            self._host.report_problem(stream.name, str(error))
            self._target.look_anew(stream.target_topic)
            await asyncio.sleep(backoff.next_s())
            await self._start_session(stream, backoff, is_there=False)


async def _for_ever() -> None:
    """Wait until the host, which knows that another mirror has taken over, ends this task."""
    await asyncio.get_running_loop().create_future()
