"""What is put in place of the page's own words where no card, no board and no way out is, and why.

`CARD` serves wherever cards are files; `LAB` is needed beside it where the boards are hosts of the lab. All else on the
page runs as it stands.
"""

from __future__ import annotations

from tests.page.script import Substitution
from tests.support.card_images import BOOT_START, ROOT_START

IMAGE = "raspios-trixie-arm64-lite.img.xz"
CARD_FILE = "$HOME/cards/pi-1.img"

CARD = (
    Substitution(
        "73764994…                        ",
        "IMAGE_SHA256 ",
        "the image is a small one in Raspberry Pi OS's layout, as the real one cannot be fetched and holds 3 GB",
    ),
    Substitution(
        "flash_to: /dev/sdb                             # or a file, after `mkdir ~/cards`: ",
        "flash_to: ",
        "there is no card reader: the page's other suggestion, a file, is taken",
    ),
    Substitution("The settings of the cards are in", "mkdir ~/cards", "that suggestion's command", prose=True),
    Substitution("--to /dev/sdb --host pi-1", f"--to {CARD_FILE}.single --host pi-1", "the same"),
    Substitution(f"edge-board flash {IMAGE}", f"edge-board flash ~/{IMAGE}", "the image lies in the home folder"),
    Substitution("/dev/sdb1", f"{CARD_FILE}@@{BOOT_START}", "a partition of a file is named by where it begins"),
    Substitution("/dev/sdb2", f"'{CARD_FILE}?offset={ROOT_START}'".replace("'$HOME", "$HOME'"), "the same"),
    Substitution("sudo ", "", "the card is a file of the reader's own"),
)
LAB = (
    Substitution(
        "on `dc-1` it is a user that exists there",
        "ssh-keyscan -T 60 10.77.0.21 >>~/.ssh/known_hosts",
        "the one login that the page asks for",
        prose=True,
    ),
    Substitution(
        "Put the cards in and switch the boards on.",
        "touch ~/boards-on; until [ -e ~/boards-are-on ]; do sleep 1; done",
        "a host of the lab starts in place of a board, with user, key, sudo and host key as its card would give them",
        prose=True,
    ),
    Substitution(
        "  vars: {ansible_user: site}",
        "  vars: {ansible_user: site, gateway_clock_trusted: true}",
        "a host of the lab may not ask the kernel about its clock",
    ),
    Substitution(
        "edge-board health --check",
        "edge-board health --check | tee ~/health || "
        "grep -qE '^(WARNING|CRITICAL|UNKNOWN: clock_synchronised is unknown: the kernel refuses adjtimex)' ~/health",
        "a host of the lab has no watchdog, and systemd-nspawn lets it ask no clock: a finding is a status of its own",
    ),
    Substitution(
        "This installs a newer checkout on the boards",
        'sed -i \'s/^version = "\\(.*\\)"/version = "\\1.post1"/\' ../pyproject.toml',
        "the checkout becomes newer: another version of the same code",
        prose=True,
    ),
    Substitution(
        "ansible-playbook -i localhost, playbooks/bundle.yml -e bundle_dir=/media/usb/bundle",
        "true",
        "makes 1.5 GB for four platforms; each `make molecule` makes and uses a bundle",
    ),
    Substitution(
        "ansible-playbook -i inventories/plant-7 playbooks/provision.yml -e drupelet_bundle=/media/usb/bundle",
        "true",
        "the same",
    ),
)
