"""Messages between brokers of a cluster, as values; on the wire these are fields of Kafka's own requests.

| here | on the wire |
|---|---|
| ReplicaFetch | Fetch 17 and newer: ReplicaState (id, epoch), current_leader_epoch, last_fetched_epoch; `directory`, `synced_end`, `keeps_out`, `is_full` and `was_full` are tagged fields of ours |
| ReplicaFetched | its answer: DivergingEpoch, log start offset, high watermark, records; `lost` is a tagged field of ours |
| AskEnd, TellEnd | OffsetForLeaderEpoch on the inter-broker listener, of NEWEST_EPOCH for the log's end; KAFKA_STORAGE_ERROR: the log is offline |
| HandOver | ElectLeaders (preferred), sent on to the leader |
| ForwardEntries | Produce 12 of acks=all, to `__edge_ledger`; `forwarder` is a tagged field of ours |
| EntriesTaken | its answer |

Does not contain: sockets, who answers what. Source: KIP-320, KIP-595, KIP-903.
"""  # noqa: E501

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from edge_broker.cluster.state.cluster_state import InSyncReplica, PartitionId
from edge_broker.cluster.state.replica_log_view import NEWEST_EPOCH
from edge_broker.errors import ErrorCode


class EpochEnd(NamedTuple):
    """Where an epoch ended in the leader's log."""

    epoch: int
    end_offset: int


class ReplicaFetch(NamedTuple):
    """A follower has everything before `fetch_offset`, of which what is before `synced_end` counts as replicated."""

    partition: PartitionId
    replica: InSyncReplica
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    synced_end: int
    keeps_out: bool = False  # it takes no records now, and is not to be named: its disk is full, or its log damaged
    is_full: bool = False  # its disk is full
    state_id: str = ""  # of the state that its disk has kept and by which it fetches; "": an older release
    was_full: bool = False  # its disk was full within ROOM_KEPT_MS (partition/room.py), by its own clock

    def answer(self, error: ErrorCode = ErrorCode.NONE, high_watermark: int = 0) -> ReplicaFetched:
        """An answer to it, without records."""
        where = (self.partition, self.leader_epoch, self.fetch_offset, self.last_fetched_epoch)
        return ReplicaFetched(*where, error, high_watermark=high_watermark, keeps_out=self.keeps_out)


class ReplicaFetched(NamedTuple):
    """The response; its sender adds the records from `fetch_offset` on if there is no error."""

    partition: PartitionId
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    error: ErrorCode = ErrorCode.NONE
    diverging: EpochEnd | None = None
    high_watermark: int = 0
    records: object = None
    log_start_offset: int = -1  # the leader's; with OFFSET_OUT_OF_RANGE `diverging`: the logs may have differed
    keeps_out: bool = False  # as the fetch says
    lost: EpochEnd | None = None  # all from `fetch_offset` up to there is lost, and in the ledger; the rest follows

    @property
    def wants_records(self) -> bool:
        """Whether records belong into it."""
        goes_on = self.diverging is None and self.lost is None and not self.keeps_out
        return self.error is ErrorCode.NONE and goes_on


class HandOver(NamedTuple):
    """The controller wishes that another in-sync replica leads."""

    partition: PartitionId
    to: int


class AskEnd(NamedTuple):
    """How much do you have? `version` is the state's, so that old answers are known.

    NEWEST_EPOCH asks for the log's end, before an unclean election; another epoch asks where that ended.
    """

    partition: PartitionId
    version: int
    asks: int
    epoch: int = NEWEST_EPOCH


class TellEnd(NamedTuple):
    """So much; of a log that is not `online` it counts for nothing.

    `epoch` is the one that was asked for. Where it is not NEWEST_EPOCH `last_epoch` is the greatest known epoch not
    above it, and `end_offset` is its end; a release that knows no such question answers with the log's.
    """

    partition: PartitionId
    version: int
    tells: int
    last_epoch: int
    end_offset: int
    online: bool = True
    epoch: int = NEWEST_EPOCH


class ForwardEntries(NamedTuple):
    """Entries of a broker's journal for `__edge_ledger`, a batch; `end_offset` is the journal's after them."""

    partition: PartitionId
    sender: int
    turn: int
    end_offset: int
    records: bytes

    def answer(self, error: ErrorCode) -> EntriesTaken:
        """The outcome of entries: NONE, they are as safe as acks=all makes them."""
        return EntriesTaken(self.partition, self.turn, self.end_offset, error)


class EntriesTaken(NamedTuple):
    """The answer, by turn."""

    partition: PartitionId
    turn: int
    end_offset: int
    error: ErrorCode


Message: TypeAlias = ReplicaFetch | ReplicaFetched | HandOver | AskEnd | TellEnd | ForwardEntries | EntriesTaken
