"""Tie a checkpoint to one job, on one topic of one Kafka cluster, and to one process at a time.

Contains: the directory's lock, and `job.json` in it: JSON with `job`, `topic`, `window_ms`, and `cluster_id` once the
broker has returned it. Does not contain: Spark's files below it. On a remote file system (`hdfs://…`) neither exists.
"""

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from drupelet.errors import CommandFailed, ConfigurationError, reason
from spark.config import Settings

IDENTITY = "job.json"
OLD_LAYOUT = "finished_windows_progress"  # queries of version 0.1.0's first builds: their state is unreadable
NEW_ONE = "give a new --checkpoint, and results are computed again from what the topic still holds"
FULL = {errno.ENOSPC, errno.EDQUOT}


@contextmanager
def opened_checkpoint(settings: Settings, job: str) -> Iterator[None]:
    """Make the directory, lock it, check that no other job has claimed it; raises ConfigurationError, CommandFailed."""
    place = local_path(settings.checkpoint)
    if place is None:
        yield
        return
    descriptor = lock_checkpoint(place)
    try:
        if (place / OLD_LAYOUT).exists():
            raise ConfigurationError(f"{place} is a checkpoint of an older edge-spark: {NEW_ONE}")
        compare(place, identity_of(settings, job))
        yield
    finally:
        os.close(descriptor)


def claim_checkpoint(settings: Settings, job: str) -> None:
    """Write the job's identity to an opened checkpoint, after all other checks; raises ConfigurationError."""
    place = local_path(settings.checkpoint)
    if place is not None:
        agree(place, identity_of(settings, job))


def identity_of(settings: Settings, job: str) -> dict[str, str | int]:
    """Return the values that a checkpoint and its job must share."""
    return {"job": job, "topic": settings.topic, "window_ms": settings.window_ms}


def local_path(checkpoint: str) -> Path | None:
    """Return a checkpoint's local directory, or None if it is on another file system."""
    parts = urlsplit(checkpoint)
    if parts.scheme not in ("", "file"):
        return None
    return Path(parts.path if parts.scheme else checkpoint)


def lock_checkpoint(place: Path) -> int:
    """Make the directory and lock it for this process; return the lock's descriptor."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(place / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise unusable(place, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno == errno.EWOULDBLOCK:
            raise CommandFailed(f"another edge-spark uses {place}: stop it, or give another --checkpoint") from error
        raise unusable(place, error) from error
    return descriptor


def unusable(place: Path, error: OSError) -> Exception:
    """Return the error for a checkpoint that cannot be written."""
    if error.errno in FULL:
        return CommandFailed(f"{place} cannot be written: {reason(error)}: make room on its disk")
    return ConfigurationError(
        f"the checkpoint {place} cannot be written ({reason(error)}): give its directory to this user, or name "
        "another one with --checkpoint"
    )


def agree(place: Path, now: dict[str, str | int]) -> None:
    """Compare the identity of a checkpoint with that of the job, and write new values."""
    before = compare(place, now)
    if before.items() >= now.items():
        return
    try:
        write(place / IDENTITY, before | now)
    except OSError as error:
        raise unusable(place, error) from error


def compare(place: Path, now: dict[str, str | int]) -> dict[str, str | int]:
    """Return the identity of a checkpoint; raises ConfigurationError if `now` contradicts it."""
    path = place / IDENTITY
    try:
        before = json.loads(path.read_text()) if path.exists() else {}
        if not isinstance(before, dict):
            raise ValueError("no JSON object")
    except ValueError as error:
        raise ConfigurationError(
            f"{path} is damaged ({error}): delete it if you know whose it is, or {NEW_ONE}"
        ) from error
    except OSError as error:
        raise unusable(place, error) from error
    for name, value in now.items():
        if name in before and before[name] != value:
            raise ConfigurationError(f"{place} is the checkpoint of {name}={before[name]}, not {value}: {NEW_ONE}")
    return before


def agree_on_cluster(settings: Settings, cluster_id: str | None) -> None:
    """Refuse a checkpoint with offsets of another Kafka cluster; raises ConfigurationError."""
    place = local_path(settings.checkpoint)
    if place is not None and cluster_id:
        agree(place, {"cluster_id": cluster_id})


def write(path: Path, identity: dict[str, str | int]) -> None:
    """Replace the file, whole and synced."""
    new = path.with_name(f".{path.name}.new")
    with new.open("w") as file:
        json.dump(identity, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
