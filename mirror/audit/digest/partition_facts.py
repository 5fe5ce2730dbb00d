"""PURE. Declares what each end reports of a partition in addition to its records. Does not contain: any use of it."""

from __future__ import annotations

from typing import NamedTuple

from mirror.partition.state_records import StoredState


class Entry(NamedTuple):
    """Offsets [first, end) of a partition that the ledger has."""

    cause: str
    first: int
    end: int


class Facts(NamedTuple):
    """A partition by the source's name and by the `name` of its topic at this end; empty: it does not exist there.

    `end` is of the audit's start. The source reports `position`, committed in the mirror's group, and `ledger`; the
    target `state`. `is_compacted` is None if the mirror may not describe the topic.
    `reason` is a predicate of the topic for a person: which records are passed over, or that it is refused.
    `unknown` is half a sentence of why this end returns nothing of the partition now; then its offsets are 0.
    """

    topic: str
    partition: int
    name: str
    start: int
    end: int
    is_compacted: bool | None
    topic_id: str | None = None
    position: int | None = None
    ledger: tuple[Entry, ...] = ()
    state: StoredState | None = None
    reason: str = ""
    unknown: str = ""
