"""A broker that has what another one that is alive has, an id or an address, does not serve, and says why."""

from __future__ import annotations

import random

import pytest

from edge_broker.cluster.address_conflict import contradiction
from edge_broker.cluster.effects import Ask, Contradicts, Record
from edge_broker.cluster.member import ClusterMember, MembershipState
from edge_broker.cluster.partition.partition import Settings
from edge_broker.cluster.state.cluster_state import Identity, Registration
from edge_broker.cluster.znodes.zookeeper import Answer, Event
from edge_broker.testing.loop import Loop
from edge_broker.testing.zookeeper import Ensemble, GoodLinks

SESSION_MS, STEP_MS = 6_000, 100
AT = (("PLAINTEXT", "pi-1:9092"),)


class Board:
    """A member, without logs, on a model of the ensemble; `records` is False where it dies before that."""

    def __init__(
        self, ensemble: Ensemble, loop: Loop, identity: Identity, at: tuple[tuple[str, str], ...], *, records: bool
    ) -> None:
        self.member = ClusterMember(identity, Settings(), None, at, new_cluster="c")
        self.said: list[str] = []
        self._loop, self._records = loop, records
        self.session = ensemble.client(self, SESSION_MS, GoodLinks(random.Random(identity.broker)))

    def answer_received(self, token: int, answer: Answer) -> None:
        self.member.answer_received(token, answer, self._now_ms())
        self._carry_out()

    def event_received(self, event: Event) -> None:
        self.member.event_received(event, self._now_ms())
        self._carry_out()

    def tick(self) -> None:
        self.member.tick(self._now_ms())
        self._carry_out()

    def _now_ms(self) -> float:
        return self._loop.time() * 1000

    def _carry_out(self) -> None:
        while self.member.effects:
            effect = self.member.effects.pop(0)
            if isinstance(effect, Ask):
                self.session.ask(effect.token, effect.request)
            elif isinstance(effect, Record) and self._records:
                self.member.epoch_recorded(effect.epoch, self._now_ms())
            elif isinstance(effect, Contradicts):
                self.said.append(effect.sentence)


class Site:
    """An ensemble, and boards that come."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.ensemble = Ensemble(self.loop, random.Random(7), servers=1)
        self.boards: list[Board] = []

    def add(self, identity: Identity, at: str, *, records: bool = True) -> Board:
        self.boards.append(Board(self.ensemble, self.loop, identity, (("PLAINTEXT", at),), records=records))
        return self.boards[-1]

    def pass_for(self, ms: float) -> None:
        for _ in range(int(ms / STEP_MS)):
            self.loop.advance(STEP_MS)
            for board in self.boards:
                board.tick()


@pytest.fixture
def site() -> Site:
    return Site()


def served(site: Site, identity: Identity, at: str) -> Board:
    board = site.add(identity, at)
    site.pass_for(3_000)
    assert board.member.standing is MembershipState.SERVING
    return board


@pytest.mark.parametrize(
    ("identity", "at", "said"),
    [
        (Identity(2, "two"), "pi-1:9092", "broker 1 is alive and has the address pi-1:9092, too"),
        (Identity(1, "two"), "pi-2:9092", "another broker has broker.id 1 and is alive; give one of the two another"),
    ],
)
def test_who_comes_later_waits_for_a_life_that_may_have_ended_then_it_ends_with_a_sentence(
    site: Site, identity: Identity, at: str, said: str
) -> None:
    first = served(site, Identity(1, "one"), "pi-1:9092")
    second = site.add(identity, at)
    site.pass_for(SESSION_MS * 1.4)
    assert second.member.standing in (MembershipState.WAITING, MembershipState.READING)
    assert second.said == []
    site.pass_for(SESSION_MS)
    assert len(second.said) == 1
    assert second.said[0].startswith(said)
    assert (first.member.standing, first.said) == (MembershipState.SERVING, [])


@pytest.mark.parametrize("identity", [Identity(2, "two"), Identity(1, "two")])
def test_it_serves_once_the_other_is_gone(site: Site, identity: Identity) -> None:
    """As a board that comes with the address, or the card, of one that has just died."""
    first = served(site, Identity(1, "one"), "pi-1:9092")
    second = site.add(identity, "pi-1:9092")
    site.pass_for(2_000)
    assert second.member.standing is not MembershipState.SERVING
    first.session.close()
    site.boards.remove(first)
    site.pass_for(2_000)
    assert (second.member.standing, second.said, second.member.hindrance) == (MembershipState.SERVING, [], "")


def test_a_copy_of_a_card_under_the_same_id_ends_where_the_other_was_registered_since(site: Site) -> None:
    first = served(site, Identity(1, "one"), "pi-1:9092")
    copy = site.add(Identity(1, "one", (), "c"), "pi-2:9092")
    site.pass_for(SESSION_MS * 6)
    assert [each.split(",")[0] for each in copy.said] == [
        "another broker has broker.id 1 and a copy of this data directory"
    ]
    assert first.said == []


def test_its_own_former_life_is_waited_for_however_long_that_takes(site: Site) -> None:
    first = served(site, Identity(1, "one"), "pi-1:9092")
    again = site.add(first.member.identity, "pi-1:9092")
    site.pass_for(SESSION_MS * 20)
    assert (again.member.standing, again.said) == (MembershipState.WAITING, [])


def test_a_life_that_ended_before_its_epoch_was_recorded_is_no_copy(site: Site) -> None:
    first = site.add(Identity(1, "one"), "pi-1:9092", records=False)
    site.pass_for(1_000)
    assert first.member.standing is MembershipState.RECORDING
    again = site.add(Identity(1, "one", (), "c"), "pi-1:9092")
    site.pass_for(SESSION_MS * 2)
    first.session.close()
    site.boards.remove(first)
    site.pass_for(2_000)
    assert (again.member.standing, again.said) == (MembershipState.SERVING, [])


def test_a_copy_of_another_boards_card_serves(site: Site) -> None:
    served(site, Identity(1, "one"), "pi-1:9092")
    served(site, Identity(2, "one", (), "c"), "pi-2:9092")


def test_only_those_that_were_there_before_count_and_never_its_own_registration() -> None:
    mine = Registration(1, 7, "one", None, AT)
    assert contradiction(mine, [mine, Registration(2, 8, "one", None, AT)]) == ""
    assert contradiction(mine, [Registration(2, 6, "two", None, (("OTHER", "pi-1:9092"),))])
    assert contradiction(mine._replace(endpoints=()), [Registration(2, 6, "two")]) == ""
