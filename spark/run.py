"""Run a job: its topics, its queries, their restarts, its end.

A query that fails restarts from its checkpoint:
| failure | next |
|---|---|
| Kafka did not answer | restart after 1 s, 2 s, … 30 s, without end: readings wait at the broker |
| offsets are gone from the topic | the job fails at once: the operator decides whether to continue without them |
| a file of the checkpoint cannot be read | the job fails at once: the operator decides whether to start again |
| any other | restart, at most 5 times without a finished batch between; then the job fails |
"""

import json
import time
from dataclasses import dataclass, field
from threading import Event

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from drupelet.command.command_line import announce
from drupelet.command.config_check import nearest
from spark import notify
from spark.config import Settings
from spark.executors import Executors
from spark.jobs import Job, StartQuery
from spark.jvm import failures
from spark.logs import log
from spark.session import JVM_GONE
from spark.streams import progress, topics
from spark.streams.checkpoint import NEW_ONE, agree_on_cluster
from spark.wait_log import Wait

POLL_S = 1.0
PROGRESS_S = 10.0
BACKOFF_S_MAX = 30.0
RESTARTS_MAX = 5
DATA_LOSS_MARKS = ("KAFKA_DATA_LOSS", "OffsetOutOfRangeException", "data may have been lost", "failOnDataLoss")
DAMAGE_MARKS = (
    *("Failed to read log file", "JsonEOFException", "MismatchedInputException", "requirement failed"),  # Spark's log
    *(
        "KeptRowsLostError",
        "CANNOT_READ_FILE_FOOTER",
        "is not a Parquet file",
        "FAILED_READ_FILE",
    ),  # files of batches
)
IDLE_MARK = "Waiting for"  # beginning of Spark's message for an idle query: it waits for data, or for the next trigger
KAFKA_MARKS = ("org.apache.kafka.common.errors", "org.apache.kafka.common.KafkaException")


class JobError(Exception):
    """The job cannot go on; one sentence with the remedy; exit status 1."""


def run(session: SparkSession, job: Job, settings: Settings, stop: Event) -> None:
    """Run a job until `stop` is set; raises JobError if it cannot go on, ConfigurationError for a wrong topic."""
    if not prepare_topics(session, job, settings, stop):
        return
    queries = [SupervisedQuery(name, start) for name, start in job.queries.items()]
    try:
        for query in queries:
            query.start(session, settings)
        announce("edge-spark ready")
        notify.notify(f"STATUS=starting: the first batches of {len(queries)} queries")
        watch(session, settings, queries, stop)
    finally:
        quiet(session)
        for query in queries:
            query.stop()


def quiet(session: SparkSession) -> None:
    """Silence Spark before its queries are interrupted: it logs each cut batch as an error, and each runs again."""
    try:
        session.sparkContext.setLogLevel("OFF")
    except JVM_GONE as error:  # a signal to the whole group has already ended the JVM
        log("warning", "jvm_gone", reason=type(error).__name__)


def prepare_topics(session: SparkSession, job: Job, settings: Settings, stop: Event) -> bool:
    """Check the cluster, create the results topics and wait for the input; False if `stop` was set first."""
    waiting = Wait("waiting_for_broker", level="warning", bootstrap=settings.bootstrap)
    while not stop.is_set():
        try:
            agree_on_cluster(settings, topics.cluster_id(session, settings))
            for topic, policy in job.topics(settings).items():
                created = topics.ensure_topic(session, settings, topic, policy)
                log("info", "topic_created" if created else "topic_found", topic=topic, cleanup_policy=policy)
            break
        except topics.BrokerUnavailableError as error:
            wait_for_broker(waiting, error)
            stop.wait(POLL_S)
    return wait_for_input(session, settings, stop)


def wait_for_broker(waiting: Wait, error: topics.BrokerUnavailableError) -> None:
    """Log that the broker does not answer."""
    waiting.say(reason=error)
    notify.notify("WATCHDOG=1", f"STATUS=waiting for the broker: {error}")


def wait_for_input(session: SparkSession, settings: Settings, stop: Event) -> bool:
    """Wait until the input topic exists."""
    topic = Wait("waiting_for_topic", topic=settings.topic)
    broker = Wait("waiting_for_broker", level="warning", bootstrap=settings.bootstrap)
    while not stop.is_set():
        try:
            names = topics.topic_names(session, settings)
            if settings.topic in names:
                return True
            near = nearest(settings.topic, names - job_topics(settings))
            topic.say(**({"did_you_mean": near} if near else {}), then="create the topic")
            notify.notify("WATCHDOG=1", f"STATUS=waiting for topic {settings.topic}")
        except topics.BrokerUnavailableError as error:
            wait_for_broker(broker, error)
        stop.wait(POLL_S)
    return False


def job_topics(settings: Settings) -> set[str]:
    """Name the topics that jobs write."""
    return {settings.windows_topic, settings.late_topic, settings.alarms_topic}


@dataclass
class SupervisedQuery:
    """One query, its failures in a row, and the last batch in its progress lines."""

    name: str
    begin: StartQuery
    query: StreamingQuery | None = None
    failures: int = 0
    retry_at_s: float = 0.0
    told_batch_id: int = -1
    told_at_s: float = 0.0
    moved_batch_id: int = -1
    told: dict[int, progress.Fields] = field(default_factory=dict)  # by batch id, until a line reports it

    def start(self, session: SparkSession, settings: Settings) -> None:
        """Start the query from its checkpoint; an error of the start counts as a failure."""
        self.told_at_s = time.monotonic()
        try:
            self.query = self.begin(session, settings, self.told.__setitem__)
        except (Py4JJavaError, PySparkException) as error:
            self.fail(settings, failures.describe_error(error))
            return
        log("info", "query_started", query=self.name, failures=self.failures)

    def reports(self) -> list[progress.Report]:
        """Read the reports that are not yet logged."""
        assert self.query is not None
        return progress.new_reports(
            [json.loads(report.json) for report in self.query.recentProgress], self.told_batch_id
        )

    def log_progress(self) -> None:
        """Write the progress line, if progress was made; a finished batch resets the count of failures."""
        now_s = time.monotonic()
        reports = self.reports()
        if reports:
            done = sorted(number for number in tuple(self.told) if number <= reports[-1]["batchId"])
            fields = progress.summary(reports, [self.told.pop(number) for number in done], now_s - self.told_at_s)
            log("warning" if fields.get("late_records") else "info", "progress", query=self.name, **fields)
            self.told_batch_id, self.failures = reports[-1]["batchId"], 0
        self.told_at_s = now_s

    def check(self, session: SparkSession, settings: Settings) -> None:
        """Restart a failed query after its pause; raises JobError if a restart cannot help."""
        if self.query is not None and not self.query.isActive:
            self.fail(settings, failure_text(self.query))
        if self.query is None and time.monotonic() >= self.retry_at_s:
            self.start(session, settings)

    def fail(self, settings: Settings, text: str) -> None:
        """Handle a failure: set a pause, or end the job."""
        if self.query is not None:
            self.log_progress()
        self.query, self.failures = None, self.failures + 1
        pause_s = min(2.0 ** (self.failures - 1), BACKOFF_S_MAX)
        self.retry_at_s = time.monotonic() + pause_s
        log(
            "error",
            "query_failed",
            query=self.name,
            failures=self.failures,
            pause_s=pause_s,
            reason=failures.root(text),
        )
        if any(mark in text for mark in DATA_LOSS_MARKS):
            raise JobError(
                f"query {self.name}: offsets that {settings.checkpoint} needs are gone from topic {settings.topic} "
                f"(retention passed them, or the topic was created again); a new --checkpoint starts from what is left"
            )
        if any(mark in text for mark in DAMAGE_MARKS):
            raise JobError(
                f"query {self.name}: a file below {settings.checkpoint} is damaged, as a power cut may leave it: "
                f"{NEW_ONE} ({failures.root(text)})"
            )
        if self.failures > RESTARTS_MAX and not any(mark in text for mark in KAFKA_MARKS):
            raise JobError(f"query {self.name} failed {self.failures} times in a row: {failures.with_remedy(text)}")

    def has_moved(self) -> bool:
        """Return whether it waits for its next trigger, has finished a batch since the last call, or is in a pause."""
        if self.query is None or self.query.status["message"].startswith(IDLE_MARK):
            return True
        last = self.query.lastProgress
        before, self.moved_batch_id = self.moved_batch_id, -1 if last is None else last.batchId
        return self.moved_batch_id != before

    def has_begun(self) -> bool:
        """Return whether it is idle, or has finished a batch."""
        if self.query is None:
            return False
        return self.query.lastProgress is not None or self.query.status["message"].startswith(IDLE_MARK)

    def stop(self) -> None:
        """End the query, and log its last batches; the next start runs an unfinished batch again."""
        try:
            if self.query is not None and self.query.isActive:
                self.query.stop()
                self.log_progress()
        except JVM_GONE as error:  # a signal to the whole group has already ended the JVM
            log("warning", "query_stop_failed", query=self.name, reason=type(error).__name__)


def watch(session: SparkSession, settings: Settings, queries: list[SupervisedQuery], stop: Event) -> None:
    """Watch the queries until `stop` is set; notify systemd's watchdog each time that all have moved."""
    tell_at_s = time.monotonic() + PROGRESS_S
    still = queries
    first: Wait | None = Wait("waiting_for_first_batches")
    executors = Executors(settings)
    while not stop.wait(POLL_S):
        for query in queries:
            query.check(session, settings)
        executors.check(session)
        first = said_first(first, queries)
        still = [query for query in still if not query.has_moved()]
        if not still:
            notify.notify("WATCHDOG=1", f"STATUS={state(queries)}")
            still = queries
        if time.monotonic() >= tell_at_s:
            tell_at_s = time.monotonic() + PROGRESS_S
            for query in queries:
                if query.query is not None:
                    query.log_progress()


def said_first(first: Wait | None, queries: list[SupervisedQuery]) -> Wait | None:
    """Log the queries that have not finished their first batch; return `first`, None once all have."""
    if first is None:
        return None
    waiting = [query.name for query in queries if not query.has_begun()]
    if waiting:
        first.say(unfinished=", ".join(waiting))
        return first
    log("info", "running", queries=len(queries))
    return None


def state(queries: list[SupervisedQuery]) -> str:
    """Describe a job whose queries have all moved, in one line."""
    failing = ", ".join(f"{query.name} ({query.failures} in a row)" for query in queries if query.query is None)
    return f"failing: {failing}" if failing else f"running: {len(queries)} queries"


def failure_text(query: StreamingQuery) -> str:
    """Describe why a query ended."""
    failure = query._jsq.exception()
    return failures.chain(failure.get()) if failure.isDefined() else "it ended without an error"
