"""`kill -9` of a write at every stage of it: the card is either not bootable at all or whole.

Invariants: before `finish`, block 0 is zero, so no firmware finds a partition table, old or new; after it, the target
is the image; writing again over what a killed run left gives the image.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hardware.flash.device.writer import BLOCK_BYTES, CHUNK_BYTES, Target

CHUNKS = 3
KILLED = """
import os, signal, sys
from pathlib import Path
from hardware.flash.device.writer import Target

stage, content = sys.argv[1], open(sys.argv[2], "rb")

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def fill(buffer):
    if stage == str(content.tell()):
        die()
    return content.readinto(buffer)

with Target(Path(sys.argv[3]), create=True) as target:
    written = target.copy(fill, lambda done: die() if stage == f"written {done}" else None)
    if stage == "copied":
        die()
    target.check(written, lambda done: die() if stage == f"read {done}" else None)
    if stage == "checked":
        die()
    target.finish(written.head)
    die()
"""
STAGES = [
    *(str(number * CHUNK_BYTES) for number in range(CHUNKS)),
    *(f"{verb} {number * CHUNK_BYTES}" for verb in ("written", "read") for number in range(1, CHUNKS + 1)),
    "copied",
    "checked",
]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("image") / "image"
    path.write_bytes(random.Random(1).randbytes(CHUNKS * CHUNK_BYTES))
    return path


def killed_at(stage: str, image: Path, card: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, stage, image, card], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done


@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_write_does_not_boot_and_can_be_repeated(stage: str, image: Path, tmp_path: Path) -> None:
    card = tmp_path / "card"
    card.write_bytes(b"an old boot block" * 1000)
    killed_at(stage, image, card)
    assert card.read_bytes()[:BLOCK_BYTES] == bytes(BLOCK_BYTES)
    with Target(card, create=True) as target, image.open("rb") as file:
        written = target.copy(file.readinto, lambda _done: None)
        target.check(written, lambda _done: None)
        target.finish(written.head)
    assert card.read_bytes() == image.read_bytes()


def test_a_finished_write_is_whole_whatever_happens_next(image: Path, tmp_path: Path) -> None:
    card = tmp_path / "card"
    killed_at("after finish", image, card)
    assert card.read_bytes() == image.read_bytes()
