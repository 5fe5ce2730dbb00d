"""Selects the batches of the source that an audit passes over, as the mirror does: those that came from the target.

It reads the claims of other mirrors at the source (screening.py); the target's cluster id decides. The target's digests
contain that id; otherwise the target is asked if there is a claim. If a producer's state topic was deleted, the mirror
has noted the producer with its position.
Does not contain: what a claim means (partition/provenance.py), how the batches are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from kafka_wire.cluster import Topic
from kafka_wire.partitions import TopicPartition
from mirror.client.source_client import Source
from mirror.client.target_client import Target
from mirror.config import Config
from mirror.origins.screening import Screen, screen_of
from mirror.partition.state_records import is_state_topic

PassesOver = Callable[[int], bool]
"""Returns whether the batches of a producer id are passed over."""

UNKNOWN = (
    "has records of other mirrors, and nothing tells which of them came from the target, as {why}: those that the "
    "mirror has passed over count as lost"
)


class Origins:
    """The source's records that came from the target; `open` comes first."""

    def __init__(self, source: Source, config: Config) -> None:
        self.source, self.target = source, Target(config.target_client)
        self._config = config
        self._screen: Screen | None = None

    async def open(self, known: Mapping[str, Topic], target_id: str | None) -> None:
        """Read what other mirrors keep at the source; `target_id` is from the target's end. Raises SourceError."""
        if not any(map(is_state_topic, known)):
            return
        self.target.cluster_id = target_id
        screen = screen_of(self, self._config)
        try:
            await screen.refresh(asks_target=bool(self._config.target))
            screen.check_readable()
        finally:
            await self.target.close()
        self._screen = screen

    def reason(self, name: str, topic: Topic) -> str:
        """Return what becomes of a topic, as a predicate of it; empty if all of it is sent."""
        screen = self._screen
        if screen is None:
            return ""
        if not screen.knows_target and screen.claims.of_topic(name):
            target = self._config.target
            return UNKNOWN.format(why=f"the target {target} does not answer" if target else "--target is not given")
        verdict = screen.verdict_on(name, topic.topic_id, {})
        return "" if verdict is None else verdict.reason

    def of(self, partition: TopicPartition, passed_over: Collection[int]) -> PassesOver | None:
        """Return how to distinguish a partition's producers; None if no other mirror writes to the source.

        The mirror has noted with its position that it has `passed_over` these; their state topics may be deleted.
        """
        screen = self._screen
        if screen is None or not screen.claims:
            return passed_over.__contains__ if passed_over else None

        def passes_over(producer_id: int) -> bool:
            fate = screen.fate_of(partition, producer_id)
            return fate == "passed_over" or (fate == "own" and producer_id in passed_over)

        return passes_over
