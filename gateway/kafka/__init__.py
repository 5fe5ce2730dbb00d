"""The Kafka producer, and the gateway's own topics."""
