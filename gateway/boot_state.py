"""PURE: the boots that the state file `clock.json` holds, oldest first, the present one last.

| field of a boot | content |
|---|---|
| `boot_id` | /proc/sys/kernel/random/boot_id, or that of a journal entry |
| `marked` | whether a record was marked with it |
| `epoch_ms` | epoch milliseconds at which it began; null until its clock is synchronised |
| `published` | whether the broker has its epoch on disk |

Does not contain: clocks, files (gateway/state.py), and decisions (gateway/records/boot_times.py).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

BOOTS_MAX = 32


@dataclass(frozen=True, slots=True)
class Boot:
    """One boot of this machine, with the fields that are known."""

    boot_id: str
    marked: bool = False
    epoch_ms: int | None = None
    published: bool = False

    @property
    def is_due(self) -> bool:
        """Whether readers need its epoch, and the broker does not have it yet."""
        return self.marked and self.epoch_ms is not None and not self.published

    @property
    def is_unknown(self) -> bool:
        """Whether records were marked with it and its epoch is not known."""
        return self.marked and self.epoch_ms is None


class Boots:
    """The boots by their id, at most BOOTS_MAX; boots that are due are dropped last."""

    def __init__(self, present_id: str, saved: dict[str, Any] | None = None) -> None:
        """`saved` is what `content` returned before; raises ValueError for anything else."""
        found = [] if saved is None else [_boot(fields) for fields in _list_of_boots(saved)]
        self._boots = {boot.boot_id: boot for boot in found}
        self.previous = next((boot for boot in reversed(found) if boot.boot_id != present_id), None)
        self._present_id = present_id
        present = self._boots.pop(present_id, Boot(present_id))
        self._boots[present_id] = present

    @property
    def present(self) -> Boot:
        """The boot that runs."""
        return self._boots[self._present_id]

    def get(self, boot_id: str) -> Boot | None:
        """Return a boot, or None if it is unknown."""
        return self._boots.get(boot_id)

    def due(self) -> Boot | None:
        """Return the oldest boot whose epoch is to be published, or None."""
        return next((boot for boot in self._boots.values() if boot.is_due), None)

    def change(self, boot_id: str, **fields: Any) -> bool:
        """Change fields of a boot; return whether it differs now."""
        before = self._boots[boot_id]
        self._boots[boot_id] = replace(before, **fields)
        return self._boots[boot_id] != before

    def content(self) -> dict[str, Any]:
        """Return what the state file holds; boots beyond BOOTS_MAX are dropped first, the oldest that is not due."""
        while len(self._boots) > BOOTS_MAX:
            others = [boot for boot in self._boots.values() if boot.boot_id != self._present_id]
            del self._boots[min(others, key=lambda boot: boot.is_due).boot_id]
        return {"boots": [asdict(boot) for boot in self._boots.values()]}


def _list_of_boots(saved: dict[str, Any]) -> list[dict[str, Any]]:
    listed = saved.get("boots")
    if not isinstance(listed, list) or not all(isinstance(fields, dict) for fields in listed):
        raise ValueError("no list of boots")
    return listed


def _boot(fields: dict[str, Any]) -> Boot:
    boot_id, marked, published = fields.get("boot_id"), fields.get("marked"), fields.get("published")
    epoch_ms = fields.get("epoch_ms")
    if not isinstance(boot_id, str) or not isinstance(marked, bool) or not isinstance(published, bool):
        raise ValueError("no boot")
    if epoch_ms is not None and (not isinstance(epoch_ms, int) or isinstance(epoch_ms, bool) or epoch_ms < 0):
        raise ValueError("no epoch")
    return Boot(boot_id, marked, epoch_ms, published)
