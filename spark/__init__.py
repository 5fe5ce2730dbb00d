"""PySpark at the edge: Structured Streaming jobs on Kafka topics, small enough for a board."""
