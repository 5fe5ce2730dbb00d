"""Starts the broker's parts: store, groups, workers, listener, timers; stops them at a signal, after the last sync.

Contains: order of start and stop, and the periodic chores. Does not contain: protocol, storage formats, policies.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from drupelet import event_loop
from drupelet.addresses import endpoint_text
from drupelet.command.command_line import announce
from drupelet.errors import ConfigurationError, reason
from drupelet.host import heap
from drupelet.host.descriptors import raise_limit
from drupelet.host.systemd import Notifier
from drupelet.observe import log_tree
from drupelet.observe.metrics_access import MetricsAccess
from drupelet.quantities import quantity_text
from edge_broker.broker.broker import Broker
from edge_broker.broker.health import health_notes, health_problem
from edge_broker.broker.operations.groups.group_expiry import expire_members
from edge_broker.broker.operations.groups.group_loading import load_groups
from edge_broker.broker.operations.groups.group_log import stop_groups
from edge_broker.broker.operations.groups.offset_retention import OffsetRetention
from edge_broker.broker.outcomes import Outcome, Reply, RunInWorker, Steps, Taken, Wait, WorkerName
from edge_broker.broker.state.disk_space import ROLL_MS_MAX
from edge_broker.broker.state.security_state import check_rights
from edge_broker.clock import SystemClock
from edge_broker.compiled import walker_name
from edge_broker.configuration.config import BrokerConfig, Endpoint, size_problem
from edge_broker.configuration.listeners import METRICS_TOKEN, TRUSTED, Listener, network_problem
from edge_broker.configuration.security_keys import DENY_LIST
from edge_broker.configuration.settings import LogSettings
from edge_broker.errors import StorageFault
from edge_broker.gc_policy import LOOK_S, Garbage
from edge_broker.handlers import HANDLERS
from edge_broker.network.background.checkpoint_loop import CheckpointLoop
from edge_broker.network.background.compaction_loop import keep_clean
from edge_broker.network.background.metrics import health_text, metrics_text, refused_codecs
from edge_broker.network.background.scrub_loop import keep_scrubbing
from edge_broker.network.background.sync_cost_measurement import measure_card
from edge_broker.network.background.systemd_notify import keep_alive
from edge_broker.network.connection.connection_limit import open_file_limit_for
from edge_broker.network.dispatch.dispatcher import Dispatcher
from edge_broker.network.dispatch.loop_ledger import LoopLedger
from edge_broker.network.log_lines import log_line
from edge_broker.network.server.listener_server import Server
from edge_broker.network.worker import Worker
from edge_broker.protocol.unpacking import missing_codecs
from edge_broker.storage.data_directory import served_anybody
from edge_broker.storage.files.atomic_files import out_of_space
from edge_broker.storage.files.data_age import Now
from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.maintenance.disk_watch import NOTHING_PASSED, Passed
from edge_broker.storage.metadata.loss_records import Ledger
from edge_broker.storage.retention import segment_removal
from edge_broker.thread_checks import LOOP, enter, runs_in

if TYPE_CHECKING:
    from edge_broker.network.background.deny_list_file import DenyListFile
    from edge_broker.network.cluster.member_runtime import ClusterShell
    from edge_broker.network.server.tls_listeners import Encryption

GROUP_TICK_S = 0.1
ZOOKEEPER = "zookeeper.connect"
CANNOT_BE_MEMBER = 2
CLOCK_TICK_S = 10.0
CLOCK_STEP_TICK_S = 1.0  # a power loss before a step is on the disk makes it look like time without power
SPACE_TICK_S = 1.0
SECURITY_TICK_S = 1.0
LOGINS: WorkerName = "logins"
MEMORY_TICK_S = 2.0
MARKS_TICK_S = 10.0
FETCH_SESSIONS_TICK_S = 30.0
DRAIN_S = 5.0
LOGS_A_PIECE = 64
SWITCH_S = 0.001  # a worker needs the interpreter several times for a sync, and waits so long each time


class Options(NamedTuple):
    """The options of the command line."""

    data_dir: str
    listeners: Sequence[Listener]
    metrics: Endpoint | None
    config: BrokerConfig


def run(options: Options) -> int:
    """Serve until SIGTERM or SIGINT; the exit status."""
    heap.share_one_heap()
    return event_loop.run(_serve(options))


class _Parts(NamedTuple):
    """All parts of a broker that listens."""

    loop: asyncio.AbstractEventLoop
    broker: Broker
    workers: dict[WorkerName, Worker]
    dispatcher: Dispatcher
    ledger: LoopLedger
    server: Server
    encryption: Encryption | None
    deny_list: DenyListFile | None
    http: asyncio.Server | None
    addresses: str


async def _serve(options: Options) -> int:
    asyncio.get_running_loop().set_exception_handler(_loop_failed)
    notifier = Notifier(os.environ, partial(log_line, "warning", "notify_failed"))
    parts = await _listening(options, notifier)
    log_tree.set_up("edge-broker")  # for what asyncio, uvloop and kazoo log; a start that is refused changes nothing
    broker, server, dispatcher = parts.broker, parts.server, parts.dispatcher
    enter(LOOP)
    stop = asyncio.Event()
    cluster = _join_cluster(broker, dispatcher, stop) if options.config.text(ZOOKEEPER) else None
    if cluster is not None and cluster.peers_ca is not None and parts.encryption is not None:
        parts.encryption.believe_peers(*cluster.peers_ca)
    if cluster is None:
        dispatcher.start(lambda: load_groups(broker))
        await server.serve()
    chores = _all_chores(parts)
    sys.setswitchinterval(SWITCH_S)
    for number in (signal.SIGTERM, signal.SIGINT):
        parts.loop.add_signal_handler(number, stop.set)
    _log_started(parts)
    if cluster is not None:
        notifier.notify("STATUS=waiting for the cluster")
        await cluster.wait_until_joined(stop)
        if not stop.is_set():
            await server.serve()  # who is no member yet knows no topic, and clients would take that for an answer
    if not stop.is_set():
        announce(f"edge-broker ready on {parts.addresses}")
        notifier.notify("READY=1", f"STATUS={_status(broker, parts.addresses)}")
    chores.append(parts.loop.create_task(_tell_alive(parts, notifier, cluster)))
    await stop.wait()
    notifier.notify("STOPPING=1", "STATUS=answering and syncing what is under way")
    await _end(parts, cluster, chores)
    return 0 if broker.cluster is None or not broker.cluster.view.contradiction else CANNOT_BE_MEMBER


async def _listening(options: Options, notifier: Notifier) -> _Parts:
    """Recover the data directory and listen; raises ConfigurationError where a setting cannot be used."""
    loop, config = asyncio.get_running_loop(), options.config
    network_note = _network_note(options)
    metrics_token = MetricsAccess(config.text(METRICS_TOKEN), named=METRICS_TOKEN).token()
    clock = SystemClock(config.text("edge.clock.trusted"))
    open_files_max = raise_limit(open_file_limit_for(config.integer("max.connections")))
    notifier.notify(f"STATUS=recovering {options.data_dir}")
    store = await _open_with_space(options, clock, notifier)
    logs_in = any(listener.logs_in for listener in options.listeners)
    workers = {name: Worker(name, loop) for name in get_args(WorkerName) if logs_in or name != LOGINS}
    broker = Broker(config, store, clock, options.listeners)
    dispatcher = Dispatcher(broker, HANDLERS, loop, workers)
    ledger = LoopLedger(loop, dispatcher, store.ledger_log)
    store.use_ledger(ledger if store.directory.registrations is None else _journal_of(store, ledger))
    server = Server(config, dispatcher, loop, open_files_max=open_files_max)
    encryption = None
    try:
        check_rights(broker.config, broker.security.state, broker.store.data_dir)
        deny_list = _deny_list(broker)
        encryption = _encryption(options, broker, server, clock)
        bound = await server.listen(options.listeners, encryption)
        http = (
            await _serve_metrics(options.metrics, metrics_token, broker, dispatcher, server, clock.wall_ms())
            if options.metrics
            else None
        )
    except ConfigurationError:
        server.refuse()
        for worker in _all_workers(workers, encryption):
            worker.close()
        store.close()
        raise
    broker.listeners = {listener.name: listener for listener in bound}
    if network_note:
        log_line("warning", "network_not_trusted", text=network_note)
        broker.notes["network"] = [network_note]
    if sizes := size_problem(config):
        log_line("warning", "sizes_contradict", text=sizes)
        broker.notes["sizes"] = [sizes]
    if server.bound.note:
        log_line("warning", "connections_bounded", text=server.bound.note)
        broker.notes["connections"] = [server.bound.note]
    addresses = ", ".join(endpoint_text(*listener.bind) for listener in bound)
    return _Parts(loop, broker, workers, dispatcher, ledger, server, encryption, deny_list, http, addresses)


def _all_workers(workers: Mapping[WorkerName, Worker], encryption: Encryption | None) -> list[Worker]:
    """Return those of the dispatcher, then that of TLS."""
    return [*workers.values(), *([encryption.worker] if encryption else [])]


def _all_chores(parts: _Parts) -> list[asyncio.Task[None]]:
    """Start the periodic chores."""
    loop, broker, dispatcher, files = parts.loop, parts.broker, parts.dispatcher, parts.workers["files"]
    chores = _start_chores(loop, broker, dispatcher)
    if broker.config.boolean("log.cleaner.enable"):
        chores.append(loop.create_task(keep_clean(broker, dispatcher, files)))
    chores.append(loop.create_task(keep_scrubbing(broker, files)))
    chores.append(loop.create_task(_keep_tidy(dispatcher)))
    if parts.encryption is not None:
        chores.append(loop.create_task(_keep_certificates(parts.encryption, dispatcher)))
    if parts.deny_list is not None:
        chores.append(loop.create_task(_keep_deny_list(parts.deny_list, dispatcher)))
    return chores


def _log_started(parts: _Parts) -> None:
    store = parts.broker.store
    log_line(
        "info",
        "started",
        listen=parts.addresses,
        leader_epoch=store.directory.leader_epoch,
        topics=len(store.topics),
        walker=walker_name(),
    )
    if missing := missing_codecs():
        log_line("warning", "codecs_missing", text=refused_codecs(missing))


async def _tell_alive(parts: _Parts, notifier: Notifier, cluster: ClusterShell | None) -> None:
    watched = parts.workers["disk"], parts.workers["writer"]
    status = partial(_status, parts.broker, parts.addresses)
    await keep_alive(notifier, watched, status, broken=lambda: cluster.outside if cluster is not None else "")


async def _end(parts: _Parts, cluster: ClusterShell | None, chores: Sequence[asyncio.Task[None]]) -> None:
    """Leave the cluster while its members still hear this broker; then end chores, connections, workers and disk."""
    if cluster is not None:
        await cluster.leave()
    for chore in chores:
        chore.cancel()
    if cluster is not None:
        await cluster.close()
    await _stop(parts.server, parts.dispatcher, _all_workers(parts.workers, parts.encryption), parts.ledger)
    if parts.http:
        parts.http.close()


def _join_cluster(broker: Broker, dispatcher: Dispatcher, stop: asyncio.Event) -> ClusterShell:
    """Be a member of a cluster; a broker that cannot be one as it is says so and stops."""
    from edge_broker.network.cluster.member_runtime import ClusterShell  # noqa: PLC0415 - for a cluster alone, as kazoo

    return ClusterShell(broker, dispatcher, asyncio.get_running_loop(), stop.set)


def _journal_of(store: LogStore, ledger: LoopLedger) -> Ledger:
    """Losses go to the journal of a board in a cluster, as long as that is not full."""
    from edge_broker.storage.loss.ledger_journal import JournalLedger  # noqa: PLC0415 - for a cluster alone

    return JournalLedger(ledger, store.ledger_log)


async def _open_with_space(options: Options, clock: SystemClock, notifier: Notifier) -> LogStore:
    """Open the store; on a disk that is so full that a start cannot write what it must, as soon as there is space."""
    told = False
    while True:
        try:
            return open_store(options, clock)
        except StorageFault as fault:
            if not out_of_space(fault):
                raise
            notifier.notify(f"STATUS=no space to start: {fault}")
            if not told:
                log_line("error", "start_refused_disk_full", fault=fault, text="free some; the start goes on by itself")
            told = True
        await asyncio.sleep(SPACE_TICK_S)


def open_store(options: Options, clock: SystemClock) -> LogStore:
    """Recover the data directory and log what recovery found; StorageFault when the store itself cannot be used."""
    begin_ms, config = clock.steady_ms(), options.config
    where, node, in_cluster = options.data_dir, config.text("broker.id"), bool(config.text(ZOOKEEPER))
    broker_id, settings = config.integer("broker.id"), log_settings(config)
    store = LogStore.open(
        Disk(), where, settings, clock.refresh(), clock.new_uuid, node, in_cluster=in_cluster, broker_id=broker_id
    )
    for note in store.recovery_notes:
        log_line("warning", "recovery_noted", note=note)
    log_line(
        "info",
        "store_opened",
        data_dir=options.data_dir,
        unclean=store.directory.started_unclean,
        read_bytes=store.recovery_bytes,
        took_ms=clock.steady_ms() - begin_ms,
    )
    return store


def log_settings(config: BrokerConfig) -> LogSettings:
    """The configuration of topics that set nothing themselves."""
    values: dict[str, Any] = {
        key.setting: config.value(key.synonym) for key in LogSettings.KEYS.values() if key.synonym
    }
    return LogSettings(**values, producer_id_expiration_ms=config.integer("producer.id.expiration.ms"))


async def _serve_metrics(
    endpoint: Endpoint, token: bytes, broker: Broker, dispatcher: Dispatcher, server: Server, started_ms: int
) -> asyncio.Server:
    from drupelet.observe.http import Pages, serve_http  # noqa: PLC0415 - not every broker serves them

    try:
        pages = Pages(
            lambda: metrics_text(broker, dispatcher, server, started_ms).encode(),
            lambda: "the broker is stopping" if dispatcher.refusing else health_problem(broker),
            lambda: health_text(health_notes(broker)),
            token=token,
        )
        http = await serve_http(endpoint.host, endpoint.port, pages)
    except OSError as error:
        raise ConfigurationError(
            f"cannot serve metrics on {endpoint.host}:{endpoint.port}: {reason(error)}; choose another --metrics"
        ) from None
    log_line("info", "metrics_listening", listen="{}:{}".format(*http.sockets[0].getsockname()[:2]))
    return http


def _encryption(options: Options, broker: Broker, server: Server, clock: SystemClock) -> Encryption | None:
    """TLS where a listener speaks it; ConfigurationError names what cannot be used."""
    if not any(listener.is_encrypted for listener in options.listeners):
        return None
    from drupelet.installation import built_s  # noqa: PLC0415 - for TLS alone, as the next
    from edge_broker.network.server.tls_listeners import Encryption  # noqa: PLC0415 - ssl costs 2 MB

    loop = asyncio.get_running_loop()
    return Encryption(
        options.config,
        options.listeners,
        loop,
        server.bound_reached,
        lambda: server.requests.short,
        clock,
        built_s(),
        broker.log_ins.denial,
    )


async def _keep_certificates(encryption: Encryption, dispatcher: Dispatcher) -> None:
    from edge_broker.network.server.tls_listeners import LOOK_S  # noqa: PLC0415 - as above

    def report(_: object) -> Outcome:
        dispatcher.broker.notes["certificates"] = encryption.report_changes()
        return Reply(None)

    while True:
        dispatcher.start(lambda: RunInWorker(encryption.check_files, report, report, background=True))
        await asyncio.sleep(LOOK_S)


def _deny_list(broker: Broker) -> DenyListFile | None:
    """The deny list where there is one, which holds from now on; ConfigurationError where its file is refused."""
    path = broker.config.text(DENY_LIST)
    if not path:
        return None
    from edge_broker.network.background.deny_list_file import DenyListFile  # noqa: PLC0415 - for those alone who have one

    file = DenyListFile(path)
    broker.log_ins.deny_list = file.current
    log_line("info", "deny_list_read", entries=file.current.entries)
    return file


async def _keep_deny_list(file: DenyListFile, dispatcher: Dispatcher) -> None:
    """Have a changed deny list hold, and say what is wrong with one that is refused."""
    from edge_broker.network.background.deny_list_file import LOOK_S as DENY_LIST_LOOK_S  # noqa: PLC0415 - as above

    broker = dispatcher.broker

    def deny_list_checked(changed: bool) -> Outcome:
        if changed and not file.problem:
            broker.log_ins.deny_list = file.current
            log_line("info", "deny_list_read", entries=file.current.entries, ended=dispatcher.logins.end_denied())
        elif changed:
            log_line("warning", "deny_list_refused", text=file.problem)
        broker.notes["deny_list"] = [file.problem] if file.problem else []
        return Reply(None)

    def check_failed(error: Exception) -> Outcome:
        broker.notes["deny_list"] = [f"the deny list cannot be looked at: {error!r}; start the broker again"]
        return Reply(None)

    while True:
        dispatcher.start(lambda: RunInWorker(file.read_if_changed, deny_list_checked, check_failed, background=True))
        await asyncio.sleep(DENY_LIST_LOOK_S)


def _status(broker: Broker, addresses: str) -> str:
    return health_problem(broker) or f"serving {quantity_text(len(broker.store.topics), 'topic')} on {addresses}"


def _loop_failed(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Write down what no caller was there to catch."""
    error = context.get("exception")
    trace = "".join(traceback.format_exception(error)) if isinstance(error, BaseException) else ""
    log_line("error", "loop_callback_failed", message=context.get("message"), trace=trace)


def _network_note(options: Options) -> str:
    """The note about a network that is served without being trusted: as versions before did that made
    this data directory. ConfigurationError for any other, and where the key says false.
    """
    text = network_problem(options.config, options.listeners, options.metrics)
    if not text:
        return ""
    if TRUSTED in options.config.explicit or not served_anybody(Disk(), options.data_dir):
        raise ConfigurationError(text)
    return text


def _start_chores(loop: asyncio.AbstractEventLoop, broker: Broker, dispatcher: Dispatcher) -> list[asyncio.Task[None]]:
    config = broker.config
    checkpoints = CheckpointLoop(broker, dispatcher, loop.time)
    checkpoint_s = config.integer("log.flush.offset.checkpoint.interval.ms") / 1000
    retention_s = config.integer("log.retention.check.interval.ms") / 1000

    async def every(seconds: float, start: Callable[[], Outcome]) -> None:
        while True:
            await asyncio.sleep(seconds)
            dispatcher.start(start)

    async def watch_for_steps() -> None:
        while True:
            await asyncio.sleep(CLOCK_STEP_TICK_S)
            if broker.time.is_stepped():
                dispatcher.start(checkpoints.look_at_clock)

    if (doubt := broker.time.note()) is not None:
        log_line("warning", "clock_doubted", reason=doubt)
    chores = [
        loop.create_task(measure_card(broker, dispatcher)),
        loop.create_task(every(GROUP_TICK_S, lambda: expire_members(broker))),
        loop.create_task(every(CLOCK_TICK_S, checkpoints.look_at_clock)),
        loop.create_task(watch_for_steps()),
        loop.create_task(every(MARKS_TICK_S, lambda: _look_at_marks(dispatcher))),
        loop.create_task(every(FETCH_SESSIONS_TICK_S, lambda: _look_at_fetch_sessions(broker))),
        loop.create_task(checkpoints.run(checkpoint_s)),
        loop.create_task(every(retention_s, _Retention(broker).start)),
        loop.create_task(every(SPACE_TICK_S, broker.space.check)),
        loop.create_task(every(SECURITY_TICK_S, broker.security.check_file)),
        loop.create_task(every(MEMORY_TICK_S, lambda: _files(heap.give_back_memory))),
    ]
    if broker.offsets_retention_ms is not None:
        offsets_s = config.integer("offsets.retention.check.interval.ms") / 1000
        retention = OffsetRetention(broker, broker.offsets_retention_ms)
        chores.append(loop.create_task(every(offsets_s, retention.start)))
    return chores


async def _keep_tidy(dispatcher: Dispatcher) -> None:
    garbage = Garbage()
    while True:
        await asyncio.sleep(LOOK_S)
        garbage.collect_if_due(calm=not dispatcher.turns)


def _look_at_fetch_sessions(broker: Broker) -> Outcome:
    broker.fetch_sessions.end_stale(broker.clock.steady_ms())
    return Reply(None)


def _look_at_marks(dispatcher: Dispatcher) -> Outcome:
    dispatcher.syncer.look_at_marks()
    return Reply(None)


def _files(work: Callable[[], Any]) -> RunInWorker:
    return RunInWorker(work, lambda _: Reply(None), lambda _: Reply(None), background=True)


class _Retention:
    """Retention over every partition, in slices: others wait for the worker for one piece.

    A segment that is written to is closed first where all of it may go, one partition after another.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._running = False

    def start(self) -> Outcome:
        """Begin, unless the last one is not over yet."""
        if self._running:
            return Reply(None)
        self._running = True
        return Steps(self._due())

    def _due(self) -> Taken:
        """Find the active segments that have expired; none is closed while the disk has no room for the next."""
        broker, led, now = self._broker, self._broker.led_logs(), self._broker.time.now()
        due: deque[PartitionLog] = deque()
        try:
            for topic in list(broker.store.topics.values()):
                for log in topic.partitions:
                    yield None
                    if not broker.space.refusing and segment_removal.active_expired(
                        log, now, leads=led is None or log in led
                    ):
                        due.append(log)
            return self._close(due)
        except BaseException:  # a bug: the next one begins from the start
            self._running = False
            raise

    def _close(self, due: deque[PartitionLog]) -> Outcome:
        broker = self._broker
        while due:
            log = due.popleft()
            if log.writer.begin_roll():
                broker.effects.roll(log)

                def segment_closed(log: PartitionLog = log) -> Outcome | None:
                    return None if log.writer.rolling and log.fault is None else self._close(due)

                return Wait([log], segment_closed, ROLL_MS_MAX, lambda: self._close(due), syncs=False)
        return self._next(expired_pieces(broker, broker.space.passed_offsets(), broker.led_logs()))

    def _next(self, pieces: Iterator[bool]) -> RunInWorker:
        def work() -> bool:
            try:
                return next(pieces, False)
            except BaseException:  # a bug: the next one begins from the start
                self._running = False
                raise

        return RunInWorker(
            work, lambda more: self._next(pieces) if more else self._over(), lambda _: self._over(), background=True
        )

    def _over(self) -> Outcome:
        self._running = False
        return Reply(None)


@runs_in()
def delete_expired(
    broker: Broker, passed: Passed = NOTHING_PASSED, led: Collection[PartitionLog] | None = None
) -> None:
    """Apply retention to every partition; one that fails costs no other, and what is not led here only frees files."""
    for _ in expired_pieces(broker, passed, led):
        pass


@runs_in()
def expired_pieces(broker: Broker, passed: Passed, led: Collection[PartitionLog] | None = None) -> Iterator[bool]:
    """As `delete_expired`, with a True after each partition that lost something, and each so many."""
    now, looked_at = broker.time.now(), 0
    for topic in list(broker.store.topics.values()):
        for log in topic.partitions:
            looked_at += 1
            mine = led is None or log in led
            if _delete_expired(log, now, passed, leads=mine) or looked_at % LOGS_A_PIECE == 0:
                yield True


def _delete_expired(log: PartitionLog, now: Now, passed: Passed, *, leads: bool) -> bool:
    """True when something was deleted, or could not be."""
    if log.fault is not None:
        return False
    try:
        offset = passed.get((log.topic, log.partition), 0) if log.settings.groups else segment_removal.OFFSET_MAX
        deleted = segment_removal.delete_expired(log, now, offset, leads=leads)
    except StorageFault as fault:
        log_line("error", "retention_failed", topic=log.topic, partition=log.partition, fault=fault)
        return True
    if deleted:
        log_line("info", "segments_expired", topic=log.topic, partition=log.partition, segments=deleted)
    return bool(deleted)


async def _stop(server: Server, dispatcher: Dispatcher, workers: Sequence[Worker], ledger: LoopLedger) -> None:
    """Refuse new requests at once, answer those in progress, sync, mark the stop clean."""
    dispatcher.refusing = True
    server.refuse()
    dispatcher.start(lambda: stop_groups(dispatcher.broker))
    dispatcher.sync_all()
    try:
        async with asyncio.timeout(DRAIN_S):
            while dispatcher.working:
                for worker in workers:
                    await worker.turn()
            await workers[0].turn()  # the sockets' unread bytes are read meanwhile, see Connection.halt
    except TimeoutError:
        log_line("warning", "stopped_without_last_responses", waited_s=DRAIN_S)
    server.close_connections()
    ledger.stop()
    for worker in workers:
        worker.close()
    enter(None)  # nothing else runs
    dispatcher.audit_log.end_window()
    store = dispatcher.broker.store
    store.directory.advance_age(dispatcher.broker.clock.refresh())
    store.close()
    logs = [log for topic in store.topics.values() for log in topic.partitions]
    log_line("info", "stopped", clean=all(log.fault is None for log in logs))
