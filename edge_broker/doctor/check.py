"""`edge-broker log check`: every file of a data directory against FORMATS.md.

Contains: the store's own files, the names, and the order of the check. Does not contain: what must hold inside a
partition (partition.py), changes (repair.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from drupelet.quantities import quantity_text
from edge_broker.doctor.directory import DataDirectory, PartitionFiles
from edge_broker.doctor.findings import Finding, Findings, check_other
from edge_broker.doctor.partition import PartitionCheck
from edge_broker.errors import StorageFault
from edge_broker.output import Progress, write_json
from edge_broker.storage.files.atomic_files import NEW_SUFFIX
from edge_broker.storage.metadata.broker_id import has_replicas
from edge_broker.storage.metadata.topic_record import split_partition_directory
from edge_broker.storage.recovery.dirty_markers import FILES as MARKS
from edge_broker.storage.recovery.recovery_checkpoint import FILES

STORE_FILES = ("store", "leader-epoch", "producer-ids")  # without one of them no start opens the directory
_COPY = "restore it from a copy of the data directory"
_NAMES = {
    ".lock",
    ".spare",
    *STORE_FILES,
    *FILES,
    *MARKS,
    "topics",
    "deleted",
    "aside",
    "lost+found",
}
_DELETED = re.compile(r"[0-9a-f]{32}(\.json|-\d+)")


def check(directory: DataDirectory, name: str | None, *, as_json: bool) -> int:
    """Check everything, or the partitions of a NAME and the store's files: 0 sound, 1 damage. ConfigurationError."""
    findings = find(directory, name)
    _print(directory, findings, name, as_json=as_json)
    return 1 if findings.has_damage else 0


def find(directory: DataDirectory, name: str | None) -> Findings:
    """The findings of a check. ConfigurationError."""
    findings = Findings()
    partitions = list(directory.partitions(name))
    _store(directory, findings)
    _names(directory, findings)
    progress = Progress("check", _bytes_of(partitions))
    for partition in partitions:
        findings += check_partition(directory, partition, progress)
    return findings.of_replicas() if has_replicas(directory.fs, directory.path) else findings


def _bytes_of(partitions: Iterable[PartitionFiles]) -> int:
    return sum(segment.size for partition in partitions for segment in partition.segments())


def check_partition(directory: DataDirectory, partition: PartitionFiles, progress: Progress | None = None) -> Findings:
    """The findings of one partition; under a running broker, what is found twice, as files change meanwhile."""

    def once() -> Findings:
        findings = Findings()
        PartitionCheck(
            partition,
            findings,
            clean=directory.clean,
            running=directory.holder is not None,
            read=lambda done: progress.add(done, partition.name) if progress else None,
        ).run()
        return findings

    findings = once()
    if directory.holder is None or not findings.has_damage:
        return findings
    progress = None
    again = set(once())
    return Findings(finding for finding in findings if finding in again)


def _store(directory: DataDirectory, findings: Findings) -> None:
    for name in STORE_FILES:
        path = f"{directory.path}/{name}"
        try:
            lines = directory.state(name, name)
        except StorageFault as fault:
            findings.fault(fault)
            continue
        if lines is None:
            findings.damage(path, 0, f"is missing; {_COPY}")
        elif len(lines) != 1 or len(lines[0]) != 1:
            findings.damage(path, 0, f"has {len(lines)} entries where one belongs; {_COPY}")
    try:
        directory.positions()
    except StorageFault as fault:
        findings.damage(fault.path, fault.position, f"{fault.reason}; the next start checks every active segment whole")
    try:
        directory.marks()
    except StorageFault as fault:
        what = "after a cut every partition is believed to have been in use"
        findings.damage(fault.path, fault.position, f"{fault.reason}; {what}")


def _names(directory: DataDirectory, findings: Findings) -> None:
    known: dict[str, int] = {}
    for topic in directory.topics():
        if isinstance(topic, StorageFault):
            findings.fault(topic)
        else:
            known[topic.name] = topic.partitions
    names = directory.names()
    unknown = [fault for fault in findings if fault.path.endswith(".json")]
    for name in sorted(name for name in names - _NAMES if not name.endswith(NEW_SUFFIX)):
        place = split_partition_directory(name)
        if place is None:
            check_other(directory.fs, f"{directory.path}/{name}", findings)
        elif place[1] >= known.get(place[0], 0) and not unknown and directory.holder is None:
            findings.note(f"{directory.path}/{name}", 0, "belongs to no topic; the next start moves it to aside/")
    for name in sorted(directory.names("topics")):
        if not name.endswith((".json", NEW_SUFFIX)):
            findings.note(f"{directory.path}/topics/{name}", 0, "is no file of the broker's")
    for name in sorted(directory.names("deleted")):
        if not _DELETED.fullmatch(name) and not name.endswith(NEW_SUFFIX):
            findings.note(f"{directory.path}/deleted/{name}", 0, "is no file of the broker's")
    for name in sorted(directory.names("aside")):
        findings.note(f"{directory.path}/aside/{name}", 0, "was moved aside; delete it when nobody needs it")


def _print(directory: DataDirectory, findings: Findings, name: str | None, *, as_json: bool) -> None:
    checked = list(directory.partitions(name))
    partitions, total = len(checked), _bytes_of(checked)
    damages = sum(finding.damage for finding in findings)
    if as_json:
        for finding in findings:
            write_json({"kind": "damage" if finding.damage else "note", **_fields(finding)})
        write_json({"kind": "summary", "partitions": partitions, "bytes": total, "damages": damages})
        return
    for finding in findings:
        print(finding)
    verdict = quantity_text(damages, "damaged place") if damages else "sound"
    print(f"{directory.path}: {verdict}; {quantity_text(partitions, 'partition')}, {total / 1e6:,.1f} MB checked")


def _fields(finding: Finding) -> dict[str, object]:
    return {"file": finding.path, "byte": finding.position, "reason": finding.reason}
