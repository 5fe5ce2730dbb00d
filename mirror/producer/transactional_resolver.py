"""Resolves what keeps a stream from sending, with transactions: a batch of unknown outcome breaks the transaction off.

| the batches in flight | then |
|---|---|
| are refused, and nothing has arrived | as without transactions (delivery_resolver.py) |
| are refused otherwise, or get no response | the transaction breaks off; all streams continue after what is committed |
| belong to a session of an old epoch | the stream starts a session under the new one |

Does not contain: transactions and their order (transactional_sender.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from drupelet.backoff import Backoff
from edge_broker.errors import error_name
from mirror.client.target_client import Target
from mirror.partition.stream import PartitionStream
from mirror.producer.delivery_resolver import DeliveryResolver, SessionListener, StreamSender
from mirror.producer.failures.batch_isolation import Isolation
from mirror.producer.failures.produce_errors import FENCED, LOST, MOVED, SHORT, nothing_arrived
from mirror.producer.failures.refusals import Refusals
from mirror.producer.leader_placement import LeaderPlacement
from mirror.session.marker_partitions import InSync
from mirror.session.producer_sessions import ProducerSessions
from mirror.session.session_start import StartedSession


class Transactions(Protocol):
    """The transactions of a sender, one after the other."""

    in_sync: InSync
    step: asyncio.Event
    why_broken: str
    committed_records: dict[PartitionStream, int]

    @property
    def resolved_event(self) -> asyncio.Event:
        """Is set while no transaction is broken."""

    def is_stale(self, stream: PartitionStream) -> bool:
        """Return whether the session of a stream has an epoch that is over."""

    def break_off(self, why: str, *, was_fenced: bool = False) -> None:
        """Have all streams start again, once the outcome of the transaction is known."""


class TransactionalResolver(DeliveryResolver):
    """Resolves for all streams of a sender with transactions."""

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
        transactions: Transactions,
    ) -> None:
        super().__init__(target, sessions, host, sender, placement, refusals, isolation, make_backoff)
        self._transactions = transactions

    async def _resolve_in_flight(self, stream: PartitionStream) -> None:
        backoff = self.failures.setdefault(stream, self._make_backoff())
        self._transactions.in_sync.forget(stream)
        codes = [LOST if batch.outcome is None else batch.outcome for batch in stream.flight]
        broken = None
        is_current = not self._transactions.is_stale(stream) and not self._transactions.why_broken
        if is_current and self._may_send_again(stream, codes):
            await super()._resolve_in_flight(stream)
        else:
            if is_current:
                code = next((code for code in codes if code), LOST)
                if code in MOVED | SHORT:
                    self._target.forget(stream.target_topic)
                self._transactions.break_off(
                    f"{stream.name}: {_reason(stream, code)}", was_fenced=bool(FENCED.intersection(codes))
                )
            broken = await self._isolation.note(stream)  # not before: the transaction would be committed without these
            if is_current:
                await self._target.pauses.wait(backoff.next_s())
            await self._start_session(stream, backoff, is_there=True)
        while self._transactions.is_stale(stream):  # another stream has had all start again meanwhile
            await self._start_session(stream, backoff, is_there=True)
        if broken is not None:
            await self._isolation.hold_back(stream, broken, backoff)

    @staticmethod
    def _may_send_again(stream: PartitionStream, codes: list[int]) -> bool:
        is_refused = bool(stream.flight) and not FENCED.intersection(codes) and nothing_arrived(stream.flight)
        return is_refused and not (stream.starts_anew or stream.contradicts)

    async def _resolve(self, stream: PartitionStream) -> None:
        """Resolve, and wake the transaction: after a record is refused, nothing else reports that nothing is packed."""
        await super()._resolve(stream)
        self._transactions.step.set()

    async def _start_session(self, stream: PartitionStream, backoff: Backoff, *, is_there: bool) -> None:
        if not self._transactions.is_stale(stream):
            self._transactions.break_off(f"{stream.name} starts again")
        await self._transactions.resolved_event.wait()
        stream.flight[:0], stream.uncommitted = stream.uncommitted, []
        await super()._start_session(stream, backoff, is_there=is_there)

    def _apply_session_start(self, stream: PartitionStream, begun: StartedSession) -> None:
        """Continue after the committed records: some of those in flight, or all of them.

        The state was read again, so the stream alone knows whether the source has lost its end since then.
        """
        first = stream.flight[0].sent if stream.flight else None
        committed = self._transactions.committed_records.pop(stream, begun.records_before)
        before = committed if first is None else first.records_before
        resumed, lost = begun.resumed, before - begun.resumed.records
        if lost > 0 and resumed.verdict in ("found", "position"):  # a commit was answered, and does not hold
            resumed = resumed._replace(lost=max(lost, resumed.lost))
        super()._apply_session_start(stream, begun._replace(resumed=resumed, records_before=before))
        acked, state = stream.offsets.acked, stream.state
        assert state is not None
        if acked < state.map.end.source_offset:
            state.go_back(acked, stream.offsets.epochs.below(acked))


def _reason(stream: PartitionStream, code: int) -> str:
    if code == LOST:
        return "no answer" if stream.flight else "it starts again"
    return next((batch.said for batch in stream.flight if batch.said), "") or error_name(code)
