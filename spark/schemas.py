"""The columns of every table on the road: what a transform returns is exactly one of these, in this order.

Here: column names and types as Spark DDL. Never here: logic. Times that end in `_ms` are epoch milliseconds, UTC.
"""

# What a device publishes, see gateway/reading.schema.json; each field may be missing or of the wrong type (then null).
DEVICE_JSON = "device STRING, seq BIGINT, time_ms BIGINT, value DOUBLE"

RECORD_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")  # Spark's Kafka source
PARSED_COLUMNS = ("partition", "offset", "device", "seq", "time_ms", "event_time", "value", "text", "problem")
READING_COLUMNS = ("partition", "offset", "device", "seq", "time_ms", "event_time", "value")
MALFORMED_COLUMNS = ("partition", "offset", "problem", "text")
RECENT_COLUMNS = ("device", "time_ms", "partition", "offset", "value")
RECENT = "device STRING, time_ms BIGINT, partition INT, offset BIGINT, value DOUBLE"
WINDOW_COLUMNS = ("device", "window_start_ms", "window_end_ms", "min", "mean", "max", "count")
JUDGED_COLUMNS = (*RECENT_COLUMNS, "new", "mean", "stddev", "known", "age")
ALARM_COLUMNS = ("device", "time_ms", "value", "mean", "stddev", "score")
KAFKA_COLUMNS = ("key", "value")
