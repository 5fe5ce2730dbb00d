"""Fetch sessions (KIP-227): epochs, what is named, forgotten and answered, topics that go and come again."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import DELETE_RECORDS, DELETE_TOPICS, FETCH
from edge_broker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from edge_broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tests.differential.session import SETTLE_S, Session, case
from tests.support.waiting import Deadline


def _from(offset: int, *, partition: int = 0, size: int = 1 << 20) -> FetchPartition:
    return FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=size)


def _wait_until_gone(s: Session, topic: str) -> None:
    """Kafka deletes behind its answer."""
    wanted = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=topic, partitions=[_from(0)])])
    deadline = Deadline(SETTLE_S)
    while (found := s.quietly(FETCH, wanted, 11).responses[0].partitions[0].error_code) == ErrorCode.NONE:
        deadline.check(f"{topic} is gone", found)
        time.sleep(0.02)


class Sessions:
    """Fetches of sessions by one case; `epoch` is that which is due."""

    def __init__(self, s: Session, version: int) -> None:
        self.s, self.version = s, version
        self.number, self.epoch = 0, 0
        self.ids: dict[str, UUID] = {}

    def topic(self, suffix: str, partitions: int = 1) -> str:
        """A topic that is known by name and id."""
        name = self.s.topic(suffix, partitions)
        self.ids[name] = self.s.wait_for(name, partitions).topic_id
        return name

    def fetch(
        self,
        label: str,
        *parts: tuple[str, FetchPartition],
        forget: tuple[tuple[str, int], ...] = (),
        epoch: int | None = None,
        number: int | None = None,
        version: int | None = None,
        on: str = "main",
    ) -> Any:
        """Ask with the epoch that is due, or another; what is answered tells the next one."""
        version = version or self.version
        named: dict[str, list[FetchPartition]] = {}
        for name, part in parts:
            named.setdefault(name, []).append(part)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=self.number if number is None else number,
            session_epoch=self.epoch if epoch is None else epoch,
            topics=[
                FetchTopic(topic=name, topic_id=self.ids.get(name, UUID(int=77)), partitions=wanted)
                for name, wanted in named.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic=name, topic_id=self.ids.get(name, UUID(int=77)), partitions=[index])
                for name, index in forget
            ],
        )
        answer = self.s.ask(FETCH, request, version, label=label, on=on)
        if answer.error_code == ErrorCode.NONE:
            self.number, self.epoch = answer.session_id, self.epoch + 1 if answer.session_id else 0
        return answer


@case(FETCH, versions=(7, 11, 12, 13, 17))
def incremental_fetches(s: Session, version: int) -> None:
    f = Sessions(s, version)
    topic, other = f.topic("t", 3), f.topic("u")
    s.fill(topic, [b"a", b"b"])
    begin = [(topic, _from(0, partition=index)) for index in range(3)]
    f.fetch("begins", *begin)
    f.fetch("nothing new is named")
    f.fetch("to the end", (topic, _from(2)))
    f.fetch("idle")
    f.fetch("idle again")
    s.fill(topic, [b"c"], partition=1)
    f.fetch("one has more")
    f.fetch("it still has", (topic, _from(0, partition=2)))
    f.fetch("read", (topic, _from(1, partition=1)))
    f.fetch("one more partition", (other, _from(0)))
    f.fetch("behind the end", (other, _from(5)))
    f.fetch("still behind the end")
    f.fetch("right again", (other, _from(0)))
    f.fetch("idle with both")
    f.fetch("on another connection", on="other")
    f.fetch("missing partition", (topic, _from(0, partition=8)))
    f.fetch("still missing")
    f.fetch("forgotten", forget=((topic, 8),))
    f.fetch("unknown ones are forgotten", forget=((topic, 99), (s.name("none"), 0), (topic, -1)))
    f.fetch("named and forgotten", (other, _from(0)), forget=((other, 0),))
    s.fill(other, [b"o"])
    f.fetch("forgotten has more")
    f.fetch("named twice", (topic, _from(9)), (topic, _from(2)))
    f.fetch("0 bytes", (topic, _from(0, size=0)))


@case(FETCH, versions=(7, 12, 13, 17))
def ends_of_fetch_sessions(s: Session, version: int) -> None:
    f = Sessions(s, version)
    topic = f.topic("t", 2)
    s.fill(topic, [b"a"])
    both = [(topic, _from(1)), (topic, _from(0, partition=1))]
    f.fetch("begins", *both)
    f.fetch("goes on")
    f.fetch("the epoch before", epoch=f.epoch - 1)
    f.fetch("a later epoch", epoch=f.epoch + 1)
    f.fetch("epoch -2", epoch=-2)
    f.fetch("the one that is due")
    first, due = f.number, f.epoch
    f.fetch("another one begins in its place", *both, epoch=0)
    f.epoch = 1
    f.fetch("the former goes on", number=first, epoch=due)
    f.fetch("the new one goes on")
    f.fetch("everything is forgotten", forget=((topic, 0), (topic, 1)))
    f.fetch("nothing is left", epoch=4)
    f.fetch("begins again", *both)
    f.fetch("named, forgotten and the last", *both, forget=((topic, 0), (topic, 1)))
    f.fetch("once more", *both)
    last, due = f.number, f.epoch
    f.fetch("ends", *both, epoch=-1)
    f.fetch("has ended", number=last, epoch=due)
    f.number = f.epoch = 0
    f.fetch("nothing is named")
    f.fetch("of nothing")
    f.number = f.epoch = 0
    f.fetch("missing topic", (s.name("missing"), _from(0)))
    f.fetch("still missing")
    f.number = f.epoch = 0
    f.fetch("forgets at its beginning", *both, forget=((topic, 0),))
    f.fetch("goes on all the same")


@case(FETCH, versions=(12, 13))
def fetch_sessions_of_names_and_of_ids(s: Session, version: int) -> None:
    f = Sessions(s, version)
    topic = f.topic("t")
    f.fetch("begins", (topic, _from(0)))
    f.fetch("the other version", version=25 - version)
    f.fetch("the same one")


@case(FETCH, versions=(12, 17))
def fetch_sessions_of_changing_topics(s: Session, version: int) -> None:
    f = Sessions(s, version)
    topic, other = f.topic("t"), f.topic("u")
    s.fill(topic, [b"a", b"b", b"c"])
    f.fetch("begins", (topic, _from(3)), (other, _from(0)))
    f.fetch("idle")
    gone = [DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])]
    s.ask(DELETE_RECORDS, DeleteRecordsRequest(topics=gone, timeout_ms=30_000), 2)
    f.fetch("the start has moved")
    f.fetch("idle again")
    s.ask(DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=30_000), 6)
    _wait_until_gone(s, topic)
    f.fetch("deleted")
    f.fetch("still deleted")
    s.topic("t")
    f.fetch("made again")
    f.fetch("begin anew there", (topic, _from(0)))
    s.fill(other, [b"o"])
    f.fetch("the other one goes on")
