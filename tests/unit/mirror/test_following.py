"""When the target is asked for the settings of its topics, which crosses the link."""

from __future__ import annotations

import pytest

from kafka_wire.partitions import TopicPartition
from mirror.partition.send_state import SENDING
from mirror.partition.stream import PartitionStream
from mirror.replication.topic_config_sync import Following
from mirror.topics.config_rules import Setting

WANTED = {"cleanup.policy": "delete", "retention.ms": "5"}


class Ends:
    """Source and target at once; `asked` counts questions to the target."""

    def __init__(self):
        self.here, self.asked, self.altered = dict(WANTED), 0, []

    async def settings(self, names):
        return {name: dict(self.here) for name in names}

    async def known_settings(self, names):
        return {name: dict(self.here) if name != "denied" else "it is denied" for name in names}

    async def topic_settings(self, names):
        self.asked += 1
        return {name: {key: Setting(value, is_own=True) for key, value in WANTED.items()} for name in names}

    async def alter_topic(self, name, changes):
        self.altered.append((name, changes))
        return ""


@pytest.fixture
def ends():
    return Ends()


@pytest.fixture
def following(ends):
    return Following(ends, ends)


@pytest.fixture
def lane():
    lane = PartitionStream(TopicPartition("t", 0), "lab.t", WANTED)
    lane.send_state = SENDING
    return lane


@pytest.mark.parametrize(
    ("made", "asked"),
    [
        (WANTED | {"message.timestamp.after.max.ms": "9"}, 0),
        ({"cleanup.policy": "delete"}, 1),  # the target has not taken all
        (None, 1),  # it was there before
    ],
)
async def test_a_topic_that_was_made_as_it_was_wanted_is_not_compared(ends, following, lane, made, asked):
    if made is not None:
        following.topic_created(lane, made)
    for _ in range(2):
        await following.sync([lane])
    assert ends.asked == asked
    assert not ends.altered


async def test_what_changes_at_the_source_follows_whoever_has_made_the_topic(ends, following, lane):
    following.topic_created(lane, WANTED)
    ends.here["retention.ms"] = "6"
    await following.sync([lane])
    assert ends.altered == [("lab.t", {"retention.ms": "6"})]
