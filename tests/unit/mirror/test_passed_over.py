"""Writers that were passed over are noted with the position, and are known after their state topic was deleted."""

from __future__ import annotations

import re

import pytest

from kafka_wire.partitions import TopicPartition
from mirror.audit.endpoints.origins import Origins
from mirror.config import Config
from mirror.errors import SourceError
from mirror.partition.offset_map import End
from mirror.partition.provenance import Origin, Writers
from mirror.partition.source_offsets import PASSED_OVER_MAX
from mirror.partition.state_records import Head, Topics, head_record
from mirror.topics.selection import Selection
from tests.simulation.loops_clusters import Copy, MemoryCluster, SourceView, TargetView
from tests.simulation.loops_mirror import MemoryMirror, Way

T = TopicPartition("t", 0)
USER = 99


class Sites:
    """Clusters `a` and `b`: `up` brings records from `a` into `t` of `b`, and `down` reads `t` of `b`."""

    def __init__(self):
        self.a, self.b = MemoryCluster("a"), MemoryCluster("b")
        for cluster in (self.a, self.b):
            cluster.make("t", 1)
        selection = Selection(re.compile("t"), None, False)
        self.up = MemoryMirror(Way("up", "a", "b", "identity", selection), self.a, self.b, lambda *_: True)
        self.down = MemoryMirror(Way("down", "b", "a", "prefix", selection), self.b, self.a, lambda *_: True)

    def produce(self, cluster, number):
        cluster.log("t", 0).append([Copy(number, (cluster.name,))], "", USER, 0)

    async def run(self, mirror):
        if not mirror.is_running:
            mirror.start()
        for _ in range(3):
            await mirror.discover()
            await mirror.read(T, 10)

    def sent_down(self):
        return [one.number for log in self.a.logs.get("b.t", ()) for each in log.written for one in each.copies]


@pytest.fixture
async def sites():
    """`up` has brought 1, and `down` has passed it over; then `up` brings 2, and its state topic is deleted."""
    made = Sites()
    made.produce(made.a, 1)
    await made.run(made.up)
    made.produce(made.b, 10)
    await made.run(made.down)
    assert made.sent_down() == [10]
    made.produce(made.a, 2)
    await made.run(made.up)
    made.down.stop()
    made.up.stop()
    made.b.delete(made.up.state_topic)
    return made


async def test_a_mirror_that_starts_after_the_state_topic_was_deleted_still_passes_its_writer_over(sites):
    sites.produce(sites.b, 11)
    await sites.run(sites.down)
    assert sites.sent_down() == [10, 11]


async def test_a_marker_below_the_offset_from_which_writers_are_named_refuses_no_topic(sites):
    """As where the mirror that has lost its state starts first: its fence comes before its head."""
    await sites.run(sites.down)
    sites.down.stop()
    position = sites.down.positions[T].offset
    await sites.run(sites.up)
    origin = sites.up._heads["t", 0].origin
    assert origin.since == position + 1  # a marker
    sites.produce(sites.b, 11)
    await sites.run(sites.down)
    assert sites.down.troubles == {}
    assert sites.sent_down() == [10, 11]


async def test_a_record_that_a_known_writer_brought_before_it_lost_its_state_refuses_no_topic(sites):
    await sites.run(sites.up)  # 2 lies below the offset from which the writers are named
    sites.produce(sites.b, 11)
    await sites.run(sites.down)
    assert sites.down.troubles == {}
    assert sites.sent_down() == [10, 11]


async def test_a_record_whose_writer_nothing_names_still_refuses_its_topic(sites):
    sites.b.log("t", 0).append([Copy(3, ("a", "b"))], "", 77, 0)
    await sites.run(sites.up)
    await sites.run(sites.down)
    assert "nothing tells which records" in sites.down.troubles["t"]
    assert sites.sent_down() == [10]


async def test_a_leader_that_does_not_answer_leaves_a_topic_refused_until_it_does(sites):
    await sites.run(sites.up)
    sites.down.start()
    view, batch_at, asked = sites.down.sides.source, SourceView.batch_at, []

    async def away(partition, offset):
        asked.append(offset)
        if sites.down.admission.screen.claims:
            raise SourceError("NOT_LEADER_OR_FOLLOWER")
        return await batch_at(view, partition, offset)

    view.batch_at = away
    await sites.run(sites.down)
    assert asked
    assert "nothing tells which records" in sites.down.troubles["t"]


async def test_a_position_of_a_topic_that_was_made_again_tells_of_no_writer(sites):
    sites.b.delete("t")
    sites.b.make("t", 1)
    sites.b.log("t", 0).append([Copy(3, ("b",))], "", sites.up.producer_id, 0)
    await sites.run(sites.down)
    assert sites.sent_down() == [10, 3]


class Target(TargetView):
    async def close(self): ...


@pytest.fixture
def origins(sites):
    """As an audit of `down` finds them."""
    found = Origins(SourceView(sites.b), Config(source="h:1", target="h:2", topics="t", site="b"))
    found.target = Target(sites.a)
    return found


async def test_an_audit_passes_over_the_writers_that_the_position_names(sites, origins):
    noted = sites.down.positions[T].passed_over
    assert noted == (sites.up.producer_id,)
    await origins.open(sites.b.described(), "a")
    passes_over = origins.of(T, noted)
    assert passes_over(sites.up.producer_id)
    assert not passes_over(USER)
    assert origins.of(T, ()) is None


async def test_an_audit_goes_by_what_a_state_topic_tells_before_the_position(sites, origins):
    """A mirror from another cluster has got the producer, as where a coordinator has lost its producer ids."""
    sites.b.make_state("__edge-mirror-other-state")
    origin = Origin(frozenset({"c"}), producers=((sites.up.producer_id, 0),))
    head = Head(Topics("t", "c-1", sites.b.ids["t"]), sites.up.producer_id, 0, 0, 0, 0, 0, End(0, 0, 0), origin=origin)
    sites.b.states["__edge-mirror-other-state"].append(head_record(("t", 0), head))
    await origins.open(sites.b.described(), "a")
    passes_over = origins.of(T, (sites.up.producer_id, 5))
    assert not passes_over(sites.up.producer_id)
    assert passes_over(5)


def test_no_more_writers_are_noted_than_a_position_holds():
    writers = Writers()
    for number in range(PASSED_OVER_MAX + 5):
        writers.turn_to(number, 0, passes_over=True)
        writers.turn_to(number, 1, passes_over=True)
        writers.turn_to(1000 + number, 0, passes_over=False)
    assert writers.passed_over == tuple(range(5, PASSED_OVER_MAX + 5))
    writers.forget()
    assert len(writers.passed_over) == PASSED_OVER_MAX
