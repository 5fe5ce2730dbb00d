"""How much `edge-mirror plan` says is to be sent, by where a partition's log begins and ends and what is committed."""

from __future__ import annotations

import pytest

from mirror.partition.source_offsets import Commit
from mirror.plan_command import counts


@pytest.mark.parametrize(
    ("start", "end", "commit", "to_send", "again", "gone"),
    [
        (0, 0, None, 0, 0, 0),
        (5, 12, None, 7, 0, 0),
        (0, 100, Commit(40, 40), 60, 0, 0),
        (0, 100, Commit(40, 55), 60, 15, 0),
        (0, 100, Commit(40, 10_000), 60, 60, 0),
        (50, 100, Commit(40, 55), 50, 5, 10),
        (50, 100, Commit(40, 45), 50, 0, 10),
        (0, 100, Commit(100, 100), 0, 0, 0),
        (0, 90, Commit(100, 110), 0, 0, 0),  # the source lost its end: `run` asks for epochs
        (100, 100, Commit(40, 55), 0, 0, 60),
    ],
)
def test_what_is_to_be_sent(start, end, commit, to_send, again, gone):
    assert counts(start, end, commit) == (to_send, again, gone)
