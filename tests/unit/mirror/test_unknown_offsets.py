"""`status`, `plan` and `audit` name a partition whose offsets an end does not return now, and show the others.

Does not contain: how the mirror itself goes on with the others (test_untold.py).
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from drupelet.errors import CommandFailed
from edge_broker.errors import ErrorCode
from kafka_wire.records.batches import Piece, pieces_of
from mirror.audit import audit_command
from mirror.audit.digest.partition_facts import Facts
from mirror.audit.digest.selection import Only
from mirror.audit.endpoints import cluster_endpoint
from mirror.audit.endpoints.digest_lines import BadLine, facts_line, read_line
from mirror.audit.runner import Ways, audit, tell_digests
from mirror.partition.source_offsets import Commit
from mirror.plan_command import make_plan
from mirror.status import group_report
from mirror.status.status_text import text
from tests.unit.mirror.ends import TP, MemoryTarget, record
from tests.unit.mirror.test_replicator import CONFIG
from tests.unit.mirror.test_untold import OTHER, SECRETS, Half

BOTH = replace(CONFIG, topics="readings|secrets")


class Asked(Half):
    """As the commands ask it."""

    def __init__(self, other):
        super().__init__([record(o) for o in range(30)], other)
        self.group[TP] = Commit(20, 20)

    async def batch_at(self, partition, offset):
        assert partition == TP
        piece = next(pieces_of(memoryview(self.batches(offset)), offset, []))
        assert isinstance(piece, Piece)
        return piece


def put_in_place(monkeypatch, module, source):
    monkeypatch.setattr(module, "Source", lambda client, group_id: source)


async def test_status_by_the_source(monkeypatch):
    put_in_place(monkeypatch, group_report, Asked(OTHER))
    report = await group_report.standing(BOTH)
    known, unknown = report.partitions
    assert (known.lag, known.trouble) == (10, "")
    assert (unknown.partition, unknown.source_end, unknown.lag, unknown.lag_bytes, unknown.lag_s) == (1, *[None] * 4)
    assert report.troubles == ["the source does not return the offsets of readings-1: it has no leader"]
    shown = text(report)
    assert "TROUBLE the source does not return the offsets of readings-1: it has no leader" in shown
    assert "1 of 2" in shown


async def test_a_plan():
    target = MemoryTarget()

    async def nothing():
        return {}

    async def allowed(name):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    target.topics, source = nothing, Asked(OTHER)
    source.error_of = allowed
    [found], near = await make_plan(source, target, BOTH)
    assert near is None
    assert (found.partitions, found.to_send, found.gone) == (2, 10, 0)
    assert found.trouble == "the source does not return the offsets of readings-1: it has no leader"


def here(name, partition, **more):
    return Facts(name, partition, name, 0, 0, False, **more)


@pytest.mark.parametrize("other", [OTHER, SECRETS])
@pytest.mark.parametrize("side", ["source", "target"])
async def test_an_audit(monkeypatch, tmp_path, capsys, side, other):
    """Of the side that is read live; the other one is in a file."""
    source = Asked(other)
    put_in_place(monkeypatch, cluster_endpoint, source)
    monkeypatch.setattr(cluster_endpoint.LiveEnd, "_state", no_state)
    monkeypatch.setattr(cluster_endpoint.LiveEnd, "_read", nothing_is_read)
    monkeypatch.setattr(cluster_endpoint.LiveEnd, "_names", lambda self, known: {n: n for n in known if n[0] != "_"})
    facts = [here("readings", 0), here(other.topic, other.partition)]
    lines = ['{"digests":1,"of":"%s","at_ms":1,"asked":""}' % ("target" if side == "source" else "source")]
    lines += [*map(facts_line, facts), '{"all":2}']
    file = tmp_path / "digests"
    file.write_text("\n".join(lines) + "\n")
    source.end = 0
    ways = Ways(target_digests=file) if side == "source" else Ways(source_digests=file)
    found = await audit(BOTH, ways, None, lambda *_: None)
    is_open = side == "target" and other == SECRETS  # a target may leave open whether a topic compacts
    assert [account.facts["source"].partition for account in found.accounts] == ([0, 0] if is_open else [0])
    assert [(one.topic, one.partition) for one in found.unread] == ([] if is_open else [other])
    assert found.is_proven(may_double=False) == is_open
    status = await audit_command.audit(BOTH, ways, None, as_json=False, may_double=False)
    shown = capsys.readouterr().out
    assert status == (0 if is_open else 1)
    if not is_open:
        assert f"{other.topic}-{other.partition} is not audited: " in shown
        assert "NOT PROVEN: 0 of 2 partitions differ, 1 is not audited" in shown
    await audit_command.audit(BOTH, ways, None, as_json=True, may_double=False)
    told = json.loads(capsys.readouterr().out)
    assert told["proven"] == is_open
    assert [one[:2] for one in told["not_audited"]] == ([] if is_open else [[other.topic, other.partition]])


async def no_state(self, known):
    return {}


async def nothing_is_read(self, first, end):
    for one in ():
        yield one


async def test_digests_have_it_and_an_older_release_refuses_them(monkeypatch):
    put_in_place(monkeypatch, cluster_endpoint, Asked(OTHER))
    monkeypatch.setattr(cluster_endpoint.LiveEnd, "_read", nothing_is_read)
    lines = [line async for line in tell_digests("source", BOTH, None, each=False, report=lambda *_: None)]
    [line] = [one for one in lines if '["readings",1]' in one]
    assert read_line(line).unknown == "it has no leader"
    fields = json.loads(line)
    del fields["unknown"]  # an older release passes over keys that it does not know
    with pytest.raises(BadLine):
        read_line(json.dumps(fields))


async def test_digests_of_its_records_alone_are_refused(monkeypatch):
    put_in_place(monkeypatch, cluster_endpoint, Asked(OTHER))
    with pytest.raises(CommandFailed, match="readings-1 cannot be read: it has no leader"):
        async for _ in tell_digests("source", BOTH, Only("readings", 1, 0, 5), each=True, report=lambda *_: None):
            pass
