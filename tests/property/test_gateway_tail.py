"""The file tail against a model of writers, rotations, truncations, acknowledgements and crashes.

Rotations by renaming and by copytruncate mix, as on a host whose logrotate was configured in another way.

Invariants:
- every line that was written is delivered, verbatim, and nothing that was not;
- first deliveries are in the order of writing;
- a line is delivered again only after a crash, and never when a place after it had been saved;
- nothing is ever reported as gone, as the model never deletes what is unread.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from itertools import count
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.sources.file_reading.places import FamilyState, Line
from gateway.sources.files.tail import Tail

QUIET_S = 1  # the clock counts the reads that find nothing


class TailModel(RuleBasedStateMachine):
    """One file, its writer, its rotator, and a reader that may crash at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="tail-model-"))
        self.path = self.directory / "app.log"
        self.path.touch()
        self.written: list[bytes] = []  # complete lines
        self.partial = b""
        self.next_number = 0
        self.delivered: list[Line] = []
        self.since_start: list[Line] = []
        self.saved: FamilyState | None = None
        self.saved_texts: set[bytes] = set()
        self.acked_count = 0
        self.crashes = 0

    def _tail(self) -> Tail:
        return Tail(self.path, self.saved, line_bytes_max=1_000, quiet_s=QUIET_S, clock=count().__next__)

    @initialize()
    def start(self) -> None:
        self.tail = self._tail()
        assert self.tail.read() == []
        self.saved = self.tail.state

    def _new_line(self) -> bytes:
        self.next_number += 1
        return b"%d-%s" % (self.next_number, b"x" * (self.next_number % 7))

    def _append(self, content: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(content)

    @rule(count=st.integers(1, 40))
    def write_lines(self, count: int) -> None:
        for _ in range(count):
            line = self.partial + self._new_line()
            self._append(line[len(self.partial) :] + b"\n")
            self.partial = b""
            self.written.append(line)

    @rule()
    def write_part_of_a_line(self) -> None:
        part = self._new_line()
        self._append(part)
        self.partial += part

    def _end_of_file(self) -> None:
        if self.partial:
            self.written.append(self.partial)
            self.partial = b""
        for number in range(30, 0, -1):
            older = self.directory / f"app.log.{number}"
            if older.exists():
                older.rename(self.directory / f"app.log.{number + 1}")

    @precondition(lambda self: self.path.exists())
    @rule(create=st.booleans())
    def rotate_by_renaming(self, create: bool) -> None:
        self._end_of_file()
        self.path.rename(self.directory / "app.log.1")
        if create:  # else with the next line
            self.path.touch()

    @precondition(lambda self: self.path.exists())
    @rule()
    def rotate_by_copying_and_truncating(self) -> None:
        self._end_of_file()
        shutil.copyfile(self.path, self.directory / "app.log.1")
        os.truncate(self.path, 0)

    @rule(times=st.integers(1, 5))
    def read(self, times: int) -> None:
        for _ in range(times):
            for item in self.tail.read():
                assert isinstance(item, Line), item
                self.delivered.append(item)
                self.since_start.append(item)

    @rule(share=st.floats(0, 1))
    def acknowledge_and_save(self, share: float) -> None:
        waiting = len(self.since_start) - self.acked_count
        self.acked_count += int(waiting * share)
        if self.acked_count:
            self.saved = self.since_start[self.acked_count - 1].after
            self.saved_texts |= {line.text for line in self.since_start[: self.acked_count]}

    @rule()
    def crash(self) -> None:
        self.tail.close()
        self.tail = self._tail()
        self.crashes += 1
        self.since_start = []
        self.acked_count = 0

    @invariant()
    def first_deliveries_are_in_order(self) -> None:
        first = list(dict.fromkeys(line.text for line in self.delivered))
        assert first == self.written[: len(first)]

    @invariant()
    def again_only_after_a_crash(self) -> None:
        texts = [line.text for line in self.since_start]
        assert len(texts) == len(set(texts))
        if self.crashes == 0:
            assert len(self.delivered) == len({line.text for line in self.delivered})

    def teardown(self) -> None:
        try:
            self.path.touch()  # the unfinished last line of a rotated file is taken once there is a next file
            quiet = 0
            while quiet < 4 * (len(os.listdir(self.directory)) + 2):  # each file on the way is waited for
                before = len(self.delivered)
                self.read(1)
                quiet = quiet + 1 if len(self.delivered) == before else 0
            self.first_deliveries_are_in_order()
            missing = [line for line in self.written if line not in {item.text for item in self.delivered}]
            assert missing == []
        finally:
            self.tail.close()
            shutil.rmtree(self.directory)

    @rule()
    def saved_lines_do_not_come_again(self) -> None:
        saved_before = set(self.saved_texts)
        self.crash()
        self.read(5)
        assert not saved_before & {line.text for line in self.since_start}


TailModel.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_tail_against_the_model = TailModel.TestCase
