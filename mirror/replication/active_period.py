"""The active period: the time during which this mirror is the one of its site that writes.

Each period has a sender and producer sessions of its own, with or without transactions. This is the only place that
chooses between the two. Does not contain: which mirror is active (client/active_election.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from drupelet.observe.log_tree import Log
from mirror.client.target_client import Target
from mirror.config import Config
from mirror.link.link_model import Link
from mirror.partition.state_records import topic_name
from mirror.producer import sender
from mirror.producer.sender import Sender, Settings
from mirror.producer.transactional_sender import TransactionalSender
from mirror.replication import backoffs
from mirror.session import session_start
from mirror.session.producer_sessions import ProducerSessions
from mirror.session.transactional_sessions import TROUBLE, TransactionalSessions

_log = Log("mirror")


class Listener(sender.Host, session_start.Host, Protocol):
    """Receives what the sender and the sessions report."""


class ActivePeriod:
    """The current active period; `sender` and `sessions` exist from the first `start` on, and are new after each."""

    sender: Sender
    sessions: ProducerSessions

    def __init__(self, target: Target, link: Link, config: Config, problems: Mapping[str, str]) -> None:
        self._target, self._link, self._config, self._problems = target, link, config, problems
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_active(self) -> bool:
        """Whether a period has started and not ended."""
        return bool(self._tasks)

    @property
    def is_unfenced(self) -> bool:
        """Whether the target accepts batches that an older mirror still sends."""
        return self.is_active and self.sessions.is_unfenced

    @property
    def silent_s(self) -> float:
        """For how long, in seconds, the oldest request to the target has had no response."""
        return self.sender.oldest_s(asyncio.get_running_loop().time()) if self.is_active else 0.0

    def start(self, tasks: asyncio.TaskGroup, listener: Listener) -> None:
        """Make a sender and sessions, and run them in `tasks`."""
        config = self._config
        backoff = backoffs.BACKOFF_FIRST_S, config.backoff_max_ms / 1000
        name, replicas = topic_name(config.group_id), config.target_replication_factor
        if config.transactions:
            sessions = TransactionalSessions(
                self._target, name, replicas, listener, backoff, config.transaction_timeout_ms
            )
            self.sessions = sessions
            self.sender = TransactionalSender(
                self._target, sessions, self._link, self._settings(), listener, config.buffer_bytes_max
            )
        else:
            self.sessions = ProducerSessions(self._target, name, replicas, listener, backoff)
            self.sender = Sender(self._target, self.sessions, self._link, self._settings(), listener)
        self._tasks = [tasks.create_task(self.sender.run()), tasks.create_task(self.sessions.run())]

    async def finish(self) -> None:
        """Wait until the batches in flight are acknowledged, for the stop timeout at most."""
        try:
            async with asyncio.timeout(self._config.stop_timeout_ms / 1000):
                await self.sender.finish()
        except TimeoutError:
            _log.warning("stopped_without_ack", bytes=self._link.under_way_bytes)

    async def end(self) -> list[str]:
        """Stop the sender and the sessions; return the names of the problems that end with them."""
        for task in self._tasks:
            task.cancel()
        await self.sender.close()
        self._tasks = []
        return ["state topic", TROUBLE, *(one for one in self._problems if one.startswith("target broker "))]

    def _settings(self) -> Settings:
        config = self._config
        return Settings(
            config.batch_bytes_max,
            config.request_timeout_ms / 1000,
            config.delivery_timeout_ms / 1000,
            backoffs.BACKOFF_FIRST_S,
            config.backoff_max_ms / 1000,
            config.buffer_bytes_max,
        )
