"""By which state of each partition this disk last acted: the file `kept-states`.

| line | content |
|---|---|
| 2 | `epoch` and the newest registration under which the file was written |
| 3… | `state`, topic id, partition, id of the state, height of the state, `named` or `unnamed`, epoch base |

ZooKeeper's data can be replaced by an older copy. No version, epoch or zxid shows that. So a board keeps, synced, the
random id of the state by which it acts, and compares it with the states that it reads (cluster/state/lines.py).

`named` says that the in-sync set of that state names this broker: acknowledged records may depend on this disk.
The epoch base is that of the ensemble (`/format`): a rebuilt one has a greater base, and no kept state counts in it.
The file is written before each registration is recorded (broker_registrations.py). If a later one is recorded, a
release that does not know the file acted in between, and its states say nothing.
A data directory without the file acts by any state, as one of an older release does. A damaged file stops the start:
without it the disk would follow an older copy and truncate acknowledged records.

Contains: the file. Does not contain: what follows from a comparison, and when the file is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.errors import StorageFault
from edge_broker.storage.files.atomic_files import encode_state, fault_of, read_state, replace
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import FileSystem

KIND = "kept-states"
FILE = "kept-states"
_NAMED = {"named": True, "unnamed": False}


class LogId(NamedTuple):
    """One partition of one topic; the next topic of the same name has another id."""

    topic_id: str
    partition: int


class KeptState(NamedTuple):
    """The state by which this disk last acted."""

    state_id: str
    height: int  # how many states the line had, this one included
    named: bool  # whether the in-sync set of that state names this broker
    epoch_base: int = 0  # of the ensemble that had the state; each rebuild of the znodes has a greater one


KeptStates = Mapping[LogId, KeptState]


def read_kept_states(fs: FileSystem, data_dir: str, epochs: Sequence[int]) -> dict[LogId, KeptState]:
    """Return the states that count, of a disk that was registered under `epochs`; StorageFault when it is damaged."""
    path = f"{data_dir}/{FILE}"
    try:
        lines = read_state(fs, path, KIND)
    except FileNotFoundError:
        return {}
    kept: dict[LogId, KeptState] = {}
    try:
        (head, epoch), *lines = lines
        if head != "epoch":
            raise ValueError("the first line has no epoch")
        is_of_before = were_kept_before(int(epoch), epochs)
        for word, topic_id, partition, state_id, height, named, base in lines:
            if word != "state" or not state_id:
                raise ValueError("a line has another word")
            kept[LogId(topic_id, int(partition))] = KeptState(state_id, int(height), _NAMED[named], int(base))
    except (ValueError, KeyError) as error:
        raise StorageFault(
            path,
            0,
            f"is no {KIND} file ({error}); restore it, or write the board off (`edge-broker cluster write-off --help`)",
        ) from None
    return {} if is_of_before else kept


def were_kept_before(epoch: int, epochs: Sequence[int]) -> bool:
    """Return whether a release that does not know the file was registered after `epoch`; `epochs` are in order."""
    return epoch in epochs and epoch != epochs[-1]


@runs_in("files")
def write_kept_states(fs: FileSystem, data_dir: str, kept: KeptStates, epoch: int) -> None:
    """Replace the file, synced when this returns. StorageFault leaves the former one."""
    states = (
        f"state {log.topic_id} {log.partition} {state.state_id} {state.height} "
        f"{'named' if state.named else 'unnamed'} {state.epoch_base}"
        for log, state in sorted(kept.items())
    )
    try:
        replace(fs, data_dir, FILE, encode_state(KIND, 1, [f"epoch {epoch}", *states]))
    except OSError as error:
        raise fault_of(error, f"{data_dir}/{FILE}", 0) from error


def remove_kept_states(fs: FileSystem, data_dir: str) -> None:
    """Remove the file, durably: the disk then acts by any state. StorageFault leaves it."""
    path = f"{data_dir}/{FILE}"
    try:
        fs.remove(path)
        fs.sync_directory(data_dir)
    except OSError as error:
        raise fault_of(error, path, 0) from error
