"""What surrounds Spark's jobs, without Spark: settings, jars (Ivy, from a folder), progress lines, restarts.

Invariants: a setting out of bounds or misspelt is refused by name; a jar is in the cache whole and checked or not at
all; a query that Kafka kept waiting is started again for ever, one whose offsets are gone never; systemd's watchdog
hears of a job only when each of its queries has moved.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest

from drupelet.errors import ConfigurationError
from spark import cli, run
from spark.config import CLIENT_KEYS, SETTABLE, Settings, with_assignments
from spark.jobs import JOBS
from spark.jvm import jars, java, standalone
from spark.jvm.failures import chain, root
from spark.session import session_options
from spark.streams import progress
from tests.support.command import in_process
from tests.support.notify_socket import NotifySocket

main = in_process(cli.main)


def test_settings_are_converted_and_passed_on() -> None:
    words = [
        "window_ms=5000",
        "alarm_score_min=3.5",
        "kafka.client.rack=a=b",
        "kafka.client.id=x",
        "spark.sql.shuffle.partitions=4",
    ]
    settings = with_assignments(Settings(), words)
    assert (settings.window_ms, settings.alarm_score_min) == (5000, 3.5)
    assert settings.kafka == {"kafka.client.rack": "a=b", "kafka.client.id": "x"}
    assert settings.spark == {"spark.sql.shuffle.partitions": "4"}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("window_ms", "write it as key=value"),
        ("windows_ms=1000", "did you mean 'window_ms'"),
        ("zzz=1", "the settings are"),
        (
            "kafka.securty.protocol=SSL",
            "'kafka.securty.protocol', which no client of Kafka has: did you mean 'kafka.sec",
        ),
        ("kafka.session.timeout=6000", "did you mean 'kafka.session.timeout.ms'?"),
        ("kafka.qqq=1", "unknown setting 'kafka.qqq', which no client of Kafka has: the keys are in /.*/client.keys"),
        ("window_ms=ten", "give a number"),
        ("window_ms=1", "give a number from 100"),
        ("alarm_score_min=nan", "give a number from"),
        ("recent_readings=5", "below recent_readings_min"),
        ("checkpoint=/tmp", "unknown setting"),
        ("topic=", "topic=: give a topic's name"),
        ("late_topic=a b", "late_topic=a b: give a topic's name"),
        ("alarms_topic=readings", "alarms_topic=readings is the topic of topic too"),
    ],
)
def test_a_bad_setting_is_named(word: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        with_assignments(Settings(), [word])


@pytest.mark.parametrize(
    "words",
    [
        ("kafka.security.protocol=SSL",),
        ("kafka.max.poll.records=500", "kafka.linger.ms=5", "kafka.client.dns.lookup=use_all_dns_ips"),
        ("kafka.config.providers=file", "kafka.config.providers.file.class=a.B", "kafka.metrics.jmx.include=a"),
        ("kafka.metric.reporters=a.Reporter", "kafka.my.reporter.port=99"),
    ],
    ids=["security", "clients", "read by name", "read by a class"],
)
def test_a_key_of_kafkas_clients_is_passed_on(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert set(with_assignments(Settings(), words).kafka) == {word.partition("=")[0] for word in words}
    assert main(["check", *(word for each in words for word in ("--set", each))]) == 0
    assert capsys.readouterr().out == "settings: ok\n"


def test_the_keys_are_those_of_the_client_that_jobs_run_with() -> None:
    """Whoever changes the client's version makes `client.keys` again."""
    client = next(pin for pin in jars.CONNECTOR_JARS if "kafka-clients" in pin)
    assert f" {client}: " in CLIENT_KEYS.read_text().splitlines()[0]


def test_the_command_refuses_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["run", "reading"])
    assert capsys.readouterr().err == (
        "edge-spark run: JOB is 'reading'; did you mean readings? See edge-spark run --help\n"
    )
    assert main(["run", "readings", "--set", "window_ms=0"]) == 2
    with pytest.raises(SystemExit, match="2"):
        main(["run"])


def test_list_names_jobs_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in [*JOBS, *SETTABLE])


def test_the_job_readings_is_all_the_others() -> None:
    settings = Settings()
    assert JOBS["readings"].queries == JOBS["windows"].queries | JOBS["alarms"].queries
    assert JOBS["readings"].topics(settings) == {
        "readings_windows": "compact",
        "readings_late": "compact",
        "readings_alarms": "delete",
    }


def served(root: Path, pin: str) -> Path:
    """Return a jar's place in the Maven repository of a test."""
    group, artifact, version = pin.split(":")
    return root / "maven" / group.replace(".", "/") / artifact / version / f"{artifact}-{version}.jar"


def kept() -> list[str]:
    """Name the connector's jars in the cache, which holds nothing else."""
    folder = jars.jars_directory("spark-kafka-4.0.0")
    assert list(folder.parent.iterdir()) == [folder]
    return sorted(each.name for each in folder.iterdir())


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(jars.MAVEN_URL_VARIABLE, (tmp_path / "maven").as_uri())
    pins = {}
    for pin in jars.CONNECTOR_JARS:
        place = served(tmp_path, pin)
        place.parent.mkdir(parents=True)
        place.write_bytes(pin.encode())
        pins[pin] = hashlib.sha256(pin.encode()).hexdigest()
    monkeypatch.setattr(jars, "CONNECTOR_JARS", pins)
    return tmp_path


def test_jars_are_fetched_once(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jars"]) == 0
    printed = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [path.read_bytes().decode() for path in printed] == list(jars.CONNECTOR_JARS)
    (repository / "maven").rename(repository / "gone")
    assert jars.connector_jars() == printed
    assert kept() == sorted(path.name for path in printed)


def test_a_wrong_jar_is_not_kept(repository: Path) -> None:
    first, second, *_ = jars.CONNECTOR_JARS
    served(repository, second).write_bytes(b"not it")
    with pytest.raises(ConfigurationError, match=f"{second} has SHA-256"):
        jars.connector_jars()
    assert kept() == [jars.file_name(first)]


def test_a_missing_jar_is_named_and_the_others_are_kept(repository: Path) -> None:
    first, *others = jars.CONNECTOR_JARS
    served(repository, first).unlink()
    with pytest.raises(ConfigurationError, match=rf"^{jars.file_name(first)} cannot be fetched .*not found"):
        jars.connector_jars()
    assert kept() == sorted(map(jars.file_name, others))


def test_an_unreachable_repository_is_one_sentence(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "maven").rename(repository / "gone")
    assert main(["jars"]) == 2
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert sentence.startswith("edge-spark: spark-sql-kafka-0-10_2.13-4.0.0.jar and 3 more cannot be fetched")
    assert "`edge-spark jars`" in sentence
    assert jars.MAVEN_URL_VARIABLE in sentence


@pytest.mark.parametrize(
    ("said", "quoted"),
    [
        (
            '... (9kB)\n....Exception in thread "main" x: No space left\n\tat y',
            'Exception in thread "main" x: No space left',
        ),
        (":::: WARNINGS\n\t\tnot found: a#b;1\n\n:::: ERRORS\n\tServer access error\n\n\tagain", "Server access error"),
        (":::: WARNINGS\n\tHost x not found\n\n\t\tmodule not found: a#b;1\n", "Host x not found"),
        (":::: WARNINGS\n\t\t::::::\n\n\t\t:: a.b#c-d;1: maven: no protocol\n", "a.b#c-d;1: maven: no protocol"),
        (".. (1kB)\nError occurred during initialization of VM\nheap", "Error occurred during initialization of VM"),
        ("", "Ivy gave no reason"),
    ],
)
def test_the_telling_line_of_ivy_is_quoted(said: str, quoted: str) -> None:
    assert jars.reason(said) == quoted


@pytest.mark.usefixtures("repository")
def test_without_java_the_remedy_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(java, "java_programs", lambda: iter([Path("/nowhere/bin/java")]))
    assert main(["jars"]) == 2
    assert "/nowhere/bin/java is no working Java" in capsys.readouterr().err.splitlines()[-1]
    assert kept() == []


@pytest.mark.usefixtures("repository")
def test_the_operators_options_win() -> None:
    options = session_options(Settings(spark={"spark.driver.memory": "1g"}))
    assert options["spark.driver.memory"] == "1g"
    assert options["spark.driver.host"] == "127.0.0.1"
    assert options["spark.driver.extraClassPath"].count(".jar") == 4


def test_shipped_jars_are_taken_as_they_are_and_none_is_fetched(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "shipped"
    folder.mkdir()
    monkeypatch.setenv(jars.SHIPPED_VARIABLE, str(folder))
    first, *others = map(jars.file_name, jars.CONNECTOR_JARS)
    for name in others:
        (folder / name).write_bytes(b"")
    with pytest.raises(ConfigurationError, match=f"^{folder / first} is missing, and DRUPELET_SPARK_JARS"):
        jars.connector_jars()
    (folder / first).write_bytes(b"")
    assert jars.connector_jars() == [folder / name for name in (first, *others)]
    assert not jars.jars_directory("spark-kafka-4.0.0").exists()


def test_a_worker_is_one_jvm_with_a_bounded_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []

    def execve(*given: Any) -> None:
        called.extend(given)
        raise SystemExit  # a process that was replaced does not come back

    monkeypatch.setattr(standalone, "java_home", lambda: Path("/java"))
    monkeypatch.setattr(standalone.os, "execve", execve)
    sizes = ["--cores", "2", "--memory", "1g", "--work-dir", "/work"]
    with pytest.raises(SystemExit):
        main(["worker", *sizes, "--web-port", "9", "spark://pi-3:7077"])
    java, arguments, environment = called
    assert java == arguments[0] == "/java/bin/java"
    assert "-Xmx64m" in arguments
    listening = ["--host", "127.0.0.1", "--port", "7078", "--webui-port", "9"]
    assert arguments[-13:] == [*listening, *sizes, "spark://pi-3:7077"]
    assert (environment["SPARK_LOCAL_IP"], environment["SPARK_SCALA_VERSION"]) == ("127.0.0.1", "2.13")


def report(batch_id: int, rows: int = 10) -> progress.Report:
    return {
        "batchId": batch_id,
        "numInputRows": rows,
        "batchDuration": 100 * batch_id,
        "durationMs": {"addBatch": 50},
        "sources": [{"metrics": {"maxOffsetsBehindLatest": "7"}}],
    }


def test_progress_sums_up_the_new_batches() -> None:
    idle = {**report(4), "durationMs": {"triggerExecution": 3}}
    reports = progress.new_reports([report(1), report(2), report(3, rows=20), idle], 1)
    told = [{"watermark": f"t{number}", "late_records": number, "late_records_ever": 40} for number in (2, 3)]
    figures = {
        "batches": 2,
        "last_batch": 3,
        "input_records": 30,
        "input_records_per_s": 3.0,
        "batch_ms_max": 300,
        "behind_records": 7,
    }
    assert progress.summary(reports, [], 10) == figures
    late = {"watermark": "t3", "late_records": 5, "late_records_ever": 40}
    assert progress.summary(reports, told, 10) == figures | late


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ([], ""),
        ([(0, 7)], "0:7"),
        ([(0, 7), (0, 8), (0, 9), (0, 11), (1, 12)], "0:7-9, 0:11, 1:12"),
        ([(0, offset) for offset in range(12)], "0:0-9, …"),
    ],
)
def test_places_are_listed_as_ranges_up_to_a_bound(places: list[tuple[int, int]], said: str) -> None:
    assert progress.place_ranges(places, 10) == said


class Cause:
    """As much of a Java exception as is read."""

    def __init__(self, name: str, message: str, cause: Cause | None = None) -> None:
        self._name, self._message, self._cause = name, message, cause

    def getMessage(self) -> str:
        return self._message

    def getCause(self) -> Cause | None:
        return self._cause

    def getClass(self) -> Any:
        return SimpleNamespace(getName=lambda: self._name)


def test_a_chain_of_causes_begins_with_the_root() -> None:
    text = chain(Cause("a.Outer", "it\nfailed", Cause("b.Root", "because " * 1000)))
    assert text.startswith("b.Root: because because")
    assert text.endswith("a.Outer: it failed")
    assert len(root(text)) < 700


def test_what_a_batch_raised_in_python_is_the_root() -> None:
    trace = "An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):\n"
    trace += (
        '  File "x.py", line 1\n    raise e\n' * 40
        + "spark.jvm.failures.BatchError: org.apache.kafka.common.errors.T: no\n"
    )
    text = chain(Cause("org.apache.spark.Query", "failed", Cause("py4j.Py4JException", trace)))
    assert root(text) == "spark.jvm.failures.BatchError: org.apache.kafka.common.errors.T: no"


@pytest.mark.parametrize(
    "text",
    [
        "java.lang.IllegalStateException: Failed to read log file file:/c/offsets/0. Incomplete log file",
        "spark.jvm.failures.BatchError: java.lang.RuntimeException: file:/c/x.parquet is not a Parquet file",
    ],
)
def test_a_damaged_checkpoint_ends_the_job_at_once(text: str) -> None:
    query = failing(Cause("java.lang.RuntimeException", text))
    query.start(None, Settings(checkpoint="/place"))  # type: ignore[arg-type]
    with pytest.raises(run.JobError, match=r"a file below /place is damaged, .* give a new --checkpoint"):
        query.check(None, Settings(checkpoint="/place"))  # type: ignore[arg-type]


class DeadQuery:
    """A query that failed, with the progress it made before."""

    isActive = False

    def __init__(self, failure: Cause, batches: int) -> None:
        self.recentProgress: list[Any] = [SimpleNamespace(json=json.dumps(report(number))) for number in range(batches)]
        optional = SimpleNamespace(isDefined=lambda: True, get=lambda: failure)
        self._jsq = SimpleNamespace(exception=lambda: optional)


KAFKA = Cause("org.apache.kafka.common.errors.TimeoutException", "no answer")
OTHER = Cause("java.io.IOException", "No space left on device")
GONE = Cause("org.apache.kafka.clients.consumer.OffsetOutOfRangeException", "Fetch position 5")


def failing(failure: Cause, batches: int = 0) -> run.SupervisedQuery:
    return run.SupervisedQuery("windows", lambda *_: DeadQuery(failure, batches))  # type: ignore[arg-type,return-value]


def fail_times(query: run.SupervisedQuery, times: int, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let a query fail again and again under a clock that jumps past each pause; return the pauses."""
    pauses: list[float] = []
    now_s = 1000.0
    monkeypatch.setattr(run.time, "monotonic", lambda: now_s)
    session: Any = None
    query.start(session, Settings())
    for _ in range(times):
        query.check(session, Settings())
        pauses.append(query.retry_at_s - now_s)
        now_s = query.retry_at_s
        query.check(session, Settings())
        assert query.query is not None
    return pauses


def test_kafka_is_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fail_times(failing(KAFKA), 40, monkeypatch)[:7] == [1, 2, 4, 8, 16, 30, 30]


def test_another_failure_ends_the_job_after_five_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    query = failing(OTHER)
    fail_times(query, run.RESTARTS_MAX, monkeypatch)
    with pytest.raises(run.JobError, match="No space left on device"):
        query.check(None, Settings())  # type: ignore[arg-type]


def test_a_finished_batch_ends_a_row_of_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = itertools.count(1)
    query = run.SupervisedQuery("windows", lambda *_: DeadQuery(OTHER, next(counter)))  # type: ignore[arg-type,return-value]
    assert set(fail_times(query, 3 * run.RESTARTS_MAX, monkeypatch)) == {1.0}


def test_offsets_that_are_gone_end_the_job_at_once() -> None:
    query = failing(GONE)
    query.start(None, Settings(checkpoint="/place"))  # type: ignore[arg-type]
    with pytest.raises(run.JobError, match="offsets that /place needs are gone from topic readings"):
        query.check(None, Settings(checkpoint="/place"))  # type: ignore[arg-type]


class LiveQuery:
    """A query whose state a test sets."""

    isActive = True
    recentProgress = ()

    def __init__(self, message: str = "Processing new data", batch_id: int | None = None) -> None:
        self.message, self.batch_id = message, batch_id

    @property
    def status(self) -> dict[str, str]:
        return {"message": self.message}

    @property
    def lastProgress(self) -> Any:
        return None if self.batch_id is None else SimpleNamespace(batchId=self.batch_id)


def supervised(live: LiveQuery) -> run.SupervisedQuery:
    return run.SupervisedQuery("windows", lambda *_: live, query=live)  # type: ignore[arg-type,return-value]


def test_a_query_moves_when_it_is_idle_or_has_finished_a_batch() -> None:
    live = LiveQuery("Initializing sources")
    query = supervised(live)
    assert not query.has_moved()
    live.batch_id = 0
    assert query.has_moved()
    assert not query.has_moved()
    live.batch_id = 1
    assert query.has_moved()
    live.message = "Waiting for next trigger"
    assert query.has_moved()
    query.query = None
    assert query.has_moved()


def test_the_watchdog_hears_nothing_while_one_query_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "POLL_S", 0.01)
    idle, hanging, stop = LiveQuery("Waiting for data to arrive"), LiveQuery(batch_id=6), Event()
    queries = [supervised(idle), supervised(hanging)]
    with NotifySocket() as systemd:
        monkeypatch.setenv("NOTIFY_SOCKET", systemd.address)
        watching = Thread(target=run.watch, args=(None, Settings(), queries, stop))
        watching.start()
        try:
            assert systemd.receive(5) == {"WATCHDOG": "1", "STATUS": "running: 2 queries"}
            assert systemd.drain(0.3) == []
            hanging.batch_id = 7
            assert systemd.receive(5)["WATCHDOG"] == "1"
            assert systemd.drain(0.3) == []
        finally:
            stop.set()
            watching.join()


def test_a_query_in_a_pause_is_named() -> None:
    query = supervised(LiveQuery())
    query.query, query.failures = None, 3
    assert run.state([query, supervised(LiveQuery())]) == "failing: windows (3 in a row)"
