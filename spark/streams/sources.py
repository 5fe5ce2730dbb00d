"""Where rows come from: Kafka topics through Spark's connector, and a job's own files."""

from pyspark.sql import DataFrame, SparkSession

from spark.config import Settings
from spark.security import connector_options
from spark.streams import schemas, sinks


def kafka_records(session: SparkSession, settings: Settings) -> DataFrame:
    """Stream a topic from its earliest record, or from where the checkpoint stands; offsets that are gone are an error.

    Everything is read by offset, without a consumer group; the checkpoint alone says what was done.
    """
    options = {
        **connector_options(settings),
        "subscribe": settings.topic,
        "startingOffsets": "earliest",
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(settings.batch_records_max),
    }
    records = session.readStream.format("kafka").options(**options).load()
    return records.select(*schemas.RECORD_COLUMNS)


class KeptRowsLostError(Exception):
    """What the previous batch left for the next one is gone."""


def kept_rows(like: DataFrame, path: str, batch_id: int, columns: str) -> DataFrame:
    """Read what the batch before this one kept under a path, or no rows before the first batch.

    `like` only leads to the session. Raises KeptRowsLostError.
    """
    session = like.sparkSession
    if batch_id == 0:
        return session.createDataFrame([], columns)
    previous = sinks.batch_path(path, batch_id - 1)
    if not sinks.exists(like, previous):
        raise KeptRowsLostError(f"{previous} is gone: give a new --checkpoint to start from the earliest reading")
    return session.read.schema(columns).parquet(previous)
