"""One Spark session, sized for a board: its Java, its heap, its jars.

Here: everything that must be set before the JVM starts, and its end. Never here: what is computed.
A driver heap below about 472 MB is refused by Spark. The serial collector and the C1 compiler alone keep the JVM's
memory and its start small; `--set spark.…` overrides any of it.
"""

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from spark.config import Settings
from spark.jars import connector_jars
from spark.java import java_home
from spark.logs import log

JVM_STOP_S = 10
JVM_GONE = (Py4JError, OSError)  # what any call raises once the JVM has ended
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
LOGGED = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
JVM_OPTIONS = (
    f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=96m -XX:+ExitOnOutOfMemoryError {LOGGED}"
)

OPTIONS = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": JVM_OPTIONS,
    "spark.executor.extraJavaOptions": JVM_OPTIONS,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",  # replanning costs more than these batches
    "spark.sql.codegen.wholeStage": "false",  # compiling Java costs more than it saves on these batches
    "spark.locality.wait": "0",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.numRecentProgressUpdates": "30",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "10",
}


def start_session(settings: Settings, name: str) -> SparkSession:
    """Start the JVM and its session; raises ConfigurationError if Java 17 or 21, or a jar, cannot be had."""
    prepare_environment(settings.master)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs what it raises as well
    builder = SparkSession.builder.master(settings.master).appName(name)
    for key, value in session_options(settings).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def session_options(settings: Settings) -> dict[str, str]:
    """Collect the session's options: ours, then the operator's.

    The jars are on the class paths, so all workers have them at one place; `spark.jars` would copy them at each start.
    """
    jars = ":".join(str(jar) for jar in connector_jars())
    paths = {"spark.driver.extraClassPath": jars, "spark.executor.extraClassPath": jars}
    here = {"spark.driver.host": "127.0.0.1"} if is_local(settings.master) else {}
    return {**OPTIONS, **here, **paths, **settings.spark}


def is_local(master: str) -> bool:
    """Whether driver and executors are one process."""
    return master.startswith("local")


def prepare_environment(master: str) -> None:
    """Set what PySpark reads from the environment: Java, this Python, the loopback address, fewer malloc arenas."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    if is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def stop_session(session: SparkSession) -> None:
    """Stop Spark and wait until its JVM has ended, so that nothing outlives this process."""
    gateway: Any = SparkContext._gateway
    try:
        session.stop()
        gateway.shutdown()
    except JVM_GONE as error:  # a signal to the whole process group reaches the JVM as well
        log("warning", "jvm_gone", reason=type(error).__name__)
    jvm: subprocess.Popen[bytes] = gateway.proc
    if jvm.stdin is not None:
        jvm.stdin.close()  # PySpark's JVM ends when its standard input does
    jvm.wait(JVM_STOP_S)
    SparkContext._gateway = SparkContext._jvm = None
