"""Values that the gateway publishes: records, dead letters, the times of boots."""
