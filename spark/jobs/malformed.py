"""Write the records that are no readings to JSON files, with their offsets; a part of every job."""

from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.config import Settings
from spark.jvm.failures import short_errors
from spark.logs import log
from spark.streams import sinks, sources, transforms
from spark.streams.progress import Tell


def start(session: SparkSession, settings: Settings, _: Tell) -> StreamingQuery:
    """Start to write the malformed records."""
    parsed = transforms.parse(sources.kafka_records(session, settings), settings.ahead_max_ms)
    writer = (
        transforms.select_malformed(parsed)
        .writeStream.queryName("malformed")
        .foreachBatch(short_errors(partial(keep, settings)))
    )
    writer = writer.option("checkpointLocation", settings.place("malformed_progress"))
    return writer.trigger(processingTime=f"{settings.malformed_trigger_ms} milliseconds").start()


def keep(settings: Settings, found: DataFrame, batch_id: int) -> None:
    """Write one batch's malformed records, if any exist; replace those of an earlier attempt."""
    found.persist()
    count = found.count()
    if count:
        path = settings.place("malformed")
        sinks.write_batch(found, path, batch_id, "json")
        log("warning", "malformed_records", topic=settings.topic, records=count, path=sinks.batch_path(path, batch_id))
    found.unpersist()
