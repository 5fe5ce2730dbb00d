"""Mirrors topics of an edge broker (or any Kafka) to the central Kafka, and records what is lost.

The mirror is a Kafka client at both ends, by kafka_wire.
"""
