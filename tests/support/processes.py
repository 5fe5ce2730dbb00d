"""Real processes for tests, the demo and the benchmarks: started, waited for, killed, restarted, always reaped.

Every child leads a session of its own and is registered with a watchdog, a tiny process that kills what is left when
this one dies, however it dies. Nothing here ever ends a process that it did not start.
No client of any protocol may live here.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from tests.support import runtimes
from tests.support.ports import can_connect, free_port
from tests.support.proxy import TcpProxy
from tests.support.waiting import Deadline, DeadlineError, wait_until

__all__ = [
    "JVM_STOP_STATUSES",
    "ApacheKafka",
    "DeadlineError",
    "EdgeBroker",
    "Mosquitto",
    "Process",
    "ProcessError",
    "Startable",
    "TcpProxy",
    "all_stopped",
    "can_connect",
    "format_kafka",
    "free_port",
    "live",
    "start_together",
    "wait_until",
]

READY_S = 30.0
STOP_S = 15.0
JVM_STOP_STATUSES = (0, 143)  # a JVM that SIGTERM ends reports that signal even when it stopped cleanly
LOG_TAIL_LINES = 40


class ProcessError(RuntimeError):
    """A child did not start, did not stop, or died; the message names it and ends with the tail of its log."""


_WATCHDOG = """
import os, signal, sys
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    try: os.killpg(group, signal.SIGKILL)
    except ProcessLookupError: pass
"""


class _Watchdog:
    """Kills the process groups still registered when the pipe to it closes, which the kernel does at any death."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def tell(self, sign: str, group: int) -> None:
        if self._child is None or self._owner != os.getpid():
            command = [sys.executable, "-I", "-S", "-c", _WATCHDOG]
            self._child = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
            self._owner = os.getpid()
        assert self._child.stdin is not None
        self._child.stdin.write(f"{sign}{group}\n".encode())
        self._child.stdin.flush()

    def close(self) -> None:
        if self._child is not None and self._owner == os.getpid():
            assert self._child.stdin is not None
            self._child.stdin.close()
            self._child.wait()
            self._child = None

    @property
    def child(self) -> subprocess.Popen[bytes] | None:
        """The helper process, once one is started."""
        return self._child


_watchdog = _Watchdog()
_live: dict[int, Process] = {}


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MiB; FileNotFoundError, ProcessLookupError: it has ended."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def watchdog() -> subprocess.Popen[bytes] | None:
    """Return the process that kills what is left when this one dies; it lasts as long as the test run."""
    return _watchdog.child


def live() -> list[Process]:
    """Return every Process that was started here and not yet stopped, the dead ones that nobody stopped included."""
    return list(_live.values())


@atexit.register
def _end_all() -> None:
    for process in live():
        process.kill()
    _watchdog.close()


class Process:
    """One child process: a context manager that starts it on entry and stops it on exit.

    stdout goes to `DIRECTORY/NAME.out`, stderr to `DIRECTORY/NAME.log`; both survive restarts and the test.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        directory: Path,
        *,
        environment: Mapping[str, str] | None = None,
        ready: Callable[[], bool] | str | None = None,
        ready_s: float = READY_S,
        stop_statuses: Sequence[int] = (0,),
    ) -> None:
        """Describe a child; `ready` is a condition, or a text to wait for on its stdout; `environment` adds to ours.

        `stop_statuses` are the exit statuses that are good after SIGTERM.
        """
        self.name = name
        self.command = [str(word) for word in command]
        self.directory = directory
        self.environment = dict(environment or {})
        self.output_path = directory / f"{name}.out"
        self.log_path = directory / f"{name}.log"
        self.ready_s = ready_s
        self.stop_statuses = tuple(stop_statuses)
        self._ready = ready
        self._child: subprocess.Popen[bytes] | None = None
        self._output_start = 0

    @property
    def pid(self) -> int:
        """The process id; raises ProcessError when it was not started or has been stopped."""
        if self._child is None:
            raise ProcessError(f"{self.name} is not started")
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._child is not None and self._child.poll() is None

    def start(self) -> Self:
        """Start the process and wait until it is ready; raises ProcessError when it dies or takes too long."""
        if self._child is not None:
            raise ProcessError(f"{self.name} is started already")
        self.spawn()
        try:
            self.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def spawn(self) -> None:
        """Start the process without waiting for it to be ready."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.output_path.open("ab") as output, self.log_path.open("ab") as log:
            self._output_start = output.tell()
            self._child = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )
        _watchdog.tell("+", self._child.pid)
        _live[self._child.pid] = self

    def wait_ready(self) -> None:
        """Wait until the process is ready; raises ProcessError when it dies first or takes longer than `ready_s`."""
        deadline = Deadline(self.ready_s)
        while not self._is_ready():
            self.check()
            if deadline.passed:
                raise ProcessError(f"{self.name} was not ready within {deadline.seconds:g} s\n{self.log_tail()}")
            time.sleep(0.01)

    def _is_ready(self) -> bool:
        if isinstance(self._ready, str):
            return self._ready in self.output()
        return self._ready is None or self._ready()

    def check(self) -> None:
        """Raise ProcessError when the process is not running."""
        if not self.running:
            status = None if self._child is None else self._child.returncode
            raise ProcessError(f"{self.name} is dead (exit status {status})\n{self.log_tail()}")

    def wait(self, deadline_s: float) -> int:
        """Wait until the process ends by itself and return its exit status; raises ProcessError after `deadline_s`."""
        child, seconds = self._started(), Deadline(deadline_s).seconds
        try:
            status = child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise ProcessError(f"{self.name} did not end within {seconds:g} s\n{self.log_tail()}") from None
        self._reap()
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process alone, not to its children."""
        self._started().send_signal(number)

    def stop(self, deadline_s: float = STOP_S) -> None:
        """End the process with SIGTERM; raises ProcessError when it was dead, is too slow, or reports a failure."""
        child, seconds = self._started(), Deadline(deadline_s).seconds
        try:
            self.check()
            child.terminate()
            status = child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise ProcessError(f"{self.name} ignored SIGTERM for {seconds:g} s\n{self.log_tail()}") from None
        finally:
            self._reap()
        if status not in self.stop_statuses:
            raise ProcessError(f"{self.name} ended with exit status {status} on SIGTERM\n{self.log_tail()}")

    def kill(self) -> None:
        """End the process and its children with SIGKILL, at once; nothing happens when it is not started."""
        if self._child is not None:
            self._reap()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            raise ProcessError(f"{self.name} is not started")
        return self._child

    def _reap(self) -> None:
        child = self._started()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # the group may outlive its leader
        child.wait()
        _watchdog.tell("-", child.pid)
        _live.pop(child.pid, None)
        self._child = None

    def output(self) -> str:
        """Return what the process wrote to stdout since it was last started."""
        with self.output_path.open("rb") as file:
            file.seek(self._output_start)
            return file.read().decode(errors="replace")

    def log_tail(self, lines_max: int = LOG_TAIL_LINES) -> str:
        """Return the command and the last lines of the log, ready to be shown to a person."""
        lines = self.log_path.read_text(errors="replace").splitlines() if self.log_path.exists() else []
        head = f"--- {self.name}: {' '.join(self.command)[:300]}\n--- last lines of {self.log_path}"
        return "\n".join([head, *lines[-lines_max:]])

    def __enter__(self) -> Self:
        return self if self._child is not None else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is None:
            return
        if kind is None:
            self.stop()
        else:
            print(self.log_tail(), file=sys.stderr)
            self.kill()


class EdgeBroker(Process):
    """The edge broker from this interpreter's environment, with its data directory and port kept over restarts."""

    def __init__(
        self,
        directory: Path,
        *,
        name: str = "edge-broker",
        address: str = "127.0.0.1",
        port: int | None = None,
        data_dir: Path | None = None,
        advertise: str | None = None,
        settings: Mapping[str, str | int] | None = None,
        config: Path | None = None,
        protocol: str = "PLAINTEXT",
    ) -> None:
        """Describe a broker; `settings` are Kafka broker keys for `--set`, `directory` keeps its logs (and data).

        Another `address` than loopback's is one of a network namespace, in which the command is run.
        With another `protocol` the listener is called CLIENT. The first of `listeners` in `settings` must have `port`.
        """
        self.port = port if port is not None else free_port()
        self.metrics_port = free_port()
        self.data_dir = data_dir if data_dir is not None else directory / f"{name}-data"
        self.bootstrap = f"{address}:{self.port}"
        self.metrics_url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        command: list[str | Path] = [runtimes.console_script("edge-broker"), "serve", "--data-dir", self.data_dir]
        command += ["--metrics", f"127.0.0.1:{self.metrics_port}"]
        if "listeners" in (settings or {}):
            assert advertise is None, "advertised.listeners is for that"
        elif protocol == "PLAINTEXT":
            command += ["--listen", self.bootstrap]
            command += ["--advertise", advertise] if advertise is not None else []
        else:
            settings = {
                "listeners": f"CLIENT://{self.bootstrap}",
                "advertised.listeners": f"CLIENT://{advertise or self.bootstrap}",
                "listener.security.protocol.map": f"CLIENT:{protocol}",
                **(settings or {}),
            }
        command += ["--config", config] if config is not None else []
        for key, value in (settings or {}).items():
            command += ["--set", f"{key}={value}"]
        super().__init__(name, command, directory, ready=f"edge-broker ready on {self.bootstrap}")


class Mosquitto(Process):
    """A mosquitto on a free loopback port, with a configuration of its own."""

    def __init__(self, directory: Path, *, config: str | Path = "", name: str = "mosquitto") -> None:
        """Describe a mosquitto; `config` is a file, or text to put after the listener lines written here."""
        self.port = free_port()
        if isinstance(config, str):
            directory.mkdir(parents=True, exist_ok=True)
            user = "user root\n" if os.geteuid() == 0 else ""  # else it changes to a user who may write nowhere here
            config_path = directory / f"{name}.conf"
            config_path.write_text(f"listener {self.port} 127.0.0.1\nallow_anonymous true\n{user}{config}\n")
        else:
            config_path = config
            self.port = _mosquitto_port(config_path)
        command: list[str | Path] = [runtimes.mosquitto(), "-c", config_path]
        super().__init__(name, command, directory, ready=lambda: can_connect(self.port))


def _mosquitto_port(config: Path) -> int:
    for line in config.read_text().splitlines():
        words = line.split()
        if words[:1] in (["listener"], ["port"]):
            return int(words[1])
    raise ProcessError(f"{config} names no listener")


_KAFKA_PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=CLIENT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}{more_listeners}
advertised.listeners=CLIENT://{advertise},CONTROLLER://127.0.0.1:{controller_port}{more_advertised}
listener.security.protocol.map=CLIENT:{protocol},CONTROLLER:PLAINTEXT{more_protocols}
inter.broker.listener.name=CLIENT
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}
log.dirs={data_dir}
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""
_SIMPLE_LOGGER = "-Dorg.slf4j.simpleLogger"
_KAFKA_LOGGING = (
    f"{_SIMPLE_LOGGER}.showDateTime=true",
    f"{_SIMPLE_LOGGER}.defaultLogLevel=warn",
    f"{_SIMPLE_LOGGER}.log.kafka.server.KafkaRaftServer=info",  # it says when the server has started
)
_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_KAFKA_CLUSTER_ID = "ZHJ1cGVsZXQtdGVzdC1jbA"  # any 16 bytes in URL-safe base 64


def own_cluster_id(data_dir: Path) -> str:
    """Return a cluster id for a node that is a cluster alone: a mirror refuses two clusters of one id."""
    number = b"d" + hashlib.sha256(str(data_dir).encode()).digest()[:15]  # no id begins as an option does
    return urlsafe_b64encode(number).decode().rstrip("=")


def format_kafka(
    name: str,
    java: Sequence[str],
    properties: Path,
    data_dir: Path,
    *more: str,
    cluster_id: str = _KAFKA_CLUSTER_ID,
) -> None:
    """Format the storage of a KRaft node, where that was not done; `more` are words for the tool. ProcessError."""
    if (data_dir / "meta.properties").exists():
        return
    command = [*java, "kafka.tools.StorageTool", "format", *more, "-t", cluster_id, "-c", str(properties)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ProcessError(f"{name}: formatting its storage failed\n{done.stdout}{done.stderr}")


class ApacheKafka(Process):
    """Apache Kafka 4.3.1 from jars, or another by its `jars`: one KRaft node, broker and controller in one.

    Its storage is formatted at the first start.
    """

    def __init__(
        self,
        directory: Path,
        *,
        name: str = "apache-kafka",
        port: int | None = None,
        data_dir: Path | None = None,
        advertise: str | None = None,
        settings: Mapping[str, str | int] | None = None,
        heap: str = "512m",
        java_options: Sequence[str] = runtimes.QUICK_JAVA,
        jars: Path | None = None,
        listeners: Mapping[str, str] | None = None,
        scram: Mapping[str, str] | None = None,
        protocol: str = "PLAINTEXT",
    ) -> None:
        """Describe a broker; `settings` override server.properties, `heap` is -Xmx, `java_options` come after it.

        `listeners` are more of them, name and security protocol, on `ports`, advertised as localhost; `scram` are users
        and their passwords, for both mechanisms.
        """
        self.ports = {listener: free_port() for listener in listeners or {}}
        self._scram = dict(scram or {})
        self.port = port if port is not None else free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.data_dir = data_dir if data_dir is not None else directory / f"{name}-data"
        self.properties_path = directory / f"{name}.properties"
        directory.mkdir(parents=True, exist_ok=True)
        text = _KAFKA_PROPERTIES.format(
            port=self.port,
            controller_port=free_port(),
            advertise=advertise or self.bootstrap,
            data_dir=self.data_dir,
            more_listeners="".join(f",{each}://127.0.0.1:{port}" for each, port in self.ports.items()),
            more_advertised="".join(f",{each}://localhost:{port}" for each, port in self.ports.items()),
            more_protocols="".join(f",{each}:{protocol}" for each, protocol in (listeners or {}).items()),
            protocol=protocol,
        )
        text += "".join(f"{key}={value}\n" for key, value in (settings or {}).items())
        self.properties_path.write_text(text)
        self._java = [*runtimes.kafka_java(f"-Xmx{heap}", *_KAFKA_LOGGING, *java_options, folder=jars)]
        command: list[str | Path] = [*self._java, "kafka.Kafka", self.properties_path]
        super().__init__(name, command, directory, ready=self._has_started, ready_s=90, stop_statuses=JVM_STOP_STATUSES)

    def spawn(self) -> None:
        """Format the storage where that was not done, then start the server."""
        scram = [
            f"{mechanism}=[name={user},password={password}]"
            for user, password in self._scram.items()
            for mechanism in _SCRAM
        ]
        words = [word for each in scram for word in ("--add-scram", each)]
        cluster_id = own_cluster_id(self.data_dir)
        format_kafka(
            self.name, self._java, self.properties_path, self.data_dir, "--standalone", *words, cluster_id=cluster_id
        )
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        super().spawn()

    def _has_started(self) -> bool:
        with self.log_path.open("rb") as file:
            file.seek(self._log_start)
            return b"Kafka Server started" in file.read()


class Startable(Protocol):
    """A process, or what begins like one."""

    def spawn(self) -> None:
        """Start it."""

    def wait_ready(self) -> None:
        """Wait until it is ready."""


def start_together(processes: Iterable[Startable]) -> None:
    """Start them all, then wait for each: some are ready only once others are there."""
    started = list(processes)
    for each in started:
        each.spawn()
    for each in started:
        each.wait_ready()


@contextlib.contextmanager
def all_stopped(*processes: Process) -> Iterator[None]:
    """Stop the given processes in reverse order at the end, the ones not started left out, also after an error."""
    with contextlib.ExitStack() as stack:
        for process in processes:
            stack.push(process.__exit__)
        yield
