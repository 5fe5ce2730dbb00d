"""Log lines: what a value looks like, that none forges a line, and what libraries may say."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from drupelet.observe.log_lines import log_line
from drupelet.observe.log_tree import LineFormatter, Log, NoRepeats
from drupelet.printable import name_text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        ("two words", '"two words"'),
        ('a"b', '"a\\"b"'),
        ("", '""'),
        ("a\nb", '"a\\nb"'),
        ("a=b", '"a=b"'),
        ("grün", "grün"),
        ("sehr grün", '"sehr grün"'),
        ("\x1b[2Jgrün", '"\\u001b[2Jgrün"'),
        ("a\x9bb", '"a\\u009bb"'),
        ("a\u2028b", '"a\\u2028b"'),
        (3, "3"),
    ],
)
def test_a_value(value: object, shown: str) -> None:
    assert name_text(value) == shown


def test_a_line_has_its_time_and_no_empty_fields() -> None:
    line = log_line(1_764_000_000.25, "info", "part", "it_happened", {"n": 3, "left": None, "text": "a b"})
    assert line == '2025-11-24T16:00:00.250Z info part it_happened n=3 text="a b"'


def test_an_event_is_written_as_its_component_and_a_library_as_the_part(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        Log("gateway.x").warning("it_happened", topic="a b", n=3, empty="", quoted='"')
        logging.getLogger("a_library.conn").warning("lost %s", "it: [Errno 111] Connect call failed")
    own, library = (LineFormatter("gateway").format(record).split(" ", 1)[1] for record in caplog.records)
    assert own == r'warning gateway.x it_happened topic="a b" n=3 empty="" quoted="\""'
    assert library == 'warning gateway library name=a_library.conn message="lost it: Connect call failed"'


def test_a_traceback_is_one_field(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("odd")
    except ValueError:
        Log("gateway").exception("failed")
    line = LineFormatter("gateway").format(caplog.records[0])
    assert "\n" not in line
    assert 'failed traceback="Traceback' in line


def test_a_library_repeats_itself_once_in_a_while_and_the_part_always(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            logging.getLogger("library").warning("away")
            Log("mirror").info("trouble")
    repeats = NoRepeats()
    assert [repeats.filter(record) for record in caplog.records] == [True, True, False, True]


SCRIPT = """
import logging
from drupelet.observe.log_tree import Log, set_up

set_up("a_part", "debug", silent=("a_silent_library",))
Log("a_part.x").info("begun")
for name in ("a_library", "a_silent_library"):
    logging.getLogger(name).info("chatter")
    logging.getLogger(name).warning("trouble")
"""


def test_the_level_is_the_parts_and_libraries_are_heard_from_warning_on() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    lines = [line.split(" ", 1)[1] for line in done.stderr.splitlines()]
    assert lines == ["info a_part.x begun", "warning a_part library name=a_library message=trouble"]
