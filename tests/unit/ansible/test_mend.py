"""What the role packages mends before anything else: dpkg, apt and the users' files after a power cut."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "ansible/roles/packages/files/mend.sh"
PASSWD = "root:x:0:0:root:/root:/bin/bash\nedge-broker:x:997:996::/var/lib/edge-broker:/usr/sbin/nologin\n"
GROUP = "root:x:0:\nedge-broker:x:996:\n"
PACKAGES = "Package: a\nFilename: ./a.deb\nSize: 3\n\nPackage: b\nFilename: ./b.deb\nSize: 5\n\n"


class Board:
    """A file system, and programs of Debian's that write down how they were called."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("var/lib/dpkg/updates", "var/lib/apt/lists/partial", "var/lib/apt/periodic", "var/cache/apt"):
            (root / folder).mkdir(parents=True)
        for folder in ("etc", "run", "proc", "opt/drupelet/packages", "root/.ansible/tmp", "home/pi/.ansible/tmp"):
            (root / folder).mkdir(parents=True)
        (root / "etc/passwd").write_text(PASSWD)
        (root / "etc/group").write_text(GROUP)
        (root / "programs").mkdir()
        (root / "proc/locks").symlink_to("/proc/locks")
        for name in ("dpkg", "apt-get", "apt-cache", "groupadd", "cloud-init", "systemctl"):
            self.program(name, "")

    def program(self, name: str, script: str) -> None:
        path = self.root / "programs" / name
        path.write_text(f'#!/bin/sh\necho {name} "$@" >>{self.root}/calls\n{script}\n')
        path.chmod(0o755)

    def run(self, *arguments: str) -> list[str]:
        return self.done(*arguments, check=True).stdout.split()

    def done(self, *arguments: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        path = f"{self.root}/programs:{os.environ['PATH']}"
        environment = {"ROOT": str(self.root), "PATH": path, "PAUSE_S": "0.05"}
        command = ["bash", SCRIPT, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=check, timeout=60)

    def hold(self, lock: str) -> None:
        """Hold a lock of dpkg or apt as those do, in this process."""
        file = self.root / lock
        file.parent.mkdir(parents=True, exist_ok=True)
        self.held = file.open("w")
        fcntl.lockf(self.held, fcntl.LOCK_EX)

    def calls(self) -> list[str]:
        return (self.root / "calls").read_text().splitlines()


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path)


def test_a_board_without_damage_is_left_alone(board):
    (board.root / "var/lib/dpkg/updates/tmp.i").touch()
    (board.root / "var/lib/apt/lists/deb.debian.org_InRelease").touch()
    assert board.run("look") == []


@pytest.mark.parametrize("audit", [False, True])
def test_an_interrupted_dpkg_goes_on(board, audit):
    if audit:
        board.program("dpkg", "[ $1 != --audit ] || echo 'mosquitto is half installed'")
    else:
        (board.root / "var/lib/dpkg/updates/0001").write_text("Package: mosquitto\n")
    assert board.run("look") == ["dpkg"]
    board.run("mend", "dpkg")
    assert [call.split()[:2] for call in board.calls()[-2:]] == [["dpkg", "--configure"], ["apt-get", "--quiet"]]
    assert board.calls()[-1].endswith("--fix-broken install")


def test_a_package_that_must_be_fetched_again_is_looked_for_in_new_lists(board):
    board.program("apt-get", f"[ $2 = update ] && touch {board.root}/updated; [ -e {board.root}/updated ]")
    board.run("mend", "dpkg")
    assert [call.split()[-1] for call in board.calls()] == ["--force-confold", "install", "update", "install"]


@pytest.mark.parametrize("damage", ["empty", "unreadable"])
def test_spoilt_lists_are_fetched_anew(board, damage):
    packages = board.root / "var/lib/apt/lists/deb.debian.org_debian_dists_bookworm_main_binary-arm64_Packages"
    packages.write_text("" if damage == "empty" else "Package: a\n")
    if damage == "unreadable":
        board.program("apt-cache", "exit 100")
    assert board.run("look") == ["lists"]
    assert board.run("look") == []  # a part of an archive may have no packages: once after each boot
    board.run("mend", "lists")
    assert not packages.exists()
    assert (board.root / "var/lib/apt/lists/partial").is_dir()
    assert (board.root / "var/lib/apt/lists").stat().st_mtime == 0  # old enough for whoever refreshes them by age


@pytest.mark.parametrize("damage", ["empty", "half", "missing", "the list itself"])
def test_a_package_of_the_bundle_with_another_size_has_them_copied_again(board, damage):
    folder = board.root / "opt/drupelet/packages"
    (folder / "Packages").write_text(PACKAGES)
    (folder / "a.deb").write_bytes(b"abc")
    (folder / "b.deb").write_bytes(b"abcde")
    assert board.run("look") == []  # no mark: they are copied anyway
    mark = folder / ".synced-0123"
    mark.touch()
    assert board.run("look") == []
    if damage == "the list itself":
        os.truncate(folder / "Packages", 0)
    elif damage == "missing":
        (folder / "b.deb").unlink()
    else:
        os.truncate(folder / "b.deb", 0 if damage == "empty" else 2)
    assert board.run("look") == ["bundle"]
    board.run("mend", "bundle")
    assert not mark.exists()


@pytest.mark.parametrize(
    ("content", "holder", "is_stale"),
    [("", "", True), ("123\0", "", True), ("123", "sshd", True), ("123", "useradd", False)],
)
def test_a_lock_that_nobody_holds_is_removed(board, content, holder, is_stale):
    lock = board.root / "etc/passwd.lock"
    lock.write_text(content)
    if holder:
        (board.root / "proc/123").mkdir()
        (board.root / "proc/123/comm").write_text(f"{holder}\n")
    assert board.run("look") == (["lock"] if is_stale else [])
    board.run("mend", "lock")
    assert lock.exists() is not is_stale


def test_a_user_of_ours_without_its_group_gets_it(board):
    (board.root / "etc/group").write_text("root:x:0:\n")
    (board.root / "etc/passwd").write_text(PASSWD + "somebody:x:1000:1000::/:/bin/sh\n")
    assert board.run("look") == ["group"]
    board.run("mend", "group")
    assert board.calls()[-1] == "groupadd --system --gid 996 edge-broker"


def test_copies_of_hours_ago_are_removed_and_those_of_now_are_not(board):
    old, new = board.root / "home/pi/.ansible/tmp/ansible-tmp-1", board.root / "root/.ansible/tmp/ansible-tmp-2"
    for folder in (old, new):
        folder.mkdir()
        (folder / "source").write_text("a bundle")
    os.utime(old, (0, 0))
    assert board.run("look") == ["copies"]
    board.run("mend", "copies")
    assert not old.exists()
    assert new.exists()


LOCKS = ("var/lib/dpkg/lock-frontend", "var/lib/dpkg/lock", "var/lib/apt/lists/lock", "var/cache/apt/archives/lock")


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_of_dpkg_or_apt_that_a_program_holds_is_waited_for(board, lock):
    board.hold(lock)
    assert f"(process {os.getpid()}) holds {board.root}/{lock}" in board.done("busy").stdout
    waited = board.done("wait", "1")
    assert waited.returncode == 1
    assert "after 1 s still: " in waited.stderr
    assert lock in waited.stderr
    board.held.close()
    assert board.run("busy") == []
    assert board.done("wait", "1").returncode == 0


def test_a_dpkg_that_is_at_work_is_not_mended_as_if_the_power_had_been_cut(board):
    """`dpkg --configure -a` beside apt-daily fails, and with it the first provision."""
    board.program("dpkg", "[ $1 != --audit ] || echo 'mosquitto is half installed'")
    board.hold("var/lib/dpkg/lock-frontend")
    assert board.run("look") == []
    board.held.close()
    assert board.run("look") == ["dpkg"]


@pytest.mark.parametrize(
    ("program", "script", "said"),
    [
        ("cloud-init", "echo 'status: running'", "cloud-init is not done with the first boot"),
        ("systemctl", '[ "$4" = apt-daily.service ] && echo activating', "apt-daily.service is at work"),
        ("systemctl", '[ "$4" = apt-daily-upgrade.service ] && echo active', "apt-daily-upgrade.service is at work"),
    ],
)
def test_a_first_boot_that_goes_on_is_waited_for(board, program, script, said):
    board.program(program, f"[ -e {board.root}/over ] || {{ {script}; }}")
    assert board.done("busy").stdout == f"{said}\n"
    assert said in board.done("wait", "0").stderr
    (board.root / "over").touch()
    assert board.done("wait", "0").returncode == 0


@pytest.mark.parametrize("status", ["done", "disabled", "error", "degraded done", "not started"])
def test_a_cloud_init_that_is_over_or_never_runs_is_not_waited_for(board, status):
    board.program("cloud-init", f"echo 'status: {status}'; exit 2")
    assert board.run("busy") == []


def test_it_waits_until_a_program_is_done(board):
    board.program(
        "cloud-init", f"echo x >>{board.root}/looks; [ $(wc -l <{board.root}/looks) -gt 3 ] || echo 'status: running'"
    )
    assert board.done("wait", "30").returncode == 0
    assert (board.root / "looks").read_text().count("x") == 4


def test_it_says_how_it_is_used(board):
    done = subprocess.run(["bash", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "bundle  packages of the bundle" in done.stderr
