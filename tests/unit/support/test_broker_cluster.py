"""What a test of a cluster waits for: all boards know a topic as it is now."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import broker_cluster
from tests.support.broker_cluster import BrokerCluster, in_sync, partitions_at
from tests.support.ports import free_port


def partition(leader: int = 1, isrs: int = 3) -> Any:
    return SimpleNamespace(leader=leader, isrs=list(range(isrs)))


@pytest.mark.parametrize(
    ("found", "partitions", "is_so"),
    [
        ([partition()] * 3, 1, True),
        ([partition()] * 3, 3, True),
        ([partition()] * 3, 5, False),  # a board that has not read yet that there are more
        ([partition()] * 5, 5, True),
        ([partition(), partition(leader=-1)], 2, False),
        ([partition(), partition(isrs=2)], 2, False),
        ([], 1, False),
    ],
)
def test_a_board_that_knows_fewer_partitions_is_waited_for(found: list[Any], partitions: int, is_so: bool) -> None:
    assert in_sync(found, 3, partitions) == is_so


def test_every_board_is_asked_until_all_know(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"a": 5, "b": 3}

    def partitions_of(board: Any, _topic: str) -> list[Any]:
        number = known[board.bootstrap]
        known[board.bootstrap] = min(5, number + 1)
        return [partition(isrs=2)] * number

    monkeypatch.setattr(broker_cluster, "partitions_at", partitions_of)
    boards: Any = [SimpleNamespace(bootstrap=name) for name in known]
    BrokerCluster(boards).wait_in_sync("t", 5)
    assert known == {"a": 5, "b": 5}


def test_a_board_that_does_not_answer_has_no_partitions_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_cluster, "ATTEMPT_S", 0.1)
    board: Any = SimpleNamespace(bootstrap=f"127.0.0.1:{free_port()}")
    assert partitions_at(board, "t") == []
