"""What first boot makes of a card's settings."""

from __future__ import annotations

from hardware.flash.first_boot.first_boot import NEEDED_FILES, NEEDED_ROOT_FILES, FirstBoot, Kind, first_boot
from tests.support.card_images import LAYOUTS
from tests.support.first_boot import SETTINGS


def made(kind: Kind) -> FirstBoot:
    layout = LAYOUTS[kind]
    present = {**layout.boot, **{f"/{name}": text for name, text in layout.root.items()}}
    needed = (*NEEDED_FILES, *NEEDED_ROOT_FILES)
    return first_boot(kind, SETTINGS, {name: present[name] for name in needed if name in present})
