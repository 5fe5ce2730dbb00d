"""`make test` and `make test-all`: suites of tests, each in a process of its own, two at a time.

This is the only list of the suites. CI runs all of `SUITES`. `make test` runs `PEOPLE`, which a contributor runs before
sending a change: every unit, property and golden test, and the tests of `CORE`. The longest suites come first, and
whichever of the two workers is free takes the next one, so that both end at about the same time. Every suite holds on
a busy machine (`make test-loaded`), so any two may run concurrently. Every suite runs, also after one that failed.
`make night` has what takes longer, and other folders.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import IO, NamedTuple, NoReturn
from xml.etree import ElementTree

AT_ONCE = 2  # suites that run concurrently
SUITE_S = 3600  # the most that one suite may take if the whole has a limit: others need time, too
END_S = 20  # between SIGTERM and SIGKILL for a suite that exceeds its limit


class Suite(NamedTuple):
    """A process that runs tests: the words after `python`, and the folders with tests if pytest runs it."""

    name: str
    words: tuple[str, ...]
    folders: tuple[str, ...] = ()


def _pytest(name: str, *folders: str, options: Sequence[str] = ()) -> Suite:
    paths = tuple(f"tests/{folder}" for folder in folders)
    return Suite(name, ("-m", "pytest", *paths, "-m", "not night", "--durations=20", *options), paths)


HALF_OF_FAULT = "mirror and not mirror_cluster and not mirror_in_sync or gateway"
_FAULT = ("--rounds", "60", "--seconds", "20", "-k")

# The longest first: a suite that begins last must not end long after all others.
SUITES = (
    _pytest("conformance", "conformance"),
    _pytest("unit", "unit", "property", "golden"),
    _pytest("models", "simulation", "e2e"),
    _pytest("fault-links", "fault", options=(*_FAULT, HALF_OF_FAULT)),
    _pytest("fault-storage", "fault", options=(*_FAULT, f"not ({HALF_OF_FAULT})")),
    # These seeds; the night takes new ones.
    Suite(
        "cluster-schedules",
        ("-m", "tests.simulation.cluster", "--seed", "5000000", "--schedules", "300", "--processes", "1"),
    ),
    _pytest("differential", "differential"),
    Suite("schedules", ("-m", "tests.simulation.mirror", "--seed", "3000000", "--hours", "0.02")),
    Suite("demo", ("-m", "tests.e2e.demo", "--seconds", "45")),
    Suite("journals", ("-m", "tests.simulation.gateway_journal", "--seed", "4000000")),
    Suite("walker-fuzz", ("-m", "tests.property.walker_fuzz", "--seconds", "30")),
    Suite("crash", ("-m", "tests.simulation.crash", "--points", "20000", "--seconds", "330")),
    Suite("login-fuzz", ("-m", "tests.property.login_fuzz", "--seconds", "20")),
)


class Chosen(NamedTuple):
    """A test outside unit, property and golden that `make test` runs, and what it alone shows there."""

    test: str
    """A path below tests/, and the test's name after `::`; without a name all of the file."""
    shows: str


# One test per client, per kind of fault, and a cluster that loses a broker. CI runs all others.
CORE = (
    Chosen(
        "conformance/test_confluent_kafka.py::test_rebalance_of_two_members", "librdkafka: produces, commits, shares"
    ),
    Chosen("conformance/test_kcat.py::test_commit_and_resume", "librdkafka on a command line"),
    Chosen("conformance/test_aiokafka.py::test_commit_and_resume", "aiokafka: produces, commits, resumes"),
    Chosen("conformance/test_kafka_python.py::test_commit_and_resume", "kafka-python: produces, commits, resumes"),
    Chosen("conformance/test_java.py::test_console_consumer_resumes_where_its_group_committed", "Kafka's Java client"),
    Chosen("conformance/test_tools.py::test_topics", "edge-broker's own commands"),
    Chosen("conformance/test_gateway.py::test_every_qos_arrives_with_key_headers_and_its_own_time", "MQTT clients"),
    Chosen("conformance/test_spark.py::test_the_job_resumes_after_a_kill_and_never_skips", "Spark's connector, killed"),
    Chosen("conformance/test_cluster.py::test_a_board_dies_and_its_clients_go_on", "a cluster that loses a broker"),
    Chosen("fault/test_acks_1_cuts.py", "power losses, simulated: the ledger, offset by offset"),
    Chosen("fault/test_clock.py::test_a_step_is_on_the_disk_within_seconds", "a wall clock that steps"),
    Chosen("fault/test_cluster_rounds.py", "the order of faults in a cluster"),
    Chosen("fault/test_compaction_space.py", "a compacted topic on a small disk"),
    Chosen("fault/test_dead_link.py", "a link that drops everything"),
    Chosen("fault/test_descriptors.py", "no free file descriptors"),
    Chosen("fault/test_disk_full.py::test_a_broker_killed_on_a_full_disk_starts_on_it_and_goes_on", "a full disk"),
    Chosen(
        "fault/test_failing_disk.py::test_a_segment_that_cannot_be_read_costs_its_own_records_alone", "a read error"
    ),
    Chosen(
        "fault/test_failing_disk.py::test_a_partition_whose_disk_failed_once_comes_back_with_all_that_was_acked",
        "write and sync errors",
    ),
    Chosen("fault/test_flash_kill.py::test_a_finished_write_is_whole_whatever_happens_next", "a flashed card"),
    Chosen(
        "fault/test_fuse_disk.py::test_what_was_synced_outlives_a_cut_and_nothing_else_is_certain", "the disk itself"
    ),
    Chosen("fault/test_gateway.py::test_killed_in_the_middle", "a killed gateway"),
    Chosen("fault/test_gateway.py::test_broker_away", "a gateway without its broker"),
    Chosen("fault/test_kill_nine.py", "a killed broker under load"),
    Chosen("fault/test_mirror.py::test_a_kill_repeats_nothing_though_no_position_was_committed", "a killed mirror"),
    Chosen("fault/test_mirror.py::test_link_cut_and_source_killed_meanwhile", "a cut link and a killed source"),
    Chosen("fault/test_mirror_cluster.py", "killed leaders of the mirror's target"),
    Chosen(
        "fault/test_mirror_loops.py::test_identity_both_ways_carries_each_record_once", "mirrors that face each other"
    ),
    Chosen(
        "fault/test_mirror_share.py::test_partitions_that_the_target_refuses_leave_memory_to_the_others", "refusals"
    ),
    Chosen(
        "fault/test_mirror_truncation.py::test_a_topic_made_anew_is_mirrored_from_its_start", "a recreated source topic"
    ),
    Chosen(
        "fault/test_power_cut.py::test_what_cuts_take_of_acks_1_is_in_the_ledger_and_a_kill_writes_nothing_there",
        "power losses of real processes",
    ),
    Chosen("fault/test_remount.py", "a data directory mounted again"),
    Chosen("fault/test_watchdog.py::test_a_card_that_hangs_ends_no_broker", "a storage device that hangs"),
)
# Files of fault tests that `make test` leaves to CI, and why.
CI_ALONE = {
    "test_doctor.py": "no fault: edge-broker doctor concurrently with load; tests/unit/doctor has its findings",
    "test_gateway_stranger.py": "five minutes of hostile payloads; tests/unit/gateway has each kind",
    "test_mirror_held.py": "three brokers; test_mirror_cluster.py kills leaders of a target",
    "test_mirror_in_sync.py": "three brokers of Apache Kafka; test_mirror_cluster.py kills leaders of a target",
    "test_mirror_loops_unseen.py": "as test_mirror_loops.py, with fewer permissions",
    "test_mirror_rounds.py": "rounds of the faults that test_mirror.py has one by one",
    "test_mirror_suspects.py": "refusals by a target are in test_mirror_share.py",
    "test_slow_card.py": "measures times on a slow storage device, for minutes",
    "test_unwritten_markers.py": "three brokers of Apache Kafka for one transaction; tests/simulation has the same",
}
# The folders of tests/unit of one suite of `make test`; the other suite has all others.
UNIT_OF_SITES = (
    "access", "ansible", "benchmarks", "doctor", "drupelet", "e2e",
    "gateway", "hardware", "mirror", "security", "spark", "tools",
)  # fmt: skip


def _unit_of_brokers() -> list[str]:
    folders = sorted(path.parent.name for path in Path("tests/unit").glob("*/test_*.py"))
    return [f"unit/{name}" for name in dict.fromkeys(folders) if name not in UNIT_OF_SITES]


def _people() -> tuple[Suite, ...]:
    paths = tuple(f"tests/{chosen.test}" for chosen in CORE)
    words = ("-m", "pytest", *paths, "-m", "not night", "--durations=20", "--rounds", "10", "--seconds", "20")
    return (
        _pytest("unit-of-sites", *(f"unit/{name}" for name in UNIT_OF_SITES), "golden"),
        _pytest("unit-of-brokers", *_unit_of_brokers(), "property"),
        Suite("clients-and-faults", words, ("tests/conformance", "tests/fault")),
    )


PEOPLE = _people()


def folders(suites: Sequence[Suite] = SUITES) -> list[str]:
    """Return the folders with tests that the suites run, each once."""
    return list(dict.fromkeys(folder for suite in suites for folder in suite.folders))


class Outcome(NamedTuple):
    """How a suite ended."""

    name: str
    seconds: float
    status: int
    tests: int
    bad: tuple[str, ...]
    """Tests that failed or were skipped, by name."""


class Runner:
    """Runs suites in their order, `AT_ONCE` of them concurrently."""

    def __init__(self, reports: Path, seconds: float | None = None) -> None:
        """Write reports in JUnit's format into the folder `reports`; end after `seconds`."""
        self.outcomes: list[Outcome] = []
        self._reports = reports
        self._end = None if seconds is None else time.monotonic() + seconds
        self._children: set[subprocess.Popen[bytes]] = set()
        self._lock = Lock()
        self._stopped = False

    def run(self, suites: Sequence[Suite]) -> bool:
        """Run every suite; return whether all passed. An exception, as of SIGTERM, ends the suites."""
        grace_s = 0
        waiting = deque(suites)
        logs = [self._reports / f"worker-{number}.log" for number in range(1, AT_ONCE)]
        threads = [Thread(target=self._work, args=(waiting, log)) for log in logs]
        try:
            for thread in threads:
                thread.start()
            self._run_waiting(waiting, sys.stdout)
            for thread in threads:
                thread.join()
            # One worker's output is shown as it comes, the others' at the end.
            for log in logs:
                sys.stdout.write(log.read_text(errors="replace"))
            sys.stdout.flush()
        except KeyboardInterrupt:
            grace_s = END_S  # Ctrl-C reaches the suites as well, and pytest then tears down its fixtures
            raise
        finally:
            self._stop(grace_s)
        return all(outcome.status == 0 for outcome in self.outcomes)

    def _work(self, waiting: deque[Suite], log: Path) -> None:
        with log.open("w") as file:
            self._run_waiting(waiting, file)

    def _run_waiting(self, waiting: deque[Suite], output: IO[str]) -> None:
        """Run the next suite until none waits."""
        while (suite := self._next(waiting)) is not None:
            self._run_suite(suite, output)

    def _next(self, waiting: deque[Suite]) -> Suite | None:
        with self._lock:
            return waiting.popleft() if waiting else None

    def _run_suite(self, suite: Suite, output: IO[str]) -> None:
        report, begin = self._reports / f"{suite.name}.xml", time.monotonic()
        words = [sys.executable, *suite.words, *([f"--junitxml={report}"] if suite.folders else [])]
        print(f"### {suite.name}: python {' '.join(words[1:])}", file=output, flush=True)
        child = self._started([*self._limit(), *words], output)
        if child is None:
            return
        status, seconds = child.wait(), time.monotonic() - begin
        ended = "passed in" if status == 0 else "FAILED after"
        print(f"### {ended} {seconds:.0f} s: {suite.name}", file=output, flush=True)
        # A step of its own: a suite that dies writes no report, and counts as failed all the same.
        (self._reports / f"{suite.name}.step.xml").write_text(
            f'<testsuite name="{suite.name}" errors="0" failures="{int(status != 0)}" skipped="0" tests="1" />\n'
        )
        self.outcomes.append(Outcome(suite.name, seconds, status, *_counted(report)))

    def _limit(self) -> list[str]:
        """Return the command that ends a suite and its children, if the run has a limit.

        As after Ctrl-C, pytest still writes its report and says which test ran.
        """
        if self._end is None:
            return []
        seconds = max(1.0, min(SUITE_S, self._end - time.monotonic()))
        return ["timeout", "--signal=INT", f"--kill-after={END_S}", f"{seconds:.1f}"]

    def _started(self, command: Sequence[str], output: IO[str]) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._stopped:
                return None
            child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
            self._children.add(child)
            return child

    def _stop(self, grace_s: float) -> None:
        """End the suites that still run after `grace_s`; none does after a run that was not interrupted."""
        with self._lock:
            self._stopped = True
            running = [child for child in self._children if child.poll() is None]
        _wait(running, grace_s)
        for child in running:
            child.terminate()  # `timeout` forwards it to the suite
        _wait(running, END_S)
        for child in running:
            child.kill()
            child.wait()


def _wait(children: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    end = time.monotonic() + seconds
    for child in children:
        with suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, end - time.monotonic()))


def _counted(report: Path) -> tuple[int, tuple[str, ...]]:
    """Return how many tests a report counts, and which of them failed or were skipped; none if there is no report."""
    try:
        cases = list(ElementTree.parse(report).iter("testcase"))
    except (FileNotFoundError, ElementTree.ParseError):  # a suite that was killed; its step counts as failed
        return 0, ()
    bad = [case for case in cases if any(case.find(tag) is not None for tag in ("failure", "error", "skipped"))]
    return len(cases), tuple(dict.fromkeys(f"{case.get('classname')}::{case.get('name')}" for case in bad))


def _terminated(*_: object) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)


def _chosen(names: Sequence[str], suites: Sequence[Suite]) -> list[Suite]:
    known = [suite.name for suite in suites]
    for name in names:
        if name not in known:
            raise SystemExit(f"{name} is not a suite; choose from {', '.join(known)}")
    return [suite for suite in suites if not names or suite.name in names]


def main() -> int:
    """Run the suites, and print a line for each and the sum."""
    parser = argparse.ArgumentParser(prog="make test-all", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="SUITE", help=", ".join(suite.name for suite in (*SUITES, *PEOPLE)))
    parser.add_argument("--people", action="store_true", help="run `make test`: the selection for a contributor")
    parser.add_argument("--folders", action="store_true", help="print the folders with tests, and run nothing")
    parser.add_argument("--reports", type=Path, metavar="DIR", help="leave the reports in JUnit's format there")
    parser.add_argument("--seconds", type=float, help="end after so long; a suite that hangs ends earlier")
    options = parser.parse_args()
    if options.folders:
        print(*folders())
        return 0
    signal.signal(signal.SIGTERM, _terminated)
    suites = _chosen(options.names, PEOPLE if options.people else SUITES)
    reports = options.reports or Path(tempfile.mkdtemp(prefix="suites-"))
    runner = Runner(reports, options.seconds)
    begin = time.monotonic()
    try:
        passed = runner.run(suites)
    finally:
        if options.reports is None:
            shutil.rmtree(reports)
    for one in runner.outcomes:
        status = "passed" if one.status == 0 else "FAILED"
        print(f"{one.name:>18}  {status}  {one.seconds:5.0f} s  {one.tests or '':>6}")
    bad = [name for one in runner.outcomes for name in one.bad]
    for name in bad:
        print(f"FAILED {name}")
    tests = sum(one.tests for one in runner.outcomes) - len(bad)
    print(f"{tests} tests passed, {len(bad)} failed; {time.monotonic() - begin:.0f} s")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
