"""A session with a real ensemble, by kazoo: its connections and asynchronous calls, none of its recipes.

kazoo's threads end here: whatever they bring is handed to `deliver`, which brings it to the listener's own thread, and
only there anything of this object changes. kazoo is imported with the first session, never by a broker without one.
kazoo logs through Python's logging tree, which app.py sets up.

| kazoo | here |
|---|---|
| SUSPENDED, LOST | what is unanswered is answered CONNECTION_LOSS, SESSION_EXPIRED; its later answers are dropped |
| a watch that it resets at SUSPENDED | nothing |
| answers that it brings a step later than the others (create, sync) | they keep the order of their requests |
| requests between two connections, which it would keep | CONNECTION_LOSS, not sent |
| one of its threads ends, as by a bug | `replace_dead_client`: as LOST; a new client begins a session |

Does not contain: what is asked, and why. Source: kazoo's API reference.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_broker.cluster.znodes.zookeeper import (
    Acl,
    AclEntry,
    Answer,
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
    WatchFired,
)
from edge_broker.network.log_lines import log_line

if TYPE_CHECKING:
    from kazoo.client import KazooClient

Deliver = Callable[[Callable[[], None]], object]
REPLACE_S = 1.0  # between two clients
RETRY = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_jitter": 0.1, "max_delay": 1.0}


class Credentials(NamedTuple):
    """The user that may change the nodes: ZooKeeper's digest scheme."""

    user: str
    password: str


class _PendingRequest:
    """A request that waits for its turn to be answered."""

    def __init__(self, token: int) -> None:
        self.token = token
        self.answer: Answer | None = None


class KazooSession:
    """As `cluster.zookeeper.ZooKeeper`. `connect` is zookeeper.connect, chroot and all."""

    def __init__(
        self,
        connect: str,
        timeout_ms: int,
        listener: Listener,
        deliver: Deliver,
        credentials: Sequence[Credentials] = (),
        log: Callable[..., None] = log_line,
    ) -> None:
        """Begin a session as all these users; znodes that it creates belong to the first one, or to everybody.

        `log` writes what ZooKeeper refuses, which a client may have asked again and again.
        """
        self._listener, self._deliver, self._log = listener, deliver, log
        self._waiting: deque[_PendingRequest] = deque()
        self._connected = self._closed = False
        self._session_id = 0
        self._watch: Callable[[Any], None] = self._new_watch()
        self._make_client = partial(_client, connect, timeout_ms, credentials)
        self._agreed_ms = timeout_ms
        self._start_client()

    def _start_client(self) -> None:
        self._started_s = time.monotonic()
        client = self._client = self._make_client()
        self._learn_timeout()
        client.add_listener(lambda state: self._state_changed(client, state))
        client.start_async()

    @property
    def client_died(self) -> bool:
        """Whether a thread of kazoo has ended, without which no session begins any more."""
        client = self._client
        threads = [client._connection._connection_routine, *client.handler._workers]
        return not self._closed and any(each is not None and not each.is_alive() for each in threads)

    def replace_dead_client(self) -> None:
        """Begin with a new client where a thread of the former one has ended. Call it repeatedly."""
        if not self.client_died or time.monotonic() < self._started_s + REPLACE_S:
            return
        log_line("error", "zookeeper_client_ended", action="a new client begins a session")
        former = self._client
        self._change(former, "LOST", 0, self._agreed_ms)
        self._start_client()
        self._client.handler.spawn(_end_client, former)

    def close(self) -> None:
        """As ZooKeeper.close; may take seconds: for a worker, or after the loop's end."""
        self._closed = True
        self._client.stop()
        self._client.close()

    @property
    def key(self) -> tuple[int, bytes]:
        """The session's id and password: who has them can go on with it, and close it."""
        return self._client.client_id or (0, b"")

    def _learn_timeout(self) -> None:
        """The ensemble may agree to a shorter timeout than was asked for, and kazoo does not report it."""
        connection = self._client._connection
        invoke = connection._invoke

        def invoke_and_look(timeout: float, request: Any, xid: int | None = None) -> Any:
            answer = invoke(timeout, request, xid)
            if type(request).__name__ == "Connect":
                self._agreed_ms = answer[0].time_out
            return answer

        connection._invoke = invoke_and_look

    # asking

    def ask(self, token: int, request: Request) -> None:
        """As ZooKeeper.ask."""
        if not self._connected:
            failure = Failure.CONNECTION_LOSS if self._session_id else Failure.SESSION_EXPIRED
            self._deliver(partial(self._listener.answer_received, token, failure))
            return
        asked = _PendingRequest(token)
        self._waiting.append(asked)
        result = self._send(request)
        result.rawlink(lambda done: self._deliver(partial(self._request_completed, asked, request, done)))

    def _send(self, request: Request) -> Any:
        client, watch = self._client, self._watch
        if isinstance(request, Create):
            return client.create_async(request.path, request.data, ephemeral=request.ephemeral, include_data=True)
        if isinstance(request, Get):
            return client.get_async(request.path, watch=watch if request.watch else None)
        if isinstance(request, SetData):
            return client.set_async(request.path, request.data, version=request.version)
        if isinstance(request, Delete):
            return client.delete_async(request.path, version=request.version)
        if isinstance(request, Children):
            return client.get_children_async(request.path, watch=watch if request.watch else None)
        if isinstance(request, Exists):
            return client.exists_async(request.path, watch=watch if request.watch else None)
        if isinstance(request, GetAcl):
            return client.get_acls_async(request.path)
        if isinstance(request, SetAcl):
            return client.set_acls_async(request.path, _kazoo_acl(request), version=request.acl_version)
        if isinstance(request, Multi):
            transaction = client.transaction()
            for operation in request.operations:
                _add(transaction, operation)
            return transaction.commit_async()
        return client.sync_async(request.path)

    # what kazoo brings, in the listener's thread

    def _request_completed(self, asked: _PendingRequest, request: Request, done: Any) -> None:
        """Hand on what is answered up to the first request that is not."""
        error = done.exception
        asked.answer = self._answer(request, done.get_nowait()) if error is None else self._failure(error)
        while not self._closed and self._waiting and (answer := self._waiting[0].answer) is not None:
            self._listener.answer_received(self._waiting.popleft().token, answer)

    def _answer(self, request: Request, result: Any) -> Answer:
        """Translate a result; of a Multi, the operation that failed is the one error that is not about another one."""
        for index, each in enumerate(result if isinstance(request, Multi) else ()):
            if isinstance(each, Exception) and type(each).__name__ not in ("RolledBackError", "RuntimeInconsistency"):
                return MultiFailed(index, self._failure(each))
        return _answer(request, result)

    def _failure(self, error: BaseException) -> Failure:
        known = _FAILURES.get(type(error).__name__, Failure.REFUSED)
        if known in (Failure.REFUSED, Failure.NO_AUTH):
            self._log("error", "zookeeper_request_failed", error=repr(error))
        return known

    def _state_changed(self, client: KazooClient, state: str) -> None:
        """In kazoo's thread: order among answers does not matter, as what is unanswered is answered here."""
        session_id, timeout_ms = (client.client_id or (0, b""))[0], self._agreed_ms
        self._deliver(partial(self._change, client, state, session_id, timeout_ms))

    def _change(self, client: KazooClient, state: str, session_id: int, timeout_ms: int) -> None:
        if self._closed or client is not self._client:
            return
        if state == "CONNECTED":
            self._connected, self._session_id = True, session_id
            self._listener.event_received(Connected(session_id, timeout_ms))
            return
        lost = state == "LOST"
        if lost and not self._session_id:
            return  # there was none
        self._answer_all(Failure.SESSION_EXPIRED if lost else Failure.CONNECTION_LOSS)
        self._watch = self._new_watch()
        if self._connected:
            self._connected = False
            self._listener.event_received(Suspended())
        if lost:
            self._session_id = 0
            self._listener.event_received(Expired())

    def _answer_all(self, failure: Failure) -> None:
        waiting, self._waiting = self._waiting, deque()
        for asked in waiting:
            self._listener.answer_received(asked.token, failure)

    def _new_watch(self) -> Callable[[Any], None]:
        """Return the callback of each watch of this connection; once a next one is made it does nothing."""

        def watch_callback(event: Any) -> None:
            self._deliver(partial(self._watch_fired, watch_callback, event))

        return watch_callback

    def _watch_fired(self, told: Callable[[Any], None], event: Any) -> None:
        change = _CHANGES.get(event.type)
        if told is self._watch and change is not None and not self._closed:
            self._listener.event_received(WatchFired(event.path, change))


_CHANGES = {
    "CREATED": Change.CREATED,
    "CHANGED": Change.CHANGED,
    "DELETED": Change.DELETED,
    "CHILD": Change.CHILDREN,
}


def _client(connect: str, timeout_ms: int, credentials: Sequence[Credentials]) -> KazooClient:
    from kazoo.client import KazooClient  # noqa: PLC0415
    from kazoo.security import make_digest_acl  # noqa: PLC0415

    protection = {}
    if credentials:
        protection = {
            "auth_data": [("digest", f"{user}:{password}") for user, password in credentials],
            "default_acl": [make_digest_acl(*credentials[0], all=True)],
        }
    return KazooClient(hosts=connect, timeout=timeout_ms / 1000, connection_retry=RETRY, **protection)


def _end_client(client: KazooClient) -> None:
    """Stop the threads of a client that are left, and end its session; may take seconds."""
    with suppress(Exception):  # it is broken, and nothing waits for it
        client.stop()
        client.close()


def _add(transaction: Any, operation: Operation) -> None:
    if isinstance(operation, Create):
        transaction.create(operation.path, operation.data, ephemeral=operation.ephemeral)
    elif isinstance(operation, SetData):
        transaction.set_data(operation.path, operation.data, version=operation.version)
    elif isinstance(operation, Delete):
        transaction.delete(operation.path, version=operation.version)
    else:
        assert isinstance(operation, Check)
        transaction.check(operation.path, version=operation.version)


def _answer(request: Request, result: Any) -> Answer:
    if isinstance(request, Create):
        return _stat(result[1])
    if isinstance(request, Get):
        return Node(result[0], _stat(result[1]))
    if isinstance(request, SetData | SetAcl):
        return _stat(result)
    if isinstance(request, GetAcl):
        return Acl(tuple(map(_acl_entry, result[0])), _stat(result[1]))
    if isinstance(request, Exists):
        return Failure.NO_NODE if result is None else _stat(result)
    if isinstance(request, Children):
        return Names(tuple(sorted(result)))
    return Done()


def _stat(stat: Any) -> Stat:
    return Stat(stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner, stat.aversion)


def _acl_entry(entry: Any) -> AclEntry:
    return AclEntry(entry.id.scheme, entry.id.id, Permission(entry.perms))


def _kazoo_acl(request: SetAcl) -> list[Any]:
    from kazoo.security import ACL, Id  # noqa: PLC0415 - as the client

    return [ACL(int(entry.permissions), Id(entry.scheme, entry.identity)) for entry in request.entries]


_FAILURES = {
    "NoNodeError": Failure.NO_NODE,
    "NodeExistsError": Failure.NODE_EXISTS,
    "BadVersionError": Failure.BAD_VERSION,
    "NotEmptyError": Failure.NOT_EMPTY,
    "NoAuthError": Failure.NO_AUTH,
    "ConnectionLoss": Failure.CONNECTION_LOSS,
    "ConnectionClosedError": Failure.CONNECTION_LOSS,
    "OperationTimeoutError": Failure.CONNECTION_LOSS,
    "SessionExpiredError": Failure.SESSION_EXPIRED,
    "NoChildrenForEphemeralsError": Failure.REFUSED,
}
