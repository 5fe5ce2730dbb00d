"""Run the tools for the options of the command line.

Contains: opening the directory as each command needs it. Does not contain: options and help (cli.py), layout.
"""

from __future__ import annotations

import argparse

from drupelet.errors import ConfigurationError, reason
from drupelet.tls.file_reads import read_named
from edge_broker.cluster.rebuild.disks import Disk, DiskFault, decode
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.cluster.znodes.znode_codec import is_number
from edge_broker.doctor.directory import DataDirectory
from edge_broker.storage.files.atomic_files import fault_of
from edge_broker.storage.files.filesystem import ReadOnlyDisk, lock_holder


def run(options: argparse.Namespace) -> int:
    """Run one of the tools; its exit status. ConfigurationError, StorageFault."""
    try:
        if options.action == "ledger":
            return _ledger(options)
        if options.action == "disk":
            return _disk(options)
        if options.action == "write-off":
            return _write_off(options)
        return _repair(options) if options.action == "repair" else _inspect(options)
    except OSError as error:  # a name of another kind, a file that may not be read
        raise fault_of(error, options.data_dir, 0) from error


def _inspect(options: argparse.Namespace) -> int:
    """`log ls`, `dump` and `check`: nothing is written and no lock is taken."""
    directory = _open(options.data_dir)
    if options.action == "ls":
        from edge_broker.doctor.listing import ls  # noqa: PLC0415 - each command pays for itself alone

        return ls(directory, options.name, as_json=options.json)
    if options.action == "dump":
        from edge_broker.doctor.dump import dump  # noqa: PLC0415

        return dump(directory, options.name, records=options.records, producers=options.producers, as_json=options.json)
    from edge_broker.doctor.check import check  # noqa: PLC0415

    return check(directory, options.name, as_json=options.json)


def _repair(options: argparse.Namespace) -> int:
    """`log repair`: a stopped directory alone."""
    from edge_broker.doctor.repair import repair  # noqa: PLC0415

    return repair(options.data_dir, options.name, dry_run=options.dry_run, as_json=options.json)


def _ledger(options: argparse.Namespace) -> int:
    """`ledger`: its records or the proof."""
    from edge_broker.doctor.ledger import prove, show  # noqa: PLC0415

    directory = _open(options.data_dir)
    if options.prove:
        return prove(directory, options.topic, as_json=options.json)
    return show(directory, options.topic, options.cause, as_json=options.json)


def _disk(options: argparse.Namespace) -> int:
    """`cluster disk`: what a rebuild goes by."""
    from edge_broker.doctor.disk import show  # noqa: PLC0415

    return show(_open(options.data_dir), options.broker_id, as_json=options.json)


def _write_off(options: argparse.Namespace) -> int:
    """`cluster write-off`: a stopped board alone."""
    from edge_broker.doctor.write_off import write_off  # noqa: PLC0415

    partitions = frozenset(map(_partition, options.partition))
    others = [_description(path) for path in options.disk]
    return write_off(options.data_dir, partitions, others, dry_run=options.dry_run, as_json=options.json)


def _partition(text: str) -> PartitionId:
    topic, dash, partition = text.rpartition("-")
    if not (topic and dash and is_number(partition)):
        raise ConfigurationError(f"--partition is {text!r}; give TOPIC-PARTITION, as readings-0")
    return PartitionId(topic, int(partition))


def _description(path: str) -> Disk:
    try:
        return decode(read_named(path).decode())
    except OSError as error:
        raise ConfigurationError(f"--disk {path} cannot be read: {reason(error)}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"--disk {path} is not UTF-8 at byte {error.start}") from None
    except DiskFault as fault:
        raise ConfigurationError(f"--disk {path} {fault}") from None


def _open(data_dir: str) -> DataDirectory:
    return DataDirectory(ReadOnlyDisk(), data_dir, lock_holder(f"{data_dir}/.lock"))
