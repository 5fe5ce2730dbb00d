"""The tools bear answers whose bytes are wrong anywhere: a sentence and status 1, or a table, and never a traceback."""

from __future__ import annotations

import random

import pytest

from edge_broker.protocol.api import DESCRIBE_CONFIGS, DESCRIBE_GROUPS, DESCRIBE_LOG_DIRS, LIST_GROUPS, OFFSET_FETCH
from edge_broker.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from edge_broker.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from edge_broker.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.support.scripted_broker import ScriptedBroker
from tests.unit.tools.conftest import OneTopic
from tests.unit.tools.test_answers import _configs, _sizes
from tests.unit.tools.test_tail import batch

COMMANDS = (
    ["topics"],
    ["topics", "t"],
    ["tail", "t", "--from", "0"],
    ["tail", "t", "--json"],
    ["groups"],
    ["groups", "g"],
)
SPOILT = 0.12  # of the answers: a command needs several
RUNS = 40


def _groups(_request):
    return ListGroupsResponse(groups=[ListedGroup(group_id="g", group_state="Stable")])


def _described(_request):
    members = [DescribedGroupMember(member_id="m")]
    return DescribeGroupsResponse(groups=[DescribedGroup(group_id="g", group_state="Stable", members=members)])


def _committed(_request):
    topic = OffsetFetchResponseTopics(name="t", partitions=[OffsetFetchResponsePartitions(committed_offset=3)])
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic])])


class Spoiler:
    """Changes, cuts off or puts in some bytes of some answers."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def __call__(self, content: bytes) -> bytes:
        chance = self.chance
        if not content or chance.random() > SPOILT:
            return content
        at, more = (
            chance.randrange(len(content)),
            bytes(chance.choices((0, 1, 127, 128, 255, 66), k=chance.randrange(1, 9))),
        )
        return chance.choice(
            (content[:at], content[:at] + more + content[at:], content[:at] + more[:1] + content[at + 1 :])
        )


@pytest.mark.parametrize("seed", range(4))
def test_wrong_bytes_anywhere(run, seed):
    topic = OneTopic([batch(0, 10), batch(10, 5, codec=2), batch(20, 10, codec=4)], 0, 30)
    others = {LIST_GROUPS: _groups, DESCRIBE_GROUPS: _described, OFFSET_FETCH: _committed}
    others |= {DESCRIBE_CONFIGS: _configs, DESCRIBE_LOG_DIRS: _sizes}
    statuses = set()
    with ScriptedBroker(topic.answers | others, Spoiler(seed)) as broker:
        for number in range(RUNS):
            words = COMMANDS[number % len(COMMANDS)]
            ran = run(*words, "--bootstrap", broker.bootstrap, "--timeout", 5)
            assert ran.status == 0 or ran.err, (words, ran)
            statuses.add(ran.status)
    assert statuses == {0, 1}
