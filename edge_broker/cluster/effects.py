"""Effects of a cluster member, in order; the network layer executes them, and reports back where the table says so.

| effect | told by |
|---|---|
| Ask | `answered(token, answer)` |
| Send | nothing; an answer is a message |
| Record | `recorded(epoch)`: the data directory has it, synced |
| KeepCopy | `copy_kept(done)`: the data directory has it, synced, or the disk refused it |
| KeepStates | `states_kept(done)`: the file is replaced, synced, or could not be |
| Objects | nothing: it is logged |
| Contradicts | nothing: this broker does not serve, and the process ends with that sentence |
| OpenLog, RemoveLog | `opened(partition, log)`; nothing |
| Configure, Stray | nothing |
| Append | `log_moved(partition)` when it is written, or not: one that comes while the log is busy, or of which a part was not taken, may be dropped |
| BeginEpoch | `epoch_begun(partition, epoch)`: the entry (epoch, log end) is synced |
| Enter | `entered(token)`: the synced journal has the losses |
| OwnUp | `owned_up(partition)`: what the log lacks is in the ledger |
| Truncate, StartAnew, CutDamage, PassOver | `truncated(partition)`: durable |
| Reopen | `reopened(partition)`: it is online again, or was tried |
| RemoveFront | nothing: it is wanted again while the log starts before that offset |
| AdvanceHighWatermark | nothing: the log gets its high watermark, a leader's or a follower's |
| Leads, LeadershipResigned | nothing: from now on this broker answers for a partition, or does not any more |
| Broke | nothing: a bug in what a partition decides; its log goes offline, so that others may lead |
| ShutdownReady | the member has handed over what it led: the session may be closed |

Does not contain: how any of it is done.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from edge_broker.cluster.inter_broker_messages import Message
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.cluster.state.lines import Relation
from edge_broker.cluster.znodes.zookeeper import Request
from edge_broker.storage.metadata.cluster_copy import ClusterCopy
from edge_broker.storage.metadata.kept_states import KeptStates


class Ask(NamedTuple):
    """A request to ZooKeeper."""

    token: int
    request: Request


class Send(NamedTuple):
    """A message to a broker; it may be lost."""

    to: int
    message: Message


class Record(NamedTuple):
    """Write down the epoch of this registration, and of which cluster, before anything is done under it."""

    epoch: int
    cluster: str


class KeepCopy(NamedTuple):
    """Write down what only ZooKeeper knows of the topics."""

    copy: ClusterCopy


class KeepStates(NamedTuple):
    """Replace the file of kept states, synced: by which state each partition acts."""

    states: KeptStates
    epoch: int  # of the registration


class Objects(NamedTuple):
    """This broker's disk acted by a state of another line, and the partition's state says so: it waits for a person."""

    partition: PartitionId
    relation: Relation


class Contradicts(NamedTuple):
    """This broker cannot be a member as it is: why, and the remedy."""

    sentence: str


class OpenLog(NamedTuple):
    """Open or make the log of a partition; one of another topic id is not this one."""

    partition: PartitionId
    topic_id: str


class RemoveLog(NamedTuple):
    """The topic was deleted."""

    partition: PartitionId
    topic_id: str


class Stray(NamedTuple):
    """The cluster does not know this topic, and nothing says that it was deleted: its logs stay, and are not served."""

    topic: str
    topic_id: str


class Configure(NamedTuple):
    """A topic has this configuration, and so many partitions."""

    topic: str
    config: Mapping[str, str]
    partitions: int


class Append(NamedTuple):
    """Append what was fetched at this offset, as it came."""

    partition: PartitionId
    offset: int
    records: object


class BeginEpoch(NamedTuple):
    """A leader's first act: its epoch begins at the end of its log."""

    partition: PartitionId
    epoch: int


class LostRange(NamedTuple):
    """Offsets that a replica had, or may not have; `end_offset` None: unknown."""

    epoch: int
    first_offset: int
    end_offset: int | None


Cause: TypeAlias = Literal["truncated", "unclean_election"]


class Enter(NamedTuple):
    """Write losses down; the same entry may come again, under the same epochs and offsets."""

    token: int
    partition: PartitionId
    cause: Cause
    losses: tuple[LostRange, ...]


class Truncate(NamedTuple):
    """Cut the log's end off."""

    partition: PartitionId
    end_offset: int


class StartAnew(NamedTuple):
    """Empty the log, which ends before this offset or there, and go on at it: the leader's log starts there."""

    partition: PartitionId
    start_offset: int


class CutDamage(NamedTuple):
    """Truncate the log where its damage begins: the leader has the records from there on."""

    partition: PartitionId


class PassOver(NamedTuple):
    """Go on at this offset: what lies between the log's end and it was recorded as lost; it is of this epoch."""

    partition: PartitionId
    end_offset: int
    epoch: int


class OwnUp(NamedTuple):
    """Write down as lost what the log lacks: no other replica is in sync."""

    partition: PartitionId


class Reopen(NamedTuple):
    """Try to open a log that is offline; with `may_recreate` a missing one is created, as no broker counts on it.

    The leader has, up to `kept_until`, what this replica led and its disk has not confirmed; 0: not as far as is known.
    """

    partition: PartitionId
    may_recreate: bool
    kept_until: int = 0


class RemoveFront(NamedTuple):
    """Remove what is before this offset, as the leader has done: by its retention, for space, or on request."""

    partition: PartitionId
    start_offset: int


class AdvanceHighWatermark(NamedTuple):
    """Records before this offset are visible and count as replicated."""

    partition: PartitionId
    high_watermark: int


class Leads(NamedTuple):
    """This broker answers for the partition in this epoch."""

    partition: PartitionId
    epoch: int


class LeadershipResigned(NamedTuple):
    """This broker does not answer for the partition any more."""

    partition: PartitionId


class Broke(NamedTuple):
    """A partition could not decide what is due, for a bug: it is held, asked again a while later, and others go on."""

    partition: PartitionId
    error: Exception


class ShutdownReady(NamedTuple):
    """A controlled shutdown has nothing left to hand over."""


class Forward(NamedTuple):
    """Tell a broker, perhaps this one, the oldest entries of the journal; the answer bears this turn."""

    to: int
    turn: int


class Forget(NamedTuple):
    """Let the journal go of what is before this offset: the cluster has it."""

    end_offset: int


Effect: TypeAlias = (
    Ask
    | Send
    | Record
    | KeepCopy
    | KeepStates
    | Objects
    | Contradicts
    | OpenLog
    | RemoveLog
    | Stray
    | Configure
    | Append
    | BeginEpoch
    | Enter
    | Truncate
    | StartAnew
    | CutDamage
    | PassOver
    | OwnUp
    | Reopen
    | RemoveFront
    | AdvanceHighWatermark
    | Leads
    | LeadershipResigned
    | Broke
    | Forward
    | Forget
    | ShutdownReady
)
