"""Job `alarms`: readings far from their device's recent mean, to a topic.

Method: each reading against the mean and standard deviation of up to `recent_readings` readings of its device that
precede it in event time (`transforms.alarms`), all in JVM expressions. What earlier batches leave for the next one,
the last readings per device, is one small Parquet file per batch beside the checkpoint. Batch n reads the file of batch
n - 1 and replaces its own, so a batch that is run again after a crash finds what it found the first time.
"""

from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spark.config import Settings
from spark.jvm.failures import short_errors
from spark.streams import schemas, sinks, sources, transforms
from spark.streams.progress import Tell

FORGOTTEN_AFTER_MS = 86_400_000  # a device silent this long has no recent mean any more
BATCHES_TO_FORGET = 100  # so often silent devices are looked for


def start(session: SparkSession, settings: Settings, _: Tell) -> StreamingQuery:
    """Start judging readings."""
    parsed = transforms.parsed(sources.kafka_records(session, settings), settings.ahead_max_ms)
    writer = (
        transforms.readings(parsed).writeStream.queryName("alarms").foreachBatch(short_errors(partial(judge, settings)))
    )
    writer = writer.option("checkpointLocation", settings.place("alarms"))
    return writer.trigger(processingTime=f"{settings.trigger_ms} milliseconds").start()


def judge(settings: Settings, readings: DataFrame, batch_id: int) -> None:
    """Write one batch's alarms, then the recent readings for the next one."""
    recent = sources.kept_rows(readings, settings.place("alarms_recent"), batch_id, schemas.RECENT)
    judged = transforms.judged(recent, readings, settings.recent_readings).persist()
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
    """Forget readings a day older than the newest one, so that devices that are gone do not pile up."""
    newest_ms = kept.agg(F.max("time_ms")).collect()[0][0] or 0
    return kept.where(F.col("time_ms") > newest_ms - FORGOTTEN_AFTER_MS)
