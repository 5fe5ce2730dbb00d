"""Which topics of the source are admitted, by what other mirrors keep there: the table of screening.py, row by row."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kafka_wire.partitions import TopicPartition
from mirror.errors import SourceError, TargetError
from mirror.origins import screening
from mirror.origins.screening import Screen
from mirror.partition.offset_map import End
from mirror.partition.provenance import MERGED, Origin
from mirror.partition.state_records import Head, Topics, head_record
from mirror.topics.mirrormaker import SETTLED_S
from tests.simulation.loops_clusters import MemoryCluster, SourceView, TargetView

STATE = "__edge-mirror-other-state"
NAMES = ["t", "u"]


class Ends:
    """Source `b` and target `a`; `write` is what the other mirror does, which brings records to the source."""

    def __init__(self):
        self.b, self.a = MemoryCluster("b"), MemoryCluster("a")
        self.source, self.target = SourceView(self.b), TargetView(self.a)
        self.asked = []
        for name in NAMES:
            self.b.make(name, 1)
            self.a.make(name, 1)

    def head(self, topic, origin, *, source_id="s", partition=0):
        if STATE not in self.b.states:
            self.b.make_state(STATE)
        topics = Topics(topic, source_id, self.b.ids[topic])
        head = Head(topics, 7, 0, 0, 0, 0, 0, End(0, 0, 0), origin=origin)
        self.b.states[STATE].append(head_record((topic, partition), head))

    def append(self, topic, producer_id=-1):
        self.b.logs[topic][0].append([_Numbered(1)], "", producer_id, 0)


class _Numbered:
    def __init__(self, number):
        self.number = number


@pytest.fixture
def ends():
    return Ends()


@pytest.fixture
def screen(ends):
    return Screen(ends, 1.0)


def origin(*passed, perhaps=(), alone=False, since=0):
    return Origin(frozenset(passed), frozenset(perhaps), alone, since, ((7, 0),))


SYNCS = "mm2-offset-syncs.b.internal"


@pytest.fixture
def mirrormaker(ends):
    """MirrorMaker 2 from `a` to `b` with IdentityReplicationPolicy: the topics that its offset syncs name."""
    named = {"t"}
    ends.b.make("mm2-configs.a.internal", 1)
    ends.b.make("a.checkpoints.internal", 1)
    ends.a.make(SYNCS, 1)

    async def bounds(partitions):
        if not named:
            raise TargetError("TOPIC_AUTHORIZATION_FAILED")
        return dict.fromkeys(partitions, 0), dict.fromkeys(partitions, 1)

    async def keys_from(partition, offset, bytes_max):
        assert partition == (SYNCS, 0)
        return {len(name).to_bytes(2, "big") + name.encode() + bytes(4) for name in named}, 1

    ends.target.bounds, ends.target.keys_from = bounds, keys_from
    return named


async def test_a_topic_that_mirrormaker_brings_under_its_own_name_is_refused_and_others_go(screen, ends, mirrormaker):
    assert await admitted(screen, ends) == ["u"]
    assert "MirrorMaker 2 mirrors it from this mirror's target" in screen.reasons["t"].reason
    assert "accept_from_mirrormaker" in screen.reasons["t"].reason


async def test_while_its_offset_syncs_cannot_be_read_topics_of_both_clusters_are_refused(screen, ends, mirrormaker):
    mirrormaker.clear()
    ends.a.delete("u")
    assert await admitted(screen, ends) == ["u"]
    assert "do not tell yet" in screen.reasons["t"].reason


async def test_a_mirrormaker_that_goes_the_same_way_as_this_mirror_has_nothing_refused(screen, ends):
    """It writes to the target, and keeps its offset syncs at the source."""
    ends.a.make("mm2-configs.b.internal", 1)
    ends.b.make("mm2-offset-syncs.a.internal", 1)
    assert await admitted(screen, ends) == NAMES


async def test_what_is_accepted_from_mirrormaker_is_sent(ends, mirrormaker):
    assert await admitted(Screen(ends, 1.0, "t|v"), ends) == NAMES


async def test_where_mirrormaker_gives_names_of_its_own_no_offset_sync_is_read(screen, ends, mirrormaker):
    mirrormaker.clear()
    ends.b.make("a.t", 1)
    assert await admitted(screen, ends) == NAMES


@pytest.mark.parametrize("name", ["a.own", "a.heartbeats", "a.s.heartbeats", "a.s.mm2-configs.a.internal"])
async def test_topics_that_look_prefixed_do_not_hide_that_mirrormaker_keeps_names(screen, ends, mirrormaker, name):
    """A user's own, and heartbeats, which have the alias by any policy."""
    ends.b.make(name, 1)
    for heartbeats in ("heartbeats", "s.heartbeats"):
        ends.a.make(heartbeats, 1)
    assert await admitted(screen, ends) == ["u"]


@pytest.fixture
def clock(monkeypatch):
    """What the event loop's clock shows, to the screen."""
    now = [1000.0]
    monkeypatch.setattr(screening.asyncio, "get_running_loop", lambda: SimpleNamespace(time=lambda: now[0]))
    return now


async def test_a_topic_of_both_clusters_that_is_new_waits_until_an_offset_sync_would_name_it(
    screen, ends, mirrormaker, clock
):
    """MirrorMaker 2 writes the first record, then its offset sync."""
    assert await admitted(screen, ends) == ["u"]
    for cluster in (ends.a, ends.b):
        cluster.make("s.t", 1)
        cluster.make("s.v", 1)
    assert await admitted(screen, ends, among=("s.t", "s.v")) == []
    assert "do not tell yet" in screen.reasons["s.v"].reason
    clock[0] += 3600  # without a record, nothing follows
    assert await admitted(screen, ends, among=("s.t", "s.v")) == []
    ends.append("s.t")
    ends.append("s.v")
    assert await admitted(screen, ends, among=("s.t", "s.v")) == []
    mirrormaker.add("s.t")
    screen._syncs._offsets.clear()
    clock[0] += SETTLED_S
    assert await admitted(screen, ends, among=("s.t", "s.v")) == ["s.v"]
    assert "mirrors it" in screen.reasons["s.t"].reason


async def test_a_topic_that_this_mirror_made_at_the_target_does_not_wait(screen, ends, mirrormaker):
    assert await admitted(screen, ends) == ["u"]
    ends.b.make("mine", 1)
    ends.append("mine")
    assert await admitted(screen, ends, among=("mine",)) == ["mine"]
    ends.a.make("mine", 1)
    await admitted(screen, ends, ["mine"])
    assert screen.verdict_on("mine", "id", {0: 0}) is None or screen.verdict_on("mine", "id", {0: 0}).kind == "sent"


async def test_a_topic_that_was_there_before_mirrormaker_does_not_wait(screen, ends, request):
    assert await admitted(screen, ends) == NAMES
    for cluster in (ends.a, ends.b):
        cluster.make("v", 1)
    assert await admitted(screen, ends, among=("v",)) == ["v"]
    request.getfixturevalue("mirrormaker")
    assert await admitted(screen, ends, among=("t", "v")) == ["v"]


async def test_what_mirrormaker_begins_to_bring_is_refused_once_that_is_read(screen, ends, mirrormaker, monkeypatch):
    monkeypatch.setattr(screening, "SYNCS_S", 0.0)
    assert await admitted(screen, ends) == ["u"]
    mirrormaker.add("u")
    screen._syncs._offsets.clear()
    version = screen.version
    assert await admitted(screen, ends) == []
    assert screen.version > version


async def admitted(screen, ends, known=(), among=NAMES):
    """Return the topics that are admitted and, as the replicator has it, sent; what is read starts at 0."""
    found = await ends.source.topics()
    new = {TopicPartition(name, 0): found[name] for name in among if name in found and name not in known}
    candidates, _ = await screen.candidates(found, new, known)
    verdicts = {tp.topic: screen.verdict_on(tp.topic, topic.topic_id, {0: 0}) for tp, topic in candidates.items()}
    return sorted(name for name, verdict in verdicts.items() if verdict is None or verdict.kind == "sent")


async def test_without_mirrors_all_topics_are_admitted_and_no_log_is_asked_about(screen, ends):
    ends.source.ends = None
    assert await admitted(screen, ends) == NAMES
    assert screen.notes() == []


async def test_where_a_mirror_writes_an_empty_topic_waits_for_its_first_record(screen, ends):
    ends.head("t", origin("c"))
    ends.b.logs["t"][0].mark("other")
    assert await admitted(screen, ends) == []
    ends.append("t")
    assert await admitted(screen, ends) == ["t"]
    assert await admitted(screen, ends, known=["u"]) == ["t"]


async def test_a_log_of_many_offsets_has_records(screen, ends, monkeypatch):
    ends.head("t", origin("c"))
    monkeypatch.setattr(screening, "MARKERS_MAX", 2)
    for _ in range(3):
        ends.b.logs["u"][0].mark("other")
    assert await admitted(screen, ends) == ["u"]


async def test_what_a_mirror_made_from_the_target_is_passed_over_and_all_that_is_left_out_is_named(screen, ends):
    ends.head("t", origin("a", alone=True))
    for name in NAMES:
        ends.append(name)
    assert await admitted(screen, ends) == ["u"]
    (note,) = screen.notes()
    assert note.startswith("t: passed over")
    assert "records that others write into it" in note
    assert "records that others write into it" in screen.reasons["t"].reason


async def test_a_topic_of_which_some_records_came_from_the_target_is_sent_and_named(screen, ends):
    ends.head("t", origin("a"))
    ends.append("t", 7)
    assert await admitted(screen, ends) == ["t"]
    assert screen.fate_of(TopicPartition("t", 0), 7) == "passed_over"
    assert screen.fate_of(TopicPartition("t", 0), 8) == "own"
    assert screen.notes() == ["t: sent without the records that came from the target"]


async def test_a_refused_topic_is_held_until_the_claims_change_or_it_is_made_again(screen, ends):
    ends.head("t", origin("c", perhaps=["a"]))
    ends.append("t", 7)
    assert await admitted(screen, ends) == []
    assert screen.reasons["t"].kind == "refused"
    ends.source.batch_at = None  # it is not looked at again
    assert await admitted(screen, ends) == []
    del ends.source.batch_at
    ends.b.delete("t")
    ends.b.make("t", 1)
    ends.append("t")
    assert await admitted(screen, ends) == ["t"]
    assert "t" not in screen.reasons


async def test_what_is_held_for_a_batch_stays_held_though_claims_are_read_again(screen, ends, monkeypatch):
    ends.head("t", origin("c"))
    ends.append("t")
    assert await admitted(screen, ends) == ["t"]
    screen.leave_out("t", ends.b.ids["t"], MERGED, by_writer=True)
    monkeypatch.setattr(screening, "REJUDGED_S", 0.0)
    assert await admitted(screen, ends) == []
    assert screen.reasons["t"].reason == MERGED
    ends.head("t", origin("d"))
    assert await admitted(screen, ends) == ["t"]


async def test_what_is_held_for_a_batch_is_tried_again_in_an_hour(screen, ends, monkeypatch):
    ends.append("t")
    monkeypatch.setattr(screening, "TRIED_AGAIN_S", 0.0)
    await ends.source.topics()
    screen.leave_out("t", ends.b.ids["t"], MERGED, by_writer=True)
    assert screen.verdict_on("t", ends.b.ids["t"], {0: 0}).kind == "sent"


async def test_topics_of_claims_wait_for_a_target_that_was_never_reached(screen, ends):
    ends.target.is_away = True
    ends.head("t", origin("a"))
    for name in NAMES:
        ends.append(name)
    assert await admitted(screen, ends) == ["u"]
    assert not screen.has_asked_target
    ends.target.is_away = False
    assert await admitted(screen, ends) == NAMES
    assert screen.has_asked_target


async def test_of_a_mirror_of_the_last_release_the_ids_of_the_targets_topics_tell(screen, ends):
    ends.head("t", None, source_id=ends.a.ids["t"])
    ends.append("t", 7)
    assert await admitted(screen, ends) == ["t"]
    assert screen.fate_of(TopicPartition("t", 0), 7) == "passed_over"
    ends.target.topics = None  # it is not asked again
    await screen.refresh()
    assert screen.knows_target


async def test_while_a_state_topic_cannot_be_read_nothing_is_admitted_and_it_is_named(screen, ends):
    ends.head("t", origin("c"))
    ends.append("u")
    ends.b.states[STATE].batches[0] = b"\0" * 80
    assert await admitted(screen, ends) == []
    assert STATE in screen.unreadable
    with pytest.raises(SourceError, match="cannot be read"):
        screen.check_readable()


async def test_a_state_topic_that_was_deleted_is_named_and_what_was_read_still_counts(screen, ends):
    ends.head("t", origin("a"))
    ends.append("t", 7)
    assert await admitted(screen, ends) == ["t"]
    ends.b.delete(STATE)
    await screen.refresh()
    assert screen.fate_of(TopicPartition("t", 0), 7) == "passed_over"
    assert any(STATE in note and "deleted" in note for note in screen.notes())
    ends.head("t", origin("a"))
    await screen.refresh()
    assert not any(STATE in note for note in screen.notes())


async def test_claims_are_fresh_until_the_next_batches_whatever_the_clock_shows(screen, ends):
    ends.head("t", origin("a"))
    await screen.refresh()
    assert screen.is_fresh
    screen.batches_read()
    assert not screen.is_fresh


async def test_below_the_offset_from_which_producers_are_known_no_batch_is_taken_for_a_users(screen, ends):
    ends.head("t", origin("a", since=5))
    await screen.refresh()
    t, topic_id = TopicPartition("t", 0), ends.b.ids["t"]
    assert "below offset 5" in screen.unknown_at(t, topic_id, 4)
    assert screen.unknown_at(t, topic_id, 5) == ""
    assert screen.unknown_at(t, "of a topic made again", 4) == ""
    assert screen.unknown_at(TopicPartition("u", 0), ends.b.ids["u"], 4) == ""


async def test_topics_that_exist_no_more_are_forgotten(screen, ends):
    ends.head("t", origin("c", perhaps=["a"]))
    ends.append("t", 7)
    await admitted(screen, ends)
    screen.forget(["t"])
    assert screen.notes() == []
    assert screen.reasons == {}
