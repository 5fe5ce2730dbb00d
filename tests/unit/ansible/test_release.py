"""The installer of the role drupelet: whatever a power cut or a card spoils is seen, and mended by the next run.

The disk is a model: until the file system was synced, any file of the new release may be empty, short, gone or as it
was written; until the folder of the releases was synced, a change of names may be undone. Names otherwise change in one
step, and what was synced stays.
"""

from __future__ import annotations

import base64
import csv
import errno
import hashlib
import os
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.ansible_files import ANSIBLE, load

SCRIPT = ANSIBLE / "roles/drupelet/files/release.py"
RELEASE, WHEEL = "1.2.3-0123abcd", "drupelet-1.2.3-py3-none-any.whl"
PROGRAM = "#!/bin/sh\nexec {bin}/python --of broker\n"
PYTHON = "#!/bin/sh\necho edge-broker 1.2.3\n"
SITE = "lib/python3.11/site-packages"
STEPS = ("build", "relocate", "ask", "write_mark", "sync_file_system", "put", "sync_directory")


class PowerCut(BaseException):
    """The board is off."""


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The installer, on a board whose `venv` and `pip` make a small environment."""
    module = load("roles/drupelet/files/release.py")
    monkeypatch.setattr(module, "MEMO", tmp_path / "run")
    monkeypatch.setattr(module, "UNITS", tmp_path / "units")
    monkeypatch.setattr(module, "build", build)
    monkeypatch.setattr(module, "sync_file_system", lambda path: None)  # the real ones: the last test
    monkeypatch.setattr(module, "sync_directory", lambda path: None)
    monkeypatch.setattr(module, "PROGRAMS", {"": ("edge-broker", "edge_broker.app")})
    return module


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "opt"
    path.mkdir()
    return path


def environment(part: Path) -> dict[str, str]:
    return {
        "bin/edge-broker": PROGRAM.format(bin=part / "bin"),
        "bin/pip": PROGRAM.format(bin=part / "bin"),
        "bin/python3": PYTHON,
        "pyvenv.cfg": f"home = /usr/bin\ncommand = /usr/bin/python3 -m venv {part}\n",
        f"{SITE}/edge_broker/__init__.py": "",
        f"{SITE}/edge_broker/app.py": "def serve():\n    pass\n",
        f"{SITE}/edge_broker/__pycache__/app.cpython-311.pyc": "0123456789abcdef and code",
        f"{SITE}/drupelet-1.2.3.dist-info/RECORD": "edge_broker/app.py,sha256=x,26\n",
        f"{SITE}/drupelet-1.2.3.dist-info/METADATA": "Name: drupelet\nVersion: 1.2.3\n",
        WHEEL: "the wheel",
    }


def build(part: Path, wheel: str, extras: list[str], *, index: bool) -> None:
    for name, content in environment(part).items():
        path = part / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(0o755 if "bin/" in name else 0o644)
    (part / "bin/python").symlink_to("python3")
    (part / "lib64").symlink_to("lib")


def provision(release: ModuleType, root: Path, extras: tuple[str, ...] = ()) -> dict[str, Any]:
    """What the role does on each run."""
    found: dict[str, Any] = release.check(root, RELEASE, extras)
    if found["leftovers"]:
        release.clean(root)
    if not found["whole"]:
        (root / f"{RELEASE}.part").mkdir()
        found = release.install(root, RELEASE, WHEEL, extras, index=False)
    return found


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_symlink() or path.is_file())


# --- what is there ---------------------------------------------------------------------------------------------------


def test_a_second_run_changes_nothing(release, root):
    first = provision(release, root)
    assert first["whole"], first["why"]
    assert release.check(root, RELEASE, []) == first
    assert provision(release, root)["installation"] == first["installation"]
    assert names(root) == [RELEASE]


def empty(path: Path) -> None:
    os.truncate(path, 0)


def half(path: Path) -> None:
    os.truncate(path, path.lstat().st_size // 2)


def wrong(path: Path) -> None:
    """As many bytes as before, and the times of before."""
    before = path.stat()
    path.write_bytes(b"\0" * before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("spoil", [empty, half, wrong, Path.unlink])
def test_each_damaged_file_is_seen_and_mended(release, root, spoil):
    provision(release, root)
    damaged = 0
    for path in [path.relative_to(root / RELEASE) for path in entries(root / RELEASE)]:
        victim = root / RELEASE / path
        if victim.is_symlink():
            victim.unlink()
            if spoil is wrong:
                victim.symlink_to("elsewhere")
        elif victim.stat().st_size == 0 and spoil is not Path.unlink:
            continue
        else:
            spoil(victim)
        damaged += 1
        found = release.check(root, RELEASE, [])
        assert not found["whole"], path
        assert path.name in found["why"] or path.name == ".installed"
        assert provision(release, root)["whole"], path
        assert names(root) == [RELEASE]
    assert damaged >= 11


def test_a_program_that_does_not_answer_is_seen_although_its_files_are_right(release, root, tmp_path):
    """As when Debian's Python was replaced by another."""
    interpreter = tmp_path / "python3.11"
    interpreter.write_text(PYTHON)
    interpreter.chmod(0o755)

    def with_link(part: Path, wheel: str, extras: list[str], *, index: bool) -> None:
        build(part, wheel, extras, index=index)
        (part / "bin/python3").unlink()
        (part / "bin/python3").symlink_to(interpreter)

    release.build = with_link
    assert provision(release, root)["whole"]
    interpreter.write_text("#!/bin/sh\necho No module named edge_broker >&2\nexit 1\n")
    found = release.check(root, RELEASE, [])
    assert "bin/edge-broker does not work: failed: exit status 1, No module named edge_broker" in found["why"]
    interpreter.unlink()
    assert "bin/edge-broker does not work: failed: exit status 127" in release.check(root, RELEASE, [])["why"]


def test_without_room_for_a_memo_every_run_compares_the_bytes(release, root, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(release, "MEMO", tmp_path / "file")  # where no folder can be made
    assert provision(release, root)["whole"]
    damaged = next(path for path in entries(root / RELEASE) if path.name == "app.py")
    status = damaged.stat()
    damaged.write_text(damaged.read_text().upper())
    os.utime(damaged, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert "other bytes" in release.check(root, RELEASE, [])["why"]


def test_more_extras_are_installed_and_fewer_are_enough(release, root):
    first = provision(release, root)
    assert release.check(root, RELEASE, ["mirror", "gateway"])["why"] == "it is installed without gateway, mirror"
    second = provision(release, root, ("gateway", "mirror"))
    assert second["installation"] == first["installation"], "what runs from a sound release goes on"
    assert provision(release, root, ("mirror",)) == second


def older(root: Path, *versions: str) -> None:
    """Make releases, the first the oldest."""
    for age, version in enumerate(versions):
        (root / f"{version}-0123abcd").mkdir()
        os.utime(root / f"{version}-0123abcd", (1000 + age, 1000 + age))


@pytest.mark.parametrize(
    ("count", "left"),
    [(0, "4 5"), (2, "4 5"), (3, "3 4 5"), (4, "2 3 4 5"), (9, "1 2 3 4 5")],
)
def test_the_oldest_releases_go_but_never_the_two_that_links_name(release, root, count, left):
    older(root, "2.0", "1.0", "3.0", "4.0", "5.0")
    os.utime(root / "1.0-0123abcd", (10, 10))  # by age, not by name
    (root / "current").symlink_to("5.0-0123abcd")
    (root / "previous").symlink_to("4.0-0123abcd")
    gone = release.prune(root, count)
    kept = [name.split(".")[0] for name in names(root) if name[0].isdigit()]
    assert " ".join(kept) == left
    assert len(gone) == 5 - len(kept)


def test_no_release_goes_that_a_unit_or_a_cut_off_upgrade_names(release, root, tmp_path):
    older(root, "1.0", "2.0", "3.0", "4.0", "5.0")
    (root / "current").symlink_to("5.0-0123abcd")
    (tmp_path / "units").mkdir()
    (tmp_path / "units/edge-mirror.service").write_text("[Unit]\nX-Release=1.0-0123abcd\n")
    (root / "kept").mkdir()
    (root / "kept/release").write_text("2.0-0123abcd\n")
    (root / "notes").mkdir()
    assert release.prune(root, 1) == ["4.0-0123abcd", "3.0-0123abcd"]
    assert names(root) == ["1.0-0123abcd", "2.0-0123abcd", "5.0-0123abcd", "current", "kept", "notes"]


def test_a_release_that_is_half_removed_is_a_leftover(release, root, monkeypatch):
    older(root, "1.0", "2.0")
    (root / "current").symlink_to("2.0-0123abcd")
    monkeypatch.setattr(release.shutil, "rmtree", cut)
    with pytest.raises(PowerCut):
        release.prune(root, 1)
    assert release.leftovers(root) == ["1.0-0123abcd.part"]


def cut(path: Path) -> None:
    raise PowerCut


def test_leftovers_are_what_nobody_finished_and_nobody_uses(release, root, tmp_path):
    for name in (
        "1.0-00000001",
        "1.0-00000002",
        "1.0-00000003",
        "1.0-00000004",
        "1.0-00000005",
        "1.0-00000006.part",
        "kept.part",
    ):
        (root / name).mkdir()
    (root / "current").symlink_to("1.0-00000001")
    (root / "previous").symlink_to("1.0-00000002")
    (root / "current.part").symlink_to("1.0-00000003")
    (tmp_path / "units").mkdir()
    (tmp_path / "units/edge-broker.service").write_text("[Unit]\nX-Release=1.0-00000003\n")
    (root / "1.0-00000004/.installed-base").touch()  # by the role before this one
    assert release.check(root, RELEASE, [])["leftovers"] == ["1.0-00000005", "1.0-00000006.part"]
    assert release.clean(root) == ["1.0-00000005", "1.0-00000006.part"]
    assert release.leftovers(root) == []
    assert (root / "kept.part").is_dir()


# --- power cuts ------------------------------------------------------------------------------------------------------


class Board:
    """Cuts the power before or after the n-th step of an installation, and leaves on the disk what it may."""

    def __init__(self, release: ModuleType, root: Path, chance: random.Random) -> None:
        self.release, self.root, self.chance = release, root, chance
        self.part = root / f"{RELEASE}.part"
        self.real = {step: getattr(release, step) for step in STEPS}
        self.synced = self.replaced = self.names_synced = False

    def cut(self, step: str, *, after: bool) -> Callable[..., Any]:
        def instead(*arguments: Any, **options: Any) -> Any:
            if after:
                self.real[step](*arguments, **options)
                self.note(step)
            raise PowerCut

        return instead

    def pass_by(self, step: str) -> Callable[..., Any]:
        def instead(*arguments: Any, **options: Any) -> Any:
            self.real[step](*arguments, **options)
            self.note(step)

        return instead

    def note(self, step: str) -> None:
        self.synced |= step == "sync_file_system"
        self.replaced |= step == "put"
        self.names_synced |= step == "sync_directory"

    def provision_until(self, step: str, extras: tuple[str, ...], *, after: bool) -> None:
        for other in STEPS:
            setattr(self.release, other, self.cut(step, after=after) if other == step else self.pass_by(other))
        try:
            with pytest.raises(PowerCut):
                provision(self.release, self.root, extras)
        finally:
            for other in STEPS:
                setattr(self.release, other, self.real[other])
        self.forget()

    def forget(self) -> None:
        """What the disk makes of it all."""
        if not self.synced:
            for path in entries(self.root / RELEASE if self.replaced else self.part):
                spoil = self.chance.choice([empty, half, Path.unlink, None])
                if spoil is not None and (spoil is Path.unlink or not path.is_symlink()):
                    spoil(path)
        if self.replaced and not self.names_synced and self.chance.random() < 0.5:
            self.undo()

    def undo(self) -> None:
        if self.part.exists():
            self.release.exchange(self.part, self.root / RELEASE)
        else:
            os.rename(self.root / RELEASE, self.part)


def nothing(release: ModuleType, root: Path) -> None:
    """A new board."""


def damaged(release: ModuleType, root: Path) -> None:
    provision(release, root)
    empty(root / RELEASE / "bin/pip")


def without_the_gateway(release: ModuleType, root: Path) -> None:
    provision(release, root)


def installed_by_an_older_role(release: ModuleType, root: Path) -> None:
    build(root / RELEASE, WHEEL, [], index=False)
    (root / RELEASE / ".installed-base").touch()
    (root / "current").symlink_to(RELEASE)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("before", [nothing, damaged, without_the_gateway, installed_by_an_older_role])
def test_the_next_run_mends_what_a_power_cut_left(release, tmp_path, before, step, after):
    extras = ("gateway",) if before is without_the_gateway else ()
    for seed in range(4):
        print(f"seed {seed}")  # pytest shows it when this fails
        root = tmp_path / str(seed)
        root.mkdir()
        before(release, root)
        Board(release, root, random.Random(seed)).provision_until(step, extras, after=after)
        found = release.check(root, RELEASE, extras)
        if before is without_the_gateway:  # what runs from it is never without its files
            assert release.check(root, RELEASE, [])["whole"]
        assert found["whole"] or found["why"] != "it is not installed" or before is nothing
        assert provision(release, root, extras)["whole"]
        assert set(names(root)) - {"current"} == {RELEASE}
        assert (root / RELEASE / "bin/edge-broker").read_text() == PROGRAM.format(bin=root / RELEASE / "bin")


@pytest.mark.parametrize("kept", [0, 1, 5])
def test_a_cut_while_the_old_one_is_removed_leaves_what_the_next_run_removes(release, root, kept, monkeypatch):
    provision(release, root)
    empty(root / RELEASE / "bin/pip")

    def half_removed(part: Path, **_: Any) -> None:
        for path in entries(part)[kept:]:
            path.unlink()
        raise PowerCut

    with monkeypatch.context() as patched:
        patched.setattr(release.shutil, "rmtree", half_removed)
        with pytest.raises(PowerCut):
            provision(release, root)
    found = release.check(root, RELEASE, [])
    assert found["whole"], found["why"]
    assert found["leftovers"] == [f"{RELEASE}.part"]
    assert provision(release, root)["installation"] == found["installation"]
    assert names(root) == [RELEASE]


def test_a_file_system_that_cannot_swap_names_takes_two_steps(release, root, monkeypatch):
    def refuse(one: Path, other: Path) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(release, "exchange", refuse)
    first = provision(release, root)
    empty(root / RELEASE / "bin/pip")
    assert provision(release, root)["installation"] != first["installation"]
    assert names(root) == [RELEASE]
    assert RELEASE + ".old.part" in leftovers_of(release, root, RELEASE + ".old.part")


def leftovers_of(release: ModuleType, root: Path, name: str) -> list[str]:
    (root / name).mkdir()
    found: list[str] = release.leftovers(root)
    return found


# --- what fails ------------------------------------------------------------------------------------------------------


def test_what_fails_leaves_nothing_and_touches_nothing(release, root, monkeypatch):
    first = provision(release, root)
    monkeypatch.setattr(release, "write_mark", fail)
    (root / f"{RELEASE}.part").mkdir()
    with pytest.raises(release.Trouble, match="was full before all was written"):
        release.install(root, RELEASE, WHEEL, [], index=False)
    assert names(root) == [RELEASE]
    assert release.check(root, RELEASE, []) == first


def test_a_full_disk_is_told_in_a_sentence(release, root, monkeypatch, capsys):
    monkeypatch.setattr(release, "write_mark", fail)
    monkeypatch.setattr(release, "is_full", lambda path: True)
    (root / f"{RELEASE}.part").mkdir()
    assert release.main(["install", str(root), RELEASE, "--no-index", WHEEL]) == 1
    said = capsys.readouterr().err
    assert said == f"install of {RELEASE} failed: {root} was full before all was written: make room there\n"
    assert names(root) == []


def fail(part: Path, *_rest: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", str(part))


def test_a_disk_with_room_is_not_full(release, root):
    assert not release.is_full(root)


def a_disk(release: ModuleType, monkeypatch: pytest.MonkeyPatch, *, megabytes: int, inodes: int = 1_000_000) -> None:
    """One with so much left for an ordinary user; root would get 50 MB more."""
    status = os.statvfs_result(
        (1_000, 1_000, 10**6, (megabytes + 50) * 1000, megabytes * 1000, 10**6, 10**6, inodes, 0, 255)
    )
    monkeypatch.setattr(release.os, "statvfs", lambda path: status)


@pytest.mark.parametrize(
    ("extras", "tars", "takes"),
    [
        ([], [], 116),
        (["gateway", "mirror"], ["15800000"], 111),
        (["spark"], ["15800000", "435200000"], 1007),
        (["spark"], [], 1886),
        ([], ["200000000"], 401),  # while it is unpacked, a bundle may take more than what is made of it
    ],
)
def test_what_is_needed_is_known_before_anything_is_written(release, root, monkeypatch, capsys, extras, tars, takes):
    command = ["room", f"--wheels={','.join(tars)}", str(root / "not/yet"), RELEASE, *extras]
    a_disk(release, monkeypatch, megabytes=takes)
    assert release.main(command) == 0
    a_disk(release, monkeypatch, megabytes=takes - 2)
    assert release.main(command) == 1
    assert capsys.readouterr().err == (
        f"room of {RELEASE} failed: {RELEASE} takes {takes} MB while it is installed, and the disk of {root} has "
        f"{takes - 2} MB left: make room there for 2 MB more\n"
    )
    assert names(root) == []


def test_a_disk_without_inodes_is_told_too(release, root, monkeypatch, capsys):
    a_disk(release, monkeypatch, megabytes=5000, inodes=100)
    assert release.main(["room", str(root), RELEASE]) == 1
    assert "takes 3500 files, and the disk of" in capsys.readouterr().err


# --- the real venv and pip -------------------------------------------------------------------------------------------


def made_up_wheel(folder: Path) -> None:
    """A wheel called drupelet with one module and its program."""
    info = "drupelet-1.2.3.dist-info"
    files = {
        "edge_broker/__init__.py": "",
        "edge_broker/app.py": "def main():\n    print('edge-broker 1.2.3')\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: drupelet\nVersion: 1.2.3\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nedge-broker = edge_broker.app:main\n",
    }
    with zipfile.ZipFile(folder / WHEEL, "w") as file:
        for name, content in files.items():
            file.writestr(name, content)
        file.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD")))


def test_a_real_environment_names_the_folder_it_is_in_and_its_records_are_right(root, tmp_path):
    part = root / f"{RELEASE}.part"
    (part / "wheels").mkdir(parents=True)
    made_up_wheel(part)
    command = [sys.executable, "-I", "-", "install", str(root), RELEASE, "--no-index", WHEEL]
    script = SCRIPT.read_text().replace('Path("/run/drupelet")', f'Path("{tmp_path}/run")')
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert '"whole": true' in done.stdout
    assert not (root / RELEASE / "fetched").exists()
    assert (tmp_path / "run" / f"{RELEASE}.seen").exists()
    assert names(root) == [RELEASE]
    assert subprocess.check_output([root / RELEASE / "bin/edge-broker"], text=True) == "edge-broker 1.2.3\n"
    for path in entries(root / RELEASE):
        if not path.is_symlink() and path.suffix != ".pyc":  # Python itself sets those right when it loads them
            assert os.fsencode(part) not in path.read_bytes(), path
    checked = [right for record in root.rglob("*.dist-info/RECORD") for right in rows_right(record)]
    assert len(checked) > 100
    assert all(checked)


def rows_right(record: Path) -> Iterator[bool]:
    """Whether each file that pip lists with a hash has it."""
    for name, digest, size in csv.reader(record.read_text().splitlines()):
        if digest:
            content = (record.parent.parent / name).read_bytes()
            found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            yield digest == f"sha256={found}" and size == str(len(content))
