"""Writes the znodes of a plan into an ensemble, and goes on where an earlier run was killed.

| step | a kill after it |
|---|---|
| `/format` says `rebuilding`: no broker of any release joins | the next run goes on |
| no broker is registered, checked after that | the same |
| other topics go; each planned one is made, with all its states, by one Multi | the same: what is as planned stays |
| `/lost` has what may be lost, `/deleted` the deletions, `/producer-ids` the next id | the same |
| no broker is registered | the same |
| `/format` says so no more, by its version | done: brokers join |

Each step compares what is there with the plan, so a run may begin at any state that another one left. An ensemble that
has a registered broker is refused; one that has znodes of this cluster is, too, unless these are to be replaced.

Contains: that order, as a generator of requests. Does not contain: the plan (rebuild_plan.py), sockets.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import suppress
from typing import TypeAlias

from edge_broker.cluster.rebuild.rebuild_plan import Plan, PlannedTopic
from edge_broker.cluster.state.cluster_state import PartitionState
from edge_broker.cluster.znodes.znode_codec import (
    BROKERS,
    DELETED,
    FORMAT,
    LOST,
    PRODUCER_IDS,
    ROOTS,
    TOPICS,
    Format,
    LayoutFault,
    MayBeLost,
    decode_format,
    decode_producer_ids,
    deleted_path,
    encode,
    encode_lost,
    encode_producer_ids,
    encode_rebuilt_format,
    encode_state,
    encode_topic,
    has_security,
    is_number,
    lost_path,
    state_path,
    topic_id_path,
    topic_path,
)
from edge_broker.cluster.znodes.zookeeper import (
    ANY_VERSION,
    Answer,
    Children,
    Create,
    Delete,
    Done,
    Failure,
    Get,
    Multi,
    MultiFailed,
    Names,
    Node,
    Request,
    SetData,
    Stat,
    Sync,
)

Steps: TypeAlias = Generator[Request, Answer, None]


class RebuildRefused(Exception):
    """The ensemble is not to be written, or does not let itself be: a sentence with the remedy."""


def rebuild(plan: Plan, *, replaces: bool) -> Steps:
    """Write the plan; each request is answered by `send`. RebuildRefused.

    `replaces`: znodes of this cluster are replaced, as those of an older copy of the ensemble's data.
    """
    assert not plan.refusals, "a plan with refusals is not written"
    yield from _done(Sync())
    version, found, security = yield from _close(plan, replaces=replaces)
    yield from _check_nobody(found)
    for root in (*ROOTS, LOST):
        yield from _make_node(Create(root, encode({})))
    yield from _write_topics(plan.topics)
    yield from _write_lost(plan.topics)
    yield from _write_deletions(plan)
    yield from _write_producer_ids(plan.producer_ids)
    yield from _check_nobody(found)
    yield from _done(SetData(FORMAT, encode_rebuilt_format(found, security=security), version))


def _close(plan: Plan, *, replaces: bool) -> Generator[Request, Answer, tuple[int, Format, bool]]:
    """Have the format say that the znodes are being rebuilt; its version, and what it is to say in the end."""
    node = yield Get(FORMAT)
    rebuilding = plan.format._replace(rebuilding=True)
    if node is Failure.NO_NODE:
        yield from _done(Create(FORMAT, encode_rebuilt_format(rebuilding, security=plan.security)))
        return 0, plan.format, plan.security
    if not isinstance(node, Node):
        raise _refusal(node, FORMAT)
    try:
        before, security = decode_format(node), has_security(node) or plan.security
    except LayoutFault as fault:
        raise RebuildRefused(f"{fault}; upgrade this release, or correct zookeeper.connect") from None
    if before.cluster != plan.format.cluster:
        raise RebuildRefused(
            f"the ensemble has cluster {before.cluster}, and the disks belong to {plan.format.cluster}; correct "
            "zookeeper.connect"
        )
    yield from _check_nobody(before)
    if not (before.rebuilding or replaces):
        raise RebuildRefused(
            f"the ensemble has the znodes of cluster {before.cluster}; start its brokers, or give --replace where "
            "these znodes are an older copy that the plan is to replace"
        )
    base = max(plan.format.epoch_base, before.epoch_base)
    found = plan.format._replace(epoch_base=base)
    closed = encode_rebuilt_format(found._replace(rebuilding=True), security=security)
    yield from _done(SetData(FORMAT, closed, node.stat.version))
    return node.stat.version + 1, found, security


def _check_nobody(found: Format) -> Steps:
    names = yield Children(BROKERS)
    there = [name for name in names.names if is_number(name)] if isinstance(names, Names) else []
    if there:
        raise RebuildRefused(
            f"brokers {', '.join(there)} of cluster {found.cluster} are registered, so the cluster is alive; stop them "
            "first, and wait for the end of their sessions"
        )
    if not isinstance(names, Names) and names is not Failure.NO_NODE:
        raise _refusal(names, BROKERS)


# topics


def _write_topics(topics: Iterable[PlannedTopic]) -> Steps:
    planned = {each.name: each for each in topics}
    for name in (yield from _names(TOPICS)):
        if name not in planned:
            yield from _done(Multi(tuple((yield from _removals(name)))))
    for topic in planned.values():
        yield from _write_topic(topic)


def _write_topic(topic: PlannedTopic) -> Steps:
    """Make a topic with its states by one change, unless it is there as planned."""
    wanted: dict[str, bytes] = {
        topic_path(topic.name): encode_topic(topic.topic),
        topic_id_path(topic.name, topic.topic.topic_id): encode({}),
    }
    for each in topic.partitions:
        wanted[state_path(each.partition)] = encode_state(_first_state(each.state, may_lose=each.may_lose))
    removals = yield from _removals(topic.name)
    if {each.path for each in removals} == set(wanted):
        for path, data in wanted.items():
            node = yield Get(path)
            if not isinstance(node, Node):
                raise _refusal(node, path)
            if node.data != data:
                break
        else:
            return
    creates = [Create(path, data) for path, data in wanted.items()]
    yield from _done(Multi((*removals, *creates)))


def _first_state(state: PartitionState, *, may_lose: bool) -> PartitionState:
    """No replica is in sync before the ledger has the possible losses."""
    return state._replace(in_sync=()) if may_lose else state


def _removals(name: str) -> Generator[Request, Answer, list[Delete]]:
    """Return the operations that remove a topic, its children first; none if it does not exist."""
    path = topic_path(name)
    children = yield Children(path)
    if children is Failure.NO_NODE:
        return []
    if not isinstance(children, Names):
        raise _refusal(children, path)
    return [*(Delete(f"{path}/{child}", ANY_VERSION) for child in children.names), Delete(path, ANY_VERSION)]


# the rest


def _write_lost(topics: Iterable[PlannedTopic]) -> Steps:
    wanted: dict[str, bytes] = {}
    for topic in topics:
        for each in topic.partitions:
            entry = each.state.entry(each.leader)
            if each.may_lose and entry is not None:
                lost = MayBeLost(each.partition, topic.topic.topic_id, entry, each.state)
                wanted[lost_path(each.partition)] = encode_lost(lost)
    for name in (yield from _names(LOST)):
        yield from _done(Delete(f"{LOST}/{name}"))
    for path, data in wanted.items():
        yield from _done(Create(path, data))


def _write_deletions(plan: Plan) -> Steps:
    kept = {topic.topic.topic_id for topic in plan.topics}
    for topic_id in (yield from _names(DELETED)):
        if topic_id in kept:  # a person keeps it
            yield from _done(Delete(deleted_path(topic_id)))
    for topic_id, name in plan.deletions.items():
        yield from _make_node(Create(deleted_path(topic_id), encode({"topic": name})))


def _write_producer_ids(following: int) -> Steps:
    node = yield Get(PRODUCER_IDS)
    if node is Failure.NO_NODE:
        yield from _done(Create(PRODUCER_IDS, encode_producer_ids(following)))
        return
    if not isinstance(node, Node):
        raise _refusal(node, PRODUCER_IDS)
    with suppress(LayoutFault):  # what cannot be read is replaced: all ids that were given are far below
        following = max(following, decode_producer_ids(node))
    yield from _done(SetData(PRODUCER_IDS, encode_producer_ids(following), node.stat.version))


# answers


def _names(path: str) -> Generator[Request, Answer, tuple[str, ...]]:
    names = yield Children(path)
    if not isinstance(names, Names):
        raise _refusal(names, path)
    return names.names


def _make_node(create: Create) -> Steps:
    """Make a node that may be there already."""
    answer = yield create
    if not isinstance(answer, Stat) and answer is not Failure.NODE_EXISTS:
        raise _refusal(answer, create.path)


def _done(request: Create | SetData | Delete | Multi | Sync) -> Steps:
    if isinstance(request, Multi) and not request.operations:
        return
    answer = yield request
    if not isinstance(answer, Stat | Done):
        path = request.operations[0].path if isinstance(request, Multi) else request.path
        raise _refusal(answer, path)


def _refusal(answer: Answer, path: str) -> RebuildRefused:
    failure = answer.failure if isinstance(answer, MultiFailed) else answer
    what = failure.name if isinstance(failure, Failure) else str(failure)
    advice = _ADVICE.get(failure, "another one has changed it meanwhile; run the same command again")
    return RebuildRefused(f"znode {path}: ZooKeeper answers {what}; {advice}")


_ADVICE: dict[Answer, str] = {
    Failure.NO_AUTH: "the znodes are another user's, see edge.zookeeper.digest.file",
    Failure.NO_NODE: "see that the chroot of zookeeper.connect exists",
    Failure.CONNECTION_LOSS: "run the same command again, it goes on",
    Failure.SESSION_EXPIRED: "run the same command again, it goes on",
}
