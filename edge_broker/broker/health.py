"""Report the problems of a broker, for /health and for DescribeLogDirs, which `edge-broker cluster status` asks.

| kind | names | /health |
|---|---|---|
| `disk` | the disk is full, or nearly full in a cluster | 503 |
| `broker` | anything else that this broker itself does not do | 503 |
| `unserved` | records on this disk that the cluster does not serve (unserved.py), or no board may (acting.py) | 503 |
| `stray` | a topic of the cluster that has no replica here, as another of its name is on this disk | `ok, but` |
| `zookeeper` | a silent server of the ensemble; znodes that are not the brokers' alone | `ok, but` |

Does not contain: the text of an answer (metrics.py), what a member counts (cluster_metrics.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from edge_broker.broker.broker import Broker

DISK, BROKER, UNSERVED, STRAY, ZOOKEEPER = "disk", "broker", "unserved", "stray", "zookeeper"
NOTES_OF_CLUSTER = {"strays": STRAY, "zookeeper": ZOOKEEPER}
"""Keys of `Broker.notes` that a cluster's status names, and their kinds."""


class Problem(NamedTuple):
    """One problem; `for_ms` is how long it has lasted in this process, None if unknown."""

    kind: str
    text: str
    for_ms: int | None = None


def health_problem(broker: Broker) -> str | None:
    """Return one line about what this broker itself does not do, None if it does all."""
    first = next(_own_problems(broker), None)
    return None if first is None else first.text


def cluster_problems(broker: Broker) -> list[Problem]:
    """Return what a cluster's status names of this broker; empty if nothing is wrong."""
    notes = broker.notes
    named = (Problem(kind, text) for key, kind in NOTES_OF_CLUSTER.items() for text in notes.get(key, ()))
    return [*_own_problems(broker), *named, *(Problem(ZOOKEEPER, text) for text in _znode_notes(broker))]


def health_notes(broker: Broker) -> Iterator[str]:
    """Notes for an operator about a healthy broker, a sentence each."""
    yield from chain.from_iterable(broker.notes.values())
    if (note := broker.time.note()) is not None:
        yield note
    yield from broker.security.notes
    if broker.cluster is not None:
        from edge_broker.broker.cluster.cluster_metrics import entries_wait, health  # noqa: PLC0415 - for members alone

        yield from _znode_notes(broker)
        if (protection := broker.cluster.view.member.protection) is not None and protection.reminder:
            yield protection.reminder
        few = health(broker.cluster.view)
        if few is not None:
            yield few
        waits = entries_wait(broker.cluster.view, broker.store.ledger_log)
        if waits is not None:
            yield waits


def _znode_notes(broker: Broker) -> list[str]:
    protection = broker.cluster.view.member.protection if broker.cluster is not None else None
    return protection.notes if protection is not None else []


def _own_problems(broker: Broker) -> Iterator[Problem]:
    """Yield what this broker itself does not do, the most serious first."""
    offline = [log for topic in broker.store.topics.values() for log in topic.partitions if log.fault is not None]
    if offline:
        where = f"{offline[0].topic}-{offline[0].partition}"
        yield Problem(BROKER, f"{len(offline)} partitions offline, first {where}: {offline[0].fault}")
    if (full := _disk_problem(broker)) is not None:
        yield Problem(DISK, full, broker.space.full_for_ms)
    if broker.security.state.damage:
        yield Problem(BROKER, f"nobody can log in or has any right: {broker.security.state.damage}")
    if broker.groups.fault is not None:
        yield Problem(BROKER, broker.groups.fault)
    if broker.cluster is not None:
        if (why := broker.cluster.view.not_serving) is not None:
            yield Problem(BROKER, why)
        from edge_broker.broker.cluster.cluster_metrics import journal_full, objection_sentence  # noqa: PLC0415 - for members alone
        from edge_broker.broker.operations.unserved import find_unserved, unserved_problem  # noqa: PLC0415 - for members alone

        if (waits := objection_sentence(broker.cluster.view)) is not None:
            yield Problem(UNSERVED, waits)
        if (full := journal_full(broker.store.ledger_log)) is not None:
            yield Problem(BROKER, full)
        if (lost := unserved_problem(find_unserved(broker.cluster.view, broker.store))) is not None:
            yield Problem(UNSERVED, lost)
    if broker.groups.fault is None and not broker.groups.are_loaded:
        yield Problem(BROKER, "committed offsets are still being loaded")


def _disk_problem(broker: Broker) -> str | None:
    space = broker.space
    if space.status is None:
        return None
    free = space.status.free
    if space.refusing:
        kept_out = ", and replicas here are not in sync until there is room" if broker.cluster is not None else ""
        return f"the disk is full, writes are refused: {free} bytes are free{kept_out}"
    if space.tight:
        return f"the disk is nearly full, so other boards lead and replicas here are not in sync: {free} bytes are free"
    return None
