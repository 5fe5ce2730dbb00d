"""Which file a path names, so that a program sees when it is replaced, written to, or given other rights.

Contains: one call of stat. Does not contain: what a file holds. Source: stat(2), inode(7).
"""

from __future__ import annotations

import os

FileIdentity = tuple[int, ...]
MISSING: FileIdentity = ()


def file_identity(path: str | os.PathLike[str]) -> FileIdentity:
    """Return what identifies the file at `path`, behind links; MISSING where none can be looked at.

    The time of the last change counts: chmod, chown and setfacl set it and leave size and modification time.
    """
    try:
        found = os.stat(path)
    except OSError:
        return MISSING
    return (
        found.st_dev,
        found.st_ino,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
        found.st_mode,
        found.st_uid,
        found.st_gid,
    )
