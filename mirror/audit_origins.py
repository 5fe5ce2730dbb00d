"""Which batches of the source an audit passes over, as the mirror does: those that came from the target.

The claims of other mirrors are read at the source (screening.py); the target's cluster id decides, so the target is
asked for it where there is a claim. Does not contain: what a claim means (provenance.py), how the batches are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from drupelet.errors import CommandFailed
from kafka_wire.cluster import Topic
from kafka_wire.partitions import TopicPartition
from mirror.config import Config
from mirror.errors import TargetError
from mirror.screening import Screen
from mirror.source import Source
from mirror.state_records import is_state_topic
from mirror.target import Target

PassesOver = Callable[[int], bool]
"""Returns whether the batches of a producer id are passed over."""

WHICH = "the source has records of other mirrors, and the target's cluster id tells which of them came from the target"


class Origins:
    """What of the source's records came from the target; `open` comes first."""

    def __init__(self, source: Source, config: Config) -> None:
        self.source, self.target = source, Target(config.target_client)
        self._config = config
        self._screen: Screen | None = None

    async def open(self, known: Mapping[str, Topic]) -> None:
        """Read what other mirrors keep at the source. Raises SourceError, CommandFailed."""
        if not any(map(is_state_topic, known)):
            return
        screen = Screen(self, self._config.request_timeout_ms / 1000)
        try:
            await screen.refresh()
            screen.check_readable()
            if screen.claims and not screen.knows_target:
                await self._ask_target()
        finally:
            await self.target.close()
        self._screen = screen

    async def _ask_target(self) -> None:
        if not self._config.target:
            raise CommandFailed(f"{WHICH}: give --target")
        try:
            await self.target.topics([])
        except TargetError as error:
            raise CommandFailed(f"{WHICH}, and {self._config.target} cannot be asked for it: {error}") from error
        raise CommandFailed(f"{WHICH}, and {self._config.target} tells none")

    def reason(self, name: str, topic: Topic) -> str:
        """Return what becomes of a topic, as a predicate of it; empty where all of it is sent."""
        verdict = None if self._screen is None else self._screen.judge(name, topic.topic_id, {})
        return "" if verdict is None else verdict.reason

    def of(self, partition: TopicPartition) -> PassesOver | None:
        """Return how a partition's producers are told apart; None where no other mirror writes to the source."""
        screen = self._screen
        if screen is None or not screen.claims:
            return None
        return lambda producer_id: screen.fate_of(partition, producer_id) == "passed_over"
