"""An ensemble of ZooKeeper in memory: sessions, versions, watches, servers that lag, connections that break.

Time is a `Loop`'s, chance a seed's. The leader has the tree; every other server applies the leader's changes in order,
some time later. A session is bound to one server: it reads what that server has applied.

| what happens | how it is modelled |
|---|---|
| a stale read | `Server.lag_ms`: how late a server applies a change, at most |
| an unknown outcome | the request arrives (or not) after the client gave the connection up: it is applied, late |
| late requests end | a session that connects again leaves its connection: what comes by that one is not done |
| a server that lost its leader | `Server.cut`: it serves old reads, holds writes, tells no leader that sessions live |
| expiry | the leader heard nothing of a session for its timeout: its ephemerals go by one change |
| one-way loss | `Links.up`, `Links.down`: what a connection carries that way is gone, and all after it |
| ACLs | of `world` and `digest`; identities are those of `client`, without a log-in |

Does not contain: what is decided. Source: ZooKeeper's Programmer's Guide and Internals.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from edge_broker.cluster.znodes.zookeeper import (
    ANY_VERSION,
    EVERYBODY,
    Acl,
    AclEntries,
    AclEntry,
    Answer,
    Change,
    Check,
    Children,
    Connected,
    Create,
    Delete,
    Done,
    Event,
    Exists,
    Expired,
    Failure,
    Get,
    GetAcl,
    Listener,
    Multi,
    MultiFailed,
    Names,
    Node,
    Operation,
    Permission,
    Request,
    SetAcl,
    SetData,
    Stat,
    Suspended,
    Sync,
    WatchFired,
)
from edge_broker.testing.loop import Loop

Write = Create | SetData | Delete | SetAcl | Multi
Read = Get | Children | Exists | GetAcl
Identities = tuple[str, ...]  # of digests; nodes that a session makes belong to the first one
Run = Callable[[Callable[[], None]], None]
EXPIRY_LOOK_MS = 100.0
RECONNECT_MS = 60.0


class Znode:
    """One node of a tree."""

    __slots__ = ("acl", "children", "data", "stat")

    def __init__(self, data: bytes, stat: Stat, acl: AclEntries) -> None:
        self.data, self.stat, self.acl = data, stat, acl
        self.children: set[str] = set()

    def copy(self) -> Znode:
        """The same node for another tree."""
        other = Znode(self.data, self.stat, self.acl)
        other.children = set(self.children)
        return other


class Put(NamedTuple):
    """A change of a tree: a node is there with this content."""

    path: str
    data: bytes
    stat: Stat
    acl: AclEntries = EVERYBODY


class NodeDeleted(NamedTuple):
    """A change of a tree: a node is not there any more."""

    path: str


Step = Put | NodeDeleted


def at_once(call: Callable[[], None]) -> None:
    """How a process runs that nothing ever stops."""
    call()


def parent_of(path: str) -> str:
    """The path without its last name."""
    return path.rpartition("/")[0] or "/"


def name_of(path: str) -> str:
    """The last name of a path."""
    return path.rpartition("/")[2]


_NEEDED: dict[type[Operation | SetAcl | Read], Permission] = {
    SetData: Permission.WRITE,
    Check: Permission.READ,
    Delete: Permission.DELETE,  # of the parent
    SetAcl: Permission.ADMIN,
    Get: Permission.READ,
    Exists: Permission.READ,  # as of ZooKeeper 3.8
    Children: Permission.READ,
    GetAcl: Permission.READ | Permission.ADMIN,
}


def may(acl: AclEntries, identities: Identities, permission: Permission) -> bool:
    """Return whether a session with these identities has any of these permissions."""
    return any(
        entry.permissions & permission
        for entry in acl
        if entry.scheme == "world" or (entry.scheme == "digest" and entry.identity in identities)
    )


class Tree:
    """Nodes by their path."""

    def __init__(self) -> None:
        self.nodes: dict[str, Znode] = {"/": Znode(b"", Stat(0, 0, 0, 0), EVERYBODY)}

    def plan(
        self, operation: Operation | SetAcl, zxid: int, session_id: int, identities: Identities = ()
    ) -> Step | Failure | None:
        """Return the change of an operation, not applied yet; None: no change."""
        node = self.nodes.get(operation.path)
        if isinstance(operation, Create):
            return self._create(operation, zxid, session_id, identities)
        if node is None:
            return Failure.NO_NODE
        at = self.nodes[parent_of(operation.path)] if isinstance(operation, Delete) else node
        if not may(at.acl, identities, _NEEDED[type(operation)]):
            return Failure.NO_AUTH
        if isinstance(operation, SetAcl):
            if operation.acl_version not in (ANY_VERSION, node.stat.acl_version):
                return Failure.BAD_VERSION
            stat = node.stat._replace(acl_version=node.stat.acl_version + 1)
            return Put(operation.path, node.data, stat, operation.entries)
        if operation.version not in (ANY_VERSION, node.stat.version):
            return Failure.BAD_VERSION
        if isinstance(operation, SetData):
            stat = node.stat._replace(version=node.stat.version + 1, mzxid=zxid)
            return Put(operation.path, operation.data, stat, node.acl)
        if isinstance(operation, Check):
            return None
        return Failure.NOT_EMPTY if node.children else NodeDeleted(operation.path)

    def _create(self, operation: Create, zxid: int, session_id: int, identities: Identities) -> Step | Failure:
        parent = self.nodes.get(parent_of(operation.path))
        if parent is None:
            return Failure.NO_NODE
        if not may(parent.acl, identities, Permission.CREATE):
            return Failure.NO_AUTH
        if operation.path in self.nodes:
            return Failure.NODE_EXISTS
        if parent.stat.ephemeral_owner:
            return Failure.REFUSED  # no children below ephemeral nodes
        stat = Stat(0, zxid, zxid, session_id if operation.ephemeral else 0)
        acl = (AclEntry("digest", identities[0]),) if identities else EVERYBODY
        return Put(operation.path, operation.data, stat, acl)

    def apply(self, step: Step) -> Znode | None:
        """Change; the node that was there before."""
        before = self.nodes.get(step.path)
        if isinstance(step, NodeDeleted):
            del self.nodes[step.path]
            self.nodes[parent_of(step.path)].children.discard(name_of(step.path))
        elif before is None:
            self.nodes[step.path] = Znode(step.data, step.stat, step.acl)
            self.nodes[parent_of(step.path)].children.add(name_of(step.path))
        else:
            self.nodes[step.path] = node = Znode(step.data, step.stat, step.acl)
            node.children = before.children
        return before

    def read(self, request: Read, identities: Identities = ()) -> Answer:
        """Answer a read."""
        node = self.nodes.get(request.path)
        if node is None:
            return Failure.NO_NODE
        if not may(node.acl, identities, _NEEDED[type(request)]):
            return Failure.NO_AUTH
        if isinstance(request, GetAcl):
            return Acl(node.acl, node.stat)
        if isinstance(request, Get):
            return Node(node.data, node.stat)
        if isinstance(request, Children):
            return Names(tuple(sorted(node.children)))
        return node.stat


class Session:
    """The leader's knowledge of a session."""

    __slots__ = ("connection", "heard_ms", "session_id", "timeout_ms")

    def __init__(self, session_id: int, timeout_ms: int, connection: Connection, now_ms: float) -> None:
        self.session_id, self.timeout_ms = session_id, timeout_ms
        self.connection, self.heard_ms = connection, now_ms


class Server:
    """One of the ensemble: a tree that follows the leader's, and the watches of who is connected to it."""

    def __init__(self, ensemble: Ensemble, number: int) -> None:
        self.ensemble, self.number = ensemble, number
        self.tree = Tree()
        self.applied = 0  # changes of the ensemble's
        self.lag_ms = 5.0
        self.cut = False  # from the leader
        self.cut_since_ms = 0.0
        self.data_watches: dict[str, set[Connection]] = {}
        self.child_watches: dict[str, set[Connection]] = {}
        self.connections: set[Connection] = set()
        self.waiting: list[tuple[int, Callable[[], None]]] = []  # for so many changes to be applied
        self._scheduled = False

    def follow(self) -> None:
        """Apply what is new, a while later."""
        if not self._scheduled and self.applied < len(self.ensemble.changes) and not self.cut:
            self._scheduled = True
            self.ensemble.later(self.ensemble.dice.random() * self.lag_ms, self._step)

    def _step(self) -> None:
        self._scheduled = False
        if not self.cut:
            some = self.ensemble.dice.randint(1, 4)
            self.catch_up(min(self.applied + some, len(self.ensemble.changes)))
        self.follow()

    def catch_up(self, end: int) -> None:
        """Apply all changes before `end`."""
        while self.applied < end:
            steps = self.ensemble.changes[self.applied]
            self.applied += 1
            for step in steps:
                before = self.tree.apply(step)
                self._fire(step, before)
        ready = [call for need, call in self.waiting if need <= self.applied]
        self.waiting = [(need, call) for need, call in self.waiting if need > self.applied]
        for call in ready:
            call()

    def _fire(self, step: Step, before: Znode | None) -> None:
        if isinstance(step, NodeDeleted):
            self._notify_watches(self.data_watches, step.path, Change.DELETED)
            self._notify_watches(self.child_watches, step.path, Change.DELETED)
        elif before is None or before.stat.acl_version == step.stat.acl_version:  # an ACL alone fires no watch
            self._notify_watches(self.data_watches, step.path, Change.CREATED if before is None else Change.CHANGED)
        if isinstance(step, NodeDeleted) or before is None:
            self._notify_watches(self.child_watches, parent_of(step.path), Change.CHILDREN)

    def _notify_watches(self, watches: dict[str, set[Connection]], path: str, change: Change) -> None:
        for connection in sorted(watches.pop(path, ()), key=lambda each: each.number):
            connection.send_down(partial(Client.watch_fired, event=WatchFired(path, change)))

    def watch(self, request: Read, answer: Answer, connection: Connection) -> None:
        """Note a watch that a read has asked for."""
        if isinstance(request, GetAcl):
            return
        if request.watch and (isinstance(request, Exists) or not isinstance(answer, Failure)):
            watches = self.child_watches if isinstance(request, Children) else self.data_watches
            watches.setdefault(request.path, set()).add(connection)

    def forget(self, connection: Connection) -> None:
        """A connection has ended."""
        self.connections.discard(connection)
        for watches in (self.data_watches, self.child_watches):
            for listening in watches.values():
                listening.discard(connection)

    def drop_connections(self) -> None:
        """Close them all."""
        for connection in sorted(self.connections, key=lambda each: each.number):
            connection.close()

    def when_applied(self, need: int, call: Callable[[], None]) -> None:
        """Call once so many changes are applied here."""
        if self.applied >= need:
            call()
        else:
            self.waiting.append((need, call))
            self.follow()


class Links(Protocol):
    """The network between a client and the servers."""

    def up(self, server: int) -> bool:
        """Whether what the client sends arrives now."""

    def down(self, server: int) -> bool:
        """Whether what the server sends arrives now."""

    def delay_ms(self) -> float:
        """How long one message takes."""


class GoodLinks:
    """A network that only takes its time."""

    def __init__(self, dice: random.Random, delay_ms: float = 1.0) -> None:
        self._dice, self._delay_ms = dice, delay_ms

    def up(self, server: int) -> bool:
        """All arrives."""
        return True

    def down(self, server: int) -> bool:
        """All arrives."""
        return True

    def delay_ms(self) -> float:
        """Up to `delay_ms`."""
        return self._dice.random() * self._delay_ms


class Connection:
    """A client's connection to one server: what is sent each way arrives in order, or breaks it that way for good."""

    def __init__(self, client: Client, server: Server, number: int) -> None:
        self.client, self.server, self.number = client, server, number
        self.session: Session | None = None
        self.up_broken = self.down_broken = False
        self.open = True  # the server's view
        self._up_due_ms = self._down_due_ms = 0.0
        self._up: deque[Callable[[], None]] = deque()  # in progress, in order
        self._down: deque[Callable[[Client], None]] = deque()
        self._queue: deque[tuple[int, Request]] = deque()  # of requests that the server has, one in progress
        self._busy = False

    # the wire

    def send_up(self, call: Callable[[], None]) -> None:
        """From the client to the server."""
        ensemble = self.server.ensemble
        self._up_due_ms = max(self._up_due_ms, ensemble.now_ms + self.client.links.delay_ms())
        self._up.append(call)
        ensemble.at(self._up_due_ms, self._arrive_up)

    def _arrive_up(self) -> None:
        call = self._up.popleft()
        self.up_broken |= not self.client.links.up(self.server.number)
        if not self.up_broken and self.open:
            call()

    def send_down(self, call: Callable[[Client], None]) -> None:
        """From the server to the client, which ignores what comes by a connection that it has given up."""
        ensemble = self.server.ensemble
        self._down_due_ms = max(self._down_due_ms, ensemble.now_ms + self.client.links.delay_ms())
        self._down.append(call)
        ensemble.at(self._down_due_ms, self._arrive_down)

    def _arrive_down(self) -> None:
        call = self._down.popleft()
        self.down_broken |= not self.client.links.down(self.server.number)
        if not self.down_broken:
            self.client.run(lambda: self.client.message_received(self, call))

    def close(self) -> None:
        """The server ends it; the client learns of it if it hears anything."""
        if self.open:
            self.open = False
            self.server.forget(self)
            self.send_down(Client.connection_lost)

    # what the server does

    def ping(self) -> None:
        """The client lives; the leader learns of it."""
        self._touch()
        self.send_down(lambda to: None)

    def _touch(self) -> None:
        session, server = self.session, self.server
        if session is not None and not server.cut and session.connection is self:
            session.heard_ms = server.ensemble.now_ms

    def receive(self, token: int, request: Request) -> None:
        """Work on a request when its turn comes."""
        self._touch()
        self._queue.append((token, request))
        self._work()

    def _work(self) -> None:
        while self._queue and not self._busy:
            token, request = self._queue.popleft()
            self._busy = True
            if isinstance(request, Get | Children | Exists | GetAcl):
                answer = self.server.tree.read(request, self.client.identities)
                self.server.watch(request, answer, self)
                self._answer(token, answer)
            else:
                self.server.ensemble.forward(self, token, request)

    def _answer(self, token: int, answer: Answer) -> None:
        zxid = self.server.applied
        self.send_down(lambda to: to.answer_received(token, answer, zxid))
        self._busy = False

    def request_committed(self, token: int, answer: Answer, end: int) -> None:
        """The leader has decided; the answer goes out once this server has applied it."""

        def done() -> None:
            self._answer(token, answer)
            self._work()

        self.server.when_applied(end, done)


class Ensemble:
    """The leader's tree and sessions, and the servers that follow."""

    def __init__(self, loop: Loop, dice: random.Random, servers: int = 3) -> None:
        self.loop, self.dice = loop, dice
        self.tree = Tree()
        self.changes: list[tuple[Step, ...]] = []
        self.sessions: dict[int, Session] = {}
        self.servers = [Server(self, number) for number in range(servers)]
        self.forward_ms = 2.0  # from a server to the leader and its disks, at most
        self.sync_limit_ms = 4000.0  # so long a server without a leader keeps its clients
        self._count = 0
        self.later(EXPIRY_LOOK_MS, self._expire_silent)

    # time

    @property
    def now_ms(self) -> float:
        """Of the loop."""
        return self.loop.time() * 1000

    def later(self, delay_ms: float, call: Callable[[], None]) -> None:
        """Call after so much time."""
        self.loop.call_later(delay_ms / 1000, call)

    def at(self, due_ms: float, call: Callable[[], None]) -> None:
        """Call at a time."""
        self.later(max(0.0, due_ms - self.now_ms), call)

    def number(self) -> int:
        """One that was not given before."""
        self._count += 1
        return self._count

    # what the leader does

    def commit(self, steps: tuple[Step, ...]) -> None:
        """Make a change; servers follow."""
        for step in steps:
            self.tree.apply(step)
        self.changes.append(steps)
        for server in self.servers:
            server.follow()

    def forward(self, connection: Connection, token: int, request: Write | Sync) -> None:
        """Bring a request to the leader, if the server has one; else its client waits."""

        def decide() -> None:
            if connection.server.cut:
                return
            session = connection.session
            if session is None or session.connection is not connection or session.session_id not in self.sessions:
                connection.close()  # it was moved or has expired: not done
                return
            answer = self.decide(request, session.session_id, connection.client.identities)
            connection.request_committed(token, answer, len(self.changes))

        self.later(self.dice.random() * self.forward_ms, decide)

    def decide(self, request: Write | Sync, session_id: int, identities: Identities = ()) -> Answer:
        """Do a write or nothing of it."""
        if isinstance(request, Sync):
            return Done()
        zxid = len(self.changes) + 1
        if isinstance(request, Multi):
            return self._multi(request, zxid, session_id, identities)
        step = self.tree.plan(request, zxid, session_id, identities)
        if isinstance(step, Failure):
            return step
        assert step is not None
        self.commit((step,))
        return step.stat if isinstance(step, Put) else Done()

    def _multi(self, request: Multi, zxid: int, session_id: int, identities: Identities) -> Answer:
        trial = Tree()
        trial.nodes = {path: node.copy() for path, node in self.tree.nodes.items()}
        steps: list[Step] = []
        for index, operation in enumerate(request.operations):
            step = trial.plan(operation, zxid, session_id, identities)
            if isinstance(step, Failure):
                return MultiFailed(index, step)
            if step is not None:
                trial.apply(step)
                steps.append(step)
        self.commit(tuple(steps))
        return Done()

    def open_session(self, connection: Connection, timeout_ms: int, session_id: int) -> Session | None:
        """A new session, or an old one that moves to this connection; None: it has expired."""
        if not session_id:
            session = Session(self.number() + (connection.client.number << 20), timeout_ms, connection, self.now_ms)
            self.sessions[session.session_id] = session
            return session
        found = self.sessions.get(session_id)
        if found is not None:
            before, found.connection, found.heard_ms = found.connection, connection, self.now_ms
            before.close()
        return found

    def expire(self, session_id: int) -> None:
        """End a session: its ephemeral nodes go by one change."""
        session = self.sessions.pop(session_id, None)
        if session is None:
            return
        paths = [path for path, node in self.tree.nodes.items() if node.stat.ephemeral_owner == session_id]
        if paths:
            self.commit(tuple(NodeDeleted(path) for path in sorted(paths)))
        session.connection.close()

    def _expire_silent(self) -> None:
        for session in list(self.sessions.values()):
            if self.now_ms - session.heard_ms > session.timeout_ms:
                self.expire(session.session_id)
        for server in self.servers:
            if server.cut and self.now_ms - server.cut_since_ms > self.sync_limit_ms:
                server.drop_connections()
        self.later(EXPIRY_LOOK_MS, self._expire_silent)

    def copy(self) -> tuple[dict[str, Znode], int]:
        """Return a copy of the data as a backup has it, and how many changes it has."""
        nodes = {path: node.copy() for path, node in self.tree.nodes.items() if not node.stat.ephemeral_owner}
        return nodes, len(self.changes)

    def set_back(self, copy: tuple[dict[str, Znode], int], jump: int) -> None:
        """All servers stop, and start with this copy: no session is left, and a new epoch begins.

        Its zxids go on `jump` after those of the copy: small jumps repeat zxids of what is lost.
        """
        nodes, changes = copy
        clients = [session.connection.client for session in self.sessions.values()]
        connections = [each for server in self.servers for each in server.connections]
        self.sessions.clear()
        for connection in sorted(connections, key=lambda each: each.number):
            connection.close()
        self.tree.nodes = {path: node.copy() for path, node in nodes.items()}
        self.changes[:] = [()] * (changes + jump)
        for server in self.servers:
            server.tree.nodes = {path: node.copy() for path, node in nodes.items()}
            server.applied, server.waiting = len(self.changes), []
        for client in clients:
            client.seen = 0  # a zxid of the new epoch is greater than any of before

    def cut(self, number: int) -> None:
        """A server loses the leader."""
        server = self.servers[number]
        server.cut, server.cut_since_ms = True, self.now_ms

    def mend(self, number: int) -> None:
        """It finds one again, and starts again: it keeps no connection, and its requests are not done."""
        server = self.servers[number]
        if server.cut:
            server.cut = False
            server.drop_connections()
            server.follow()

    def client(
        self,
        listener: Listener,
        timeout_ms: int,
        links: Links,
        run: Run | None = None,
        identities: Identities = (),
    ) -> Client:
        """Begin a session. `run` is where the client's own work is done: now, later, or never (its process is dead)."""
        return Client(self, listener, timeout_ms, links, run or at_once, identities)


class Client:
    """A process' end of a session, as kazoo is: connects again by itself, and begins a new session when one ended."""

    def __init__(
        self,
        ensemble: Ensemble,
        listener: Listener,
        timeout_ms: int,
        links: Links,
        run: Run,
        identities: Identities = (),
    ) -> None:
        self.identities = identities
        self.ensemble, self.listener, self.timeout_ms = ensemble, listener, timeout_ms
        self.links, self.run = links, run
        self.number = ensemble.number()
        self.connection: Connection | None = None
        self.session_id = 0
        self.connected = False
        self.closed = False
        self.seen = 0  # changes of the ensemble, as this session knows
        self._pending: deque[int] = deque()
        self._heard_ms = ensemble.now_ms
        self._fresh = True  # no session, or none that was told of
        self._soon(0.0, self._connect)
        self._soon(timeout_ms / 6, self._beat)

    def _soon(self, delay_ms: float, call: Callable[[], None]) -> None:
        self.ensemble.later(delay_ms, lambda: self.run(lambda: None if self.closed else call()))

    # connecting

    def _connect(self) -> None:
        if self.connection is not None:
            return
        number = self.ensemble.dice.randrange(len(self.ensemble.servers))
        server = self.ensemble.servers[number]
        connection = Connection(self, server, self.ensemble.number())
        self.connection, self._heard_ms = connection, self.ensemble.now_ms
        session_id, seen = self.session_id, self.seen
        connection.send_up(lambda: self._accept(connection, session_id, seen))

    def _accept(self, connection: Connection, session_id: int, seen: int) -> None:
        """At the server: it takes no client that has seen more than it has, and none while it has no leader."""
        server = connection.server
        if server.cut or server.applied < seen:
            connection.close()
            return
        server.connections.add(connection)

        def session_decided() -> None:
            if server.cut or not connection.open:
                connection.close()
                return
            session = self.ensemble.open_session(connection, self.timeout_ms, session_id)
            connection.session = session
            found = session.session_id if session is not None else 0
            connection.send_down(lambda to: to.session_accepted(found))
            if session is None:
                connection.close()

        self.ensemble.later(self.ensemble.dice.random() * self.ensemble.forward_ms, session_decided)

    def session_accepted(self, session_id: int) -> None:
        """The server has taken the session, or says (0) that it has expired."""
        if session_id:
            self.session_id, self.connected = session_id, True
            self._report_event(Connected(session_id, self.timeout_ms))
        else:
            self.session_id, self.seen = 0, 0
            self.connection = None
            self._report_event(Expired())
            self._soon(RECONNECT_MS * self.ensemble.dice.random(), self._connect)

    def connection_lost(self) -> None:
        """The connection is given up: what is pending has an unknown outcome."""
        if self.connection is None:
            return
        gone, self.connection = self.connection, None
        # the server learns of it by and by: what is on its way still arrives
        self.ensemble.later(self.links.delay_ms() * 3, gone.close)
        for token in list(self._pending):
            self.listener.answer_received(token, Failure.CONNECTION_LOSS)
        self._pending.clear()
        if self.connected:
            self.connected = False
            self._report_event(Suspended())
        self._soon(RECONNECT_MS * self.ensemble.dice.random(), self._connect)

    def _beat(self) -> None:
        """Ping; give up a connection from which nothing came for two thirds of the timeout."""
        if self.connection is not None:
            if self.ensemble.now_ms - self._heard_ms > self.timeout_ms * 2 / 3:
                self.connection_lost()
            else:
                self.connection.send_up(self.connection.ping)
        self._soon(self.timeout_ms / 6, self._beat)

    # asking

    def ask(self, token: int, request: Request) -> None:
        """As ZooKeeper.ask."""
        connection = self.connection
        if connection is None or not self.connected:
            failure = Failure.CONNECTION_LOSS if self.session_id else Failure.SESSION_EXPIRED
            self._soon(0.0, lambda: self.listener.answer_received(token, failure))
            return
        self._pending.append(token)
        connection.send_up(lambda: connection.receive(token, request))

    def close(self) -> None:
        """As ZooKeeper.close."""
        self.closed = True
        connection, session_id = self.connection, self.session_id
        if connection is not None:
            connection.send_up(lambda: self.ensemble.expire(session_id))

    def message_received(self, connection: Connection, call: Callable[[Client], None]) -> None:
        """Something came; what comes by another connection than that of now is ignored."""
        if connection is self.connection and not self.closed:
            self._heard_ms = self.ensemble.now_ms
            call(self)

    def answer_received(self, token: int, answer: Answer, seen: int) -> None:
        """The server's answer."""
        self.seen = max(self.seen, seen)
        assert self._pending[0] == token
        self._pending.popleft()
        self.listener.answer_received(token, answer)

    def watch_fired(self, event: WatchFired) -> None:
        """A watch of this connection has fired."""
        self._report_event(event)

    def _report_event(self, event: Event) -> None:
        self.listener.event_received(event)
