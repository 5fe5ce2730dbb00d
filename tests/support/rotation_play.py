"""What the roles do at a broker in one run, without hosts: read its users, plan, make, and list which it has.

`Play` follows ansible/roles/broker/tasks/users.yml step by step; `interrupted_at` ends a run between two of its steps.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.support.ansible_files import ANSIBLE, load

SCRIPT = ANSIBLE / "roles/broker/files/access.py"
STEPS = ("known first", "made", "known", "told")


class Play:
    """The runs against one data directory; `known` and `told` are the board's files of these names."""

    def __init__(self, data_dir: Path) -> None:
        """Begin without files, as a new board."""
        self.data_dir = data_dir
        self.known: set[str] = set()
        self.told: list[str] = []
        self.holding: list[str] = []
        self.overtaken_by: list[str] = []
        self._rotation: Any = load("plugins/action/site_rotation.py")

    def run(
        self,
        users: Mapping[str, str],
        acls: list[list[str]],
        *,
        owners: Mapping[str, list[str]] | None = None,
        removed: Mapping[str, int] | None = None,
        now: bool = False,
        unseen: Mapping[str, list[str]] | None = None,
        interrupted_at: str = "",
        meanwhile: Callable[[], object] = lambda: None,
    ) -> list[str]:
        """Run the play; the lines of what changed, empty where it was interrupted before that.

        Another run does `meanwhile`, between the plan and the change; `overtaken_by` has the users that it changed.
        """
        rotation = self._rotation
        found = self.held()
        held = rotation.broker_held(found, ())
        wanted = rotation.Order(users, acls, owners or {}, removed or {}, now, unseen or {})
        plan = rotation.plan(wanted, held, self.known)
        self.holding = [row["user"] for row in plan.holding]
        made = {*users, *plan.kept}
        self.known |= made
        if interrupted_at == "known first":
            return []
        order = {
            "data_dir": str(self.data_dir),
            "users": dict(users),
            "acls": plan.acls,
            "known": sorted(self.known | set(plan.ended)),
            "kept": plan.kept,
            "moved": plan.moved,
            "planned": list(found),
        }
        meanwhile()
        answer = self._script(order)
        changed: list[str] = answer["changed"]
        self.overtaken_by = answer["meanwhile"]
        if self.overtaken_by:
            return []
        if interrupted_at == "made":
            return changed
        self.known = made
        if interrupted_at != "known":
            self.told = sorted(made)
        return changed

    def held(self) -> dict[str, dict[str, Any]]:
        """Return the broker's users with the times of their log-ins."""
        found: dict[str, dict[str, Any]] = self._script({"data_dir": str(self.data_dir), "show": True})["held"]
        return found

    def _script(self, order: Mapping[str, Any]) -> dict[str, Any]:
        command = [sys.executable, "-I", str(SCRIPT)]
        done = subprocess.run(
            command, input=json.dumps(order), capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer
