"""What happened to every record of a topic, from the lists of what was produced, acked, stored and mirrored.

Pure: no clients, files, clocks or processes here. The rule it applies is the project's own:
produced = mirrored + pending + lost, per topic, and whoever was acked is never among the lost.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Published:
    """One record as its producer wrote it down, in the order in which it was produced per key.

    `acked` is None for a producer that is never answered, such as whoever writes a log file.
    """

    key: str
    identity: str
    produced_ms: int
    acked: bool | None


@dataclass(frozen=True, slots=True)
class Stored:
    """One record as a consumer read it back from a broker."""

    partition: int
    offset: int
    key: str
    identity: str


@dataclass(frozen=True)
class Evidence:
    """All that is known of one topic; `published` and `acked_by_broker` are None where nobody keeps that count.

    `mirror_positions` maps each partition to the offset (exclusive) up to which the mirror says it is done.
    `acked_by_broker` counts acknowledgements, so a record sent twice counts twice.
    """

    topic: str
    edge: Sequence[Stored]
    central: Sequence[Stored]
    mirror_positions: Mapping[int, int]
    published: Sequence[Published] | None = None
    acked_by_broker: int | None = None
    latencies_ms: Sequence[float] = field(default_factory=tuple)


@dataclass(frozen=True)
class TopicAccount:
    """The row of one topic; `produced` and what follows from it count distinct records, `duplicated` the copies.

    `vanished` records were read at central and are not on the edge: the edge broker showed what it did not keep.
    """

    topic: str
    produced: int
    acked: int | None
    acked_by_broker: int | None
    on_edge: int
    mirrored: int
    pending: int
    lost: int
    lost_before_edge: int
    vanished: int
    duplicated_on_edge: int
    duplicated_by_mirror: int
    order_violations: int
    latency_p50_ms: float | None
    latency_p99_ms: float | None

    @property
    def duplicated(self) -> int:
        """Copies beyond the first that a reader at central meets."""
        return self.duplicated_on_edge + self.duplicated_by_mirror

    def faults(self) -> list[str]:
        """Every sentence for which the demo must fail, naming the topic."""
        found = [
            (self.lost, "acked records missing"),
            (self.pending, "records still pending after the drain"),
            (self.vanished, "records at central that the edge showed and no longer has"),
            (self.order_violations, "first occurrences out of order within a partition"),
        ]
        return [f"{self.topic}: {count} {what}" for count, what in found if count]


INCOMPLETE = 3


def exit_status(
    accounts: Iterable[TopicAccount], other_faults: Sequence[str] = (), slow: Sequence[str] = ()
) -> tuple[int, list[str]]:
    """The demo's exit status and the faults behind it: 0 whole, 1 for a fault, 3: nothing is lost, and not all came.

    `other_faults` are parts that died, `slow` are waits that ran out: they cost nothing but what they would have shown.
    """
    sentences = [sentence for row in accounts for sentence in row.faults()] + list(other_faults)
    return (1 if sentences else INCOMPLETE if slow else 0), sentences


def account(evidence: Evidence) -> TopicAccount:
    """Draw up the row of one topic."""
    edge, central = evidence.edge, evidence.central
    on_edge = {record.identity for record in edge}
    at_central = {record.identity for record in central}
    published = evidence.published
    known = on_edge if published is None else on_edge | {record.identity for record in published}
    acked = _acked(published)
    lost_before_edge = _missing_before_edge(acked, evidence.acked_by_broker, edge, on_edge)
    lost_by_mirror = _lost_by_mirror(edge, at_central, evidence.mirror_positions)
    mirrored = len(known & at_central)
    lost = lost_before_edge + lost_by_mirror
    return TopicAccount(
        topic=evidence.topic,
        produced=len(known),
        acked=None if acked is None else len(acked),
        acked_by_broker=evidence.acked_by_broker,
        on_edge=len(on_edge),
        mirrored=mirrored,
        pending=max(0, len(known) - mirrored - lost),
        lost=lost,
        lost_before_edge=lost_before_edge,
        vanished=len(at_central - on_edge),
        duplicated_on_edge=len(edge) - len(on_edge),
        duplicated_by_mirror=_extra_copies(edge, central),
        order_violations=_violations(published, edge, central),
        latency_p50_ms=percentile(evidence.latencies_ms, 0.50),
        latency_p99_ms=percentile(evidence.latencies_ms, 0.99),
    )


def out_of_order(rank: Mapping[str, int], seen: Iterable[tuple[Hashable, str]]) -> int:
    """Count first occurrences that come after one of higher rank in their group; identities without a rank are left."""
    highest: dict[Hashable, int] = {}
    met: set[tuple[Hashable, str]] = set()
    violations = 0
    for group, identity in seen:
        if identity not in rank or (group, identity) in met:
            continue
        met.add((group, identity))
        if rank[identity] < highest.get(group, -1):
            violations += 1
        highest[group] = max(highest.get(group, -1), rank[identity])
    return violations


def percentile(values: Sequence[float], fraction: float) -> float | None:
    """The nearest-rank percentile, or None of nothing."""
    if not values:
        return None
    ranked = sorted(values)
    return ranked[max(0, math.ceil(fraction * len(ranked)) - 1)]


def _acked(published: Sequence[Published] | None) -> set[str] | None:
    answered = [record for record in published or () if record.acked is not None]
    return {record.identity for record in answered if record.acked} if answered else None


def _missing_before_edge(
    acked: set[str] | None, acked_by_broker: int | None, edge: Sequence[Stored], on_edge: set[str]
) -> int:
    """Acked by name and not there, or fewer stored than the broker acked: the larger, as both may be the same."""
    by_name = 0 if acked is None else len(acked - on_edge)
    by_count = 0 if acked_by_broker is None else max(0, acked_by_broker - len(edge))
    return max(by_name, by_count)


def _lost_by_mirror(edge: Sequence[Stored], at_central: set[str], positions: Mapping[int, int]) -> int:
    passed = {record.identity for record in edge if record.offset < positions.get(record.partition, 0)}
    return len(passed - at_central)


def _extra_copies(edge: Sequence[Stored], central: Sequence[Stored]) -> int:
    allowed = Counter(record.identity for record in edge)
    copies = Counter(record.identity for record in central)
    return sum(max(0, count - max(1, allowed[identity])) for identity, count in copies.items())


def _violations(published: Sequence[Published] | None, edge: Sequence[Stored], central: Sequence[Stored]) -> int:
    """Producer to edge per key, edge to central per partition; a record that changed its partition is one as well."""
    edge = sorted(edge, key=lambda record: (record.partition, record.offset))
    central = sorted(central, key=lambda record: (record.partition, record.offset))
    violations = 0
    if published is not None:
        rank = {record.identity: place for place, record in enumerate(published)}
        violations += out_of_order(rank, (((record.partition, record.key), record.identity) for record in edge))
    first_offset: dict[str, int] = {}
    homes: set[tuple[int, str]] = set()
    for record in edge:
        first_offset.setdefault(record.identity, record.offset)
        homes.add((record.partition, record.identity))
    violations += out_of_order(first_offset, ((record.partition, record.identity) for record in central))
    moved = {record.identity for record in central if (record.partition, record.identity) not in homes}
    return violations + len(moved & first_offset.keys())
