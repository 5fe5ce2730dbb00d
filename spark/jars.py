"""Spark's Kafka connector: four pinned jars, fetched once from a Maven repository and kept in a cache.

Here: the pins, the download, the check. Never here: Spark itself. The rest of what the connector needs is in pyspark's
own jars. A jar counts as present only under its final name, which it gets after its SHA-256 was checked.
"""

import hashlib
import os
import tempfile
import urllib.request
from pathlib import Path

from spark.config import ConfigurationError

MAVEN_URL_VARIABLE = "DRUPELET_MAVEN_URL"
MAVEN_URL = "https://repo1.maven.org/maven2"
JAR_BYTES_MAX = 32 * 1024 * 1024
DOWNLOAD_TIMEOUT_S = 60

# path below the repository -> SHA-256
CONNECTOR_JARS = {
    "org/apache/spark/spark-sql-kafka-0-10_2.13/4.0.0/spark-sql-kafka-0-10_2.13-4.0.0.jar": (
        "33a3b8b04df4a2e43c9d5bf8ca5972936a1ac662f2714e014d00ef6f27468bf3"
    ),
    "org/apache/spark/spark-token-provider-kafka-0-10_2.13/4.0.0/spark-token-provider-kafka-0-10_2.13-4.0.0.jar": (
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767"
    ),
    "org/apache/kafka/kafka-clients/3.9.0/kafka-clients-3.9.0.jar": (
        "15c1e137f2c2c94398e27abc4060a03b6bde10bf9fac15e8f70c02320b202f18"
    ),
    "org/apache/commons/commons-pool2/2.12.0/commons-pool2-2.12.0.jar": (
        "6d3bd18df8410f3e31b031aca582cc109342358a62a2759ebd0c4cdf30d06f8b"
    ),
}


def jars_directory() -> Path:
    """Name the cache: $XDG_CACHE_HOME/drupelet/jars/spark-kafka-4.0.0."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "drupelet/jars/spark-kafka-4.0.0"


def connector_jars() -> list[Path]:
    """Return the paths of the connector's jars, fetching what is missing; raises ConfigurationError if it cannot."""
    directory = jars_directory()
    directory.mkdir(parents=True, exist_ok=True)
    return [present(directory, path, digest) for path, digest in CONNECTOR_JARS.items()]


def present(directory: Path, path: str, digest: str) -> Path:
    """Return one jar's place in the cache, after a download if it is not there."""
    jar = directory / Path(path).name
    if not jar.exists():
        keep(jar, verified(download(path), path, digest))
    return jar


def download(path: str) -> bytes:
    """Read one file of the Maven repository, at most 32 MiB."""
    url = f"{os.environ.get(MAVEN_URL_VARIABLE, MAVEN_URL).rstrip('/')}/{path}"
    try:
        with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT_S) as answer:  # noqa: S310 - the operator's own URL
            content: bytes = answer.read(JAR_BYTES_MAX)
            return content
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{url} cannot be fetched ({error}): connect once and run `edge-spark jars`, "
            f"or name another Maven repository in {MAVEN_URL_VARIABLE}"
        ) from error


def verified(content: bytes, path: str, digest: str) -> bytes:
    """Return the content if its SHA-256 is the pinned one."""
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise ConfigurationError(f"{path} has SHA-256 {found}, not {digest}: do not trust the repository it came from")
    return content


def keep(jar: Path, content: bytes) -> None:
    """Write a file whole or not at all; several processes may fetch the same jar at once."""
    with tempfile.NamedTemporaryFile(dir=jar.parent, prefix=".", delete=False) as file:
        file.write(content)
    Path(file.name).chmod(0o644)
    Path(file.name).replace(jar)
