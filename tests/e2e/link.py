"""The link to the datacenter: a local TCP proxy as a process of its own that can be cut and restored by signals.

`kill -USR1 PID` cuts, `kill -USR2 PID` restores. While it is cut nothing is forwarded and nothing is closed, as when
a radio link is gone: bytes wait in the senders' buffers, new connections are accepted by the kernel and hear nothing.
Once a second it writes `{"up": bool, "bytes_up": N, "bytes_down": N, "connections": N}` to the status file.
It does not know which protocol it carries, so a Kafka broker behind it must advertise the proxy's address.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

CHUNK_BYTES_MAX = 65_536


class Link:
    """Forwards connections to one target while it is up."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._up = asyncio.Event()
        self._up.set()
        self.bytes_up = 0
        self.bytes_down = 0
        self.connections = 0

    def cut(self) -> None:
        """Stop forwarding."""
        self._up.clear()

    def restore(self) -> None:
        """Forward again, what has waited first."""
        self._up.set()

    def status(self) -> str:
        """The state as one JSON object."""
        return json.dumps(
            {
                "up": self._up.is_set(),
                "bytes_up": self.bytes_up,
                "bytes_down": self.bytes_down,
                "connections": self.connections,
            }
        )

    async def serve(self, near: asyncio.StreamReader, near_writer: asyncio.StreamWriter) -> None:
        """Carry one connection until either side ends it."""
        self.connections += 1
        try:
            await self._up.wait()
            far, far_writer = await asyncio.open_connection(*self._target)
            try:
                await self._carry_both(near, near_writer, far, far_writer)
            finally:
                far_writer.close()
        except OSError as error:
            print(f"link: connection ended: {error}", file=sys.stderr)
        finally:
            self.connections -= 1
            near_writer.close()

    async def _carry_both(
        self,
        near: asyncio.StreamReader,
        near_writer: asyncio.StreamWriter,
        far: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        ways = [
            asyncio.create_task(self._carry(near, far_writer, "bytes_up")),
            asyncio.create_task(self._carry(far, near_writer, "bytes_down")),
        ]
        done, rest = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in rest:
            way.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        for way in done:
            way.result()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counter: str) -> None:
        while chunk := await reader.read(CHUNK_BYTES_MAX):
            await self._up.wait()
            writer.write(chunk)
            await writer.drain()
            setattr(self, counter, getattr(self, counter) + len(chunk))


async def run(listen: tuple[str, int], target: tuple[str, int], status_path: Path) -> None:
    """Serve until SIGTERM or SIGINT, writing the status once a second and at every change."""
    link, stop = Link(target), asyncio.Event()
    loop = asyncio.get_running_loop()

    def write_status() -> None:
        partial = status_path.with_suffix(".partial")
        partial.write_text(link.status())
        partial.replace(status_path)

    def change(step: str) -> None:
        getattr(link, step)()
        write_status()

    loop.add_signal_handler(signal.SIGUSR1, change, "cut")
    loop.add_signal_handler(signal.SIGUSR2, change, "restore")
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await asyncio.start_server(link.serve, *listen)
    write_status()
    print("link ready", flush=True)
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), timeout=1)
        write_status()


def address(text: str) -> tuple[str, int]:
    """HOST:PORT as a pair."""
    host, _, port = text.rpartition(":")
    return host, int(port)


def main(words: Sequence[str] | None = None) -> int:
    """Run the link."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.link", description="A TCP link that can be cut.")
    parser.add_argument("--listen", required=True, type=address, metavar="HOST:PORT")
    parser.add_argument("--target", required=True, type=address, metavar="HOST:PORT")
    parser.add_argument("--status", required=True, type=Path, metavar="FILE", help="JSON, rewritten once a second")
    options = parser.parse_args(words)
    asyncio.run(run(options.listen, options.target, options.status))
    return 0


if __name__ == "__main__":
    sys.exit(main())
