"""Where the programs are that the tests run but pip cannot install: Java, mosquitto, kcat, makers of images, jars.

What is missing raises MissingRuntimeError, which names it and the remedy; nothing is ever skipped. Only the standard
library may be imported here: the set-up runs `python3 -m tests.support.runtimes` before there is an environment.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

JAVA_MAJORS = (17, 21)
KAFKA_LOCK = Path(__file__).with_name("kafka-4.3.1.jars")
MAVEN_URL_VARIABLE = "DRUPELET_MAVEN_URL"
MAVEN_URL = "https://repo1.maven.org/maven2"
_PARALLEL_DOWNLOADS = 6
_TRIES = 4


class MissingRuntimeError(RuntimeError):
    """A program that the tests need is not on this machine; the message is one sentence with the remedy."""


def console_script(name: str) -> Path:
    """Return the path of one of our commands in this interpreter's environment."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise MissingRuntimeError(f"{name} is not in {path.parent}: run `make install-deps` first.")
    return path


def _program(name: str, package: str) -> Path:
    search = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/sbin"])
    found = shutil.which(name, path=search)
    if found is None:
        raise MissingRuntimeError(f"{name} is not installed: `apt install {package}`.")
    return Path(found)


def mosquitto() -> Path:
    """Return the mosquitto server."""
    return _program("mosquitto", "mosquitto")


def kcat() -> Path:
    """Return kcat, the librdkafka command line."""
    return _program("kcat", "kcat")


def mcopy() -> Path:
    """Return mtools' mcopy, which edge-board flash writes FAT partitions with."""
    return _program("mcopy", "mtools")


def mke2fs() -> Path:
    """Return mke2fs, which makes root file systems; debugfs comes with it."""
    return _program("mke2fs", "e2fsprogs")


def mkfs_vfat() -> Path:
    """Return mkfs.vfat, which makes boot partitions."""
    return _program("mkfs.vfat", "dosfstools")


def sfdisk() -> Path:
    """Return sfdisk, which makes partition tables."""
    return _program("sfdisk", "fdisk")


@functools.cache
def java() -> Path:
    """Return the first `java` of version 17 or 21: DRUPELET_JAVA_HOME, JAVA_HOME, PATH, then /usr/lib/jvm."""
    rejected = []
    for candidate in _java_candidates():
        major = _java_major(candidate)
        if major in JAVA_MAJORS:
            return candidate
        rejected.append(f"{candidate} is {major or 'no working Java'}")
    reason = f" (found: {'; '.join(rejected)}; Spark 4.0 breaks on 23 and newer)" if rejected else ""
    package = "openjdk-17-jre-headless` or `apt install openjdk-21-jre-headless"
    raise MissingRuntimeError(f"Java 17 or 21 is not installed{reason}: `apt install {package}`, or set JAVA_HOME.")


def java_home() -> Path:
    """Return the JAVA_HOME that belongs to `java()`, as Spark wants it."""
    return java().resolve().parent.parent


def _java_candidates() -> Iterator[Path]:
    homes = [os.environ[name] for name in ("DRUPELET_JAVA_HOME", "JAVA_HOME") if os.environ.get(name)]
    paths = [Path(home) / "bin/java" for home in homes]
    on_path = shutil.which("java")
    paths += [Path(on_path)] if on_path else []
    paths += sorted(Path("/usr/lib/jvm").glob("*/bin/java"))
    seen: set[Path] = set()
    for path in paths:
        if path.exists() and path.resolve() not in seen:
            seen.add(path.resolve())
            yield path


def _java_major(path: Path) -> int | None:
    done = subprocess.run([path, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(found[1]) if done.returncode == 0 and found else None


def kafka_java(*options: str) -> list[str]:
    """Return the start of a command line that runs a main class of Apache Kafka 4.3.1; the class name goes after it."""
    return [str(java()), *options, "-cp", f"{kafka_jars()}/*"]


def kafka_jars() -> Path:
    """Return the folder with Apache Kafka 4.3.1's jars, fetched into the cache when it is not there."""
    return jars(KAFKA_LOCK, "kafka-4.3.1")


def cache_directory() -> Path:
    """Return $XDG_CACHE_HOME/drupelet, or ~/.cache/drupelet."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "drupelet"


@functools.cache
def jars(lock: Path, name: str) -> Path:
    """Return the cache folder `jars/NAME` that holds exactly the jars of a lock file, fetching what it lacks.

    A lock file has a line `SHA256  PATH` per jar, the path below a Maven repository. Each jar is checked when fetched.
    """
    folder = cache_directory() / "jars" / name
    folder.mkdir(parents=True, exist_ok=True)
    missing = [(digest, path) for digest, path in _locked(lock) if not (folder / Path(path).name).exists()]
    if missing:
        _fetch_all(missing, folder, name)
    return folder


def _locked(lock: Path) -> list[tuple[str, str]]:
    lines = [line.split() for line in lock.read_text().splitlines() if line and not line.startswith("#")]
    return [(digest, path) for digest, path in lines]


def _fetch_all(missing: list[tuple[str, str]], folder: Path, name: str) -> None:
    started = time.monotonic()
    fetched = 0
    with concurrent.futures.ThreadPoolExecutor(_PARALLEL_DOWNLOADS) as pool:
        waiting = [pool.submit(_fetch, digest, path, folder) for digest, path in missing]
        try:
            for done, future in enumerate(concurrent.futures.as_completed(waiting), start=1):
                fetched += future.result()
                _progress(f"{name}: {done} of {len(missing)} jars, {fetched / 1e6:.0f} MB", last=done == len(missing))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    _progress(f"{name}: fetched in {time.monotonic() - started:.0f} s", last=True)


def _progress(text: str, *, last: bool) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{text}" + ("\n" if last else ""))
    elif last:
        sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _fetch(digest: str, path: str, folder: Path) -> int:
    base = os.environ.get(MAVEN_URL_VARIABLE, MAVEN_URL).rstrip("/")
    content = _download(f"{base}/{path}")
    actual = hashlib.sha256(content).hexdigest()
    if actual != digest:
        raise MissingRuntimeError(
            f"{base}/{path} has the SHA-256 {actual}, expected {digest}: the mirror is not to be trusted."
        )
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".", delete=False) as file:
        file.write(content)
    Path(file.name).chmod(0o644)
    Path(file.name).replace(folder / Path(path).name)
    return len(content)


def _download(url: str) -> bytes:
    for attempt in range(1, _TRIES + 1):
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                content: bytes = answer.read()
                return content
        except OSError as error:
            if attempt == _TRIES:
                raise MissingRuntimeError(
                    f"{url} cannot be fetched ({error}): give another Maven repository in {MAVEN_URL_VARIABLE}."
                ) from error
            time.sleep(attempt)
    raise AssertionError("unreachable")


RUNTIMES: dict[str, Callable[[], Path]] = {
    "java": java,
    "mosquitto": mosquitto,
    "kcat": kcat,
    "mtools": mcopy,
    "e2fsprogs": mke2fs,
    "dosfstools": mkfs_vfat,
    "fdisk": sfdisk,
    "kafka-jars": kafka_jars,
}


def main() -> int:
    """Print where the named runtimes are; 1 and a sentence on stderr for each that is missing."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.support.runtimes", description=main.__doc__)
    parser.add_argument("names", nargs="*", choices=[*RUNTIMES, []], metavar="NAME", help=", ".join(RUNTIMES))
    status = 0
    for name in parser.parse_args().names or RUNTIMES:
        try:
            print(f"{name}: {RUNTIMES[name]()}")
        except MissingRuntimeError as error:
            print(error, file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
