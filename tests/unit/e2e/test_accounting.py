"""The demo's verdict: a missing, duplicated or reordered record is found, and nothing else is.

Invariants: produced = mirrored + pending + lost; the demo fails for lost, pending, vanished and reordered records
and for nothing else; duplicates are counted where they arose.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.e2e.accounting import (
    Evidence,
    Published,
    Stored,
    TopicAccount,
    account,
    exit_status,
    out_of_order,
    percentile,
)

COUNT = 12


def published() -> list[Published]:
    return [
        Published(f"device-{n % 2}", f"device-{n % 2}|{n // 2}", produced_ms=1_000 + n, acked=True)
        for n in range(COUNT)
    ]


def stored(records: list[Published]) -> list[Stored]:
    """Each key in a partition of its own, in the order given."""
    ends: dict[int, int] = {}
    out = []
    for record in records:
        partition = int(record.key[-1])
        offset = ends.get(partition, 0)
        ends[partition] = offset + 1
        out.append(Stored(partition, offset, record.key, record.identity))
    return out


def renumbered(records: list[Stored]) -> list[Stored]:
    ends: dict[int, int] = {}
    out = []
    for record in records:
        offset = ends.get(record.partition, 0)
        ends[record.partition] = offset + 1
        out.append(replace(record, offset=offset))
    return out


def evidence(**changes: object) -> Evidence:
    edge = stored(published())
    whole = Evidence(
        topic="readings",
        edge=edge,
        central=list(edge),
        mirror_positions={0: COUNT // 2, 1: COUNT // 2},
        published=published(),
        acked_by_broker=COUNT,
        latencies_ms=[float(n) for n in range(1, 101)],
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def balance(row: TopicAccount) -> bool:
    return row.produced == row.mirrored + row.pending + row.lost


def test_a_whole_road_has_no_faults() -> None:
    row = account(evidence())
    assert row.faults() == []
    assert (row.produced, row.acked, row.on_edge, row.mirrored) == (COUNT, COUNT, COUNT, COUNT)
    assert (row.pending, row.lost, row.duplicated, row.order_violations) == (0, 0, 0, 0)
    assert (row.latency_p50_ms, row.latency_p99_ms) == (50.0, 99.0)
    assert balance(row)


@pytest.mark.parametrize("missing", range(COUNT))
def test_an_acked_record_missing_on_the_edge_is_lost(missing: int) -> None:
    kept = [record for n, record in enumerate(published()) if n != missing]
    row = account(evidence(edge=stored(kept), central=stored(kept)))
    assert row.lost == 1
    assert row.faults() == ["readings: 1 acked records missing"]
    assert balance(row)


def test_a_record_the_broker_acked_is_missed_even_when_no_producer_names_it() -> None:
    edge = stored(published())[:-1]
    row = account(evidence(published=None, edge=edge, central=edge))
    assert row.lost == 1
    assert row.faults()


@pytest.mark.parametrize("missing", range(COUNT))
def test_a_record_the_mirror_passed_and_central_lacks_is_lost(missing: int) -> None:
    edge = stored(published())
    central = renumbered([record for n, record in enumerate(edge) if n != missing])
    row = account(evidence(central=central))
    assert (row.lost, row.pending) == (1, 0)
    assert row.faults() == ["readings: 1 acked records missing"]
    assert balance(row)


def test_a_record_the_mirror_has_not_reached_is_pending() -> None:
    edge = stored(published())
    central = [record for record in edge if record.offset < 4]
    row = account(evidence(central=central, mirror_positions={0: 4, 1: 4}))
    assert (row.lost, row.pending, row.mirrored) == (0, 4, 8)
    assert row.faults() == ["readings: 4 records still pending after the drain"]
    assert balance(row)


def test_an_unacked_record_that_never_arrived_is_pending_not_lost() -> None:
    records = [*published(), Published("device-0", "device-0|99", produced_ms=9, acked=False)]
    row = account(evidence(published=records))
    assert (row.produced, row.acked, row.lost, row.pending) == (COUNT + 1, COUNT, 0, 1)
    assert balance(row)


def test_copies_are_counted_where_they_arose_and_are_no_fault() -> None:
    edge = renumbered([*stored(published()), stored(published())[3]])
    central = renumbered([*edge, edge[5], edge[5]])
    row = account(evidence(edge=edge, central=central, mirror_positions={0: 99, 1: 99}))
    assert (row.duplicated_on_edge, row.duplicated_by_mirror, row.duplicated) == (1, 2, 3)
    assert row.faults() == []
    assert balance(row)


def test_a_swap_on_the_edge_is_out_of_order() -> None:
    edge = stored(published())
    edge[2], edge[4] = replace(edge[4], offset=edge[2].offset), replace(edge[2], offset=edge[4].offset)
    row = account(evidence(edge=edge, central=edge))
    assert row.order_violations == 1
    assert row.faults() == ["readings: 1 first occurrences out of order within a partition"]


def test_a_swap_by_the_mirror_is_out_of_order() -> None:
    edge = stored(published())
    central = list(edge)
    central[2], central[4] = (
        replace(central[4], offset=central[2].offset),
        replace(central[2], offset=central[4].offset),
    )
    assert account(evidence(central=central)).order_violations == 1


def test_a_late_copy_of_an_early_record_is_in_order() -> None:
    edge = stored(published())
    central = renumbered([*edge, edge[0]])
    assert account(evidence(central=central)).order_violations == 0


def test_keys_of_one_partition_may_interleave() -> None:
    one_partition = [replace(record, partition=0, offset=n) for n, record in enumerate(stored(published()))]
    shuffled = sorted(one_partition, key=lambda record: record.key)
    shuffled = [replace(record, offset=n) for n, record in enumerate(shuffled)]
    row = account(evidence(edge=shuffled, central=shuffled, mirror_positions={0: COUNT}))
    assert row.order_violations == 0


def test_a_record_in_another_partition_at_central_is_out_of_place() -> None:
    edge = stored(published())
    central = [*edge[:-1], replace(edge[-1], partition=7)]
    assert account(evidence(central=central)).order_violations == 1


def test_a_record_central_has_and_the_edge_no_longer_has_is_told() -> None:
    edge = stored(published())
    row = account(evidence(edge=edge[:-1], published=None, acked_by_broker=None))
    assert row.vanished == 1
    assert row.faults() == ["readings: 1 records at central that the edge showed and no longer has"]


def test_percentile_and_order_of_nothing() -> None:
    assert percentile([], 0.5) is None
    assert percentile([7.0], 0.99) == 7.0
    assert out_of_order({}, []) == 0


def test_the_exit_status_is_1_when_a_record_is_taken_from_what_was_read_back() -> None:
    assert exit_status([account(evidence())]) == (0, [])
    shorter = stored(published())[:-1]
    assert exit_status([account(evidence(edge=shorter, central=shorter))])[0] == 1
    assert exit_status([account(evidence(central=shorter))])[0] == 1


def test_the_exit_status_is_1_when_a_part_died() -> None:
    assert exit_status([account(evidence())], ["spark ended with exit code 1"])[0] == 1
