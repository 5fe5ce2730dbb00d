"""offsets.retention.minutes: what goes, what stays, and by which clock."""

from __future__ import annotations

import pytest

from drupelet.errors import ConfigurationError
from edge_broker.broker.operations.groups.group_loading import load_groups
from edge_broker.broker.operations.groups.offset_retention import OffsetRetention
from edge_broker.clock import Reading
from edge_broker.configuration.config import read_config
from edge_broker.coordinator.offset_records import AGE_HEADER
from edge_broker.protocol.api import OFFSET_COMMIT
from edge_broker.protocol.messages.offset_commit import OffsetCommitRequest
from edge_broker.protocol.record_batch import records_of
from edge_broker.storage.metadata.topic_record import OFFSETS_TOPIC
from edge_broker.testing.client import Client
from edge_broker.testing.clock import NOW_MS
from edge_broker.testing.site import Site
from tests.support.storage import read_all
from tests.unit.broker.test_delete_groups import NOTHING, at_expiry, join, leave
from tests.unit.broker.test_groups_and_ids import commit, committed, find

MINUTES = 10
KEPT = {"offsets.retention.minutes": MINUTES}


def site(**settings: object) -> Site:
    made = Site({**KEPT, **{name.replace("_", "."): value for name, value in settings.items()}})
    made.topic(partitions=2)
    find(made.client(), "g")
    tick(made)
    return made


def tick(at: Site) -> None:
    """As the broker does ten times a second."""
    at.dispatcher.start(lambda: at_expiry(at))
    at.run_until_idle()


def retain(at: Site, minutes: float) -> None:
    """So much time passes; then old offsets go."""
    at.loop.advance(minutes * 60_000)
    tick(at)
    retention = OffsetRetention(at.broker, MINUTES * 60_000)
    at.dispatcher.start(retention.start)
    at.run_until_idle()


def commit_as(at: Site, member: tuple[Client, str, int], *places: tuple[str, int]) -> None:
    _, member_id, generation = member
    at.client().ask(
        OFFSET_COMMIT,
        OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=commit(5, *places).topics,
        ),
    )


@pytest.mark.parametrize("how", ["stop", "cut"])
def test_what_a_group_without_members_committed_goes_when_it_is_old_and_the_group_with_it(how: str) -> None:
    here = site()
    here.client().ask(OFFSET_COMMIT, commit(5))
    retain(here, MINUTES - 1)
    assert committed(here) == (5, "m5")
    here.client().ask(OFFSET_COMMIT, commit(6, group="other"))
    retain(here, 1)
    assert committed(here) == NOTHING
    assert list(here.broker.groups.of("g").groups) == ["other"]
    again = here.reopen(how)
    assert (committed(again), committed(again, group="other")) == (NOTHING, (6, "m6"))


def test_a_commit_renews_an_offset() -> None:
    here = site()
    here.client().ask(OFFSET_COMMIT, commit(5))
    retain(here, MINUTES - 1)
    here.client().ask(OFFSET_COMMIT, commit(6))
    retain(here, MINUTES - 1)
    assert committed(here) == (6, "m6")


def test_members_keep_what_they_read_and_a_group_has_as_long_after_its_last_one() -> None:
    here = site(log_retention_check_interval_ms=1000)
    here.topic("unread")
    member = join(here, "t")
    commit_as(here, member, ("t", 0), ("unread", 0))
    here.loop.advance(MINUTES * 60_000)
    here.broker.groups.of("g").heartbeat("g", member[2], member[1], None, here.clock.steady_ms())
    retain(here, 0)
    assert here.broker.groups.committed_offset("g", "t", 0) == 5
    assert here.broker.groups.committed_offset("g", "unread", 0) is None, "no member subscribes to it"
    leave(here)
    retain(here, MINUTES - 2)
    assert committed(here) == (5, "m5")
    retain(here, 2)
    assert committed(here) == NOTHING
    retain(here, 0)
    assert not here.broker.groups.of("g").groups
    assert not here.reopen("cut").broker.groups.of("g").groups


def test_a_group_that_a_topic_requires_keeps_its_offset_there() -> None:
    here = site()
    here.topic("needed", config={"edge.required.groups": "g"})
    here.client().ask(OFFSET_COMMIT, commit(5, ("t", 0), ("needed", 0)))
    retain(here, 2 * MINUTES)
    assert here.broker.groups.committed_offset("g", "t", 0) is None
    assert here.broker.groups.committed_offset("g", "needed", 0) == 5


def test_age_is_kept_through_restarts() -> None:
    here = site()
    here.client().ask(OFFSET_COMMIT, commit(5))
    retain(here, MINUTES - 1)
    again = here.reopen("stop")
    tick(again)
    retain(again, 0.5)
    assert committed(again) == (5, "m5")
    retain(again, 1)
    assert committed(again) == NOTHING


def test_what_was_committed_without_an_age_counts_from_the_start() -> None:
    here = Site()
    here.topic()
    find(here.client(), "g")
    here.client().ask(OFFSET_COMMIT, commit(5))
    (log,) = here.store.topics[OFFSETS_TOPIC].partitions
    assert all(not record.headers for batch in read_all(log) for record in records_of(memoryview(batch)))
    here.settings.update(KEPT)
    again = here.reopen("stop")
    tick(again)
    retain(again, MINUTES - 1)
    assert committed(again) == (5, "m5")
    retain(again, 1)
    assert committed(again) == NOTHING


def test_a_wall_clock_that_nobody_trusts_ages_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    here = site()
    here.client().ask(OFFSET_COMMIT, commit(5))
    (log,) = here.store.topics[OFFSETS_TOPIC].partitions
    ((name, age),) = next(records_of(memoryview(read_all(log)[-1]))).headers
    assert name == AGE_HEADER
    assert age is not None
    assert 0 <= int.from_bytes(age, signed=True) < 60_000, "of the data directory, not of the calendar"
    year_ms = 365 * 86_400_000
    monkeypatch.setattr(here.clock, "wall_ms", lambda: NOW_MS + year_ms)
    monkeypatch.setattr(here.clock, "reading", lambda: Reading("boot", 1000, NOW_MS + year_ms, False))
    retain(here, 0)
    assert committed(here) == (5, "m5")


def test_a_commit_between_two_steps_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_broker.broker.operations.groups.group_log.KEYS_AT_ONCE", 1)
    here = site()
    here.client().ask(OFFSET_COMMIT, commit(5, ("t", 0), ("t", 1)))
    here.loop.advance(MINUTES * 60_000)
    tick(here)
    steps = OffsetRetention(here.broker, MINUTES * 60_000).start()
    left = steps.steps  # type: ignore[union-attr]
    next(left)
    next(left)  # the first offset goes
    here.client().ask(OFFSET_COMMIT, commit(6, ("t", 1)))
    here.dispatcher.start(lambda: steps)
    here.run_until_idle()
    assert here.broker.groups.committed_offset("g", "t", 0) is None
    assert here.broker.groups.committed_offset("g", "t", 1) == 6
    assert here.reopen("cut").broker.groups.committed_offset("g", "t", 1) == 6


def test_nothing_goes_by_default() -> None:
    assert Site().broker.offsets_retention_ms is None


def test_a_load_that_begins_anew_serves_what_is_there() -> None:
    here = site()
    here.client().ask(OFFSET_COMMIT, commit(5))
    here.broker.groups.fail(0, "for a moment")
    here.dispatcher.start(lambda: load_groups(here.broker))
    here.run_until_idle()
    assert here.broker.groups.fault is None
    assert committed(here) == (5, "m5")


def test_no_minute_at_all_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigurationError, match=r"offsets\.retention\.minutes is 0.*set -1"):
        read_config(None, "", ["offsets.retention.minutes=0"])
