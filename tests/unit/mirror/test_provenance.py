"""Which records came from the target, by the claims of other mirrors: the tables of provenance.py, row by row."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mirror.partition.offset_map import End
from mirror.partition.provenance import (
    PRODUCERS_MAX,
    UNKNOWN_SINCE,
    Claim,
    Claims,
    Origin,
    Target,
    Writing,
    carries,
    origin_of_writing,
)
from mirror.partition.state_records import Head, Reading, Topics, claim_of, head_record, is_state_topic

GOLDEN = Path(__file__).parents[2] / "golden"
A, B, C = "cluster-a", "cluster-b", "cluster-c"
STATE = "__edge-mirror-site-state"


def origin(*passed, perhaps=(), alone=False, since=0, producers=((7, 0),)):
    return Origin(frozenset(passed), frozenset(perhaps), alone, since, producers)


def claims(*found):
    made = Claims()
    for number, one in enumerate(found):
        made.take(("t", number), one)
    return made


def claim(found, *, topic="t", topic_id="id", source_id="s", producer_id=7, mirror=STATE):
    return Claim(mirror, topic, topic_id, 0, source_id, producer_id, found)


@pytest.mark.parametrize(
    ("found", "kind", "fate"),
    [
        (origin(A), "sent", "passed_over"),
        (origin(C), "sent", "sent"),
        (origin(C, perhaps=[A]), "refused", "unknown"),
        (origin(A, alone=True), "passed_over", "passed_over"),
        (origin(C, alone=True), "sent", "sent"),
        (origin(A, since=5), "refused", "passed_over"),
    ],
)
def test_what_a_claim_means_to_a_mirror_to_cluster_a(found, kind, fate):
    made = claims(claim(found))
    assert made.verdict("t", "id", B, Target(A), {0: 0}).kind == kind
    assert made.fate_of("t", 0, 7, Target(A)) == fate
    assert made.fate_of("t", 0, 8, Target(A)) == "own"


def test_a_topic_made_again_is_no_mirrors_alone():
    made = claims(claim(origin(A, alone=True)))
    assert made.verdict("t", "another", B, Target(A), {}).kind == "sent"


def test_clusters_that_were_passed_are_carried_on():
    verdict = claims(claim(origin(A))).verdict("t", "id", B, Target(C), {})
    assert verdict.origin == Origin(frozenset({B}), frozenset({A}))
    alone = claims(claim(origin(A, alone=True))).verdict("t", "id", B, Target(C), {})
    assert alone.origin == Origin(frozenset({A, B}))


@pytest.mark.parametrize(("ids", "fate"), [({"s"}, "passed_over"), ({"x"}, "sent")])
def test_a_mirror_of_the_last_release_is_known_by_the_id_of_its_source_topic(ids, fate):
    assert claims(claim(None)).fate_of("t", 0, 7, Target(A, ids)) == fate


def test_a_producer_is_recognised_in_a_topic_that_no_claim_names():
    assert claims(claim(origin(A))).fate_of("renamed", 0, 7, Target(A)) == "passed_over"


def test_a_claim_is_kept_though_its_mirror_names_another_topic_since():
    made = claims(claim(origin(A)), claim(origin(A), topic="u"))
    made.take(("t", 0), claim(origin(A, producers=((9, 3),)), topic="v", producer_id=9))
    assert made.fate_of("t", 0, 7, Target(A)) == "passed_over"


def test_the_origin_of_a_first_life_knows_all_its_producers():
    assert origin_of_writing(None, origin(A, producers=()), Writing(7, 30)) == origin(A, producers=((7, 30),))


@pytest.mark.parametrize(
    ("stored", "found", "writing", "since", "ids"),
    [
        (None, origin(A, since=UNKNOWN_SINCE, producers=()), Writing(7, 30), 30, [7]),  # the state was lost
        (None, origin(A, producers=()), Writing(7, 30, former_id=7), 0, [7]),  # the last release, under a fence
        (None, origin(A, producers=()), Writing(8, 30, former_id=7), 30, [7, 8]),  # the last release, without
        (origin(A), origin(A, producers=()), Writing(8, 30, former_id=7), 0, [7, 8]),
        (origin(A, since=20), origin(A, producers=()), Writing(8, 30, 7, is_new_log=True), 0, [7, 8]),
    ],
)
def test_from_where_on_the_producers_are_known(stored, found, writing, since, ids):
    made = origin_of_writing(stored, found, writing)
    assert (made.since, sorted(producer_id for producer_id, _ in made.producers)) == (since, ids)


def test_of_many_producers_the_last_are_named():
    made = origin(A)
    for number in range(PRODUCERS_MAX + 5):
        made = origin_of_writing(made, origin(A, producers=()), Writing(100 + number, 10 * (number + 1), 7))
    assert len(made.producers) == PRODUCERS_MAX
    assert made.since == made.producers[0][1] > 0


def test_another_source_cluster_is_remembered():
    made = origin_of_writing(origin(A), origin(C, producers=()), Writing(7, 30, 7))
    assert (made.passed, made.perhaps) == ({C}, {A})
    assert not carries(origin(A), origin(C))
    assert carries(made, origin(C))


HEAD = Head(Topics("t", "s", "id"), 7, 0, 0, 0, 0, 0, End(0, 0, 0))


@pytest.mark.parametrize("found", [None, origin(A, perhaps=[B], alone=True, since=4, producers=((7, 0), (9, 4)))])
def test_a_head_tells_its_origin_and_one_of_the_last_release_is_read(found):
    key, value = head_record(("t", 0), HEAD._replace(origin=found))
    reading = Reading()
    reading.take(key, value)
    assert reading.partitions()["t", 0].head.origin == found
    assert claim_of(STATE, key, value) == (("t", 0), claim(found))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"steps:t:0:0", b'{"version":1,"steps":[]}'),
        (b"head:t:0", None),
        (b"head:t:0", b"no json"),
        (b"head:t:0", b"[]"),
        (b"head:t:0", json.dumps({"producer_id": "7", "target": "t"}).encode()),
        (b"head:t:0", json.dumps({"producer_id": 7, "target": "t", "origin": {"passed": [1]}}).encode()),
    ],
)
def test_what_is_no_head_makes_no_claim(key, value):
    assert claim_of(STATE, key, value) is None


def test_a_newer_versions_head_makes_a_claim():
    value = json.dumps({"version": 99, "producer_id": 7, "target": "t", "target_id": "id", "source_id": "s"}).encode()
    assert claim_of(STATE, b"head:t:0", value) == (("t", 0), claim(None))


def test_the_state_topic_of_the_last_release_makes_claims():
    """Its records are as the mirror of 752fe42 wrote them, from `t` at one cluster to `t` at another."""
    made = Claims()
    records = json.loads((GOLDEN / "mirror_state_752fe42.json").read_text())
    for key, value in records:
        claimed = claim_of(STATE, key.encode(), value.encode())
        if claimed is not None:
            made.take(*claimed)
    source_id, topic_id = (json.loads(records[-1][1])[key] for key in ("source_id", "target_id"))
    assert made.names_unknown_clusters
    assert made.fate_of("t", 0, 1, Target(A, {source_id})) == "passed_over"
    assert made.fate_of("t", 0, 1, Target(A, {"another"})) == "sent"
    assert made.verdict("t", topic_id, B, Target(A, {source_id}), {}).passed_over == {1}


def test_names_of_state_topics():
    assert is_state_topic(STATE)
    assert not is_state_topic("__edge_ledger")
    assert not is_state_topic("edge-mirror-x-state")
