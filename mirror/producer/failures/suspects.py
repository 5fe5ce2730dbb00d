"""PURE. Decides which batches are suspected of having their connection closed, and what that has proved.

| a partition is | since | its batches go |
|---|---|---|
| plain | all that was in flight when a connection broke is safe | with others |
| suspect | the connection broke CUTS_SUSPECT times while one batch was the first in flight | alone, by another one |
| condemned | it broke CUTS_CONDEMNED times while one was alone, each `is_proof` | split; one record goes to the host |

A break proves something if it came soon after the batch was sent, while no other connection to that broker broke and
one of them still answers. Any other break resets the count to 0. So a link that breaks every few seconds never condemns
a batch, and a partition that advances between two breaks is not suspect. Does not contain: connections, clocks, any
reaction (batch_isolation.py).
"""

from __future__ import annotations

from mirror.partition.stream import PartitionStream

CUTS_SUSPECT = 2
CUTS_CONDEMNED = 5
CUTS_OF_A_HALF = 2  # that condemn a part of a condemned batch
QUICK_S = 5.0
QUICK_ROUND_TRIPS = 4


class Suspicion:
    """The suspicion of a partition's batches below `end_offset` of the source; `first_offset` is the first one's."""

    __slots__ = ("alone_cuts", "cuts", "end_offset", "first_offset", "times")

    def __init__(self, first_offset: int, end_offset: int) -> None:
        self.first_offset, self.end_offset = first_offset, end_offset
        self.cuts = 1
        self.alone_cuts = 0  # breaks that prove something
        self.times = 0  # that it was sent alone without a response


def note_cut(stream: PartitionStream, first_offset: int, end_offset: int) -> bool:
    """Note that a connection broke with these batches in flight; return whether the partition becomes suspect by that.

    If batches were acknowledged since the last break, the count starts again with the first of those that are left.
    """
    suspicion: Suspicion | None = stream.suspicion
    if suspicion is None or suspicion.end_offset <= first_offset:
        stream.suspicion = Suspicion(first_offset, end_offset)
        stream.is_alone = False
        return False
    if suspicion.first_offset != first_offset:
        if not stream.is_alone:
            stream.suspicion = Suspicion(first_offset, end_offset)
            return False
        suspicion.first_offset, suspicion.alone_cuts, suspicion.times = first_offset, 0, 0
    suspicion.cuts += 1
    becomes_suspect = not stream.is_alone and suspicion.cuts >= CUTS_SUSPECT
    stream.is_alone |= becomes_suspect
    return becomes_suspect


def note_acked(stream: PartitionStream, acked: int) -> bool:
    """Note that all below `acked` is safe; return whether the partition ceases to be suspect by that."""
    suspicion: Suspicion | None = stream.suspicion
    if suspicion is None:
        return False
    if acked > suspicion.first_offset:
        suspicion.alone_cuts = suspicion.times = 0
    if acked < suspicion.end_offset:
        return False
    stream.suspicion, was_alone, stream.is_alone = None, stream.is_alone, False
    return was_alone


def note_alone(suspicion: Suspicion, *, is_proof: bool) -> bool:
    """Note that the batch was sent alone and its connection broke; return whether that condemns it."""
    suspicion.times += 1
    suspicion.alone_cuts = suspicion.alone_cuts + 1 if is_proof else 0
    if suspicion.alone_cuts < CUTS_CONDEMNED:
        return False
    suspicion.alone_cuts = CUTS_CONDEMNED - CUTS_OF_A_HALF
    return True


def is_proof(took_s: float, round_trip_s: float | None, *, others_broke: bool, another_answers: bool) -> bool:
    """Return whether a break that came `took_s` after the batch was sent alone proves something against it."""
    is_quick = took_s <= max(QUICK_S, QUICK_ROUND_TRIPS * (round_trip_s or 0.0))
    return is_quick and another_answers and not others_broke
