"""The demo's text: columns line up, a log is not flooded, a terminal's live block is redrawn in place."""

from __future__ import annotations

import io
import shlex
from pathlib import Path

import edge_broker.cli as broker
import mirror.cli as mirror
from tests.e2e.closing import how_to_look
from tests.e2e.demo import Timeline
from tests.e2e.parts import Road
from tests.e2e.report import Screen, amount, table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_table_lines_up() -> None:
    assert table(("topic", "lost"), [["readings", 12345], ["logs", None]]).splitlines() == [
        "topic       lost",
        "--------  ------",
        "readings  12,345",
        "logs           -",
    ]


def test_amounts() -> None:
    assert [amount(999), amount(1_500), amount(29_000_000)] == ["999 B", "1.5 kB", "29.0 MB"]


def test_a_log_gets_live_lines_now_and_then() -> None:
    out = io.StringIO()
    screen = Screen(out)
    screen.live(["one"])
    screen.live(["two"])
    screen.event("event")
    assert out.getvalue() == "one\nevent\n"


def test_a_terminal_is_redrawn_below_the_events() -> None:
    out = Terminal()
    screen = Screen(out)
    screen.live(["one", "1"])
    screen.event("event")
    screen.live(["two", "2"])
    assert out.getvalue() == "one\n1\n\x1b[2A\x1b[Jevent\ntwo\n2\n"


def test_the_cut_is_20_s_long_and_scaled_in_a_short_demo() -> None:
    whole, short = Timeline.of(120), Timeline.of(45)
    assert whole.restore_s - whole.cut_s == 20
    assert 7 < short.restore_s - short.cut_s < 9
    for line in (whole, short, Timeline.of(30), Timeline.of(3_600)):
        assert 0 < line.cut_s < line.kill_s < line.restore_s < line.end_s


def test_the_hints_name_our_own_tools_first_with_the_addresses_of_this_run(tmp_path: Path) -> None:
    road = Road(tmp_path, "demo", edge="edge", central="127.0.0.1:9", rotate_after_s=10)
    lines = [line.strip() for line in how_to_look(road).splitlines() if line.startswith("  ")]
    assert [line.split()[:2] for line in lines[1:7]] == [
        ["edge-broker", "topics"],
        ["edge-broker", "tail"],
        ["edge-broker", "tail"],
        ["edge-broker", "groups"],
        ["edge-broker", "ledger"],
        ["edge-mirror", "status"],
    ]
    assert len([line for line in lines if line.startswith("curl") and "/health" in line]) == 3
    for line in lines[1:6]:
        broker.parser().parse_args(shlex.split(line.partition("    ")[0])[1:])
    mirror.parser().parse_args(shlex.split(lines[6])[1:])
