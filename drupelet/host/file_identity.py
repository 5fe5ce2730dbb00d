"""Identify the file of a path, so that a program sees a replacement, a write, or a change of permissions.

Contains: one call of stat. Does not contain: the content of a file. Source: stat(2), inode(7).
"""

from __future__ import annotations

import os

FileIdentity = tuple[int, ...]
MISSING: FileIdentity = ()


def file_identity(path: str | os.PathLike[str]) -> FileIdentity:
    """Return the identity of the file at `path`, after links; MISSING if there is none, or no permission.

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
