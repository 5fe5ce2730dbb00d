"""What the source must not say: rules that import contracts cannot express."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

import edge_broker
from edge_broker.handlers import APIS, HANDLERS
from tests.support.supported import NOT_SERVED, PATH, supported

ROOT = Path(edge_broker.__file__).parent
SYNCHRONOUS = ("handlers", "broker", "coordinator", "protocol", "security")
PURE = sorted(path for name in SYNCHRONOUS for path in (ROOT / name).rglob("*.py"))
ALL = sorted(path for path in ROOT.rglob("*.py") if "testing" not in path.parts)  # the fakes are no part of what runs
ASYNC = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
FILE_CALLS = {"open", "print", "input"}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imported(path: Path) -> set[str]:
    """First parts of every module that a file imports, also inside functions."""
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module.partition(".")[0])
    return found


def importing(module: str, paths: list[Path] = ALL) -> set[str]:
    return {name(path) for path in paths if module in imported(path)}


def test_there_is_something_to_look_at() -> None:
    assert len(PURE) > 40
    assert {"handlers/produce.py", "coordinator/group.py", "protocol/codec.py"} <= {name(path) for path in PURE}


@pytest.mark.parametrize("path", PURE, ids=name)
def test_pure_code_never_waits(path: Path) -> None:
    found = [f"line {node.lineno}" for node in ast.walk(tree(path)) if isinstance(node, ASYNC)]
    assert not found


@pytest.mark.parametrize("path", PURE, ids=name)
def test_pure_code_touches_no_file_and_no_terminal(path: Path) -> None:
    calls = [
        node.func.id for node in ast.walk(tree(path)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert not FILE_CALLS & set(calls)


def test_one_file_of_storage_knows_the_operating_system() -> None:
    storage = sorted((ROOT / "storage").rglob("*.py"))
    for module in ("os", "fcntl", "pathlib", "shutil", "io", "mmap", "tempfile"):
        assert importing(module, storage) <= {"storage/files/filesystem.py"}, module
    assert importing("os", storage) == {"storage/files/filesystem.py"}


def test_one_file_makes_threads() -> None:
    assert importing("queue") == {"network/worker.py", "rebuild/session.py"}  # of a command: kazoo's threads answer it
    assert importing("threading") == {
        "network/worker.py",
        "storage/log/log_state.py",
        "thread_checks.py",
    }  # a lock, and where a thread is
    for module in ("_thread", "concurrent", "multiprocessing", "subprocess"):
        assert importing(module) == set()


def test_the_clock_and_chance_are_read_in_one_place() -> None:
    assert importing("random") == set()
    assert importing("secrets") == set()  # which imports random: 0.1 MB
    assert {name(path) for path in ALL if "urandom" in path.read_text()} == {"clock.py"}
    durations = {  # and stamps of lines
        *("network/dispatch/syncer.py", "network/background/compaction_loop.py", "network/log_lines.py"),
        "network/cluster/zookeeper_client.py",  # between two clients
        "configuration/ensemble_servers.py",  # how long servers have to answer
    }
    assert importing("time") == {"clock.py", "tools/tail.py", *durations}  # which waits for a broker to come back


def test_sockets_and_loops_stay_in_the_shell() -> None:
    shell = {name(path) for path in (ROOT / "network").rglob("*.py")} | {"app.py"}
    for module in ("asyncio", "uvloop", "signal"):
        assert importing(module) <= shell, module
    assert importing("socket") <= shell | {"wire_client/connection.py", "configuration/ensemble_servers.py"}


def test_handlers_holds_one_file_per_api_and_nothing_else() -> None:
    assert set(HANDLERS) == set(APIS)
    found = {path.stem for path in (ROOT / "handlers").glob("*.py")} - {"__init__"}
    assert found == {handler.__name__ for handler in HANDLERS.values()}


@pytest.mark.parametrize("path", sorted((ROOT / "handlers").glob("*.py")), ids=name)
def test_no_handler_looks_topics_up_by_itself(path: Path) -> None:
    """Who asks goes through the door, topic_registry.py: one place says unknown, not authorised, fenced, offline."""
    found = {node.attr for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute)}
    assert not found & {"topics_by_id", "hidden"}
    assert "store.topics" not in path.read_text()


def test_each_version_says_what_it_brought() -> None:
    for api in APIS.values():
        assert list(api.versions) == list(range(api.min_version, api.max_version + 1)), api
        assert all(api.versions.values()), api


@pytest.mark.parametrize("key", sorted(HANDLERS), ids=lambda key: APIS[key].name)
def test_each_api_has_a_file_whose_head_names_its_key(key: int) -> None:
    words = re.findall(r"[A-Z][a-z]*", APIS[key].name)
    path = ROOT / "handlers" / f"{'_'.join(words).lower()}.py"
    head = ast.get_docstring(tree(path)) or ""
    assert head.startswith(f"{APIS[key].name} (key {key})"), head.splitlines()[:1]
    assert re.search(rf"{APIS[key].name} \d+ to \d+|KIP-\d+", head), "no source named"


def test_every_module_says_what_it_is_for() -> None:
    silent = [name(path) for path in ALL if not ast.get_docstring(tree(path))]
    assert not silent


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert not [name(path) for path in ALL if path.stem in {"utils", "helpers", "common", "manager", "misc"}]


def test_nothing_is_swallowed() -> None:
    """A broad `except` must use what it caught: hand it on, log it, or raise it again."""
    broad = {"Exception", "BaseException"}
    for path in ALL:
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.ExceptHandler):
                continue
            is_broad = node.type is None or (isinstance(node.type, ast.Name) and node.type.id in broad)
            used = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
            raised = any(isinstance(one, ast.Raise) for one in ast.walk(node))
            assert not is_broad or raised or node.name in used, f"{name(path)} line {node.lineno}"


def test_the_list_of_what_is_served_is_as_the_handlers_say() -> None:
    assert PATH.read_text() == supported(), "write it again: python -m tests.support.supported"
    missing = {int(key) for _, keys, _ in NOT_SERVED for key in re.findall(r"\d+", keys)}
    assert not missing & set(APIS)
