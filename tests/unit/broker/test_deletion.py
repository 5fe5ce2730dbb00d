"""DeleteTopics beside everything that goes on: what groups committed is gone for good, and the name is waited for."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from typing import Any

import pytest

from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import CREATE_TOPICS, DELETE_TOPICS, FETCH, METADATA, OFFSET_COMMIT, PRODUCE
from edge_broker.protocol.messages.create_topics import CreateTopicsRequest
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.retention.topic_deletion import Deletions
from edge_broker.storage.topic_files import TopicFiles
from edge_broker.testing.client import Client
from edge_broker.testing.site import Site
from tests.support.storage import batch, ledgered, names_of
from tests.unit.broker.test_fetch import BY_NAME, fetch
from tests.unit.broker.test_groups_and_ids import OFFSETS, commit, commit_codes, committed, site_with_groups
from tests.unit.broker.test_produce import code, produce
from tests.unit.broker.test_topics import by_name, metadata, new


def failing(kind: str, paths: Sequence[str]) -> Any:
    def fault(step: str, at: str, _size: int) -> None:
        if step == kind and any(path in at for path in paths):
            raise OSError(errno.EIO, "broken")

    return fault


def deleting(site: Site, *names: str) -> Client:
    """A client that has asked for a deletion, which nobody has worked on yet."""
    client = site.client()
    client.send(DELETE_TOPICS, by_name(*(names or ("t",))))
    return client


def result(client: Client) -> int:
    (found,) = client.answer().responses
    return int(found.error_code)


def begin_roll(site: Site) -> None:
    """The segment of `__consumer_offsets` is being closed, in a worker that has not begun yet."""
    (log,) = site.store.topics[OFFSETS].partitions
    assert log.writer.begin_roll()
    site.broker.effects.roll(log)
    site.dispatcher.apply()
    assert log.writer.rolling


def work_until(site: Site, client: Client, dice: random.Random) -> list[Any]:
    """Workers take turns in any order, and the loop hears of it late or soon, until the client is answered."""
    for _ in range(500):
        found = client.answers()
        if found:
            return found
        worker = dice.choice([worker for worker in site.workers.values() if worker])
        if dice.random() < 0.5 and not worker.idle:
            worker.work()
        else:
            worker.report()
    raise AssertionError("never answered")


@pytest.mark.parametrize("how", ["kill", "cut"])
@pytest.mark.parametrize("writes", ["quick", "slow", "roll", "slow and roll"])
@pytest.mark.parametrize("seed", range(8))
def test_what_was_committed_is_gone_from_the_disk_when_the_deletion_is_answered(
    seed: int, writes: str, how: str
) -> None:
    """At the very moment of the answer: a group that reads a new topic of that name must begin at its beginning."""
    site = site_with_groups()
    for offset in range(5):
        site.client().ask(OFFSET_COMMIT, commit(offset))
    site.broker.throttle.slow = "slow" in writes
    if "roll" in writes:
        begin_roll(site)
    client = deleting(site)
    (answer,) = work_until(site, client, random.Random(seed))
    assert [one.error_code for one in answer.responses] == [0]
    again = site.reopen(how)
    again.topic("t")
    assert committed(again) == (-1, "")


@pytest.mark.parametrize("how", ["kill", "cut"])
def test_a_first_commit_that_is_under_way_goes_too(how: str) -> None:
    site = site_with_groups()
    committing = site.client()
    committing.send(OFFSET_COMMIT, commit(5))
    client = deleting(site)
    site.run_until_idle()
    assert (result(client), commit_codes(committing.answer())) == (0, [0])
    site.topic("t")
    assert committed(site) == (-1, "")
    assert committed(site.reopen(how)) == (-1, "")


def test_a_commit_that_nobody_could_confirm_goes_too() -> None:
    """It was refused when the disk did not answer in time, and is on the disk all the same."""
    site = site_with_groups()
    client = site.client()
    client.send(OFFSET_COMMIT, commit(5))
    site.loop.advance(60_000)
    assert commit_codes(client.answer()) != [0]
    site.run_until_idle()
    deletion = deleting(site)
    site.run_until_idle()
    assert result(deletion) == 0
    again = site.reopen("cut")
    again.topic("t")
    assert committed(again) == (-1, "")


def test_a_deletion_goes_on_when_its_client_has_gone() -> None:
    site = site_with_groups()
    site.client().ask(OFFSET_COMMIT, commit(5))
    deleting(site).lose()
    site.run_until_idle()
    assert names_of(site.store) == {OFFSETS}
    assert site.client().ask(METADATA, metadata("t")).topics[0].error_code == 0
    assert names_of(site.reopen("cut").store) == {OFFSETS, "t"}


@pytest.mark.parametrize("kind", ["datasync", "write"])
def test_where_the_offsets_cannot_go_the_topic_stays(kind: str) -> None:
    site = site_with_groups()
    site.client().ask(PRODUCE, produce(("t", 0, batch())))
    site.client().ask(OFFSET_COMMIT, commit(1))
    site.disk.fault = failing(kind, [f"/{OFFSETS}-0/"])
    client = deleting(site)
    site.run_until_idle()
    assert result(client) == ErrorCode.KAFKA_STORAGE_ERROR
    assert site.broker.topics.changing == set()
    site.disk.fault = None
    for _ in range(3):  # until the partition is back
        site.loop.advance(2000)
        site.run_until_idle()
    assert committed(site) == (1, "m1")
    assert code(site.client().ask(PRODUCE, produce(("t", 0, batch())))) is ErrorCode.NONE
    again = deleting(site)
    site.run_until_idle()
    assert result(again) == 0
    later = site.reopen("cut")
    later.topic("t")
    assert committed(later) == (-1, "")


def test_a_disk_that_does_not_answer_leaves_the_topic() -> None:
    """Nobody knows then whether the tombstones are on the disk: the client is told, and may ask again."""
    site = site_with_groups()
    site.client().ask(OFFSET_COMMIT, commit(1))
    client = deleting(site)
    site.loop.advance(31_000)
    assert result(client) == ErrorCode.KAFKA_STORAGE_ERROR
    assert "t" in site.store.topics
    site.run_until_idle()
    again = deleting(site)
    site.run_until_idle()
    assert result(again) == 0


def test_a_topic_that_stays_is_what_it_was() -> None:
    """While it was hidden its sync failed: it is brought back, and a stop meanwhile would have covered it."""
    site = site_with_groups()
    site.client().ask(OFFSET_COMMIT, commit(1))
    producer = site.client()
    producer.send(PRODUCE, produce(("t", 0, batch())))
    client = deleting(site)
    site.disk.fault = failing("datasync", ("/t-0/", f"/{OFFSETS}-0/"))
    site.run_until_idle()
    assert result(client) == ErrorCode.KAFKA_STORAGE_ERROR
    assert code(producer.answer()) is ErrorCode.KAFKA_STORAGE_ERROR
    site.disk.fault = None
    site.loop.advance(5000)
    site.run_until_idle()
    (log,) = site.store.topics["t"].partitions
    assert log.fault is None
    assert code(site.client().ask(PRODUCE, produce(("t", 0, batch())))) is ErrorCode.NONE


def test_a_stop_amid_a_deletion_leaves_the_topic_as_it_is() -> None:
    site = site_with_groups()
    site.client().ask(OFFSET_COMMIT, commit(1))
    site.client().ask(PRODUCE, produce(("t", 0, batch()), acks=1))
    deleting(site)
    again = site.reopen("stop")
    assert not again.store.directory.started_unclean
    assert again.store.recovery_notes == []
    assert again.store.topics["t"].partitions[0].high_watermark == 1


def test_a_hidden_topic_is_unknown_to_everybody() -> None:
    site = site_with_groups()
    site.client().ask(OFFSET_COMMIT, commit(1))
    client = deleting(site)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(site.client().ask(PRODUCE, produce(("t", 0, batch())))) is unknown
    other = deleting(site)
    assert result(other) == unknown
    late = site.client()
    late.send(OFFSET_COMMIT, commit(2))
    assert commit_codes(late.answer()) == [unknown]
    site.run_until_idle()
    assert result(client) == 0


def test_a_deletion_waits_until_the_groups_are_loaded() -> None:
    site = site_with_groups()
    site.client().ask(OFFSET_COMMIT, commit(5))
    again = site.reopen("kill", settled=False)
    client = deleting(again)
    assert "t" in again.store.topics
    again.run_until_idle()
    assert result(client) == 0
    later = again.reopen("cut")
    later.topic("t")
    assert committed(later) == (-1, "")


def test_nothing_is_deleted_while_the_committed_offsets_cannot_be_read() -> None:
    site = site_with_groups()
    site.broker.groups.fail(0, "the disk is broken")
    client = deleting(site)
    site.run_until_idle()
    assert result(client) == ErrorCode.KAFKA_STORAGE_ERROR
    assert "t" in site.store.topics


# names


def jobs(site: Site) -> int:
    return sum(worker.submitted for worker in site.workers.values())


def test_nobody_runs_while_a_name_stays_taken() -> None:
    """The disk is left alone for a minute (edge.flush.interval.min.ms), and so are the workers and the loop."""
    site = site_with_groups(edge_flush_interval_min_ms=60_000)
    assert commit_codes(site.client().ask(OFFSET_COMMIT, commit(1))) == [0]
    client, maker = deleting(site), site.client()
    maker.send(METADATA, metadata("t"))
    site.run_until_idle()
    before = jobs(site)
    for _ in range(10):
        site.loop.advance(1000)
        site.run_until_idle()
    assert jobs(site) == before
    assert (client.answers(), maker.answers()) == ([], [])
    site.loop.advance(60_000)
    site.run_until_idle()
    assert result(client) == 0
    assert maker.answer().topics[0].error_code == 0


def test_fifty_who_make_a_name_that_is_being_deleted_get_one_topic() -> None:
    site = site_with_groups()
    site.client().ask(OFFSET_COMMIT, commit(1))
    old = site.store.topics["t"].topic_id
    client = deleting(site)
    asking, making = [site.client() for _ in range(25)], [site.client() for _ in range(25)]
    for one, other in zip(asking, making, strict=True):
        one.send(METADATA, metadata("t"))
        other.send(CREATE_TOPICS, CreateTopicsRequest(topics=[new("t")]))
    gone = making.pop()
    gone.lose()
    before = jobs(site)
    site.run_until_idle()
    assert result(client) == 0
    made = site.store.topics["t"].topic_id
    assert made != old
    assert {topic.topic_id for one in asking for topic in one.answer().topics} == {made}
    codes = [one.answer().topics[0].error_code for one in making]
    assert codes == [ErrorCode.TOPIC_ALREADY_EXISTS] * 24
    assert jobs(site) - before <= 6, "two turns for the deletion, its sync, the erasing, the making"
    assert site.dispatcher.waiting_requests == 0
    assert names_of(site.reopen("cut").store) == {"t", OFFSETS}


def test_who_waits_for_several_names_takes_none_before_all_are_free() -> None:
    site = Site()
    site.topic("a"), site.topic("b")
    first, second = deleting(site, "a"), deleting(site, "b")
    both, other = site.client(), site.client()
    both.send(CREATE_TOPICS, CreateTopicsRequest(topics=[new("a"), new("b"), new("c")]))
    other.send(CREATE_TOPICS, CreateTopicsRequest(topics=[new("c")]))
    site.run_until_idle()
    assert (result(first), result(second)) == (0, 0)
    assert [topic.error_code for topic in both.answer().topics] == [0, 0, ErrorCode.TOPIC_ALREADY_EXISTS]
    assert other.answer().topics[0].error_code == 0


def test_a_bug_in_the_making_costs_its_client_and_not_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    unlucky, waiting = site.client(), site.client()
    for client in (unlucky, waiting):
        client.send(METADATA, metadata("t"))

    def bug(*_: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(TopicFiles, "make_topic", bug)
        site.files.step()
    site.run_until_idle()
    assert unlucky.transport.closed
    assert waiting.answer().topics[0].error_code == 0
    assert site.broker.topics.changing == set()


@pytest.mark.parametrize("owner", [TopicFiles, Deletions])
def test_a_bug_in_the_erasing_is_answered_and_frees_the_name(owner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    site.topic()
    client, waiting = deleting(site), site.client()
    waiting.send(METADATA, metadata("t"))

    def bug(*_: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(owner, "erase_topic" if owner is TopicFiles else "delete", bug)
        while client.transport.sent == b"":
            next(worker for worker in site.workers.values() if worker).step()
        assert result(client) == ErrorCode.KAFKA_STORAGE_ERROR
    site.run_until_idle()
    assert waiting.answer().topics[0].error_code == 0


def test_a_bug_behind_the_tombstones_is_answered_and_frees_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    site = site_with_groups()
    site.client().ask(OFFSET_COMMIT, commit(1))
    client, waiting = deleting(site), site.client()
    waiting.send(METADATA, metadata("t"))

    def bug(*_: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(LogStore, "remove_topic", bug)
        while client.transport.sent == b"":
            site.disk_worker.step()
        assert result(client) == ErrorCode.KAFKA_STORAGE_ERROR
    site.run_until_idle()
    assert waiting.answer().topics[0].error_code == 0


def test_one_topic_that_cannot_be_erased_costs_no_other() -> None:
    site = Site()
    site.topic("a"), site.topic("b")
    site.disk.fault = failing("remove", ["/topics/a.json"])
    client = deleting(site, "a", "b")
    site.run_until_idle()
    codes = {one.name: one.error_code for one in client.answer().responses}
    assert codes == {"a": ErrorCode.KAFKA_STORAGE_ERROR, "b": 0}
    assert names_of(site.store) == set()


def test_who_waits_for_a_deleted_topic_is_told_once_it_is_sure_to_go() -> None:
    site = site_with_groups()
    site.client().ask(OFFSET_COMMIT, commit(1))
    waiting = site.client()
    waiting.send(FETCH, fetch(("t", 0, 0), max_wait_ms=60_000), BY_NAME)
    client = deleting(site)
    site.run_until_idle()
    assert result(client) == 0
    assert waiting.answer().responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_cut_before_the_deletion_is_on_the_disk_names_what_it_took() -> None:
    """The topic is there again, without what acks=1 was told: its mark must have stayed."""
    site = Site()
    site.topic()
    site.disk.loses_all = True
    assert code(site.client().ask(PRODUCE, produce(("t", 0, batch(b"told")), acks=1))) == 0
    deleting(site)
    site.dispatcher.syncer.look_at_marks()
    while not all(worker.idle for name, worker in site.workers.items() if name != "files"):
        for name in ("disk", "writer"):
            if site.workers[name]:
                site.workers[name].step()
    assert not site.files.idle, "the deletion waits for its worker"
    site = site.reopen("cut")
    assert names_of(site.store) == {"t"}
    assert [found[1:4] for found in ledgered(site.store)] == [("t", 0, 0)]


def test_the_mark_of_a_deleted_topic_goes() -> None:
    site = Site()
    (log,) = site.topic()
    assert deleting(site)
    site.run_until_idle()
    site.dispatcher.syncer.look_at_marks()
    site.run_until_idle()
    marks = site.store.in_use.read()
    assert marks is not None
    assert (log.topic_id, 0) not in marks.keys
