"""Topic-level configuration: what clients and files set explicitly, checked, laid over the defaults, and described.

Does not contain: the table of keys (settings.py), broker keys, files. Source: Kafka documentation, "Topic Configs".
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from edge_broker.configuration.settings import (
    FLUSH_MS,
    LEFT_TO_KERNEL_MS,
    TOPIC_KEYS,
    Key,
    Kind,
    LogSettings,
    Value,
    as_text,
)
from edge_broker.errors import ErrorCode, Refusal

CONFIG_BYTES_MAX = 2048  # of one topic: all keys take some 1200 with their values, the rest is for group names
GROUPS_MAX = 20  # each is looked up for each partition once a second


class TopicConfigEntry(NamedTuple):
    """One key of a topic with the value that holds; `explicit` when it was set for the topic itself."""

    key: Key
    value: str
    explicit: bool


def check_new_config(config: Mapping[str, str]) -> None:
    """Reject an invalid configuration of a topic; Refusal INVALID_CONFIG. One of older versions is opened all the same.

    Its size first, at most CONFIG_BYTES_MAX and GROUPS_MAX: other refusals repeat what they refuse.
    """
    size = sum(len(text) * (1 if text.isascii() else 4) for entry in config.items() for text in entry)
    if size > CONFIG_BYTES_MAX:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"the topic's configuration takes {size} bytes, {CONFIG_BYTES_MAX} are allowed; shorten its values",
        )
    groups = config.get("edge.required.groups", "").count(",") + 1
    if groups > GROUPS_MAX:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"edge.required.groups names {groups} groups, {GROUPS_MAX} are allowed; name fewer",
        )
    values = check_topic_config(config)
    low, high = values.get("min_compaction_lag_ms"), values.get("max_compaction_lag_ms")
    if isinstance(low, int) and isinstance(high, int) and low > high:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"min.compaction.lag.ms={low} is above max.compaction.lag.ms={high}; lower the one or raise the other",
        )


def check_topic_config(config: Mapping[str, str]) -> dict[str, Value]:
    """The values of explicitly set keys by setting; Refusal INVALID_CONFIG names the key and the remedy."""
    values: dict[str, Value] = {}
    for name, text in config.items():
        key = TOPIC_KEYS.get(name) or _raise_unknown(name)
        value = _value(key, text)
        if key.setting:
            values[key.setting] = value
    durability = values.get("durability_set", "kernel")
    if durability != "kernel" and values.get("flush_ms") == LEFT_TO_KERNEL_MS:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"flush.ms={LEFT_TO_KERNEL_MS} leaves the topic to the kernel, edge.durability={durability} does not; "
            "set one of them",
        )
    return values


def topic_settings(defaults: LogSettings, config: Mapping[str, str], *, compacted: bool = False) -> LogSettings:
    """The settings of a topic: its explicitly set keys over the broker's defaults; Refusal INVALID_CONFIG.

    `compacted`: its policy was to compact at some time.
    """
    values = {name: getattr(defaults, name) for name in LogSettings.DEFAULTS} | check_topic_config(config)
    settings = LogSettings(**values | {"compacted": compacted})
    if settings.durability_set in ("sync", "interval") and settings.flush_ms == LEFT_TO_KERNEL_MS:
        settings.flush_ms = FLUSH_MS  # the broker's own default is no bound for a topic that wants one
    return settings


def list_of(settings: LogSettings, config: Mapping[str, str], name: str) -> list[str] | None:
    """The entries of a key whose value is a list; None: it holds none."""
    key = TOPIC_KEYS.get(name)
    if key is None or key.type != Kind.LIST:
        return None
    text = getattr(settings, key.setting) if key.setting else config.get(name, "")
    return [part.strip() for part in text.split(",") if part.strip()]


def describe_topic_config(defaults: LogSettings, config: Mapping[str, str]) -> list[TopicConfigEntry]:
    """Every topic-level key with the value that holds for a topic with this explicit configuration."""
    settings = topic_settings(defaults, config)
    return [
        TopicConfigEntry(key, config[name] if name in config else as_text(_shown_value(settings, key)), name in config)
        for name, key in TOPIC_KEYS.items()
    ]


def _shown_value(settings: LogSettings, key: Key) -> Value:
    if key.name == "edge.durability":
        return settings.durability
    value: Value = getattr(settings, key.setting) if key.setting else key.default
    return value


def _raise_unknown(name: str) -> Key:
    import difflib  # noqa: PLC0415 - only needed to word a refusal

    near = difflib.get_close_matches(name, TOPIC_KEYS, n=1, cutoff=0.5)
    remedy = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(TOPIC_KEYS)}"
    raise Refusal(ErrorCode.INVALID_CONFIG, f"unknown topic configuration {name!r}; {remedy}")


def _value(key: Key, text: str) -> Value:
    if key.type in (Kind.INT, Kind.LONG, Kind.DOUBLE):
        return _number(key, text)
    if key.type == Kind.BOOLEAN:
        value = text.strip().lower()
        _check_choice(key, text, [value], key.choices or ("true", "false"))
        return value == "true"
    entries = [part.strip() for part in text.split(",")]
    value = ",".join(entries)
    if key.choices:
        _check_choice(key, text, [part for part in entries if part] if key.type == Kind.LIST else [value], key.choices)
    if key.pattern and not re.fullmatch(key.pattern, value):
        raise Refusal(ErrorCode.INVALID_CONFIG, f"{key.name}={text!r} is not served; use * or partition:broker,…")
    return value


def _check_choice(key: Key, text: str, values: list[str], choices: tuple[str, ...]) -> None:
    if not set(values) <= set(choices):
        remedy = f"use {' or '.join(choices)}"
        raise Refusal(ErrorCode.INVALID_CONFIG, f"{key.name}={text!r} is not served; {remedy}. {key.doc}")


def _number(key: Key, text: str) -> Value:
    try:
        number = float(text) if key.type == Kind.DOUBLE else int(text)
    except ValueError:
        kind = "number" if key.type == Kind.DOUBLE else "whole number"
        raise Refusal(ErrorCode.INVALID_CONFIG, f"{key.name}={text!r} is no {kind}; write decimal digits") from None
    if not key.low <= number <= key.high:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"{key.name}={number} is out of bounds; use {key.low} to {key.high}. {key.doc}",
        )
    if key.choices:
        _check_choice(key, text, [str(number)], key.choices)
    return max(number, key.least)
