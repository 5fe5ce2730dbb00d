"""The same requests to the edge broker and to Apache Kafka, answers compared field by field."""
