"""The columns of every table: each transform returns exactly one of these, in this order.

Contains: column names and types as Spark DDL; a reading's are those of drupelet/reading.schema.json. Does not contain:
logic.
Times that end in `_ms` are epoch milliseconds, UTC.
"""

from drupelet import reading_schema

SPARK_TYPES = {"string": "STRING", "integer": "BIGINT", "number": "DOUBLE"}  # by JSON type
# A device's own time is the record's timestamp, which the gateway sets from any form of time; in the JSON of another
# producer it is whole milliseconds.
READ_OTHERWISE = {"time_ms": "BIGINT"}


def device_json() -> str:
    """Write the declaration of a reading as Spark DDL; a field that is missing or of a wrong type becomes null."""
    return ", ".join(f"{name} {READ_OTHERWISE.get(name) or only_type(name)}" for name in reading_schema.field_types())


def only_type(name: str) -> str:
    """Name the Spark type of a field that the declaration gives one JSON type."""
    (kind,) = reading_schema.field_types()[name]
    return SPARK_TYPES[kind]


DEVICE_JSON = device_json()

RECORD_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")  # Spark's Kafka source
PARSED_COLUMNS = ("partition", "offset", "device", "seq", "time_ms", "event_time", "value", "text", "problem")
READING_COLUMNS = ("partition", "offset", "device", "seq", "time_ms", "event_time", "value")
MALFORMED_COLUMNS = ("partition", "offset", "problem", "text")
RECENT_COLUMNS = ("device", "time_ms", "partition", "offset", "value")
RECENT = "device STRING, time_ms BIGINT, partition INT, offset BIGINT, value DOUBLE"
ARRIVED_COLUMNS = (*READING_COLUMNS, "window_start_ms", "window_end_ms")
OPEN_COLUMNS = ("device", "window_start_ms", "window_end_ms", "min", "total", "max", "count")
OPEN = "device STRING, window_start_ms BIGINT, window_end_ms BIGINT, min DOUBLE, total DOUBLE, max DOUBLE, count BIGINT"
DEVICE_COLUMNS = ("device", "newest_ms", "late")
DEVICES = "device STRING, newest_ms BIGINT, late BIGINT, watermark_ms BIGINT"
LATE_COLUMNS = (
    *("device", "topic", "partition", "offset", "seq", "time_ms", "value"),
    *("window_start_ms", "window_end_ms", "watermark_ms"),
)
WINDOW_COLUMNS = ("device", "window_start_ms", "window_end_ms", "min", "mean", "max", "count")
JUDGED_COLUMNS = (*RECENT_COLUMNS, "new", "mean", "stddev", "known", "age")
ALARM_COLUMNS = ("device", "time_ms", "value", "mean", "stddev", "score")
KAFKA_COLUMNS = ("key", "value")
