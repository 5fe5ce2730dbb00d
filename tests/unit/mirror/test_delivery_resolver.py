"""Resolving: what follows each set of responses, row by row of the table in delivery_resolver.py."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from drupelet.backoff import Backoff
from edge_broker.errors import ErrorCode
from kafka_wire.partitions import TopicPartition
from mirror.errors import OvertakenError, SameClusterError, TargetError
from mirror.partition.send_state import BACKING_OFF, CREATING_TOPIC, DRAINING, GONE, RESOLVING, SENDING, SendState
from mirror.partition.stream import PartitionStream
from mirror.producer import delivery_resolver
from mirror.producer.delivery_resolver import DeliveryResolver
from mirror.producer.failures.produce_errors import LOST


class Bench:
    """A resolver whose collaborators note what they are asked for."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.considered: list[PartitionStream] = []
        self.errors: list[Exception] = []
        self.asked = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []
        self.stream = PartitionStream(TopicPartition("t", 0), "lab.t", {"cleanup.policy": "delete"})
        self.stream.send_state = SENDING
        self.stream.state = SimpleNamespace(map=SimpleNamespace(steps=()), epoch_starts=())  # type: ignore[assignment]
        target: Any = SimpleNamespace(
            forget=lambda _: self.seen.append("forget"),
            look_anew=lambda _: self.seen.append("look again"),
            ensure_topic=self.ensure_topic,
            check_in_sync=self.noting("in sync"),
            pauses=SimpleNamespace(wait=self.noting("pause")),
        )
        sessions: Any = SimpleNamespace(
            coming=lambda _: nullcontext(), begin=self.begin, is_unfenced=True, target_ms=None
        )
        host: Any = SimpleNamespace(
            report_problem=lambda _, text: self.seen.append(text or "well"),
            mirror_fenced=lambda _: self.seen.append("overtaken"),
            refuse=lambda _: self.seen.append("refused"),
            topic_created=lambda *_: self.seen.append("made"),
            session_started=lambda *_: self.seen.append("elsewhere"),
        )
        sender: Any = SimpleNamespace(
            consider=self.considered.append, mark_acked=lambda *_: self.seen.append("acked"), spawn=self.spawn
        )
        self.held: set[PartitionStream] = set()
        refusals: Any = SimpleNamespace(
            held=self.held,
            block=lambda _: self.seen.append("block"),
            forget=lambda _: self.seen.append("unblock"),
            attempt=lambda _: self.seen.append("attempt"),
            wait=self.noting("wait"),
            take_apart=self.noting("split"),
        )
        placement: Any = SimpleNamespace(join_leader=self.noting("join"))
        isolation: Any = SimpleNamespace(note=self.noting("noted"), hold_back=self.noting("hold"))
        self.resolver = DeliveryResolver(
            target, sessions, host, sender, placement, refusals, isolation, lambda: Backoff(0.001, 0.001)
        )

    def noting(self, what: str) -> Callable[..., Awaitable[None]]:
        async def note(*_: object) -> None:
            self.seen.append(what)

        return note

    def spawn(self, _: PartitionStream, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def ensure_topic(self, *_: object) -> dict[str, str] | None:
        self.seen.append("topic")
        return {}

    async def begin(self, _: PartitionStream) -> Any:
        self.asked.set()
        if self.errors:
            raise self.errors.pop(0)
        self.seen.append("session")
        return SimpleNamespace(
            resumed=SimpleNamespace(records=0, verdict="found", lost=0, source_offset=0), records_before=0
        )

    def fly(self, *outcomes: int | None, lost: int = 0) -> None:
        """Have batches in flight with these outcomes."""
        self.stream.flight = [
            SimpleNamespace(  # type: ignore[misc]
                outcome=outcome, said="", lost=lost, mark=None, pieces=[]
            )
            for outcome in outcomes
        ]

    async def resolve(self) -> list[str]:
        """Have the stream become unsure; return what is done until it sends again."""
        self.resolver.mark_unsure(self.stream)
        assert self.stream.send_state is RESOLVING
        await asyncio.gather(*self.tasks)
        return self.seen


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(delivery_resolver, "RESEND_S", 0)
    return Bench()


REFUSES = "the target refuses what is sent: "
NEW_SESSION = ["join", "in sync", "session", "unblock", "well"]


@pytest.mark.parametrize(
    ("outcomes", "steps"),
    [
        ([ErrorCode.MESSAGE_TOO_LARGE], ["split"]),
        (
            [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER],
            [REFUSES + "NOT_LEADER_OR_FOLLOWER", "forget", "wait", "join"],
        ),
        ([ErrorCode.POLICY_VIOLATION, None], [REFUSES + "POLICY_VIOLATION", "wait", "join"]),
        (
            [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
            [REFUSES + "UNKNOWN_TOPIC_OR_PARTITION", "forget", "wait", "look again", "topic", "made", *NEW_SESSION],
        ),
        ([LOST], ["noted", *NEW_SESSION]),
        (
            [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER],
            [REFUSES + "OUT_OF_ORDER_SEQUENCE_NUMBER", "noted", "wait", *NEW_SESSION],
        ),
        (
            [ErrorCode.KAFKA_STORAGE_ERROR],
            [REFUSES + "KAFKA_STORAGE_ERROR", "noted", "wait", "forget", *NEW_SESSION],
        ),
        ([], ["noted", *NEW_SESSION]),
    ],
)
async def test_what_follows_the_responses(bench: Bench, outcomes: list[int | None], steps: list[str]):
    bench.fly(*outcomes)
    assert await bench.resolve() == steps
    assert bench.stream.send_state is SENDING
    assert bench.considered == [bench.stream]


@pytest.mark.parametrize("is_deduplicated", [True, False])
async def test_batches_without_a_response_are_sent_again_while_the_target_deduplicates_them(
    bench: Bench, is_deduplicated: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(delivery_resolver, "may_be_sent_again", lambda *_: is_deduplicated)
    bench.fly(LOST, ErrorCode.REQUEST_TIMED_OUT, lost=1)
    batches = list(bench.stream.flight)
    seen = await bench.resolve()
    if is_deduplicated:
        assert seen[-1] == "join"
        assert bench.stream.flight == batches
        assert [batch.outcome for batch in batches] == [None, None]
    else:
        assert seen[-5:] == NEW_SESSION
        assert bench.stream.flight == []


@pytest.mark.parametrize("flag", ["contradicts", "starts_anew", "answered_below"])
async def test_no_batch_is_sent_again_if_the_log_has_to_tell(bench: Bench, flag: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(delivery_resolver, "may_be_sent_again", lambda *_: True)
    setattr(bench.stream, flag, True)
    bench.fly(LOST, lost=1)
    assert (await bench.resolve())[-5:] == NEW_SESSION


@pytest.mark.parametrize("is_deduplicated", [True, False])
def test_a_batch_that_waits_for_too_long_is_looked_up(
    bench: Bench, is_deduplicated: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(delivery_resolver, "may_be_sent_again", lambda *_: is_deduplicated)
    bench.stream.packing = True  # so that nothing is resolved yet
    bench.resolver.check_age(bench.stream)
    assert bench.stream.send_state is (SENDING if is_deduplicated else DRAINING)


async def test_nothing_is_resolved_while_a_request_has_a_batch(bench: Bench):
    bench.fly(None)
    bench.stream.flight[0].mark = "in flight"  # type: ignore[assignment]
    bench.resolver.mark_unsure(bench.stream)
    assert bench.stream.send_state is DRAINING
    assert bench.tasks == []
    bench.stream.flight[0].mark = None
    bench.resolver.start_resolving(bench.stream)
    bench.resolver.start_resolving(bench.stream)
    assert bench.stream.send_state is RESOLVING
    assert len(bench.tasks) == 1
    await asyncio.gather(*bench.tasks)


async def test_a_session_is_tried_again_until_it_starts(bench: Bench):
    bench.stream.send_state = CREATING_TOPIC
    bench.errors = [TargetError("no coordinator"), TargetError("no coordinator")]
    await bench.resolver.ensure_topic(bench.stream)
    once = ["topic", "made", "join", "in sync"]
    failed = [*once, "no coordinator", "forget", "block", "pause"]
    assert bench.seen == [*failed, *failed, *once, "session", "elsewhere", "unblock", "well"]
    assert bench.stream.send_state is SENDING


@pytest.mark.parametrize(
    ("error", "last"), [(SameClusterError("the same cluster"), "refused"), (OvertakenError("newer"), "in sync")]
)
async def test_after_an_error_that_is_final_nothing_is_tried(bench: Bench, error: Exception, last: str):
    bench.stream.send_state, bench.errors = CREATING_TOPIC, [error]
    task = asyncio.ensure_future(bench.resolver.ensure_topic(bench.stream))
    await bench.asked.wait()
    await asyncio.sleep(0)
    assert bench.seen[-1] == last
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_fenced_producer_stops_the_mirror(bench: Bench):
    bench.fly(ErrorCode.INVALID_PRODUCER_EPOCH)
    bench.resolver.mark_unsure(bench.stream)
    await asyncio.sleep(0)
    assert bench.seen == ["overtaken"]
    assert bench.stream.send_state is RESOLVING
    bench.tasks[0].cancel()
    await asyncio.gather(*bench.tasks, return_exceptions=True)


async def test_a_stream_backs_off_for_a_problem_of_its_own(bench: Bench):
    bench.resolver.back_off(bench.stream, "bad records")
    assert bench.stream.send_state is BACKING_OFF
    await asyncio.gather(*bench.tasks)
    assert bench.seen == ["bad records", "block", "attempt"]
    assert bench.stream.send_state is SENDING
    assert bench.considered == [bench.stream]


@pytest.mark.parametrize("state", [CREATING_TOPIC, RESOLVING, GONE])
def test_no_other_state_becomes_unsure(bench: Bench, state: SendState):
    bench.stream.send_state = state
    bench.resolver.mark_unsure(bench.stream)
    assert bench.stream.send_state is state
    assert bench.tasks == []
