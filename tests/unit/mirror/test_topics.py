"""With which settings a topic is made at the target."""

from __future__ import annotations

import pytest

from mirror.topics.selection import copied_settings


@pytest.mark.parametrize(
    ("described", "copied"),
    [
        ({}, {"cleanup.policy": "delete"}),
        ({"cleanup.policy": ("compact", "default")}, {"cleanup.policy": "compact"}),
        ({"retention.ms": ("-1", "topic")}, {"cleanup.policy": "delete", "retention.ms": "-1"}),
        ({"retention.ms": ("3600000", "broker")}, {"cleanup.policy": "delete"}),
        ({"max.message.bytes": ("3000000", "broker")}, {"cleanup.policy": "delete", "max.message.bytes": "3000000"}),
        ({"max.message.bytes": ("1048588", "default")}, {"cleanup.policy": "delete"}),
        ({"segment.bytes": ("2000000", "topic"), "edge.priority": ("9", "topic")}, {"cleanup.policy": "delete"}),
    ],
)
def test_what_was_set_for_the_topic_goes_along(described, copied):
    assert copied_settings(described) == copied
