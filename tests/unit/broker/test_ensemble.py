"""What names no ensemble ends the start with a sentence; what kazoo says of one that does not answer is a line."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from drupelet.errors import ConfigurationError
from edge_broker.cli import main
from edge_broker.config import read_config
from edge_broker.ensemble import check_ensemble
from edge_broker.network.zookeeper import _hear_kazoo


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


@pytest.fixture
def kazoo() -> Iterator[logging.Logger]:
    logger = logging.getLogger("kazoo")
    before = logger.handlers[:], logger.propagate
    logger.handlers = []
    yield logger
    logger.handlers, logger.propagate = before


def test_what_kazoo_repeats_is_one_line_of_the_log(kazoo: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        _hear_kazoo()
    for _ in range(5):
        kazoo.getChild("client").warning("Connection dropped: socket connection error: %s", "Connection refused")
    (line,) = capsys.readouterr().err.splitlines()
    assert 'warning edge-broker library name=kazoo.client message="Connection dropped' in line
