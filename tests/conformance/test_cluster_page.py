"""CLUSTER.md as a stranger follows it: every command as it stands, in one shell, and what it prints.

Put in place of the page's words: free ports, and a real ensemble of three for the one server. What is printed is
compared as of SECURITY.md: numbers and spaces may differ, `…` is anything.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import runtimes
from tests.support.conformance.page_blocks import PageBlock, blocks, shape
from tests.support.ports import free_port
from tests.support.processes import Process
from tests.support.zookeeper import ZooKeeperEnsemble

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "edge_broker/CLUSTER.md").read_text()
FOLLOWED_S = 240.0
END = "--- end of block"


def script(page: list[PageBlock], connect: str) -> str:
    """All commands of the page, and a line behind each block."""
    ports = " ".join(str(free_port()) for _ in range(3))
    more = " ".join(str(free_port()) for _ in range(3))
    lines = [f"port=(0 {ports}); metrics=(0 {more})"]
    for at, block in enumerate(page):
        commands = block.commands.replace("127.0.0.1:2181", connect)
        commands = commands.replace("909$1", "${port[$1]}").replace("910$1", "${metrics[$1]}")
        commands = re.sub(r"127\.0\.0\.1:909(\d)", r"127.0.0.1:${port[\1]}", commands)
        lines.append(f"{commands}echo {shlex.quote(f'{END} {at}')}")
    return "\n".join(lines)


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[str]:
    with ZooKeeperEnsemble(tmp_path / "ensemble") as ensemble:
        yield ensemble.connect


def test_the_page_holds_from_the_first_line_to_the_last(tmp_path: Path, connect: str) -> None:
    page = list(blocks(PAGE))
    kcat = runtimes.kcat()
    path = f"{Path(sys.executable).parent}:{kcat.parent}:{os.defpath}"
    command = ["bash", "-c", f"cd {shlex.quote(str(tmp_path))}\nexec 2>&1\n{script(page, connect)}"]
    with Process("page", command, tmp_path, environment={"PATH": path}) as shell:
        shell.wait(FOLLOWED_S)  # all that it has started goes with it
    printed = shell.output_path.read_text()
    for at, block in enumerate(page):
        before, end, printed = printed.partition(f"{END} {at}\n")
        assert end, f"CLUSTER.md, line {block.line}: not done\n{before}"
        lines = iter([line.strip() for line in before.splitlines()])
        for wanted in block.shown.splitlines():
            assert any(re.fullmatch(shape(wanted), line) for line in lines), (
                f"CLUSTER.md, line {block.line}: {wanted!r} is not printed where the page shows it:\n{before}"
            )


def test_every_test_that_the_page_names_is_there() -> None:
    names = set(re.findall(r"`(test_\w+?)(?:\.py)?`", PAGE))
    assert names
    assert names <= {file.stem for file in (ROOT / "tests").rglob("test_*.py")}
