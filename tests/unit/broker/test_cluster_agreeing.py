"""Many who change topics at once, while connections to ZooKeeper break and sessions end: what was answered holds."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest

from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, INCREMENTAL_ALTER_CONFIGS
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.create_partitions import CreatePartitionsRequest
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from edge_broker.storage.metadata.topic_record import JOURNAL_TOPIC
from edge_broker.testing.client import Client
from tests.support.in_cluster import InCluster
from tests.unit.broker.test_alter_configs import SET, of_topic
from tests.unit.broker.test_alter_configs import request as incremental
from tests.unit.broker.test_cluster_topics import NONE, create, new, request
from tests.unit.broker.test_create_partitions import more

TIMEOUT_MS = 20_000
KEYS = {1: "retention.ms", 2: "segment.ms", 3: "delete.retention.ms"}
AWAY = ErrorCode.INVALID_REPLICATION_FACTOR  # a board's session has ended, and its next one has not begun
UNKNOWN = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER)  # it may hold; a client asks again


class Play:
    """Requests on their way, by connection; each board sets a key of its own, one value after another."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.cluster = InCluster(3)
        made = [new(name, 1, 3) for name in ("configured", "grown", "old0", "old1", "old2")]
        assert create(self.cluster, 1, *made) == [NONE] * len(made)
        self.cluster.settle()
        self.asked: dict[Client, tuple[str, int, Any]] = {}
        self.answered: dict[tuple[str, Any], list[int]] = defaultdict(list)
        self.ids: dict[str, list[Any]] = defaultdict(list)
        self.setting: dict[int, list[int]] = {board: [] for board in KEYS}  # what a key may hold, since its last answer
        self.value = 1000
        self.count = 1

    def ask(self, board: int, what: str, about: Any, key: int, message: Message) -> None:
        client = self.cluster.boards[board].site.client()
        client.send(key, message)
        self.asked[client] = what, board, about

    def act(self) -> None:
        board = self.dice.randint(1, 3)
        what = self.dice.choice(["make", "delete", "set", "set", "grow", "fault"])
        if what == "make":
            name = f"new{self.dice.randint(0, 3)}"
            self.ask(board, what, name, CREATE_TOPICS, request(new(name, 2, 2), timeout_ms=TIMEOUT_MS))
        elif what == "delete":
            name = f"old{self.dice.randint(0, 2)}"
            asked = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=TIMEOUT_MS)
            self.ask(board, what, name, DELETE_TOPICS, asked)
        elif what == "grow":
            self.count += 1
            asked_more = CreatePartitionsRequest(topics=[more("grown", self.count)], timeout_ms=TIMEOUT_MS)
            self.ask(board, what, self.count, CREATE_PARTITIONS, asked_more)
        elif what == "set" and all((kind, of) != ("set", board) for kind, of, _ in self.asked.values()):
            self.value += 1
            self.setting[board].append(self.value)
            change = incremental(of_topic("configured", (KEYS[board], SET, str(self.value))))
            self.ask(board, what, self.value, INCREMENTAL_ALTER_CONFIGS, change)
        elif what == "fault":
            self.fault(board)

    def fault(self, board: int) -> None:
        ensemble = self.cluster.ensemble
        kind = self.dice.random()
        if kind < 0.6:
            ensemble.servers[0].drop_connections()
        elif kind < 0.8:
            ensemble.expire(self.cluster.boards[board].session.session_id)
        elif not ensemble.servers[0].cut:
            ensemble.cut(0)
            self.cluster.loop.call_later(self.dice.random() * 3, ensemble.mend, 0)

    def take(self) -> None:
        self.cluster.work()
        for client in list(self.asked):
            for answer in client.answers():
                what, board, about = self.asked.pop(client)
                (one,) = getattr(answer, {"make": "topics", "grow": "results"}.get(what, "responses"))
                self.answered[what, about].append(one.error_code)
                if what == "make" and one.error_code == NONE:
                    self.ids[about].append(one.topic_id)
                if what == "set" and one.error_code == NONE:
                    self.setting[board] = [about]

    def run(self) -> None:
        for _ in range(60):
            if len(self.asked) < 12:
                self.act()
            self.cluster.loop.advance(self.dice.random() * 30)
            self.take()
        self.cluster.ensemble.mend(0)

        def all_answered() -> bool:
            self.take()
            return not self.asked

        self.cluster.pass_until(all_answered, 120_000)
        self.cluster.pass_until(lambda: all(each.facade.view.serves for each in self.cluster.boards.values()))
        self.cluster.settle()


@pytest.mark.parametrize("seed", range(20))
def test_what_was_answered_holds_and_everybody_knows_the_same(seed: int) -> None:
    play = Play(seed)
    play.run()
    boards = list(play.cluster.boards.values())
    first = boards[0].facade.view
    for board in boards:
        assert dict(board.facade.view.topics) == dict(first.topics)
        assert board.broker.topics.changing == set()
        assert JOURNAL_TOPIC in board.site.store.topics
    for (what, about), codes in play.answered.items():
        if what == "make":
            assert set(codes) <= {NONE, ErrorCode.TOPIC_ALREADY_EXISTS, AWAY, *UNKNOWN}
            assert codes.count(NONE) <= 1, "only one of those who make a topic has made it"
            if NONE in codes:
                found = first.describe(about)
                assert found is not None
                assert [found.topic_id] == play.ids[about]
        elif what == "delete":
            assert set(codes) <= {NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, *UNKNOWN}
            assert NONE not in codes or about not in first.topics
        elif what == "grow":
            assert set(codes) <= {NONE, ErrorCode.INVALID_PARTITIONS, AWAY, *UNKNOWN}
            assert NONE not in codes or len(first.topics["grown"].replicas) >= about
        else:
            assert set(codes) <= {NONE, *UNKNOWN}
    for number, key in KEYS.items():
        held = first.topics["configured"].config.get(key)
        may_be = play.setting[number]
        assert held is None or int(held) in may_be, f"{key} is {held}, and was set to {may_be}"
        assert held is not None or not any(NONE in play.answered["set", value] for value in may_be)


def test_these_plays_meet_what_they_are_about() -> None:
    """Most is done, and some is refused or late; else the test above shows little."""
    codes: dict[str, set[int]] = defaultdict(set)
    for seed in range(4):
        play = Play(seed)
        play.run()
        for (what, _), found in play.answered.items():
            codes[what].update(found)
    assert all(NONE in codes[what] for what in ("make", "delete", "grow", "set"))
    assert ErrorCode.TOPIC_ALREADY_EXISTS in codes["make"]
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in codes["delete"]
    assert ErrorCode.INVALID_PARTITIONS in codes["grow"]
