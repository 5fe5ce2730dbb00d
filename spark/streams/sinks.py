"""Write results to Kafka topics and files.

The Kafka sink is at least once: after a crash the last batch is written again. Windows and late readings are keyed, so
a repeat replaces an equal value; alarms repeat with the same device and time. Files are written per batch, and replace
those of an earlier attempt at the same batch.
"""

from typing import Any

from pyspark.sql import DataFrame

from spark.config import Settings
from spark.security import connector_options


def kafka_options(settings: Settings, topic: str) -> dict[str, str]:
    """Return the options of a Kafka sink; acks=all and idempotence are the defaults of kafka-clients."""
    return {**connector_options(settings), "topic": topic}


def write_to_kafka(records: DataFrame, settings: Settings, topic: str) -> None:
    """Write one batch to a topic, and return when the broker has acked all of it."""
    records.write.format("kafka").options(**kafka_options(settings, topic)).save()


def batch_path(path: str, batch_id: int) -> str:
    """Name the directory of one batch."""
    return f"{path}/batch={batch_id}"


def write_batch(rows: DataFrame, path: str, batch_id: int, file_format: str) -> None:
    """Write one batch's rows to its own directory; replace those of an earlier attempt."""
    rows.coalesce(1).write.mode("overwrite").format(file_format).save(batch_path(path, batch_id))


def write_dated_batch(rows: DataFrame, path: str, batch_id: int) -> None:
    """Write one batch's rows to Parquet by their column `date`; replace an earlier attempt; no rows, no directory."""
    if rows.isEmpty():
        delete_batch(rows, path, batch_id)
    else:
        writer = rows.coalesce(1).write.mode("overwrite").partitionBy("date")
        writer.parquet(batch_path(path, batch_id))


def delete_batch(rows: DataFrame, path: str, batch_id: int) -> None:
    """Delete one batch's directory, if it exists."""
    delete(rows, batch_path(path, batch_id))


def exists(rows: DataFrame, path: str) -> bool:
    """Return whether a path exists, on the file system that it names."""
    place, system = open_path(rows, path)
    return bool(system.exists(place))


def delete(rows: DataFrame, path: str) -> None:
    """Delete a path and all below it."""
    place, system = open_path(rows, path)
    system.delete(place, True)


def open_path(rows: DataFrame, path: str) -> tuple[Any, Any]:
    """Open a path: Hadoop's Path and the file system that it is on."""
    session = rows.sparkSession
    jvm: Any = session._jvm
    place = jvm.org.apache.hadoop.fs.Path(path)
    return place, place.getFileSystem(session._jsc.hadoopConfiguration())
