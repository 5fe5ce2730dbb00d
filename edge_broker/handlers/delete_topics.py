"""DeleteTopics (key 20): answered when the name is gone from the disk; requests that wait for the topic get an error.

In a cluster it is answered when this broker knows that the topic is gone; each broker erases its logs then. Else:

| step | it is over when | if it fails |
|---|---|---|
| names taken, topics hidden, tombstones for committed offsets | these are synced | shown again, KAFKA_STORAGE_ERROR |
| waiters of the logs get an error, rolls and writes in progress end | `disk`, `writer` had their turn | |
| each topic is erased in `files` | its name is gone, synced | KAFKA_STORAGE_ERROR; the next start goes on |
| the names are free | | |

Without the first step a new topic of the name would inherit the old one's committed offsets, and groups would skip its
first records. The steps go on whether or not the client is still there.

Does not contain: the order of the file changes (topic_deletion.py). Source: Kafka protocol, DeleteTopics 0 to 6.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations.cluster_change import ChangeOfTopic, agree
from edge_broker.broker.operations.groups.group_log import forget_topics
from edge_broker.broker.outcomes import AfterName, Outcome, Park, Reply, RunInWorker, Taken, changes_in_steps
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.protocol.api import DELETE_TOPICS
from edge_broker.protocol.message import NO_UUID
from edge_broker.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from edge_broker.security.acls import Operation, ResourceType
from edge_broker.storage.metadata.topic_record import OFFSETS_TOPIC, id_text
from edge_broker.storage.topic import Topic
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.broker.cluster_port import ClusterPort, Told, TopicDirectory
    from edge_broker.broker.state.topic_registry import AnyTopic

BY_STATE_FROM = 6

Failures = Mapping[str, str]
"""By topic name: why it could not be deleted."""


class _DeletionRequest(NamedTuple):
    name: str | None
    topic_id: uuid.UUID


@ServedApi(
    DELETE_TOPICS,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    {
        0: "topics by name (KIP-4)",
        1: "throttle time (KIP-124)",
        2: "throttled by the client (KIP-219)",
        3: "TOPIC_DELETION_DISABLED (KIP-322)",
        4: "compact lengths, tags (KIP-482)",
        5: "an error message, quotas (KIP-599)",
        6: "topics by id (KIP-516)",
    },
)
@changes_in_steps
def delete_topics(broker: Broker, context: RequestContext, request: DeleteTopicsRequest) -> Taken:
    """Take each topic away that may go; the others get an error of their own."""
    if OFFSETS_TOPIC in broker.topics.changing:  # what is committed is not known yet
        return AfterName(OFFSETS_TOPIC, lambda: delete_topics(broker, context, request))
    if context.api_version >= BY_STATE_FROM:
        asked = [_DeletionRequest(topic.name, topic.topic_id) for topic in request.topics]
    else:
        asked = [_DeletionRequest(name, NO_UUID) for name in request.topic_names]
    results: list[DeletableTopicResult] = []
    wanted: dict[str, tuple[_DeletionRequest, DeletableTopicResult]] = {}
    times: Counter[_DeletionRequest] = Counter()
    for one in asked:
        yield None
        times[one] += 1
    named: dict[str, list[DeletableTopicResult]] = {}
    for one, count in times.items():
        result = DeletableTopicResult(name=one.name, topic_id=one.topic_id)
        topic = _check(broker, context, one, result)
        if topic is not None:
            wanted[topic.name] = one, result
            named.setdefault(topic.name, []).extend([result] * count)
        results.append(result)
        yield result
    for name, answers in named.items():
        yield None
        if len(answers) > 1:
            del wanted[name]
            for answer in answers:
                answer.error_code = ErrorCode.INVALID_REQUEST
                answer.error_message = f"topic {name!r} is named more than once, and stays; name it once"
    taken = broker.topics.first_taken(wanted)
    if taken is not None:  # it is being altered, or gets partitions
        return AfterName(taken, lambda: delete_topics(broker, context, request))
    going: list[AnyTopic] = []
    for one, result in wanted.values():  # in one step, as is all that follows: a name is hidden and taken at once
        topic = _check(broker, context, one, result)
        if topic is not None:
            going.append(topic)
            result.name, result.topic_id = topic.name, topic.topic_id
    if not going:
        return Reply(DeleteTopicsResponse(responses=results))
    if broker.cluster is not None:
        changes = [_Deleting(topic.name, id_text(topic.topic_id)) for topic in going]
        return agree(broker, changes, lambda errors: _agreed_reply(results, errors), request.timeout_ms)
    hidden = [broker.store.hide_topic(topic.name) for topic in going]

    def topics_deleted(failures: Failures) -> None:
        for result in results:
            if result.error_code == 0 and result.name is not None and result.name in failures:
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                result.error_message = failures[result.name]
        broker.effects.answer(context.token, DeleteTopicsResponse(responses=results))

    _Deletion(broker, hidden, topics_deleted).begin()
    return Park(keeps=True)


class _Deleting(ChangeOfTopic):
    """A topic of the cluster that goes."""

    def ask(self, cluster: ClusterPort, told: Told) -> None:
        """As Change."""
        cluster.changes.delete_topic(self.name, told)

    def holds(self, view: TopicDirectory) -> bool:
        """As Change."""
        return self.topic_in(view) is None


def _agreed_reply(results: list[DeletableTopicResult], errors: Mapping[str, Refusal]) -> Reply:
    for result in results:
        refusal = errors.get(result.name) if result.error_code == 0 and result.name is not None else None
        if refusal is not None:
            result.error_code, result.error_message = refusal.code, refusal.message
    return Reply(DeleteTopicsResponse(responses=results))


def erase_here(broker: Broker, name: str, ended: Callable[[Failures], None]) -> Outcome:
    """Take away what is here of a topic that the cluster has deleted; `ended` as of _Deletion."""
    if broker.topics.first_taken([name]) is not None:
        return AfterName(name, lambda: erase_here(broker, name, ended))
    _Deletion(broker, [broker.store.hide_topic(name)], ended).begin()
    return Reply(None)


def _check(
    broker: Broker, context: RequestContext, asked: _DeletionRequest, result: DeletableTopicResult
) -> AnyTopic | None:
    """The topic if it may be deleted; why not goes into its result."""
    try:
        return _deletable(broker, context, asked, result)
    except Refusal as refusal:
        result.error_code, result.error_message = refusal.code, refusal.message
        return None


class _Deletion:
    """Topics on their way out; `ended` is called once, on the loop, with what could not be deleted."""

    def __init__(self, broker: Broker, topics: Sequence[Topic], ended: Callable[[Failures], None]) -> None:
        self._broker = broker
        self._topics = topics
        self._names = [topic.name for topic in topics]
        self._ended = ended
        broker.topics.take_names(self._names)

    def begin(self) -> None:
        """Drop what groups committed for the topics, then go on.

        In a cluster that was done when this broker saw the deletion (deleted_topic_offsets.py): what is committed by
        now is for a new topic of the name.
        """
        broker = self._broker
        with self._ends_with_a_bug():
            if broker.cluster is not None:
                self._offsets_forgotten(ErrorCode.NONE)
            else:
                forget_topics(broker, self._names, self._offsets_forgotten)

    @contextmanager
    def _ends_with_a_bug(self) -> Iterator[None]:
        """Steps on the loop run in here: a bug in one frees the names, and the client is answered."""
        try:
            yield
        except Exception as error:
            self._broker.topics.free_names(self._names)
            self._ended(dict.fromkeys(self._names, f"the deletion failed: {error!r}"))
            raise

    def _offsets_forgotten(self, error: ErrorCode) -> None:
        broker = self._broker
        with self._ends_with_a_bug():
            if error != ErrorCode.NONE:
                self._stay(f"{OFFSETS_TOPIC} did not take that its offsets go ({error.name}); nothing was deleted")
                return
            for name in self._names:
                broker.effects.offline(broker.store.remove_topic(name).partitions)
            broker.effects.start(self._behind_workers())

    def _stay(self, reason: str) -> None:
        broker = self._broker
        for name in self._names:
            topic = broker.store.show_again(name)
            broker.effects.offline(log for log in topic.partitions if log.fault is not None)  # not told yet
        broker.topics.free_names(self._names)
        self._ended(dict.fromkeys(self._names, reason))

    def _behind_workers(self) -> RunInWorker:
        """Erase after the rolls and writes in progress: they work on these names."""
        erase = RunInWorker(
            self._erase,
            self._topics_erased,
            self._erasing_failed,
            over=lambda: self._broker.topics.free_names(self._names),
        )
        behind_writes = RunInWorker(lambda: None, lambda _: erase, self._erasing_failed, worker="writer")
        return RunInWorker(lambda: None, lambda _: behind_writes, self._erasing_failed, worker="disk")

    @runs_in()
    def _erase(self) -> Failures:
        """Erase each topic; one that fails costs no other, and a bug is a failure."""
        failures = {}
        for topic in self._topics:
            try:
                self._broker.store.topic_files.erase_topic(topic)
            except StorageFault as fault:
                failures[topic.name] = str(fault)
            except Exception as error:  # noqa: BLE001 - the client must hear of it, and the name must be free
                failures[topic.name] = f"erasing failed: {error!r}"
        return failures

    def _topics_erased(self, failures: Failures) -> Outcome:
        for topic in self._topics:
            if topic.name not in failures:
                self._broker.store.forget_topic(topic)
        self._broker.effects.note(*(f"topic {name} could not be erased: {reason}" for name, reason in failures.items()))
        self._ended(failures)
        return Reply(None)

    def _erasing_failed(self, error: Exception) -> Outcome:
        return self._topics_erased(dict.fromkeys(self._names, str(error)))


def _deletable(
    broker: Broker, context: RequestContext, asked: _DeletionRequest, result: DeletableTopicResult
) -> AnyTopic:
    if not broker.config.boolean("delete.topic.enable"):
        raise Refusal(ErrorCode.TOPIC_DELETION_DISABLED, "topics cannot be deleted here: delete.topic.enable is false")
    if asked.name is not None and asked.topic_id != NO_UUID:
        raise Refusal(ErrorCode.INVALID_REQUEST, "a topic is named and given by id; say one of the two")
    if asked.name is None and asked.topic_id == NO_UUID:
        raise Refusal(ErrorCode.INVALID_REQUEST, "a topic is neither named nor given by id; say one of the two")
    topic = _check_allowed(broker, context, asked, result)
    if broker.groups.fault is not None:
        raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"what groups committed for it cannot go: {broker.groups.fault}")
    return topic


def _authorize_unnamed(broker: Broker, context: RequestContext, topic: AnyTopic) -> None:
    """Refuse a topic that was given by its id, without its name, for a session that may not describe it."""
    try:
        broker.topics.authorize(context, topic.name, Operation.DELETE)
    except Refusal as refusal:
        text = f"{context.session.principal} has no right to the topic of id {id_text(topic.topic_id)}"
        raise Refusal(refusal.code, f"{text}; an administrator may give it") from None


def _check_allowed(
    broker: Broker, context: RequestContext, asked: _DeletionRequest, result: DeletableTopicResult
) -> AnyTopic:
    """The topic, if the session may delete it; one that it may not describe is not told to be there, nor its name."""
    topics, rights = broker.topics, broker.rights
    deletes_all = rights.may(context, Operation.DELETE, ResourceType.CLUSTER, noted=False)
    if asked.name is None:
        topic = topics.by_id(asked.topic_id)
        if not deletes_all and topics.shown_to(context, topic.name):
            result.name = topic.name
        elif not deletes_all:
            _authorize_unnamed(broker, context, topic)
    else:
        if not deletes_all:
            topics.authorize(context, asked.name, Operation.DESCRIBE)
        topic = topics.described_there(asked.name)
    if deletes_all:
        topics.spare_own(context, topic.name, Operation.DELETE)
    else:
        topics.authorize(context, topic.name, Operation.DELETE)
    return topic
