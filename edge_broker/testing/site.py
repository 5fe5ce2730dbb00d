"""A whole broker without threads, sockets or real time: the test says when a worker works and when time passes.

| real | by hand |
|---|---|
| handlers, dispatcher, syncer, server, connections, store, codec | loop, workers, clock, transport, disk |

Contains: the broker, put together as `serve` does it. Does not contain: what a test expects of it.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from typing import Any, cast, get_args

from edge_broker.app import log_settings
from edge_broker.broker.api import Handler
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext, Session
from edge_broker.broker.operations.groups.group_loading import load_groups
from edge_broker.broker.outcomes import WorkerName
from edge_broker.configuration.config import BrokerConfig, Endpoint
from edge_broker.configuration.listeners import plaintext
from edge_broker.configuration.security_keys import PLAINTEXT
from edge_broker.configuration.settings import Value
from edge_broker.handlers import APIS, HANDLERS
from edge_broker.network.dispatch.dispatcher import Dispatcher
from edge_broker.network.server.listener_server import Server
from edge_broker.protocol.message import Message
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.topic import Topic
from edge_broker.testing.client import Client
from edge_broker.testing.clock import NOW_MS, HandClock
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.loop import Loop
from edge_broker.testing.steps import carried_out
from edge_broker.testing.worker import HandWorker


def make_topic(store: LogStore, name: str = "t", partitions: int = 1, config: dict[str, str] | None = None) -> Topic:
    """Make a topic and show it."""
    topic = store.topic_files.make_topic(name, partitions, config or {}, uuid.uuid4())
    store.add_topic(topic)
    return topic


def mark(store: LogStore, *logs: PartitionLog) -> None:
    """Write down that logs are in use, as the round does that a first acks=1 answer waits for."""
    for log in logs:
        if not log.settings.left_to_kernel:
            store.in_use.ask(log)
    marking = store.in_use.begin_write()
    if marking is not None:
        marking.run()
        store.in_use.end_write(marking)


class Site:
    """A broker on a simulated disk; `settings` are broker keys, `chance` makes ids and tokens.

    `in_cluster`: its logs are replicas; the caller makes it join. Brokers of one cluster share a `loop`.
    """

    def __init__(
        self,
        settings: Mapping[str, Value] | None = None,
        *,
        disk: SimulatedDisk | None = None,
        handlers: Mapping[int, Handler] = HANDLERS,
        settled: bool = True,
        chance: random.Random | None = None,
        start_ms: int = NOW_MS,
        loop: Loop | None = None,
        in_cluster: bool = False,
    ) -> None:
        self.settings = dict(settings or {})
        self.handlers = dict(handlers)
        self.disk = disk or SimulatedDisk(1)
        self.loop = loop or Loop()
        self.chance = chance or random.Random(1)
        self.clock = HandClock(self.loop, self.chance, start_ms)
        config = BrokerConfig(self.settings)
        self.store = LogStore.open(
            self.disk,
            "/data",
            log_settings(config),
            self.clock.refresh(),
            self.clock.new_uuid,
            in_cluster=in_cluster,
        )
        self.broker = Broker(config, self.store, self.clock, [plaintext(Endpoint("edge.local", 9092))])
        self.workers = {name: HandWorker(self.loop, name) for name in get_args(WorkerName)}
        self.disk_worker, self.files, self.reader = (self.workers[name] for name in ("disk", "files", "reader"))
        self.dispatcher = Dispatcher(
            self.broker,
            self.handlers,
            cast(Any, self.loop),
            cast(Any, self.workers),
        )
        self.server = Server(config, self.dispatcher, cast(Any, self.loop))
        self.dispatcher.start(lambda: load_groups(self.broker))
        if settled:
            self.run_until_idle()

    def run_until_idle(self) -> None:
        """Let loop and workers work until nothing is left to do without time passing."""
        while self.loop.run() or any(self.workers.values()):
            for worker in self.workers.values():
                if worker:
                    worker.step()

    def topic(
        self, name: str = "t", partitions: int = 1, config: dict[str, str] | None = None, *, marked: bool = True
    ) -> list[PartitionLog]:
        """Make a topic; its logs, marked as in use unless the test is about that."""
        logs = make_topic(self.store, name, partitions, config).partitions
        if marked:
            mark(self.store, *logs)
        return logs

    def client(self, listener: str = PLAINTEXT) -> Client:
        """A new connection to a listener."""
        return Client(self.server, self.loop, self.run_until_idle, listener)

    def run(self, key: int, request: Message, version: int = -1) -> Any:
        """The outcome of one handler as a plain function, with nothing around it."""
        version = APIS[key].max_version if version < 0 else version
        context = RequestContext(999, version, "test", Session("127.0.0.1:4711"))
        return carried_out(HANDLERS[key](self.broker, context, request))

    def reopen(self, how: str, *, settled: bool = True) -> Site:
        """The broker after a clean `stop`, a `kill` of the process or a power `cut`; not `settled`: just started.

        Its clock goes on where this one's stands. This site is not to be used any more.
        """
        if how == "stop":
            self.store.close()
        (self.disk.crash if how == "cut" else self.disk.kill)()
        return Site(self.settings, disk=self.disk, settled=settled, chance=self.chance, start_ms=self.clock.wall_ms())
