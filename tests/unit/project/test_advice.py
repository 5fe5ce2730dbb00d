"""What /health, the log and errors advise: each command runs as it is printed, and each remedy ends its problem.

Invariants: a command stands in backticks; names in it are quoted for the shell, whatever characters they have; after it
the problem is said no more.
"""

from __future__ import annotations

import ast
import getpass
import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import drupelet
from drupelet.errors import ConfigurationError
from drupelet.observe.http import Pages, respond
from drupelet.printable import shell_word
from drupelet.tls.secret_files import changeable, check_private, check_unchangeable, first_line
from edge_broker.security.scram import ScramCredential
from edge_broker.security.state import SecurityState
from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.metadata.security_store import NAME, SecurityStore
from gateway import notices
from gateway.config import GatewayConfig, MosquittoConfig, parse_config
from gateway.metrics import Metrics
from gateway.sources.files import file_pattern, matches
from gateway.sources.files.file_pattern import PatternSource
from tests.support.gateway.publisher import FakePublisher
from tests.support.tasks import running_task
from tests.support.waiting import CALL_S, until

ROOT = Path(drupelet.__file__).parents[1]
PARTS = ("drupelet", "edge_broker", "gateway", "hardware", "kafka_wire", "mirror", "spark")
NAMES = [
    b"plain",
    b"with blank",
    b"a'quote\"s",
    b"$HOME `id` ; rm -rf x",
    b"-rf",
    b"end.",
    b"line\nbreak",
    b"\x1b[31mred",
    b"back\\slash",
    b"\xff",
    "grün".encode(),
]
names = pytest.mark.parametrize("name", [os.fsdecode(name) for name in NAMES], ids=ascii)
CREDENTIAL = ScramCredential(b"salt", 4096, b"s" * 32, b"k" * 32)


def on_health(said: str | None) -> str:
    """Return what /health shows of a problem."""
    return respond(b"GET /health HTTP/1.1\r\n\r\n", Pages(lambda: b"", lambda: said)).partition(b"\r\n\r\n")[2].decode()


def run_advice(said: str, directory: Path) -> str:
    """Run the command that a text advises last, as a person who copies it; return it."""
    command = re.findall(r"`([^`]+)`", said)[-1]  # a name before it may hold backticks, too
    done = subprocess.run(["bash", "-c", command], cwd=directory, capture_output=True, timeout=CALL_S, check=False)
    assert (done.returncode, done.stderr) == (0, b""), command
    return str(command)


def refusal(check: Callable[[], object]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        check()
    return str(caught.value)


@names
def test_a_word_is_one_word_of_the_shell(name: str) -> None:
    done = subprocess.run(["bash", "-c", f"printf -- %s {shell_word(name)}"], capture_output=True, check=True)
    assert done.stdout == os.fsencode(name)
    assert shell_word(name).isprintable()
    assert "`" not in shell_word(name)


@names
@pytest.mark.parametrize("relative", [False, True])
def test_a_secret_that_others_may_use(
    name: str, relative: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path(name) if relative else tmp_path / name
    path.write_text("secret\n")
    path.chmod(0o666)
    run_advice(on_health(refusal(lambda: check_private(path, "key"))), tmp_path)
    assert first_line(path, "key") == "secret"


@names
def test_a_file_of_rights_that_others_may_change(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("")
    path.chmod(0o666)
    run_advice(on_health(refusal(lambda: check_unchangeable(path.stat(), path, "key"))), tmp_path)
    check_unchangeable(path.stat(), path, "key")


@names
def test_a_file_of_authorities_that_others_may_change(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("")
    path.chmod(0o666)
    run_advice(on_health(changeable(path, "key")), tmp_path)
    assert changeable(path, "key") == ""


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o606])
def test_the_file_of_users_that_others_may_use(mode: int, tmp_path: Path) -> None:
    folder = tmp_path / "edge broker's data"
    folder.mkdir()

    def state() -> SecurityState:
        return SecurityStore.open(Disk(), str(folder), random.Random(1).randbytes).state

    store = SecurityStore.open(Disk(), str(folder), random.Random(1).randbytes)
    store.change(lambda before: before.with_user("a", {"SCRAM-SHA-256": CREDENTIAL}))
    (folder / NAME).chmod(mode)
    run_advice(on_health(state().exposed or state().damage), tmp_path)
    assert (state().exposed, state().damage, set(state().users)) == ("", "", {"a"})


# The gateway


def mosquitto(folder: Path, user: str) -> MosquittoConfig:
    text = f'state_dir = "s"\n[kafka]\nbootstrap_servers = "h:1"\n[board]\n[mosquitto]\nuser = "{user}"\n'
    return parse_config(folder.parent / "g.toml", f"{text}persistence_dir = {_toml(folder)}\n").mosquitto


def _toml(path: Path) -> str:
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


def missing(folder: Path) -> None:
    pass


def locked(folder: Path) -> None:
    folder.mkdir(mode=0o500)


def a_file(folder: Path) -> None:
    folder.write_text("")


@pytest.mark.root  # who alone may give a directory to a user
@pytest.mark.parametrize("was", [missing, locked])
@pytest.mark.parametrize("name", ["db", "my db", "it's"])
def test_a_directory_that_mosquitto_cannot_use(was: Callable[[Path], None], name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    was(folder)
    settings = mosquitto(folder, "nobody")
    for _ in range(2):  # who gets a directory may still lack the right to write to it
        if (said := notices.persistence_trouble(settings)) is not None:
            run_advice(on_health(said), tmp_path)
    assert notices.persistence_trouble(settings) is None


def test_a_directory_of_mosquitto_s_own_without_the_right_to_write(tmp_path: Path) -> None:
    folder, user = tmp_path / "my db", getpass.getuser()
    locked(folder)
    if os.geteuid() == 0:  # who may write everywhere
        user = "nobody"
        shutil.chown(folder, user)
    run_advice(on_health(notices.persistence_trouble(mosquitto(folder, user))), tmp_path)
    assert notices.persistence_trouble(mosquitto(folder, user)) is None


def test_a_file_where_mosquitto_s_directory_belongs(tmp_path: Path) -> None:
    folder = tmp_path / "my db"
    a_file(folder)
    settings = mosquitto(folder, getpass.getuser())
    said = on_health(notices.persistence_trouble(settings))
    assert "move it away, then" in said
    folder.rename(tmp_path / "away")
    run_advice(said, tmp_path)
    assert notices.persistence_trouble(settings) is None


def gateway(tmp_path: Path, keys: str) -> GatewayConfig:
    head = f'state_dir = "{tmp_path}/state"\n[kafka]\nbootstrap_servers = "h:1"\n[[files]]\npoll_interval_ms = 10\n'
    return parse_config(tmp_path / "g.toml", f'{head}path = "{tmp_path}/my logs/*.log"\n{keys}')


@pytest.mark.parametrize(
    ("advised", "keys", "lines"),
    [
        ("follow_links = true", "follow_links = true\n", 3),
        ("(files_max): raise it", "files_max = 2\n", 2),
        ("more than 1 files: the rest is not read; narrow it", "", 1),
    ],
)
async def test_what_keeps_files_from_being_read(
    advised: str, keys: str, lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_pattern, "SCAN_S", 0.02)
    monkeypatch.setattr(file_pattern, "WAITING_SCAN_S", 0.02)
    logs, before = tmp_path / "my logs", ""
    write_logs(logs)
    if "follow" in advised:
        link(logs)
    elif "narrow" in advised:
        monkeypatch.setattr(matches, "CANDIDATES_MAX", 1)
        monkeypatch.setattr(file_pattern, "CANDIDATES_MAX", 1)
    else:
        before = "files_max = 1\n"
    said: list[str] = []
    for given in (before, keys):
        if "narrow" in advised and said:
            remove_second(logs)
        publisher, whole = FakePublisher(), gateway(tmp_path, given)
        source = PatternSource(whole.files[0], publisher.as_publisher(), tmp_path / f"state{len(said)}", Metrics())
        async with running_task(source.run()):
            await source.ready.wait()
            if not said:
                await until(lambda found=source: advised in f"{found.problem()} {found.note()}")
                said.append(advised)
            else:
                await until(lambda found=publisher: len(found.records) == lines)
                await until(lambda found=source: found.problem() is None and found.note() is None)


def write_logs(directory: Path) -> None:
    directory.mkdir()
    for name in "ab":
        (directory / f"{name}.log").write_text(f"{name}\n")


def link(directory: Path) -> None:
    (directory.parent / "target").write_text("c\n")
    (directory / "c.log").symlink_to(directory.parent / "target")


def remove_second(directory: Path) -> None:
    (directory / "b.log").unlink()


# Every message of every part

COMMANDS = r"chmod|chown|chgrp|install|rm|mv|mkdir|umount|mosquitto_sub|edge-broker|edge-gateway|edge-mirror|systemctl"
OPENED = re.compile(rf"`(?:sudo )?(?:{COMMANDS}) [^`]*$")
OWN_WORDS = {"kind"}  # of a fixed list: topic, group
BARE = re.compile(r"(?<![`\w-])(?:chmod|chown|chgrp|umount|mosquitto_sub) [-+=,\w]+ $|edge-broker [a-z ]*--data-dir $")


def messages() -> Iterator[tuple[str, ast.JoinedStr]]:
    for part in PARTS:
        for path in sorted((ROOT / part).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def test_each_name_in_an_advised_command_is_quoted_for_the_shell() -> None:
    bad, seen = [], 0
    for where, node in messages():
        text = ""
        for piece in node.values:
            if isinstance(piece, ast.Constant):
                text += str(piece.value)
                continue
            assert isinstance(piece, ast.FormattedValue)
            value = ast.unparse(piece.value)
            is_quoted = "shell_word" in value or "shell_path" in value
            is_open = text.count("`") % 2 == 1 and OPENED.search(text) is not None
            seen += is_quoted
            if not is_quoted and value not in OWN_WORDS and (is_open or BARE.search(text)):
                bad.append(f"{where}: {ast.unparse(node)}")
            text += "NAME" if is_quoted else ""
    assert seen >= 8
    assert bad == []
