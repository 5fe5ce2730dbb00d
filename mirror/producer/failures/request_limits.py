"""Keeps the largest request that each broker of the target accepts (socket.request.max.bytes), once it was queried.

Does not contain: which batches are suspect (suspects.py), what becomes of a batch above the limit (refusals.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from mirror.client.target_client import Target
from mirror.partition.stream import Batch

REQUEST_OVERHEAD_BYTES = 512  # of a request with one batch: header, names, lengths


class RequestLimits:
    """The limits of one target's brokers."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._bytes_max: dict[int, int] = {}

    def __contains__(self, node: int) -> bool:
        return node in self._bytes_max

    async def learn(self, node: int) -> None:
        """Query a broker's limit."""
        limit = await self._target.request_bytes_max(node)
        if limit is not None:
            self._bytes_max[node] = limit

    def is_exceeded(self, node: int, batch: Batch) -> bool:
        """Return whether a batch is above the broker's limit; its `said` then names the limit."""
        limit = self._bytes_max.get(node)
        if limit is None or batch.size + REQUEST_OVERHEAD_BYTES <= limit:
            return False
        batch.said = f"a request with its {batch.size} bytes is above socket.request.max.bytes={limit} of broker {node}"
        return True

    def requests(self, node: int, batches: Sequence[Batch]) -> tuple[list[list[Batch]], list[Batch]]:
        """Return the requests to a broker that have these batches, in their order, and those above its limit."""
        above = [batch for batch in batches if self.is_exceeded(node, batch)]
        fit = [batch for batch in batches if batch not in above]
        limit = self._bytes_max.get(node)
        if limit is None:
            return ([fit] if fit else []), above
        requests: list[list[Batch]] = []
        left = 0
        for batch in fit:
            size = batch.size + REQUEST_OVERHEAD_BYTES
            if size > left:
                requests.append([])
                left = limit
            requests[-1].append(batch)
            left -= size
        return requests, above
