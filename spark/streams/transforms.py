"""PURE: compute the jobs' results, DataFrame to DataFrame, streaming or not.

Contains: columns and expressions that run inside the JVM. Does not contain: sources, sinks, sessions, clocks, Python
functions that run per row. The last `select` of each transform is its contract (see `schemas`).

Late data: a window changes until the watermark (the newest event time of the batches before, less `lateness_max_ms`)
has reached its end. Each change is written again under the same key, so the newest value per key is the result. A
reading for a window that has ended is late: it changes nothing, and is itself a row. Spark's own stateful windows drop
such readings and report neither which nor how many, so the job has its own table of open windows.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from spark.streams import schemas

NO_WATERMARK_MS = -1  # below the end of every window
TIME_MS_MAX = 253_402_300_799_999  # the end of the year 9999
DOUBLE_MAX = 1.7976931348623157e308
TEXT_CHARACTERS_MAX = 1_000
JSON_NUMBER = r"^\s*-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]+)?\s*$"


def parse(records: DataFrame, ahead_max_ms: int) -> DataFrame:
    """Read the records' JSON; `problem` is null for a valid reading, else the reason.

    The key replaces a missing `device`; a bare number is a `value`. If the gateway read the device's time (it set the
    header `time_unit`), the record's timestamp is that time, else `time_ms` is. A time more than `ahead_max_ms` after
    the record's receipt (the gateway's `received_ms` header, else Kafka's timestamp) is a problem, as it would move the
    watermark past all other devices.
    """
    text = F.col("value").cast("string")
    json = records.withColumns(
        {"text": text, "json": F.from_json(text, schemas.DEVICE_JSON), "received_ms": received_ms()}
    )
    device = F.nullif(F.coalesce(F.col("json.device"), F.col("key").cast("string")), F.lit(""))
    read = json.select(
        "partition",
        "offset",
        device.alias("device"),
        "json.seq",
        time_ms().alias("time_ms"),
        F.coalesce("json.value", F.when(text.rlike(JSON_NUMBER), text.try_cast("double"))).alias("value"),
        "text",
        "received_ms",
    )
    checked = read.withColumn("problem", problem(ahead_max_ms))
    event_time = F.when(F.col("problem").isNull(), F.timestamp_millis("time_ms"))
    return checked.withColumn("event_time", event_time).select(*schemas.PARSED_COLUMNS)


def received_ms() -> Column:
    """Return when a record arrived at the site: the gateway's header, else the record's timestamp."""
    return F.coalesce(_header("received_ms").try_cast("bigint"), F.unix_millis("timestamp"))


def time_ms() -> Column:
    """Return when a reading was taken: the timestamp that the gateway set from the device's time, else `time_ms`."""
    return F.when(_header("time_unit").isNotNull(), F.unix_millis("timestamp")).otherwise(F.col("json.time_ms"))


def _header(name: str) -> Column:
    found = F.filter("headers", lambda each: each["key"] == name)
    return F.try_element_at(found, F.lit(1))["value"].cast("string")


def problem(ahead_max_ms: int) -> Column:
    """Return the first problem of a reading, or null."""
    value, time_ms = F.col("value"), F.col("time_ms")
    return (
        F.when(F.col("device").isNull(), "no `device`, as JSON or as key")
        .when(value.isNull(), "no JSON number `value`")
        .when(F.isnan(value) | (F.abs(value) > DOUBLE_MAX), "`value` is not finite")
        .when(time_ms.isNull(), "no JSON integer `time_ms`")
        .when(~time_ms.between(0, TIME_MS_MAX), "`time_ms` is out of range")
        .when(time_ms - F.col("received_ms") > ahead_max_ms, "`time_ms` is ahead of the receipt")
    )


def readings(parsed_records: DataFrame) -> DataFrame:
    """Return the valid readings."""
    return parsed_records.where(F.col("problem").isNull()).select(*schemas.READING_COLUMNS)


def select_malformed(parsed_records: DataFrame) -> DataFrame:
    """Return the other records, each with its offset, its problem, and up to 1,000 characters of its text."""
    short = F.substring("text", 1, TEXT_CHARACTERS_MAX)
    return (
        parsed_records.where(F.col("problem").isNotNull()).withColumn("text", short).select(*schemas.MALFORMED_COLUMNS)
    )


def add_windows(sound_readings: DataFrame, window_ms: int) -> DataFrame:
    """Add to each reading its window of event time, which begins at a multiple of `window_ms`."""
    start = F.col("time_ms") - F.pmod("time_ms", F.lit(window_ms))
    windows = sound_readings.withColumn("window_start_ms", start)
    return windows.withColumn("window_end_ms", start + window_ms).select(*schemas.ARRIVED_COLUMNS)


def is_late(watermark_ms: int) -> Column:
    """Return whether a reading's window has ended; false without a watermark (`NO_WATERMARK_MS`), as in batch 0."""
    return F.col("window_end_ms") <= watermark_ms


def windows_after(open_windows: DataFrame, arrivals: DataFrame, watermark_ms: int) -> DataFrame:
    """Add the readings that are not late to the open windows; `new` is the number added to each window."""
    columns = [F.col(name) for name in schemas.OPEN_COLUMNS]
    value = F.col("value")
    one = {"min": value, "total": value, "max": value, "count": F.lit(1).cast("bigint")}
    taken = arrivals.where(~is_late(watermark_ms)).withColumns(one).select(*columns, F.lit(1).alias("new"))
    together = open_windows.select(*columns, F.lit(0).alias("new")).unionByName(taken)
    figures = together.groupBy("device", "window_start_ms", "window_end_ms").agg(
        F.min("min").alias("min"),
        F.sum("total").alias("total"),
        F.max("max").alias("max"),
        F.sum("count").alias("count"),
        F.sum("new").alias("new"),
    )
    return figures.select(*schemas.OPEN_COLUMNS, "new")


def devices_after(devices: DataFrame, arrivals: DataFrame, watermark_ms: int) -> DataFrame:
    """Return each device's newest event time and its total of late readings."""
    late = F.when(is_late(watermark_ms), 1).otherwise(0).cast("bigint")
    new = arrivals.select("device", F.col("time_ms").alias("newest_ms"), late.alias("late"))
    together = devices.select(*schemas.DEVICE_COLUMNS).unionByName(new).groupBy("device")
    return together.agg(F.max("newest_ms").alias("newest_ms"), F.sum("late").alias("late"))


def without_silent_devices(devices: DataFrame, silent_since_ms: int) -> DataFrame:
    """Drop devices that have been silent since then; their late readings still count, under the device null."""
    silent = F.col("newest_ms") < silent_since_ms
    named = devices.withColumn("device", F.when(~silent, F.col("device"))).groupBy("device")
    kept = named.agg(F.max("newest_ms").alias("newest_ms"), F.sum("late").alias("late"))
    return kept.where(F.col("device").isNotNull() | (F.col("late") > 0)).select(*schemas.DEVICE_COLUMNS)


def late_records(arrivals: DataFrame, topic: str, watermark_ms: int) -> DataFrame:
    """Turn late readings into Kafka records, keyed `<topic>|<partition>|<offset>`: a repeat replaces an equal value."""
    named = {"topic": F.lit(topic), "watermark_ms": F.lit(watermark_ms)}
    late = arrivals.where(is_late(watermark_ms)).withColumns(named)
    key = F.concat_ws("|", "topic", "partition", "offset")
    return late.select(key.alias("key"), F.to_json(F.struct(*schemas.LATE_COLUMNS)).alias("value"))


def window_statistics(windows: DataFrame) -> DataFrame:
    """Describe each device's readings per event-time window: minimum, mean, maximum and count."""
    return windows.withColumn("mean", F.col("total") / F.col("count")).select(*schemas.WINDOW_COLUMNS)


def window_records(windows: DataFrame) -> DataFrame:
    """Turn windows into Kafka records, keyed `<device>|<window_start_ms>`: a newer value replaces an older one."""
    key = F.concat_ws("|", "device", "window_start_ms")
    return windows.select(key.alias("key"), F.to_json(F.struct(*schemas.WINDOW_COLUMNS)).alias("value"))


def window_files(windows: DataFrame) -> DataFrame:
    """Add the UTC date of the window's start, by which the files are laid out."""
    date = F.date_format(F.timestamp_millis("window_start_ms"), "yyyy-MM-dd")
    return windows.select(*schemas.WINDOW_COLUMNS, date.alias("date"))


def add_recent_stats(recent: DataFrame, sound_readings: DataFrame, recent_readings: int) -> DataFrame:
    """Add to each reading the `recent_readings` readings of its device that precede it in event time.

    `recent` are readings of earlier batches: history, never judged again (`new` is false). The reading itself is left
    out of `mean`, `stddev` and `known`, the count of the preceding ones; `age` is 1 for a device's newest reading.
    """
    columns = [F.col(name) for name in schemas.RECENT_COLUMNS]
    new = sound_readings.select(*columns, F.lit(True).alias("new"))
    order = ("time_ms", "partition", "offset")
    by_time = Window.partitionBy("device").orderBy(*order)
    preceding = by_time.rowsBetween(-recent_readings, -1)
    figures = {
        "mean": F.avg("value").over(preceding),
        "stddev": F.stddev_samp("value").over(preceding),
        "known": F.count("value").over(preceding),
        "age": F.row_number().over(Window.partitionBy("device").orderBy(*(F.desc(name) for name in order))),
    }
    together = recent.select(*columns, F.lit(False).alias("new")).unionByName(new)
    return together.withColumns(figures).select(*schemas.JUDGED_COLUMNS)


def alarms(
    compared_readings: DataFrame, *, recent_readings_min: int, score_min: float, deviation_min: float
) -> DataFrame:
    """Return the new readings that are far from their device's recent mean.

    score = |value - mean| / max(stddev, `deviation_min`); with fewer than `recent_readings_min` readings before it a
    reading is not judged.
    """
    score = F.abs(F.col("value") - F.col("mean")) / F.greatest("stddev", F.lit(deviation_min))
    known = compared_readings.where(F.col("new") & (F.col("known") >= recent_readings_min)).withColumn("score", score)
    return known.where(F.col("score") >= score_min).select(*schemas.ALARM_COLUMNS)


def alarm_records(found: DataFrame) -> DataFrame:
    """Turn alarms into Kafka records, keyed by device."""
    return found.select(F.col("device").alias("key"), F.to_json(F.struct(*schemas.ALARM_COLUMNS)).alias("value"))


def most_recent(compared_readings: DataFrame, recent_readings: int) -> DataFrame:
    """Return each device's last readings by event time: the state for the next batch."""
    return compared_readings.where(F.col("age") <= recent_readings).select(*schemas.RECENT_COLUMNS)
