"""The record of the loss ledger, version 1: all parts write it to `__edge_ledger` for each loss.

| field | content |
|---|---|
| version | 1 |
| id | the record's key; the same for the same loss, however often it is written |
| cause | each part's own |
| topic, partition | the place; partition null: it never had one |
| first_offset, last_offset | inclusive; null: unknown, or it never had one |
| records, bytes | null: unknown |
| time_ms | when it was noticed, by the wall clock |
| node | the node that noticed it |

| field | requirement of `fault_of_record` |
|---|---|
| key | the id, UTF-8 |
| version | 1 |
| id, cause, topic | text, not empty |
| node | text |
| partition, first_offset, last_offset, records, bytes | a whole number from 0 on, or null |
| the same, for a cause in `placed_causes` | partition and first_offset are not null |
| time_ms | a whole number |

Other fields may follow. The JSON has its keys in this order, without blanks.
Does not contain: the definition of a loss, the making of its id, clients, clocks, files.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Protocol

LEDGER_TOPIC = "__edge_ledger"
LEDGER_CONFIG = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
LEDGER_VERSION = 1
COUNT_MAX = (1 << 63) - 1
_TEXTS = ("id", "cause", "topic", "node")
_COUNTS = ("partition", "first_offset", "last_offset", "records", "bytes")


class LostRange(Protocol):
    """Offsets [first_offset, end_offset) that are lost, as each part has them; None: unknown, or it never had one."""

    @property
    def id(self) -> str:
        """The same text for the same loss."""

    @property
    def cause(self) -> str:
        """One of the part's own."""

    @property
    def topic(self) -> str:
        """Where."""

    @property
    def partition(self) -> int | None:
        """Where."""

    @property
    def first_offset(self) -> int | None:
        """The first that is lost."""

    @property
    def end_offset(self) -> int | None:
        """The first that is not."""

    @property
    def records(self) -> int | None:
        """How many."""

    @property
    def bytes(self) -> int | None:
        """How much."""


def encode(loss: LostRange, time_ms: int, node: str, **more: object) -> tuple[bytes, bytes]:
    """Key and value of the record of a loss, both UTF-8; `more` fields follow the ones that all records have."""
    fields = {
        "version": LEDGER_VERSION,
        "id": loss.id,
        "cause": loss.cause,
        "topic": loss.topic,
        "partition": loss.partition,
        "first_offset": loss.first_offset,
        "last_offset": None if loss.end_offset is None else loss.end_offset - 1,
        "records": loss.records,
        "bytes": loss.bytes,
        "time_ms": time_ms,
        "node": node,
        **more,
    }
    return loss.id.encode(), json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def fault_of_record(key: bytes | None, value: bytes | None, placed_causes: Collection[str]) -> str:
    """Return why a record of the topic is no ledger record; empty when it is one.

    Losses of `placed_causes` must have their partition and first offset.
    """
    try:
        fields = json.loads(value or b"")
    except (ValueError, RecursionError) as error:
        return f"its value is no JSON ({error})"
    if not isinstance(fields, dict):
        return "its value is no JSON object"
    if fields.get("version") != LEDGER_VERSION or isinstance(fields["version"], bool):
        return f"version is {_excerpt(fields.get('version'))}, not {LEDGER_VERSION}"
    for name in _TEXTS:
        if not _is_text(fields.get(name), empty=name == "node"):
            return f"{name} is {_excerpt(fields.get(name))}, not a text"
    needed = ("time_ms", "partition", "first_offset") if fields["cause"] in placed_causes else ("time_ms",)
    for name in (*_COUNTS, "time_ms"):
        if not _is_count(fields.get(name), null=name not in needed):
            return f"{name} is {_excerpt(fields.get(name))}, not a whole number"
    if key is None or key != fields["id"].encode():
        return "its key is not its id"
    return ""


def _is_text(value: object, *, empty: bool) -> bool:
    if not isinstance(value, str) or not (value or empty):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _is_count(value: object, *, null: bool) -> bool:
    if value is None:
        return null
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= COUNT_MAX


def _excerpt(value: object) -> str:
    return json.dumps(value)[:40]
