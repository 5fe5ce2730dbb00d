"""Users changed on all boards at once, while connections to ZooKeeper break, sessions end and boards die: what was
answered holds, on all.

Each user is changed by one board, one change after another, so that it is known what he may be: what was answered last,
or what has been asked since and was never answered for sure.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from edge_broker.cluster.znodes.znode_codec import SECURITY_STATE
from edge_broker.cluster.znodes.zookeeper import Get
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import ALTER_USER_SCRAM_CREDENTIALS
from edge_broker.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from edge_broker.security.state import decode_znode
from edge_broker.testing.client import Client
from tests.support.in_cluster import InCluster
from tests.unit.broker.test_scram_credentials import deletion, upsertion

GONE = 0
UNKNOWN = ErrorCode.REQUEST_TIMED_OUT


class Play:
    """Requests on their way, and what each user may be: his iterations, GONE for none."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.cluster = InCluster(3, shares_security=True)
        self.may_be: dict[str, set[int]] = {f"of-{board}": {GONE} for board in (1, 2, 3)}
        self.asked: dict[str, tuple[Client, int]] = {}
        self.value = 4096
        self.answered = 0

    def act(self) -> None:
        board, roll = self.dice.randint(1, 3), self.dice.random()
        if roll < 0.6:  # all at once, so that most find that another one was first
            for each in (1, 2, 3):
                if f"of-{each}" not in self.asked:
                    self.ask(each, f"of-{each}")
        elif roll < 0.9:
            self.fault(board)
        else:
            self.cluster.boards[board].site.dispatcher.start(self.cluster.boards[board].broker.security.check_file)

    def ask(self, board: int, name: str) -> None:
        self.value += 1
        wanted = GONE if self.dice.random() < 0.3 else self.value
        alteration: dict[str, list[Any]] = {"deletions": [], "upsertions": []}
        if wanted == GONE:
            alteration["deletions"].append(deletion(name))
        else:
            alteration["upsertions"].append(upsertion(name, iterations=wanted))
        client = self.cluster.boards[board].site.client()
        client.send(ALTER_USER_SCRAM_CREDENTIALS, AlterUserScramCredentialsRequest(**alteration))
        self.may_be[name].add(wanted)
        self.asked[name] = client, wanted

    def fault(self, board: int) -> None:
        ensemble, kind = self.cluster.ensemble, self.dice.random()
        if kind < 0.5:
            ensemble.servers[0].drop_connections()
        elif kind < 0.7:
            ensemble.expire(self.cluster.boards[board].session.session_id)
        elif kind < 0.85:
            ensemble.mend(0) if ensemble.servers[0].cut else ensemble.cut(0)
        else:
            self.asked.pop(f"of-{board}", None)  # nobody is told
            self.cluster.restart(board)

    def look(self) -> None:
        """Take the answers that came."""
        for name, (client, wanted) in list(self.asked.items()):
            for answer in client.answers():
                del self.asked[name]
                code = answer.results[0].error_code
                assert code in (ErrorCode.NONE, ErrorCode.RESOURCE_NOT_FOUND, UNKNOWN), code
                if code != UNKNOWN:
                    self.answered += 1
                    assert wanted == GONE or code == ErrorCode.NONE
                    self.may_be[name] = {wanted}

    def run(self, ms: int) -> None:
        for _ in range(ms // 10):
            self.cluster.loop.advance(10)
            self.cluster.work()
            self.look()


@pytest.mark.parametrize("seed", range(8))
def test_what_was_answered_holds_on_all(seed: int) -> None:
    play = Play(seed)
    for _ in range(40):
        play.act()
        play.run(play.dice.choice([10, 50, 400]))
    play.cluster.ensemble.mend(0)
    play.run(20_000)
    play.cluster.settle()
    assert not play.asked, "whoever asks is answered"
    assert play.answered > 3
    node = play.cluster.ensemble.tree.read(Get(SECURITY_STATE))
    state = decode_znode(node.data)  # type: ignore[union-attr]
    for board in play.cluster.boards.values():
        has = board.broker.security.state
        assert (has.users, has.marks, has.damage) == (state.users, state.marks, "")
    for name, values in play.may_be.items():
        held = state.users.get(name, {})
        found = held["SCRAM-SHA-256"].iterations if held else GONE
        assert found in values, f"{name} is {found}, and may be {values}"
