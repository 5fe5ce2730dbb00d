"""Records of losses: those of `__edge_ledger` that the broker itself makes.

Each record has the fields of drupelet/ledger.py; node is the broker's id, as text, and last_offset null means all
unsynced records after first_offset. These follow:

| field | content |
|---|---|
| first_timestamp, last_timestamp | what the lost records' batches said of their time, ms; null: unknown |
| clock | `trusted` or `untrusted`: the wall clock of time_ms |
| boot_id | the boot in which it was noticed |
| leader_epoch | only of `truncated` and `unclean_election`: the epoch of what is lost, as others use its offsets |

Contains: the broker's causes, and what a log asks of the ledger. Does not contain: files, clocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, get_args

from drupelet import ledger
from edge_broker.errors import StorageFault

Cause = Literal[
    "evicted",  # the disk, or the topic's budget, was full: the oldest had to go before every named group had it
    "expired_unpassed",  # past its retention, and a named group had not passed it yet
    "deleted_by_request",  # by DeleteRecords, and a named group had not passed it yet
    "damaged",  # on the disk, but no longer what was written
    "unsynced_cut",  # not synced when the power went: count unknown
    "sync_failed",  # not synced, and the disk refused to
    "truncated",  # a replica had it and no leader: it may have been answered at acks=1
    "unclean_election",  # who leads now had less than others have, or had
]
CAUSES: tuple[Cause, ...] = get_args(Cause)


class Loss(NamedTuple):
    """Offsets [first_offset, end_offset) that are lost; end_offset, counts and timestamps None: unknown."""

    cause: Cause
    topic: str
    topic_id: str  # as `id_text` writes it: a new topic of the name has other losses
    partition: int
    first_offset: int
    end_offset: int | None
    records: int | None
    bytes: int | None
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    # Tells two losses of the same offsets apart, such as the leader epoch that began after a cut.
    occasion: str = ""
    leader_epoch: int | None = None  # of the lost batches, where other epochs may use their offsets

    @property
    def id(self) -> str:
        """The same text for the same loss."""
        last = "" if self.end_offset is None else self.end_offset - 1
        place = f"{self.cause}:{self.topic}:{self.partition}:{self.first_offset}-{last}:{self.topic_id}"
        if self.leader_epoch is not None:
            place = f"{place}:epoch {self.leader_epoch}"
        return f"{place}:{self.occasion}" if self.occasion else place


class LossContext(NamedTuple):
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
    """The ledger of a log before its store gives it one: nothing can be removed."""

    def write(self, losses: Sequence[Loss]) -> None:
        """Raise StorageFault."""
        raise StorageFault(
            ledger.LEDGER_TOPIC, 0, f"the ledger is not open, so {len(losses)} losses cannot be written down"
        )


def fault_of_record(key: bytes | None, value: bytes | None) -> str:
    """Why a record of the topic is no ledger record; empty when it is one. The proof reckons with the broker's own."""
    return ledger.fault_of_record(key, value, CAUSES)


def encode_loss(loss: Loss, noticed: LossContext) -> tuple[bytes, bytes]:
    """Key and value of the ledger's record of a loss."""
    more = {} if loss.leader_epoch is None else {"leader_epoch": loss.leader_epoch}
    return ledger.encode(
        loss,
        noticed.time_ms,
        noticed.node,
        first_timestamp=loss.first_timestamp,
        last_timestamp=loss.last_timestamp,
        clock="trusted" if noticed.clock_trusted else "untrusted",
        boot_id=noticed.boot_id,
        **more,
    )
