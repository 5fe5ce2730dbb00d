"""`edge-broker cluster write-off`: a stopped board forgets by which states it acted, and acts by ZooKeeper's again.

| what the disk has of a partition | what is recorded before it is forgotten |
|---|---|
| a kept state whose in-sync set names this broker | the offsets that other boards may lack, by leader epoch, as `unclean_election` |
| the same without a log that can be read | nothing: its offsets are unknown; the row says so |
| a kept state that does not name it | nothing: no acknowledged record depends on this disk |
| a file of kept states that is damaged | as if each log's state had named this broker |

The ledger is synced before the file changes, so a run that was killed is run again; the same loss has the same id.
Offsets that a log and each given description of another board have in common are not lost. Without descriptions the
whole log may be. Nothing is truncated here: the board follows ZooKeeper's leader, and ledgers what it truncates then.

Contains: which offsets, the order. Does not contain: the file (storage/metadata/kept_states.py), comparing logs
(cluster/rebuild/rebuild_plan.py).
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from drupelet.errors import ConfigurationError
from drupelet.quantities import quantity_text
from edge_broker.clock import SystemClock
from edge_broker.cluster.rebuild.disks import NO_BROKER, Disk, DiskLog
from edge_broker.cluster.rebuild.rebuild_plan import first_difference
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.configuration.settings import LogSettings
from edge_broker.doctor.directory import DataDirectory
from edge_broker.doctor.disk import describe
from edge_broker.errors import Refusal, StorageFault
from edge_broker.output import write_json, write_table
from edge_broker.storage.files.filesystem import Disk as FileSystemDisk
from edge_broker.storage.files.filesystem import ReadOnlyDisk, lock_holder
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.metadata.broker_registrations import read_registrations
from edge_broker.storage.metadata.cluster_copy import ClusterCopy
from edge_broker.storage.metadata.kept_states import (
    FILE,
    KeptState,
    LogId,
    read_kept_states,
    remove_kept_states,
    write_kept_states,
)
from edge_broker.storage.metadata.loss_records import Loss

DONE, REFUSED = 0, 1
_COLUMNS = ("partition", "log start", "end", "may be lost", "remark")
_UNNAMED = "no acknowledged record depends on this disk"
_NO_LOG = "this disk has no log of it"
_NO_CLUSTER = "no file `registrations` is in it, so it belongs to no cluster, and no state is written off"
_NOTHING_KEPT = "the disk has kept no state that counts, so the board acts by ZooKeeper's states already"


class WrittenOff(NamedTuple):
    """A partition whose kept state goes; records from `first_offset` up to the log's end may be lost."""

    log: DiskLog
    first_offset: int
    remark: str = ""
    is_unknown: bool = False  # which offsets may be lost

    @property
    def name(self) -> str:
        """Topic and partition, as its directory is named; the topic's id where the disk does not know its name."""
        return f"{self.log.topic or self.log.topic_id}-{self.log.partition}"

    @property
    def may_lose(self) -> bool:
        """Whether other boards may lack a record of it."""
        return self.first_offset < self.log.end_offset

    def losses(self) -> Iterator[Loss]:
        """Yield what the ledger gets, by leader epoch."""
        where, end = (self.log.topic, self.log.topic_id, self.log.partition), self.log.end_offset
        bounds: list[tuple[int, int | None]] = [(each.offset, each.epoch) for each in self.log.epochs] or [
            (self.first_offset, None)
        ]
        ends = [offset for offset, _ in bounds[1:]]
        for (offset, epoch), until in zip(bounds, [*ends, end], strict=True):
            first = max(offset, self.first_offset)
            if first < until:
                yield Loss("unclean_election", *where, first, until, None, None, leader_epoch=epoch)


class _Plan(NamedTuple):
    """`rest` is what the file has afterwards; None: the file goes."""

    broker: int
    partitions: tuple[WrittenOff, ...]
    rest: Mapping[LogId, KeptState] | None
    epoch: int


def write_off(
    data_dir: str, partitions: Collection[PartitionId], other_disks: Sequence[Disk], *, dry_run: bool, as_json: bool
) -> int:
    """Write a board off, of all its partitions or of these; DONE, REFUSED: its disk has kept no state.

    `other_disks` describe the boards that go on. StorageFault where a broker runs, ConfigurationError for a partition
    of which no state is kept.
    """
    data_dir = data_dir.rstrip("/") or "/"
    plan = _plan(data_dir, partitions, other_disks)
    if isinstance(plan, str):
        text = f"{data_dir}: {plan}"
        if as_json:
            write_json({"kind": "refusal", "text": text})
        else:
            print(text)
        return REFUSED
    if not dry_run:
        _carry_out(data_dir, plan)
    _show(data_dir, plan, dry_run=dry_run, as_json=as_json)
    return DONE


# the plan


def _plan(data_dir: str, partitions: Collection[PartitionId], other_disks: Sequence[Disk]) -> _Plan | str:
    """Return the plan, or why there is nothing to write off."""
    holder, fs = lock_holder(f"{data_dir}/.lock"), ReadOnlyDisk()
    if holder is not None:
        raise StorageFault(
            f"{data_dir}/.lock", 0, f"a broker (process {holder}) runs on this data directory; stop it first"
        )
    disk = describe(DataDirectory(fs, data_dir, None), None)
    if disk.broker in [each.broker for each in other_disks]:
        raise ConfigurationError(f"--disk describes broker {disk.broker}, which is to be written off; give another one")
    try:
        epochs = read_registrations(fs, data_dir).epochs
    except FileNotFoundError:
        return _NO_CLUSTER
    logs = {LogId(log.topic_id, log.partition): log for log in disk.logs}
    try:
        kept: Mapping[LogId, KeptState] = read_kept_states(fs, data_dir, epochs)
    except StorageFault as fault:
        if partitions:
            raise StorageFault(fault.path, 0, f"{fault.reason}; leave out --partition") from None
        return _Plan(disk.broker, tuple(_written_off(log, None, other_disks) for log in logs.values()), None, 0)
    if not kept:
        return _NOTHING_KEPT
    logs = {where: _without_log(where, disk) for where in kept} | logs
    names = {where: PartitionId(log.topic or log.topic_id, log.partition) for where, log in logs.items()}
    for each in partitions:
        if each not in [names.get(where) for where in kept]:
            raise ConfigurationError(
                f"--partition is {each.topic}-{each.partition}, of which no state is kept; --dry-run shows them all"
            )
    going = [where for where in kept if not partitions or names.get(where) in partitions]
    written_off = tuple(_written_off(logs[where], kept[where], other_disks) for where in going)
    rest = {where: state for where, state in kept.items() if where not in going}
    return _Plan(disk.broker, written_off, rest or None, epochs[-1])


def _without_log(where: LogId, disk: Disk) -> DiskLog:
    """Return the log of a kept state of which the disk has none; its copy of ZooKeeper's topics may name the topic."""
    copy = disk.copy or ClusterCopy()
    names = {each.topic_id: each.name for each in copy.deletions}
    names |= {each.topic_id: each.name for each in (*copy.absent, *copy.topics)}
    return DiskLog(names.get(where.topic_id, ""), where.topic_id, where.partition, 0, 0, problem=_NO_LOG)


def _written_off(log: DiskLog, kept: KeptState | None, other_disks: Sequence[Disk]) -> WrittenOff:
    """Return what may be lost of a log; `kept` None: the file is damaged."""
    if kept is not None and not kept.named:
        return WrittenOff(log, log.end_offset, "; ".join(filter(None, (log.problem, _UNNAMED))))
    if log.problem:
        return WrittenOff(log, log.end_offset, f"{log.problem}; acknowledged records may be lost", is_unknown=True)
    found = [each for disk in other_disks if (each := disk.log(log.topic_id, log.partition)) is not None]
    if not found or any(each.problem for each in found):
        return WrittenOff(log, log.start_offset)
    return WrittenOff(log, min(first_difference(each, log) for each in found))


# the act


def _carry_out(data_dir: str, plan: _Plan) -> None:
    clock, fs = SystemClock(), FileSystemDisk()
    node = "" if plan.broker == NO_BROKER else str(plan.broker)
    store = LogStore.open(fs, data_dir, LogSettings(), clock.reading(), clock.new_uuid, node, in_cluster=True)
    try:
        losses = [loss for each in plan.partitions for loss in each.losses()]
        if losses:
            store.ledger.write(losses)
        if plan.rest is None:
            remove_kept_states(fs, data_dir)
        else:
            write_kept_states(fs, data_dir, plan.rest, plan.epoch)
    except Refusal as refusal:
        raise StorageFault(f"{data_dir}/{FILE}", 0, f"the ledger takes no entry: {refusal.message}") from None
    finally:
        store.close()


# as text


def _show(data_dir: str, plan: _Plan, *, dry_run: bool, as_json: bool) -> None:
    count = sum(each.may_lose for each in plan.partitions)
    if as_json:
        for each in plan.partitions:
            log = each.log
            first = each.first_offset if each.may_lose else None
            last = log.end_offset - 1 if each.may_lose else None
            where = {"topic": log.topic, "partition": log.partition, "topic_id": log.topic_id}
            write_json(
                {"kind": "partition", **where, "first_offset": first, "last_offset": last, "remark": each.remark}
            )
        write_json({"kind": "summary", "partitions": len(plan.partitions), "may_lose": count, "done": not dry_run})
        return
    write_table(_COLUMNS, [_row(each) for each in plan.partitions], none="no partitions")
    print()
    ledgered = ", which are in the ledger" if count and not dry_run else ""
    print(f"{quantity_text(count, 'partition')} may lose records{ledgered}")
    done = "written off; the board acts by ZooKeeper's states from its next start on"
    print(f"{data_dir}: {'nothing was changed' if dry_run else done}")


def _row(each: WrittenOff) -> tuple[object, ...]:
    lost = f"{each.first_offset} to {each.log.end_offset - 1}" if each.may_lose else "nothing"
    lost = "unknown" if each.is_unknown else lost
    bounds = (None, None) if each.log.problem else (each.log.start_offset, each.log.end_offset)
    return each.name, *bounds, lost, each.remark
