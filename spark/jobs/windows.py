"""Job `windows`: event-time windows per device, to a compacted topic as they change and to Parquet once finished."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark import sinks, sources, transforms
from spark.config import Settings


def statistics(session: SparkSession, settings: Settings) -> DataFrame:
    """Describe each window of the topic's readings."""
    parsed = transforms.parsed(sources.kafka_records(session, settings), settings.ahead_max_ms)
    return transforms.window_statistics(transforms.readings(parsed), settings.window_ms, settings.lateness_max_ms)


def start_updates(session: SparkSession, settings: Settings) -> StreamingQuery:
    """Start writing each changed window to the results topic; late data writes the same key again."""
    records = transforms.window_records(statistics(session, settings))
    writer = sinks.stream_to_kafka(records, settings, settings.windows_topic).queryName("windows")
    writer = writer.option("checkpointLocation", settings.place("windows"))
    return writer.trigger(processingTime=f"{settings.trigger_ms} milliseconds").start()


def start_finished(session: SparkSession, settings: Settings) -> StreamingQuery:
    """Start writing each window once, when the watermark has passed its end, to Parquet."""
    files = transforms.window_files(statistics(session, settings))
    checkpoint = settings.place("finished_windows_progress")
    writer = (
        sinks.stream_to_parquet(files, settings.place("finished_windows"))
        .queryName("finished_windows")
        .option("checkpointLocation", checkpoint)
    )
    return writer.trigger(processingTime=f"{settings.finished_trigger_ms} milliseconds").start()
