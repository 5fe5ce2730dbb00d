"""DeleteTopics (key 20): answered when the name is gone from the disk; whoever waits for the topic is told.

What groups committed for the topic is dropped first, and synced.

Source: Kafka protocol, DeleteTopics 0 to 6.
"""

from __future__ import annotations

import uuid
from typing import NamedTuple

from edge_broker.errors import ErrorCode, Refusal
from edge_broker.handlers.broker import INTERNAL_TOPICS, OFFSETS_TOPIC, Broker, RequestContext
from edge_broker.handlers.group_work import SYNC_MS_MAX, settle
from edge_broker.handlers.outcome import Do, Outcome, Reply, Wait
from edge_broker.protocol.message import NO_UUID
from edge_broker.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from edge_broker.storage.ledger import LEDGER_TOPIC
from edge_broker.storage.store import Topic

BY_STATE_FROM = 6


class _Asked(NamedTuple):
    name: str | None
    topic_id: uuid.UUID


def delete_topics(broker: Broker, context: RequestContext, request: DeleteTopicsRequest) -> Outcome:
    """Take each topic away that may go; the others get an error of their own."""
    if context.api_version >= BY_STATE_FROM:
        asked = [_Asked(topic.name, topic.topic_id) for topic in request.topics]
    else:
        asked = [_Asked(name, NO_UUID) for name in request.topic_names]
    results: list[DeletableTopicResult] = []
    gone: list[Topic] = []
    for one in asked:
        try:
            topic = _deletable(broker, one)
        except Refusal as refusal:
            results.append(
                DeletableTopicResult(
                    name=one.name, topic_id=one.topic_id, error_code=refusal.code, error_message=refusal.message
                )
            )
        else:
            gone.append(broker.store.remove_topic(topic.name))
            broker.gone.extend(topic.partitions)
            results.append(DeletableTopicResult(name=topic.name, topic_id=topic.topic_id))
    reply = Reply(DeleteTopicsResponse(responses=results))
    if not gone:
        return reply

    names = [topic.name for topic in gone]
    broker.changing.update(names)

    def work() -> None:
        for topic in gone:
            broker.store.erase_topic(topic)

    def erased(_: object) -> Outcome:
        broker.changing.difference_update(names)
        return reply

    def failed(error: Exception) -> Outcome:
        for result in results:
            if result.error_code == 0:
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                result.error_message = str(error)
        return erased(None)

    erase = Do(work, erased, failed)
    behind_rolls = Do(lambda: None, lambda _: erase, failed, worker="disk")  # a roll under way works on these names
    return after_forgetting(broker, names, behind_rolls)


def after_forgetting(broker: Broker, names: list[str], erase: Do) -> Outcome:
    """Erase once what groups committed for these topics is dropped and synced."""
    settle(broker, broker.groups.forget_topics(names, broker.clock.steady_ms()))
    offsets = broker.store.topics.get(OFFSETS_TOPIC)
    ends = [(log, log.log_end_offset) for log in offsets.partitions] if offsets else []

    def ready() -> Outcome | None:
        return None if any(log.high_watermark < end and log.fault is None for log, end in ends) else erase

    return ready() or Wait([log for log, _ in ends], ready, SYNC_MS_MAX, lambda: erase)


def _deletable(broker: Broker, asked: _Asked) -> Topic:
    if not broker.config.boolean("delete.topic.enable"):
        raise Refusal(ErrorCode.TOPIC_DELETION_DISABLED, "topics cannot be deleted here: delete.topic.enable is false")
    if asked.name is not None and asked.topic_id != NO_UUID:
        raise Refusal(ErrorCode.INVALID_REQUEST, "a topic is named and given by id; say one of the two")
    topic = broker.topic_by_id(asked.topic_id) if asked.name is None else broker.store.topics.get(asked.name)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {asked.name!r} does not exist")
    if topic.name in INTERNAL_TOPICS or topic.name == LEDGER_TOPIC:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} belongs to the broker")
    return topic
