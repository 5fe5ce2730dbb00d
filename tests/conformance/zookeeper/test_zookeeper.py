"""What edge_broker/cluster/znodes/zookeeper.py promises holds for the model and for a real ensemble of three."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from edge_broker.cluster.znodes.ownership import digest_identity
from edge_broker.cluster.znodes.zookeeper import (
    EVERYBODY,
    Acl,
    AclEntry,
    Change,
    Check,
    Children,
    Connected,
    Create,
    Delete,
    Done,
    Exists,
    Expired,
    Failure,
    Get,
    GetAcl,
    Multi,
    MultiFailed,
    Names,
    Node,
    SetAcl,
    SetData,
    Stat,
    Suspended,
    Sync,
    WatchFired,
)
from edge_broker.network.cluster.zookeeper_client import Credentials
from tests.conformance.zookeeper.sessions import ModelWorld, RealWorld, World
from tests.support import runtimes
from tests.support.zookeeper import TICK_MS, ZooKeeperEnsemble

numbers = count(1)


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("ensemble")) as ensemble:
        yield ensemble


@pytest.fixture(scope="module")
def older_ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    """The line that Debian 12 and 13 have; Apache Kafka 3.9 brings the jars."""
    jars = [f"{runtimes.old_kafka_jars()}/*"]
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("older"), jars=jars) as ensemble:
        yield ensemble


def chroot_in(ensemble: ZooKeeperEnsemble) -> str:
    """A node of this test's own to be its root."""
    world = RealWorld(ensemble, "")
    path = f"/test-{next(numbers)}"
    peer = world.peer()
    peer.connected()
    assert isinstance(peer.ask(Create(path)), Stat)
    world.close()
    return path


@pytest.fixture(params=["model", "3.9.5", "3.8.4"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    world: World
    if request.param == "model":
        world = ModelWorld()
    else:
        ensemble = request.getfixturevalue("ensemble" if request.param == "3.9.5" else "older_ensemble")
        world = RealWorld(ensemble, chroot_in(ensemble))
    yield world
    world.close()


def stat_of(answer: object) -> Stat:
    assert isinstance(answer, Stat), answer
    return answer


def test_a_node_is_made_read_replaced_by_its_version_and_removed(world: World) -> None:
    peer = world.peer()
    peer.connected()
    made = stat_of(peer.ask(Create("/a", b"one")))
    assert (made.version, made.ephemeral_owner, made.mzxid) == (0, 0, made.czxid)
    assert peer.ask(Get("/a")) == Node(b"one", made)
    second = stat_of(peer.ask(SetData("/a", b"two", 0)))
    assert second.version == 1
    assert second.czxid == made.czxid < second.mzxid
    assert peer.ask(SetData("/a", b"three", 0)) is Failure.BAD_VERSION
    assert peer.ask(Delete("/a", 0)) is Failure.BAD_VERSION
    assert peer.ask(Get("/a")) == Node(b"two", second)
    assert peer.ask(Delete("/a", 1)) == Done()
    assert peer.ask(Exists("/a")) is Failure.NO_NODE


def test_a_node_that_is_made_again_is_another_one(world: World) -> None:
    peer = world.peer()
    peer.connected()
    first = stat_of(peer.ask(Create("/a")))
    peer.ask(Delete("/a"))
    assert stat_of(peer.ask(Create("/a"))).czxid > first.czxid


def test_what_cannot_be_done_says_why(world: World) -> None:
    peer = world.peer()
    peer.connected()
    assert peer.ask(Get("/a")) is Failure.NO_NODE
    assert peer.ask(Children("/a")) is Failure.NO_NODE
    assert peer.ask(SetData("/a", b"", 0)) is Failure.NO_NODE
    assert peer.ask(Delete("/a")) is Failure.NO_NODE
    assert peer.ask(Create("/a/b")) is Failure.NO_NODE
    peer.ask(Create("/a"))
    assert peer.ask(Create("/a")) is Failure.NODE_EXISTS
    peer.ask(Create("/a/b", ephemeral=True))
    assert peer.ask(Delete("/a")) is Failure.NOT_EMPTY
    assert peer.ask(Create("/a/b/c")) is Failure.REFUSED


def test_children_are_named_in_order(world: World) -> None:
    peer = world.peer()
    peer.connected()
    for name in ("", "/2", "/10", "/1"):
        peer.ask(Create(f"/a{name}"))
    assert peer.ask(Children("/a")) == Names(("1", "10", "2"))


def test_answers_come_in_order(world: World) -> None:
    peer = world.peer()
    peer.connected()
    tokens = [peer.begin(Create("/a"))]
    for number in range(20):
        tokens += [peer.begin(SetData("/a", b"%d" % number, number)), peer.begin(Get("/a"))]
        tokens += [peer.begin(request) for request in (Create(f"/a/{number}"), Sync(), Exists("/b"), Multi(()))]
    for token in tokens:
        peer.wait_for(token)
    assert peer.order == tokens
    read = [answer for answer in map(peer.answers.__getitem__, tokens) if isinstance(answer, Node)]
    assert [node.data for node in read] == [b"%d" % number for number in range(20)], "a session sees its own writes"


def test_a_multi_is_done_whole(world: World) -> None:
    peer = world.peer()
    peer.connected()
    peer.ask(Create("/a"))
    many = (Create("/a/x", b"1"), SetData("/a", b"new", 0), Create("/a/y", ephemeral=True), Check("/a/x", 0))
    assert peer.ask(Multi(many)) == Done()
    assert peer.ask(Children("/a")) == Names(("x", "y"))
    node = peer.ask(Get("/a"))
    assert isinstance(node, Node)
    assert (node.data, node.stat.version) == (b"new", 1)


@pytest.mark.parametrize(
    ("last", "failure"),
    [
        (Check("/a", 7), Failure.BAD_VERSION),
        (Create("/a"), Failure.NODE_EXISTS),
        (Delete("/b"), Failure.NO_NODE),
        (SetData("/a", b"", 7), Failure.BAD_VERSION),
    ],
    ids=str,
)
def test_nothing_of_a_multi_is_done_that_fails(world: World, last: object, failure: Failure) -> None:
    peer = world.peer()
    peer.connected()
    peer.ask(Create("/a"))
    assert isinstance(last, Check | Create | Delete | SetData)
    assert peer.ask(Multi((Create("/a/x"), last, Create("/a/z")))) == MultiFailed(1, failure)
    assert peer.ask(Children("/a")) == Names(())


def test_a_watch_tells_once(world: World) -> None:
    one, two = world.peer(), world.peer()
    one.connected(), two.connected()
    one.ask(Create("/a"))
    two.ask(Sync())
    assert isinstance(two.ask(Get("/a", watch=True)), Node)
    one.ask(SetData("/a", b"1", 0))
    one.ask(SetData("/a", b"2", 1))
    assert two.event(WatchFired) == WatchFired("/a", Change.CHANGED)
    two.ask(Sync())
    assert not [event for event in two.events if isinstance(event, WatchFired)]


def test_a_watch_tells_of_making_and_removing(world: World) -> None:
    one, two = world.peer(), world.peer()
    one.connected(), two.connected()
    assert two.ask(Exists("/a", watch=True)) is Failure.NO_NODE
    assert two.ask(Get("/a", watch=True)) is Failure.NO_NODE
    one.ask(Create("/a"))
    assert two.event(WatchFired) == WatchFired("/a", Change.CREATED)
    two.ask(Sync())
    two.ask(Get("/a", watch=True))
    one.ask(Delete("/a"))
    assert two.event(WatchFired) == WatchFired("/a", Change.DELETED)


def test_a_watch_on_children_tells_of_names_alone(world: World) -> None:
    one, two = world.peer(), world.peer()
    one.connected(), two.connected()
    one.ask(Create("/a"))
    one.ask(Create("/a/x"))
    two.ask(Sync())
    assert two.ask(Children("/a", watch=True)) == Names(("x",))
    one.ask(SetData("/a/x", b"1", 0))
    one.ask(SetData("/a", b"1", 0))
    one.ask(Create("/a/y"))
    assert two.event(WatchFired) == WatchFired("/a", Change.CHILDREN)
    two.ask(Sync())
    assert two.ask(Children("/a", watch=True)) == Names(("x", "y"))
    one.ask(Delete("/a/x"))
    assert two.event(WatchFired) == WatchFired("/a", Change.CHILDREN)


def test_what_is_read_behind_a_sync_is_not_old(world: World) -> None:
    one, two = world.peer(), world.peer()
    one.connected(), two.connected()
    one.ask(Create("/a"))
    for version in range(30):
        one.ask(SetData("/a", b"%d" % version, version))
        two.ask(Sync())
        node = two.ask(Get("/a"))
        assert isinstance(node, Node)
        assert node.data == b"%d" % version


def test_an_ephemeral_node_ends_with_its_session(world: World) -> None:
    one, two = world.peer(), world.peer()
    session_id = one.connected()
    two.connected()
    assert stat_of(one.ask(Create("/a", ephemeral=True))).ephemeral_owner == session_id
    two.ask(Sync())
    two.ask(Exists("/a", watch=True))
    one.session.close()
    assert two.event(WatchFired) == WatchFired("/a", Change.DELETED)


def test_a_lost_connection_keeps_the_session_and_drops_its_watches(world: World) -> None:
    one, two = world.peer(), world.peer()
    session_id = one.connected()
    two.connected()
    one.ask(Create("/a", ephemeral=True))
    one.ask(Get("/a", watch=True))
    world.cut(one)
    one.event(Suspended)
    assert one.connected() == session_id
    one.ask(Sync())
    assert stat_of(one.ask(Exists("/a"))).ephemeral_owner == session_id
    two.ask(Sync())
    two.ask(SetData("/a", b"1", 0))
    one.ask(Sync())
    assert not [event for event in one.events if isinstance(event, WatchFired)]


def test_an_answer_that_is_lost_leaves_the_outcome_unknown_until_it_is_read(world: World) -> None:
    peer = world.peer()
    peer.connected()
    peer.ask(Create("/held", b"before"))
    world.steal_answer(peer, "/held")
    token = peer.begin(SetData("/held", b"after", 0))
    assert peer.wait_for(token) is Failure.CONNECTION_LOSS
    peer.event(Suspended)
    peer.connected()
    assert peer.ask(Sync()) == Done()
    node = peer.ask(Get("/held"))
    assert isinstance(node, Node)
    assert (node.data, node.stat.version) == (b"after", 1), "it was done all the same"


def test_what_is_asked_while_suspended_is_not_sent(world: World) -> None:
    peer = world.peer()
    session_id = peer.connected()
    peer.ask(Create("/a"))
    asked: list[int] = []
    tell = peer.event_received

    def happened(event: object) -> None:
        if isinstance(event, Suspended):
            asked.append(peer.begin(SetData("/a", b"lost", 0)))
        tell(event)  # type: ignore[arg-type]

    peer.event_received = happened  # type: ignore[method-assign]
    world.cut(peer)
    peer.event(Suspended)
    assert peer.wait_for(asked[0]) is Failure.CONNECTION_LOSS
    assert peer.connected() == session_id
    peer.ask(Sync())
    node = peer.ask(Get("/a"))
    assert isinstance(node, Node)
    assert node.stat.version == 0


def test_a_session_that_expired_is_followed_by_another(world: World) -> None:
    one, two = world.peer(), world.peer()
    session_id = one.connected()
    two.connected()
    one.ask(Create("/a", ephemeral=True))
    two.ask(Sync())
    two.ask(Exists("/a", watch=True))
    world.expire(one)
    assert two.event(WatchFired) == WatchFired("/a", Change.DELETED)
    one.event(Expired)
    assert one.connected() != session_id
    assert one.ask(Exists("/a")) is Failure.NO_NODE
    assert isinstance(one.ask(Create("/a", ephemeral=True)), Stat)


def test_of_two_who_replace_one_version_one_does(world: World) -> None:
    one, two = world.peer(), world.peer()
    one.connected(), two.connected()
    one.ask(Create("/a"))
    two.ask(Sync())
    for version in range(10):
        tokens = one.begin(SetData("/a", b"one", version)), two.begin(SetData("/a", b"two", version))
        answers = [one.wait_for(tokens[0]), two.wait_for(tokens[1])]
        assert sorted(isinstance(answer, Stat) for answer in answers) == [False, True]
        assert Failure.BAD_VERSION in answers


def test_nodes_that_are_protected_are_changed_by_who_knows_the_password(
    ensemble: ZooKeeperEnsemble, tmp_path: Path
) -> None:
    chroot = chroot_in(ensemble)
    worlds = [RealWorld(ensemble, chroot, Credentials("edge", word)) for word in ("right", "right", "wrong")]
    first, same, other = (world.peer() for world in worlds)
    for peer in (first, same, other):
        peer.connected()
    first.ask(Create("/a", b"mine"))
    assert isinstance(same.ask(SetData("/a", b"still", 0)), Stat)
    other.ask(Sync())
    assert other.ask(SetData("/a", b"theirs", 1)) is Failure.NO_AUTH
    assert other.ask(Get("/a")) is Failure.NO_AUTH
    for world in worlds:
        world.close()


OWNER = Credentials("edge", "right")
OWNERS = (AclEntry("digest", digest_identity(*OWNER)),)


def test_an_acl_is_read_and_replaced_by_its_version(world: World) -> None:
    owner, stranger = world.peer(OWNER), world.peer()
    owner.connected(), stranger.connected()
    assert isinstance(stranger.ask(Create("/a", b"open")), Stat)
    owner.ask(Sync())
    found = owner.ask(GetAcl("/a"))
    assert isinstance(found, Acl)
    assert (found.entries, found.stat.acl_version, found.stat.version) == (EVERYBODY, 0, 0)
    changed = stat_of(owner.ask(SetAcl("/a", OWNERS, 0)))
    assert (changed.acl_version, changed.version, changed.mzxid) == (1, 0, found.stat.mzxid)
    assert owner.ask(GetAcl("/a")) == Acl(OWNERS, changed)
    assert owner.ask(SetAcl("/a", OWNERS, 0)) is Failure.BAD_VERSION
    assert owner.ask(GetAcl("/b")) is Failure.NO_NODE
    assert owner.ask(SetAcl("/b", OWNERS, 0)) is Failure.NO_NODE
    stranger.ask(Sync())
    assert stranger.ask(GetAcl("/a")) is Failure.NO_AUTH
    assert stranger.ask(SetAcl("/a", EVERYBODY, 1)) is Failure.NO_AUTH


def test_the_children_of_a_protected_node_are_its_owner_s(world: World) -> None:
    owner, stranger = world.peer(OWNER), world.peer()
    owner.connected(), stranger.connected()
    for path in ("/a", "/a/leaf"):
        owner.ask(Create(path))
    assert owner.ask(GetAcl("/a/leaf")) == Acl(OWNERS, stat_of(owner.ask(Exists("/a/leaf"))))
    stranger.ask(Sync())
    requests = (Create("/a/b"), Delete("/a/leaf"), SetData("/a", b"", 0), Get("/a"), Exists("/a"), Children("/a"))
    for request in requests:
        assert stranger.ask(request) is Failure.NO_AUTH, request
    assert stranger.ask(Multi((Create("/c"), Check("/a", 0)))) == MultiFailed(1, Failure.NO_AUTH)
    assert stranger.ask(Delete("/a")) is Failure.NOT_EMPTY, "its parent is everybody's, and it has a child"
    assert owner.ask(Delete("/a/leaf")) == Done()
    stranger.ask(Sync())
    assert stranger.ask(Delete("/a")) == Done()


def test_an_acl_fires_no_watch(world: World) -> None:
    owner, other = world.peer(OWNER), world.peer(OWNER)
    owner.connected(), other.connected()
    owner.ask(Create("/a"))
    other.ask(Sync())
    other.ask(Get("/a", watch=True))
    other.ask(Children("/", watch=True))
    owner.ask(SetAcl("/a", OWNERS, 0))
    other.ask(Sync())
    assert not [event for event in other.events if isinstance(event, WatchFired)]


def test_the_timeout_is_the_one_that_the_ensemble_agreed_to(ensemble: ZooKeeperEnsemble) -> None:
    world = RealWorld(ensemble, "", timeout_ms=60_000)
    assert world.peer().event(Connected).timeout_ms == 20 * TICK_MS
    world.close()
