"""`edge-broker topics`, `tail`, `groups`, `cluster status`: what any Kafka client could ask, for people without one."""
