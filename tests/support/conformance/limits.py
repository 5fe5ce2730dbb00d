"""Settings of the brokers that clients are tested against."""

from __future__ import annotations

MESSAGE_BYTES_MAX = 1_048_588  # Kafka's default message.max.bytes
# Kafka waits 3 s by default for more members of a new group; nothing here tests that.
# 30 s after its start Kafka deletes what is older than a week, and records here are of 2023. As long may aiokafka take
# to close a connection by TLS behind acks=0: Apache Kafka, beside load, leaves its close_notify unanswered.
COMMON = {"group.initial.rebalance.delay.ms": 0, "log.retention.ms": -1}
