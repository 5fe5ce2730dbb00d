"""`edge-broker topics`, `tail` and `groups`: what any Kafka client could ask, for people without one."""
