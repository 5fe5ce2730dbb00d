"""What a broker reads of ZooKeeper is the brokers' alone, or it is not believed."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

import pytest

from edge_broker.cluster.controller import NO_CONTROLLER, Controller, ControllerState
from edge_broker.cluster.state.cluster_state import Topic
from edge_broker.cluster.znodes.metadata_image import Image
from edge_broker.cluster.znodes.ownership import Users, digest_identity
from edge_broker.cluster.znodes.trusted_reads import Read, TrustedReads
from edge_broker.cluster.znodes.znode_codec import (
    BROKERS,
    CONTROLLER,
    TOPICS,
    encode_controller,
    encode_topic,
    topic_path,
)
from edge_broker.cluster.znodes.zookeeper import (
    ANY_VERSION,
    EVERYBODY,
    Answer,
    Children,
    Create,
    Delete,
    Done,
    Exists,
    Failure,
    Get,
    GetAcl,
    Names,
    Node,
    Request,
    SetAcl,
    SetData,
    Stat,
    Sync,
    WatchFired,
)
from edge_broker.testing.loop import Loop
from edge_broker.testing.zookeeper import Ensemble

US, EVIL = digest_identity("boards", "now"), digest_identity("boards", "evil")
USERS = Users(US)


class Site:
    """A model ensemble, answered in the order of the requests, and a broker's reads of it."""

    def __init__(self) -> None:
        self.ensemble = Ensemble(Loop(), random.Random(3))
        self.sent: list[Request] = []
        self.refused: dict[str, bool] = {}
        self._waiting: deque[tuple[Request, Callable[[Answer], None]]] = deque()
        self.reads = TrustedReads(
            self.ask,
            USERS,
            lambda path: self.refused.update({path: True}),
            lambda path: self.refused.update({path: False}),
        )

    def ask(self, request: Request, then: Callable[[Answer], None]) -> None:
        self.sent.append(request)
        self._waiting.append((request, then))

    def do(self, request: Request, *by: str) -> Answer:
        if isinstance(request, Get | GetAcl | Children | Exists):
            return self.ensemble.tree.read(request, by)
        return self.ensemble.decide(request, 1, by)

    def answer_one(self) -> None:
        request, then = self._waiting.popleft()
        then(self.do(request, US))

    def answer_all(self) -> None:
        while self._waiting:
            self.answer_one()

    def read(self, request: Read) -> Answer:
        found: list[Answer] = []
        self.sent.clear()
        self.reads.read(request, found.append)
        self.answer_all()
        (answer,) = found
        return answer


@pytest.mark.parametrize("kind", [Get, Exists, Children])
def test_a_foreign_znode_is_not_believed_and_is_named(kind: type[Read]) -> None:
    site = Site()
    site.do(Create("/a", b"ours"), US)
    site.do(Create("/open", b"forged"))
    site.do(Create("/closed", b"forged"), EVIL)
    assert isinstance(site.read(kind("/a")), Node | Stat | Names)
    assert site.read(kind("/open")) is Failure.NO_AUTH
    assert site.read(kind("/closed")) is Failure.NO_AUTH
    assert site.read(kind("/none")) is Failure.NO_NODE
    assert [path for path, refused in site.refused.items() if refused] == ["/open", "/closed"]
    site.do(SetAcl("/open", USERS.acl, ANY_VERSION))
    site.do(Delete("/closed"))
    assert isinstance(site.read(kind("/open")), Node | Stat | Names)
    assert site.read(kind("/closed")) is Failure.NO_NODE
    assert not any(site.refused.values())


def test_a_verified_znode_costs_one_request() -> None:
    site = Site()
    site.do(Create("/a", b"1"), US)
    site.read(Get("/a"))
    assert site.sent == [Get("/a"), GetAcl("/a")]
    site.do(SetData("/a", b"2", ANY_VERSION), US)
    answer = site.read(Get("/a", watch=True))
    assert isinstance(answer, Node)
    assert (answer.data, site.sent) == (b"2", [Get("/a", watch=True)])


def test_a_verified_znode_that_is_opened_or_replaced_is_verified_again() -> None:
    site = Site()
    site.do(Create("/a", b"1"), US)
    site.read(Get("/a"))
    site.do(SetAcl("/a", EVERYBODY, ANY_VERSION), US)
    assert site.read(Get("/a")) is Failure.NO_AUTH
    site.do(SetAcl("/a", USERS.acl, ANY_VERSION), US)
    assert isinstance(site.read(Get("/a")), Node)
    site.do(Delete("/a"), US)
    site.do(Create("/a", b"forged"))
    assert site.read(Get("/a")) is Failure.NO_AUTH


def test_a_znode_that_is_replaced_between_both_requests_is_read_again() -> None:
    site, found = Site(), list[Answer]()
    site.do(Create("/a", b"forged"))
    site.reads.read(Get("/a"), found.append)
    site.answer_one()
    site.do(Delete("/a"))
    site.do(Create("/a", b"ours"), US)
    site.answer_all()
    (answer,) = found
    assert isinstance(answer, Node)
    assert answer.data == b"ours"


def test_answers_keep_their_order() -> None:
    """A znode's first reading comes before what was written behind it."""
    site, order = Site(), list[str]()
    site.do(Create("/a", b"1"), US)
    site.reads.read(Get("/a"), lambda _: order.append("first"))
    site.ask(SetData("/a", b"2", ANY_VERSION), lambda _: order.append("written"))
    site.reads.read(Get("/a"), lambda _: order.append("second"))
    site.answer_all()
    assert order == ["first", "written", "second"]


@pytest.mark.parametrize("at", [0, 1])
def test_a_lost_connection_is_told_once(at: int) -> None:
    asked: list[Callable[[Answer], None]] = []
    found: list[Answer] = []
    reads = TrustedReads(lambda _, then: asked.append(then), USERS, pytest.fail, pytest.fail)
    reads.read(Get("/a"), found.append)
    answers: list[Answer] = [Node(b"", Stat(0, 1, 1, 0))] * at
    for then, answer in zip(asked, [*answers, *[Failure.CONNECTION_LOSS] * (2 - at)], strict=True):
        then(answer)
    assert found == [Failure.CONNECTION_LOSS]


@pytest.mark.parametrize("by", [(), (EVIL,)])
def test_a_foreign_controller_is_not_asked_for_without_end(by: tuple[str, ...]) -> None:
    """Below a shared root a stranger can create it; one that nobody may read was asked for in a loop."""
    site = Site()
    site.do(Create(CONTROLLER, encode_controller(9)), *by)
    controller = Controller(1, lambda request, then: _asked(site, request, then))
    controller.session_connected(5)
    for _ in range(20):
        if site._waiting:
            site.answer_one()
    assert not site._waiting
    assert (controller.state, controller.holder) == (ControllerState.BARRED, NO_CONTROLLER)
    controller.claim_again()
    site.answer_all()
    assert controller.state is ControllerState.BARRED
    site.do(Delete(CONTROLLER))
    controller.claim_again()
    site.answer_all()
    assert controller.holds


def _asked(site: Site, request: Request, then: Callable[[Answer], None]) -> None:
    if isinstance(request, Get | Exists | Children):
        site.reads.read(request, then)
    else:
        site.ask(request, then)


class Seen:
    """Nothing follows from an image here."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def test_a_topic_or_a_root_that_is_foreign_was_not_deleted() -> None:
    site = Site()
    for path in (BROKERS, TOPICS):
        site.do(Create(path), US)
    site.do(Create(topic_path("t"), encode_topic(Topic("AAAAAAAAAAAAAAAAAAAAAA", ((1,),), {}))), US)
    site.do(Create(topic_path("forged"), encode_topic(Topic("BBBBBBBBBBBBBBBBBBBBBB", ((1,),), {}))), US)
    site.do(SetAcl(topic_path("forged"), EVERYBODY, ANY_VERSION), US)
    image = Image(lambda request, then: _asked(site, request, then), Seen())  # type: ignore[arg-type]
    image.begin()
    assert site.sent == [Sync()]
    _, then = site._waiting.popleft()
    then(Done())
    site.answer_all()
    assert list(image.topics) == ["t"]
    site.do(SetAcl(topic_path("t"), EVERYBODY, ANY_VERSION), US)
    image.watch_fired(WatchFired(topic_path("t"), None))  # type: ignore[arg-type]
    site.answer_all()
    site.do(SetAcl(TOPICS, EVERYBODY, ANY_VERSION), US)
    image.watch_fired(WatchFired(TOPICS, None))  # type: ignore[arg-type]
    site.answer_all()
    assert list(image.topics) == ["t"]
    assert not image.deleted
    refused = {path for path, is_refused in site.refused.items() if is_refused}
    assert refused == {topic_path("forged"), topic_path("t"), TOPICS}
