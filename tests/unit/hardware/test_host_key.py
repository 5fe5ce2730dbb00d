"""The host key of a card and the known_hosts file, judged by OpenSSH's own programs.

Invariants: ssh finds the board under each of its names and nothing older beside it, hashed or not; what the file says
of others stays as it is, byte by byte; the private key is in no file.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from drupelet.errors import ConfigurationError
from hardware.flash.first_boot.first_boot import HOST_KEY, HOST_KEY_CONFIG, Kind, first_boot
from hardware.flash.first_boot.host_key import make_host_key
from hardware.flash.first_boot.known_hosts import check_names, check_writable, replace_line, with_line
from hardware.flash.first_boot.settings import HostKey
from tests.support.first_boot import SETTINGS

OLD = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
NEW = HostKey(b"private", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIP7+/v7+/v7+/v7+/v7+/v7+/v7+/v7+/v7+/v7+/v7+")
NAMES = ("pi-1", "pi-1.local", "192.0.2.11", "[192.0.2.11]:2222")


def found(path: Path, name: str) -> list[str]:
    """Give the keys that ssh finds for a name."""
    command = ["ssh-keygen", "-F", name, "-f", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [line.split(" ", 1)[1] for line in done.stdout.splitlines() if not line.startswith("#")]


def test_a_made_key_is_openssh_s_own_and_is_in_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    made, other = make_host_key(), make_host_key()
    assert made.private != other.private
    assert repr(made).count("PRIVATE") == 0
    assert list(tmp_path.rglob("*")) == []
    (tmp_path / "key").write_bytes(made.private)
    (tmp_path / "key").chmod(0o600)
    public = subprocess.check_output(["ssh-keygen", "-y", "-f", tmp_path / "key"], text=True)
    assert public.split()[:2] == made.public.split()
    shown = subprocess.check_output(["ssh-keygen", "-l", "-f", tmp_path / "key"], text=True)
    assert shown.split()[1] == made.fingerprint


@pytest.mark.parametrize("hashed", [False, True])
def test_a_board_made_anew_is_known_by_its_new_key_alone(hashed: bool, tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text("".join(f"{name} {OLD}\n" for name in (*NAMES, "other", "pi-10")))
    if hashed:
        subprocess.run(["ssh-keygen", "-H", "-f", path], capture_output=True, check=True)
    replace_line(path, NAMES, NEW)
    replace_line(path, NAMES, NEW)
    for name in NAMES:
        assert found(path, name) == [NEW.public]
    assert found(path, "other") == found(path, "pi-10") == [OLD]
    assert len(path.read_text().splitlines()) == 3


def test_what_the_file_says_of_others_stays(tmp_path: Path) -> None:
    others = [
        "# pi-1 is a comment",
        "",
        f"@cert-authority pi-1 {OLD}",
        f"@revoked pi-1 {OLD}",
        f"pi-* {OLD}",
        f"!pi-1,other {OLD}",
        "|1|no hash|at all",
        f"caf\udce9 {OLD}",
        f"other\x85 {OLD}",
        "garbage",
    ]
    text = with_line("\n".join([*others, f"PI-1,other,192.0.2.11 {OLD} of ours"]), NAMES, NEW)
    assert text.splitlines(keepends=True)[-1] == f"{','.join(NAMES)} {NEW.public}\n"
    assert text.split("\n")[:-2] == [*others, f"other {OLD} of ours"]


def test_the_file_keeps_its_mode_and_a_link_stays_a_link(tmp_path: Path) -> None:
    place, link = tmp_path / "place", tmp_path / "link"
    place.write_text(f"other {OLD}\n")
    place.chmod(0o640)
    link.symlink_to(place)
    replace_line(link, NAMES, NEW)
    assert link.is_symlink()
    assert place.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "place"]
    fresh = tmp_path / ".ssh/known_hosts"
    replace_line(fresh, NAMES, NEW)
    assert (fresh.stat().st_mode & 0o777, fresh.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.root
def test_root_leaves_the_file_to_whom_it_belongs(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 1234, 1235)
    replace_line(home / ".ssh/known_hosts", NAMES, NEW)
    replace_line(home / ".ssh/known_hosts", NAMES, NEW)
    for path in (home / ".ssh", home / ".ssh/known_hosts"):
        assert (path.stat().st_uid, path.stat().st_gid) == (1234, 1235)


@pytest.mark.parametrize("name", ["", "a b", "a,b", "*", "pi-?", "!pi", "|1|x", "#a", "@a", "pi\n1", "[a]"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not a name or an address that ssh looks up: give pi-1"):
        check_names([name])


def test_a_file_that_cannot_be_replaced_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"")
    os.truncate(tmp_path / "large", (16 << 20) + 1)
    for place in (tmp_path, tmp_path / "no/such/folder", tmp_path / "large"):
        with pytest.raises(ConfigurationError, match="--known-hosts"):
            check_writable(place)
    check_writable(tmp_path / "new")
    check_writable(tmp_path / "new-folder/known_hosts")


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_of_card_has_the_key_where_no_first_boot_removes_it(kind: Kind) -> None:
    made = first_boot(kind, replace(SETTINGS, host_key=NEW), {})
    files = made.root_files
    assert not any(b"private" in content for content in made.boot_files.values())
    assert files[HOST_KEY][:3] == (b"private", 0o600, 0)
    assert files[f"{HOST_KEY}.pub"].content.decode() == f"{NEW.public}\n"
    assert f"\nHostKey {HOST_KEY}\n" in files[HOST_KEY_CONFIG].content.decode()
    assert not Path(HOST_KEY).match("/etc/ssh/ssh_host_*")
