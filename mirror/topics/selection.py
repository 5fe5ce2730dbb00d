"""PURE. Selects the topics to mirror, and derives their names and configs at the target.

Names follow Kafka: 1 to 249 characters of `a-z A-Z 0-9 . _ -`.
Does not contain: clients, clocks, the configuration file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from drupelet.command.config_check import nearest
from drupelet.ledger import LEDGER_TOPIC

TOPIC_NAME_LENGTH_MAX = 249
SITE_LENGTH_MAX = 100

Policy = Literal["prefix", "identity"]
POLICIES: tuple[Policy, ...] = ("prefix", "identity")

COPIED_SETTINGS = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "max.message.bytes",
    "delete.retention.ms",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
)
"""Configs that readers of a topic depend on; a log's layout on disk (segments, flushes, `edge.*`) is each side's."""

ConfigSource = Literal["topic", "broker", "default"]

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class TopicNameError(ValueError):
    """A topic has no legal name at the target; the message names it and the remedy."""


def is_site_name(site: str) -> bool:
    """Return whether a site can be the first part of a topic name."""
    return len(site) <= SITE_LENGTH_MAX and _LEGAL_NAME.fullmatch(site) is not None and site not in (".", "..")


class Selection(NamedTuple):
    """The topics to mirror: whole names that match `wanted`, not `excluded`; with `ledger` also the loss ledger."""

    wanted: re.Pattern[str]
    excluded: re.Pattern[str] | None = None
    ledger: bool = True

    def of(self, names: Iterable[str]) -> list[str]:
        """Return those of the names, sorted; others that start with `__` are the brokers' own and never among them."""
        return sorted(name for name in names if self._has(name) or (self.ledger and name == LEDGER_TOPIC))

    def near_miss(self, names: Iterable[str]) -> str | None:
        """Return the topic that a pattern without a match may have meant, empty if none is near; None if one matches.

        The loss ledger does not count, as it is selected with any pattern.
        """
        own = [name for name in names if not name.startswith("__") and not self._excludes(name)]
        if any(map(self.wanted.fullmatch, own)):
            return None
        return next((near for word in self.wanted.pattern.split("|") if (near := nearest(word, own))), "")

    def _has(self, name: str) -> bool:
        return not name.startswith("__") and bool(self.wanted.fullmatch(name)) and not self._excludes(name)

    def _excludes(self, name: str) -> bool:
        return self.excluded is not None and self.excluded.fullmatch(name) is not None


def copied_settings(described: Mapping[str, tuple[str, ConfigSource]]) -> dict[str, str]:
    """Return the configs to create a topic with at the target, from the source's, each with where it was set.

    Configs set for the topic itself are copied; for the others the target's default applies, except for two. Without
    its source's `cleanup.policy` a topic would lose records or keep too many. Records that the source's broker accepts
    by its `message.max.bytes` must fit.
    """
    return {"cleanup.policy": "delete"} | {
        key: value
        for key, (value, source) in described.items()
        if key == "cleanup.policy"
        or (key in COPIED_SETTINGS and source == "topic")
        or (key == "max.message.bytes" and source == "broker")
    }


def target_name(topic: str, policy: Policy, site: str | None) -> str:
    """Return the topic's name at the target: `SITE.TOPIC` (prefix) or unchanged; raises TopicNameError if too long."""
    name = topic if policy == "identity" else f"{site}.{topic}"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise TopicNameError(
            f"Topic {topic} would be called {name} at the target, which is longer than {TOPIC_NAME_LENGTH_MAX} "
            "characters: choose a shorter site name."
        )
    return name
