"""PURE. Says which records of the source must not go to the target, as they came from there.

Does not contain: requests, clocks, log lines.
"""

from __future__ import annotations


def same_cluster(cluster_id: str) -> str:
    """Return the sentence that refuses a mirror whose two ends have one cluster id."""
    return (
        f"source and target both have the cluster id {cluster_id}: a mirror needs two clusters. If a card was cloned, "
        "start one of the two brokers with an empty data directory, as that gives it an id of its own "
        "(Apache Kafka: kafka-storage.sh format)."
    )
