"""Each kind of abuse in turn, and what it does to the broker and to an honest client (`make abuse`).

| held | bound |
|---|---|
| resident memory of the broker, every SAMPLE_S | RSS_MB_MAX |
| the honest client's p99, in all and of each kind with SAMPLES_MIN of its requests | FLOOR_MS_MAX above the floor |
| what was acked | is there at the end |
| honest log-ins from another address, by each mechanism, over TLS and without | none is refused; the slowest is shown |
| lines of each event, and bytes, in the broker's log | what LimitedLog allows, LOG_BYTES_A_SECOND_MAX, and no bug |
| what strangers and those without rights are answered | the name of a topic is not in it |
| the figure that a case is about | it grows, or nothing was tried |
| the loop, in one piece of a large request | shown |

The floor is that of the same client beside an idle broker at the same time. The two brokers, the honest clients and
the abusers are processes of their own; the abusers run at nice 19.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from edge_broker.configuration.config import STANDARD_AUTHORIZER
from edge_broker.network.log_lines import LINES_MAX, WINDOW_S
from tests.abuse.cases import always, by_strangers, cases
from tests.abuse.frames import Case
from tests.abuse.strangers import HANDSHAKES, SUCCESSFUL
from tests.support.certificates import Authority
from tests.support.processes import EdgeBroker, resident_mb
from tests.support.secured_edge import SecuredEdge

RSS_MB_MAX = 160
FLOOR_MS_MAX = 100.0
SAMPLES_MIN = 1000  # below that the 99th of a hundred is an accident
LOG_BYTES_A_SECOND_MAX = 16_384
SAMPLE_S = 0.01
CASE_S_MIN = 2.0
GROWN_BY_HONEST = (HANDSHAKES, SUCCESSFUL)
ROWS = len(always())
READY_S = 120.0


class Sampler(threading.Thread):
    """The broker's resident memory, over and over; `peak_mb` since it was last taken."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._peak_mb = 0.0
        self._ended = threading.Event()

    def run(self) -> None:
        """Sample until told to end."""
        while not self._ended.wait(SAMPLE_S):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                self._peak_mb = max(self._peak_mb, resident_mb(self._pid))

    def take(self) -> float:
        """The peak, and begin anew."""
        peak, self._peak_mb = self._peak_mb, 0.0
        return peak

    def end(self) -> None:
        """Sample no more."""
        self._ended.set()
        self.join()


class Honest:
    """The process of an honest client, which `module` has."""

    def __init__(self, module: str, *ports: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"tests.abuse.{module}", *map(str, ports)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._read() == "ready"

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError("the honest client ended; its traceback is above")
        return line

    def since(self) -> dict[str, Any]:
        """What it has to tell since this was last asked."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._read())
        return found

    def times(self) -> list[tuple[float, str]]:
        """How long its requests took since this was last asked, in milliseconds, and which they were."""
        found: dict[str, list[float]] = self.since()
        return sorted((1000 * one, name) for name, times in found.items() for one in times)

    def end(self) -> dict[str, Any]:
        """What was acked, and what is missing of it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        result: dict[str, Any] = json.loads(self._read())
        self._process.wait(READY_S)
        return result

    def kill(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait()


class Result(NamedTuple):
    """What one kind of abuse did."""

    rss_mb: float
    p99_ms: float
    floor_ms: float
    worst_ms: float
    worst: str
    counts: dict[str, int]
    log_ins: str
    faults: list[str]


def _lines_max(seconds: float) -> int:
    """How many lines of an event there may be in so long, whenever its windows begin.

    One user from one address has two sources: denials about the cluster, and log-ins as a user that exists, are apart.
    """
    return 2 * LINES_MAX * (int(seconds / WINDOW_S) + 2)


def quantile(times: list[tuple[float, str]], part: float) -> float:
    """The time below which so much of the sorted times lies; 0 of none."""
    return times[min(len(times) - 1, int(part * len(times)))][0] if times else 0.0


class Abuse:
    """Two brokers, one of them abused."""

    def __init__(self, directory: Path) -> None:
        settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
        keystore = Authority(directory / "ca", days=365).store("broker", "DNS:localhost,IP:127.0.0.1", days=365)
        self.broker = SecuredEdge(directory / "abused", name="abused", settings=settings, keystore=keystore)
        self.ports = {
            "CLIENT": self.broker.port,
            "LOGIN": self.broker.login_port,
            "TLS": self.broker.tls_port,
            "BOTH": self.broker.both_port,
        }
        self.idle = EdgeBroker(directory / "idle", name="idle")
        self.times_ms: list[tuple[float, str]] = []
        self.floor_ms: list[tuple[float, str]] = []

    def __enter__(self) -> Abuse:
        self.broker.start()
        self.idle.start()
        self.sampler = Sampler(self.broker.pid)
        self.sampler.start()
        self.honest, self.beside = Honest("honest", self.broker.port), Honest("honest", self.idle.port)
        self.log_ins = Honest("log_ins", self.ports["LOGIN"], self.ports["BOTH"])
        return self

    def __exit__(self, *_: object) -> None:
        for client in (self.honest, self.beside, self.log_ins):
            client.kill()
        self._next.kill()
        self._next.wait()
        self.sampler.end()
        self.idle.stop()
        self.broker.stop()

    def prepare(self, case: Case, seconds: float) -> None:
        """Start the abusers of the next case, who wait until it is their turn."""
        command = [sys.executable, "-m", "tests.abuse.abusers", str(self.ports[case.to]), str(seconds), case.name]
        self._next = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def suffer(self, case: Case, seconds: float, then: Case | None) -> Result:
        """One kind of abuse for so long, whose abusers are there; those of `then` get ready meanwhile."""
        with self._next as abusers:
            assert abusers.stdin is not None
            assert abusers.stdout is not None
            ready = abusers.stdout.readline().strip()
            self._times()
            self.log_ins.since()
            self.sampler.take()
            logged, figure, begin = self._logged(), self._figure(case), time.monotonic()
            abusers.stdin.write("\n")
            abusers.stdin.flush()
            if then is not None:
                self.prepare(then, seconds)
            found = abusers.stdout.readline()
        if ready != "ready" or abusers.returncode:
            raise RuntimeError(f"the abusers of {case.name!r} ended; their traceback is above")
        took = time.monotonic() - begin
        times, floor = self._times()
        p99, floor_ms, rss = quantile(times, 0.99), quantile(floor, 0.99), self.sampler.take()
        faults, counts, log_ins = [], json.loads(found), self.log_ins.since()
        if rss > RSS_MB_MAX:
            faults.append(f"{rss:.0f} MB resident")
        self.times_ms += times
        self.floor_ms += floor
        if len(times) >= SAMPLES_MIN and p99 > floor_ms + FLOOR_MS_MAX:
            faults.append(f"p99 {p99:.0f} ms beside {floor_ms:.0f}")
        lines, size = self._logged()
        lines, size = lines - logged[0], size - logged[1]
        faults += [f"{count} lines {event} in the log" for event, count in lines.items() if count > _lines_max(took)]
        if size > LOG_BYTES_A_SECOND_MAX * max(took, 1):
            faults.append(f"{size} bytes in the log")
        faults += [f"an honest log-in was refused, {why}" for why in log_ins["refused"]]
        if counts["revealed"] and case.to != "CLIENT":
            faults.append("a topic's name was revealed")
        honest = len(log_ins["seconds"]) + 1  # and the one under way
        if case.grows and self._figure(case) - figure <= (honest if case.grows in GROWN_BY_HONEST else 0):
            faults.append(f"{case.grows} has not grown")
        worst_ms, worst = max(times, default=(0.0, "nothing"))
        came = f"{len(log_ins['seconds'])} log-ins, the slowest {1000 * max(log_ins['seconds'], default=0.0):.0f} ms"
        return Result(rss, p99, floor_ms, worst_ms, worst, counts, came, faults)

    def _times(self) -> tuple[list[tuple[float, str]], list[tuple[float, str]]]:
        return self.honest.times(), self.beside.times()

    def _logged(self) -> tuple[Counter[str], int]:
        """How often each event is in the log, and its bytes."""
        log = self.broker.log_path.read_text()
        return Counter(re.findall(r"^\S+Z \w+ edge-broker (\S+)", log, re.MULTILINE)), len(log)

    def _figure(self, case: Case) -> float:
        return sum(self.metric(case.grows).values()) if case.grows else 0.0

    def metric(self, name: str) -> dict[str, float]:
        """One of the broker's figures, by its labels ("" without)."""
        with urllib.request.urlopen(self.broker.metrics_url, timeout=READY_S) as answer:
            text = answer.read().decode()
        found = re.findall(rf"^edge_broker_{name}(?:\{{(.*)\}})? (\S+)$", text, re.MULTILINE)
        return {labels: float(value) for labels, value in found}


def chosen(names: list[str], seconds: float, seed: int) -> list[Case]:
    """The cases whose names contain one of `names`; as many as there is time for.

    The rows of past trials come first, then what strangers do, then what is tried on each API: those by chance.
    """
    everything = [case for case in cases() if not names or any(name in case.name for name in names)]
    places = int(seconds / CASE_S_MIN)
    kinds = [{case.name for case in kind} for kind in (always(), by_strangers())]
    first, second = ([case for case in everything if case.name in kind] for kind in kinds)
    others = everything[len(first) + len(second) :]
    chance = random.Random(seed)
    chance.shuffle(second)
    chance.shuffle(others)
    return (first + second + others)[: max(places, len(first))]


def main() -> int:
    """Run what the command line asks for; 1 when something did not hold."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*", help="parts of names of cases; none: all")
    parser.add_argument("--seconds", type=float, default=180, help="for all together, %(default)s unless given")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="which cases a short run takes")
    options = parser.parse_args()
    wanted = chosen(options.names, options.seconds, options.seed)
    each = max(CASE_S_MIN, options.seconds / max(1, len(wanted)))
    print(f"seed {options.seed}: {len(wanted)} kinds of abuse, {each:.1f} s each", flush=True)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="abuse-") as directory, Abuse(Path(directory)) as abuse:
        begin, kinds = time.monotonic(), 0
        abuse.prepare(wanted[0], each)
        for case, then in zip(wanted, [*wanted[1:], None], strict=True):
            if kinds >= ROWS and time.monotonic() - begin > options.seconds:
                break
            kinds += 1
            result = abuse.suffer(case, each, then)
            failed += bool(result.faults)
            print(_line(case, result), flush=True)
        lost, bugs = abuse.honest.end(), abuse.metric("handler_failures_total")[""]
        print(f"{lost['acked']} acked, missing {lost['missing']}; {bugs:.0f} bugs")
        pieces = sorted(abuse.metric("longest_piece_seconds").items(), key=lambda found: -found[1])
        print("longest pieces, ms of CPU:", ", ".join(f"{name} {1e3 * seconds:.0f}" for name, seconds in pieces))
        p99, floor = (quantile(sorted(times), 0.99) for times in (abuse.times_ms, abuse.floor_ms))
        print(f"p99 of {len(abuse.times_ms)} honest requests {p99:.0f} ms, beside an idle broker {floor:.0f} ms")
        failed += bool(lost["missing"]) + bool(bugs) + (p99 > floor + FLOOR_MS_MAX)
    print(f"{kinds + 3 - failed} passed, {failed} failed")
    return 1 if failed else 0


def _line(case: Case, result: Result) -> str:
    counts = result.counts
    times = f"p99 {result.p99_ms:.0f} (floor {result.floor_ms:.0f}, worst {result.worst_ms:.0f}: {result.worst}) ms"
    did = f"{counts['requests']} requests, {counts['sent_bytes'] >> 20} MB, {counts['closed']} closed"
    text = (
        f"{'FAILED' if result.faults else 'ok':6} {case.name}: {result.rss_mb:.0f} MB, {times}; {result.log_ins}; {did}"
    )
    return "; ".join([text, *result.faults])


if __name__ == "__main__":
    sys.exit(main())
