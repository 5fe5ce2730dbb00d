"""A record that the target refuses for good: its topic's `on_refused` decides, and the loss comes last."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from edge_broker.protocol.record_batch import build_batch
from mirror.ledger.dead_letter import RefusedRecord
from mirror.replication.refused_records import RefusedRecords
from mirror.topics.overrides import rules_from
from tests.unit.mirror.replication.parts import CONFIG, Losses, Problems, new_stream

DEAD_LETTER = replace(CONFIG, rules=rules_from({".*": {"on_refused": "dead_letter"}}))


class Sync:
    """The topic config sync; `raises` is whether the target's limit has just been raised."""

    def __init__(self, *, raises=False):
        self.raises, self.asked = raises, 0

    async def has_raised(self, stream):
        self.asked += 1
        return self.raises


def refused(reason="INVALID_RECORD", said="no key"):
    batch = build_batch([(b"k", b"value")], timestamp_ms=5, base_offset=17)
    return RefusedRecord(17, SimpleNamespace(batch=batch), len(batch), reason, said)


def setup(config, **sync):
    problems, losses, config_sync = Problems(), Losses(), Sync(**sync)
    return RefusedRecords(config, losses, config_sync, problems.report), losses, problems, config_sync


async def test_with_stop_the_stream_waits_and_the_problem_names_the_remedy():
    records, losses, problems, _ = setup(CONFIG)
    assert not await records.resolve(new_stream(), refused())
    assert losses.written == losses.letters == []
    assert problems["readings-0"].startswith("the target refuses the record at offset 17, of ")
    assert "INVALID_RECORD: no key; it waits: " in problems["readings-0"]
    assert 'on_refused = "dead_letter"' in problems["readings-0"]


async def test_with_dead_letter_the_letter_is_written_before_the_loss():
    records, losses, problems, _ = setup(DEAD_LETTER)
    losses.meanwhile = lambda stream: losses.letters.append("loss")
    assert await records.resolve(new_stream(), refused())
    assert losses.written == [("record_refused", 17, 18)]
    assert len(losses.letters) == 2
    assert losses.letters[1] == "loss"
    assert problems == {}


@pytest.mark.parametrize("reason", ["MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"])
async def test_a_limit_that_was_raised_just_now_has_the_record_sent_again(reason):
    records, losses, problems, sync = setup(DEAD_LETTER, raises=True)
    assert not await records.resolve(new_stream(), refused(reason))
    assert losses.written == losses.letters == []
    assert problems == {}
    assert sync.asked == 1


async def test_other_refusals_ask_for_no_limit():
    records, _, _, sync = setup(DEAD_LETTER, raises=True)
    assert await records.resolve(new_stream(), refused())
    assert sync.asked == 0


async def test_a_record_that_its_batch_lacks_is_not_put_aside():
    records, losses, problems, _ = setup(DEAD_LETTER)
    broken = refused()._replace(offset=18)
    assert not await records.resolve(new_stream(), broken)
    assert losses.written == losses.letters == []
    assert "it cannot be put aside, and waits: " in problems["readings-0"]
