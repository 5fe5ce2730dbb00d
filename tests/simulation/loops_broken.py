"""Rules of the mirrors that face each other, each broken on purpose, and the seed that finds it.

A rule is (where, name, what stands in its place). Does not contain: what finds it (test_loops_runs.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mirror.origins import admission
from mirror.origins.admission import Admission
from mirror.origins.screening import Screen
from mirror.partition import provenance
from mirror.partition.provenance import Claim, Claims, Fate, Origin, Target, TopicVerdict, Writing

Rule = tuple[Any, str, Any]

_verdict, _take, _origin_of_writing = Claims.verdict, Claims.take, provenance.origin_of_writing
_judge, _refresh, _hold = Screen.verdict_on, Screen.refresh, Screen.leave_out


def carry_no_clusters_on(
    them: Claims, topic: str, topic_id: str | None, source: str, target: Target, read_from: Mapping[int, int]
) -> TopicVerdict:
    verdict = _verdict(them, topic, topic_id, source, target, read_from)
    return verdict._replace(origin=Origin(frozenset({source})))


def forget_older_producers(stored: Origin | None, found: Origin, writing: Writing) -> Origin:
    origin = _origin_of_writing(stored, found, writing)
    return origin._replace(since=0, producers=origin.producers[-1:])


def know_all_producers(stored: Origin | None, found: Origin, writing: Writing) -> Origin:
    return _origin_of_writing(stored, found, writing)._replace(since=0)


def send_what_cannot_be_told(claim: Claim, target: Target) -> Fate:
    if claim.origin is None:
        return "passed_over" if claim.source_id in target.topic_ids else "sent"
    return "passed_over" if target.cluster_id in claim.origin.passed else "sent"


def send_back_what_has_no_origin(claim: Claim, target: Target) -> Fate:
    if claim.origin is None:
        return "sent"
    if target.cluster_id in claim.origin.passed:
        return "passed_over"
    return "unknown" if target.cluster_id in claim.origin.perhaps else "sent"


def go_by_names(them: Screen, name: str, topic_id: str | None, read_from: Mapping[int, int]) -> TopicVerdict | None:
    if name.startswith(f"{them._ends.target.cluster_id}."):
        them.reasons[name] = TopicVerdict("passed_over", Origin(frozenset()), reason="is passed over: by its name")
        return them.reasons[name]
    return _judge(them, name, topic_id, read_from)


async def read_claims_once(them: Screen, *, asks_target: bool = True) -> None:
    if not them.claims:
        await _refresh(them, asks_target=asks_target)
    them.is_fresh = True


def hold_once(them: Screen, name: str, topic_id: str | None, reason: str, *, by_writer: bool = False) -> None:
    _hold(them, name, topic_id, reason)


async def say_yes(*_: object) -> bool:
    return True


def take_the_last_alone(them: Claims, source_partition: tuple[str, int], claim: Claim) -> None:
    _take(them, source_partition, claim)
    them._former.clear()


BROKEN: dict[str, tuple[Rule, int]] = {
    "clusters that were passed are not carried on": ((Claims, "verdict", carry_no_clusters_on), 87),
    "older producers are forgotten": ((provenance, "origin_of_writing", forget_older_producers), 7182),
    "all producers count as known": ((provenance, "origin_of_writing", know_all_producers), 7182),
    "what cannot be told is sent": ((provenance, "_fate_of_claim", send_what_cannot_be_told), 87),
    "the last release is not recognised": ((provenance, "_fate_of_claim", send_back_what_has_no_origin), 37),
    "another origin needs no new epoch": ((admission, "carries", lambda *_: True), 87),
    "a topic that was made again is still a mirror's": (
        (provenance, "_is_alone", lambda claim, _: claim.origin is not None and claim.origin.is_alone), 152,
    ),
    "names tell": ((Screen, "verdict_on", go_by_names), 41),
    "claims are read once": ((Screen, "refresh", read_claims_once), 1),
    "claims that were read count for later batches": ((Screen, "batches_read", lambda _: None), 27),
    "a refusal for a batch does not hold": ((Screen, "leave_out", hold_once), 41187),
    "a writer is judged before the target has told": ((Admission, "_asks_target", say_yes), 107124),
    "a topic is admitted before its first record": ((Screen, "_has_records", say_yes), 63),
    "a claim that is replaced is forgotten": ((Claims, "take", take_the_last_alone), 52),
}  # fmt: skip
