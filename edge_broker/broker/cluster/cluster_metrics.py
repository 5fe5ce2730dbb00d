"""Count a member's view of its cluster, under Kafka's names, for metrics and /health.

| figure | counts |
|---|---|
| partitions, led | replicas that are open here, and those of them that this broker leads |
| under-replicated | of those led here: fewer replicas are in sync and there than there should be |
| under min ISR | of those led here: fewer than `min.insync.replicas`, so acks=all is refused |
| offline | of all partitions of the cluster: without a leader; reported by the controller alone, as in Kafka |
| entries | losses in this board's journal that `__edge_ledger` has not taken yet, and the journal's bytes |
| lag | of each follower of what is led here: records that it has not confirmed, and since when it has not had all |

A follower that has not fetched in this leader epoch yet has no lag that is known. `__edge_ledger` is
counted as any topic; the entries in this broker's journal have a metric of their own.

Contains: counting. Does not contain: how figures are written (metrics.py). Source: Kafka's ReplicaManager
and KafkaController metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.broker.cluster_port import ClusterReads
from edge_broker.cluster.partition.partition import LEADS, Partition
from edge_broker.cluster.state.cluster_state import NO_LEADER, PartitionId
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.loss.ledger_journal import is_full, waiting


class Few(NamedTuple):
    """A partition that is led here, and how many of its replicas are in sync and there."""

    partition: PartitionId
    in_sync: int
    replicas: int
    needed: int


class Lag(NamedTuple):
    """The lag of a follower of a partition; `seconds` since it last had everything, 0 while it has."""

    partition: PartitionId
    broker: int
    records: int
    seconds: float


class Figures(NamedTuple):
    """Everything, at one time."""

    partitions: int
    led: int
    under_replicated: list[Few]
    under_min_in_sync: int
    offline: int
    is_controller: bool
    lags: list[Lag]
    entries: int
    entries_bytes: int


def figures(view: ClusterReads, journal: PartitionLog) -> Figures:
    """Count now."""
    led, found = _led_partitions(view), _in_sync(view)
    is_controller = view.controller == view.member.identity.broker
    return Figures(
        len(view.member.partitions),
        len(led),
        _under_replicated(found),
        sum(few.in_sync < few.needed for few in found),
        offline(view) if is_controller else 0,
        is_controller,
        [lag for each in led for lag in lags(view, each)],
        waiting(journal),
        journal.size,
    )


def _led_partitions(view: ClusterReads) -> list[Partition]:
    return [each for each in view.member.partitions.values() if each.role in LEADS]


def _in_sync(view: ClusterReads) -> list[Few]:
    """Of each partition that is led here."""
    found = []
    for each in _led_partitions(view):
        if (state := each.state) is not None:
            in_sync = sum(view.is_there(state, entry.broker) for entry in state.in_sync)
            found.append(Few(each.partition, in_sync, len(each.replicas), each.needed))
    return found


def _under_replicated(found: list[Few]) -> list[Few]:
    return [few for few in found if few.in_sync < few.replicas]


def offline(view: ClusterReads) -> int:
    """Partitions without a leader."""
    return sum(
        view.leader(name, number) == NO_LEADER
        for name, topic in view.topics.items()
        for number in range(len(topic.replicas))
    )


def lags(view: ClusterReads, partition: Partition) -> Iterator[Lag]:
    """Of each follower of a partition that is led here."""
    leading = partition.leading
    if leading is None:
        return
    for broker, follower in sorted(leading.followers.items()):
        if broker in partition.replicas:
            records = max(0, partition.log.log_end_offset - follower.end)
            seconds = max(0.0, view.now_ms - follower.caught_up_ms) / 1000 if records else 0.0
            yield Lag(partition.partition, broker, records, seconds)


def entries_wait(view: ClusterReads, journal: PartitionLog) -> str | None:
    """One sentence about losses that the cluster's ledger does not take; None: it takes all, as far as is known."""
    count, why = waiting(journal), view.member.forwarding.refused
    nobody = view.member.ledger_leader is None
    if not count or not (why or nobody):
        return None
    many = f"{count} losses wait" if count > 1 else "1 loss waits"
    return f"{many} in this board's journal for {LEDGER_TOPIC}: {'nobody leads it' if nobody else why}"


def journal_full(journal: PartitionLog) -> str | None:
    """One sentence about a journal that takes no more; None: it does."""
    if not is_full(journal):
        return None
    return f"the ledger's journal is full, so nothing more may be lost: {waiting(journal)} losses wait for a leader"


def objection_sentence(view: ClusterReads) -> str | None:
    """Return a sentence about replicas here that no broker serves, as a board objects to their state; None: none."""
    found = sorted(each.partition for each in view.member.partitions.values() if _objectors(each))
    if not found:
        return None
    boards = sorted({broker for each in view.member.partitions.values() for broker in _objectors(each)})
    who = f"broker {boards[0]}" if len(boards) == 1 else f"brokers {', '.join(map(str, boards))}"
    many = (
        f"{len(found)} partitions with a replica here are" if len(found) > 1 else "1 partition with a replica here is"
    )
    return (
        f"{many} not served, first {found[0].topic}-{found[0].partition}: {who} acted by newer states than ZooKeeper "
        "has, as after an older copy of its data was put back; nothing is truncated; restore the newest data, rebuild "
        "the znodes, or write a board off (`edge-broker cluster write-off --help`)"
    )


def _objectors(partition: Partition) -> tuple[int, ...]:
    return () if partition.state is None else tuple(each.broker for each in partition.state.objections)


def health(view: ClusterReads) -> str | None:
    """One sentence about partitions that are led here and lack replicas; None: none does."""
    few = _under_replicated(_in_sync(view))
    if not few:
        return None
    first = min(few, key=lambda each: (each.in_sync - each.needed, each.partition))
    where = f"{first.partition.topic}-{first.partition.partition}"
    many = f"{len(few)} partitions that are led here lack" if len(few) > 1 else "1 partition that is led here lacks"
    text = f"{many} replicas, first {where}: {first.in_sync} of {first.replicas} are in sync"
    if first.in_sync < first.needed:
        text += f", and acks=all needs {first.needed}"
    return text
