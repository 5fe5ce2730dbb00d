"""Decide which entries a configuration chooses, as journalctl's `--unit=` and `--priority=` do.

| unit U chooses an entry with | of |
|---|---|
| `_SYSTEMD_UNIT=U` | the unit's own processes |
| `MESSAGE_ID=` of a core dump, `_UID=0`, `COREDUMP_UNIT=U` | systemd-coredump about the unit |
| `_PID=1`, `UNIT=U` | systemd about the unit |
| `_UID=0`, `OBJECT_SYSTEMD_UNIT=U` | root's programs about the unit |
| `_SYSTEMD_SLICE=U`, where U is a slice | the slice's processes |

A name without a suffix is a service; `*`, `?` and `[...]` match, also units that log for the first time.
Source: journalctl(1), add_matches_for_unit of systemd 252.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import translate

_COREDUMP_MESSAGE_ID = b"fc2e22bc6ee647b6b90729ab34a250b1"
_SUFFIXES = ("service", "socket", "device", "mount", "automount", "swap", "target", "path", "timer", "slice", "scope")
_UNIT_FIELDS = (
    "_SYSTEMD_UNIT",
    "MESSAGE_ID",
    "_UID",
    "COREDUMP_UNIT",
    "_PID",
    "UNIT",
    "OBJECT_SYSTEMD_UNIT",
    "_SYSTEMD_SLICE",
)

Texts = Mapping[str, Sequence[bytes]]  # the values of each field


def unit_name(name: str) -> str:
    """Return a unit's full name, as systemd completes it."""
    return name if name.rpartition(".")[2] in _SUFFIXES and "." in name else f"{name}.service"


class Selection:
    """The entries that `units` and `priority` leave."""

    def __init__(self, units: Sequence[str], priority_max: int | None) -> None:
        """Choose entries of any of the units, all without one, at most of a priority, 0 emerg to 7 debug."""
        names = [unit_name(unit) for unit in units]
        self._unit = re.compile("|".join(map(translate, names))) if names else None
        self._slice = re.compile("|".join(translate(name) for name in names if name.endswith(".slice")) or r"(?!)")
        self._priorities = None if priority_max is None else {b"%d" % level for level in range(priority_max + 1)}
        self.fields = (*(_UNIT_FIELDS if names else ()), *(("PRIORITY",) if self._priorities else ()))

    @property
    def chooses_all(self) -> bool:
        """Whether no entry is left out."""
        return self._unit is None and self._priorities is None

    def chooses(self, fields: Texts) -> bool:
        """Return whether an entry with these fields is chosen."""
        if self._priorities is not None and self._priorities.isdisjoint(fields.get("PRIORITY", ())):
            return False
        return self._unit is None or self._is_of_unit(fields)

    def _is_of_unit(self, fields: Texts) -> bool:
        by_root = b"0" in fields.get("_UID", ())
        return (
            self._matches(fields, "_SYSTEMD_UNIT")
            or (
                by_root
                and _COREDUMP_MESSAGE_ID in fields.get("MESSAGE_ID", ())
                and self._matches(fields, "COREDUMP_UNIT")
            )
            or (b"1" in fields.get("_PID", ()) and self._matches(fields, "UNIT"))
            or (by_root and self._matches(fields, "OBJECT_SYSTEMD_UNIT"))
            or any(self._slice.fullmatch(_text(value)) for value in fields.get("_SYSTEMD_SLICE", ()))
        )

    def _matches(self, fields: Texts, name: str) -> bool:
        assert self._unit is not None
        return any(self._unit.fullmatch(_text(value)) for value in fields.get(name, ()))


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
