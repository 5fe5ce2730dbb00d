"""What every suite shares: the logs of live children are shown beside a failure; none outlives its test."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import processes, root
from tests.support.doctor import Seen, seen_by_doctor
from tests.support.waiting import PATIENCE

pytest_plugins = ["tests.support.as_found"]

# How long one example takes, and how fast they are made, says something of the machine and nothing of the code.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")
_FOR_ROOT = pytest.StashKey[int]()
_LOOKED_AT = pytest.StashKey[set[Path | None]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        choices=("edge", "kafka"),
        default="edge",
        help="run the conformance tests against the edge broker, or against Apache Kafka 4.3.1",
    )
    parser.addoption(
        "--security",
        choices=("plain", "secured"),
        default="plain",
        help="run the conformance tests of Kafka's clients in plain text, or by TLS and SCRAM",
    )
    parser.addoption("--rounds", type=int, help="so many kills, half as many cuts; from 100 on all long forms of fault")
    parser.addoption("--cluster-rounds", type=int, help="how many rounds of faults a cluster of brokers goes through")
    parser.addoption("--seconds", type=float, help="how long the test of a full disk lasts")
    parser.addoption("--device", choices=("loop", "tmpfs"), help="what the full disk is made of")
    parser.addoption("--seed", type=int, help="repeat the choices of a fault test that printed this seed")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "root(*unless): needs root, unless the user has such a right: tests/support/root.py"
    )
    config.addinivalue_line("markers", "kafka_alone(reason): of what the edge broker does not serve: --broker kafka")
    config.addinivalue_line("markers", "night: takes long, and is left out where a change is judged: .ci/run")
    config.addinivalue_line("markers", "leaves(*texts): damage that the doctor finds afterwards, each as an expression")
    config.stash[_FOR_ROOT] = 0
    config.stash[_LOOKED_AT] = set()
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` ignores it, and children would, too


@pytest.hookimpl(trylast=True)  # behind -k and -m: what they leave out is nobody's to add
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what this user or this broker cannot run, and give each time limit of a quiet machine to a busy one."""
    for_root, left_out = 0, []
    is_kafka = config.getoption("--broker") == "kafka"
    for item in items:
        mark = item.get_closest_marker("root")
        if mark is not None and not root.may_run(mark.args):
            for_root += 1
            left_out.append(item)
        elif item.get_closest_marker("kafka_alone") is not None and not is_kafka:
            left_out.append(item)
        if (limit := item.get_closest_marker("timeout")) is not None:
            item.add_marker(pytest.mark.timeout(PATIENCE * limit.args[0]), append=False)
    if left_out:
        config.stash[_FOR_ROOT] = for_root
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Say last how much of the suite is left for root."""
    if count := config.stash.get(_FOR_ROOT, 0):
        print(f"{count} more test{'s need' if count > 1 else ' needs'} root: `sudo make test-root` adds them.")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[None]:  # the generator returns the report to pytest
    report = yield
    if report.failed:
        report.sections.extend((f"{process.name}", process.log_tail()) for process in processes.live())
    return report


@pytest.fixture(autouse=True)
def _doctor(request: pytest.FixtureRequest, _as_found: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every data directory that a test leaves is sound, but for what its mark `leaves` says."""
    with seen_by_doctor(monkeypatch) as found:
        yield
        tmp_path = request.node.funcargs.get("tmp_path")
        found.look_below(tmp_path)
        request.config.stash[_LOOKED_AT].add(tmp_path)
    expected = [text for mark in request.node.iter_markers("leaves") for text in mark.args]
    unexpected = [finding for finding in found.findings if not any(re.search(text, finding) for text in expected)]
    assert not unexpected, "the doctor finds:\n" + "\n".join(unexpected[:5])
    for text in [] if hasattr(request.node, "callspec") else expected:  # of several cases each has its own
        assert any(re.search(text, finding) for finding in found.findings), f"the doctor finds nothing like {text!r}"


@pytest.fixture(autouse=True, scope="session")
def _doctor_of_shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What brokers leave that several tests share is sound, too; it is looked at when the last test has ended."""
    yield
    found, looked_at = Seen(), request.config.stash[_LOOKED_AT]
    for folder in sorted(set(tmp_path_factory.getbasetemp().iterdir()) - looked_at):
        if not folder.is_symlink():
            found.look_below(folder)
    assert not found.findings, "the doctor finds:\n" + "\n".join(found.findings[:5])


@pytest.fixture(autouse=True, scope="session")
def _no_child_survives() -> Iterator[None]:
    yield
    left = processes.live()
    names = [process.name for process in left]
    for process in left:
        process.kill()
    assert not names, f"children that no test stopped: {names}"
