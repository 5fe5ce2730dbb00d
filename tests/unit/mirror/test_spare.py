"""Which transactional id begins, which partitions wait, and how a spare is announced in the state topic."""

from __future__ import annotations

import pytest

from kafka_wire.transactions.transactions import TransactionDescription
from mirror.errors import TargetError
from mirror.partition.state_records import (
    Reading,
    StateError,
    claim_of,
    no_spare_record,
    spare_record,
)
from mirror.session import transactional_ids
from mirror.session.transactional_ids import SPARES, Id, Ids, spare_ids

STATE = ("__edge-mirror-lab-state", 0)
A, B = ("lab.a", 0), ("lab.b", 3)
FREE = TransactionDescription("CompleteCommit", 7, 3)


class Asked:
    """Transactions of one id: the epoch that we were given, and what the coordinator returns, one after the other."""

    def __init__(self, *told, producer=(7, 3)):
        self.told, self.producer = list(told), producer

    async def describe(self):
        return self.told.pop(0) if len(self.told) > 1 else self.told[0]

    def is_held(self, told):
        return told[1:3] == self.producer

    async def abort(self):
        return 0


def decided(*partitions, epoch=3, state="PrepareCommit"):
    return TransactionDescription(state, 7, epoch, frozenset(partitions))


def ids_of(*asked):
    """The own id, then spares; of the others we were given no epoch."""
    more = [Asked(None, producer=(-1, -1)) for _ in range(SPARES + 1 - len(asked))]
    own, *spares = (Id(f"id{n}", n, one) for n, one in enumerate([*asked, *more]))
    return Ids(own, spares, STATE)


@pytest.fixture(autouse=True)
def waits_are_short(monkeypatch):
    monkeypatch.setattr(transactional_ids, "MARKERS_S", 0.02)
    monkeypatch.setattr(transactional_ids, "_ASK_S", (0.001, 0.005))


@pytest.mark.parametrize(
    ("asked", "chosen", "waiting"),
    [
        ([Asked(FREE)], "id0", set()),
        ([Asked(TransactionDescription("Ongoing", 7, 3, frozenset({A})), FREE)], "id0", set()),
        ([Asked(TransactionDescription("Ongoing", 7, 3, frozenset({A})), decided(A))], "id1", {A}),
        ([Asked(TransactionDescription("Ongoing", 7, 4, frozenset({A})))], "id0", set()),  # another mirror's
        ([Asked(decided(A), decided(A), FREE)], "id0", set()),  # soon written
        ([Asked(decided(A))], "id1", {A}),
        ([Asked(decided(A, state="PrepareAbort"))], "id1", {A}),
        ([Asked(decided(A, epoch=4))], "id0", set()),  # another mirror's, or one that timed out
        ([Asked(decided(A), producer=(8, 3))], "id0", set()),
        ([Asked(None)], "id0", set()),  # it may not be asked
        ([Asked(decided(A)), Asked(decided(B))], "id2", {A, B}),
        ([Asked(FREE), Asked(decided(B))], "id0", {B}),
        ([Asked(decided(A)), Asked(FREE)], "id1", {A}),
    ],
)
async def test_the_first_id_that_waits_for_no_marker_begins(asked, chosen, waiting):
    ids = ids_of(*asked)
    await ids.choose()
    assert ids.current.name == chosen
    assert ids.unmarked_partitions == waiting
    assert ids.is_spare == (chosen != "id0")


@pytest.mark.parametrize(
    "asked",
    [
        [Asked(decided(STATE))],  # what is committed there is hidden
        [Asked(decided(A, STATE))],
        [Asked(FREE), Asked(decided(STATE))],
        [Asked(decided(A))] * (SPARES + 1),
    ],
)
async def test_none_begins_where_the_state_cannot_be_read_or_all_wait(asked):
    with pytest.raises(TargetError, match=r"no transaction can begin: .* start the brokers"):
        await ids_of(*asked).choose()


async def test_spares_that_the_target_refuses_are_not_used():
    ids = ids_of(Asked(decided(A)))
    ids.refuse_spares("transactional id id1 is refused")
    with pytest.raises(TargetError, match=r"lab.a-0, .*no other transactional id can be used: transactional id id1"):
        await ids.choose()


async def test_a_partition_waits_until_its_marker_is_written():
    ids = ids_of(Asked(decided(A, B)))
    await ids.choose()
    ids.own.transactions.told = [decided(B)]
    await ids.refresh()
    assert ids.unmarked_partitions == {B}
    assert not await ids.own.is_free()
    assert await ids.own.is_ours()
    ids.own.transactions.told = [FREE]
    await ids.refresh()
    assert not ids.unmarked_partitions
    assert await ids.own.is_free()
    ids.own.transactions.told = [TransactionDescription("Empty", 7, 4)]  # given to another mirror
    assert not await ids.own.is_free()
    assert not await ids.own.is_ours()


def test_an_announcement_is_read_until_it_is_removed():
    reading = Reading()
    for number, name in enumerate(spare_ids(STATE[0]), 1):
        reading.take(*spare_record(STATE[0], number, name, (7, 3)))
    assert reading.spares == {1: f"{STATE[0]}~2", 2: f"{STATE[0]}~3", 3: f"{STATE[0]}~4"}
    reading.take(*no_spare_record(STATE[0], 2))
    reading.take(*no_spare_record(STATE[0], 2))
    assert sorted(reading.spares) == [1, 3]
    assert reading.partitions() == {}


def test_an_announcement_claims_no_records():
    assert claim_of(STATE[0], *spare_record(STATE[0], 1, "id~2", (7, 3))) is None


@pytest.mark.parametrize("value", [b'{"version":3}', b'{"version":3,"spare":7}', b'{"version":4,"spare":"id~2"}'])
def test_an_announcement_that_cannot_be_read_is_refused(value):
    key, _ = spare_record(STATE[0], 1, "id~2", (7, 3))
    with pytest.raises(StateError):
        Reading().take(key, value)
