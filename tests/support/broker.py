"""A whole broker without threads, sockets or real time: the test says when a worker works and when time passes.

Real: handlers, dispatcher, syncer, server, connections, store, codec. By hand: loop, workers, clock, transport, disk.
"""

from __future__ import annotations

import heapq
import itertools
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, cast, get_args

from edge_broker.app import log_settings
from edge_broker.broker.api import Handler
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext, Session
from edge_broker.broker.group_loading import load_groups
from edge_broker.broker.outcome import Behind, Outcome, Steps, WorkerName
from edge_broker.clock import Reading
from edge_broker.config import BrokerConfig, Endpoint
from edge_broker.handlers import APIS, HANDLERS
from edge_broker.network.connection import Connection
from edge_broker.network.dispatcher import Dispatcher
from edge_broker.network.server import Server
from edge_broker.network.worker import Jobs
from edge_broker.protocol.api import API_VERSIONS
from edge_broker.protocol.codec import decode, encode
from edge_broker.protocol.message import Message
from edge_broker.settings import Value
from edge_broker.storage.log import PartitionLog
from edge_broker.storage.store import LogStore
from tests.simulation.disk import SimulatedDisk
from tests.support.steps import ended
from tests.support.storage import NOW_MS, make_topic, mark, reading_at


def carried_out(outcome: Outcome) -> Any:
    """What is left when an outcome's steps are taken."""
    while isinstance(outcome, Steps):
        outcome = ended(outcome.steps)
    return outcome


class Handle:
    """A callback that is due."""

    def __init__(self, call: Callable[..., object], arguments: tuple[object, ...]) -> None:
        self.call: Callable[..., object] | None = call
        self.arguments = arguments

    def cancel(self) -> None:
        """Never call it."""
        self.call = None

    def run(self) -> None:
        """Call it, unless it was cancelled."""
        if self.call is not None:
            self.call(*self.arguments)


class Loop:
    """What the broker needs of an event loop, with time that passes only when told to."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._soon: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._count = itertools.count()

    def time(self) -> float:
        """Seconds since the test began."""
        return self.now_s

    def call_soon(self, call: Callable[..., object], *arguments: object) -> Handle:
        """Call in the next `run`."""
        handle = Handle(call, arguments)
        self._soon.append(handle)
        return handle

    def call_later(self, delay_s: float, call: Callable[..., object], *arguments: object) -> Handle:
        """Call once so much time has passed."""
        handle = Handle(call, arguments)
        heapq.heappush(self._timers, (self.now_s + delay_s, next(self._count), handle))
        return handle

    def run(self) -> bool:
        """Run everything that is due now; False when there was nothing."""
        ran = bool(self._soon)
        while self._soon:
            self._soon.popleft().run()
        return ran

    def advance(self, ms: float) -> None:
        """Let time pass, running each timer at its time."""
        end = self.now_s + ms / 1000
        while self._timers and self._timers[0][0] <= end:
            self.now_s, _, handle = heapq.heappop(self._timers)
            handle.run()
            self.run()
        self.now_s = end
        self.run()


class HandWorker:
    """A worker thread whose jobs run when the test says so."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.submitted = 0
        self._jobs = Jobs()
        self._done: deque[tuple[Callable[[Any, Exception | None], None], Any, Exception | None]] = deque()

    def __len__(self) -> int:
        return len(self._jobs) + len(self._done)

    def submit(
        self, work: Callable[[], Any], done: Callable[[Any, Exception | None], None], *, background: bool = False
    ) -> None:
        """Queue a job."""
        self.submitted += 1
        self._jobs.put((work, done), background=background)

    def work(self) -> None:
        """Do one job in the worker; the loop does not know yet."""
        work, done = self._jobs.take()
        try:
            self._done.append((done, work(), None))
        except Exception as error:  # noqa: BLE001 - as the real worker does
            self._done.append((done, None, error))

    def report(self) -> None:
        """Let the loop learn of everything that is done."""
        while self._done:
            done, result, error = self._done.popleft()
            self._loop.call_soon(done, result, error)
        self._loop.run()

    @property
    def idle(self) -> bool:
        """True when no job is left to be done; what is done may not be reported yet."""
        return not self._jobs

    def step(self) -> None:
        """Do one job and report it."""
        if self._jobs:
            self.work()
        self.report()


class HandClock:
    """The loop's time since NOW_MS."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return NOW_MS + round(self._loop.now_s * 1000)

    def steady_ms(self) -> int:
        """The same: nobody sets this clock."""
        return self.wall_ms()

    def seconds(self) -> float:
        """The loop's time."""
        return self._loop.now_s

    def cpu_seconds(self) -> float:
        """The loop's time: work takes none."""
        return self._loop.now_s

    def reading(self) -> Reading:
        """The loop's time, which is right."""
        return reading_at(self.wall_ms())

    def look(self) -> Reading:
        """The same."""
        return self.reading()

    def new_uuid(self) -> uuid.UUID:
        """A random UUID."""
        return uuid.uuid4()

    def new_token(self) -> str:
        """A random text."""
        return uuid.uuid4().hex


class Transport:
    """The near end of a connection; `sent` is what the broker wrote, kept back in `unread` once `stuck`."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.reading = True
        self.closed = False
        self.protocol: Connection | None = None
        self.buffered = 0
        self.stuck = False
        self.high = 1 << 62

    def get_extra_info(self, name: str) -> object:
        """An address, no socket."""
        return ("127.0.0.1", 4711) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        """Keep the limit."""
        self.high = high

    def write(self, data: bytes) -> None:
        """Send, or buffer when the client is stuck."""
        self.sent += data
        if self.stuck:
            before, self.buffered = self.buffered, self.buffered + len(data)
            if before <= self.high < self.buffered and self.protocol is not None:
                self.protocol.pause_writing()

    def writelines(self, parts: list[bytes]) -> None:
        """Send all parts."""
        self.write(b"".join(parts))

    def get_write_buffer_size(self) -> int:
        """What the client has not read."""
        return self.buffered

    def drain(self) -> None:
        """The client reads again."""
        self.stuck = False
        self.buffered = 0
        if self.protocol is not None:
            self.protocol.resume_writing()

    def pause_reading(self) -> None:
        """Take nothing more from the client."""
        self.reading = False

    def resume_reading(self) -> None:
        """Take more from the client."""
        self.reading = True

    def is_closing(self) -> bool:
        """True once closed."""
        return self.closed

    def abort(self) -> None:
        """Close."""
        self.closed = True

    close = abort


class Client:
    """One connection; requests go through the codec, answers come back through it, in the order they were sent."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.connection = Connection(site.server, site.loop.time)
        self.transport = Transport()
        self.transport.protocol = self.connection
        self.connection.connection_made(cast(Any, self.transport))
        self._sent: dict[int, tuple[int, int]] = {}
        self._next_id = 1

    def frame(self, key: int, request: Message, version: int = -1, body: bytes | None = None) -> bytes:
        """A request as it goes over the wire, size included; the newest version unless told."""
        version = APIS[key].max_version if version < 0 else version
        correlation_id = self._next_id
        self._next_id += 1
        self._sent[correlation_id] = (key, version)
        header = b"".join(number.to_bytes(2, "big") for number in (key, version)) + correlation_id.to_bytes(4, "big")
        header += b"\0\4test" + (b"\0" if version >= APIS[key].flexible_from else b"")
        frame = header + (b"".join(encode(request, version)) if body is None else body)
        return len(frame).to_bytes(4, "big") + frame

    def feed(self, data: bytes) -> None:
        """Bytes arrive; what finds no room in the receive buffer arrives later, unless reading stops."""
        position = 0
        while position < len(data) and not self.transport.closed:
            buffer = self.connection.get_buffer(-1)
            take = min(len(buffer), len(data) - position)
            buffer[:take] = data[position : position + take]
            del buffer  # as the loop lets go of it: what it is a view of may grow
            self.connection.buffer_updated(take)
            position += take
            self.lose_when_closed()

    def lose_when_closed(self) -> None:
        """What the loop does once a transport was aborted."""
        if self.transport.closed and self.connection.transport is not None:
            self.connection.connection_lost(None)

    def send(self, key: int, request: Message, version: int = -1) -> None:
        """Send a request and let the loop run, the workers not."""
        self.feed(self.frame(key, request, version))
        self.site.loop.run()

    def lose(self) -> None:
        """The connection breaks."""
        self.transport.closed = True
        self.lose_when_closed()

    def answers(self) -> list[Any]:
        """The responses that have come since the last call."""
        found: list[Any] = []
        data = bytes(self.transport.sent)
        self.transport.sent.clear()
        position = 0
        while position < len(data):
            size = int.from_bytes(data[position : position + 4], "big")
            frame = memoryview(data)[position + 4 : position + 4 + size]
            key, version = self._sent.pop(int.from_bytes(frame[:4], "big"))
            flexible = version >= APIS[key].flexible_from and key != API_VERSIONS
            found.append(decode(APIS[key].response, version, frame, 5 if flexible else 4))
            position += 4 + size
        return found

    def answer(self) -> Any:
        """The one response that has come."""
        found = self.answers()
        assert len(found) == 1, found
        return found[0]

    def ask(self, key: int, request: Message, version: int = -1) -> Any:
        """Send a request, let everything work that can without time passing, and take the one response."""
        self.send(key, request, version)
        self.site.settle()
        return self.answer()


class Site:
    """A broker on a simulated disk; `settings` are broker keys."""

    def __init__(
        self,
        settings: Mapping[str, Value] | None = None,
        *,
        disk: SimulatedDisk | None = None,
        handlers: Mapping[int, Handler] = HANDLERS,
        settled: bool = True,
    ) -> None:
        self.settings = dict(settings or {})
        self.handlers = dict(handlers)
        self.disk = disk or SimulatedDisk(1)
        self.loop = Loop()
        self.clock = HandClock(self.loop)
        config = BrokerConfig(self.settings)
        self.store = LogStore.open(self.disk, "/data", log_settings(config), self.clock.look(), uuid.uuid4)
        self.broker = Broker(config, self.store, self.clock, Endpoint("edge.local", 9092))
        self.workers = {name: HandWorker(self.loop) for name in get_args(WorkerName)}
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
            self.settle()

    def settle(self) -> None:
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

    def client(self) -> Client:
        """A new connection."""
        return Client(self)

    def run(self, key: int, request: Message, version: int = -1) -> Any:
        """The outcome of one handler as a plain function, with nothing around it."""
        version = APIS[key].max_version if version < 0 else version
        context = RequestContext(999, version, "test", Session("127.0.0.1:4711"))
        return carried_out(HANDLERS[key](self.broker, context, request))

    def reopen(self, how: str, *, settled: bool = True) -> Site:
        """The broker after a clean `stop`, a `kill` of the process or a power `cut`; not `settled`: just started."""
        if how == "stop":
            self.store.close()
        (self.disk.crash if how == "cut" else self.disk.kill)()
        return Site(self.settings, disk=self.disk, settled=settled)


class HalfWay:
    """A request of which so many steps are taken, and no more until `answer`; others come between."""

    NAME = "halfway"

    def __init__(self, site: Site, key: int, request: Message, steps: int) -> None:
        self._site = site
        self._client = site.client()
        handler = site.handlers[key]

        def stop(broker: Broker, context: RequestContext, asked: Any) -> Outcome:
            outcome = handler(broker, context, asked)
            assert isinstance(outcome, Steps)
            for _ in range(steps):
                next(outcome.steps)
            broker.topics.take_names([self.NAME])
            return Behind(self.NAME, lambda: outcome)

        site.handlers[key] = stop
        self._client.send(key, request)
        site.handlers[key] = handler

    def answer(self) -> Any:
        """Let it go on; its response."""
        self._site.broker.topics.free_names([self.NAME])
        self._site.dispatcher.apply()
        self._site.settle()
        return self._client.answer()
