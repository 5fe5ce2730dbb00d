"""Values that the gateway hands to Kafka: records, dead letters, the times of boots."""
