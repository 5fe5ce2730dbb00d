"""Runs one schedule of rotations against a real gateway."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

from gateway.records.records import CAUSE_TOO_LARGE
from tests.simulation.gateway_files import LINE_BYTES_MAX, Program
from tests.simulation.rotating_tools import TOOLS, RotatingTool
from tests.support.gateway_schedules import GatewaySchedule
from tests.support.processes import EdgeBroker, wait_until


class LongLineProgram(Program):
    """A program that writes lines above `line_bytes_max`, too."""

    def _line(self) -> bytes:
        long = b"x" * self.chance.randint(LINE_BYTES_MAX, 4 * LINE_BYTES_MAX)
        return super()._line() + (long if self.chance.random() < 0.03 else b"")


WEIGHTS = {"write": 40, "rotate": 25, "wait": 15, "gateway": 10, "broker": 4}


class FilesSchedule(GatewaySchedule):
    """One schedule's program and rotating tool, with a gateway that follows the file."""

    def __init__(
        self, edge: EdgeBroker, directory: Path, seed: int, tools: Sequence[type[RotatingTool]] = TOOLS
    ) -> None:
        chance = random.Random(seed)
        logs = directory / "logs"
        logs.mkdir(parents=True)
        self.program = LongLineProgram(chance, logs, tools)
        tool, topic = self.program.tool, f"files-{seed}" if tools is TOOLS else f"files-{tools[0].__name__}-{seed}"
        source = (
            f'[[files]]\npath = "{tool.path}"\ntopic = "{topic}"\nline_bytes_max = {LINE_BYTES_MAX}\n'
            "poll_interval_ms = 20\nrotate_wait_ms = 100\nsave_interval_ms = 0\n"
        )
        source += "" if tool.rotated is None else f'rotated = "{tool.rotated}"\n'
        super().__init__(edge, directory, chance, topic, source=source, weights=WEIGHTS)

    def _begin(self) -> None:
        self.program.write()
        super()._begin()
        wait_until(lambda: any(self.state.glob("files/*.json")), 20, "the gateway knows the file")

    def _come_to_rest(self) -> None:
        self.program.tool.append(b"", 0.0)  # the last rotated file's unfinished line ends where a next file exists
        super()._come_to_rest()

    def _write(self) -> None:
        self.program.write()

    def _rotate(self) -> None:
        for _ in range(self.chance.choice((1, 1, 1, 2, 4))):
            self.program.rotate()
            if self.chance.random() < 0.8:
                self.program.write()

    def _go_on_writing(self) -> None:
        self._rotate()

    def _wait(self) -> None:
        time.sleep(self.chance.uniform(0, 0.2))  # the gateway's polls and the program's steps in any order

    def _account(self) -> str:
        """Return what is wrong with the records, the dead letters and the ledger; empty where nothing is."""
        written, lost = self.program.written, self.ledgered()
        records, letters = self.arrived(self.topic), self.arrived(f"{self.topic}-dead")
        arrived = records | letters
        missing = [line for line in written if line not in arrived]
        strange = [line for line in arrived if line not in written]
        wrong_topic = [line for line in records if len(line) > LINE_BYTES_MAX]
        wrong_topic += [line for line in letters if len(line) <= LINE_BYTES_MAX]
        kept = self.program.tool.lines_kept()
        unread = [line for line in missing if line in kept]
        missing_bytes = sum(len(line) + 1 for line in missing)
        is_known = None in lost or missing_bytes <= sum(size or 0 for size in lost) + len(lost)
        is_false = bool(lost) and not self.program.tool.can_lose
        if is_known and not (unread or strange or wrong_topic or is_false):
            return ""
        return (
            f"{self.program.tool}: {len(written)} written, {len(missing)} missing such as {missing[:1]}, "
            f"{len(unread)} of them still in files such as {unread[:1]}, "
            f"ledgered {lost}, never written {strange[:1]}, in the wrong topic {wrong_topic[:1]}"
        )

    def missing(self) -> int:
        """Return how many lines are neither records nor dead letters."""
        arrived = self.arrived(self.topic) | self.arrived(f"{self.topic}-dead")
        return sum(line not in arrived for line in self.program.written)

    def ledgered(self) -> list[int | None]:
        """Return the sizes of the losses."""
        return [row["bytes"] for row in self.losses() if row["cause"] != CAUSE_TOO_LARGE]
