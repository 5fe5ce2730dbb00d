"""One partition that has no leader at the target keeps no other one from beginning.

Does not contain: fences (test_transacting.py, kafka_wire), what the log tells (test_resuming.py).
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kafka_wire.partitions import TopicPartition
from kafka_wire.transactions.last_batch_lookup import LookupResult
from mirror.errors import LeaderlessError, TargetError
from mirror.partition.stream import PartitionStream
from mirror.session.producer_sessions import ProducerSessions
from mirror.session.session_start import NOTHING_SEEN

LEADERLESS, WELL = (
    PartitionStream(TopicPartition("t", number), "t", {"cleanup.policy": "delete"}) for number in range(2)
)


class LivesOfTwo(ProducerSessions):
    """Producer sessions with a target of two partitions; `error` is what the first one's leader is answered with."""

    def __init__(self, error):
        self.target, self.error = self, error

    def _state(self, stream):
        return SimpleNamespace(producer_ids=frozenset({1}), map=SimpleNamespace(steps=[1]))

    async def leader(self, partition):
        if partition == LEADERLESS.at_target:
            raise self.error
        return 1

    async def look_up(self, wanted, steps_max):
        return dict.fromkeys(wanted, NOTHING_SEEN)


async def test_a_partition_without_a_leader_fails_alone():
    floors = {LEADERLESS: 0, WELL: 0}
    looks = await LivesOfTwo(LeaderlessError("t-0 has no leader"))._look_up(floors, None)
    assert looks[LEADERLESS] == "t-0 has no leader"
    assert isinstance(looks[WELL], LookupResult)


async def test_a_target_that_is_away_fails_all():
    with pytest.raises(TargetError, match="away"):
        await LivesOfTwo(TargetError("it is away"))._look_up({LEADERLESS: 0, WELL: 0}, None)
