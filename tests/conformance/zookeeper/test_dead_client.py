"""A thread of kazoo ends for real: the session is followed by another, and nothing that waits is left unanswered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edge_broker.cluster.znodes.zookeeper import Connected, Create, Exists, Expired, Failure, Stat, Sync, WatchFired
from edge_broker.network.cluster.zookeeper_client import KazooSession
from tests.conformance.zookeeper.sessions import Peer, RealWorld
from tests.support.board_cluster import BoardCluster
from tests.support.waiting import wait_until
from tests.support.zookeeper import ZooKeeperEnsemble


class KilledError(BaseException):
    """Raised in a thread; not an Exception, so that kazoo's own loops do not survive it."""


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("dead-client")) as ensemble:
        yield ensemble


@pytest.fixture(autouse=True)
def _killed_threads_are_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)


def killed(*_: object) -> Any:
    raise KilledError


def kill_the_connection(client: Any) -> None:
    """Raise where the thread of the connection reads the next answer, a ping's at the latest."""
    client._connection._read_socket = killed


def kill_the_completions(client: Any) -> None:
    """Raise in the thread that brings answers, while the connection lives on."""
    client.handler.completion_queue.put(killed)


def kill_the_callbacks(client: Any) -> None:
    """Raise in the thread that brings watches and states."""
    client.handler.callback_queue.put(killed)


WAYS = [kill_the_connection, kill_the_completions, kill_the_callbacks]


def session_of(peer: Peer) -> KazooSession:
    assert isinstance(peer.session, KazooSession)
    return peer.session


@pytest.mark.parametrize("kill", WAYS)
def test_a_dead_client_is_replaced(ensemble: ZooKeeperEnsemble, kill: Callable[[Any], None]) -> None:
    world = RealWorld(ensemble, "")
    peer, other = world.peer(), world.peer()
    before = peer.connected()
    other.connected()
    path = f"/{kill.__name__}"
    assert isinstance(peer.ask(Create(path, ephemeral=True)), Stat)
    session = session_of(peer)
    assert not session.client_died
    session.replace_dead_client()
    assert peer.events == [], "one that lives stays"
    kill(session._client)
    asked = peer.begin(Sync())
    wait_until(lambda: session.client_died, 20, "the thread has ended")
    replace_after_a_while(peer)
    assert peer.wait_for(asked) in (Failure.CONNECTION_LOSS, Failure.SESSION_EXPIRED)
    peer.event(Expired)
    assert peer.connected() != before
    assert not session.client_died
    peer.ask(Sync())

    def is_gone() -> bool:
        other.ask(Sync())
        return other.ask(Exists(path)) is Failure.NO_NODE

    wait_until(is_gone, 20, "the former session has ended")
    assert isinstance(peer.ask(Create(path, ephemeral=True)), Stat)
    world.close()


def replace_after_a_while(peer: Peer) -> None:
    session, client = session_of(peer), session_of(peer)._client
    wait_until(lambda: session.replace_dead_client() or session._client is not client, 20, "the client is replaced")


def test_what_a_former_client_brings_is_nothing(ensemble: ZooKeeperEnsemble) -> None:
    world = RealWorld(ensemble, "")
    peer, other = world.peer(), world.peer()
    peer.connected(), other.connected()
    peer.ask(Exists("/watched", watch=True))
    session = session_of(peer)
    former, told = session._client, session._watch
    kill_the_connection(former)
    wait_until(lambda: session.client_died, 20, "the thread has ended")
    replace_after_a_while(peer)
    now = peer.connected()
    assert isinstance(other.ask(Create("/watched")), Stat)
    session._state_changed(former, "LOST")
    session._watch_fired(told, type("Event", (), {"type": "CREATED", "path": "/watched"}))
    peer.ask(Sync())
    assert not [each for each in peer.events if isinstance(each, Expired | WatchFired | Connected)]
    assert session._session_id == now
    world.close()


def test_a_client_that_dies_at_once_again_is_replaced_again(ensemble: ZooKeeperEnsemble) -> None:
    world = RealWorld(ensemble, "")
    peer = world.peer()
    session, seen = session_of(peer), set[int]()
    for _ in range(3):
        seen.add(peer.connected())
        kill_the_connection(session._client)
        wait_until(lambda: session.client_died, 20, "the thread has ended")
        replace_after_a_while(peer)
    seen.add(peer.connected())
    assert len(seen) == 4
    world.close()


HOOK = """\
import os, signal, threading
from kazoo.protocol.connection import ConnectionHandler

read = ConnectionHandler._read_socket
killed = threading.Event()

def read_or_die(self, timeout):
    if os.path.exists(os.environ["KILL_KAZOO"]) and not killed.is_set():
        killed.set()
        raise SystemExit
    return read(self, timeout)

ConnectionHandler._read_socket = read_or_die
"""


def test_a_broker_comes_back_into_its_cluster(ensemble: ZooKeeperEnsemble, tmp_path: Path) -> None:
    """The thread of the process that serves ends; the broker is in sync again, in the same process."""
    (tmp_path / "sitecustomize.py").write_text(HOOK)
    mark = tmp_path / "kill"
    cluster = BoardCluster(tmp_path, ensemble)
    board = cluster.board(2)
    board.environment |= {"PYTHONPATH": str(tmp_path), "KILL_KAZOO": str(mark)}
    with cluster:
        topic = cluster.make_topic("kept")
        pid = board.pid
        mark.touch()
        wait_until(lambda: "zookeeper_client_ended" in board.log_path.read_text(), 30, "the end is noticed")
        wait_until(lambda: board.log_path.read_text().count(" broker_registered ") == 2, 60, "it is registered again")
        cluster.wait_in_sync(topic)
        assert board.pid == pid
