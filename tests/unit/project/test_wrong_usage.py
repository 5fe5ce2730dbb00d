"""What strangers do wrong with each program, and the one sentence that they get; no word of Python or its libraries."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.root import as_ordinary_user

PROGRAMS = Path(sys.executable).parent
SERVE = ["edge-broker", "serve", "--data-dir", "new", "--listen"]
CASES = [
    ([*SERVE, "[::1"], 2, "--listen is '[::1'; write HOST:PORT, for example 127.0.0.1:9092"),
    (
        [*SERVE, "127.0.0.1:TAKEN"],
        2,
        "cannot listen on 127.0.0.1:TAKEN: address already in use; choose another address or port",
    ),
    ([*SERVE, "127.0.0.1:0", "--metrics", "127.0.0.1:TAKEN"], 2, "address already in use; choose another --metrics"),
    ([*SERVE, "127.0.0.1:0", "--metrics="], 2, "--metrics is empty: give it a value"),
    ([*SERVE, "127.0.0.1:0", "--config", "missing"], 2, "--config missing cannot be read: no such file or directory"),
    ([*SERVE, "127.0.0.1:0", "--config", "folder"], 2, "--config folder cannot be read: is a directory"),
    ([*SERVE, "127.0.0.1:0", "--config", "binary"], 2, "--config binary is not UTF-8 at byte 0: save it as UTF-8"),
    (
        ["edge-broker", "serve", "--data-dir", "binary", "--listen", "127.0.0.1:0"],
        2,
        "--data-dir binary is no directory",
    ),
    (["edge-broker", "log", "ls", "--data-dir="], 2, "--data-dir is empty: give it a value"),
    (["edge-gateway", "check", "--config="], 2, "--config is empty: give it a value"),
    (["edge-gateway", "check", "--config", "folder"], 2, "folder cannot be read: is a directory"),
    (["edge-gateway", "check", "--config", "binary"], 2, "binary is not UTF-8 at byte 0: save it as UTF-8"),
    (
        ["edge-mirror", "status", "--source", "127.0.0.1:REFUSED", "--site", "s"],
        1,
        "the source does not answer: 127.0.0.1:REFUSED refuses the connection: nothing listens there",
    ),
    (["edge-mirror", "run", "--config", "missing"], 2, "missing cannot be read: no such file or directory"),
    (["edge-spark", "master", "--port", "70000"], 2, "--port is '70000': give a whole number from 1 to 65535"),
    (["edge-spark", "run", "readings", "--set", "window_ms"], 2, "window_ms"),
    (["edge-board", "flash", "missing", "--to", "card"], 2, "missing cannot be read: no such file or directory"),
    (["edge-board", "flash", "", "--to", "card"], 2, "IMAGE is empty: give it a value"),
    (["edge-board", "flash", "binary", "--to", ""], 2, "--to is empty: give it a value"),
    (["edge-board", "show", "--root", "missing"], 2, "--root missing is no directory"),
    (["edge-board", "show", "--mock", "pi_6"], 2, "--mock is 'pi_6'; did you mean pi_5?"),
    (["edge-board", "health", "--ignore", "throtled"], 2, "--ignore is 'throtled'; did you mean throttled?"),
]


@pytest.mark.parametrize(("words", "status", "said"), CASES, ids=[" ".join(words) for words, _, _ in CASES])
def test_a_mistake_is_told_in_one_sentence(words: list[str], status: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as refused:
        refused.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else gets it
        ports = {"TAKEN": str(taken.getsockname()[1]), "REFUSED": str(refused.getsockname()[1])}
        program, *rest = [replaced(word, ports) for word in words]
        done = subprocess.run(
            [PROGRAMS / program, *rest],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "80"},
        )
    assert done.returncode == status, done.stderr
    told = [line for line in done.stderr.splitlines() if " info edge-broker " not in line]
    assert len(told) == 1
    assert told[0].startswith(program)
    assert replaced(said, ports) in told[0]
    assert "Errno" not in told[0]


@pytest.mark.parametrize(
    ("data_dir", "said"),
    [
        ("/etc/drupelet-data", "/etc/drupelet-data cannot be made in /etc by this user: give it the right to"),
        ("/etc", "/etc cannot be written by this user: give it the right to"),
    ],
)
def test_a_data_directory_of_another_user_is_told_in_one_sentence(data_dir: str, said: str) -> None:
    """What who has read README's first line types before the directory is there."""
    words = [PROGRAMS / "edge-broker", "serve", "--data-dir", data_dir, "--listen", "127.0.0.1:0"]
    done = subprocess.run([*as_ordinary_user(), *words], capture_output=True, text=True, check=False, cwd="/")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith(f"edge-broker: --data-dir {said}")


def replaced(text: str, ports: dict[str, str]) -> str:
    for name, port in ports.items():
        text = text.replace(name, port)
    return text
