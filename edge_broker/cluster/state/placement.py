"""Where the replicas of new partitions go, and who should lead.

| rule | order |
|---|---|
| replicas of one partition are on as many racks as there are; a broker without one is its own rack | first |
| the broker with the fewest replicas is next, of equal ones who leads most: others lead then | second |
| of a partition's replicas the one that is first in the fewest partitions comes first | last |

Does not contain: who exists. Source: KIP-36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

Replicas = tuple[int, ...]


def place(
    racks: Mapping[int, str | None], partitions: int, factor: int, there: Iterable[Replicas] = ()
) -> tuple[Replicas, ...]:
    """The replicas of each new partition, the preferred leader first; `there` are those of all partitions that exist.

    ValueError: fewer brokers than the replication factor.
    """
    if not 1 <= factor <= len(racks):
        raise ValueError(f"replication factor {factor} with {len(racks)} brokers")
    held: Counter[int] = Counter()
    led: Counter[int] = Counter()
    for replicas in there:
        held.update(replicas)
        led.update(replicas[:1])
    placed = []
    for _ in range(partitions):
        replicas = _one(racks, factor, held, led)
        held.update(replicas)
        led[replicas[0]] += 1
        placed.append(replicas)
    return tuple(placed)


def _one(racks: Mapping[int, str | None], factor: int, held: Counter[int], led: Counter[int]) -> Replicas:
    chosen: list[int] = []
    used: Counter[object] = Counter()
    for _ in range(factor):
        free = [broker for broker in racks if broker not in chosen]
        best = min(free, key=lambda each: (used[_rack(racks, each)], held[each], -led[each], each))
        chosen.append(best)
        used[_rack(racks, best)] += 1
    return tuple(sorted(chosen, key=lambda each: (led[each], held[each], each)))


def _rack(racks: Mapping[int, str | None], broker: int) -> object:
    rack = racks[broker]
    return broker if rack is None else rack
