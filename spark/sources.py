"""Where rows come from: Kafka topics through Spark's connector, and a job's own files."""

from pyspark.sql import DataFrame, SparkSession

from spark import schemas
from spark.config import Settings


def kafka_records(session: SparkSession, settings: Settings) -> DataFrame:
    """Stream a topic from its earliest record, or from where the checkpoint stands; offsets that are gone are an error.

    Everything is read by offset, without a consumer group; the checkpoint alone says what was done.
    """
    options = {
        **settings.kafka,
        "kafka.bootstrap.servers": settings.bootstrap,
        "subscribe": settings.topic,
        "startingOffsets": "earliest",
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(settings.batch_records_max),
    }
    records = session.readStream.format("kafka").options(**options).load()
    return records.select(*schemas.RECORD_COLUMNS)


def recent_readings(like: DataFrame, path: str | None) -> DataFrame:
    """Read the readings that an earlier batch kept, or none (shaped like `like`) where there was none."""
    if path is None:
        return like.where("false").select(*schemas.RECENT_COLUMNS)
    return like.sparkSession.read.schema(schemas.RECENT).parquet(path)
