"""Find the Java for Spark and Ivy: the first of version 17 or 21 on this machine.

Contains: the search. Does not contain: Spark, or any package beyond the standard library, as the tests' set-up calls
it before packages are installed.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from drupelet.errors import ConfigurationError

JAVA_MAJORS = (17, 21)


def java_home() -> Path:
    """Find the home of Java 17 or 21; raises ConfigurationError that names what was found instead."""
    rejected = []
    for program in dict.fromkeys(program.resolve() for program in java_programs()):
        major = java_major(program)
        if major in JAVA_MAJORS:
            return program.parent.parent
        rejected.append(f"{program} is {major or 'no working Java'}")
    found = f" (found: {'; '.join(rejected)})" if rejected else ""
    raise ConfigurationError(
        f"Java 17 or 21 is not installed{found}; Spark 4.0 breaks on 23 and newer: "
        "`apt install openjdk-17-jre-headless` or `apt install openjdk-21-jre-headless`, or set JAVA_HOME"
    )


def java_programs() -> Iterator[Path]:
    """List the Java programs to try, best first: DRUPELET_JAVA_HOME, JAVA_HOME, PATH, then /usr/lib/jvm."""
    homes = [os.environ.get("DRUPELET_JAVA_HOME"), os.environ.get("JAVA_HOME")]
    yield from (Path(home) / "bin/java" for home in homes if home)
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)
    yield from sorted(Path("/usr/lib/jvm").glob("*/bin/java"))


def java_major(program: Path) -> int | None:
    """Ask a Java program for its major version; None if it does not run."""
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, check=False, timeout=30)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(found[1]) if done.returncode == 0 and found else None
