"""Fetch sessions of clients: what each wants to be read, and what it was told last (KIP-227).

| epoch of a request | what it means | it is answered |
|---|---|---|
| 0 | everything is named: a session begins, the one that it names ends | all, and the new id; 0: there is no room |
| -1 | everything is named, the session ends | all |
| the one that is due | what is named is new or different, what is forgotten goes, the rest stays | what has changed |
| the same, and nothing is left | the session ends | as a request without one |

| refused | with |
|---|---|
| an id that is none, or none any more | FETCH_SESSION_ID_NOT_FOUND |
| another epoch | INVALID_FETCH_SESSION_EPOCH |
| names in a session of topic ids, or the reverse | FETCH_SESSION_TOPIC_ID_ERROR |

A partition has changed where it has records, an error, a diverging epoch, or another high watermark, last stable offset
or log start than reported last. One whose records were sent goes after all others, so that none starves.

| a new session finds no room: one makes room for it, the first that there is | |
|---|---|
| not used for STALE_MS | as Kafka |
| of a connection that is gone | clients start another one on a new connection |
| begun more than STALE_MS ago, with fewer partitions: the one with fewest | as Kafka |

Room is `max.incremental.fetch.session.cache.slots`, and BYTES_MAX. A session that grows beyond that ends: its client
starts another one. The orders of followers are kept apart from this (follower_fetch_sessions.py), and never go for a
client.

Does not contain: how partitions are read (handlers/fetch.py), who may read. Source: KIP-227, KIP-516.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from edge_broker.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from uuid import UUID

    from edge_broker.protocol.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic, PartitionData

    TopicKey: TypeAlias = str | UUID

BEGINS, WITHOUT = 0, -1
EPOCH_MAX = (1 << 31) - 1
NONE = 0  # the id of no session
STALE_MS = 120_000
BYTES_MAX = 8 << 20
SESSION_BYTES = 1_024
TOPIC_BYTES = 512  # and its name
PARTITION_BYTES = 512
NOT_TOLD = -2


class WantedTopic:
    """A topic of a session; also what a request says of one, for who reads it."""

    __slots__ = ("partitions", "topic", "topic_id")

    def __init__(self, topic: FetchTopic) -> None:
        self.topic, self.topic_id = topic.topic, topic.topic_id
        self.partitions: dict[int, WantedPartition] = {}


class WantedPartition:
    """A partition of a session; `quiet` while it is known that its log matches the reader's."""

    __slots__ = ("asked", "high_watermark", "last_stable_offset", "log_start_offset", "of", "quiet")

    def __init__(self, of: WantedTopic, asked: FetchPartition) -> None:
        self.of, self.asked = of, asked
        self.high_watermark = self.last_stable_offset = self.log_start_offset = NOT_TOLD
        self.quiet: tuple[UUID, int] | None = None  # the topic's id, the very object, and the log's leader epoch

    def ask(self, asked: FetchPartition) -> None:
        """From now on this is wanted."""
        self.asked, self.quiet = asked, None

    def update(self, data: PartitionData) -> bool:
        """Take in what can be told; whether it is new."""
        told = self.high_watermark, self.last_stable_offset, self.log_start_offset
        self.high_watermark = data.high_watermark
        self.last_stable_offset = data.last_stable_offset
        self.log_start_offset = data.log_start_offset
        return (
            told != (data.high_watermark, data.last_stable_offset, data.log_start_offset)
            or bool(data.records)
            or data.error_code != ErrorCode.NONE
            or data.diverging_epoch is not None
        )

    def tell_again(self) -> None:
        """The last response did not reach the client."""
        self.high_watermark, self.quiet = NOT_TOLD, None


class FetchSession:
    """One session; `order` is that in which its partitions are read."""

    __slots__ = ("began_ms", "by_id", "bytes_held", "epoch", "id", "order", "peer", "topics", "used_ms")

    def __init__(self, peer: str, *, by_id: bool) -> None:
        self.peer, self.by_id = peer, by_id
        self.id = NONE
        self.epoch = 1
        self.began_ms = self.used_ms = 0
        self.bytes_held = SESSION_BYTES
        self.topics: dict[TopicKey, WantedTopic] = {}
        self.order: dict[WantedPartition, None] = {}

    def key(self, topic: FetchTopic | ForgottenTopic) -> TopicKey:
        """The key of topics in this session."""
        return topic.topic_id if self.by_id else topic.topic

    def topic(self, topic: FetchTopic) -> WantedTopic:
        """A topic of this session, from now on."""
        key = self.key(topic)
        found = self.topics.get(key)
        if found is None:
            found = self.topics[key] = WantedTopic(topic)
            self.bytes_held += TOPIC_BYTES + len(topic.topic)
        return found

    def want(self, topic: WantedTopic, asked: FetchPartition) -> WantedPartition:
        """A partition is new, or different."""
        found = topic.partitions.get(asked.partition)
        if found is None:
            found = topic.partitions[asked.partition] = WantedPartition(topic, asked)
            self.order[found] = None
            self.bytes_held += PARTITION_BYTES
        else:
            found.ask(asked)
        return found

    def forget(self, forgotten: ForgottenTopic) -> None:
        """These partitions are not wanted any more."""
        key = self.key(forgotten)
        topic = self.topics.get(key)
        if topic is None:
            return
        for index in forgotten.partitions:
            gone = topic.partitions.pop(index, None)
            if gone is not None:
                del self.order[gone]
                self.bytes_held -= PARTITION_BYTES
        if not topic.partitions:
            del self.topics[key]
            self.bytes_held -= TOPIC_BYTES + len(topic.topic)

    def records_sent(self, wanted: WantedPartition) -> None:
        """Records of this one were sent: the others come first."""
        if self.order.pop(wanted, self) is None:
            self.order[wanted] = None


class FetchSessions:
    """The sessions of all clients, in the order of their use; `new_id` gives numbers from 1 on by chance."""

    def __init__(self, slots: int, new_id: Callable[[], int], is_connected: Callable[[str], bool]) -> None:
        self.slots, self._new_id, self._is_connected = slots, new_id, is_connected
        self._sessions: dict[int, FetchSession] = {}
        self.bytes_held = self.partitions = self.evicted = 0

    def __len__(self) -> int:
        """How many there are."""
        return len(self._sessions)

    def resume(self, session_id: int, epoch: int, now_ms: int, *, by_id: bool) -> FetchSession:
        """The session that a request goes on with; Refusal."""
        session = self._sessions.get(session_id)
        if session is None:
            raise Refusal(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session has the id {session_id}")
        if session.epoch != epoch:
            raise Refusal(ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"epoch {session.epoch} is due, not {epoch}")
        if session.by_id != by_id:
            raise Refusal(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a session is of topic ids, or of names")
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.used_ms = now_ms
        del self._sessions[session_id]
        self._sessions[session_id] = session
        return session

    def end(self, session_id: int) -> None:
        """A session is over, if it is one."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.bytes_held -= session.bytes_held
            self.partitions -= len(session.order)

    def begin(self, session: FetchSession, now_ms: int) -> int:
        """Keep a session; its id, NONE where there is no room for it."""
        if not self._has_room(session, len(session.order), now_ms):
            return NONE
        while session.id == NONE or session.id in self._sessions:
            session.id = self._new_id()
        session.began_ms = session.used_ms = now_ms
        self._sessions[session.id] = session
        self.bytes_held += session.bytes_held
        self.partitions += len(session.order)
        return session.id

    def partitions_changed(self, session: FetchSession, bytes_before: int, partitions_before: int, now_ms: int) -> None:
        """A session has other partitions; Refusal, and it ends, where there is no room for more."""
        if session.id not in self._sessions:
            return  # ended meanwhile
        self.bytes_held += session.bytes_held - bytes_before
        self.partitions += len(session.order) - partitions_before
        if session.bytes_held > bytes_before and not self._has_room(None, len(session.order), now_ms, but=session):
            self.end(session.id)
            raise Refusal(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "there is no room for a session of so many partitions")

    def end_stale(self, now_ms: int) -> None:
        """End abandoned sessions: unused for long, and their connections are gone."""
        for session in list(self._sessions.values()):
            if now_ms - session.used_ms <= STALE_MS:
                break
            if not self._is_connected(session.peer):
                self.end(session.id)

    def _has_room(
        self, coming: FetchSession | None, partitions: int, now_ms: int, but: FetchSession | None = None
    ) -> bool:
        """Return whether a session of so many partitions fits, after evictions if needed; none is evicted in vain."""
        slots, size = (1, coming.bytes_held) if coming is not None else (0, 0)
        excess_slots = len(self._sessions) + slots - self.slots
        excess_bytes = self.bytes_held + size - BYTES_MAX
        if excess_slots <= 0 and excess_bytes <= 0:
            return True
        going = []
        for victim in self._victims(partitions, now_ms, but):
            going.append(victim.id)
            excess_slots, excess_bytes = excess_slots - 1, excess_bytes - victim.bytes_held
            if excess_slots <= 0 and excess_bytes <= 0:
                break
        else:
            return False
        for session_id in going:
            self.end(session_id)
        self.evicted += len(going)
        return True

    def _victims(self, partitions: int, now_ms: int, but: FetchSession | None) -> Iterator[FetchSession]:
        """Yield sessions that may be evicted for one of so many partitions, in order."""
        left: list[FetchSession] = []
        for session in self._sessions.values():
            if session is but:
                continue
            if now_ms - session.used_ms > STALE_MS:
                yield session
            else:
                left.append(session)
        yield from [session for session in left if not self._is_connected(session.peer)]
        yield from sorted(
            (
                session
                for session in left
                if self._is_connected(session.peer)
                and now_ms - session.began_ms > STALE_MS
                and len(session.order) < partitions
            ),
            key=lambda session: (len(session.order), session.id),
        )
