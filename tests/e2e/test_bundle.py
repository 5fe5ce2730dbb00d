"""A bundle's parts for boards of another machine than this one, made by the script that playbooks/bundle.yml runs.

Invariants:
- for aarch64 and each Python of Debian's, the wheels of every extra are there, and fit: tags, glibc, Python, versions;
- pyspark and py4j are the same for every machine;
- every compiled part for aarch64 can be loaded by a kernel with pages of 16 KiB, which Raspberry Pi OS has on a Pi 5;
- every wheel is one of the pinned files, and without pins no part is made;
- a part is whole by SHA256SUMS, not made again while it is recent, and the same when it is made again;
- the Debian packages for arm64 are enough for apt, alone, on a board where nothing counts as installed.

Asks the package index and Debian's archive, as a bundle does.
"""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from email.parser import Parser
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.tags import Tag, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from tests.support.waiting import CALL_S

SCRIPT = Path(__file__).parents[2] / "ansible/playbooks/bundle/bundle.sh"
EXTRAS = "compression,gateway,hardware,mirror"
DEBIAN = {"3.11": 36, "3.13": 41}  # bookworm's and trixie's Python, and the newest glibc 2.x there
PAGE_BYTES = 16384
AARCH64, LOADED = 183, 1  # e_machine and p_type of elf(5)


class Bundle:
    """A bundle being made, with a cache of its own."""

    def __init__(self, place: Path) -> None:
        self.folder = place / "bundle"
        self.environment = os.environ | {
            "BUNDLE_DIR": str(self.folder),
            "BUNDLE_CACHE": str(place / "cache"),
            "PYTHON": sys.executable,
            "VALID_S": "3600",
            "DEBIAN_URL": "http://deb.debian.org/debian",
            "SECURITY_URL": "http://deb.debian.org/debian-security",
        }

    def make(self, *arguments: str, **environment: str) -> str:
        done = subprocess.run(
            [SCRIPT, *arguments],
            env=self.environment | environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=CALL_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def unpacked(self, name: str, place: Path) -> Path:
        tar = self.folder / name
        lines = (self.folder / "SHA256SUMS").read_text().splitlines()
        assert f"{hashlib.sha256(tar.read_bytes()).hexdigest()}  {name}" in lines
        place.mkdir()
        subprocess.run(["tar", "-x", "-f", tar, "-C", place], check=True)  # bookworm's tarfile knows no filter
        return place


@pytest.fixture(scope="module")
def drupelet_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a wheel that needs what this checkout needs; of it, a bundle reads nothing else."""
    installed = distribution("drupelet")
    name = f"drupelet-{installed.version}"  # pip refuses a wheel whose name and metadata differ
    path = tmp_path_factory.mktemp("wheel") / f"{name}-py3-none-any.whl"
    folder = f"{name}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{folder}/METADATA", installed.read_text("METADATA") or "")
        wheel.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{folder}/RECORD", "")
        for pins in (Path(__file__).parents[2] / "drupelet/pins").glob("*.txt"):
            wheel.write(pins, f"drupelet/pins/{pins.name}")
    return path


@pytest.fixture(scope="module", params=DEBIAN)
def python(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def wheels(python: str, drupelet_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheels")
    bundle = Bundle(place)
    arguments = ("wheels", python, "aarch64", str(DEBIAN[python]), str(drupelet_wheel), EXTRAS)
    assert bundle.make(*arguments) == "made"
    assert bundle.make(*arguments) == "unchanged"
    return bundle.unpacked(f"wheels-cp{python.replace('.', '')}-aarch64.tar", place / "wheels")


def board_environment(python: str, extra: str) -> dict[str, str]:
    """Return what environment markers see on a 64-bit board."""
    return {
        "extra": extra,
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": "aarch64",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{python}.2",
        "python_version": python,
        "sys_platform": "linux",
    }


def board_tags(python: str) -> frozenset[Tag]:
    """Return the tags of wheels that a board takes."""
    version = tuple(int(part) for part in python.split("."))
    platforms = [f"manylinux_2_{minor}_aarch64" for minor in range(DEBIAN[python], 16, -1)]
    platforms.append("manylinux2014_aarch64")
    pure = {Tag(f"py{major}", "none", "any") for major in ("3", python.replace(".", ""))}
    return frozenset(cpython_tags(version, [f"cp{python.replace('.', '')}"], platforms)) | pure


def requirements(metadata: str, python: str, extras: set[str]) -> Iterator[Requirement]:
    for line in Parser().parsestr(metadata).get_all("Requires-Dist", []):
        needed = Requirement(line)
        if not needed.marker or any(
            needed.marker.evaluate(board_environment(python, extra)) for extra in {"", *extras}
        ):
            yield needed


def metadata_of(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as file:
        name = next(name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        return file.read(name).decode()


def check_needs(metadata: str, python: str, extras: set[str], there: Mapping[str, Path]) -> set[str]:
    """Check that what a distribution needs on a board is there, and what that needs; return the names."""
    seen: set[str] = set()
    for needed in requirements(metadata, python, extras):
        name = canonicalize_name(needed.name)
        assert name in there, f"{needed} has no wheel for Python {python} on aarch64"
        _, version, _, tags = parse_wheel_filename(there[name].name)
        assert version in needed.specifier, f"{there[name].name} is not {needed}"
        assert tags & board_tags(python), f"{there[name].name} does not fit Python {python} on aarch64"
        seen |= {name} | check_needs(metadata_of(there[name]), python, needed.extras, there)
    return seen


def test_every_extra_has_wheels_that_fit(wheels: Path, python: str) -> None:
    there = {str(parse_wheel_filename(path.name)[0]): path for path in wheels.iterdir()}
    metadata = distribution("drupelet").read_text("METADATA") or ""
    seen = check_needs(metadata, python, set(EXTRAS.split(",")), there)
    assert {"uvloop", "crc32c", "aiokafka", "paho-mqtt", "psutil", "cramjam", "lz4", "zstandard"} <= seen
    assert set(there) == seen


def test_every_wheel_is_one_of_the_pinned_files(wheels: Path) -> None:
    pins = "".join(path.read_text() for path in (Path(__file__).parents[2] / "drupelet/pins").glob("*.txt"))
    assert [path.name for path in wheels.iterdir() if hashlib.sha256(path.read_bytes()).hexdigest() not in pins] == []


def test_a_wheel_without_pins_makes_no_part(tmp_path: Path) -> None:
    wheel = tmp_path / "drupelet-0.0.1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("drupelet/__init__.py", "")
    bundle = Bundle(tmp_path)
    arguments = [SCRIPT, "wheels", "3.13", "aarch64", "41", wheel, EXTRAS]
    done = subprocess.run(arguments, env=bundle.environment, check=False, capture_output=True, text=True)
    assert done.returncode != 0
    assert f"{wheel} has no pins for broker: run `make pins` in its checkout and build it again." in done.stderr
    assert list(bundle.folder.iterdir()) == []


@pytest.mark.parametrize("name", ["pyspark", "py4j"])
def test_spark_fits_every_machine(name: str) -> None:
    wheel = Parser().parsestr(distribution(name).read_text("WHEEL") or "")
    assert wheel["Root-Is-Purelib"] == "true"
    assert "py3-none-any" in wheel.get_all("Tag", [])


def load_alignments(data: bytes) -> list[int]:
    """Return the alignment of each loaded segment of a 64-bit ELF file for aarch64; none of anything else."""
    if data[:5] != b"\x7fELF\x02" or struct.unpack_from("<H", data, 18)[0] != AARCH64:
        return []
    (start,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    headers = [start + index * size for index in range(count)]
    return [
        struct.unpack_from("<Q", data, at + 48)[0] for at in headers if struct.unpack_from("<I", data, at)[0] == LOADED
    ]


def compiled(archives: list[Path]) -> dict[str, bytes]:
    """Return the ELF files for aarch64 Linux in wheels or jars."""
    found = {}
    for archive in archives:
        with zipfile.ZipFile(archive) as file:
            for name in file.namelist():
                if ".so" in name and "android" not in name and load_alignments(data := file.read(name)):
                    found[f"{archive.name}: {name}"] = data
    return found


def check_pages(parts: Mapping[str, bytes]) -> None:
    assert [name for name, data in parts.items() if min(load_alignments(data)) < PAGE_BYTES] == []
    # jemalloc that was built for 4 KiB loads, and ends the process with these words.
    assert [name for name, data in parts.items() if b"Unsupported system page size" in data] == []


def test_wheels_load_with_pages_of_16_kib(wheels: Path) -> None:
    parts = compiled(sorted(wheels.iterdir()))
    assert len(parts) >= 10
    check_pages(parts)


def test_spark_s_jars_load_with_pages_of_16_kib() -> None:
    jars = sorted(Path(str(distribution("pyspark").locate_file("pyspark/jars"))).glob("*.jar"))
    parts = compiled(jars)
    assert len(parts) >= 10
    check_pages(parts)


def test_a_damaged_part_is_made_again_and_is_the_same(drupelet_wheel: Path, tmp_path: Path) -> None:
    bundle = Bundle(tmp_path)
    arguments = ("wheels", "3.13", "aarch64", "41", str(drupelet_wheel), "compression")
    assert bundle.make(*arguments) == "made"
    tar = bundle.folder / "wheels-cp313-aarch64.tar"
    first = tar.read_bytes()
    tar.write_bytes(first[:-512])  # cut short on its way
    assert bundle.make(*arguments, VALID_S="0") == "made"
    assert tar.read_bytes() == first


def test_packages_are_enough_for_apt(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path)
    assert bundle.make("packages", "trixie", "arm64", "mosquitto") == "made"
    repository = bundle.unpacked("packages-trixie-arm64.tar", tmp_path / "repository")
    state = tmp_path / "board"
    (state / "lists/partial").mkdir(parents=True)
    (state / "status").touch()
    (state / "sources.list").write_text(f"deb [trusted=yes] file:{repository} ./\n")
    (state / "apt.conf").write_text(
        f'Dir "{state}"; Dir::State "{state}"; Dir::State::status "{state}/status"; Dir::Cache "{state}";\n'
        f'Dir::Etc "{state}"; Dir::Etc::parts "/dev/null"; APT::Architecture "arm64"; APT::Architectures "arm64";\n'
        f'APT::Sandbox::User ""; APT::Install-Recommends "false";\n'
    )

    def apt(*arguments: str) -> str:
        done = subprocess.run(
            ["apt-get", *arguments],
            env=os.environ | {"APT_CONFIG": str(state / "apt.conf"), "LC_ALL": "C"},
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    apt("update")
    installed = [
        line.split()[1] for line in apt("--simulate", "install", "mosquitto").splitlines() if line[:4] == "Inst"
    ]
    assert {"mosquitto", "libc6"} <= set(installed)
    assert len(list(repository.glob("*.deb"))) == len(installed)
    # Each file is the one that Packages means: apt copies and checks it.
    (state / "archives/partial").mkdir(parents=True)
    apt("--yes", "--download-only", "-o", "Dir::Cache::archives=" + str(state / "archives"), "install", "mosquitto")
