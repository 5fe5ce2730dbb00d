"""Start, watch and stop the sources, the publisher and the metrics on one asyncio loop.

An unexpected error of a task ends the process with status 1. systemd starts it again, and nothing is lost by that:
an event without acknowledgement stays with its source. Does not contain: the rules of one source.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from drupelet.addresses import is_loopback
from drupelet.errors import ConfigurationError, reason
from drupelet.host.boot_clock import KernelBootClock
from drupelet.host.systemd import Notifier, alive
from drupelet.observe.http import Pages
from drupelet.observe.log_tree import Log
from drupelet.observe.watches import health_text, unknown_text
from drupelet.printable import shell_word
from drupelet.tls.certificate_expiry import CertificateEnds
from gateway import notices, state
from gateway.config import FileConfig, GatewayConfig, MqttConfig
from gateway.kafka.publisher import Producer, Publisher
from gateway.metrics import Metrics, pages_of, serve_metrics
from gateway.records.boot_times import BootTimes
from gateway.sources.board import BoardSource
from gateway.sources.files.file_pattern import PatternSource
from gateway.sources.files.files import FileSource
from gateway.sources.journal import JournalSource
from gateway.watching import LOOK_S, Watches, Watching

READY_WAIT_S = 10.0  # for peers that are starting; without them the gateway is ready, too: it buffers and retries
CANCEL_AGAIN_S = 12.0  # until Python 3.12 wait_for may lose a cancellation; longer than it takes to discard a producer
_log = Log("gateway")


class Source(Protocol):
    """The methods of every source."""

    name: str
    ready: asyncio.Event

    async def run(self) -> None:
        """Read events until cancelled."""

    def stop_reading(self) -> None:
        """Read nothing new; events read before are still acknowledged."""

    def problem(self) -> str | None:
        """Return in one line what is wrong, or None."""

    def note(self) -> str | None:
        """Return in one line a note for the operator although there is no problem, or None."""


class Gateway:
    """All parts of one gateway process."""

    def __init__(self, config: GatewayConfig) -> None:
        """Build the parts; raise ConfigurationError or StateError, open no connection."""
        self._config = config
        _check_state_dir(config)
        self.metrics = Metrics()
        host = platform.node() or "localhost"
        self.boot_times = BootTimes(KernelBootClock(config.clock_trusted), config.state_dir / "clock.json", host)
        start = _ProducerStart(config)
        self.publisher = Publisher(config.kafka, self.metrics, config.node, start, self.boot_times.mark)
        self.sources: list[Source] = [
            _file_source(file)(file, self.publisher, config.state_dir, self.metrics) for file in config.files
        ]
        if config.journal is not None:
            self.sources.append(JournalSource(config.journal, self.publisher, config.state_dir / "journal.json"))
        if config.board is not None:
            self.sources.append(BoardSource(config.board, self.publisher))
        if config.mqtt is None:
            _tell_forgotten_session(config)
        else:
            self.sources.append(_mqtt_source(config, config.mqtt, self.publisher, self.metrics))
        self.watches = Watches(
            self.metrics.watch_state,
            [self.boot_times.watches, *(source.watches for source in self.sources if isinstance(source, Watching))],
        )
        self._server: asyncio.Server | None = None
        self._ends = _certificate_ends(config)
        self._notifier = Notifier(os.environ, partial(_log.warning, "notify_failed"))

    def problem(self) -> str | None:
        """Return in one line what is wrong with the gateway, or None."""
        routes = self.publisher.routes.problem(time.monotonic())
        sources = (source.problem() for source in self.sources)
        problems = [self.publisher.problem(), *sources, routes, self._persistence()]
        return next((problem for problem in problems if problem is not None), None)

    def _persistence(self) -> str | None:
        """Return why a mosquitto of this host with our configuration cannot keep sessions and queues, or None."""
        mqtt = self._config.mqtt
        if mqtt is None or not self._config.mosquitto_given or not is_loopback(mqtt.host):
            return None
        return notices.persistence_trouble(self._config.mosquitto)

    def well(self) -> str:
        """Return `ok`, or the watches without a signal; then the notes for the operator."""
        said = [*(source.note() for source in self.sources), self.boot_times.note()]
        notes = [note for note in said if note is not None]
        return health_text(self.watches.states(), [*notes, *self._ends.notes()])

    def _pages(self) -> Pages:
        pages = pages_of(self.metrics, self.problem, self.well, self._config.metrics_access.token())

        def metrics() -> bytes:
            self.watches.refresh()
            return pages.metrics()

        return pages._replace(metrics=metrics)

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Work until SIGTERM or SIGINT; raise the error of a part that failed."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        if self._config.metrics is not None:
            self._server = await serve_metrics(*self._config.metrics, self._pages())
        failed = _fail_on_broken_callbacks(asyncio.get_running_loop())
        publishing = asyncio.ensure_future(self.publisher.run())
        reading = [asyncio.ensure_future(source.run()) for source in self.sources]
        reading.append(asyncio.ensure_future(self._publish_boot_times()))
        try:
            await self._work(stop, on_ready, [failed, publishing, *reading])
        finally:
            await _cancel(reading)  # first: sources save what was acknowledged, and disconnect
            await _cancel([publishing])
            if self._server is not None:
                self._server.close()

    async def _publish_boot_times(self) -> None:
        await self.boot_times.run(self.publisher.offer, _BootTimesTopic(self._config, self.publisher.connected).create)

    async def _work(self, stop: asyncio.Event, on_ready: Callable[[], None], tasks: list[asyncio.Future[None]]) -> None:
        stopping = asyncio.ensure_future(stop.wait())
        announcing = asyncio.ensure_future(self._announce(on_ready))
        notifying = asyncio.ensure_future(self._notify())
        watching = asyncio.ensure_future(self._watch())
        try:
            endings: list[asyncio.Future[Any]] = [stopping, watching, *tasks]
            await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
            for task in (*tasks, watching):
                if task.done():
                    task.result()
            self._notifier.notify("STOPPING=1", "STATUS=waiting for what is under way")
            await self._drain()
        finally:
            await _cancel([stopping, announcing, notifying, watching])

    async def _announce(self, on_ready: Callable[[], None]) -> None:
        for source in self.sources:
            await source.ready.wait()
        _log.info("ready", sources=len(self.sources))
        on_ready()

    async def _notify(self) -> None:
        """Notify systemd once all are connected, or after READY_WAIT_S: boards boot in any order. Then keep alive."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READY_WAIT_S):
                await self.publisher.connected.wait()
                for source in self.sources:
                    await source.ready.wait()
        self._notifier.notify("READY=1", f"STATUS={self._status()}")
        await self._notifier.keep_alive(alive(self._status))

    async def _watch(self) -> None:
        while True:
            self.watches.refresh()
            await asyncio.sleep(LOOK_S)

    def _status(self) -> str:
        if (problem := self.problem()) is not None:
            return problem
        silent = unknown_text(self.watches.states())
        waiting = f"{len(self.sources)} sources, {self.publisher.pending_records} records wait"
        return f"{waiting}; unknown: {silent}" if silent else waiting

    async def _drain(self) -> None:
        """Read nothing new and wait for records in flight; the remaining ones are not acknowledged to their source."""
        for source in self.sources:
            source.stop_reading()
        try:
            await asyncio.wait_for(self.publisher.wait_drained(), self._config.stop_timeout_ms / 1000)
        except TimeoutError:
            _log.warning("stopped_with_pending", pending_records=self.publisher.pending_records)
        _log.info("stopping")


def _file_source(file: FileConfig) -> type[FileSource] | type[PatternSource]:
    """Return the class of a source; a path with * that exists as a file is that file."""
    return PatternSource if file.is_pattern and not file.path.exists() else FileSource


def _check_state_dir(config: GatewayConfig) -> None:
    try:
        config.state_dir.mkdir(parents=True, exist_ok=True)
        state.save(config.state_dir / "writable.json", {})
    except (FileExistsError, NotADirectoryError):
        raise ConfigurationError(
            f"{config.file}: state_dir {config.state_dir} is or lies in a file: name a directory."
        ) from None
    except OSError as error:
        raise ConfigurationError(
            f"{config.file}: state_dir {config.state_dir} cannot be written ({reason(error)}): give the gateway's user"
            " the right to, or choose another."
        ) from error


def _fail_on_broken_callbacks(loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
    """Return a future that fails when a callback of the gateway raises: asyncio alone would log it and go on."""
    failed: asyncio.Future[None] = loop.create_future()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if "handle" in context and isinstance(error, Exception) and _is_ours(error) and not failed.done():
            failed.set_exception(error)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
    return failed


def _is_ours(error: Exception) -> bool:
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(str(frame.f_globals.get("__name__", "")).startswith("gateway.") for frame in frames)


def _certificate_ends(config: GatewayConfig) -> CertificateEnds:
    ends, kafka, mqtt = CertificateEnds(), config.kafka.security, config.mqtt
    ends.watch(("kafka.ssl_ca_file", kafka.ca_file), ("kafka.ssl_cert_file", kafka.cert_file))
    if mqtt is not None:
        ends.watch(("mqtt.ssl_ca_file", mqtt.ssl_ca_file), ("mqtt.ssl_cert_file", mqtt.ssl_cert_file))
    return ends


class _ProducerStart:
    """Starts producers; creates the dead-letter topic before the first one returns."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._dead_letter_topic: Any = None

    async def __call__(self) -> Producer:
        from gateway.kafka.producer import KafkaProducer, dead_letter_topic  # noqa: PLC0415 (aiokafka takes long to import)

        producer = await KafkaProducer.start(self._config.kafka, self._config.node)
        if self._dead_letter_topic is None:
            self._dead_letter_topic = dead_letter_topic(self._config.kafka, self._config.node)
        try:
            await self._dead_letter_topic.make()
        except BaseException:
            await producer.discard()
            raise
        return producer


class _BootTimesTopic:
    """Creates the topic `boot_times`, once a broker was reached."""

    def __init__(self, config: GatewayConfig, connected: asyncio.Event) -> None:
        self._config = config
        self._connected = connected
        self._topic: Any = None

    async def create(self) -> str:
        """Create the topic if it does not exist; return in one line why that failed, else empty."""
        if not self._connected.is_set():
            return "no broker was reached yet"
        if self._topic is None:
            from gateway.kafka.producer import boot_times_topic  # noqa: PLC0415 (aiokafka takes long to import)

            self._topic = boot_times_topic(self._config.kafka, self._config.node)
        return str(await self._topic.create())


def _tell_forgotten_session(config: GatewayConfig) -> None:
    from gateway.sources.mqtt.mqtt_session import forgotten_session  # noqa: PLC0415

    client_id = forgotten_session(config.state_dir)
    if client_id is not None:
        remedy = f"put [mqtt] back to read it, or drop it: `mosquitto_sub -i {shell_word(client_id)} -t x -E`"
        _log.warning("session_left_behind", client_id=client_id, reason="[mqtt] is no more in the file", remedy=remedy)


def _mqtt_source(config: GatewayConfig, mqtt: MqttConfig, publisher: Publisher, metrics: Metrics) -> Source:
    from gateway.sources.mqtt.mosquitto import MosquittoWatch  # noqa: PLC0415 (paho only where MQTT is read)
    from gateway.sources.mqtt.mqtt import MqttSource  # noqa: PLC0415
    from gateway.sources.mqtt.mqtt_session import MqttSession  # noqa: PLC0415
    from gateway.sources.mqtt.sys_signals import SysSignals  # noqa: PLC0415

    session = MqttSession(config.state_dir, mqtt.client_id)
    left = None if session.left_behind is None else (session.left_behind, session.changes)
    state_path = config.state_dir / "mosquitto.json"
    signals = SysSignals(f"{mqtt.host}:{mqtt.port}", drops=mqtt.watch_drops, oversize=mqtt.watch_oversize)
    watch = MosquittoWatch(publisher, state_path, session.client_id, metrics, signals=signals, left_behind=left)
    return MqttSource(mqtt, publisher, watch, metrics, session)


async def _cancel(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait for them; cancel again if a library lost the cancellation."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_S)
    for error in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(error, Exception):  # the caller that waited raises the first one; the others are logged here
            _log.error("task_failed", error=error)
