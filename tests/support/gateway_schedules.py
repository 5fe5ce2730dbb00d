"""Random schedules of a gateway process and a broker process; a test adds what the gateway follows.

| actor | steps |
|---|---|
| gateway process | kill -9, stop, stay stopped, start |
| broker process | stand still, go on; kill -9 and start |

A seed decides a schedule, and a failure prints it. Does not contain: programs that write lines or entries.
"""

from __future__ import annotations

import json
import random
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.support import runtimes
from tests.support.gateway_site import read_whole
from tests.support.ports import free_port
from tests.support.processes import EdgeBroker, Process, all_stopped, wait_until

SCHEDULES = 50
FEW = 3  # for each change; the night plays all
STEPS = 25
ACCOUNT_S = 60


class GatewaySchedule(ABC):
    """A broker, a gateway with one source and one topic, and the steps of both; a step `x` is the method `_x`."""

    def __init__(
        self,
        edge: EdgeBroker,
        directory: Path,
        chance: random.Random,
        topic: str,
        *,
        source: str,
        weights: Mapping[str, int],
    ) -> None:
        """`source` is the configuration's section of what the gateway follows; `weights`, how often each step comes."""
        self.edge, self.chance, self.topic = edge, chance, topic
        self.state = directory / "state"
        self._weights = weights
        config = directory / "g.toml"
        config.write_text(
            f'state_dir = "{self.state}"\nmetrics = "127.0.0.1:{free_port()}"\n'
            f'[kafka]\nbootstrap_servers = "{edge.bootstrap}"\ndead_letter_topic = "{topic}-dead"\n{source}'
        )
        command: list[str | Path] = [runtimes.console_script("edge-gateway"), "run", "--config", config]
        self.gateway = Process("gateway", command, directory, ready="edge-gateway ready")
        self.is_still = False

    def play(self) -> None:
        """Take all steps, and wait until everything that was written is accounted for."""
        self._begin()
        for _ in range(STEPS):
            (step,) = self.chance.choices(list(self._weights), list(self._weights.values()))
            getattr(self, f"_{step}")()
        self._come_to_rest()
        wait_until(lambda: self._account() == "", ACCOUNT_S, "everything is accounted for", seen=self._account)
        self.gateway.stop()
        assert self._account() == ""

    def close(self) -> None:
        """Let the broker go on, and close what the schedule has open."""
        self.let_broker_go_on()

    def let_broker_go_on(self) -> None:
        """End the broker's standstill."""
        if self.is_still:
            self.edge.send_signal(signal.SIGCONT)
        self.is_still = False

    @abstractmethod
    def _account(self) -> str:
        """Return what is wrong with the records, the dead letters and the ledger; empty where nothing is."""

    @abstractmethod
    def _go_on_writing(self) -> None:
        """Let the programs write while the broker is dead."""

    def _begin(self) -> None:
        self.gateway.start()

    def _come_to_rest(self) -> None:
        self.let_broker_go_on()
        if not self.gateway.running:
            self.gateway.start()

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
            self._go_on_writing()
            self.edge.start()

    def arrived(self, topic: str) -> set[bytes]:
        """Return the values of all records of a topic."""
        return {message.value() or b"" for message in read_whole(self.edge.bootstrap, topic)}

    def losses(self) -> list[dict[str, Any]]:
        """Return the topic's ledger records, each once."""
        rows = (json.loads(message.value() or b"") for message in read_whole(self.edge.bootstrap, "__edge_ledger"))
        return list({row["id"]: row for row in rows if row["topic"] == self.topic}.values())


def play(start: Callable[[Path, int], GatewaySchedule], directory: Path, seed: int) -> None:
    """Play the schedule of that seed in a directory of its own; an error names the seed."""
    schedule = start(directory / str(seed), seed)
    try:
        with all_stopped(schedule.gateway):
            schedule.play()
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
    finally:
        schedule.close()


def play_many(start: Callable[[Path, int], GatewaySchedule], directory: Path) -> None:
    """Play SCHEDULES schedules from a new seed on."""
    first = random.SystemRandom().randrange(1 << 32)
    for seed in range(first, first + SCHEDULES):
        play(start, directory, seed)
