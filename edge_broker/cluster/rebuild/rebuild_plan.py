"""Plan new znodes of a cluster from its brokers' disks: the plan, its losses, and what a person must decide.

| question | answer |
|---|---|
| which boards count | each board with a replica is described (`cluster disk`) or written off by name, else the plan is refused |
| which topics come back | those of the copies; none that a copy knows to be deleted |
| a topic that a newer copy lacks, or no copy has | refused until a person keeps or drops it; what is dropped stays on the disks, unserved |
| who leads | of the readable logs the one with the newest leader epoch, then the longest, then an undamaged one |
| who is in sync | the leader, and each log that ends with the same epochs at the same offset |
| logs part | refused until a person prefers a board: the other board has records of an epoch that the leader's log has not, or has from elsewhere |
| what may be lost | what only missing replicas had, where as many are missing as acks=all asks for; the ledger has it before anyone leads |
| epochs | leader epochs go on 1,048,576 above all seen; registrations 4,096 elections of ZooKeeper above all seen |

A log's last record names its newest epoch: as in Raft, the newest epoch and then the longest log has every record that
acks=all confirmed, if fewer replicas are missing than have to confirm it. That does not hold where logs part: an older
copy of ZooKeeper's data lets two boards lead in one epoch.

Contains: the decisions, as pure functions. Does not contain: reading disks (doctor/disk.py), writing znodes
(rebuild.py). Source: Raft, section 5.4.1; KIP-101; KIP-966.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from drupelet.quantities import quantity_text
from edge_broker.cluster.producer_ids import BLOCK_IDS, IDS_END
from edge_broker.cluster.rebuild.disks import NEVER_REGISTERED, NO_BROKER, NO_GENERATION, RUNNING, Disk, DiskLog
from edge_broker.cluster.state.cluster_state import NO_LEADER, InSyncReplica, PartitionId, PartitionState, Topic
from edge_broker.cluster.znodes.znode_codec import Format
from edge_broker.storage.metadata.cluster_copy import NEVER, CopiedTopic, newest_of

EPOCHS_AHEAD = 1 << 20  # elections that a board that was written off may have seen beyond those of the others
LEADER_EPOCH_MAX = (1 << 31) - 1
ELECTION_ZXIDS = 1 << 32  # what an election of ZooKeeper's own adds to its zxids
ELECTIONS_AHEAD = 4096
ANY_TOPIC = "*"


class Decisions(NamedTuple):
    """A person's decisions: boards written off, boards preferred, topics kept or dropped by name or id."""

    written_off: frozenset[int] = frozenset()
    prefer: Mapping[PartitionId, int] = {}
    keep: frozenset[str] = frozenset()
    drop: frozenset[str] = frozenset()


class PlannedPartition(NamedTuple):
    """A partition: `state` is what its znode gets, once the ledger has what `may_lose` says.

    `end_offset` is that of the leader's log, `missing` the replicas of which nothing can be read.
    """

    partition: PartitionId
    state: PartitionState
    leader: int
    end_offset: int
    missing: tuple[int, ...]
    may_lose: bool
    note: str = ""


class PlannedTopic(NamedTuple):
    """A topic that comes back."""

    name: str
    topic: Topic
    partitions: tuple[PlannedPartition, ...]


class LeftOut(NamedTuple):
    """A topic that does not come back, and why."""

    name: str
    topic_id: str
    reason: str


class Plan(NamedTuple):
    """All of it; nothing may be written while there are `refusals`, each of which is a sentence with its remedy."""

    format: Format
    security: bool
    topics: tuple[PlannedTopic, ...]
    deletions: Mapping[str, str]  # topic id to name
    left_out: tuple[LeftOut, ...]
    producer_ids: int
    notes: tuple[str, ...]
    refusals: tuple[str, ...]


class _KnownTopic(NamedTuple):
    """A topic as far as the disks know it; `epoch` is NEVER where only topic files have it."""

    name: str
    topic_id: str
    epoch: int
    replicas: tuple[tuple[int, ...], ...]
    config: Mapping[str, str]


def plan_rebuild(disks: Sequence[Disk], decisions: Decisions) -> Plan:
    """Plan the znodes of the cluster whose boards have these disks."""
    refusals = [*_disk_refusals(disks, decisions)]
    clusters = sorted({disk.cluster for disk in disks if disk.cluster})
    deletions = {each.topic_id: each.name for disk in disks if disk.copy for each in disk.copy.deletions}
    known, left_out = list[_KnownTopic](), list[LeftOut]()
    for topic in _known_topics(disks):
        reason, refusal = _why_left_out(topic, disks, deletions, decisions)
        if reason:
            left_out.append(LeftOut(topic.name, topic.topic_id, reason))
        elif refusal:
            refusals.append(refusal)
        else:
            known.append(topic)
    refusals += _twice(known)
    refusals += _missing_disks(known, disks, decisions)
    refusals += _unknown_decisions(known, left_out, refusals, decisions)
    base, producer_ids = _numbers(disks)
    topics, epoch = list[PlannedTopic](), _leader_epoch(disks, base)
    if epoch > LEADER_EPOCH_MAX:
        refusals.append("no leader epochs are left above those that the boards have seen; make a new cluster")
    for topic in known:
        partitions, more = _plan_topic(topic, disks, epoch, decisions)
        topics.append(PlannedTopic(topic.name, Topic(topic.topic_id, topic.replicas, topic.config), partitions))
        refusals += more
    if producer_ids > IDS_END - BLOCK_IDS:
        refusals.append("no producer ids are left above those that the boards have seen; make a new cluster")
    security = max((disk.security_generation for disk in disks), default=NO_GENERATION)
    kept = {topic.topic_id for topic in known}
    return Plan(
        Format(clusters[0] if clusters else "", base, rebuilding=False),
        security != NO_GENERATION,
        tuple(topics),
        {topic_id: name for topic_id, name in sorted(deletions.items()) if topic_id not in kept},
        tuple(left_out),
        producer_ids,
        tuple(_notes(disks, security)),
        tuple(refusals),
    )


# which disks


def _disk_refusals(disks: Sequence[Disk], decisions: Decisions) -> Iterator[str]:
    if not disks:
        yield "no disk is given; describe each board's with `edge-broker cluster disk --json`, and give --disk FILE"
    clusters = sorted({disk.cluster for disk in disks if disk.cluster})
    if len(clusters) > 1:
        yield f"the disks belong to several clusters ({', '.join(clusters)}); give those of one"
    if disks and not clusters:
        yield "no disk belongs to a cluster; there is nothing to rebuild, start the brokers instead"
    seen: set[int] = set()
    for disk in disks:
        if disk.broker == NO_BROKER:
            yield f"the disk {disk.directory or '-'} does not tell its broker.id; describe it again with --broker-id"
        elif disk.broker in seen:
            yield f"broker {disk.broker} has two disks here; give the one that its board has"
        elif disk.broker in decisions.written_off:
            yield f"broker {disk.broker} is written off and has a disk here; leave out one of the two"
        if disk.state == RUNNING:
            yield f"broker {disk.broker} ran when its disk was described; stop it, and describe the disk again"
        seen.add(disk.broker)


def _can_be_named(disk: Disk) -> bool:
    """Whether a state can speak of this disk: it knows a registration of itself."""
    return bool(disk.directory) and bool(disk.cluster) and disk.epoch != NEVER_REGISTERED


def _notes(disks: Sequence[Disk], security: int) -> Iterator[str]:
    for disk in disks:
        for problem in disk.problems:
            yield f"broker {disk.broker}: {problem}"
        if not _can_be_named(disk):
            yield f"broker {disk.broker}: its disk knows no registration, so it counts as empty"
    if security != NO_GENERATION:
        newest = next(disk.broker for disk in disks if disk.security_generation == security)
        yield (
            f"users and ACLs: nobody but super users gets in until `edge-broker user restore --data-dir DIR` has run "
            f"beside broker {newest}, whose copy is the newest"
        )


def _numbers(disks: Sequence[Disk]) -> tuple[int, int]:
    """The base of epochs, and the next producer id; both far above all that any disk has seen."""
    seen = max((max(disk.epoch, disk.copy.as_of if disk.copy else NEVER) for disk in disks), default=0)
    ahead = ELECTIONS_AHEAD * ELECTION_ZXIDS
    base = (max(seen, 0) // ELECTION_ZXIDS + 1) * ELECTION_ZXIDS + ahead
    given = max((disk.producer_ids for disk in disks), default=0)
    return base, max(given + ahead * BLOCK_IDS, base * BLOCK_IDS)


def _leader_epoch(disks: Sequence[Disk], base: int) -> int:
    """The leader epoch of every partition: far above all that any log has, and another one in each rebuild."""
    seen = max((log.last_epoch for disk in disks for log in disk.logs), default=-1)
    return max(seen + EPOCHS_AHEAD, base // (ELECTIONS_AHEAD * ELECTION_ZXIDS) * EPOCHS_AHEAD)


# which topics


def _known_topics(disks: Sequence[Disk]) -> list[_KnownTopic]:
    """Every topic that a copy or a topic file has, by its newest entry; of equal ones that of the newest copy."""
    copied: dict[str, CopiedTopic] = {}
    for disk in sorted(disks, key=lambda one: one.copy.as_of if one.copy else NEVER, reverse=True):
        for each in (*disk.copy.topics, *disk.copy.absent) if disk.copy else ():
            copied[each.topic_id] = newest_of(copied.get(each.topic_id), each)
    found = {topic_id: _of_copy(each) for topic_id, each in copied.items()}
    for disk in disks:
        for file in disk.topics:
            known = found.get(file.topic_id)
            known = known or _KnownTopic(file.name, file.topic_id, NEVER, (), file.config)
            more = range(len(known.replicas), file.partitions)
            guessed = tuple(_holders(disks, file.topic_id, partition) for partition in more)
            found[file.topic_id] = known._replace(replicas=(*known.replicas, *guessed))
    return sorted(found.values(), key=lambda one: (one.name, one.topic_id))


def _of_copy(topic: CopiedTopic) -> _KnownTopic:
    return _KnownTopic(topic.name, topic.topic_id, topic.epoch, topic.replicas, topic.config)


def _holders(disks: Sequence[Disk], topic_id: str, partition: int) -> tuple[int, ...]:
    """Boards with records of a partition whose replicas no copy has; without any, all that have its directory."""
    logs = {disk.broker: log for disk in disks if (log := disk.log(topic_id, partition)) is not None}
    return tuple(sorted(broker for broker, log in logs.items() if not log.is_empty) or sorted(logs))


def _why_left_out(
    topic: _KnownTopic, disks: Sequence[Disk], deletions: Mapping[str, str], decisions: Decisions
) -> tuple[str, str]:
    """Why a topic does not come back, or why that is to be decided; both empty: it comes back."""
    names = {topic.name, topic.topic_id}
    named = bool((names | {ANY_TOPIC}) & decisions.keep)
    if topic.topic_id in decisions.keep or (named and topic.topic_id not in deletions):
        return "", ""
    if topic.topic_id in deletions:
        return "it was deleted", ""
    if names & decisions.drop:
        return "it was dropped by --drop-topic; its records stay on the disks, unserved", ""
    lacking = sorted(disk.broker for disk in disks if _lacks(disk, topic))
    copied = any(topic.topic_id in _ids(disk) for disk in disks)
    if copied and not lacking:
        return "", ""
    where = f"newer copies of ZooKeeper's topics (brokers {_list(lacking)}) lack it" if copied else "no copy has it"
    advice = "give --keep-topic or --drop-topic with the name or the id"
    return "", f"topic {topic.name} ({topic.topic_id}) may have been deleted: {where}; {advice}"


def _ids(disk: Disk) -> set[str]:
    copy = disk.copy
    return {each.topic_id for each in (*copy.topics, *copy.absent)} if copy else set()


def _lacks(disk: Disk, topic: _KnownTopic) -> bool:
    """Whether a copy that is not older than the topic does not have it."""
    return disk.copy is not None and disk.copy.as_of >= topic.epoch != NEVER and topic.topic_id not in _ids(disk)


def _twice(known: Sequence[_KnownTopic]) -> Iterator[str]:
    for one, other in pairwise(known):
        if one.name == other.name:
            yield f"two topics are named {one.name} ({one.topic_id}, {other.topic_id}); give --drop-topic with one id"


def _missing_disks(known: Sequence[_KnownTopic], disks: Sequence[Disk], decisions: Decisions) -> Iterator[str]:
    """Boards with replicas that are neither described nor written off, and those written off for nothing."""
    replicas = {broker for topic in known for brokers in topic.replicas for broker in brokers}
    there = {disk.broker for disk in disks}
    for broker in sorted(replicas - there - decisions.written_off):
        many = quantity_text(sum(broker in brokers for topic in known for brokers in topic.replicas), "partition")
        yield f"broker {broker} has replicas of {many}; give --disk with its file, or --written-off {broker}"
    for broker in sorted(decisions.written_off - replicas):
        yield f"broker {broker} is written off and has no replica; correct --written-off"


def _unknown_decisions(
    known: Sequence[_KnownTopic], left_out: Sequence[LeftOut], refusals: Sequence[str], decisions: Decisions
) -> Iterator[str]:
    """Decisions about topics and partitions that the disks do not know."""
    text = " ".join(refusals)
    names = {ANY_TOPIC} | {each for topic in known for each in (topic.name, topic.topic_id)}
    names |= {each for topic in left_out for each in (topic.name, topic.topic_id)}
    for name in sorted((decisions.keep | decisions.drop) - names):
        if name not in text:
            yield f"no disk knows a topic {name}; correct --keep-topic or --drop-topic"
    counts = {topic.name: len(topic.replicas) for topic in known}
    for topic, partition in sorted(decisions.prefer):
        if partition >= counts.get(topic, 0):
            yield f"there is no partition {topic}-{partition}; correct --prefer"


# which logs


def _plan_topic(
    topic: _KnownTopic, disks: Sequence[Disk], epoch: int, decisions: Decisions
) -> tuple[tuple[PlannedPartition, ...], list[str]]:
    found, refusals = list[PlannedPartition](), list[str]()
    needed = Topic(topic.topic_id, topic.replicas, topic.config)
    for number, replicas in enumerate(topic.replicas):
        partition = PartitionId(topic.name, number)
        logs = {
            disk.broker: log
            for disk in disks
            if disk.broker in replicas and _can_be_named(disk)
            if (log := disk.log(topic.topic_id, number)) is not None and not log.problem
        }
        planned, refusal = _plan_partition(
            partition,
            replicas,
            logs,
            _entries(disks),
            epoch,
            needed.disks_needed(number),
            decisions.prefer.get(partition),
        )
        found.append(planned)
        refusals += [refusal] if refusal else []
    return tuple(found), refusals


def _plan_partition(
    partition: PartitionId,
    replicas: Sequence[int],
    logs: Mapping[int, DiskLog],
    entries: Mapping[int, InSyncReplica],
    epoch: int,
    needed: int,
    preferred: int | None,
) -> tuple[PlannedPartition, str]:
    name = f"{partition.topic}-{partition.partition}"
    missing = tuple(broker for broker in replicas if broker not in logs)
    if not logs:
        return _leaderless(partition, missing, epoch), ""
    if preferred is not None and preferred not in logs:
        return _leaderless(partition, missing, epoch), f"{name} has no readable log on broker {preferred}; see --prefer"
    leader = max(replicas, key=lambda broker: _rank(broker, logs, replicas)) if preferred is None else preferred
    parted = sorted(broker for broker, log in logs.items() if _parts(logs[leader], log))
    tail = sorted(broker for broker, log in logs.items() if first_difference(logs[leader], log) < log.end_offset)
    same = [broker for broker in replicas if broker in logs and _same(logs[leader], logs[broker])]
    state = PartitionState(NO_LEADER, epoch, tuple(entries[broker] for broker in same))
    note = f"brokers {_list(tail)} have records that it lacks, which they truncate and ledger" if tail else ""
    planned = PlannedPartition(partition, state, leader, logs[leader].end_offset, missing, len(missing) >= needed, note)
    if preferred is None and (parted or len(tail) >= needed):
        text = (
            f"{name}: the logs of brokers {_list([leader, *(parted or tail)])} part, so that each has records that "
            f"were perhaps confirmed and the other lacks; look at them (`edge-broker log dump`), and give "
            f"--prefer {name}=BROKER: the others truncate what differs, and ledger it"
        )
        return planned, text
    return planned, ""


def _entries(disks: Sequence[Disk]) -> dict[int, InSyncReplica]:
    """Return the entry of each disk in a state: it was caught up under its newest registration."""
    return {disk.broker: InSyncReplica(disk.broker, disk.directory, disk.epoch) for disk in disks}


def _leaderless(partition: PartitionId, missing: tuple[int, ...], epoch: int) -> PlannedPartition:
    note = "no described disk has it: nobody leads it until unclean.leader.election.enable of the topic is true"
    state = PartitionState(NO_LEADER, epoch, ())
    return PlannedPartition(partition, state, NO_LEADER, 0, missing, may_lose=False, note=note)


def _rank(broker: int, logs: Mapping[int, DiskLog], replicas: Sequence[int]) -> tuple[int, ...]:
    log = logs.get(broker)
    if log is None:
        return (-2,)
    return log.last_epoch, log.end_offset, not log.damaged, -replicas.index(broker)


def _same(one: DiskLog, other: DiskLog) -> bool:
    """Whether two logs end with the same records, as far as epochs tell; a damaged one is not in sync with another."""
    if one is other:
        return True
    at_end = one.end_offset == other.end_offset and one.last_epoch == other.last_epoch
    return at_end and not other.damaged and first_difference(one, other) >= one.end_offset


def _epoch_at(log: DiskLog, offset: int) -> int:
    return next((each.epoch for each in reversed(log.epochs) if each.offset <= offset), -1)


def first_difference(leader: DiskLog, other: DiskLog) -> int:
    """Return the first offset at which the other log does not have what the leader's has; its end: there is none."""
    start = max(leader.start_offset, other.start_offset)
    bounds = {each.offset for log in (leader, other) for each in log.epochs} | {start, leader.end_offset}
    crcs = {each.offset: each.crc for each in leader.epochs if each.crc is not None}
    others = {each.offset: each.crc for each in other.epochs if each.crc is not None}
    for offset in sorted(offset for offset in bounds if start <= offset < other.end_offset):
        differs = crcs.get(offset, 0) != others.get(offset, 0) if offset in crcs and offset in others else False
        if differs or offset >= leader.end_offset or _epoch_at(leader, offset) != _epoch_at(other, offset):
            return offset
    return other.end_offset


def _parts(leader: DiskLog, other: DiskLog) -> bool:
    """Whether the other log went on by leaders of its own, beyond the unconfirmed end of a leader that was replaced.

    That end is of epochs below the one with which the leader's log goes on there.
    """
    at = first_difference(leader, other)
    if at >= other.end_offset:
        return False
    goes_on = _epoch_at(leader, at) if at < leader.end_offset else leader.last_epoch
    return other.last_epoch >= goes_on


def _list(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))
