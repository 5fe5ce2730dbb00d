"""Which tests wait for root: those that say so, and no test forgets to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import root

TESTS = Path(__file__).parents[2]
NEEDS = {
    " FuseDisk(": 'pytest.mark.root("fuse")',
    " small_device(": 'pytest.mark.root("mount")',
    "[*OWN_NETWORK,": 'pytest.mark.root("net")',
    " Lab(": "pytest.mark.root\n",  # nor hosts on links
    '"losetup",': "pytest.mark.root\n",  # no user namespace has loop devices
}


@pytest.mark.parametrize("needs", NEEDS)
def test_whoever_mounts_carries_the_marker(needs: str) -> None:
    users = [path for path in TESTS.rglob("test_*.py") if needs in path.read_text() and path != Path(__file__)]
    users = [path for path in users if f"def test_a_{needs.strip()}" not in path.read_text()]
    assert users, f"nobody uses {needs}"
    assert [path.name for path in users if NEEDS[needs] not in path.read_text()] == []


def test_an_ordinary_user_runs_what_he_was_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root, "is_root", lambda: False)
    monkeypatch.setattr(root, "_GRANTED", {"fuse": lambda: False, "mount": lambda: True})
    assert root.may_run(("mount",))
    assert not root.may_run(("fuse",))
    assert not root.may_run(())
    monkeypatch.setattr(root, "is_root", lambda: True)
    assert root.may_run(())
