"""Start and stop one Spark session, sized for a board: its Java, its heap, its jars.

Contains: all settings from before the JVM starts, and its end. Does not contain: the computation.
Spark refuses a driver heap below about 472 MB. The serial collector and the C1 compiler keep the JVM's memory and start
time small; `--set spark.…` overrides each option.
"""

import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from pathlib import Path
from threading import Event, Thread
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext, java_gateway
from pyspark.accumulators import AccumulatorServer
from pyspark.sql import SparkSession

from drupelet.addresses import host_and_port
from drupelet.errors import ConfigurationError, reason
from drupelet.observe import log_tree
from spark.config import Settings
from spark.jvm.jars import connector_jars
from spark.jvm.java import java_home
from spark.logs import log
from spark.wait_log import Wait

LOOPBACK = "127.0.0.1"
JVM_STOP_S = 10
STOP_POLL_S = 0.2
JVMS: list[subprocess.Popen[bytes]] = []  # that PySpark has started; one
JVM_GONE = (Py4JError, OSError)  # errors of any call once the JVM has ended
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
LOGGED = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
# Java 17 by itself begins with a 64th of the board's memory as heap, gives none back before 70 % of it are free, and
# bounds neither classes nor buffers outside it. README.md has the figures.
JVM_OPTIONS = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xms64m -XX:MaxNewSize=64m"
    " -XX:MinHeapFreeRatio=30 -XX:MaxHeapFreeRatio=50 -XX:MaxMetaspaceSize=256m"
    " -XX:ReservedCodeCacheSize=96m -XX:MaxDirectMemorySize=128m"
    f" -XX:+ExitOnOutOfMemoryError {LOGGED}"
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
    "spark.network.maxRemoteBlockSizeFetchToMem": "64m",  # below the direct memory, or no executor starts
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.numRecentProgressUpdates": "30",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "10",
}


class StoppedError(Exception):
    """A stop arrived before Spark had started."""


def start_session(settings: Settings, name: str, stop: Event | None = None) -> SparkSession:
    """Start the JVM and its session; raises ConfigurationError if Java 17 or 21, or a jar, cannot be had.

    Once `stop` is set, the JVM is killed and StoppedError raised.
    """
    options = session_options(settings)
    prepare_environment(options)
    quiet_libraries()
    java_gateway.Popen = deaf_to_sigterm  # type: ignore[attr-defined, assignment]
    builder = SparkSession.builder.master(settings.master).appName(name)
    for key, value in options.items():
        builder = builder.config(key, value)
    java, heap = os.environ["JAVA_HOME"], options["spark.driver.memory"]
    with Wait("waiting_for_jvm", master=settings.master, java=java, heap=heap):
        return started(builder.getOrCreate, stop or Event())


def started(start: Callable[[], SparkSession], stop: Event) -> SparkSession:
    """Start in a thread, where PySpark handles no signal: its handler of Ctrl-C breaks any call to the JVM."""
    outcome: Future[SparkSession] = Future()

    def work() -> None:
        try:
            outcome.set_result(start())
        except BaseException as error:  # noqa: BLE001 - raised by the caller that waits
            outcome.set_exception(error)

    Thread(target=work, name="start of Spark", daemon=True).start()
    while not wait([outcome], STOP_POLL_S).done:
        if stop.is_set():
            for jvm in JVMS:
                jvm.kill()
    if stop.is_set() and outcome.exception() is not None:
        raise StoppedError
    return outcome.result()


def quiet_libraries() -> None:
    """Log PySpark's messages as lines without tracebacks: it also logs errors that it raises."""
    log_tree.set_up("spark", silent=["py4j"])
    for handler in logging.getLogger().handlers:
        handler.addFilter(without_traceback)
    AccumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]  # prints the end of a JVM


def deaf_to_sigterm(command: list[str], *, preexec_fn: Callable[[], None], **more: Any) -> subprocess.Popen[bytes]:
    """Start the JVM so that it ignores SIGTERM to the whole group, as PySpark does for Ctrl-C.

    Otherwise it would end before the job, with a Java trace for each query.
    """

    def ignore() -> None:
        preexec_fn()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    jvm = subprocess.Popen(command, preexec_fn=ignore, **more)  # noqa: S603, PLW1509 - as PySpark itself does
    JVMS.append(jvm)
    return jvm


def without_traceback(record: logging.LogRecord) -> bool:
    """Cut a library's record to its message."""
    record.exc_info = None
    return True


def session_options(settings: Settings) -> dict[str, str]:
    """Return the session's options: the defaults, then the operator's.

    The jars are on the class paths, so all workers have them at one place; `spark.jars` would copy them at each
    start.
    """
    jars = ":".join(str(jar) for jar in connector_jars())
    paths = {"spark.driver.extraClassPath": jars, "spark.executor.extraClassPath": jars}
    return {**OPTIONS, **driver_address(settings.master), **paths, **settings.spark}


def driver_address(master: str) -> dict[str, str]:
    """Bind the driver to one address, else Spark listens on every interface: to loopback where it has no executors.

    In a cluster, to the address that `$SPARK_CONF_DIR/spark-defaults.conf` names, else the one towards the master.
    """
    if is_local(master):
        return {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    given = default_options()
    address = address_towards(*host_and_port(master.removeprefix("spark://").split(",")[0]))
    ours = {"spark.driver.host": address, "spark.driver.bindAddress": given.get("spark.driver.host", address)}
    return {key: value for key, value in ours.items() if key not in given}


def default_options() -> dict[str, str]:
    """Read `$SPARK_CONF_DIR/spark-defaults.conf`, as far as a key and its value stand on one line."""
    folder = os.environ.get("SPARK_CONF_DIR")
    path = Path(folder or ".") / "spark-defaults.conf"
    if not folder or not path.exists():
        return {}
    found = (re.fullmatch(r"\s*([\w.]+)(?:\s*[=:]\s*|\s+)(.*?)\s*", line) for line in path.read_text().splitlines())
    return {each[1]: each[2] for each in found if each}


def address_towards(host: str, port: int) -> str:
    """Return the address from which this machine would connect to another; send nothing."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ConfigurationError(
            f"the master {host}:{port} cannot be reached from here ({reason(error)}): give another --master"
        ) from error


def is_local(master: str) -> bool:
    """Return whether driver and executors are one process."""
    return master.startswith("local")


def prepare_environment(options: Mapping[str, str]) -> None:
    """Set what PySpark reads from the environment: Java, this Python, the driver's address, fewer malloc arenas."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    if "spark.driver.bindAddress" in options:  # else spark-defaults.conf has it; Spark warns of a host without
        os.environ.setdefault("SPARK_LOCAL_IP", options["spark.driver.bindAddress"])


def mute_stderr(gateway: Any) -> None:
    """Drop the JVM's output outside its log: a trace for each response that a pool refuses as Spark stops.

    An executor that leaves at that moment causes one (RejectedExecutionException), by Scala's default reporter.
    """
    java = gateway.jvm.java
    java.lang.System.setErr(java.io.PrintStream(java.io.OutputStream.nullOutputStream()))


def stop_session(session: SparkSession) -> None:
    """Stop Spark and wait until its JVM has ended, so that nothing outlives this process."""
    gateway: Any = SparkContext._gateway
    try:
        mute_stderr(gateway)
        session.stop()
        gateway.shutdown()
    except JVM_GONE as error:  # a signal to the whole process group reaches the JVM as well
        log("warning", "jvm_gone", reason=type(error).__name__)
    jvm: subprocess.Popen[bytes] = gateway.proc
    if jvm.stdin is not None:
        jvm.stdin.close()  # PySpark's JVM ends when its standard input does
    jvm.wait(JVM_STOP_S)
    SparkContext._gateway = SparkContext._jvm = None
