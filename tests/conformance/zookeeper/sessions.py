"""Two worlds to hold the interface against: the model under virtual time, and a real ensemble by kazoo.

A `Peer` asks and waits: in the model by letting time pass, for the real ones by a condition with a deadline.
"""

from __future__ import annotations

import queue
import random
from collections.abc import Callable
from itertools import count
from typing import Protocol, TypeVar

from edge_broker.cluster.znodes.ownership import digest_identity
from edge_broker.cluster.znodes.zookeeper import Answer, Connected, Event, Request, ZooKeeper
from edge_broker.network.cluster.zookeeper_client import Credentials, KazooSession
from edge_broker.testing.loop import Loop
from edge_broker.testing.zookeeper import Client, Ensemble, GoodLinks
from tests.support.proxy import TcpProxy
from tests.support.waiting import Deadline
from tests.support.zookeeper import ZooKeeperEnsemble

TIMEOUT_MS = 2000
WAIT_S = 20.0
T = TypeVar("T")


class Peer:
    """One session, or the next one when it ended."""

    session: ZooKeeper

    def __init__(self, pump: Callable[[], None]) -> None:
        self._pump = pump
        self._tokens = count(1)
        self.answers: dict[int, Answer] = {}
        self.order: list[int] = []
        self.events: list[Event] = []

    def answer_received(self, token: int, answer: Answer) -> None:
        assert token not in self.answers, "answered twice"
        self.answers[token] = answer
        self.order.append(token)

    def event_received(self, event: Event) -> None:
        self.events.append(event)

    def begin(self, request: Request) -> int:
        token = next(self._tokens)
        self.session.ask(token, request)
        return token

    def ask(self, request: Request) -> Answer:
        return self.wait_for(self.begin(request))

    def wait_for(self, token: int) -> Answer:
        self.until(lambda: token in self.answers, f"request {token} is answered")
        return self.answers[token]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = Deadline(WAIT_S)
        while not condition():
            deadline.check(what, self.events)
            self._pump()

    def event(self, kind: type[T]) -> T:
        """The next event of a kind that comes, or came since the last one that was taken."""
        self.until(lambda: any(isinstance(each, kind) for each in self.events), f"{kind.__name__} happens")
        while True:
            event = self.events.pop(0)
            if isinstance(event, kind):
                return event

    def connected(self) -> int:
        return self.event(Connected).session_id


class World(Protocol):
    """Where sessions are begun."""

    def peer(self, credentials: Credentials | None = None) -> Peer: ...

    def cut(self, peer: Peer) -> None:
        """The peer's connection is lost; it connects again."""

    def steal_answer(self, peer: Peer, path: str) -> None:
        """What the peer sends of this path arrives; nothing comes back by that connection, which is lost."""

    def expire(self, peer: Peer) -> None:
        """The peer's session ends, as the ensemble decides."""

    def close(self) -> None: ...


class _ModelLinks(GoodLinks):
    held = False

    def down(self, server: int) -> bool:
        return not self.held


class ModelWorld:
    """The model: nothing happens but in `_pump`."""

    def __init__(self) -> None:
        self.loop, self.dice = Loop(), random.Random(7)
        self.ensemble = Ensemble(self.loop, self.dice)

    def _pump(self) -> None:
        self.loop.advance(10)

    def peer(self, credentials: Credentials | None = None) -> Peer:
        peer = Peer(self._pump)
        identities = () if credentials is None else (digest_identity(*credentials),)
        peer.session = self.ensemble.client(peer, TIMEOUT_MS, _ModelLinks(self.dice), identities=identities)
        return peer

    def _client(self, peer: Peer) -> Client:
        assert isinstance(peer.session, Client)
        return peer.session

    def cut(self, peer: Peer) -> None:
        connection = self._client(peer).connection
        assert connection is not None
        connection.close()

    def steal_answer(self, peer: Peer, path: str) -> None:
        client = self._client(peer)
        assert isinstance(client.links, _ModelLinks)
        links = client.links
        links.held = True
        self.ensemble.later(TIMEOUT_MS, lambda: setattr(links, "held", False))

    def expire(self, peer: Peer) -> None:
        self.ensemble.expire(self._client(peer).session_id)

    def close(self) -> None:
        pass


class _Thief:
    """Drops a connection at the first bytes that come back once those that name a path went up."""

    def __init__(self) -> None:
        self.path = b""

    def __call__(self) -> _Watched:
        return _Watched(self)


class _Watched:
    def __init__(self, thief: _Thief) -> None:
        self._thief, self._doomed = thief, False

    def upstream(self, data: bytes) -> bytes | None:
        if self._thief.path and self._thief.path in data:
            self._doomed, self._thief.path = True, b""
        return data

    def downstream(self, data: bytes) -> bytes | None:
        return None if self._doomed else data


class RealWorld:
    """A real ensemble, each session through a proxy of its own; what kazoo brings waits for `_pump`."""

    def __init__(
        self,
        ensemble: ZooKeeperEnsemble,
        chroot: str,
        credentials: Credentials | None = None,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        self._timeout_ms = timeout_ms
        self._ensemble, self._chroot, self._credentials = ensemble, chroot, credentials
        self._peers: list[tuple[Peer, KazooSession, TcpProxy]] = []
        self._thieves: dict[int, _Thief] = {}

    def peer(self, credentials: Credentials | None = None) -> Peer:
        arrived: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

        def pump() -> None:
            try:
                arrived.get(timeout=0.05)()
            except queue.Empty:
                return

        server = self._ensemble.servers[len(self._peers) % len(self._ensemble.servers)]
        thief = _Thief()
        proxy = TcpProxy(server.bootstrap, make_filter=thief).start()
        peer = Peer(pump)
        self._thieves[id(peer)] = thief
        session = KazooSession(
            f"{proxy.bootstrap}{self._chroot}",
            self._timeout_ms,
            peer,
            arrived.put,
            [each for each in (credentials or self._credentials,) if each is not None],
        )
        peer.session = session
        self._peers.append((peer, session, proxy))
        return peer

    def _of(self, peer: Peer) -> tuple[KazooSession, TcpProxy]:
        return next((session, proxy) for each, session, proxy in self._peers if each is peer)

    def cut(self, peer: Peer) -> None:
        self._of(peer)[1].drop_connections()

    def steal_answer(self, peer: Peer, path: str) -> None:
        self._thieves[id(peer)].path = path.encode()

    def expire(self, peer: Peer) -> None:
        """By connecting under its id and closing that: kazoo's own tests do so."""
        from kazoo.client import KazooClient

        client_id = self._of(peer)[0]._client.client_id
        thief = KazooClient(hosts=self._ensemble.connect, client_id=client_id, timeout=TIMEOUT_MS / 1000)
        thief.start()
        thief.stop()
        thief.close()

    def close(self) -> None:
        for _, session, proxy in self._peers:
            session.close()
            proxy.stop()
