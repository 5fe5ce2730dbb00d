"""PURE. Tracks the epochs of a transactional id between those that this mirror was given: another mirror may have them.

    6 7 - - 10 11      6, 7, 10 and 11 were given; 8 and 9 are another mirror's, or their response was lost

Kafka gives each epoch once, to any client that asks. So two mirrors that both consider themselves active take it from
each other in turns. Does not contain: any reaction (producer_sessions.py).
Source: Apache Kafka's TransactionMetadata.prepareIncrementProducerEpoch, without an expected epoch.
"""

from __future__ import annotations

from typing import NamedTuple


class _Range(NamedTuple):
    producer_id: int
    above: int
    below: int


class ForeignEpochs:
    """The epochs between those that were given, since `clear`; true if there are any."""

    def __init__(self) -> None:
        self._given: tuple[int, int] | None = None
        self._ranges: list[_Range] = []

    def epoch_given(self, producer_id: int, epoch: int) -> None:
        """Note an epoch that this mirror was given."""
        was, self._given = self._given, (producer_id, epoch)
        if was is None or (producer_id, epoch) == (was[0], was[1] + 1):
            return
        if producer_id == was[0]:
            self._ranges.append(_Range(producer_id, was[1], epoch))
        else:  # the id was used up, or forgotten
            self._ranges += [_Range(was[0], was[1], 1 << 15), _Range(producer_id, -1, epoch)]

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __contains__(self, producer: tuple[int, int]) -> bool:
        producer_id, epoch = producer
        return any(one.producer_id == producer_id and one.above < epoch < one.below for one in self._ranges)

    def clear(self) -> None:
        """Note that all records that another mirror has written under them were read."""
        self._ranges.clear()
