"""Syncs the configs of topics at the target with the source's, and logs the keys that it leaves alone.

It queries the target only if the source's configs differ from the last ones, or from those that the mirror created the
topic with, so that nothing crosses the link while nothing changes.
Does not contain: which key is synced (config_rules.py), which topics exist (partition_registry.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from drupelet.observe.log_tree import Log
from mirror.client.source_client import Source
from mirror.client.target_client import Target
from mirror.errors import SourceError, TargetError
from mirror.partition.stream import PartitionStream
from mirror.topics.config_rules import InStep, Setting, Step

AT_ONCE = 100  # topics in a request
TIMES = 12  # refresh intervals between two comparisons: configs change rarely
_log = Log("mirror")


class Following:
    """The configs of all topics, by their names at the source."""

    def __init__(self, source: Source, target: Target) -> None:
        self.source, self.target = source, target
        self._in_step = InStep()
        self._seen: dict[str, Mapping[str, str]] = {}
        self._said: set[tuple[str, str]] = set()

    def topic_created(self, stream: PartitionStream, settings: Mapping[str, str]) -> None:
        """Note the configs that the mirror created a stream's topic with: if it has all, nothing is compared."""
        topic = stream.partition.topic
        self._in_step.topic_created(topic, settings, stream.settings)
        if settings.items() >= stream.settings.items():
            self._seen[topic] = stream.settings

    def forget(self, topic: str) -> None:
        """Note that a topic is mirrored no more."""
        self._in_step.forget(topic)
        self._seen.pop(topic, None)

    async def run(self, streams: Callable[[], Iterable[PartitionStream]], refresh_s: float) -> None:
        """Compare until this is cancelled; log one line if an end cannot be queried."""
        logged = ""
        while True:
            await asyncio.sleep(refresh_s * TIMES)
            try:
                await self.sync(list(streams()))
                logged = ""
            except (SourceError, TargetError) as error:
                if str(error) != logged:
                    logged = str(error)
                    _log.warning("topic_config_not_compared", error=logged)

    async def sync(self, streams: Iterable[PartitionStream]) -> None:
        """Sync the topics of these streams; raises SourceError, TargetError if an end cannot be queried now."""
        by_topic: dict[str, list[PartitionStream]] = {}
        for stream in streams:
            if stream.has_session and not stream.is_gone:
                by_topic.setdefault(stream.partition.topic, []).append(stream)
        names = iter(sorted(by_topic))
        while some := list(islice(names, AT_ONCE)):
            told = await self.source.known_settings(some)
            settings = {topic: one for topic, one in told.items() if not isinstance(one, str)}
            for topic in some:
                if isinstance(why := told[topic], str):
                    self._say(topic, why, "source_settings_not_told", error=why)
            changed = {topic: by_topic[topic] for topic in settings if self._seen.get(topic) != settings[topic]}
            await self._follow(changed, settings)

    async def _follow(
        self, topics: Mapping[str, list[PartitionStream]], settings: Mapping[str, Mapping[str, str]]
    ) -> None:
        if not topics:
            return
        there = await self.target.topic_settings([streams[0].target_topic for streams in topics.values()])
        for topic, streams in topics.items():
            await self._sync_topic(topic, streams[0].target_topic, settings[topic], there[streams[0].target_topic])
            self._seen[topic] = settings[topic]

    async def has_raised(self, stream: PartitionStream) -> bool:
        """Return whether the target's limit was below the source's, and is not any more; log an end that is away."""
        try:
            return await self.raises(stream)
        except (SourceError, TargetError) as error:
            _log.warning("topic_config_not_compared", **stream.fields(), error=error)
            return False

    async def raises(self, stream: PartitionStream) -> bool:
        """Return whether a config of a stream's topic has just been synced, after one of its records was refused."""
        topic = stream.partition.topic
        settings = (await self.source.settings([topic]))[topic]
        there = await self.target.topic_settings([stream.target_topic])
        return await self._sync_topic(topic, stream.target_topic, settings, there[stream.target_topic])

    async def _sync_topic(
        self, topic: str, target_topic: str, here: Mapping[str, str], there: Mapping[str, Setting] | str
    ) -> bool:
        if isinstance(there, str):
            self._say(topic, there, "topic_config_not_described", error=there)
            return False
        return await self._alter(topic, target_topic, self._in_step.compare(topic, here, there))

    async def _alter(self, topic: str, target_topic: str, step: Step) -> bool:
        for key, (here, value) in step.left.items():
            self._say(topic, f"{key}={here}", "settings_left", here=f"{key}={here}", there=f"{key}={value}")
        if not step.alter:
            return False
        said = ",".join(f"{key}={'-' if value is None else value}" for key, value in step.alter.items())
        refused = await self.target.alter_topic(target_topic, step.alter)
        if refused:
            self._say(topic, said, "settings_refused", settings=said, error=refused)
            return False
        self._in_step.configs_accepted(topic, step.alter)
        _log.info("topic_config_synced", topic=target_topic, settings=said)
        return True

    def _say(self, topic: str, what: str, event: str, **fields: object) -> None:
        """Log a line once for each change at the source."""
        if (topic, what) not in self._said:
            self._said.add((topic, what))
            _log.warning(event, topic=topic, **fields)
