"""What names no ensemble ends the start with a sentence; what kazoo says of one that does not answer is a line."""

from __future__ import annotations

import logging
import socket
from pathlib import Path

import pytest

from drupelet.errors import ConfigurationError
from edge_broker.cli import main
from edge_broker.cluster.znodes.zookeeper import Answer, Event
from edge_broker.configuration.config import read_config
from edge_broker.configuration.ensemble import check_ensemble
from edge_broker.network.cluster.zookeeper_client import KazooSession
from tests.support.ports import free_port
from tests.support.processes import EdgeBroker
from tests.support.waiting import CALL_S


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pi-1",
        "pi-1:2181",
        "pi-1.local:2181,pi-2.local:2181, 10.0.0.3:2181/drupelet",
        "[fd00::1]:2181,[fd00::2]/site/a",
        "localhost/a-b_c.d",
    ],
)
def test_an_ensemble_is_servers_and_a_path(text: str) -> None:
    check_ensemble(read_config(None, "", [f"zookeeper.connect={text}"]))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pi-1:99999", "'pi-1:99999' is no server"),
        ("pi-1:abc", "'pi-1:abc' is no server"),
        ("pi-1:0", "'pi-1:0' is no server"),
        ("pi-1:2181:2181", "'pi-1:2181:2181' is no server"),
        ("pi-1:2181,,pi-2:2181", "'' is no server"),
        ("pi-1:2181,", "'' is no server"),
        ("pi-1:2181 pi-2:2181", "'pi-1:2181 pi-2:2181' is no server"),
        ("/drupelet", "'' is no server"),
        ("http://pi-1:2181", "'http:' is no server"),
        ("pi-1:2181/", "'/' is no path"),
        ("pi-1:2181/a/", "'/a/' is no path"),
        ("pi-1:2181//a", "'//a' is no path"),
        ("pi-1:2181/../a", "'/../a' is no path"),
        ("pi-1:2181/a b", "'/a b' is no path"),
        ("pi-1:2181/a,pi-2:2181/a", "'/a,pi-2:2181/a' is no path"),
    ],
)
def test_what_is_none_is_told_by_its_part(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_ensemble(read_config(None, "", [f"zookeeper.connect={text}"]))
    assert str(refused.value).startswith(f"zookeeper.connect is {text!r}, and {said}; write ")


def test_it_ends_the_start_before_anything_is_made(tmp_path_factory: pytest.TempPathFactory, capsys) -> None:
    data_dir = tmp_path_factory.mktemp("data") / "none"
    words = ["serve", "--data-dir", str(data_dir), "--listen", "127.0.0.1:0", "--set", "zookeeper.connect=pi-1:x"]
    assert main(words) == 2
    assert "'pi-1:x' is no server" in capsys.readouterr().err
    assert not data_dir.exists()


def test_what_kazoo_repeats_is_one_line_of_the_log(tmp_path: Path) -> None:
    """The ensemble closes each connection."""
    with socket.create_server(("127.0.0.1", 0)) as ensemble:
        ensemble.settimeout(CALL_S)
        connect = f"127.0.0.1:{ensemble.getsockname()[1]}"
        broker = EdgeBroker(tmp_path, settings={"zookeeper.connect": connect, "broker.id": 1})
        broker.spawn()
        try:
            for _ in range(4):  # kazoo logs after each of the first three, before it connects again
                ensemble.accept()[0].close()
        finally:
            broker.kill()
    lines = broker.log_path.read_text().splitlines()
    said = [line for line in lines if " info edge-broker " not in line]
    assert said
    assert all(" warning edge-broker library name=kazoo.client message=" in line for line in said)
    messages = [line.partition(" ")[2] for line in said]
    assert sorted(set(messages)) == sorted(messages)


def test_a_session_changes_no_logger_of_its_process() -> None:
    """A program that uses it sets up its own logging: `as_found.py` compares all loggers after this test."""
    session = KazooSession(f"127.0.0.1:{free_port()}", 2000, NoSession(), lambda call: call())
    try:
        assert logging.getLogger("kazoo").handlers == []
        assert logging.getLogger("kazoo").propagate
    finally:
        session.close()


class NoSession:
    """Keeps nothing: no session begins in this file."""

    def answer_received(self, token: int, answer: Answer) -> None:
        raise AssertionError((token, answer))

    def event_received(self, event: Event) -> None:
        raise AssertionError(event)
