"""ElectLeaders (key 43): preferred replicas are to lead their partitions, answered once this broker sees them lead.

| type | the leader | answered |
|---|---|---|
| preferred | is the preferred replica | ELECTION_NOT_NEEDED |
| preferred | is another, and the preferred one is not in sync, or away | PREFERRED_LEADER_NOT_AVAILABLE |
| preferred | is another | it hands over once the preferred one has everything; REQUEST_TIMED_OUT where that is late |
| unclean | is there | ELECTION_NOT_NEEDED |
| unclean | is away | ELIGIBLE_LEADERS_NOT_AVAILABLE: replicas elect themselves as far as the topic lets them |

No request elects a replica that may lack acknowledged records: the topic says whether that may be, in
`unclean.leader.election.enable`, and it is done without a request then. Where all partitions are asked for, those that
need no election are left out. A board that stands alone leads everything.

Source: Kafka protocol, ElectLeaders 0 to 2; KIP-183, KIP-460.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.cluster_port import NOBODY
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations.cluster_change import WAIT_MS_MAX
from edge_broker.broker.outcomes import Park, Reply, Steps, Taken, changes_in_steps
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.protocol.api import ELECT_LEADERS
from edge_broker.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from edge_broker.security.acls import Operation
from edge_broker.storage.topic import Topic

if TYPE_CHECKING:
    from edge_broker.broker.cluster_port import ClusterPort

PREFERRED, UNCLEAN = 0, 1
_TEXTS = {
    ErrorCode.ELECTION_NOT_NEEDED: "it is led as it should be",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the preferred replica is not in sync, or not there",
    ErrorCode.LEADER_NOT_AVAILABLE: "nobody leads it who could hand over; a replica that is in sync must come back",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica that is there may lead; bring back one that is in sync, "
    "or set unclean.leader.election.enable of the topic to true",
    ErrorCode.REQUEST_TIMED_OUT: "it was asked for, and is not known to be led so in time",
}


class _Place(NamedTuple):
    topic: str
    partition: int


@ServedApi(
    ELECT_LEADERS,
    ElectLeadersRequest,
    ElectLeadersResponse,
    {
        0: "preferred leaders (KIP-183)",
        1: "the type of election, an error of the whole (KIP-460)",
        2: "compact lengths, tags (KIP-482)",
    },
    left_out="unclean elections: replicas do them by themselves where the topic lets them",
)
@changes_in_steps
def elect_leaders(broker: Broker, context: RequestContext, request: ElectLeadersRequest) -> Taken:
    """Ask for each election, and wait for those that are to come."""
    code = ErrorCode.NONE if _is_member(broker, context) else broker.rights.cluster(context, Operation.ALTER)
    if not code and request.election_type not in (PREFERRED, UNCLEAN):
        code = ErrorCode.INVALID_REQUEST
    if code:
        return Reply(_refusal(request, code))
    results: dict[_Place, ErrorCode] = {}
    for place in _requested_places(broker, request):
        yield None
        if place not in results:
            results[place] = _request_election(broker, request.election_type, place)
    waits = [place for place, result in results.items() if not result]
    if broker.cluster is None or not waits:
        return (yield from _answer(request, results))
    _wait(broker, broker.cluster, context, request, results)
    return Park(keeps=True)


def _is_member(broker: Broker, context: RequestContext) -> bool:
    """Whether another broker of the cluster passes a wish of the controller's on."""
    if broker.cluster is None:
        return False
    from edge_broker.broker.cluster.follower_fetch import may_act_for_cluster  # noqa: PLC0415 - for a cluster alone

    return may_act_for_cluster(broker, context, noted=False)


def _refusal(request: ElectLeadersRequest, code: ErrorCode) -> ElectLeadersResponse:
    """As Kafka, which says it of the whole and of each partition that is named, without words."""
    if code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return ElectLeadersResponse(error_code=code)
    results = [
        ReplicaElectionResult(
            topic=asked.topic,
            partition_result=[PartitionResult(partition_id=one, error_code=code) for one in asked.partitions],
        )
        for asked in request.topic_partitions or ()
    ]
    return ElectLeadersResponse(error_code=code, replica_election_results=results)


def _requested_places(broker: Broker, request: ElectLeadersRequest) -> Iterator[_Place]:
    if request.topic_partitions is None:
        for topic in broker.topics.all():
            yield from (_Place(topic.name, number) for number in range(len(topic.partitions)))
        return
    for asked in request.topic_partitions:
        yield from (_Place(asked.topic, number) for number in asked.partitions)


def _request_election(broker: Broker, election_type: int, place: _Place) -> ErrorCode:
    """Ask for one election; NONE: it is to come."""
    try:
        topic = broker.topics.described_there(place.topic)
    except Refusal as refusal:
        return refusal.code
    if not 0 <= place.partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker.cluster is None or isinstance(topic, Topic):
        return ErrorCode.ELECTION_NOT_NEEDED
    if election_type == PREFERRED:
        return broker.cluster.changes.elect(*place)
    there = broker.cluster.view.leader(*place) != NOBODY
    return ErrorCode.ELECTION_NOT_NEEDED if there else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def _wait(
    broker: Broker,
    cluster: ClusterPort,
    context: RequestContext,
    request: ElectLeadersRequest,
    results: dict[_Place, ErrorCode],
) -> None:
    waits = {place for place, result in results.items() if not result}

    def answer() -> None:
        broker.effects.answer(context.token, Steps(_answer(request, results)))

    def check_leaders() -> bool:
        for place in list(waits):
            topic = cluster.view.describe(place.topic)
            if topic is None or place.partition >= len(topic.partitions):
                results[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                waits.discard(place)
            elif cluster.view.leader(*place) == topic.partitions[place.partition][0]:
                waits.discard(place)
        if not waits:
            answer()
        return not waits

    def late() -> None:
        results.update(dict.fromkeys(waits, ErrorCode.REQUEST_TIMED_OUT))
        answer()

    cluster.waits.until(check_leaders, min(max(request.timeout_ms, 0), WAIT_MS_MAX), late)


def _answer(request: ElectLeadersRequest, results: dict[_Place, ErrorCode]) -> Taken:
    topics: dict[str, ReplicaElectionResult] = {}
    for place, code in results.items():
        if request.topic_partitions is None and code == ErrorCode.ELECTION_NOT_NEEDED:
            yield None
            continue
        topic = topics.setdefault(place.topic, ReplicaElectionResult(topic=place.topic, partition_result=[]))
        text = _TEXTS.get(code, f"there is no partition {place.topic}-{place.partition}") if code else None
        topic.partition_result.append(
            PartitionResult(partition_id=place.partition, error_code=code, error_message=text)
        )
        yield topic.partition_result[-1]
    return Reply(ElectLeadersResponse(replica_election_results=list(topics.values())))
