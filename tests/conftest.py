"""What every suite shares: the logs of live children are shown beside a failure; none outlives its test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import processes


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        choices=("edge", "kafka"),
        default="edge",
        help="run the conformance tests against the edge broker, or against Apache Kafka 4.3.1",
    )
    parser.addoption("--rounds", type=int, help="the long form of the fault tests: so many kills, half as many cuts")
    parser.addoption("--seconds", type=float, help="how long the test of a full disk lasts")
    parser.addoption("--device", choices=("loop", "tmpfs"), default="loop", help="what the full disk is made of")
    parser.addoption("--seed", type=int, help="repeat the choices of a fault test that printed this seed")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[None]:  # the generator returns the report to pytest
    report = yield
    if report.failed:
        report.sections.extend((f"{process.name}", process.log_tail()) for process in processes.live())
    return report


@pytest.fixture(autouse=True, scope="session")
def _no_child_survives() -> Iterator[None]:
    yield
    left = processes.live()
    names = [process.name for process in left]
    for process in left:
        process.kill()
    assert not names, f"children that no test stopped: {names}"
