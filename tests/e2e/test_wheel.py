"""The wheel holds the walker for both machines, whatever machine builds it, and nothing of this one's checkout."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from edge_broker.compiled.library import CompiledRenumbering, CompiledWalk
from edge_broker.protocol.records_walk import PythonWalk
from tests.property.walker_fuzz import renumbered_in_python
from tests.support.emulated import EmulatedLibrary
from tests.support.records_walk import AREAS, of_seed, outcome, pieces_of_seed

ROOT = Path(__file__).parents[2]
ELF_MACHINES = {"x86_64": 62, "aarch64": 183}
PROGRAMS = ("edge-broker", "edge-gateway", "edge-mirror", "edge-spark", "edge-board")
LOAD, DYNAMIC, NEEDED = 1, 2, 1


def wheel_of(checkout: Path, to: Path, **environment: str) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run(
        [*command, f"--wheel-dir={to}", str(checkout)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = to.glob("*.whl")
    return wheel


def copied(to: Path) -> Path:
    """What a build needs of the checkout, without what was built in it."""
    to.mkdir()
    for name in ("pyproject.toml", "build_walker.py", "build_texts.py", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, to)
    for name in ("drupelet", "edge_broker", "kafka_wire", "gateway", "mirror", "spark", "hardware"):
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return to


def dynamic_entries(content: bytes) -> list[tuple[int, int]]:
    """The dynamic section of a 64-bit little-endian ELF file."""
    (table,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    for number in range(count):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", content, table + number * size)
        if kind == DYNAMIC:
            return list(struct.iter_unpack("<QQ", content[offset : offset + length]))
    return []


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two wheels for all machines, of two copies of the checkout."""
    place = tmp_path_factory.mktemp("wheels")
    return [wheel_of(copied(place / name), place / f"{name}-wheel", DRUPELET_WALKERS="all") for name in ("one", "two")]


@pytest.mark.timeout(590)
def test_a_wheel_for_all_holds_both_libraries_and_is_the_same_twice(wheels: list[Path], tmp_path: Path) -> None:
    assert wheels[0].name.endswith("-py3-none-any.whl")
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    with zipfile.ZipFile(wheels[0]) as wheel:
        names = [name for name in wheel.namelist() if ".so" in name]
        assert sorted(names) == [f"edge_broker/compiled/walk-{machine}.so" for machine in sorted(ELF_MACHINES)]
        for machine, number in ELF_MACHINES.items():
            content = wheel.read(f"edge_broker/compiled/walk-{machine}.so")
            assert content[:6] == b"\x7fELF\x02\x01"
            assert struct.unpack_from("<H", content, 18) == (number,)
            tags = [tag for tag, _ in dynamic_entries(content)]
            assert tags
            assert NEEDED not in tags, "it asks for another library"
            assert len(content) < 20_000
        assert wheel.read("drupelet/commit.txt") == b"unknown\n"  # it is a copy, and no checkout
        share = {name.partition(".data/data/share/")[2] for name in wheel.namelist() if "/data/share/" in name}
        for program in PROGRAMS:
            names = {f"man/man1/{program}.1", f"zsh/site-functions/_{program}"}
            assert share >= {*names, f"bash-completion/completions/{program}"}
        wheel.extractall(tmp_path / "installed")
    version = [sys.executable, "-m", "edge_broker", "--version"]
    done = subprocess.run(version, cwd=tmp_path / "installed", capture_output=True, text=True, check=True)
    assert done.stdout.endswith(", compiled walker\n")


@pytest.mark.timeout(590)
def test_the_library_for_aarch64_gives_the_same_verdicts(wheels: list[Path], tmp_path: Path) -> None:
    with zipfile.ZipFile(wheels[0]) as wheel:
        library = EmulatedLibrary(Path(wheel.extract("edge_broker/compiled/walk-aarch64.so", tmp_path)))
    size = ctypes.sizeof(CompiledWalk)
    place, area_place = library.memory, library.memory + 4096
    first = random.SystemRandom().randrange(1 << 31)
    catalogue = [(area, count, base, keys, True) for area, count, base in AREAS for keys in (False, True)]
    for number, (area, count, base, keys, times) in enumerate([*catalogue, *map(of_seed, range(first, first + 2000))]):
        library.write(area_place, area)
        library.call("records_walk_begin", place, base, count, keys, times)
        half = len(area) // 2 if number % 2 else len(area)  # whole, or in two pieces
        library.call("records_walk_feed", place, area_place, half, False)
        library.call("records_walk_feed", place, area_place + half, len(area) - half, True)
        reference = PythonWalk(base, count, keys, times)
        reference.feed(area, last=True)
        found = CompiledWalk.from_buffer_copy(library.read(place, size))
        assert outcome(found) == outcome(reference), f"seed {first + number - len(catalogue)}"


@pytest.mark.timeout(590)
def test_the_library_for_aarch64_numbers_records_as_python_does(wheels: list[Path], tmp_path: Path) -> None:
    with zipfile.ZipFile(wheels[0]) as wheel:
        library = EmulatedLibrary(Path(wheel.extract("edge_broker/compiled/walk-aarch64.so", tmp_path)))
    place, wanted_place, runs_place = library.memory, library.memory + 0x1000, library.memory + 0x2000
    area_place, out_place = library.memory + 0x10_0000, library.memory + 0x80_0000
    first = random.SystemRandom().randrange(1 << 31)
    for seed in range(first, first + 500):
        area, wanted = pieces_of_seed(seed)
        library.write(area_place, bytes(area))
        library.write(wanted_place, b"".join(struct.pack("<3q", *piece) for piece in wanted))
        verdicts, found = [], CompiledRenumbering()
        for out in (0, out_place):
            told = (area_place, len(area), wanted_place, len(wanted), out, found.written, runs_place, found.runs)
            library.write(place, struct.pack("<8q", *told) + bytes(ctypes.sizeof(CompiledRenumbering) - 64))
            verdicts.append(library.call("records_renumber", place))
            found = CompiledRenumbering.from_buffer_copy(library.read(place, ctypes.sizeof(CompiledRenumbering)))
        if verdicts[0]:
            made: tuple[object, ...] = verdicts[0], found.piece, found.record
        else:
            assert verdicts[1] == 0, f"seed {seed}"
            runs = tuple(struct.iter_unpack("<2q", library.read(runs_place, 16 * found.runs)))
            records = library.read(out_place, found.written)
            made = records, found.records, runs, found.base_timestamp, found.max_timestamp
        assert made == renumbered_in_python(seed), f"seed {seed}"


def test_a_wheel_has_the_commit_it_was_built_from_also_by_way_of_a_source_archive(tmp_path: Path) -> None:
    checkout = copied(tmp_path / "checkout")
    who = ["-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message=one"]):
        subprocess.run(["git", "-C", checkout, *who, *words], check=True)
    head = ["git", "-C", checkout, "log", "-1", "--format=%H %ct"]
    commit, date = subprocess.run(head, check=True, capture_output=True, text=True).stdout.split()
    told = f"{commit[:12]}\n{date}\n"
    with zipfile.ZipFile(wheel_of(checkout, tmp_path / "wheel")) as wheel:
        assert wheel.read("drupelet/commit.txt").decode() == told
    build = "import sys; from hatchling.build import build_sdist; print(build_sdist(sys.argv[1]))"
    archive = subprocess.run(
        [sys.executable, "-c", build, tmp_path / "archive"], cwd=checkout, check=True, capture_output=True, text=True
    ).stdout.split()[-1]
    with zipfile.ZipFile(wheel_of(tmp_path / "archive" / archive, tmp_path / "again")) as wheel:
        assert wheel.read("drupelet/commit.txt").decode() == told


def test_without_a_compiler_the_python_walker_is_installed(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("git", "uname"):
        if (found := shutil.which(name)) is not None:
            (programs / name).symlink_to(found)
    cache = str(tmp_path / "cache")
    wheel = wheel_of(copied(tmp_path / "checkout"), tmp_path / "wheel", PATH=str(programs), XDG_CACHE_HOME=cache)
    with zipfile.ZipFile(wheel) as content:
        assert [name for name in content.namelist() if ".so" in name] == []
        content.extractall(tmp_path / "installed")
    version = [sys.executable, "-m", "edge_broker", "--version"]
    done = subprocess.run(version, cwd=tmp_path / "installed", capture_output=True, text=True, check=True)
    assert "python walker (walk-" in done.stdout
    assert ".so is not installed)" in done.stdout
