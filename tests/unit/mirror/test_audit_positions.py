"""The positions that an audit goes by are those of the topics that have their names now.

Does not contain: what counts as pending or lost (test_audit.py).
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import replace
from functools import partial
from uuid import UUID

import pytest

from kafka_wire.partitions import TopicPartition
from mirror.audit.runner import Ways, audit
from mirror.client.source_client import Source
from mirror.partition.source_offsets import Commit
from tests.support.scripted_wire import playing
from tests.unit.mirror.test_replicator import CONFIG
from tests.unit.mirror.test_unread import NO_ID, PARTITIONS, RECORDS, Brokers

OLD, NEW = UUID(int=5), UUID(int=6)
POSITION = 15


def as_text(topic_id):
    return urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("topic_id", "noted", "is_of_it"),
    [(NEW, OLD, False), (OLD, OLD, True), (NO_ID, OLD, True), (NEW, None, True)],
)
async def test_a_position_of_a_topic_that_was_made_again_makes_no_loss(
    monkeypatch, tmp_path, topic_id, noted, is_of_it
):
    """Nothing of the new topic is at the target: a mirror of the target made it, and it is passed over as a whole."""

    async def commits(self, partitions=None):
        told = None if noted is None else as_text(noted)
        return {TopicPartition("readings", one): Commit(POSITION, POSITION, topic_id=told) for one in range(PARTITIONS)}

    monkeypatch.setattr(Source, "commits", commits)
    source, target = Brokers("source", topic_id=topic_id), Brokers("target")
    target.topic = "lab.others"
    async with (
        playing(partial(source.play, 7)) as seven,
        playing(partial(source.play, 8)) as eight,
        playing(partial(target.play, 7)) as there,
    ):
        source.ports, target.ports = {7: seven, 8: eight}, {7: there, 8: there}
        config = replace(CONFIG, source=f"127.0.0.1:{seven}", target=f"127.0.0.1:{there}")
        found = await audit(config, Ways(), None, lambda *_: None)
    assert len(found.accounts) == PARTITIONS
    for account in found.accounts:
        counts = account.counts["source"]
        expected = (RECORDS - POSITION, POSITION) if is_of_it else (RECORDS, 0)
        assert (counts["pending"], counts["lost"]) == expected
    assert found.is_proven(may_double=False) != is_of_it
