"""Publishes sensor and log data to a Kafka broker; acknowledges to its sources only after acks=all."""
