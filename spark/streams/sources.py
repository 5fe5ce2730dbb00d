"""Read rows from Kafka topics by Spark's connector, and from a job's own files."""

from pyspark.sql import DataFrame, SparkSession

from spark.config import Settings
from spark.security import connector_options
from spark.streams import schemas, sinks


def kafka_records(session: SparkSession, settings: Settings) -> DataFrame:
    """Stream a topic from its earliest record, or from the checkpoint's offsets; offsets that are gone are an error.

    Records are read by offset, without a consumer group; only the checkpoint has the progress.
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
    """The state that the previous batch wrote is gone."""


def kept_rows(like: DataFrame, path: str, batch_id: int, columns: str) -> DataFrame:
    """Read the state of the previous batch below a path, or no rows before the first batch.

    `like` only leads to the session. Raises KeptRowsLostError.
    """
    session = like.sparkSession
    if batch_id == 0:
        return session.createDataFrame([], columns)
    previous = sinks.batch_path(path, batch_id - 1)
    if not sinks.exists(like, previous):
        raise KeptRowsLostError(f"{previous} is gone: give a new --checkpoint to start from the earliest reading")
    return session.read.schema(columns).parquet(previous)
