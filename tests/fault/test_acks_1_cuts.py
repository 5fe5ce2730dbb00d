"""Power cuts under acks=1 traffic, with idle partitions beside it: the ledger against what is gone, offset by offset.

A whole broker on a disk in memory that keeps nothing unsynced, with time that passes only when told to.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.protocol.api import PRODUCE
from edge_broker.protocol.record_batch import records_of
from edge_broker.testing.site import Site, make_topic
from tests.support.storage import batch, read_all
from tests.unit.broker.test_produce import part, produce

CUTS = 200
IDLE = 50
BUSY = 6
IDLE_MS = 80_000  # a minute, and a look every 10 s before and behind it


class Board:
    """A broker whose power goes again and again; `answered` is the end that acks=1 was told of, by partition."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.site = Site()
        self.site.disk.loses_all = True
        make_topic(self.site.store, "idle", IDLE)
        make_topic(self.site.store, "busy", BUSY)
        self.answered: dict[tuple[str, int], int] = {}
        self.seen = 0

    def use(self, topic: str, partition: int, acks: int = 1) -> None:
        """Produce a record and wait for the answer; the workers do no more than it takes."""
        client = self.site.client()
        client.send(PRODUCE, produce((topic, partition, batch(b"x")), acks=acks))
        while not (found := client.answers()):
            assert self.site.disk_worker, "nothing is under way that could bring the answer"
            self.site.disk_worker.step()
        self.answered[topic, partition] = part(found[0]).base_offset + 1
        client.lose()

    def pass_time(self, ms: int) -> None:
        """Let time pass, with what the broker does every 10 s."""
        for _ in range(ms // 10_000):
            self.site.loop.advance(10_000)
            self.site.run_until_idle()
            self.site.dispatcher.syncer.look_at_marks()
            self.site.run_until_idle()

    def live(self) -> None:
        """Use some idle partitions, let them be idle, then write to busy ones until the power goes."""
        for partition in self.chance.sample(range(IDLE), 4):
            self.use("idle", partition, self.chance.choice((1, -1)))
        self.pass_time(IDLE_MS)
        self.site.store.checkpoint()
        for partition in self.chance.sample(range(BUSY), 3):
            self.use("busy", partition)
            if self.chance.random() < 0.5:  # the checkpoint and the last sync are the same end: all behind it goes
                self.pass_time(10_000)
                self.site.store.checkpoint()
        for partition in range(BUSY):
            if self.chance.random() < 0.5 or self.site.store.topics["busy"].partitions[partition].marked:
                self.use("busy", partition)

    def cut(self) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
        """Lose the power; which partitions lost what was answered, and which the next start's ledger names."""
        self.site = self.site.reopen("cut")
        entries = self._entries()
        lost = set()
        for (topic, partition), end in self.answered.items():
            found = self.site.store.topics[topic].partitions[partition].log_end_offset
            if found < end:
                lost.add((topic, partition))
                told = [entry for entry in entries if (entry["topic"], entry["partition"]) == (topic, partition)]
                for offset in range(found, end):
                    assert any(covers(entry, offset) for entry in told), f"{topic}-{partition}: {offset} is in no entry"
            self.answered[topic, partition] = found
        return lost, {(entry["topic"], entry["partition"]) for entry in entries}

    def _entries(self) -> list[dict[str, Any]]:
        log = self.site.store.topics[LEDGER_TOPIC].partitions[0]
        records = [json.loads(record.value or b"") for one in read_all(log) for record in records_of(one)]
        new, self.seen = records[self.seen :], len(records)
        return new


def covers(entry: dict[str, Any], offset: int) -> bool:
    return entry["first_offset"] <= offset and (entry["last_offset"] is None or offset <= entry["last_offset"])


@pytest.mark.timeout(300)
def test_of_200_cuts_every_lost_offset_is_in_the_ledger_and_hardly_an_entry_names_who_lost_nothing(chance) -> None:
    board = Board(chance)
    entries = wrong = 0
    for _ in range(CUTS):
        board.live()
        lost, named = board.cut()
        assert lost, "the cut took nothing"
        assert lost <= named
        entries, wrong = entries + len(named), wrong + len(named - lost)
    assert wrong <= entries / 100, f"{wrong} of {entries} entries name a partition that lost nothing"
    assert not any(name == "idle" for name, _ in named)
