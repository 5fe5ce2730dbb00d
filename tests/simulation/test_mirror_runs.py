"""Schedules of the mirror hold, a seed replays one, and rules that are broken on purpose are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_wire.batches import pieces_of
from mirror import epochs, plan, state
from mirror import replicator as replicator_module
from mirror.lane import Lane
from mirror.lives import Lives
from mirror.offset_map import OffsetMap
from mirror.resuming import Resumed
from mirror.state import PartitionState
from tests.simulation.mirror_runs import run_seed

SEEDS = 150
SEEDS_MAX = 400
FOUND = {
    261234425633: "several batches behind an old one, by which the target forgets the producer",
    1000208: "a state topic fenced anew by the older of two mirrors, which wrote its older state over the newer",
    1000669: "the same, before anything else was stored",
    3006588: "a source that lost what had been passed over: of which epoch that was stood in no state",
}
"""Seeds that have failed, and what was wrong."""


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_everything_arrives_once_in_any_schedule(first: int) -> None:
    failures = [(one.seed, one.failure) for one in map(run_seed, range(first, first + 50)) if one.failure]
    assert failures == []


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once_stays_mended(seed: int) -> None:
    assert run_seed(seed).failure == ""


def test_a_seed_says_all() -> None:
    assert [run_seed(seed) for seed in range(20)] == [run_seed(seed) for seed in range(20)]


def no_look(was: Any, now: Any, life: Any, known: OffsetMap, *_: Any, **__: Any) -> Resumed:
    return Resumed("position", known.end.records, known.end.source_offset)


def append_what_is_given_back(lane: Lane, pieces: list[Any]) -> None:
    lane.buffer.extend(pieces)
    lane.buffer_bytes += sum(len(piece.batch) for piece in pieces)


async def no_fence(lives: Lives, chosen: Callable[[], Any]) -> Any:
    chosen()
    return await lives._fencing.begin_with(lambda: [lives._topic.partition])


BROKEN: dict[str, tuple[Any, str, Any]] = {
    "the log is not looked at": (state, "resume", no_look),
    "partitions are not fenced": (Lives, "_fence", no_fence),
    "a batch goes before the state is stored": (PartitionState, "may_go", lambda *_: True),
    "a write that failed counts as stored": (PartitionState, "not_stored", PartitionState.stored),
    "what is given back is put behind": (Lane, "give_back", append_what_is_given_back),
    "a gap is not ledgered": (plan, "judge_jump", lambda *, compacted: "compacted"),
    "the source's cut is not judged": (epochs, "judge_epoch_end", lambda position, *_, **__: position),
    "a deleted head is not ledgered": (
        plan, "judge_out_of_range", lambda position, start, end: plan.OutOfRange(start, start, start),
    ),
    "aborted data is sent": (
        replicator_module, "pieces_of", lambda data, offset, aborted: pieces_of(data, offset),
    ),
    "where it went is not noted": (PartitionState, "_shift", lambda *_: None),
}  # fmt: skip


@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_that_is_broken_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BROKEN[rule])
    found = next((seed for seed in range(SEEDS_MAX) if run_seed(seed).failure), None)
    assert found is not None, f"{SEEDS_MAX} schedules do not find it"
