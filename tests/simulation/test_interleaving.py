"""The interleavings of a whole broker find what they are there for: two defects that were mended, put back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import pytest

from edge_broker.broker.broker import Broker
from edge_broker.broker.operations.groups.group_log import forget_topics
from edge_broker.broker.outcomes import AfterName, Outcome, RunInWorker
from edge_broker.errors import ErrorCode
from edge_broker.handlers import delete_topics
from edge_broker.network.dispatch.call import Call
from edge_broker.network.dispatch.dispatcher import Dispatcher
from edge_broker.storage.metadata.topic_record import OFFSETS_TOPIC
from tests.simulation.interleaving import Interleaving
from tests.simulation.site import Deviation

SEEDS_MAX = 300


def failure_of(seed: int) -> str:
    program = Interleaving(seed, ordered=bool(seed & 1))
    try:
        program.run(program.plan())
    except Deviation as deviation:
        return str(deviation)
    return ""


def first_failure() -> str:
    return next(failure for seed in range(SEEDS_MAX) if (failure := failure_of(seed)))


@pytest.mark.parametrize("seed", range(24))
def test_everything_holds_in_any_order(seed: int) -> None:
    assert not failure_of(seed)


def test_a_seed_says_all() -> None:
    programs = [Interleaving(5), Interleaving(5)]
    for program in programs:
        program.run(program.plan())
    assert programs[0].trace == programs[1].trace
    assert programs[0].disk.steps == programs[1].disk.steps


def test_a_deletion_that_answers_before_its_tombstones_are_synced_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(broker: Broker, names: Sequence[str], done: Callable[[ErrorCode], None]) -> None:
        """As it was: what could not be appended at once was not waited for."""
        logs = broker.store.topics[OFFSETS_TOPIC].partitions if OFFSETS_TOPIC in broker.store.topics else []
        if broker.throttle.slow or any(log.writer.busy for log in logs):
            forget_topics(broker, names, lambda error: None)
            done(ErrorCode.NONE)
        else:
            forget_topics(broker, names, done)

    monkeypatch.setattr(delete_topics, "forget_topics", hasty)
    assert "stands at" in first_failure()


def test_a_name_that_is_waited_for_by_polling_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    hops = count()

    def poll(self: Dispatcher, call: Call, behind: AfterName) -> None:
        """As it was: asked again behind everything that two workers had to do."""
        next(hops)

        def failed(error: Exception) -> Outcome:
            raise error

        behind_files = RunInWorker(lambda: None, lambda _: behind.retry(), failed)
        self.resolve(call, RunInWorker(lambda: None, lambda _: behind_files, failed, worker="disk"))

    monkeypatch.setattr(Dispatcher, "_queue", poll)
    assert "something still spins" in first_failure()
    assert next(hops)
