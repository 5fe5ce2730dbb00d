"""Become the JVM of Spark's standalone master or worker.

Contains: command line and environment. Spark's own scripts start a second JVM to compute these, and pyspark's wheel
lacks the scripts that start a cluster. The settings, with the secret, are in `$SPARK_CONF_DIR/spark-defaults.conf`,
as a command line is public. Does not contain: a session, a job. Source: Spark's guide, Spark Standalone Mode.
"""

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from spark.jvm.java import java_home

MAIN_CLASSES = {"master": "org.apache.spark.deploy.master.Master", "worker": "org.apache.spark.deploy.worker.Worker"}
JVM_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",  # the JVM writes its file all the time
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.net.preferIPv4Stack=true",
)
LOG_SETTINGS = Path(__file__).parent.with_name("log4j2.properties")


def exec_java(role: str, heap: str, arguments: Sequence[str]) -> NoReturn:
    """Replace this process by Spark's master or worker; its web page is on the loopback address only."""
    java = str(java_home() / "bin/java")
    os.execve(java, command(java, role, heap, arguments), {**os.environ, **environment()})  # noqa: S606


def command(java: str, role: str, heap: str, arguments: Sequence[str]) -> list[str]:
    """Return the JVM's command line."""
    options = [f"-Xmx{heap}", *JVM_OPTIONS, f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"]
    return [java, "-cp", f"{spark_home()}/jars/*", *options, MAIN_CLASSES[role], *arguments]


def environment() -> dict[str, str]:
    """Return the environment of Spark's scripts: its home and its Scala; a worker starts no executor without them."""
    return {
        "SPARK_HOME": str(spark_home()),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_IP": "127.0.0.1",  # address of the web page; the cluster's own traffic uses `--host`
        "MALLOC_ARENA_MAX": os.environ.get("MALLOC_ARENA_MAX", "2"),
    }


def spark_home() -> Path:
    """Find Spark in pyspark; raises ModuleNotFoundError if it is not installed."""
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(name="pyspark")
    return Path(spec.submodule_search_locations[0])
