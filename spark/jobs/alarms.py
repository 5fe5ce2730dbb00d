"""Job `alarms`: readings far from their device's recent mean, to a topic.

Method: compare each reading with the mean and standard deviation of the up to `recent_readings` readings of its device
before it in event time (`transforms.alarms`), all in JVM expressions. Each batch writes the last readings per device to
one small Parquet file below the checkpoint. Batch n reads the file of batch n - 1 and replaces its own, so a batch that
runs again after a crash has the same input.
"""

from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spark.config import Settings
from spark.jvm.failures import short_errors
from spark.streams import schemas, sinks, sources, transforms
from spark.streams.progress import Tell

FORGOTTEN_AFTER_MS = 86_400_000  # a device silent this long loses its recent mean
BATCHES_TO_FORGET = 100  # interval of the search for silent devices


def start(session: SparkSession, settings: Settings, _: Tell) -> StreamingQuery:
    """Start to compare readings."""
    parsed = transforms.parse(sources.kafka_records(session, settings), settings.ahead_max_ms)
    writer = (
        transforms.readings(parsed)
        .writeStream.queryName("alarms")
        .foreachBatch(short_errors(partial(write_alarms, settings)))
    )
    writer = writer.option("checkpointLocation", settings.place("alarms"))
    return writer.trigger(processingTime=f"{settings.trigger_ms} milliseconds").start()


def write_alarms(settings: Settings, readings: DataFrame, batch_id: int) -> None:
    """Write one batch's alarms, then the recent readings for the next one."""
    recent = sources.kept_rows(readings, settings.place("alarms_recent"), batch_id, schemas.RECENT)
    judged = transforms.add_recent_stats(recent, readings, settings.recent_readings).persist()
    found = transforms.alarms(
        judged,
        recent_readings_min=settings.recent_readings_min,
        score_min=settings.alarm_score_min,
        deviation_min=settings.deviation_min,
    )
    sinks.write_to_kafka(transforms.alarm_records(found), settings, settings.alarms_topic)
    kept = transforms.most_recent(judged, settings.recent_readings)
    if batch_id % BATCHES_TO_FORGET == 0:
        kept = without_silent_devices(kept)
    sinks.write_batch(kept, settings.place("alarms_recent"), batch_id, "parquet")
    sinks.delete_batch(readings, settings.place("alarms_recent"), batch_id - 2)
    judged.unpersist()


def without_silent_devices(kept: DataFrame) -> DataFrame:
    """Drop readings a day older than the newest one, so that removed devices do not accumulate."""
    newest_ms = kept.agg(F.max("time_ms")).collect()[0][0] or 0
    return kept.where(F.col("time_ms") > newest_ms - FORGOTTEN_AFTER_MS)
