"""What is lost, written down: the records of `__edge_ledger` that the broker itself makes.

| field | content |
|---|---|
| version | 1 |
| id | the record's key; the same for the same loss, however often it is written |
| cause | one of `Cause` |
| topic, partition | where |
| first_offset, last_offset | inclusive; last_offset null: unknown, whatever was unsynced behind first_offset |
| records, bytes | null: unknown |
| time_ms | when it was noticed, by the wall clock |
| node | the broker's id, as text |
| first_timestamp, last_timestamp | what the lost records' batches said of their time, ms; null: unknown |
| clock | `trusted` or `untrusted`: the wall clock behind time_ms |
| boot_id | the boot in which it was noticed |

| what `fault_of_record` asks of any record | |
|---|---|
| key | the id, UTF-8 |
| version | 1 |
| id, cause, topic | text, not empty |
| node | text |
| partition, first_offset, last_offset, records, bytes | a whole number from 0 on, or null |
| the same, of a cause of the broker | partition and first_offset are not null |
| time_ms | a whole number |

Other fields may follow.

Lives here: the record, pure, and what a log asks of the ledger. Must never come in: files, clocks.
Gateway and mirror write records of the same version with their own causes and without the last four fields.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, get_args

from edge_broker.errors import StorageFault

LEDGER_TOPIC = "__edge_ledger"
LEDGER_CONFIG = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
LEDGER_VERSION = 1

Cause = Literal[
    "evicted",  # the disk, or the topic's budget, was full: the oldest had to go before every named group had it
    "expired_unpassed",  # past its retention, and a named group had not passed it yet
    "deleted_by_request",  # by DeleteRecords, and a named group had not passed it yet
    "damaged",  # on the disk, but no longer what was written
    "unsynced_cut",  # not synced when the power went: count unknown
    "sync_failed",  # not synced, and the disk refused to
]
CAUSES: tuple[Cause, ...] = get_args(Cause)
COUNT_MAX = (1 << 63) - 1
_TEXTS = ("id", "cause", "topic", "node")
_COUNTS = ("partition", "first_offset", "last_offset", "records", "bytes")


class Loss(NamedTuple):
    """Offsets [first_offset, end_offset) that are lost; end_offset, counts and timestamps None: unknown."""

    cause: Cause
    topic: str
    topic_id: str  # as `id_text` writes it: a topic made anew under the name has other losses
    partition: int
    first_offset: int
    end_offset: int | None
    records: int | None
    bytes: int | None
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    occasion: str = (
        ""  # what makes two losses of the same offsets differ, such as the leader epoch that began after a cut
    )

    @property
    def id(self) -> str:
        """The same text for the same loss."""
        last = "" if self.end_offset is None else self.end_offset - 1
        place = f"{self.cause}:{self.topic}:{self.partition}:{self.first_offset}-{last}:{self.topic_id}"
        return f"{place}:{self.occasion}" if self.occasion else place


class Noticed(NamedTuple):
    """When and where losses were noticed; `clock_trusted` speaks of `time_ms`."""

    time_ms: int
    node: str
    clock_trusted: bool
    boot_id: str


class Ledger(Protocol):
    """Writes losses down before the act that they report."""

    def write(self, losses: Sequence[Loss]) -> None:
        """Return when the losses are synced in `__edge_ledger`; StorageFault or Refusal: they are not, do not act."""


class NoLedger:
    """What a log has before its store gave it one: nothing can be lost on purpose."""

    def write(self, losses: Sequence[Loss]) -> None:
        """Raise StorageFault."""
        raise StorageFault(LEDGER_TOPIC, 0, f"the ledger is not open, so {len(losses)} losses cannot be written down")


def fault_of_record(key: bytes | None, value: bytes | None) -> str:
    """Why a record of the topic is no ledger record; empty when it is one."""
    try:
        fields = json.loads(value or b"")
    except (ValueError, RecursionError) as error:
        return f"its value is no JSON ({error})"
    if not isinstance(fields, dict):
        return "its value is no JSON object"
    if fields.get("version") != LEDGER_VERSION or isinstance(fields["version"], bool):
        return f"version is {_shown(fields.get('version'))}, not {LEDGER_VERSION}"
    for name in _TEXTS:
        if not _is_text(fields.get(name), empty=name == "node"):
            return f"{name} is {_shown(fields.get(name))}, not a text"
    for name in (*_COUNTS, "time_ms"):
        if not _is_count(fields.get(name), null=name in _COUNTS and not _needed(name, fields["cause"])):
            return f"{name} is {_shown(fields.get(name))}, not a whole number"
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


def _needed(name: str, cause: str) -> bool:
    """The proof reckons with what the broker itself wrote down."""
    return name in ("partition", "first_offset") and cause in CAUSES


def _shown(value: object) -> str:
    return json.dumps(value)[:40]


def encode_loss(loss: Loss, noticed: Noticed) -> tuple[bytes, bytes]:
    """Key and value of the ledger's record of a loss."""
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
        "time_ms": noticed.time_ms,
        "node": noticed.node,
        "first_timestamp": loss.first_timestamp,
        "last_timestamp": loss.last_timestamp,
        "clock": "trusted" if noticed.clock_trusted else "untrusted",
        "boot_id": noticed.boot_id,
    }
    return loss.id.encode(), json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
