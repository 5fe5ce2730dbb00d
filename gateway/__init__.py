"""Takes sensor and log data in at the edge and hands it to a Kafka broker; answers its sources only after acks=all."""
