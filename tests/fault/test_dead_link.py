"""A link that drops everything is known to be dead by the kernel's own clock, whether bytes are on their way or not."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.dead_link import SILENT_S
from tests.support.root import OWN_NETWORK
from tests.support.waiting import CALL_S

pytestmark = pytest.mark.root("net")


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_link_that_drops_everything_is_given_up(loop):
    command = [*OWN_NETWORK, sys.executable, "-m", "tests.support.dead_link", loop]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_S, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {"waiting", "writing"}
    for case in found.values():
        assert f"acknowledged nothing for {SILENT_S:g} s" in case["said"]
        assert not case["refused"]
        assert case["after_s"] < CALL_S / 2  # before the requests' own time, which would end it as well


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_link_that_is_back_is_tried_at_once(loop):
    command = [*OWN_NETWORK, sys.executable, "-m", "tests.support.link_back", loop]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_S, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert 1 <= found["comes"] <= 4, "link, address, carrier and routes are told together"
    assert found["hangs"] >= 1
    assert found["carrier"] >= 2
