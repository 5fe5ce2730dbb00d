"""What `check --connect` reports of the target's transactional ids: none at all, a denied one, a denied spare one.

Does not contain: what Apache Kafka answers (tests/conformance/test_transactional_rights.py).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror import app
from mirror.config import Config

OWN = "__edge-mirror-lab-state"
CONFIG = replace(Config(source="s:1", target="t:2", topics="readings", site="lab"), transactions=True)


class Asked:
    """A target that denies operations on transactional ids."""

    def __init__(self, denied, *, has_them=True):
        self.denied, self.has_them, self.ids, self.is_closed = denied, has_them, [], False

    async def has_fences(self):
        return self.has_them

    async def denied_operations(self, ids):
        self.ids = ids
        return self.denied

    async def close(self):
        self.is_closed = True


@pytest.mark.parametrize(
    ("target", "well", "out", "err"),
    [
        (Asked({}), True, "target: ok, it has transactions\n", ""),
        (Asked({}, has_them=False), False, f"target: {app.NO_TRANSACTIONS}\n", ""),
        (
            Asked({OWN: ["Write"], f"{OWN}~2": ["Write"]}),
            False,
            f"target: no Write on the transactional id {OWN}. {app.GRANT}\n",
            "",
        ),
        (
            Asked({f"{OWN}~3": ["Write", "Describe"]}),
            True,
            "target: ok, it has transactions\n",
            f"WARNING: target: no Write and Describe on {OWN}~3: {app.HELD_WITHOUT_SPARES}. {app.GRANT}\n",
        ),
        (
            Asked({f"{OWN}~4": ["Describe"], f"{OWN}~2": ["Write"], f"{OWN}~3": ["Write"]}),
            True,
            "target: ok, it has transactions\n",
            f"WARNING: target: no Write and Describe on {OWN}~2, {OWN}~3 and {OWN}~4: {app.HELD_WITHOUT_SPARES}. "
            f"{app.GRANT}\n",
        ),
    ],
)
async def test_what_is_missing_is_named(monkeypatch, capsys, target, well, out, err):
    monkeypatch.setattr(app, "Target", lambda _: target)
    assert await app.has_transactions(CONFIG) is well
    assert capsys.readouterr() == (out, err)
    assert target.is_closed
    assert target.ids == ([OWN, f"{OWN}~2", f"{OWN}~3", f"{OWN}~4"] if target.has_them else [])
