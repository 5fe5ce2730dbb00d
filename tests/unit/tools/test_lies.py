"""The tools bear answers whose bytes are wrong anywhere: a sentence and status 1, or a table, and never a traceback."""

from __future__ import annotations

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
from tests.support.tools.answers import configs_answer, sizes_answer
from tests.support.tools.batches import batch
from tests.support.tools.lies import Spoiler
from tests.support.tools.one_topic import OneTopic

COMMANDS = (
    ["topics"],
    ["topics", "t"],
    ["tail", "t", "--from", "0"],
    ["tail", "t", "--json"],
    ["groups"],
    ["groups", "g"],
)
RUNS = 40


def _groups(_request):
    return ListGroupsResponse(groups=[ListedGroup(group_id="g", group_state="Stable")])


def _described(_request):
    members = [DescribedGroupMember(member_id="m")]
    return DescribeGroupsResponse(groups=[DescribedGroup(group_id="g", group_state="Stable", members=members)])


def _committed(_request):
    topic = OffsetFetchResponseTopics(name="t", partitions=[OffsetFetchResponsePartitions(committed_offset=3)])
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic])])


@pytest.mark.parametrize("seed", range(4))
def test_wrong_bytes_anywhere(run, seed):
    topic = OneTopic([batch(0, 10), batch(10, 5, codec=2), batch(20, 10, codec=4)], 0, 30)
    others = {LIST_GROUPS: _groups, DESCRIBE_GROUPS: _described, OFFSET_FETCH: _committed}
    others |= {DESCRIBE_CONFIGS: configs_answer, DESCRIBE_LOG_DIRS: sizes_answer}
    statuses = set()
    with ScriptedBroker(topic.answers | others, Spoiler(seed)) as broker:
        for number in range(RUNS):
            words = COMMANDS[number % len(COMMANDS)]
            ran = run(*words, "--bootstrap", broker.bootstrap, "--timeout", 5)
            assert ran.status == 0 or ran.err, (words, ran)
            statuses.add(ran.status)
    assert statuses == {0, 1}
