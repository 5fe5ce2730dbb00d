"""PURE. Decides which configs of a topic at the target follow a change at the source, and which are left alone.

| at the target a key is | and at the source | then |
|---|---|---|
| as it was last seen equal, or as the mirror created it | it has changed | it follows |
| `max.message.bytes`, the same, or not set there | more than at the target | it follows: accepted records must fit |
| `max.message.bytes` | less | nothing: records accepted before must fit, too |
| anything else that differs | | it is left alone: an operator has set or changed it there |

So a key that the mirror has set, and no operator has changed since, is synced. A change while no mirror ran is logged
and left to a person, except `max.message.bytes`. Does not contain: clients, clocks, log lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mirror.topics.selection import COPIED_SETTINGS

MAX_MESSAGE = "max.message.bytes"


class Setting(NamedTuple):
    """A value at the target, and whether it is set for the topic itself."""

    value: str
    is_own: bool


class Step(NamedTuple):
    """The keys to alter (None: delete the topic's config), and keys that differ and are left: (source, target)."""

    alter: Mapping[str, str | None]
    left: Mapping[str, tuple[str | None, str | None]]


class InStep:
    """The values last seen equal at both ends of each topic, by key; None: set for the topic at neither."""

    def __init__(self) -> None:
        self._equal: dict[str, dict[str, str | None]] = {}

    def topic_created(self, topic: str, settings: Mapping[str, str], wanted: Mapping[str, str]) -> None:
        """Note that the mirror created a topic with these configs, of those that it wanted."""
        refused = wanted.keys() - settings.keys()
        self._equal[topic] = {key: settings.get(key) for key in COPIED_SETTINGS if key not in refused}

    def compare(self, topic: str, source: Mapping[str, str], target: Mapping[str, Setting]) -> Step:
        """Compare the present configs of both ends."""
        equal = self._equal.setdefault(topic, {})
        alter: dict[str, str | None] = {}
        left: dict[str, tuple[str | None, str | None]] = {}
        for key in COPIED_SETTINGS:
            here, there = source.get(key), target.get(key)
            own = there.value if there is not None and there.is_own else None
            if here == own:
                if here is not None:
                    equal[key] = here
            elif key == MAX_MESSAGE and not _is_more(here, there):
                continue
            elif (key in equal and equal[key] == own) or (key == MAX_MESSAGE and own is None):
                alter[key] = here
            elif here is not None or (own is not None and key in equal):
                left[key] = here, own
        return Step(alter, left)

    def configs_accepted(self, topic: str, alter: Mapping[str, str | None]) -> None:
        """Note that the target has accepted these changes."""
        self._equal.setdefault(topic, {}).update(alter)

    def forget(self, topic: str) -> None:
        """Forget a topic that is mirrored no more."""
        self._equal.pop(topic, None)


def _is_more(here: str | None, there: Setting | None) -> bool:
    return here is not None and there is not None and int(here) > int(there.value)
