"""The mirror: carries topics from an edge broker (or any Kafka) to the central Kafka, and writes down what is missing.

It is a Kafka client at both ends, by kafka_wire.
"""
