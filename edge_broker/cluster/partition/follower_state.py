"""Match a follower's log to the leader's epoch, then fetch.

| stage | event | next |
|---|---|---|
| fetching | records at the log's end | fetching: they are appended, the next fetch goes at once |
| fetching | nothing new | fetching, `fetch_wait_ms` later or when the disk has confirmed more |
| fetching | the log diverges | entering: the ledger first gets the records to remove |
| fetching | the log diverges, and has no record; no in-sync set names it | entering, though nothing goes: it is reset to 0 |
| fetching | the leader's log starts after this one's end | entering: records that the leader may never have had |
| entering | entered | truncating, or a reset to the leader's log start |
| entering | this broker is elected | the log stays as it is |
| truncating | truncated | fetching |
| fetching | the leader has recorded the next records as lost | truncating, though nothing goes: it skips them, too |
| fetching | the leader's log starts after this one's start | fetching: this one starts there, too |
| fetching | its disk is full | keeping out: it takes no records, but hears the leader's log start |
| fetching | its log is damaged, and the leader has all of it | entering: records that the leader may lose; then the truncation |
| any | no answer for `fetch_timeout_ms` | fetching again |

Truncation is by epochs alone, never to a high watermark, and goes on fetch by fetch until the logs agree. The leader
names the greatest epoch that it knows, not above the follower's last, and its end. The follower keeps no more
than its records of epochs up to that one. An answer counts for the very log that asked (its end and last epoch), so
late and doubled ones do no harm.

Only records that left the leader's front leave a follower's, and no more than those that it knows to be
replicated. So the leader has decided and accounted for all that one replica lacks there, under any next leader.

Does not contain: the state znode, contents of records. Source: KIP-101, KIP-279, KIP-595.
"""  # noqa: E501

from __future__ import annotations

from enum import Enum, auto
from typing import TypeAlias

from edge_broker.cluster.effects import CutDamage, LostRange, PassOver, StartAnew, Truncate
from edge_broker.cluster.inter_broker_messages import EpochEnd, ReplicaFetch, ReplicaFetched
from edge_broker.cluster.state.cluster_state import InSyncReplica, PartitionId
from edge_broker.cluster.state.replica_log_view import NEWEST_EPOCH, ReplicaLog, last_epoch

REMOVAL_RETRY_MS = 1_000.0
KEPT_OUT_MS = 1_000.0  # between fetches of one that keeps out: they are answered at once


class Following:
    """A leader in one epoch, as its follower sees it."""

    def __init__(self, leader: int, leader_epoch: int) -> None:
        self.leader, self.leader_epoch = leader, leader_epoch
        self.due_ms = 0.0  # of the next fetch
        self.refused = False  # the last one: the next is due soon
        self.reported_end = -1  # what the last fetch acknowledged
        self.keeps_out = False  # as the last fetch said
        self.reported_state = ""  # the kept state that the last fetch reported
        self.log_start = 0  # where the leader's log starts
        self.removal_due_ms = 0.0  # when it may be asked for (again)

    def fetch(
        self,
        partition: PartitionId,
        me: InSyncReplica,
        log: ReplicaLog,
        now_ms: float,
        timeout_ms: float,
        state_id: str = "",
        *,
        was_full: bool = False,
    ) -> ReplicaFetch:
        """The fetch that is due; the next one comes sooner if this one is answered."""
        self.due_ms, self.refused = now_ms + timeout_ms, False
        self.reported_end, self.keeps_out, self.reported_state = acknowledged_end(log), keeps_out(log), state_id
        where = (log.log_end_offset, last_epoch(log), self.reported_end)
        full = self.keeps_out, log.full
        return ReplicaFetch(partition, me, self.leader_epoch, *where, *full, state_id, was_full)

    def is_due(self, log: ReplicaLog, now_ms: float, state_id: str = "") -> bool:
        """Whether there is something to say, or to ask for."""
        news = acknowledged_end(log) > self.reported_end or keeps_out(log) != self.keeps_out
        news = news or state_id != self.reported_state
        return news or now_ms >= self.due_ms

    def removal(self, log: ReplicaLog, high_watermark: int, now_ms: float) -> int | None:
        """Up to where something is to go from the front, as it has gone from the leader's; None: nothing."""
        start = min(self.log_start, high_watermark)
        if start <= log.log_start_offset or now_ms < self.removal_due_ms:
            return None
        self.removal_due_ms = now_ms + REMOVAL_RETRY_MS
        return start

    def is_answer_to(self, answer: ReplicaFetched, log: ReplicaLog) -> bool:
        """Whether an answer is of this leader's epoch, and for the log as it is now."""
        return (answer.leader_epoch, answer.fetch_offset, answer.last_fetched_epoch) == (
            self.leader_epoch,
            log.log_end_offset,
            last_epoch(log),
        )


def keeps_out(log: ReplicaLog) -> bool:
    """Whether a log takes nothing now, and is not to be in sync."""
    return log.full or log.has_missing


def acknowledged_end(log: ReplicaLog) -> int:
    """The end that a follower reports to the leader: none while damaged, as it will be truncated in this epoch."""
    return 0 if log.has_missing else log.acknowledged_offset


def truncation_end(log: ReplicaLog, diverging: EpochEnd) -> int:
    """Where a log is to be cut: it may match the leader's up to there."""
    if diverging.epoch < 0:
        return max(log.log_start_offset, min(diverging.end_offset, log.log_end_offset))
    _, own_end = log.epochs.end(diverging.epoch, NEWEST_EPOCH, log.log_end_offset)
    return max(log.log_start_offset, min(diverging.end_offset, own_end))


def lost_by(log: ReplicaLog, end_offset: int) -> tuple[LostRange, ...]:
    """The records that a truncation removes, by epoch: they may have been acknowledged at acks=1."""
    lost, first = [], end_offset
    while first < log.log_end_offset:
        epoch = log.epochs.at(first)
        later = [start for _, start in log.epochs.starts if start > first]
        end = min(later[0] if later else log.log_end_offset, log.log_end_offset)
        lost.append(LostRange(epoch, first, end))
        first = end
    return tuple(lost)


Cut: TypeAlias = Truncate | StartAnew | CutDamage | PassOver


class Step(Enum):
    """How far a truncation is."""

    ENTERING = auto()
    TRUNCATING = auto()


class Cutting:
    """A change of a log's end, from its entries in the ledger, which has the records from `lost_from` on, to the
    disk.
    """

    __slots__ = ("act", "lost_from", "step", "token")

    def __init__(self, act: Cut, token: int = -1, lost_from: int = -1, *, step: Step = Step.ENTERING) -> None:
        """Begin with `step`; nothing is entered of what begins with TRUNCATING."""
        self.act, self.token, self.step, self.lost_from = act, token, step, lost_from
