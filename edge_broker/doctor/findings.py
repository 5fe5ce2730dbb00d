"""Findings of a check: each with its file, the byte, the problem and the remedy.

Contains: the value and its texts, and the one check that fits every file of state. Does not contain: what else is
right or wrong.
"""

from __future__ import annotations

from typing import NamedTuple

from edge_broker.errors import StorageFault
from edge_broker.storage.files.atomic_files import decode_state, read_whole
from edge_broker.storage.files.filesystem import FileSystem
from edge_broker.storage.metadata.security_store import NAME, VERSION_OF_COPY

REPAIR = "stop the broker and run `edge-broker log repair`"
REFETCH = (
    "start the broker; if it stays damaged, move the partition's directory away before a start, and the board fetches "
    "the partition from the others"
)


class Finding(NamedTuple):
    """One thing worth saying; `damage`: something is not as the broker left it."""

    damage: bool
    path: str
    position: int
    reason: str

    def __str__(self) -> str:
        return f"{'damage' if self.damage else 'note'}: {self.path} at byte {self.position}: {self.reason}"


class Findings(list[Finding]):
    """Findings in the order in which they were made."""

    def damage(self, path: str, position: int, reason: str) -> None:
        """Note something that is not as the broker left it; `reason` ends in the remedy."""
        self.append(Finding(True, path, position, reason))

    def note(self, path: str, position: int, reason: str) -> None:
        """Note something that is worth knowing and no damage."""
        self.append(Finding(False, path, position, reason))

    def fault(self, fault: StorageFault) -> None:
        """Note what storage itself says of a file."""
        self.damage(fault.path, fault.position, fault.reason)

    def of_replicas(self) -> Findings:
        """Return the same with the remedy for a board of a cluster, on which no repair runs."""
        return Findings(
            finding._replace(reason=finding.reason.partition(REPAIR)[0] + REFETCH)
            if REPAIR in finding.reason
            else finding
            for finding in self
        )

    @property
    def has_damage(self) -> bool:
        """True when anything is not as the broker left it."""
        return any(finding.damage for finding in self)


def check_other(fs: FileSystem, path: str, findings: Findings) -> None:
    """Check a file that nothing else has checked: a file of state by its CRC, any other is unknown."""
    try:
        data = read_whole(fs, path)
        words = data[:200].split(b" ")
        if words[0] == b"drupelet" and len(words) > 3:
            kind = words[1].decode(errors="replace")
            decode_state(path, data, kind, VERSION_OF_COPY if kind == NAME else 1)
            return
    except FileNotFoundError:
        return
    except StorageFault as fault:
        findings.fault(fault)
        return
    except (OSError, UnicodeDecodeError):  # a directory, or no text at all
        pass
    findings.note(path, 0, "is no file of the broker's; move it away when nobody needs it")
