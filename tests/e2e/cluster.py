"""`make cluster`: three brokers and a ZooKeeper ensemble of three on this machine, for people to make trouble with.

It says where everything is and what to try, starts what died again, as systemd does on a board, and ends with Ctrl-C.
Servers come first, their data is synced, then brokers come: a power cut at any moment costs nothing that was acked.
`--resume` goes on with the newest run that is kept.
Every process is reaped, however this one ends (tests/support/processes.py).

Must never come in: load, and judging what the cluster does.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import runtimes
from tests.support.first_start import start_servers
from tests.support.processes import EdgeBroker, Process, ProcessError
from tests.support.runtimes import MissingRuntimeError
from tests.support.zookeeper import ZooKeeperEnsemble, ZooKeeperServer

BROKERS = 3
SESSION_MS = 3000
TICK_MS = 500
RESTART_S = 20.0
LOOK_S = 0.2
STOP_S = 20.0
TOPIC, PARTITIONS = "readings", 6
EXAMPLE = "example: python -m tests.e2e.cluster --restart-after 60"
NAME, RUNS = "cluster-%Y%m%d-%H%M%S", "cluster-*-*"
WHAT_TO_TRY = """\

every broker is a way in: {bootstraps}
state, data and logs: {directory}

look at it, again and again, beside all that follows
  {program} cluster status --bootstrap-server {first}
write and read, each in a terminal of its own, with any Kafka client
  seq 1000000 | kcat -P -b {bootstraps} -t {topic} -X acks=all
  {program} tail {topic} --follow --bootstrap-server {last}
make trouble; what died is started again after {restart_s:g} s
  kill -9 {broker}      a board loses its power: others lead within {session_s:g} s, nothing that was acked is lost
  kill {broker}         a board is stopped: it lets others lead first
  kill -STOP {broker}   a board hangs: others lead; kill -CONT {broker} brings it back, and it follows
  kill -9 {server}      one ZooKeeper server of three: nobody notices
  kill -9 {server} {server_2}   two of three: nothing is acked any more, nothing is lost; it goes on once one is back

Ctrl-C ends all of it.
"""

Say = Callable[[str], object]


class Part:
    """One process that is started again some time after it died."""

    def __init__(self, process: Process, is_ready: Callable[[], bool], restart_s: float, say: Say) -> None:
        self.process, self._is_ready, self._restart_s, self._say = process, is_ready, restart_s, say
        self._starting_since_s = self._died_s = 0.0

    def look(self, now_s: float) -> None:
        """Say what became of it, and start it again when that is due."""
        if self._died_s:
            if now_s >= self._died_s + self._restart_s:
                self._died_s, self._starting_since_s = 0.0, now_s
                self.process.spawn()
        elif not self.process.running:
            self._died_s, self._starting_since_s = now_s, 0.0
            self.process.kill()
            self._say(f"{self.process.name} has ended; it is started again after {self._restart_s:g} s")
        elif self._starting_since_s and self._is_ready():
            took_s = now_s - self._starting_since_s
            self._starting_since_s = 0.0
            self._say(f"{self.process.name} is back after {took_s:.1f} s, pid {self.process.pid}")

    def end(self) -> None:
        """Stop it, also where it was told to hang."""
        if not self.process.running:
            self.process.kill()
            return
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.stop(STOP_S)
        except ProcessError as error:
            self._say(str(error).partition("\n")[0])


class Trial:
    """The brokers and the ensemble."""

    def __init__(self, directory: Path, restart_s: float, say: Say) -> None:
        self.directory, self.restart_s, self._say = directory, restart_s, say
        logs = directory / "logs"
        self.ensemble = ZooKeeperEnsemble(logs, tick_ms=TICK_MS)
        self.brokers = [self._broker(logs, number) for number in range(1, BROKERS + 1)]
        self.parts = [self._of_server(each) for each in self.ensemble.servers]
        self.parts += [self._of_broker(each) for each in self.brokers]

    def _broker(self, logs: Path, number: int) -> EdgeBroker:
        settings: dict[str, str | int] = {
            "broker.id": number,
            "zookeeper.connect": self.ensemble.connect,
            "zookeeper.session.timeout.ms": SESSION_MS,
            "default.replication.factor": BROKERS,
            "num.partitions": PARTITIONS,
        }
        data_dir = self.directory / f"broker-{number}"
        return EdgeBroker(logs, name=f"broker-{number}", data_dir=data_dir, settings=settings)

    def _of_server(self, server: ZooKeeperServer) -> Part:
        return Part(server, server.serves, self.restart_s, self._say)

    def _of_broker(self, broker: EdgeBroker) -> Part:
        ready = f"edge-broker ready on {broker.bootstrap}"
        return Part(broker, lambda: ready in broker.output(), self.restart_s, self._say)

    @property
    def bootstraps(self) -> str:
        """Every broker, as clients are told."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Start all of it, and stop it behind: brokers first, as they let others lead by ZooKeeper."""
        try:
            self._start()
            yield
        finally:
            for part in reversed(self.parts):
                part.end()

    def _start(self) -> None:
        begin_s = time.monotonic()
        self._say("starting a ZooKeeper ensemble of three, then three brokers")
        start_servers(
            self.ensemble.servers,
            lambda server: self._say(f"{server.name:<12} {server.bootstrap:<16} pid {server.pid}"),
        )
        for broker in self.brokers:
            broker.start()
            self._say(f"{broker.name:<12} {broker.bootstrap:<16} pid {broker.pid:<8} {broker.metrics_url}")
        self._make_topic()
        self._say(
            f"all of it serves after {time.monotonic() - begin_s:.1f} s; topic {TOPIC} has {PARTITIONS} partitions"
        )

    def _make_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstraps})
        wanted = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=BROKERS)
        try:
            admin.create_topics([wanted])[TOPIC].result(60)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # as of a run that goes on
                raise

    def what_to_try(self) -> str:
        """For people."""
        servers = [server.pid for server in self.ensemble.servers]
        return WHAT_TO_TRY.format(
            bootstraps=self.bootstraps,
            directory=self.directory,
            program=_shown(runtimes.console_script("edge-broker")),
            first=self.brokers[0].bootstrap,
            last=self.brokers[-1].bootstrap,
            topic=TOPIC,
            restart_s=self.restart_s,
            session_s=SESSION_MS / 1000,
            broker=self.brokers[1].pid,
            server=servers[0],
            server_2=servers[1],
        )

    def watch(self) -> None:
        """Look after every part, for ever."""
        while True:
            for part in self.parts:
                part.look(time.monotonic())
            time.sleep(LOOK_S)


def _shown(path: Path) -> str:
    """A path as it is typed here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.e2e.cluster", description=(__doc__ or "").partition("\n")[0], epilog=EXAMPLE
    )
    parser.add_argument(
        "--restart-after",
        type=float,
        default=RESTART_S,
        metavar="SECONDS",
        help="how long what died stays away (default: %(default)g)",
    )
    parser.add_argument(
        "--directory", type=Path, default=Path(".demo"), help="where runs are kept (default: %(default)s)"
    )
    parser.add_argument("--resume", action="store_true", help="go on with the newest run that is kept")
    return parser.parse_args(words)


def run_directory(runs: Path, *, resume: bool) -> Path:
    """Return the directory of a new run, or of the newest one; FileNotFoundError: none is kept."""
    if not resume:
        directory = runs / time.strftime(NAME)
        directory.mkdir(parents=True)
        return directory
    kept = sorted(path for path in runs.glob(RUNS) if path.is_dir())
    if not kept:
        raise FileNotFoundError(f"{runs} keeps no run of a cluster to go on with; leave out --resume")
    return kept[-1]


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def _say(text: str) -> None:
    print(text, flush=True)


def main(words: Sequence[str] | None = None) -> int:
    """Run it until Ctrl-C, which is 0; 1: it could not be started."""
    options = arguments(words)
    signal.signal(signal.SIGTERM, _end)  # leaves through the exits that reap every child
    try:
        trial = Trial(run_directory(options.directory, resume=options.resume), options.restart_after, _say)
        with trial.running():
            _say(trial.what_to_try())
            trial.watch()
    except KeyboardInterrupt:
        _say("everything is stopped")
        return 0
    except (MissingRuntimeError, FileNotFoundError) as error:
        _say(str(error))
    except (ProcessError, KafkaException, AssertionError) as error:
        _say(f"the cluster could not be started: {error}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
