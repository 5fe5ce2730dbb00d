"""A leader's knowledge of its followers, in one epoch: which logs match, what each disk has confirmed, who is slow.

All of it starts again with each epoch: reports of a follower to another leader, or to this one before, count for
nothing, as its log may have matched another log.

| a fetch | answer | counts |
|---|---|---|
| of another leader epoch | FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH | no |
| whose last epoch ended earlier here, or never was | diverging: the greatest epoch up to it, and its end | no |
| without a record, beginning after this log's end, or its start if no in-sync set named it | diverging: no epoch, and where this log starts | no |
| of records that this log has removed, all of it | OFFSET_OUT_OF_RANGE, and the log start: the follower is reset to it | no |
| of one that keeps out, as its disk is full | where the log starts | yes, but it leaves the in-sync set, as one that is slow |
| else | the records from there on | yes: up to its synced end, under the registration that it names |
| that waits, and is evaluated again | as above | no: it counted as it arrived |

A follower without a record has no epoch to match. If the in-sync set names it, the records before its start had been
visible, and were removed. Otherwise other ones may have become visible since, as after an unclean election.

This leader knows nothing of a log whose last epoch is older than all known ones: it may be another log. The
follower records as lost what it does not know to be replicated.

Does not contain: the state znode, records. Source: KIP-101, KIP-279, KIP-320, KIP-595.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from edge_broker.cluster.inter_broker_messages import EpochEnd, ReplicaFetch
from edge_broker.cluster.partition.election import Registrations, is_offline
from edge_broker.cluster.state.cluster_state import InSyncReplica, OfflineLog, PartitionState, Topic
from edge_broker.cluster.state.isr_rules import InSync, may_join
from edge_broker.cluster.state.replica_log_view import ReplicaLog
from edge_broker.errors import ErrorCode
from edge_broker.storage.log.leader_epochs import NONE

UNDER_WAY_MS = 500.0  # for which what a broker said before it died may still come


class Follower:
    """One follower's acknowledgements in this epoch."""

    __slots__ = (
        "caught_up_ms",
        "end",
        "fetched_ms",
        "has_left",
        "is_full",
        "keeps_out",
        "kept_out_ms",
        "leader_end",
        "out_since_ms",
        "replica",
        "state_id",
        "was_full",
    )

    def __init__(self, replica: InSyncReplica, now_ms: float) -> None:
        self.replica = replica
        self.end = 0  # synced, and matching this log
        self.keeps_out = self.is_full = self.was_full = False  # as its last fetch said
        self.kept_out_ms = float("-inf")  # its last fetch that kept out
        self.out_since_ms = now_ms  # the first of those that kept out in a row
        self.state_id = ""  # of the state that its disk has kept; "": an older release
        self.caught_up_ms = self.fetched_ms = now_ms
        self.leader_end: int | None = None  # the log's end at its last fetch
        self.has_left = False  # the in-sync set, since its last fetch: what it had then says nothing of now

    def acknowledge(self, end: int, leader_end: int, now_ms: float) -> None:
        """It has so much; it is caught up as of its last fetch if it has what there was then."""
        self.end, self.has_left = max(self.end, end), False
        if self.end >= leader_end:
            self.caught_up_ms = now_ms
        elif self.leader_end is not None and self.end >= self.leader_end:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.fetched_ms, self.leader_end = now_ms, leader_end


Counts: TypeAlias = Callable[[Follower], bool]


def _any_counts(_: Follower) -> bool:
    return True


def epoch_error(asked: int, epoch: int) -> ErrorCode:
    """Return the error for a fetch of another epoch."""
    if asked == epoch:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if asked < epoch else ErrorCode.UNKNOWN_LEADER_EPOCH


def is_known(log: ReplicaLog, last_fetched_epoch: int) -> bool:
    """Whether it is known where the epoch of a follower's last record ended; True where there is none."""
    starts = log.epochs.starts
    return last_fetched_epoch == NONE or (bool(starts) and starts[0][0] <= last_fetched_epoch)


def is_removed(log: ReplicaLog, last_fetched_epoch: int, fetch_offset: int) -> bool:
    """Whether all that a follower has is what this log has removed, or might have been."""
    start = log.log_start_offset
    return fetch_offset < start or (fetch_offset == start and not is_known(log, last_fetched_epoch))


def divergence(
    log: ReplicaLog, epoch: int, last_fetched_epoch: int, fetch_offset: int, *, in_sync: bool
) -> EpochEnd | None:
    """Where a follower's log may match this one at the latest; None: it does match up to `fetch_offset`."""
    if last_fetched_epoch == NONE:
        start = log.log_start_offset
        differs = fetch_offset > (log.log_end_offset if in_sync else log.lost_until(start))
        return EpochEnd(NONE, start) if differs else None
    found, end = log.epochs.end(last_fetched_epoch, epoch, log.log_end_offset)
    return None if found == last_fetched_epoch and end >= fetch_offset else EpochEnd(found, end)


class Leading:
    """One epoch of this broker's, which began at `epoch_start`."""

    def __init__(self, me: InSyncReplica, epoch: int, epoch_start: int, now_ms: float) -> None:
        self.me, self.epoch, self.epoch_start, self.began_ms = me, epoch, epoch_start, now_ms
        self.followers: dict[int, Follower] = {}
        self.closed: dict[InSyncReplica, float] = {}  # whose port was found closed, and when; until they fetch

    def fetch_received(
        self, fetch: ReplicaFetch, log: ReplicaLog, now_ms: float, *, in_sync: bool, is_new: bool = True
    ) -> EpochEnd | None:
        """Take a fetch of this epoch in; where the follower's log diverges, if it does.

        `in_sync`: whether the set names the follower, or may. Not `is_new`: the fetch was taken in as it arrived, and
        what it reports may be older than what the follower has reported since.
        """
        if is_new and now_ms >= self.closed.get(fetch.replica, now_ms) + UNDER_WAY_MS:
            self.closed.pop(fetch.replica, None)
        diverging = divergence(log, self.epoch, fetch.last_fetched_epoch, fetch.fetch_offset, in_sync=in_sync)
        if is_new and diverging is None and not is_removed(log, fetch.last_fetched_epoch, fetch.fetch_offset):
            self._take_report(fetch, log.log_end_offset, now_ms)
        return diverging

    def _take_report(self, fetch: ReplicaFetch, leader_end: int, now_ms: float) -> None:
        follower = self._follower(fetch.replica, now_ms)
        if follower is None:
            return
        follower.acknowledge(min(fetch.synced_end, fetch.fetch_offset), leader_end, now_ms)
        if not follower.keeps_out:
            follower.out_since_ms = now_ms
        follower.keeps_out, follower.is_full, follower.was_full = fetch.keeps_out, fetch.is_full, fetch.was_full
        follower.state_id = fetch.state_id
        if fetch.keeps_out:
            follower.kept_out_ms = now_ms

    def _follower(self, replica: InSyncReplica, now_ms: float) -> Follower | None:
        """The follower of this registration; None: it has a newer one already."""
        found = self.followers.get(replica.broker)
        if found is None or found.replica != replica:
            if found is not None and found.replica.epoch > replica.epoch:
                return None
            made = self.followers[replica.broker] = Follower(replica, now_ms)
            if found is not None and found.replica.directory == replica.directory:
                # a restarted broker does not know that its disk was full
                made.kept_out_ms = found.fetched_ms if found.was_full else found.kept_out_ms
            return made
        return found

    def ends(self, own: int) -> dict[InSyncReplica, int]:
        """Return each replica's acknowledged end, this one included."""
        return {self.me: own, **{each.replica: each.end for each in self.followers.values()}}

    def counted_ends(self, own: int, counts: Counts) -> dict[InSyncReplica, int]:
        """Return the ends of `ends` that count: those of this replica, and of followers whose kept state counts."""
        return {self.me: own, **{each.replica: each.end for each in self.followers.values() if counts(each)}}

    # who is in, who should be

    def leaves(self, before: PartitionState, now: PartitionState) -> None:
        """Another in-sync set holds: who is not named any more joins again by a fetch alone.

        Not so who has said more since under a later registration than the one that left, unless its log is offline.
        """
        for each in before.in_sync:
            follower = self.followers.get(each.broker)
            if follower is None or now.entry(each.broker) is not None:
                continue
            if follower.replica == each or OfflineLog(each.broker, follower.replica.epoch) in now.offline:
                follower.has_left = True

    def joining(
        self, topic: Topic, partition: int, registrations: Registrations, mark: int, counts: Counts = _any_counts
    ) -> InSync:
        """Return the replicas that have all that counts, under the registration that they have now; this one first.

        `counts` returns whether a follower's kept state counts.
        """
        found = [self.me]
        for broker, follower in sorted(self.followers.items()):
            registered = registrations.get(broker)
            if (
                broker in topic.replicas[partition]
                and registered is not None
                and registered.replica == follower.replica
                and not follower.keeps_out
                and not follower.has_left
                and counts(follower)
                and follower.replica not in self.closed
                and may_join(follower.end, mark, self.epoch_start)
            ):
                found.append(follower.replica)
        return tuple(found)

    def gone_members(self, state: PartitionState, registrations: Registrations) -> InSync:
        """Members whose registration has ended, whose port is closed, or whose log is offline."""
        return tuple(
            each
            for each in state.in_sync
            if each != self.me
            and (
                (now := registrations.get(each.broker)) is None
                or now.epoch != each.epoch
                or each in self.closed
                or is_offline(state, each.broker, registrations)
            )
        )

    def slow(self, state: PartitionState, now_ms: float, lag_ms_max: float) -> InSync:
        """Members that keep out, or were not caught up for too long, the slowest first."""
        late = [(self.caught_up_ms(each), each) for each in state.in_sync if each != self.me]
        return tuple(
            each for caught_up_ms, each in sorted(late) if now_ms - caught_up_ms > lag_ms_max or self._keeps_out(each)
        )

    def _keeps_out(self, replica: InSyncReplica) -> bool:
        follower = self.followers.get(replica.broker)
        return follower is not None and follower.replica == replica and follower.keeps_out

    def slow_soon(self, state: PartitionState, now_ms: float, lag_ms_max: float, soon_ms: float) -> bool:
        """Whether a member will count as slow by then, unless it catches up; who is already is nothing new."""
        times = [self.caught_up_ms(each) + lag_ms_max for each in state.in_sync if each != self.me]
        return any(now_ms <= slow_ms < now_ms + soon_ms for slow_ms in times)

    def caught_up_ms(self, replica: InSyncReplica) -> float:
        """When this replica had everything last; who has not come yet is given time from the epoch's beginning on."""
        follower = self.followers.get(replica.broker)
        return follower.caught_up_ms if follower is not None and follower.replica == replica else self.began_ms

    def healthy(self, state: PartitionState, registrations: Registrations, now_ms: float, lag_ms_max: float) -> int:
        """Members that are there and keep up, this one included: what min.insync.replicas is compared with."""
        bad = {*self.gone_members(state, registrations), *self.slow(state, now_ms, lag_ms_max)}
        return sum(each not in bad for each in state.in_sync)
