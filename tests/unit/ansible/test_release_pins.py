"""A release installs the files that its wheel pins: another version, other bytes, or what nobody pinned is refused.

pip is the real one, in an environment that the tests share; the packages are made for them.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.ansible_files import load

NAMES = ("drupelet", "pinned", "more")
WHEEL = "drupelet-1.2.3-py3-none-any.whl"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("python")
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    return place / "bin/python"


def write_wheel(path: Path, name: str, version: str, files: dict[str, str], needs: tuple[str, ...] = ()) -> str:
    """Write a wheel of one distribution and return its hash."""
    info = f"{name}-{version}.dist-info"
    needed = "Provides-Extra: gateway\n" + "".join(f"Requires-Dist: {need}\n" for need in needs)
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as file:
        for each, content in files.items():
            file.writestr(each, content)
        file.writestr(f"{info}/RECORD", "".join(f"{each},,\n" for each in (*files, f"{info}/RECORD")))
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Board:
    """A folder in which a release is built of a bundle's wheels."""

    def __init__(self, place: Path, python: Path, module: ModuleType) -> None:
        self.part, self.release = place / "1.2.3-0123abcd.part", module
        self.wheels = self.part / "wheels"
        self.wheels.mkdir(parents=True)
        (self.part / "bin").mkdir()
        (self.site,) = python.parents[1].glob("lib/python3*/site-packages")
        self.program = self.part / "bin/python"
        self.program.write_text(f'#!/bin/sh\nexec {python} "$@"\n')
        self.program.chmod(0o755)
        self.sum = write_wheel(self.wheels / "pinned-1.0-py3-none-any.whl", "pinned", "1.0", {"pinned.py": "x = 1\n"})
        self.extra = write_wheel(self.wheels / "more-2.0-py3-none-any.whl", "more", "2.0", {"more.py": "y = 2\n"})

    def ship(self, needs: tuple[str, ...] = ("pinned>=0.9", "more; extra == 'gateway'"), **pins: str) -> None:
        """Write the release's wheel: `pins` are the texts by extra."""
        files = {f"drupelet/pins/{extra}.txt": text for extra, text in pins.items()}
        write_wheel(self.part / WHEEL, "drupelet", "1.2.3", {"drupelet/__init__.py": "", **files}, needs)

    def ship_pinned(self) -> None:
        """Write the wheel with pins that are right."""
        self.ship(
            broker=f"pinned==1.0 \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{self.sum}\n",
            gateway=f"more==2.0 \\\n    --hash=sha256:{self.extra}\n",
        )

    def install(self, *extras: str) -> list[str]:
        """Install, and return what is there then."""
        self.release.build(self.part, WHEEL, extras, index=False)
        return self.installed()

    def installed(self) -> list[str]:
        """Return the packages of the environment, and remove them for the next test."""
        found = [path for path in self.site.glob("*.dist-info") if path.name.split("-")[0] in NAMES]
        for path in (*found, *(self.site / f"{name}{end}" for name in NAMES for end in (".py", ""))):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        return sorted(path.name.removesuffix(".dist-info").replace("-", "==", 1) for path in found)


@pytest.fixture
def board(tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    module = load("roles/drupelet/files/release.py")
    run = module.run
    monkeypatch.setattr(module, "run", lambda words, *more: None if words[1:3] == ["-m", "venv"] else run(words, *more))
    return Board(tmp_path, python, module)


def test_what_is_pinned_is_installed_and_extras_alone_bring_more(board: Board) -> None:
    board.ship_pinned()
    assert board.install() == ["drupelet==1.2.3", "pinned==1.0"]


def test_an_extra_brings_its_pins(board: Board) -> None:
    board.ship_pinned()
    assert board.install("gateway") == ["drupelet==1.2.3", "more==2.0", "pinned==1.0"]


def test_another_file_of_the_same_name_is_refused_and_named(board: Board) -> None:
    board.ship_pinned()
    write_wheel(board.wheels / "pinned-1.0-py3-none-any.whl", "pinned", "1.0", {"pinned.py": "x = 'evil'\n"})
    with pytest.raises(
        board.release.Trouble, match=r"pinned.*has other bytes than the release pins, so nothing was inst"
    ):
        board.install()
    assert board.installed() == []


def test_a_newer_version_beside_the_pinned_one_is_not_taken(board: Board) -> None:
    board.ship_pinned()
    write_wheel(board.wheels / "pinned-9.9-py3-none-any.whl", "pinned", "9.9", {"pinned.py": "x = 'newer'\n"})
    assert "pinned==1.0" in board.install()


def test_what_the_wheel_needs_and_does_not_pin_is_refused(board: Board) -> None:
    board.ship(broker="# nothing\n")
    with pytest.raises(board.release.Trouble, match="pinned"):
        board.install()


def test_an_extra_without_pins_is_refused_by_name(board: Board) -> None:
    board.ship_pinned()
    with pytest.raises(
        board.release.Trouble, match=r"pins nothing for the extra spark: name extras of broker, gateway"
    ):
        board.install("spark")


def test_a_source_archive_is_never_built(board: Board) -> None:
    """Its build would run tools that nobody pinned, though the archive has a pinned hash."""
    (board.wheels / "pinned-1.0-py3-none-any.whl").unlink()
    source = board.wheels / "pinned-1.0.tar.gz"
    (board.part / "setup.py").write_text("raise SystemExit('built')\n")
    (board.part / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: pinned\nVersion: 1.0\n")
    command = ["tar", "-czf", source, "--transform=s,^,pinned-1.0/,", "-C", board.part, "setup.py", "PKG-INFO"]
    subprocess.run(command, check=True)
    sum_ = hashlib.sha256(source.read_bytes()).hexdigest()
    board.ship(needs=("pinned",), broker=f"pinned==1.0 --hash=sha256:{sum_}\n")
    with pytest.raises(board.release.Trouble, match=r"No matching distribution found for pinned==1\.0"):
        board.install()


def test_a_wheel_that_was_built_of_a_pinned_source_is_taken_by_the_bundles_hash(board: Board) -> None:
    board.ship(needs=("pinned",), broker=f"pinned==1.0 --hash=sha256:{'0' * 64}\n")
    (board.wheels / "built.txt").write_text(f"pinned==1.0 --hash=sha256:{board.sum}\n")
    assert "pinned==1.0" in board.install()


def test_the_list_of_built_wheels_brings_no_other_version(board: Board) -> None:
    board.ship_pinned()
    (board.wheels / "built.txt").write_text(f"pinned==9.9 --hash=sha256:{board.sum}\n")
    with pytest.raises(
        board.release.Trouble, match=r"has pinned==9.9, which drupelet.*does not pin: make the bundle again"
    ):
        board.install()


def test_two_versions_of_one_package_are_refused(board: Board) -> None:
    board.ship(broker=f"pinned==1.0 --hash=sha256:{board.sum}\n", gateway=f"pinned==2.0 --hash=sha256:{board.sum}\n")
    with pytest.raises(board.release.Trouble, match="pins pinned to two versions"):
        board.install("gateway")


def test_a_release_from_before_the_pins_is_installed_as_it_was(board: Board) -> None:
    board.ship()
    assert "pinned==1.0" in board.install()


def test_a_32_bit_board_takes_the_pinned_versions_of_whatever_hash(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.ship_pinned()
    monkeypatch.setattr(board.release, "IS_32_BIT", True)
    write_wheel(board.wheels / "pinned-1.0-py3-none-any.whl", "pinned", "1.0", {"pinned.py": "x = 'piwheels'\n"})
    write_wheel(board.wheels / "pinned-9.9-py3-none-any.whl", "pinned", "9.9", {"pinned.py": "x = 'newer'\n"})
    assert "pinned==1.0" in board.install()
