"""Znodes become the brokers' alone: by the rules of znodes/ownership.py, against the model of an ensemble."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

import pytest

from edge_broker.cluster.znodes.ownership import (
    Action,
    Owner,
    Users,
    action_for,
    digest_identity,
    other_products,
    owner_of,
)
from edge_broker.cluster.znodes.protection import IN_FLIGHT, Protection
from edge_broker.cluster.znodes.znode_codec import (
    CONTROLLER,
    FORMAT,
    OWNERSHIP,
    PRODUCER_IDS,
    ROOTS,
    Format,
    broker_path,
    encode,
    encode_format,
    encode_rebuilt_format,
    topic_path,
)
from edge_broker.cluster.znodes.zookeeper import (
    ALL,
    ANY_VERSION,
    EVERYBODY,
    AclEntries,
    AclEntry,
    Answer,
    Children,
    Create,
    Delete,
    Exists,
    Failure,
    Get,
    GetAcl,
    Permission,
    Request,
    SetAcl,
)
from edge_broker.testing.loop import Loop
from edge_broker.testing.zookeeper import Ensemble

US, NEXT, EVIL = (digest_identity("boards", word) for word in ("now", "next", "evil"))
USERS = Users(US)
CHANGING = Users(NEXT, US)
CLUSTER = "site"


def acl(*identities: str, permissions: Permission = ALL) -> AclEntries:
    return tuple(AclEntry("digest", identity, permissions) for identity in identities)


def test_an_identity_is_that_of_zookeeper() -> None:
    """As DigestAuthenticationProvider prints it for the user and password of ZooKeeper's guide."""
    assert digest_identity("super", "admin") == "super:xQJmxLMiHGwaqBvst5y6rkB6HQs="


@pytest.mark.parametrize(
    ("entries", "users", "owner"),
    [
        (acl(US), USERS, Owner.BROKERS),
        (acl(US), CHANGING, Owner.ACCEPTED),
        (acl(NEXT), CHANGING, Owner.BROKERS),
        (acl(US, NEXT), CHANGING, Owner.ACCEPTED),
        (acl(US, NEXT), USERS, Owner.OPEN),
        (EVERYBODY, USERS, Owner.OPEN),
        ((*acl(US), AclEntry("world", "anyone", Permission.READ)), USERS, Owner.OPEN),
        (acl(EVIL), USERS, Owner.FOREIGN),
        ((AclEntry("world", "anyone", Permission.READ),), USERS, Owner.FOREIGN),
        ((*acl(EVIL), AclEntry("world", "anyone", ALL & ~Permission.ADMIN)), USERS, Owner.FOREIGN),
        (acl(US, permissions=Permission.READ), USERS, Owner.FOREIGN),
        ((AclEntry("ip", "127.0.0.1"),), USERS, Owner.FOREIGN),
        ((AclEntry("x509", US),), USERS, Owner.FOREIGN),
        ((), USERS, Owner.FOREIGN),
    ],
)
def test_whose_a_znode_is(entries: AclEntries, users: Users, owner: Owner) -> None:
    assert owner_of(entries, users) is owner


def test_what_is_open_is_taken_over_once() -> None:
    assert [action_for(owner, is_recorded=False) for owner in Owner] == [
        Action.KEEP,
        Action.REPLACE,
        Action.TAKE_OVER,
        Action.REFUSE,
    ]
    assert [action_for(owner, is_recorded=True) for owner in Owner] == [
        Action.KEEP,
        Action.REPLACE,
        Action.REFUSE,
        Action.REFUSE,
    ]


def test_other_products_have_names_of_their_own() -> None:
    assert other_products(("format", "zookeeper", "topics", "brokers", "controller")) == []
    assert other_products(("kafka", "format", "hbase")) == ["hbase", "kafka"]


class Site:
    """A model ensemble whose requests are answered one by one, and who asks."""

    def __init__(self) -> None:
        self.ensemble = Ensemble(Loop(), random.Random(3))
        self.asked = 0
        self.most = 0

    def answer(self, request: Request, identities: tuple[str, ...] = ()) -> Answer:
        if isinstance(request, Get | GetAcl | Children | Exists):
            return self.ensemble.tree.read(request, identities)
        return self.ensemble.decide(request, 1, identities)

    def create(self, *paths: str, by: tuple[str, ...] = ()) -> None:
        for path in paths:
            data = encode_format(CLUSTER) if path == FORMAT else encode({})
            assert not isinstance(self.answer(Create(path, data), by), Failure), path

    def protect(
        self,
        users: Users = USERS,
        chroot: str = "/site",
        cluster: str = CLUSTER,
        spoil: Callable[[Request], None] = lambda _: None,
    ) -> tuple[Protection, list[str]]:
        """Take all steps; `spoil` is called before each request is answered."""
        waiting: deque[tuple[Request, Callable[[Answer], None]]] = deque()
        told: list[str] = []
        protection = Protection(lambda request, then: waiting.append((request, then)), users, chroot)
        protection.begin(cluster, 1, told.append)
        while waiting:
            self.most = max(self.most, len(waiting))
            request, then = waiting.popleft()
            self.asked += 1
            spoil(request)
            then(self.answer(request, users.accepted_users))
        return protection, told

    def owners(self) -> dict[str, AclEntries]:
        return {path: node.acl for path, node in self.ensemble.tree.nodes.items()}

    def foreign(self, users: Users = USERS) -> list[str]:
        return [path for path, entries in self.owners().items() if entries != users.acl]


def test_the_parent_becomes_the_brokers_and_a_stranger_removes_nothing() -> None:
    site = Site()
    site.create(FORMAT, *ROOTS, PRODUCER_IDS, CONTROLLER, by=(US,))
    assert not isinstance(site.answer(Delete(CONTROLLER)), Failure), "as before"
    site.create(CONTROLLER, by=(US,))
    protection, told = site.protect()
    assert (told, protection.notes, site.foreign()) == ([""], [], [])
    for path in (FORMAT, *ROOTS, PRODUCER_IDS, CONTROLLER, OWNERSHIP):
        assert site.answer(Delete(path)) is Failure.NO_AUTH
        assert site.answer(Create(f"{path}/x")) is Failure.NO_AUTH
    assert site.answer(Create("/new")) is Failure.NO_AUTH
    assert site.answer(SetAcl("/", EVERYBODY, ANY_VERSION)) is Failure.NO_AUTH
    assert not isinstance(site.answer(Create(broker_path(7)), (US,)), Failure), "a broker of the earlier release"


def test_open_znodes_are_taken_over_and_named() -> None:
    site = Site()
    site.create(FORMAT, *ROOTS, PRODUCER_IDS)
    site.create(topic_path("t"), topic_path("t/0"))
    protection, told = site.protect()
    assert (told, site.foreign()) == ([""], [])
    taken = next(line for line in protection.lines if line.event == "znodes_taken_over")
    assert taken.fields["count"] == 7
    assert "/topics/t/0" in str(taken.fields["names"])


def test_a_foreign_znode_is_refused_and_named_and_the_rest_taken_over() -> None:
    site = Site()
    site.create(FORMAT, *ROOTS)
    site.create(PRODUCER_IDS, by=(EVIL,))
    protection, told = site.protect()
    assert (told, site.foreign(), list(protection.refused)) == ([""], [PRODUCER_IDS], [PRODUCER_IDS])
    assert any(PRODUCER_IDS in note for note in protection.notes)


def test_each_further_start_takes_twelve_requests() -> None:
    site = Site()
    site.create(FORMAT, *ROOTS)
    site.protect()
    site.asked = 0
    assert site.protect()[1] == [""]
    assert site.asked == 12


def test_nothing_is_taken_over_a_second_time() -> None:
    site = Site()
    site.create(FORMAT, *ROOTS)
    site.protect()
    site.create(PRODUCER_IDS, by=(US,))
    site.answer(SetAcl(PRODUCER_IDS, EVERYBODY, ANY_VERSION), (US,))
    protection, told = site.protect()
    assert (told, site.foreign(), list(protection.refused)) == ([""], [PRODUCER_IDS], [PRODUCER_IDS])
    assert [(line.event, line.fields["path"]) for line in protection.lines] == [("znode_refused", PRODUCER_IDS)]


@pytest.mark.parametrize("path", ROOTS)
def test_a_broker_does_not_register_below_a_foreign_root(path: str) -> None:
    site = Site()
    site.create(FORMAT, *ROOTS)
    site.protect()
    site.answer(SetAcl(path, EVERYBODY, ANY_VERSION), (US,))
    protection, (told,) = site.protect()
    assert told.startswith(f"znode {path} is not the brokers' alone")
    assert not protection.is_done
    site.answer(SetAcl(path, USERS.acl, ANY_VERSION), (US,))
    assert site.protect()[1] == [""]


def test_a_format_that_was_opened_again_is_refused() -> None:
    site = Site()
    site.create(FORMAT, *ROOTS)
    site.protect()
    site.answer(SetAcl(FORMAT, EVERYBODY, ANY_VERSION), (US,))
    protection, told = site.protect()
    assert (told, list(protection.refused), site.foreign()) == ([""], [FORMAT], [FORMAT])


def test_znodes_that_are_rebuilt_are_left_alone() -> None:
    site = Site()
    site.create(*ROOTS)
    rebuilt = encode_rebuilt_format(Format(CLUSTER, 1 << 40, rebuilding=True), security=False)
    site.answer(Create(FORMAT, rebuilt))
    before = site.owners()
    protection, told = site.protect()
    assert (told, protection.is_done, site.owners()) == ([""], False, before)


def test_a_stranger_s_ownership_record_keeps_no_znode_open() -> None:
    site = Site()
    site.create(FORMAT, OWNERSHIP, *ROOTS)
    site.protect()
    assert site.foreign() == []


def test_another_cluster_s_ensemble_is_left_alone() -> None:
    site = Site()
    site.create(FORMAT, *ROOTS)
    before = site.owners()
    assert site.protect(cluster="other")[1] == [""]
    assert site.owners() == before
    theirs = Site()
    theirs.create(FORMAT, *ROOTS, by=(EVIL,))
    before = theirs.owners()
    assert theirs.protect()[1] == [""]
    assert theirs.owners() == before


def test_a_new_broker_takes_no_cluster_over() -> None:
    site = Site()
    site.create(FORMAT, *ROOTS)
    before = site.owners()
    ((told,)) = site.protect(cluster="")[1]
    assert "does not belong to it yet" in told
    assert site.owners() == before
    site.protect()
    assert site.protect(cluster="")[1] == [""]


def test_brokers_without_a_user_are_not_cut_off() -> None:
    site = Site()
    site.create(FORMAT, *ROOTS, broker_path(1), broker_path(2))
    before = site.owners()
    ((told,)) = site.protect()[1]
    assert told.startswith("broker 2 is registered without the user of edge.zookeeper.digest.file")
    assert site.owners() == before
    site.answer(Delete(broker_path(2)))
    assert site.protect()[1] == [""]
    assert site.foreign() == []


def test_the_root_is_protected_where_no_other_product_is() -> None:
    site = Site()
    site.create("/zookeeper", FORMAT, *ROOTS)
    protection, _ = site.protect(chroot="")
    assert (site.foreign(), protection.notes) == (["/zookeeper"], [])


def test_a_root_shared_with_others_stays_theirs_and_what_can_be_guarded_is() -> None:
    site = Site()
    site.create("/kafka", FORMAT, *ROOTS, PRODUCER_IDS)
    protection, told = site.protect(chroot="")
    assert (told, site.foreign()) == ([""], ["/", "/kafka"])
    (note,) = protection.notes
    assert "kafka" in note
    assert "/controller" in note
    assert not isinstance(site.answer(Create("/hbase")), Failure)
    for path in (FORMAT, PRODUCER_IDS, "/brokers", "/deleted"):
        assert site.answer(Delete(path)) is Failure.NOT_EMPTY


def test_what_a_stranger_replaces_below_a_shared_root_is_named_later_on() -> None:
    site = Site()
    site.create("/kafka", FORMAT, *ROOTS)
    site.create(CONTROLLER, by=(US,))
    asked: list[Request] = []

    def ask(request: Request, then: Callable[[Answer], None]) -> None:
        asked.append(request)
        then(site.answer(request, USERS.accepted_users))

    protection = Protection(ask, USERS, "")
    protection.begin(CLUSTER, 1, lambda problem: None)
    assert not protection.is_complete
    protection.check_again()
    assert not protection.refused
    site.answer(Delete(CONTROLLER))
    site.create(CONTROLLER)
    protection.check_again()
    assert list(protection.refused) == [CONTROLLER]
    site.answer(Delete(CONTROLLER))
    site.create(CONTROLLER, by=(EVIL,))
    protection.check_again()
    assert list(protection.refused) == [CONTROLLER]
    site.answer(Delete(CONTROLLER))
    protection.check_again()
    assert not protection.refused
    chroot = Protection(ask, USERS, "/site")
    chroot.begin(CLUSTER, 1, lambda problem: None)
    asked.clear()
    chroot.check_again()
    assert (chroot.is_complete, asked) == (True, [])


def test_a_parent_of_another_user_is_named() -> None:
    site = Site()
    site.create(FORMAT, *ROOTS, by=(US,))
    site.answer(SetAcl("/", acl(EVIL), ANY_VERSION))
    protection, told = site.protect()
    assert told == [""]
    assert protection.notes[0].startswith("/site of ZooKeeper is not the brokers' alone")


def test_two_brokers_at_once_and_znodes_that_go_meanwhile() -> None:
    site = Site()
    site.create(FORMAT, *ROOTS, topic_path("t"), topic_path("t/0"))
    spoiled: list[Request] = []

    def spoil(request: Request) -> None:
        if isinstance(request, SetAcl) and not spoiled:
            spoiled.append(request)
            site.protect()
        if isinstance(request, GetAcl) and request.path == topic_path("t/0"):
            site.answer(Delete(request.path), (US,))

    _, told = site.protect(spoil=spoil)
    assert (told, site.foreign()) == ([""], [])


def test_many_znodes_are_taken_over_a_few_at_once() -> None:
    site = Site()
    site.create(FORMAT, *ROOTS)
    site.create(*(topic_path(f"t{number}") for number in range(200)))
    protection, told = site.protect()
    assert (told, site.foreign()) == ([""], [])
    assert site.most <= IN_FLIGHT
    taken = next(line for line in protection.lines if line.event == "znodes_taken_over")
    assert taken.fields["count"] == 204
    assert str(taken.fields["names"]).endswith(", …")


def test_a_lost_session_ends_the_steps() -> None:
    waiting: list[Callable[[Answer], None]] = []
    told: list[str] = []
    protection = Protection(lambda _, then: waiting.append(then), USERS, "")
    protection.begin(CLUSTER, 1, told.append)
    protection.end()
    waiting.pop()(Failure.NO_NODE)
    assert (told, waiting) == ([], [])
    protection.begin(CLUSTER, 1, told.append)
    waiting.pop()(Failure.CONNECTION_LOSS)
    assert (told, waiting) == ([], [])


def test_the_acls_of_a_former_user_are_replaced_where_the_new_one_is_first() -> None:
    """Every board has both, then the new one first, then it alone: no board is ever kept out."""
    site = Site()
    site.create(FORMAT, *ROOTS, topic_path("t"), by=(US,))
    site.protect()
    assert site.protect(Users(US, NEXT))[1] == [""]
    assert site.foreign(USERS) == [], "a board that has only the former user goes on"
    protection, told = site.protect(CHANGING)
    assert (told, site.foreign(CHANGING), protection.refused) == ([""], [], {})
    assert "names two users" in protection.reminder
    replaced = next(line for line in protection.lines if line.event == "znode_acls_replaced")
    assert replaced.fields == {"count": 6}
    assert site.protect(Users(US, NEXT))[1] == [""]
    assert site.foreign(USERS) == [], "one that starts again as before takes it back, until it has the new one first"
    site.protect(CHANGING)
    protection, told = site.protect(Users(NEXT))
    assert (told, protection.refused, protection.reminder) == ([""], {}, "")
    assert site.answer(Get(FORMAT), (US,)) is Failure.NO_AUTH


def test_a_root_and_znodes_that_the_other_user_opened_are_no_stranger_s() -> None:
    site = Site()
    site.create("/hbase", FORMAT, *ROOTS, by=(US,))
    site.answer(SetAcl("/", acl(US), ANY_VERSION))
    protection, told = site.protect(CHANGING, chroot="")
    assert (told, protection.notes, site.foreign(CHANGING)) == ([""], [], ["/hbase"])


def test_open_znodes_are_not_taken_over_while_users_change() -> None:
    site = Site()
    site.create(FORMAT, *ROOTS, topic_path("t"), by=(US,))
    site.protect()
    site.answer(SetAcl(topic_path("t"), EVERYBODY, ANY_VERSION), (US,))
    protection, told = site.protect(CHANGING)
    assert (told, site.foreign(CHANGING), list(protection.refused)) == ([""], [topic_path("t")], [topic_path("t")])
