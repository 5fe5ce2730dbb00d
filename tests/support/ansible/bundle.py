"""A site with a signed bundle: the parts, the keys, and a board that unpacks it."""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.ansible_files import load

PART, OTHER = "wheels-cp311-aarch64.tar", "packages-bookworm-arm64.tar"
script: ModuleType = load("roles/drupelet/files/bundle.py")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the site's key and a stranger's."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("site", "stranger"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", folder / name], check=True)
    return folder


def tar_of(files: dict[str, bytes]) -> bytes:
    """Return a flat tar, as bundle.sh packs it."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return made.getvalue()


class BundleSite:
    """A bundle in `folder`, what was made here, and a board that has something in use."""

    def __init__(self, place: Path, keys: Path) -> None:
        self.folder, self.made, self.keys = place / "bundle", place / "made", keys
        self.board, self.state = place / "board", place / "state"
        for path in (self.folder, self.made, self.board):
            path.mkdir()
        self.public = (keys / "site.pub").read_text().strip()
        self.write(PART, tar_of({"lz4-1.whl": b"lz4", "crc32c-2.whl": b"crc"}))
        self.write(OTHER, tar_of({"Packages": b"Package: chrony\n", "chrony_4.3-2+deb12u1_arm64.deb": b"deb"}))
        (self.board / "lz4-1.whl").write_text("in use")

    def write(self, name: str, content: bytes, *, made_here: bool = True) -> None:
        """Put a part into the bundle, with its line in SHA256SUMS, as bundle.sh does."""
        (self.folder / name).write_bytes(content)
        found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in self.folder.glob("*.tar")}
        (self.folder / "SHA256SUMS").write_text("".join(f"{sums}  {one}\n" for one, sums in sorted(found.items())))
        if made_here:
            (self.made / found[name]).touch()

    def sign(self, key: str | None = "site") -> str:
        made: str = script.sign(self.folder, self.made, self.keys / key if key else None)
        return made

    def ticket(self, name: str = PART, *, signed: bool = True) -> str:
        found: str = script.ticket(self.folder, [name], [self.public] if signed else [])
        return found

    def check(self) -> None:
        script.check(self.folder, [self.public])

    def play(self, name: str = PART, *, signed: bool = True, older: bool = False) -> None:
        """Do what the role does: a ticket on the control node, a copy, then the board verifies and unpacks."""
        ticket = self.ticket(name, signed=signed)
        shutil.copy(self.folder / name, self.board / name)
        script.unpack(self.board / name, ticket, older=older)

    def has(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.board.iterdir()}


@pytest.fixture
def site(tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> BundleSite:
    monkeypatch.setattr(script, "SERIAL", tmp_path / "state/bundle-serial")
    return BundleSite(tmp_path, keys)


UNPACKED = {"lz4-1.whl": "lz4", "crc32c-2.whl": "crc"}


def with_its_sum(site: BundleSite) -> None:
    """Whoever changes a part can change SHA256SUMS, too."""
    site.write(PART, tar_of({"lz4-1.whl": b"evil"}), made_here=False)


def additional(site: BundleSite) -> None:
    (site.folder / "wheels-cp313-aarch64.tar").write_bytes(b"")


def signed_by_a_stranger(site: BundleSite) -> None:
    with_its_sum(site)
    for path in site.folder.glob("*.tar"):
        (site.made / hashlib.sha256(path.read_bytes()).hexdigest()).touch()
    site.sign("stranger")
