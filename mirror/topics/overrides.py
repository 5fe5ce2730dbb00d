"""PURE. Parses the settings for some topics alone: the tables `[topic."PATTERN"]` of the configuration file.

    [topic."alarms.*"]
    urgent = true

| key | default | |
|---|---|---|
| urgent | false | it goes before the others, and has a share of memory and link |
| compression | that of all | of merged batches |
| on_refused | "stop" | for a record that the target refuses for ever: "stop" lets its partition wait, \
"dead_letter" writes it to `__edge_dead_letter` at the source, with a record of the ledger, and goes on |

The pattern is a regular expression for a topic's whole name at the source. Of several tables that match, the first one
that sets a key counts. Does not contain: files, clients, decisions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast, get_args

from drupelet.command.config_check import nearest
from drupelet.errors import ConfigurationError
from drupelet.kafka.client import COMPRESSION_TYPES

TABLE = "topic"
OnRefused = Literal["stop", "dead_letter"]


class TopicSettings(NamedTuple):
    """The settings of one topic; the names are the keys. No compression: that of all topics."""

    urgent: bool = False
    compression: str = ""
    on_refused: OnRefused = "stop"

    def text(self) -> str:
        """Return the settings that differ from the defaults, for a person."""
        said = ["urgent"] if self.urgent else []
        said += [self.compression] if self.compression else []
        return ", ".join([*said, *(["dead_letter"] if self.on_refused == "dead_letter" else [])])


class Rule(NamedTuple):
    """One table: the topics that it is for, and its values."""

    pattern: re.Pattern[str]
    values: Mapping[str, Any]


_KINDS: Mapping[str, type] = {"urgent": bool, "compression": str, "on_refused": str}
_CHOICES: Mapping[str, Sequence[str]] = {"compression": COMPRESSION_TYPES, "on_refused": get_args(OnRefused)}


def settings_of(topic: str, rules: Iterable[Rule]) -> TopicSettings:
    """Return the settings of a topic by the tables."""
    found: dict[str, Any] = {}
    for rule in rules:
        if rule.pattern.fullmatch(topic):
            found = {**rule.values, **found}
    return TopicSettings(**found)


def rules_from(tables: object) -> tuple[Rule, ...]:
    """Return the rules in the file's table `topic`; ConfigurationError names the wrong key and the remedy."""
    if not isinstance(tables, dict):
        raise ConfigurationError(f'{TABLE} is {tables!r}: write a table per pattern, as [{TABLE}."alarms.*"].')
    return tuple(_rule(pattern, values) for pattern, values in tables.items())


def _rule(pattern: str, values: object) -> Rule:
    table = f'[{TABLE}."{pattern}"]'
    if not isinstance(values, dict):
        raise ConfigurationError(
            f'{TABLE}.{pattern} is {values!r}: write a table for the topics, as [{TABLE}."PATTERN"].'
        )
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ConfigurationError(f"{table}: {pattern!r} is not a regular expression: {error}.") from error
    for key, value in values.items():
        _check(table, key, value)
    return Rule(compiled, cast(dict[str, Any], values))


def _check(table: str, key: str, value: object) -> None:
    if key not in _KINDS:
        near = nearest(key, _KINDS)
        hint = f"did you mean {near}?" if near else f"known are {', '.join(_KINDS)}."
        raise ConfigurationError(f"{table} has an unknown key {key}: {hint}")
    if type(value) is not _KINDS[key]:
        raise ConfigurationError(f"{table} {key} must be of type {_KINDS[key].__name__}, not {value!r}.")
    if key in _CHOICES and value not in _CHOICES[key]:
        raise ConfigurationError(f"{table} {key} {value!r} is not known: use {', '.join(_CHOICES[key])}.")
