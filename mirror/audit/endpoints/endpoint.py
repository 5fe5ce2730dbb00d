"""What an audit requests of an end: cluster_endpoint.py asks the cluster, remote_endpoint.py reads a command or a file.

An end that cannot read on of one partition raises UnreadError: that one is not audited, and the others are.

Must never come in: what is compared, and what it means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mirror.audit.compare.matching import Side
from mirror.audit.digest.digests import Parts, Range
from mirror.audit.digest.partition_facts import Facts


class UnreadError(Exception):
    """An end reads no further in a partition: half a sentence of why. It may go on to the next partition."""

    def __init__(self, side: Side, why: str) -> None:
        super().__init__(why)
        self.side: Side = side


class End(Protocol):
    """One end, partition by partition, ascending by the source's names; CommandFailed where it cannot tell.

    `range`, `again` and `parts` raise UnreadError.
    """

    side: Side
    at_ms: int
    """When its logs' ends were told."""

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id, once it is open; None where it has none, or the release before told its digests."""

    async def open(self) -> None:
        """Find out what there is."""

    async def next(self) -> Facts | None:
        """Go on to the next partition, passing over what is left of the one before; None behind the last."""

    async def range(self) -> Range | None:
        """The next range of the partition; None behind the last."""

    async def again(self, first: int, end: int) -> Sequence[Range]:
        """The ranges of the partition in [first, end) with the digests of their records; none where it cannot tell."""

    async def parts(self, offset: int) -> Parts | None:
        """The parts of one record of the partition; None where it cannot tell."""

    async def close(self) -> None:
        """Let go."""
