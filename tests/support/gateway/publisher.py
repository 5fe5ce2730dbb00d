"""A publisher that keeps what sources hand to it, and the configuration of a source."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast

from gateway.config import GatewayConfig, parse_config
from gateway.kafka.publisher import Publisher
from gateway.records.records import Loss, Record
from gateway.sources.files.files import load_family


class FakePublisher:
    """Keeps what is offered until the test acknowledges it."""

    def __init__(self) -> None:
        self.records: list[tuple[Record, Callable[[], None]]] = []
        self.losses: list[tuple[Loss, Callable[[], None]]] = []
        self.letters: list[tuple[Record, str, Loss | None]] = []

    full = False

    async def room(self) -> None:
        await asyncio.sleep(0)

    def offer(self, record: Record, on_acked: Callable[[], None]) -> None:
        self.records.append((record, on_acked))

    def report(self, loss: Loss, on_acked: Callable[[], None], *, reason: str) -> None:
        assert reason
        self.losses.append((loss, on_acked))

    def dead_letter(
        self, record: Record, reason: str, detail: str, on_acked: Callable[[], None], loss: Loss | None = None
    ) -> None:
        assert detail
        self.letters.append((record, reason, loss))

    def as_publisher(self) -> Publisher:
        return cast(Publisher, self)


def config(tmp_path: Path, text: str) -> GatewayConfig:
    head = f'state_dir = "{tmp_path}/state"\n[kafka]\nbootstrap_servers = "h:1"\n'
    return parse_config(tmp_path / "g.toml", head + text)


def saved_position(path: Path) -> int | None:
    family = load_family(path)
    return None if family is None else family.place.position
