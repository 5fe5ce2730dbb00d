"""`make fuzz-login`: everything that is read before a log-in, by mutated exchanges of SASL and mutated TLS records.

Each number is a stranger (login_plays.py), who comes to a broker in this process or, by a socket, to one in a
process of its own. A failure prints the number, and SEED= begins there; what happened in this
process happens again in the same way.

| must hold (login_brokers.py) | in this process | over sockets |
|---|---|---|
| what comes is answered or its connection closed; no handler fails, no name is told | after each | after each |
| nothing but ApiVersions, SaslHandshake and SaslAuthenticate is served | after each | after ROUND |
| who does not know the password is nobody | after each | after ROUND |
| nobody stays without a log-in | after some | |
| nothing is kept of who has gone: connections, handshakes, shared memory, resident memory | after each | after ROUND |
| an honest log-in succeeds | after ROUND | after ROUND |
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import ssl
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.property.login_brokers import InMemory, OverSockets
from tests.support.certificates import Authority

T = TypeVar("T")
ROUND = 500
ROADS = ("memory", "memory by TLS", "socket", "socket by TLS")
WEIGHTS = (8, 4, 2, 1)


class Fuzz:
    """Both brokers, and how many strangers came by which road."""

    def __init__(self, directory: Path) -> None:
        authority = Authority(directory / "ca")
        keystore = authority.store("broker", "DNS:localhost,IP:127.0.0.1")
        self.context = ssl.create_default_context(cafile=str(authority.certificate))
        self.memory, self.sockets = InMemory(keystore), OverSockets(directory / "broker", keystore)
        self.came: Counter[str] = Counter()

    def stranger(self, number: int) -> None:
        """The stranger of this number comes and goes."""
        rnd = random.Random(number)
        (road,) = rnd.choices(ROADS, WEIGHTS)
        broker = self.memory if road.startswith("memory") else self.sockets
        broker.play(rnd, self.context if road.endswith("TLS") else None)
        self.came[road] += 1

    def see(self) -> str:
        """What must hold now and then."""
        return f"{self.memory.see()}, {self.sockets.see(self.context)}"


def fuzz(directory: Path, seed: int, seconds: float) -> None:
    """One stranger after another; exit status 1 after the first with whom something does not hold."""
    print(f"SEED={seed}", flush=True)
    fuzz = Fuzz(directory)
    with fuzz.sockets.broker:
        fuzz.sockets.make_topic()
        first = _quietly(fuzz.see, "at first")
        number, end = seed, time.monotonic() + seconds
        while time.monotonic() < end:
            for last in range(number, number + ROUND):
                _quietly(lambda last=last: fuzz.stranger(last), f"SEED={last}")  # type: ignore[misc]
            sizes = _quietly(fuzz.see, f"SEED={number} to {number + ROUND - 1}")
            number += ROUND
    by = ", ".join(f"{count} by {road}" for road, count in sorted(fuzz.came.items()))
    print(f"{number - seed} strangers ({by}); nothing found; at first {first}; at last {sizes}")


def _quietly(call: Callable[[], T], which: str) -> T:
    """Call without what the broker in this process logs; where something is found that is shown, and all ends."""
    log = io.StringIO()
    try:
        with contextlib.redirect_stderr(log):
            return call()
    except Exception:  # noqa: BLE001 - whatever it is, it was found
        print(log.getvalue()[-10_000:])
        traceback.print_exc(file=sys.stdout)
        print(f"found by {which}", flush=True)
        sys.exit(1)


def main() -> None:
    """Fuzz as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="login-fuzz-") as directory:
        fuzz(Path(directory), options.seed, options.seconds)


if __name__ == "__main__":
    main()
