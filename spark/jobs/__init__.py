"""The jobs by name: the input, the results topics and the streaming queries of each."""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.config import Settings
from spark.jobs import alarms, malformed, windows
from spark.streams.progress import Tell

StartQuery = Callable[[SparkSession, Settings, Tell], StreamingQuery]


@dataclass(frozen=True)
class Job:
    """One job: its queries by name, each restartable after a failure, and its results topics with their policy."""

    queries: dict[str, StartQuery]
    topics: Callable[[Settings], dict[str, str]]


def windows_topics(settings: Settings) -> dict[str, str]:
    """Name the results topics of the windows; compacted, so that the newest value per window or late reading stays."""
    return {settings.windows_topic: "compact", settings.late_topic: "compact"}


def alarms_topics(settings: Settings) -> dict[str, str]:
    """Name the results topic of the alarms; not compacted, as each alarm is a new event."""
    return {settings.alarms_topic: "delete"}


WINDOWS: dict[str, StartQuery] = {"windows": windows.start}
ALARMS: dict[str, StartQuery] = {"alarms": alarms.start}
MALFORMED: dict[str, StartQuery] = {"malformed": malformed.start}

JOBS: dict[str, Job] = {
    "readings": Job(
        {**WINDOWS, **ALARMS, **MALFORMED},
        lambda settings: {**windows_topics(settings), **alarms_topics(settings)},
    ),
    "windows": Job(
        {**WINDOWS, **MALFORMED},
        windows_topics,
    ),
    "alarms": Job({**ALARMS, **MALFORMED}, alarms_topics),
}
