"""Declares an end of an audit: cluster_endpoint.py reads a cluster, remote_endpoint.py a file or a command's output.

An end that cannot read on in a partition raises UnreadError: that partition is not audited, the others are.
Does not contain: comparisons, and what a difference means.
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
    """One end, partition by partition, ascending by the source's names; raises CommandFailed if it cannot be read.

    `range`, `read_again` and `parts` raise UnreadError.
    """

    side: Side
    at_ms: int
    """The time when its logs' ends were read."""

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id, once it is open; None if it has none, or the release before wrote its digests."""

    async def open(self) -> None:
        """Read which partitions exist."""

    async def next(self) -> Facts | None:
        """Go on to the next partition, skipping the rest of the one before; None after the last."""

    async def range(self) -> Range | None:
        """Return the next range of the partition; None after the last."""

    async def read_again(self, first: int, end: int) -> Sequence[Range]:
        """Return the partition's ranges in [first, end) with their records' digests; none if it cannot read them."""

    async def parts(self, offset: int) -> Parts | None:
        """Return the parts of one record of the partition; None if it cannot read them."""

    async def close(self) -> None:
        """Close connections, files or the command."""
