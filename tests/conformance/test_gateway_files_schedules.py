"""Random rotations with a real gateway and a real broker: each line is a record, a dead letter or in the ledger.

| actor | steps |
|---|---|
| program, its clock may jump | write lines, some of them too long, and beginnings of lines |
| rotating tool, one of five (`tests.simulation.rotating_tools`) | rotate, up to four times at once |
| gateway process | kill -9, stop, stay stopped, start |
| broker process | stand still, go on; kill -9 and start |

A seed decides a schedule, and a failure prints it. The schedules in process are tests/simulation/gateway_files.py.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gateway.records import CAUSE_TOO_LARGE
from tests.simulation.gateway_files import LINE_BYTES_MAX, Program
from tests.simulation.rotating_tools import TOOLS, RotatingTool
from tests.support import runtimes
from tests.support.gateway_site import read_whole
from tests.support.ports import free_port
from tests.support.processes import EdgeBroker, Process, all_stopped, wait_until

SCHEDULES = 50
FEW = 3  # for each change; the night plays all
STEPS = 25


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeBroker]:
    with EdgeBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


class LongLineProgram(Program):
    """A program that writes lines above `line_bytes_max`, too."""

    def _line(self) -> bytes:
        long = b"x" * self.chance.randint(LINE_BYTES_MAX, 4 * LINE_BYTES_MAX)
        return super()._line() + (long if self.chance.random() < 0.03 else b"")


class Schedule:
    """One schedule's program, gateway and topics."""

    def __init__(
        self, edge: EdgeBroker, directory: Path, seed: int, tools: Sequence[type[RotatingTool]] = TOOLS
    ) -> None:
        self.edge, self.chance = edge, random.Random(seed)
        self.topic = f"files-{seed}" if tools is TOOLS else f"files-{tools[0].__name__}-{seed}"
        self.logs, self.state = directory / "logs", directory / "state"
        self.logs.mkdir(parents=True)
        self.program = LongLineProgram(self.chance, self.logs, tools)
        tool = self.program.tool
        config = directory / "g.toml"
        config.write_text(
            f'state_dir = "{self.state}"\nmetrics = "127.0.0.1:{free_port()}"\n'
            f'[kafka]\nbootstrap_servers = "{edge.bootstrap}"\ndead_letter_topic = "{self.topic}-dead"\n'
            f'[[files]]\npath = "{tool.path}"\ntopic = "{self.topic}"\nline_bytes_max = {LINE_BYTES_MAX}\n'
            "poll_interval_ms = 20\nrotate_wait_ms = 100\nsave_interval_ms = 0\n"
            + ("" if tool.rotated is None else f'rotated = "{tool.rotated}"\n')
        )
        command: list[str | Path] = [runtimes.console_script("edge-gateway"), "run", "--config", config]
        self.gateway = Process("gateway", command, directory, ready="edge-gateway ready")
        self.is_still = False

    def play(self) -> None:
        """Take all steps, and wait until every line is accounted for."""
        self.program.write()
        self.gateway.start()
        wait_until(lambda: any(self.state.glob("files/*.json")), 20, "the gateway knows the file")
        names, weights = ["write", "rotate", "wait", "gateway", "broker"], [40, 25, 15, 10, 4]
        for _ in range(STEPS):
            getattr(self, f"_{self.chance.choices(names, weights)[0]}")()
        self._come_to_rest()
        wait_until(lambda: self._account() == "", 60, "every line is accounted for", seen=self._account)
        self.gateway.stop()
        assert self._account() == ""

    def _come_to_rest(self) -> None:
        self.let_broker_go_on()
        self.program.tool.append(b"", 0.0)  # the last rotated file's unfinished line ends where a next file exists
        if not self.gateway.running:
            self.gateway.start()

    def let_broker_go_on(self) -> None:
        """End the broker's standstill."""
        if self.is_still:
            self.edge.send_signal(signal.SIGCONT)
        self.is_still = False

    def _write(self) -> None:
        self.program.write()

    def _rotate(self) -> None:
        for _ in range(self.chance.choice((1, 1, 1, 2, 4))):
            self.program.rotate()
            if self.chance.random() < 0.8:
                self.program.write()

    def _wait(self) -> None:
        time.sleep(self.chance.uniform(0, 0.2))  # the gateway's polls and the program's steps in any order

    def _gateway(self) -> None:
        if not self.gateway.running:
            self.let_broker_go_on()
            self.gateway.start()
        elif self.is_still or self.chance.random() < 0.5:
            self.gateway.kill()
        else:
            self.gateway.stop()

    def _broker(self) -> None:
        if self.is_still:
            self.let_broker_go_on()
        elif self.chance.random() < 0.5:
            self.edge.send_signal(signal.SIGSTOP)
            self.is_still = True
        else:
            self.edge.kill()
            self._rotate()
            self.edge.start()

    def _account(self) -> str:
        """Return what is wrong with the records, the dead letters and the ledger; empty where nothing is."""
        written, lost = self.program.written, self.ledgered()
        records, letters = self._arrived()
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

    def _arrived(self) -> tuple[set[bytes], set[bytes]]:
        """Return the records and the dead letters."""
        topics = (self.topic, f"{self.topic}-dead")
        records, letters = ([one.value() or b"" for one in read_whole(self.edge.bootstrap, topic)] for topic in topics)
        return set(records), set(letters)

    def missing(self) -> int:
        """Return how many lines are neither records nor dead letters."""
        arrived = set[bytes]().union(*self._arrived())
        return sum(line not in arrived for line in self.program.written)

    def ledgered(self) -> list[int | None]:
        """Return the sizes of the losses."""
        rows = (json.loads(message.value() or b"") for message in read_whole(self.edge.bootstrap, "__edge_ledger"))
        own = {row["id"]: row for row in rows if row["topic"] == self.topic and row["cause"] != CAUSE_TOO_LARGE}
        return [row["bytes"] for row in own.values()]


def play(edge: EdgeBroker, directory: Path, seed: int) -> None:
    schedule = Schedule(edge, directory / str(seed), seed)
    try:
        with all_stopped(schedule.gateway):
            schedule.play()
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
    finally:
        schedule.let_broker_go_on()


@pytest.mark.parametrize("seed", range(FEW))
def test_every_line_is_accounted_for(edge: EdgeBroker, tmp_path: Path, seed: int) -> None:
    play(edge, tmp_path, seed)


@pytest.mark.night
@pytest.mark.timeout(3_600)
def test_every_line_is_accounted_for_in_many_schedules(edge: EdgeBroker, tmp_path: Path) -> None:
    first = random.SystemRandom().randrange(1 << 32)
    for seed in range(first, first + SCHEDULES):
        play(edge, tmp_path, seed)
