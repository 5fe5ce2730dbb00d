"""Job `windows`: event-time windows per device, to a compacted topic as they change and to Parquet once they are final.

Method: batch n writes two small Parquet files below the checkpoint: the open windows, and each device's newest event
time and count of late readings. It reads those of batch n - 1 and replaces its own. So a batch that runs again after a
crash has the same watermark, accepts the same readings and finds the same late ones. A late reading is written to a
topic before the batch completes, keyed by its offset in the input topic.
"""

from functools import partial
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spark.config import Settings
from spark.jvm.failures import short_errors
from spark.logs import log
from spark.streams import schemas, sinks, sources, transforms
from spark.streams.progress import Tell, list_words, place_ranges, utc

OPEN, DEVICES, FINISHED = "windows_open", "windows_devices", "finished_windows"
FORGOTTEN_AFTER_MS = 86_400_000  # a device silent this long loses its own row
BATCHES_TO_FORGET = 100  # interval of the search for silent devices
LISTED_DEVICES_MAX = 10  # in a log line; the topic has them all
LISTED_OFFSETS_MAX = 100


class Counts(NamedTuple):
    """A time, such as the newest event time, or NO_WATERMARK_MS; and the number of late readings."""

    time_ms: int
    late: int


def start(session: SparkSession, settings: Settings, report: Tell) -> StreamingQuery:
    """Start to add readings to windows."""
    parsed = transforms.parse(sources.kafka_records(session, settings), settings.ahead_max_ms)
    readings = transforms.readings(parsed)
    writer = readings.writeStream.queryName("windows").foreachBatch(short_errors(partial(advance, settings, report)))
    writer = writer.option("checkpointLocation", settings.place("windows_progress"))
    return writer.trigger(processingTime=f"{settings.trigger_ms} milliseconds").start()


def advance(settings: Settings, report: Tell, readings: DataFrame, batch_id: int) -> None:
    """Write a batch's changed windows, its late readings, its ended windows, and its open windows."""
    open_windows = sources.kept_rows(readings, settings.place(OPEN), batch_id, schemas.OPEN)
    devices = sources.kept_rows(readings, settings.place(DEVICES), batch_id, schemas.DEVICES)
    before = counts_of(devices.agg(F.max("watermark_ms"), F.sum("late")))
    watermark_ms = before.time_ms
    arrivals = transforms.add_windows(readings, settings.window_ms).persist()
    new = counts_of(arrivals.agg(F.max("time_ms"), F.count_if(transforms.is_late(watermark_ms))))
    next_watermark_ms = max(watermark_ms, new.time_ms - settings.lateness_max_ms)  # it never decreases
    windows = transforms.windows_after(open_windows, arrivals, watermark_ms).persist()
    devices = transforms.devices_after(devices, arrivals, watermark_ms).persist()
    try:
        changed = transforms.window_statistics(windows.where("new > 0"))
        sinks.write_to_kafka(transforms.window_records(changed), settings, settings.windows_topic)
        if new.late:
            tell_late(settings, arrivals, watermark_ms, new.late)
        write_finished(settings, windows, batch_id, (watermark_ms, next_watermark_ms))
        write_state(settings, windows, devices, batch_id, next_watermark_ms)
    finally:
        for each in (arrivals, windows, devices):
            each.unpersist()
    ever = before.late + new.late
    report(batch_id, {"watermark": utc(next_watermark_ms), "late_records": new.late, "late_records_ever": ever})


def counts_of(figures: DataFrame) -> Counts:
    """Read the one row of a time and a count; both are null without rows."""
    time_ms, late = figures.collect()[0]
    return Counts(transforms.NO_WATERMARK_MS if time_ms is None else time_ms, late or 0)


def tell_late(settings: Settings, arrivals: DataFrame, watermark_ms: int, count: int) -> None:
    """Write a batch's late readings to their topic, and log the first ones."""
    sinks.write_to_kafka(transforms.late_records(arrivals, settings.topic, watermark_ms), settings, settings.late_topic)
    late = arrivals.where(transforms.is_late(watermark_ms))
    per_device = late.groupBy("device").count().orderBy(F.desc("count"), "device").limit(LISTED_DEVICES_MAX + 1)
    places = late.select("partition", "offset").orderBy("partition", "offset").limit(LISTED_OFFSETS_MAX + 1).collect()
    most = per_device.collect()
    named = [f"{row['device']}={row['count']}" for row in most[:LISTED_DEVICES_MAX]]
    log(
        "warning",
        "late_readings",
        topic=settings.topic,
        records=count,
        watermark=utc(watermark_ms),
        devices=list_words(named, len(most) > LISTED_DEVICES_MAX),
        offsets=place_ranges([(row["partition"], row["offset"]) for row in places], LISTED_OFFSETS_MAX),
        written_to=settings.late_topic,
    )


def write_finished(settings: Settings, windows: DataFrame, batch_id: int, watermarks_ms: tuple[int, int]) -> None:
    """Write the windows that a batch ends, each once; read nothing unless the watermark passes an end."""
    before, after = (each // settings.window_ms for each in watermarks_ms)
    if before == after:
        return
    ended = windows.where(F.col("window_end_ms") <= watermarks_ms[1])
    finished = transforms.window_files(transforms.window_statistics(ended))
    sinks.write_dated_batch(finished, settings.place(FINISHED), batch_id)


def write_state(settings: Settings, windows: DataFrame, devices: DataFrame, batch_id: int, watermark_ms: int) -> None:
    """Write the state for the next batch: the open windows, and the devices."""
    still_open = windows.where(F.col("window_end_ms") > watermark_ms).select(*schemas.OPEN_COLUMNS)
    sinks.write_batch(still_open, settings.place(OPEN), batch_id, "parquet")
    if batch_id % BATCHES_TO_FORGET == 0:
        devices = transforms.without_silent_devices(devices, watermark_ms - FORGOTTEN_AFTER_MS)
    marked = devices.withColumn("watermark_ms", F.lit(watermark_ms).cast("bigint"))
    sinks.write_batch(marked, settings.place(DEVICES), batch_id, "parquet")
    for name in (OPEN, DEVICES):
        sinks.delete_batch(devices, settings.place(name), batch_id - 2)
