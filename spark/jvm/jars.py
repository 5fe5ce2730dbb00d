"""Fetch and check pinned jars: Spark's Kafka connector, and any other set that names its jars by coordinates.

Contains: the connector's pins (in `connector.jars`), the cache, the check. Does not contain: Spark, the protocol of a
repository: pyspark's Apache Ivy reads it, by default Maven Central. pyspark's own jars have the other dependencies.
A jar counts as present only under its final name, which it gets after its SHA-256 was checked.
"""

import hashlib
import os
import re
import subprocess
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree.ElementTree import Element, ElementTree, SubElement

from drupelet.errors import ConfigurationError
from spark.jvm.java import java_home
from spark.logs import log
from spark.wait_log import Wait

MAVEN_URL_VARIABLE = "DRUPELET_MAVEN_URL"
SHIPPED_VARIABLE = "DRUPELET_SPARK_JARS"
CONNECT_TIMEOUT_MS = 10_000
READ_TIMEOUT_MS = 60_000
FETCH_TIMEOUT_S = 900  # a whole set, over a slow link
JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # a short run

# lines of Ivy's output to quote, the most specific first
REASONS = (
    r"Exception in thread .*",
    r"(?<=:::: ERRORS\n)\s*\w.*",
    r"(?<=:::: WARNINGS\n)\s*\w.*",
    r"[\w.-]+#\S+;\S+: .*",
    r"^[^.\n].*",  # dots are the progress of a download
)


def pins_in(lock: Path) -> dict[str, str]:
    """Read a file of pins: lines of a SHA-256 and `group:artifact:version`; returns pin -> SHA-256."""
    lines = (line.split() for line in lock.read_text().splitlines() if not line.startswith("#"))
    return {pin: digest for digest, pin in lines}


CONNECTOR_JARS = pins_in(Path(__file__).parent.with_name("connector.jars"))


def connector_jars() -> list[Path]:
    """Return the paths of the connector's jars: the ones in DRUPELET_SPARK_JARS, if it is set, else the cache's.

    Fetches jars that the cache lacks, none that the folder lacks; raises ConfigurationError for an unavailable jar.
    """
    shipped = os.environ.get(SHIPPED_VARIABLE)
    if shipped:
        return shipped_jars(Path(shipped))
    return cached_jars("spark-kafka-4.0.0", CONNECTOR_JARS, "edge-spark jars")


def shipped_jars(folder: Path) -> list[Path]:
    """Return the paths of the connector's jars in a folder that the operator has filled and checked."""
    jars = [folder / file_name(pin) for pin in CONNECTOR_JARS]
    for jar in jars:
        if not jar.exists():
            raise ConfigurationError(f"{jar} is missing, and {SHIPPED_VARIABLE} says to fetch none: put it there")
    return jars


def cached_jars(name: str, pins: Mapping[str, str], command: str) -> list[Path]:
    """Return the paths of a set's jars in its cache folder, fetching what is missing.

    `pins` has the SHA-256 of each `group:artifact:version`; `command` is the command to run with a network.
    Raises ConfigurationError if a jar is unavailable, and keeps the others; or if one is not the pinned one.
    """
    folder = jars_directory(name)
    folder.mkdir(parents=True, exist_ok=True)
    missing = {pin: digest for pin, digest in pins.items() if not (folder / file_name(pin)).exists()}
    if missing:
        fetch(missing, folder, command)
    return [folder / file_name(pin) for pin in pins]


def jars_directory(name: str) -> Path:
    """Name the cache folder of a set: $XDG_CACHE_HOME/drupelet/jars/NAME."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "drupelet/jars" / name


def file_name(pin: str) -> str:
    """Name the file of a `group:artifact:version`."""
    _, artifact, version = pin.split(":")
    return f"{artifact}-{version}.jar"


def fetch(missing: Mapping[str, str], folder: Path, command: str) -> None:
    """Fetch jars into their folder, each whole and checked or not at all; processes may do so concurrently."""
    url = os.environ.get(MAVEN_URL_VARIABLE)
    repository = url or "Maven Central"
    started = time.monotonic()
    waiting = Wait("jars_fetching", set=folder.name, jars=len(missing), repository=repository)
    # on the folder's file system, so that a rename suffices
    with waiting, TemporaryDirectory(dir=folder.parent, prefix=".") as place:
        said = run_ivy(missing, url, Path(place))
        came = [pin for pin in missing if (Path(place) / file_name(pin)).exists()]
        for pin in came:
            keep(Path(place) / file_name(pin), folder, pin, missing[pin])
    absent = [file_name(pin) for pin in missing if pin not in came]
    if absent:
        others = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        raise ConfigurationError(
            f"{absent[0]}{others} cannot be fetched from {repository} ({reason(said)}): connect once and run "
            f"`{command}`, or name another Maven repository in {MAVEN_URL_VARIABLE}"
        )
    took_s = f"{time.monotonic() - started:.1f}"
    size = sum((folder / file_name(pin)).stat().st_size for pin in missing)
    log("info", "jars_fetched", set=folder.name, jars=len(missing), bytes=size, took_s=took_s)


def keep(jar: Path, folder: Path, pin: str, digest: str) -> None:
    """Move a jar to its final name if its SHA-256 is the pinned one."""
    with jar.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != digest:
        raise ConfigurationError(f"{pin} has SHA-256 {found}, not {digest}: do not trust the repository it came from")
    jar.replace(folder / jar.name)


def run_ivy(pins: Mapping[str, str], url: str | None, place: Path) -> str:
    """Let Ivy fetch these jars into a folder, as far as it can; return its output."""
    settings, modules = place / "ivysettings.xml", place / "ivy.xml"
    ElementTree(ivy_settings(url, place)).write(settings)
    ElementTree(ivy_modules(pins)).write(modules)
    java = [str(java_home() / "bin/java"), *JVM_OPTIONS, "-cp", str(ivy_jar())]
    try:
        done = subprocess.run(  # noqa: S603
            [*java, "org.apache.ivy.Main", "-warn", "-settings", settings, "-ivy", modules],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=FETCH_TIMEOUT_S,
            check=False,  # the caller finds the missing jars, and keeps the others
        )
    except subprocess.TimeoutExpired:
        return f"it took more than {FETCH_TIMEOUT_S} s"
    return done.stdout.decode(errors="replace")


def ivy_jar() -> Path:
    """Find Apache Ivy among pyspark's jars."""
    spec = find_spec("pyspark")
    places = (spec and spec.submodule_search_locations) or []
    for jar in (jar for place in places for jar in Path(place).glob("jars/ivy-*.jar")):
        return jar
    raise ModuleNotFoundError(name="pyspark")  # which contains Apache Ivy


def ivy_settings(url: str | None, place: Path) -> Element:
    """Describe one Maven repository, Ivy's own default if no URL is given; jars go to `place` under their final names.

    Neither POMs nor published checksums are read: every jar is named, and pinned by a better one.
    """
    root = Element("ivysettings")
    SubElement(root, "property", name="ivy.checksums", value="")
    SubElement(root, "settings", defaultResolver="maven")
    timeouts = SubElement(root, "timeout-constraints")
    bounds = {"connectionTimeout": str(CONNECT_TIMEOUT_MS), "readTimeout": str(READ_TIMEOUT_MS)}
    SubElement(timeouts, "timeout-constraint", bounds, name="bounded")
    SubElement(root, "caches", defaultCacheDir=str(place), artifactPattern="[artifact]-[revision].[ext]")
    where = {"root": url} if url else {}
    maven = {"m2compatible": "true", "usepoms": "false", "timeoutConstraint": "bounded", **where}
    SubElement(SubElement(root, "resolvers"), "ibiblio", maven, name="maven")
    return root


def ivy_modules(pins: Mapping[str, str]) -> Element:
    """List the jars as dependencies without dependencies of their own."""
    root = Element("ivy-module", version="2.0")
    SubElement(root, "info", organisation="drupelet", module="jars")
    dependencies = SubElement(root, "dependencies")
    for group, artifact, version in (pin.split(":") for pin in pins):
        SubElement(dependencies, "dependency", org=group, name=artifact, rev=version, transitive="false")
    return root


def reason(said: str) -> str:
    """Return the line of Ivy's output that best explains a missing jar."""
    found = (re.search(pattern, said, re.MULTILINE) for pattern in REASONS)
    return next((line[0].strip() for line in found if line), "Ivy gave no reason")
