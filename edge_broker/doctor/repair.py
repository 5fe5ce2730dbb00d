"""`edge-broker log repair`: a stopped directory made sound again, with nothing deleted.

| damaged | what is done |
|---|---|
| an index, summary, snapshot, checkpoint, file of corrupt ranges | moved to `aside/repair.<n>/`; made again |
| a range of a segment | the ledger gets a record, then `.holes` has it: readers skip it, the bytes stay |
| a tail above the synced end, files that are gone | as at any start: cut off with a copy; in the ledger |
| the store's own files | refused, with nothing changed: no start opens such a directory |
| a topic's file, a topic id | left: nothing else knows what they said |
| a directory with replicas of a cluster | refused, with nothing changed: a start fetches from other boards |

The directory is opened as a start opens it, so its leader epoch may rise.

Contains: what is moved, and the order. Does not contain: what is wrong (check.py), how damage is quarantined
(storage).
"""

from __future__ import annotations

from typing import NamedTuple

from drupelet.quantities import is_or_are, quantity_text
from edge_broker.clock import SystemClock
from edge_broker.configuration.settings import LogSettings
from edge_broker.doctor.check import STORE_FILES, find
from edge_broker.doctor.directory import DataDirectory
from edge_broker.doctor.findings import Finding, Findings
from edge_broker.errors import Refusal, StorageFault
from edge_broker.output import write_json
from edge_broker.storage.files.atomic_files import fault_of
from edge_broker.storage.files.filesystem import Disk, FileSystem, ReadOnlyDisk, lock_holder
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.loss.quarantine import quarantine
from edge_broker.storage.metadata.broker_id import has_replicas
from edge_broker.storage.segment.batch_scan import CorruptRange
from edge_broker.storage.segment.segment import DamageFound

_MADE_AGAIN = (".index", ".timeindex", ".summary", ".snapshot", ".holes")
_STATE_MADE_AGAIN = (
    "leader-epoch-checkpoint",
    "recovery-point-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "in-use",
    "in-use.2",
    "removed-offsets",
    "last-recovery",
    "card",
    "age",
)
NODE = "repair"
OF_A_CLUSTER = (
    "this data directory belongs to a cluster, so nothing was changed; start its broker, which mends the damaged "
    "partitions from the other boards. For a partition that no other board has, first put its files back from a copy, "
    "or set unclean.leader.election.enable=true on its topic: the ledger then has what is lost"
)


class Step(NamedTuple):
    """One thing that was done, or would be: `kind` is moved, quarantined, noted or left."""

    kind: str
    path: str
    text: str


def repair(data_dir: str, name: str | None, *, dry_run: bool, as_json: bool) -> int:
    """Repair what can be; 0 when all is sound now, 1 when something is left.

    StorageFault, with nothing changed, when the directory is in use or cannot be repaired.
    """
    data_dir = data_dir.rstrip("/") or "/"
    findings = _find(data_dir, name)
    _check_repairable(data_dir, findings)
    steps = _plan(data_dir, findings) if dry_run else _work(data_dir, findings)
    left = findings if dry_run else _find(data_dir, name)
    steps += [
        Step("left", finding.path, f"at byte {finding.position}: {finding.reason}")
        for finding in _without_step(left, dry_run)
    ]
    _print(data_dir, steps, dry_run=dry_run, as_json=as_json)
    return 1 if any(step.kind == "left" for step in steps) else 0


def _find(data_dir: str, name: str | None) -> Findings:
    """Return the findings of a check, in a directory without a running broker."""
    path = f"{data_dir}/.lock"
    holder = lock_holder(path)
    if holder is not None:
        raise StorageFault(path, 0, f"a broker (process {holder}) runs on this data directory; stop it first")
    return find(DataDirectory(ReadOnlyDisk(), data_dir, None), name)


def _check_repairable(data_dir: str, findings: Findings) -> None:
    """Refuse a damaged directory that the repair could not open after it has moved files. StorageFault."""
    if not findings.has_damage:
        return
    if has_replicas(ReadOnlyDisk(), data_dir):
        raise StorageFault(data_dir, 0, OF_A_CLUSTER)
    own = [f"{data_dir}/{name}" for name in STORE_FILES]
    for finding in findings:
        if finding.damage and finding.path in own:
            raise StorageFault(finding.path, finding.position, f"{finding.reason}; nothing was changed")


def _without_step(findings: Findings, dry_run: bool) -> list[Finding]:
    """Damage that no step is for."""
    return [
        finding for finding in findings if finding.damage and not (dry_run and (_moves(finding) or _in_log(finding)))
    ]


def _moves(finding: Finding) -> bool:
    name = finding.path.rpartition("/")[2]
    return name.endswith(_MADE_AGAIN) or name in _STATE_MADE_AGAIN


def _in_log(finding: Finding) -> bool:
    return finding.path.endswith(".log")


def _plan(data_dir: str, findings: Findings) -> list[Step]:
    steps = [Step("moved", path, "to aside/") for path in _to_move(findings)]
    steps += [
        Step("quarantined", finding.path, f"at byte {finding.position}: {finding.reason}")
        for finding in findings
        if finding.damage and _in_log(finding)
    ]
    return steps


def _to_move(findings: Findings) -> list[str]:
    return list(dict.fromkeys(finding.path for finding in findings if finding.damage and _moves(finding)))


def _work(data_dir: str, findings: Findings) -> list[Step]:
    """Move aside, then open as a start does and quarantine; nothing at all when nothing is damaged."""
    if not findings.has_damage:
        return []
    try:
        disk = Disk()
        lock = disk.lock(f"{data_dir}/.lock")
        if lock is None:
            raise StorageFault(f"{data_dir}/.lock", 0, "a broker began to run on this data directory; stop it first")
        steps = _move_aside(disk, data_dir, _to_move(findings))
        del lock  # the store takes it itself
    except OSError as error:
        raise fault_of(error, data_dir, 0) from error
    return steps + _open_and_quarantine(disk, data_dir, findings)


def _move_aside(fs: FileSystem, data_dir: str, paths: list[str]) -> list[Step]:
    """Move files to `aside/repair.<n>/`, durably, below the name of their directory."""
    if not paths:
        return []
    fs.make_directory(f"{data_dir}/aside")
    taken = set(fs.names(f"{data_dir}/aside"))
    place = next(free for number in range(len(taken) + 1) if (free := f"repair.{number}") not in taken)
    target = f"{data_dir}/aside/{place}"
    fs.make_directory(target)
    steps, touched = [], {data_dir, f"{data_dir}/aside", target}
    for path in paths:
        directory, _, name = path.rpartition("/")
        below = target if directory == data_dir else f"{target}/{directory.rpartition('/')[2]}"
        fs.make_directory(below)
        try:
            fs.rename(path, f"{below}/{name}")
        except FileNotFoundError:
            continue  # the damage is that it is missing
        touched |= {directory, below}
        steps.append(Step("moved", path, f"to {below}/{name}"))
    for directory in sorted(touched, reverse=True):  # what is below first
        fs.sync_directory(directory)
    return steps


def _open_and_quarantine(fs: FileSystem, data_dir: str, findings: Findings) -> list[Step]:
    clock = SystemClock()
    store = LogStore.open(fs, data_dir, LogSettings(), clock.reading(), clock.new_uuid, NODE)
    try:
        steps = [Step("noted", data_dir, note) for note in store.recovery_notes]
        for finding in findings:
            if finding.damage and _in_log(finding):
                steps += _quarantine(store, finding)
    finally:
        store.close()
    return steps


def _quarantine(store: LogStore, finding: Finding) -> list[Step]:
    """Have the damaged range around a finding quarantined, unless the start has done so."""
    for topic in store.topics.values():
        for log in topic.partitions:
            at = next((at for at, segment in enumerate(log.segments) if segment.path == finding.path), -1)
            if at < 0 or log.fault is not None:
                continue
            steps = _quarantine_in(log, DamageFound(log.segments[at], finding.position, finding.reason))
            if at > 0 and finding.position == 0:  # what is missing before a segment belongs to the one before it
                before = log.segments[at - 1]
                steps += _quarantine_in(log, DamageFound(before, before.size, finding.reason))
            return steps
    return []


def _quarantine_in(log: PartitionLog, found: DamageFound) -> list[Step]:
    try:
        corrupt_range = quarantine(log, found)
    except Refusal as refusal:
        raise StorageFault(found.segment.path, found.position, refusal.message) from None
    return (
        [] if corrupt_range is None else [Step("quarantined", found.segment.path, _corrupt_range_text(corrupt_range))]
    )


def _corrupt_range_text(corrupt_range: CorruptRange) -> str:
    lost = f"offsets {corrupt_range.first_offset} to {corrupt_range.end_offset - 1} are lost and in the ledger"
    return f"bytes {corrupt_range.position} to {corrupt_range.end_position}: {lost}, readers jump over them"


def _print(data_dir: str, steps: list[Step], *, dry_run: bool, as_json: bool) -> None:
    left = sum(step.kind == "left" for step in steps)
    if as_json:
        for step in steps:
            write_json({**step._asdict(), "done": step.kind != "left" and not dry_run})
        write_json({"kind": "summary", "steps": len(steps) - left, "left": left})
        return
    for kind, path, text in steps:
        print(f"{'would be ' if dry_run and kind in ('moved', 'quarantined') else ''}{kind}: {path} {text}")
    verdict = "nothing was damaged" if not steps else "sound now"
    if left:
        verdict = f"{quantity_text(left, 'damaged place')} {is_or_are(left)} left"
    if dry_run and not left and steps:
        verdict = "nothing was changed"
    print(f"{data_dir}: {verdict}")
