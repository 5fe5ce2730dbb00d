"""The wheel that playbooks build: two runs from one checkout at the same time do not take it from each other."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "ansible/playbooks/files/wheel.sh"
NAME = "drupelet-1.2.3-py3-none-any.whl"
# Instead of Python with pip: it writes $CONTENT into the folder it is given, then waits until $WAIT_FOR is there.
PIP = (
    """#!/bin/bash
for word; do case $word in --wheel-dir=*) folder=${word#*=} ;; esac; done
printf %s "$CONTENT" >"$folder/"""
    + NAME
    + """"
if [ -n "$WAIT_FOR" ]; then touch "$WAIT_FOR.$CONTENT"; fi
until [ -z "$WAIT_FOR" ] || [ -e "$WAIT_FOR" ]; do sleep 0.01; done
exit ${STATUS:-0}
"""
)


class Checkout:
    """A checkout, a folder for wheels, and a pip that builds what it is told."""

    def __init__(self, path: Path) -> None:
        self.path, self.wheels, self.pip = path / "checkout", path / "wheels", path / "pip"
        self.path.mkdir()
        (self.path / "pyproject.toml").touch()
        self.pip.write_text(PIP)
        self.pip.chmod(0o755)

    def start(self, content: str, wait_for: str = "", status: int = 0) -> subprocess.Popen[str]:
        more = {"PYTHON": str(self.pip), "CONTENT": content, "WAIT_FOR": wait_for, "STATUS": str(status)}
        command = [str(SCRIPT), str(self.path), str(self.wheels)]
        return subprocess.Popen(
            command, env=os.environ | more, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def build(self, content: str) -> Path:
        return printed(self.start(content))

    def names(self) -> list[str]:
        return sorted(path.name for path in self.wheels.iterdir() if path.is_dir())


def printed(process: subprocess.Popen[str]) -> Path:
    said, complaint = process.communicate(timeout=60)
    assert process.returncode == 0, complaint
    assert complaint == ""
    return Path(said.removesuffix("\n"))


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_the_same_content_has_the_same_place_and_other_content_another(checkout: Checkout) -> None:
    first = checkout.build("one")
    assert (first.name, first.read_text()) == (NAME, "one")
    assert checkout.build("one") == first
    assert checkout.build("two") != first
    assert first.read_text() == "one"
    assert os.stat(first.parent).st_mode & 0o777 == 0o755


def test_two_runs_at_the_same_time_each_get_their_own(checkout: Checkout, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    running = [checkout.start(content, str(gate)) for content in ("one", "two")]
    try:
        # Both are in the middle of it before either may end.
        for process, content in zip(running, ("one", "two"), strict=True):
            while not (tmp_path / f"gate.{content}").exists():
                assert process.poll() is None
        gate.touch()
        assert [printed(process).read_text() for process in running] == ["one", "two"]
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert len(checkout.names()) == 2


def test_what_is_a_day_old_goes_and_what_this_run_needs_stays(checkout: Checkout) -> None:
    old, same, young = checkout.build("old"), checkout.build("same"), checkout.build("young")
    killed = checkout.wheels / "part.killed"
    killed.mkdir()
    for path in (old.parent, same.parent, killed):
        os.utime(path, (0, 0))
    assert checkout.build("same") == same
    assert (old.exists(), same.exists(), young.exists(), killed.exists()) == (False, True, True, False)


def test_a_build_that_fails_leaves_nothing_and_says_so(checkout: Checkout) -> None:
    process = checkout.start("one", status=1)
    said, _ = process.communicate(timeout=60)
    assert (process.returncode, said, checkout.names()) == (1, "", [])


def test_what_is_no_checkout_is_refused_before_anything_is_made(checkout: Checkout) -> None:
    (checkout.path / "pyproject.toml").unlink()
    process = checkout.start("one")
    said, complaint = process.communicate(timeout=60)
    assert (process.returncode, said) == (1, "")
    assert (
        complaint
        == f"{checkout.path} is no checkout of Drupelet, so no wheel can be built from it: set drupelet_wheel to one.\n"
    )
    assert not checkout.wheels.exists()
