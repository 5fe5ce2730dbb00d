"""A bundle is verified before anything of it is used: on the control node as a whole, on the board file by file.

ssh-keygen is the real one. Refused is whatever the key of the site did not sign; what a board has stays as it is.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.ansible.bundle import (
    OTHER,
    PART,
    UNPACKED,
    BundleSite,
    additional,
    keys,
    script,
    signed_by_a_stranger,
    site,
    tar_of,
    with_its_sum,
)
from tests.support.ansible_files import ANSIBLE

__all__ = ["keys", "site"]  # fixtures

SCRIPT = ANSIBLE / "roles/drupelet/files/bundle.py"


IN_USE = {"lz4-1.whl": "in use"}

# --- what is right ---------------------------------------------------------------------------------------------------


def test_a_signed_bundle_is_used_and_the_copy_is_removed(site: BundleSite) -> None:
    assert site.sign() == "made"
    site.check()
    site.play()
    assert site.has() == UNPACKED
    assert (site.board / "lz4-1.whl").stat().st_mode & 0o777 == 0o644


def test_signing_again_changes_nothing_and_a_new_part_gets_a_higher_serial(site: BundleSite) -> None:
    site.sign()
    first = (site.folder / "MANIFEST").read_text()
    assert site.sign() == "unchanged"
    assert (site.folder / "MANIFEST").read_text() == first
    site.write(PART, tar_of({"lz4-1.whl": b"newer"}))
    assert site.sign() == "made"
    assert script.parse((site.folder / "MANIFEST").read_text())[0] > script.parse(first)[0]
    site.check()


def test_a_clock_that_was_set_back_makes_no_older_bundle(site: BundleSite, monkeypatch: pytest.MonkeyPatch) -> None:
    site.sign()
    site.play()
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    site.write(PART, tar_of({"lz4-1.whl": b"newer"}))
    site.sign()
    site.play()
    assert site.has()["lz4-1.whl"] == "newer"


def test_a_site_with_two_keys_takes_bundles_of_both(site: BundleSite) -> None:
    other = (site.keys / "stranger.pub").read_text().strip()
    for key in ("site", "stranger"):
        site.sign(key)
        script.check(site.folder, [site.public, other])


def test_a_bundle_without_a_key_is_used_where_the_site_has_none(site: BundleSite) -> None:
    assert site.sign(None) == "made"
    assert not (site.folder / "MANIFEST.sig").exists()
    site.play(signed=False)
    assert site.has() == UNPACKED


def test_a_bundle_from_before_the_manifest_is_used_where_the_site_has_no_key(site: BundleSite) -> None:
    site.play(signed=False)
    assert site.has() == UNPACKED


# --- what is refused on the control node -----------------------------------------------------------------------------


def changed(site: BundleSite) -> None:
    content = bytearray((site.folder / PART).read_bytes())
    content[600] ^= 1
    (site.folder / PART).write_bytes(content)


def with_its_manifest(site: BundleSite) -> None:
    with_its_sum(site)
    files = {
        path.name: script.File(hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size)
        for path in site.folder.iterdir()
        if not path.name.startswith("MANIFEST")
    }
    (site.folder / "MANIFEST").write_text(script.manifest_of(int(time.time()), files))


def cut_short(site: BundleSite) -> None:
    os.truncate(site.folder / PART, 700)


def missing(site: BundleSite) -> None:
    (site.folder / OTHER).unlink()


def hidden(site: BundleSite) -> None:
    (site.folder / ".wheels.from").write_bytes(b"")


def a_folder(site: BundleSite) -> None:
    (site.folder / "more").mkdir()


def renamed(site: BundleSite) -> None:
    (site.folder / PART).rename(site.folder / "wheels-cp313-aarch64.tar")


def swapped(site: BundleSite) -> None:
    (site.folder / PART).rename(site.folder / "x")
    (site.folder / OTHER).rename(site.folder / PART)
    (site.folder / "x").rename(site.folder / OTHER)


def a_link(site: BundleSite) -> None:
    """The same bytes today; whoever has its target changes them afterwards."""
    (site.folder / PART).rename(site.folder.parent / "elsewhere")
    (site.folder / PART).symlink_to("../elsewhere")


def a_linked_manifest(site: BundleSite) -> None:
    (site.folder / "MANIFEST").rename(site.folder.parent / "elsewhere")
    (site.folder / "MANIFEST").symlink_to("../elsewhere")


def a_pipe(site: BundleSite) -> None:
    (site.folder / PART).unlink()
    os.mkfifo(site.folder / PART)


def unsigned(site: BundleSite) -> None:
    (site.folder / "MANIFEST.sig").unlink()


def without_a_manifest(site: BundleSite) -> None:
    unsigned(site)
    (site.folder / "MANIFEST").unlink()


def signed_for_something_else(site: BundleSite) -> None:
    """The site's key may sign other things, such as commits: those signatures are none of bundles."""
    manifest = (site.folder / "MANIFEST").read_bytes()
    words = ["ssh-keygen", "-Y", "sign", "-q", "-f", site.keys / "site", "-n", "git"]
    (site.folder / "MANIFEST.sig").write_bytes(subprocess.check_output(words, input=manifest))


REFUSED: list[tuple[Callable[[BundleSite], None], str]] = [
    (
        changed,
        f"{PART} is not what MANIFEST says, it was changed or cut short: remove it, then run playbooks/bundle.yml",
    ),
    (with_its_sum, "SHA256SUMS is not what MANIFEST says"),
    (
        with_its_manifest,
        "MANIFEST.sig is not the signature of MANIFEST, so one of them was changed: run playbooks/bundle.y",
    ),
    (cut_short, f"{PART} is not what MANIFEST says"),
    (missing, f"{OTHER} is missing: run playbooks/bundle.yml again and copy the whole folder"),
    (additional, "wheels-cp313-aarch64.tar is no file of this bundle, MANIFEST does not list it: remove it"),
    (hidden, ".wheels.from is no file of this bundle"),
    (a_folder, "more is no file of this bundle"),
    (renamed, "wheels-cp313-aarch64.tar is no file of this bundle"),
    (swapped, " is not what MANIFEST says"),
    (a_link, f"{PART} is a link: remove it, then run playbooks/bundle.yml again"),
    (a_linked_manifest, "MANIFEST is a link: remove it, then run playbooks/bundle.yml again"),
    (a_pipe, f"{PART} is no file: remove it"),
    (
        signed_by_a_stranger,
        ", which is no key of drupelet_bundle_keys: take a bundle of your own, or add the public key",
    ),
    (unsigned, " is not signed, it has no MANIFEST.sig: run playbooks/bundle.yml where the key is (bundle_key)"),
    (without_a_manifest, " is not signed, it has no MANIFEST and no MANIFEST.sig: run playbooks/bundle.yml"),
    (signed_for_something_else, "MANIFEST.sig is not the signature of MANIFEST"),
]


@pytest.mark.parametrize(("spoil", "says"), REFUSED, ids=[spoil.__name__ for spoil, _ in REFUSED])
def test_a_spoilt_bundle_is_refused_on_the_control_node(
    site: BundleSite, spoil: Callable[[BundleSite], None], says: str
) -> None:
    site.sign()
    spoil(site)
    with pytest.raises(script.Trouble) as refused:
        site.check()
    assert says in str(refused.value)


# The file that a board is to get is the changed one, or the signature is not the site's: no other check may be needed.
AT_THE_BOARD = [changed, with_its_sum, with_its_manifest, cut_short, renamed, swapped, a_link, a_pipe, unsigned]
AT_THE_BOARD += [signed_by_a_stranger, without_a_manifest, signed_for_something_else, a_linked_manifest]


@pytest.mark.parametrize("spoil", AT_THE_BOARD, ids=[spoil.__name__ for spoil in AT_THE_BOARD])
def test_no_board_takes_it_either_and_what_is_in_use_stays(
    site: BundleSite, spoil: Callable[[BundleSite], None]
) -> None:
    """The roles alone, without preflight."""
    site.sign()
    spoil(site)
    with pytest.raises(script.Trouble):
        site.play()
    assert site.has() == IN_USE


def test_without_ssh_keygen_nothing_is_taken(site: BundleSite, monkeypatch: pytest.MonkeyPatch) -> None:
    site.sign()
    monkeypatch.setenv("PATH", str(site.board))
    with pytest.raises(
        script.Trouble, match="ssh-keygen is missing on this machine: install the package openssh-client"
    ):
        site.check()


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "a/b", "..", ".hidden", "-rf", "MANIFEST", "a\\b", "ä"])
def test_a_manifest_that_leaves_the_folder_is_refused_although_it_is_signed(site: BundleSite, name: str) -> None:
    site.sign()
    manifest = (site.folder / "MANIFEST").read_text() + f"{'0' * 64}  1  {name}\n"
    (site.folder / "MANIFEST").write_text(manifest)
    if name.isascii():
        (site.folder / "MANIFEST.sig").write_text(script.signed_by(site.keys / "site", manifest))
    with pytest.raises(script.Trouble, match=r"which is no plain file name|is no text of at most"):
        site.check()


@pytest.mark.parametrize(
    "spoil", ["", "drupelet-bundle 2\n", "drupelet-bundle 1\nserial -1\n", "drupelet-bundle 1\nserial 1"]
)
def test_a_manifest_of_another_form_is_refused(spoil: str) -> None:
    with pytest.raises(script.Trouble, match=r"run playbooks/bundle\.yml again and copy the whole folder"):
        script.parse(spoil)


def test_a_file_that_is_listed_twice_is_refused() -> None:
    text = script.manifest_of(5, {"a": script.File("0" * 64, 1)})
    with pytest.raises(script.Trouble, match="line 4 of MANIFEST is not"):
        script.parse(text + f"{'1' * 64}  2  a\n")


@pytest.mark.parametrize(
    "key", ["ssh-ed25519", "cert-authority ssh-ed25519 AAAA", "* ssh-ed25519 AAAA", "-----BEGIN OPENSSH"]
)
def test_what_is_no_public_key_is_named(key: str) -> None:
    """An option before a key, such as cert-authority or another namespace, would let others sign."""
    with pytest.raises(
        script.Trouble, match=r"which is no public key: write the line of the file that ends with \.pub"
    ):
        script.keys_of(f"{key}\n")


# --- what is refused on the board ------------------------------------------------------------------------------------


def test_a_part_that_changes_on_its_way_is_refused_by_the_board(site: BundleSite) -> None:
    site.sign()
    ticket = site.ticket()
    (site.board / PART).write_bytes(tar_of({"lz4-1.whl": b"evl"}))
    with pytest.raises(script.Trouble, match=f"What came of {PART} is not what MANIFEST says: remove it there"):
        script.unpack(site.board / PART, ticket, older=False)
    assert site.has() == IN_USE


@pytest.mark.parametrize("is_right", [True, False])
def test_what_a_part_replaces_goes_once_the_part_is_verified(site: BundleSite, is_right: bool) -> None:
    """The packages that apt uses now: a card has no room for both, and a refused bundle takes them from nobody."""
    site.sign()
    old = site.board.with_name("packages")
    old.mkdir()
    (old / "Packages").write_text("in use")
    shutil.copy(site.folder / (PART if is_right else OTHER), site.board / PART)
    if is_right:
        script.unpack(site.board / PART, site.ticket(), older=False, old=old)
    else:
        with pytest.raises(script.Trouble):
            script.unpack(site.board / PART, site.ticket(), older=False, old=old)
    assert old.exists() != is_right
    assert site.has() == (UNPACKED if is_right else IN_USE)


def test_a_ticket_with_another_manifest_is_refused_by_the_board(site: BundleSite) -> None:
    """A control node that was fooled fools no board: the board verifies the signature itself."""
    site.sign()
    told = json.loads(base64.b64decode(site.ticket()))
    evil = tar_of({"lz4-1.whl": b"evil"})
    (site.board / PART).write_bytes(evil)
    forged = script.manifest_of(2_000_000_000, {PART: script.File(hashlib.sha256(evil).hexdigest(), len(evil))})
    ticket = base64.b64encode(json.dumps(told | {"manifest": forged}).encode()).decode()
    with pytest.raises(script.Trouble, match="is not the signature of MANIFEST"):
        script.unpack(site.board / PART, ticket, older=False)
    assert site.has() == IN_USE
    assert not script.SERIAL.exists()


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/b", ".hidden", "..", PART])
def test_a_signed_part_writes_nowhere_else(site: BundleSite, name: str) -> None:
    site.write(PART, tar_of({"lz4-1.whl": b"new", name: b"evil"}))
    site.sign()
    with pytest.raises(script.Trouble, match="which is no file with a plain name of its own"):
        site.play()
    assert site.has() == IN_USE
    assert not (site.board.parent / "evil").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE])
def test_a_signed_part_makes_files_alone(site: BundleSite, kind: bytes) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        member = tarfile.TarInfo("lz4-1.whl")
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)
    site.write(PART, made.getvalue())
    site.sign()
    with pytest.raises(script.Trouble, match="which is no file with a plain name of its own"):
        site.play()
    assert site.has() == IN_USE


def test_an_older_bundle_is_refused_unless_it_is_meant(site: BundleSite) -> None:
    site.sign()
    older = site.folder.with_name("older")
    shutil.copytree(site.folder, older)
    site.write(PART, tar_of({"lz4-1.whl": b"newer", "crc32c-2.whl": b"crc"}))
    site.sign()
    site.play()
    newer = site.has()
    site.folder = older
    with pytest.raises(
        script.Trouble, match=r"is older than the one of .* that this board has had: run playbooks/bundle"
    ):
        site.play()
    assert site.has() == newer
    site.play(older=True)
    assert site.has() == UNPACKED
    with pytest.raises(script.Trouble, match="is older than the one of"):  # it was meant once
        site.play()


def test_an_unsigned_bundle_from_the_future_keeps_no_later_one_out(site: BundleSite) -> None:
    site.sign(None)
    forged = (site.folder / "MANIFEST").read_text().splitlines()
    (site.folder / "MANIFEST").write_text("\n".join([forged[0], "serial 999999999999", *forged[2:], ""]))
    site.play(signed=False)
    site.sign()
    site.play()
    assert int(script.SERIAL.read_text()) < 999999999999


def test_a_refused_bundle_from_the_future_keeps_no_later_one_out(site: BundleSite) -> None:
    site.sign()
    ticket = site.ticket()
    (site.board / PART).write_bytes(b"other bytes")
    with pytest.raises(script.Trouble):
        script.unpack(site.board / PART, ticket, older=False)
    assert not script.SERIAL.exists()


def test_the_script_runs_on_a_board_from_standard_input(site: BundleSite) -> None:
    site.sign()
    (site.board / PART).write_bytes(b"other bytes")
    environment = os.environ | {"DRUPELET_TICKET": site.ticket()}
    command = [sys.executable, "-I", "-", "unpack", str(site.board / PART)]
    done = subprocess.run(
        command, input=SCRIPT.read_text(), env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"What came of {PART} is not what MANIFEST says: ")
    assert done.stderr.count("\n") == 1


# --- what is not signed ----------------------------------------------------------------------------------------------


def test_a_part_that_was_not_made_here_is_not_signed(site: BundleSite) -> None:
    with_its_sum(site)
    with pytest.raises(
        script.Trouble, match=f"{PART} was changed or was not made here, so it is not signed: remove it"
    ):
        site.sign()
    assert not (site.folder / "MANIFEST").exists()


def test_without_a_key_the_parts_of_an_earlier_release_are_listed_as_they_are(site: BundleSite) -> None:
    """Those have no record of who made them, and a site without a key goes on."""
    for path in site.made.iterdir():
        path.unlink()
    (site.folder / ".wheels-cp313-aarch64.tar.from").write_bytes(b"")
    assert site.sign(None) == "made"
    site.play(signed=False)
    assert site.has() == UNPACKED


def test_what_somebody_put_beside_the_parts_is_not_signed(site: BundleSite) -> None:
    additional(site)
    with pytest.raises(
        script.Trouble, match=r"wheels-cp313-aarch64\.tar is no part of the bundle, so it is not signed"
    ):
        site.sign()


def test_a_key_that_cannot_sign_is_named_and_the_old_signature_does_not_stay(site: BundleSite, tmp_path: Path) -> None:
    shutil.copy(site.keys / "site.pub", tmp_path / "lost.pub")
    with pytest.raises(script.Trouble, match=r"lost does not sign: .*A key with a passphrase signs by ssh-agent"):
        script.sign(site.folder, site.made, tmp_path / "lost")
    with pytest.raises(script.Trouble, match=r"nowhere\.pub is missing: `ssh-keygen -y -f"):
        script.sign(site.folder, site.made, tmp_path / "nowhere")
