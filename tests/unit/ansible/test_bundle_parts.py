"""The parts of a bundle: one that something else put into the folder is made again, never taken for the own one.

`bundle.sh add` asks no index; parts from the index are tests/e2e/test_bundle.py's.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.ansible_files import ANSIBLE, load

SCRIPT = ANSIBLE / "playbooks/bundle/bundle.sh"
NAME = "jars-kafka.tar"
signer = load("roles/drupelet/files/bundle.py")


class Maker:
    """A folder in which a bundle is made, on a machine that has made others."""

    def __init__(self, place: Path) -> None:
        self.folder, self.cache, self.jars = place / "bundle", place / "cache", place / "jars.tar"
        self.jars.write_bytes(b"the pinned jars")
        self.key = place / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key], check=True)

    def add(self) -> str:
        environment = os.environ | {"BUNDLE_DIR": str(self.folder), "BUNDLE_CACHE": str(self.cache)}
        command = [SCRIPT, "add", self.jars, NAME]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()

    def sign(self) -> str:
        made: str = signer.sign(self.folder, self.cache / "made", self.key)
        return made


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    made = Maker(tmp_path)
    assert made.add() == "made"
    return made


def test_what_was_made_here_is_listed_and_not_made_again(maker: Maker) -> None:
    assert maker.sign() == "made"
    assert maker.add() == "unchanged"
    assert maker.sign() == "unchanged"
    assert {path.name for path in maker.folder.iterdir()} == {NAME, "SHA256SUMS", "MANIFEST", "MANIFEST.sig"}


def test_a_part_of_the_same_size_with_other_bytes_is_made_again(maker: Maker) -> None:
    (maker.folder / NAME).write_bytes(b"the strange jar")
    assert maker.add() == "made"
    assert (maker.folder / NAME).read_bytes() == b"the pinned jars"


def test_a_link_is_replaced_by_the_part_and_its_target_is_left_alone(maker: Maker, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (maker.folder / NAME).rename(elsewhere)
    (maker.folder / NAME).symlink_to(elsewhere)
    assert maker.add() == "made"
    assert not (maker.folder / NAME).is_symlink()
    assert maker.sign() == "made"


def test_what_earlier_releases_kept_beside_the_parts_is_removed(maker: Maker) -> None:
    (maker.folder / ".wheels-cp311-aarch64.tar.from").write_text("36 gateway")
    assert maker.add() == "unchanged"
    assert maker.sign() == "made"


def test_a_part_that_somebody_removed_is_not_listed(maker: Maker) -> None:
    """To save room on a stick, such as that of a platform that the site has not."""
    (maker.folder / NAME).unlink()
    assert maker.sign() == "made"
    assert NAME not in signer.check(maker.folder, [signer.public_key(maker.key)]).files


def test_a_part_that_was_changed_with_its_sum_is_not_signed(maker: Maker) -> None:
    changed = maker.folder / NAME
    changed.write_bytes(b"the strange jar")
    command = ["sha256sum", NAME]
    (maker.folder / "SHA256SUMS").write_bytes(subprocess.check_output(command, cwd=maker.folder))
    with pytest.raises(signer.Trouble, match="was changed or was not made here, so it is not signed"):
        maker.sign()
