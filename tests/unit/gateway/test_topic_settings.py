"""Existing topics of the gateway whose settings would lose records."""

from __future__ import annotations

import pytest

from gateway.kafka.topic_settings import settings_trouble

KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
WEEK = {**KEPT, "retention.ms": "604800000"}


@pytest.mark.parametrize(
    ("topic", "settings"),
    [
        ("boot_times", {"cleanup.policy": "compact", "retention.ms": "604800000"}),
        ("boot_times", {}),  # it does not exist, or may not be described
        ("letters", WEEK),
        ("__edge_ledger", KEPT),
        ("readings", {"cleanup.policy": "compact"}),
    ],
)
def test_settings_that_keep_the_records_are_no_trouble(topic: str, settings: dict[str, str | None]) -> None:
    assert settings_trouble(topic, "letters", settings) is None


@pytest.mark.parametrize(
    ("topic", "settings", "said"),
    [
        ("boot_times", {"cleanup.policy": "delete"}, "has cleanup.policy=delete, so the broker deletes the times"),
        ("boot_times", {"cleanup.policy": "compact,delete"}, "set cleanup.policy=compact"),
        ("letters", {"cleanup.policy": "compact"}, "a dead letter replaces those of the same key"),
        ("letters", {"cleanup.policy": "delete, compact"}, "set cleanup.policy=delete"),
        ("__edge_ledger", WEEK, "has retention.ms=604800000, so the broker deletes the records of losses with age"),
        ("__edge_ledger", {**KEPT, "cleanup.policy": "compact"}, "set cleanup.policy=delete"),
        ("__edge_ledger", {**WEEK, "retention.bytes": "1"}, "set retention.ms=-1, retention.bytes=-1"),
    ],
)
def test_settings_that_lose_records_are_named_with_the_remedy(
    topic: str, settings: dict[str, str | None], said: str
) -> None:
    assert said in str(settings_trouble(topic, "letters", settings))
