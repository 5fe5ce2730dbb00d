"""What Raspberry Pi's own first boot made of our files, written down by upstream/run.sh: not our reading of its code.

Programs: raspberrypi-sys-mods 3af395f, userconf-pi ca2620a, raspi-config 9c55e7b (bookworm, preseed); 99acc23, c2892a5,
f2fdc18 (bullseye); rpi-preseed 64c2986. Run in Debian's bookworm without a running systemd. A change of what the first
boot reads fails here: run upstream's programs again, as run.sh says, and read the difference.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from hardware.flash.first_boot.first_boot import HOST_KEY, Kind
from hardware.flash.first_boot.settings import wifi_key
from tests.support.first_boot import KEY, SETTINGS
from tests.support.first_boot_made import made

UPSTREAM = Path(__file__).with_name("upstream")
READ = {Kind.BOOKWORM: "custom.toml", Kind.BULLSEYE: "custom.toml", Kind.PRESEED: "rpi-preseed.toml"}


def outcome(kind: Kind) -> dict[str, str]:
    """Give the facts by name."""
    lines = (UPSTREAM / f"{kind}.txt").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.mark.parametrize("kind", READ)
def test_upstream_was_run_on_what_is_given_today(kind: Kind) -> None:
    content = made(kind).boot_files[READ[kind]]
    assert outcome(kind)["given"] == hashlib.sha256(content).hexdigest(), "run tests/golden/upstream/run.sh again"


@pytest.mark.parametrize("kind", READ)
def test_upstream_made_the_board_that_was_asked_for(kind: Kind) -> None:
    found = outcome(kind)
    assert (found["exit"], found["hostname"], found["hosts"]) == ("0", "pi-1", "pi-1")
    assert (found["user"], found["password"]) == ("site:x:1000:1000::/home/site:/bin/bash", "!")
    assert (found["keys"], found["keys file"]) == (KEY, "site 700 site 600")
    assert int(found["sudo"]) >= 1
    assert found["sudoers"] == "OK"
    assert found["sshd"] == f"hostkey {HOST_KEY} passwordauthentication no"
    assert found["ssh at boot"] == "yes"
    assert found["timezone"] == f"{SETTINGS.timezone} /usr/share/zoneinfo/{SETTINGS.timezone}"
    assert found["country"].endswith("=GB")


def test_upstream_joins_the_wireless_network_that_was_asked_for() -> None:
    assert SETTINGS.wifi is not None
    given = f"'{SETTINGS.wifi.ssid}' '{wifi_key(SETTINGS.wifi)}' '1' '0';"  # hidden, and no plain passphrase
    assert outcome(Kind.BULLSEYE)["wlan later"].endswith(given)
    for kind in (Kind.BOOKWORM, Kind.PRESEED):
        assert outcome(kind)["profiles"] == "edge-static.nmconnection edge-wifi.nmconnection"
