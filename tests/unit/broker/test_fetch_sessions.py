"""Fetch sessions (KIP-227): what an answer leaves out, whose turn it is, what ends one, and what all may hold."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest

from edge_broker.broker.state import fetch_sessions
from edge_broker.broker.state.fetch_sessions import (
    EPOCH_MAX,
    NONE,
    PARTITION_BYTES,
    SESSION_BYTES,
    STALE_MS,
    TOPIC_BYTES,
    FetchSession,
    FetchSessions,
)
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.handlers import fetch as fetch_handler
from edge_broker.network.background.metrics import metrics_text
from edge_broker.network.connection.memory_budget import ALLOWANCE_BYTES
from edge_broker.protocol.api import DELETE_TOPICS, FETCH
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from edge_broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from edge_broker.security.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from edge_broker.storage.retention.segment_removal import delete_records
from edge_broker.testing.client import Client
from edge_broker.testing.site import Site
from tests.support.storage import append, batch, fill, sync
from tests.unit.broker.test_fetch import BY_NAME, reads_of, write
from tests.unit.broker.test_rights import ANN, client, guarded, use

BY_ID = 17
Found = dict[tuple[str, int], Any]


class Reader:
    """A client with one session; `at` is where it reads on."""

    def __init__(self, site: Site, *, by: Client | None = None, version: int = BY_NAME, **bounds: int) -> None:
        self.site, self.client, self.version = site, by or site.client(), version
        self.bounds = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 24, **bounds}
        self.session, self.epoch = 0, 0
        self.error = ErrorCode.NONE

    def request(
        self, *parts: tuple[str, int, int], forget: Iterable[tuple[str, int]] = (), **fields: int
    ) -> FetchRequest:
        """Parts are topic, partition and offset."""
        named: dict[str, list[FetchPartition]] = {}
        for topic, index, offset in parts:
            asked = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20, **fields)
            named.setdefault(topic, []).append(asked)
        return FetchRequest(
            session_id=self.session,
            session_epoch=self.epoch,
            topics=[FetchTopic(topic=name, topic_id=self._id(name), partitions=asked) for name, asked in named.items()],
            forgotten_topics_data=[
                ForgottenTopic(topic=name, topic_id=self._id(name), partitions=[index]) for name, index in forget
            ],
            **self.bounds,
        )

    def _id(self, topic: str) -> UUID:
        found = self.site.store.topics.get(topic)
        return found.topic_id if found is not None else UUID(int=0)

    def send(self, *parts: tuple[str, int, int], **more: Any) -> None:
        self.client.send(FETCH, self.request(*parts, **more), self.version)
        self.site.run_until_idle()

    def fetch(self, *parts: tuple[str, int, int], **more: Any) -> Found:
        """What is answered, by topic and partition."""
        self.send(*parts, **more)
        return self.take()

    def take(self) -> Found:
        answer = self.client.answer()
        self.error = ErrorCode(answer.error_code)
        if answer.error_code == ErrorCode.NONE:
            self.session, self.epoch = answer.session_id, self.epoch + 1
        names = {self._id(name): name for name in self.site.store.topics}
        return {
            (topic.topic or names.get(topic.topic_id, "?"), one.partition_index): one
            for topic in answer.responses
            for one in topic.partitions
        }


def many(partitions: int, topic: str = "t", offset: int = 0) -> list[tuple[str, int, int]]:
    return [(topic, index, offset) for index in range(partitions)]


# what is answered


@pytest.mark.parametrize("version", [7, BY_NAME, BY_ID])
def test_only_what_has_changed_is_answered(version: int) -> None:
    site = Site()
    logs = site.topic(partitions=3)
    fill(logs[0], 2)
    reader = Reader(site, version=version)
    assert set(reader.fetch(*many(3))) == {("t", 0), ("t", 1), ("t", 2)}
    assert reader.session > 0
    assert set(reader.fetch()) == {("t", 0)}, "what was not named is wanted as before"
    assert reader.fetch(("t", 0, 2)) == {}
    (written,) = fill(logs[2], 1)
    (found,) = reader.fetch().values()
    assert (found.partition_index, found.high_watermark, bytes(found.records)) == (2, 1, written)
    assert reader.fetch(("t", 2, 1)) == {}
    assert reader.fetch() == {}


def test_who_polls_while_a_record_is_being_synced_costs_no_look_and_has_it_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site()
    (log,) = site.topic()
    reader = Reader(site)
    reader.fetch(("t", 0, 0))
    assert reader.fetch() == {}
    looked: list[object] = []
    look_at = fetch_handler._Changes.look_at
    monkeypatch.setattr(
        fetch_handler._Changes, "look_at", lambda self, wanted: looked.append(wanted) or look_at(self, wanted)
    )
    append(log, batch(b"a"))
    reader.client.send(FETCH, reader.request(), reader.version)
    assert reader.take() == {}
    assert looked == []
    site.run_until_idle()
    assert log.high_watermark == 1, "whoever does not wait asks for the sync, too"
    assert set(reader.fetch()) == {("t", 0)}


def test_a_high_watermark_and_a_log_start_are_told_once() -> None:
    site = Site()
    (log,) = site.topic()
    reader = Reader(site)
    reader.fetch(("t", 0, 0))
    fill(log, 3)
    assert reader.fetch(("t", 0, 3))["t", 0].high_watermark == 3
    assert reader.fetch() == {}
    delete_records(log, 2, site.broker.time.now())
    assert reader.fetch()["t", 0].log_start_offset == 2
    assert reader.fetch() == {}


def test_an_error_is_answered_each_time_and_what_comes_behind_it_once() -> None:
    site = Site()
    (log,) = site.topic()
    reader = Reader(site)
    reader.fetch(("t", 0, 0), ("gone", 0, 0))
    for _ in range(2):
        assert {at: one.error_code for at, one in reader.fetch().items()} == {("gone", 0): 3}
    site.topic("gone")
    found = reader.fetch()
    assert {at: (one.error_code, one.high_watermark) for at, one in found.items()} == {("gone", 0): (0, 0)}
    assert reader.fetch() == {}
    assert log.high_watermark == 0


def test_a_diverging_epoch_is_answered_each_time() -> None:
    site = Site()
    site.topic()
    fill(site.store.topics["t"].partitions[0], 2)
    site = site.reopen("kill")
    fill(site.store.topics["t"].partitions[0], 1)
    reader = Reader(site)
    reader.fetch(("t", 0, 3), last_fetched_epoch=0)
    (found,) = reader.fetch().values()
    assert found.diverging_epoch.end_offset == 2
    assert reader.fetch(("t", 0, 3), last_fetched_epoch=1) != {}
    assert reader.fetch() == {}


def test_partitions_come_and_go() -> None:
    site = Site()
    logs = site.topic(partitions=3)
    reader = Reader(site)
    reader.fetch(("t", 0, 0))
    assert set(reader.fetch(("t", 1, 0))) == {("t", 1)}
    reader.fetch(("t", 2, 0), forget=[("t", 0), ("t", 7), ("none", 0)])
    for log in logs:
        fill(log, 1)
    assert set(reader.fetch()) == {("t", 1), ("t", 2)}
    assert site.broker.fetch_sessions.partitions == 2


def test_what_is_not_in_memory_is_read_and_told() -> None:
    site = Site()
    logs = site.topic(partitions=2)
    reader = Reader(site)
    reader.fetch(*many(2))
    site.disk.cold = True
    written = fill(logs[1], 2)
    assert bytes(reader.fetch()["t", 1].records) == b"".join(written)


def test_a_partition_that_failed_is_told_of() -> None:
    site = Site()
    (log,) = site.topic()
    reader = Reader(site)
    reader.fetch(("t", 0, 0))
    assert reader.fetch() == {}
    log.fail(StorageFault("/data/t-0", 0, "broken"))
    assert reader.fetch()["t", 0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_an_idle_poll_of_what_is_not_synced_brings_the_sync() -> None:
    site = Site({"log.flush.interval.ms": 86_400_000})
    (log,) = site.topic()
    reader = Reader(site)
    reader.fetch(("t", 0, 0))
    assert reader.fetch() == {}
    write(site, log, b"a")
    assert reader.fetch() == {}
    assert log.high_watermark == 1
    assert len(reader.fetch()["t", 0].records) == len(batch(b"a"))


# turns


def test_no_partition_starves_where_an_answer_holds_one_batch() -> None:
    site = Site()
    for log in site.topic(partitions=5):
        fill(log, 9, 3000)
    reader = Reader(site, max_bytes=100)
    reader.fetch(*many(5))
    served = [next(at[1] for at, one in reader.fetch().items() if one.records) for _ in range(10)]
    assert served == [0, 1, 2, 3, 4] * 2


# long polls


def test_an_idle_poll_reads_nothing_and_is_woken_by_a_partition_that_was_not_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site()
    logs = site.topic(partitions=300)
    reader = Reader(site, max_wait_ms=5000)
    reader.send(*many(300))
    site.loop.advance(5000)
    site.run_until_idle()
    assert len(reader.take()) == 300
    reader.send()  # each is matched with the reader's once more
    site.loop.advance(5000)
    site.run_until_idle()
    assert reader.take() == {}
    reads = reads_of(monkeypatch)
    reader.send()
    assert (reader.client.answers(), reads) == ([], [])
    site.loop.advance(5000)
    site.run_until_idle()
    assert (reader.take(), reads) == ({}, [])
    reader.send()
    write(site, logs[123], b"a")
    site.run_until_idle()
    assert list(reader.take()) == [("t", 123)]
    assert reads == [123]


def test_a_poll_that_another_request_has_overtaken_is_refused_and_the_other_goes_on() -> None:
    site = Site()
    (log,) = site.topic()
    reader = Reader(site)
    reader.fetch(("t", 0, 0))
    reader.bounds["max_wait_ms"] = 5000
    reader.send()
    other = Reader(site, max_wait_ms=0)
    other.session, other.epoch = reader.session, 2
    assert other.fetch() == {}
    write(site, log, b"a")
    site.run_until_idle()
    assert reader.take() == {}
    assert reader.error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert list(other.fetch()) == [("t", 0)]


def test_a_topic_that_goes_ends_the_wait_and_one_of_its_name_is_read_on() -> None:
    site = Site()
    site.topic()
    reader = Reader(site, max_wait_ms=60_000)
    reader.send(("t", 0, 0))
    site.client().ask(DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    assert reader.take()["t", 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (log,) = site.topic()
    written = fill(log, 2)
    assert bytes(reader.fetch()["t", 0].records) == b"".join(written)


def test_a_topic_by_its_id_stays_gone() -> None:
    site = Site()
    site.topic()
    reader = Reader(site, version=BY_ID)
    reader.fetch(("t", 0, 0))
    reader.fetch()
    site.client().ask(DELETE_TOPICS, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    (log,) = site.topic()
    fill(log, 2)
    for _ in range(2):
        assert [one.error_code for one in reader.fetch().values()] == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_another_leader_epoch_is_fenced_at_the_next_fetch() -> None:
    site = Site()
    (log,) = site.topic()
    reader = Reader(site)
    reader.fetch(("t", 0, 0), current_leader_epoch=0)
    assert reader.fetch() == {}
    log.state.leader_epoch += 1
    assert reader.fetch()["t", 0].error_code == ErrorCode.FENCED_LEADER_EPOCH


# rights


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
def test_a_right_that_is_taken_away_shows_in_the_next_answer(version: int) -> None:
    right = AclBinding(ResourceType.TOPIC, "t", PatternType.LITERAL, ANN, "*", Operation.READ, Permission.ALLOW)
    site = guarded(right)
    reader = Reader(site, by=client(site), version=version)
    assert reader.fetch(("t", 0, 0))["t", 0].error_code == ErrorCode.NONE
    for _ in range(2):
        assert reader.fetch() == {}
    use(site)
    for _ in range(2):
        (found,) = reader.fetch().values()
        assert (found.error_code, found.high_watermark) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)
    use(site, right)
    assert reader.fetch()["t", 0].high_watermark == 0
    assert reader.fetch() == {}


# memory for answers


@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize("partitions", [2, 100])
def test_what_found_no_memory_is_told_by_the_answer_that_is_made_in_its_place(begins: bool, partitions: int) -> None:
    site = Site({"edge.queued.max.response.bytes": 1 << 20})
    logs = site.topic(partitions=partitions)
    reader, hog = Reader(site), site.client()
    if not begins:
        reader.fetch(*many(partitions))
    fill(logs[0], 1, 200_000)
    fill(logs[1], 1)
    pool, hogs = site.dispatcher.answers_pool, hog.connection.answers
    hogs.take(pool.bytes_max + ALLOWANCE_BYTES)
    assert pool.go_ahead(hogs, pool.spare_bytes)
    reader.send(*(many(partitions) if begins else ()))
    assert reader.client.answers() == []
    hogs.give_all()
    site.run_until_idle()
    found = reader.take()
    assert {0, 1} <= {index for _, index in found}
    assert [len(found["t", index].records) > 0 for index in (0, 1)] == [True, True]
    assert len(site.broker.fetch_sessions) == 1


# many partitions


def test_a_large_session_is_looked_at_in_steps_and_tells_all_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_handler, "QUIET_AT_ONCE", 128)
    site = Site()
    logs = site.topic(partitions=300)
    reader = Reader(site)
    assert len(reader.fetch(*many(150))) == 150
    assert len(reader.fetch(*many(300)[150:])) == 150
    assert reader.fetch() == {}
    for log in logs[:100]:
        append(log, batch(b"a"))
        sync(log)
    assert len(reader.fetch()) == 100
    reader.fetch(*many(100, offset=1))
    pieces = site.dispatcher.turns.pieces
    assert reader.fetch() == {}
    assert site.dispatcher.turns.pieces > pieces
    assert site.broker.fetch_sessions.partitions == 300
    assert site.dispatcher.failures == 0


def test_a_session_ends_with_its_last_partition() -> None:
    site = Site()
    fill(site.topic()[0], 1)
    reader = Reader(site)
    reader.fetch(("t", 0, 0))
    assert reader.fetch(forget=[("t", 0)]) == {}
    assert (reader.session, len(site.broker.fetch_sessions), site.broker.fetch_sessions.bytes_held) == (0, 0, 0)


def test_slots_of_0_keep_no_session() -> None:
    site = Site({"max.incremental.fetch.session.cache.slots": 0})
    site.topic()
    reader = Reader(site)
    assert set(reader.fetch(("t", 0, 0))) == {("t", 0)}
    assert reader.session == 0


def test_metrics_tell_of_sessions() -> None:
    site = Site()
    site.topic(partitions=2)
    Reader(site).fetch(*many(2))
    text = metrics_text(site.broker, site.dispatcher, site.server, 0)
    assert "edge_broker_incremental_fetch_sessions 1\n" in text
    assert "edge_broker_incremental_fetch_partitions_cached 2\n" in text


# what is kept


class Kept:
    """A cache on its own, with clients that are there."""

    def __init__(self, slots: int = 3) -> None:
        self.gone: set[str] = set()
        self.numbers = iter([0, *range(1, 1 << 20)])
        self.cache = FetchSessions(slots, lambda: next(self.numbers), lambda peer: peer not in self.gone)

    def begin(self, partitions: int, now_ms: int = 0, peer: str = "p", name: str = "t") -> int:
        session = FetchSession(peer, by_id=False)
        wanted = FetchTopic(topic=name)
        for index in range(partitions):
            session.want(session.topic(wanted), FetchPartition(partition=index))
        return self.cache.begin(session, now_ms)

    def there(self) -> list[int]:
        return sorted(self.cache._sessions)

    def check(self) -> None:
        found = self.cache._sessions.values()
        assert self.cache.bytes_held == sum(session.bytes_held for session in found)
        assert self.cache.partitions == sum(len(session.order) for session in found)


def refused(kept: Kept, session_id: int, epoch: int, *, by_id: bool = False) -> ErrorCode:
    with pytest.raises(Refusal) as refusal:
        kept.cache.resume(session_id, epoch, 0, by_id=by_id)
    return refusal.value.code


def test_an_epoch_is_good_once_and_begins_at_1_again_behind_the_greatest() -> None:
    kept = Kept()
    session_id = kept.begin(1)
    session = kept.cache.resume(session_id, 1, 0, by_id=False)
    for epoch in (-2, 0, 1, 3):
        assert refused(kept, session_id, epoch) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    session.epoch = EPOCH_MAX
    kept.cache.resume(session_id, EPOCH_MAX, 0, by_id=False)
    assert session.epoch == 1
    assert refused(kept, session_id, 1, by_id=True) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert refused(kept, 999, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    kept.cache.end(session_id)
    kept.cache.end(session_id)
    assert refused(kept, session_id, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    kept.check()


def test_a_full_cache_gives_way_to_nobody_at_first() -> None:
    kept = Kept()
    for _ in range(3):
        assert kept.begin(1) > 0
    assert kept.begin(9) == NONE
    assert kept.begin(9, now_ms=STALE_MS) == NONE
    assert kept.cache.evicted == 0


def test_one_that_was_not_used_for_long_gives_way_first() -> None:
    kept = Kept()
    ids = [kept.begin(5) for _ in range(3)]
    for session_id in (ids[0], ids[2]):
        kept.cache.resume(session_id, 1, 10, by_id=False)
    new = kept.begin(1, STALE_MS + 5)
    assert kept.there() == [ids[0], ids[2], new]
    assert kept.cache.evicted == 1
    kept.check()


def test_then_one_whose_connection_is_gone() -> None:
    kept = Kept()
    ids = [kept.begin(5, peer=peer) for peer in "abc"]
    kept.gone = {"b"}
    new = kept.begin(1, 1)
    assert kept.there() == [ids[0], ids[2], new]


def test_then_the_smallest_old_one_with_fewer_partitions() -> None:
    kept = Kept()
    ids = [kept.begin(size) for size in (4, 2, 3)]
    now_ms = STALE_MS + 1
    for session_id in ids:
        kept.cache.resume(session_id, 1, now_ms, by_id=False)
    assert kept.begin(2, now_ms) == NONE, "as many are not fewer"
    new = kept.begin(3, now_ms)
    assert kept.there() == [ids[0], ids[2], new]
    assert kept.begin(9, now_ms) > 0
    assert kept.there()[0] == ids[0], "of 4, and the one of 3 that is old went"
    kept.check()


def test_memory_is_bounded_and_nobody_goes_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    size = SESSION_BYTES + TOPIC_BYTES + 1 + 10 * PARTITION_BYTES
    monkeypatch.setattr(fetch_sessions, "BYTES_MAX", 3 * size)
    kept = Kept(slots=100)
    ids = [kept.begin(10) for _ in range(3)]
    assert kept.begin(1) == NONE
    kept.gone = {"p"}
    assert kept.begin(100, peer="q") == NONE
    assert kept.there() == ids
    new = kept.begin(15, peer="q")
    assert kept.there() == [ids[2], new]
    assert kept.cache.bytes_held <= 3 * size
    assert kept.begin(1, peer="q", name="x" * 3 * size) == NONE
    kept.check()


def test_a_session_that_grows_out_of_its_room_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    site.topic(partitions=30)
    monkeypatch.setattr(fetch_sessions, "BYTES_MAX", SESSION_BYTES + TOPIC_BYTES + 1 + 20 * PARTITION_BYTES)
    reader = Reader(site)
    reader.fetch(*many(20))
    assert reader.fetch(*many(20)) == {}
    assert reader.fetch(("t", 20, 0)) == {}
    assert reader.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(site.broker.fetch_sessions), site.broker.fetch_sessions.bytes_held) == (0, 0)
    reader.session = reader.epoch = 0
    assert len(reader.fetch(*many(21))) == 21
    assert reader.session == 0, "there is no room: without a session"


def test_what_nobody_will_go_on_with_ends_some_time() -> None:
    kept = Kept()
    ids = [kept.begin(1, peer=peer) for peer in "abc"]
    kept.gone = {"a", "b"}
    kept.cache.resume(ids[1], 1, 50, by_id=False)
    kept.cache.end_stale(STALE_MS)
    assert kept.there() == ids
    kept.cache.end_stale(STALE_MS + 1)
    assert kept.there() == ids[1:]
    kept.cache.end_stale(STALE_MS + 51)
    assert kept.there() == [ids[2]]
    kept.check()


def test_the_bytes_that_are_counted_are_those_that_are_held() -> None:
    site = Site()
    site.topic(partitions=300)
    client = site.client()
    request = Reader(site).request(*many(300))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        client.ask(FETCH, request, BY_NAME)
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    counted = site.broker.fetch_sessions.bytes_held
    assert counted * 0.3 < held < counted * 1.2


def test_unsynced_ends_are_not_shown_in_a_session() -> None:
    site = Site()
    (log,) = site.topic()
    reader = Reader(site)
    reader.fetch(("t", 0, 0))
    append(log, batch(b"a"))
    assert reader.fetch() == {}
