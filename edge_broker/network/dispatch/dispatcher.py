"""From a frame to an answer: finds the handler, calls it, and resolves its outcome (broker/outcomes.py).

Contains: who waits for which log or name, which request is parked, what runs in which worker. Does not contain:
what any API means (handlers), sockets (connection), when to sync (syncer), how large requests are worked on (large).
"""

from __future__ import annotations

import asyncio
import traceback
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from edge_broker.broker.api import APIS, Handler
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.effects import Effect
from edge_broker.broker.outcomes import AfterName, Outcome, Park, Reply, RunInWorker, Steps, Wait, WorkerName
from edge_broker.configuration.config import BrokerConfig
from edge_broker.errors import ErrorCode, ProtocolViolation, Refusal, StorageFault
from edge_broker.network.audit_log import AuditLog
from edge_broker.network.connection.connection import RECEIVE_BUFFER_BYTES, Connection
from edge_broker.network.connection.memory_budget import ALLOWANCE_BYTES, Pool
from edge_broker.network.dispatch.call import Call
from edge_broker.network.dispatch.fair_scheduler import FairScheduler
from edge_broker.network.dispatch.oversized_requests import ANSWER_BYTES_MAX, REQUEST_BYTES, Large, request_bytes
from edge_broker.network.dispatch.partition_reopener import OfflinePartitions
from edge_broker.network.dispatch.password_queue import Passwords, Waiting
from edge_broker.network.dispatch.record_check_jobs import Checks
from edge_broker.network.dispatch.syncer import Syncer
from edge_broker.network.dispatch.unauthenticated_connections import Logins
from edge_broker.network.log_lines import log_line
from edge_broker.network.worker import Worker
from edge_broker.protocol.api import (
    API_VERSIONS,
    FETCH,
    PRODUCE,
    SASL_AUTHENTICATE,
    read_request_header,
)
from edge_broker.protocol.codec import TooLargeAtOnce, decode_small
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.api_versions import ApiVersionsResponse
from edge_broker.storage.log.partition_log import PartitionLog

NO_TOKEN = -1
URGENT_BYTES = 4 << 20
AT_ONCE_FRAME_BYTES = 16_384  # what is read at once; Produce and Fetch whatever their size, if their arrays are small
QUEUED_FRAME_BYTES = 65_536
EARLY_ANSWERS = 64  # in one turn


def _pools(config: BrokerConfig, loop: asyncio.AbstractEventLoop) -> tuple[Pool, Pool]:
    """Memory for requests and for answers; of the first a part is left to those that may go ahead to their end."""

    def soon(call: Callable[[], None]) -> None:
        loop.call_soon(call)

    queued = config.integer("queued.max.request.bytes")
    requests_bytes = max(queued - config.integer("socket.request.max.bytes"), queued // 2)
    return (
        Pool(requests_bytes, soon, spare_bytes=queued - requests_bytes, urgent_bytes=URGENT_BYTES),
        Pool(config.integer("edge.queued.max.response.bytes"), soon, spare_bytes=ANSWER_BYTES_MAX),
    )


class Dispatcher:
    """Resolves handler outcomes; owned by the loop."""

    def __init__(
        self,
        broker: Broker,
        handlers: Mapping[int, Handler],
        loop: asyncio.AbstractEventLoop,
        workers: Mapping[WorkerName, Worker],
    ) -> None:
        self.broker = broker
        self.requests: defaultdict[str, int] = defaultdict(int)  # by the name of the API
        self.failures = 0
        self._handlers = handlers
        self._loop = loop
        self._workers = workers
        self.syncer = Syncer(
            loop,
            workers["disk"],
            broker.store.group_commit,
            broker.config.integer("edge.flush.interval.min.ms"),
            self._logs_synced,
            broker.throttle,
            broker.store.in_use,
        )
        self.checks = Checks(broker, workers["checker"], self.logs_moved)
        self._waiting: dict[PartitionLog, dict[Call, None]] = {}
        self._parked: dict[int, Call] = {}
        self._waiting_after: dict[str, dict[Call, None]] = {}  # by name, first come first
        self._told_offline: set[PartitionLog] = set()
        self.offline_partitions = OfflinePartitions(broker, loop, self.start, self._offline, self._told_offline.discard)
        self.requests_pool, self.answers_pool = _pools(broker.config, loop)
        self.requests_pool.on_shortage = self._memory_is_short
        answers = self.answers_pool
        broker.answers_room = lambda: max(answers.bytes_max - answers.used, ALLOWANCE_BYTES)
        self._patient: dict[Call, None] = {}
        self._answering_early = False
        self._freed: deque[str] = deque()
        self._freeing = False
        self._moved: dict[PartitionLog, None] = {}
        self.logins = Logins(broker, loop)
        self._passwords = Passwords()
        self.audit_log = AuditLog(loop)
        broker.security_log.echo = lambda level, event, fields: log_line(level, event, **fields)
        self._appliers: dict[Effect, Callable[[Any], None]] = {
            Effect.APPENDED: self._log_appended,
            Effect.SYNC: self.syncer.sync_awaited,
            Effect.SHOWN: self._high_watermark_moved,
            Effect.MARK: self.syncer.mark,
            Effect.ROLL: self._roll,
            Effect.WRITE: self._write,
            Effect.CHECK: self.checks.begin,
            Effect.OFFLINE: self._offline,
            Effect.START: self._start,
            Effect.ANSWER: self._answer,
            Effect.FREED: self._free_soon,
            Effect.NOTE: lambda sentence: log_line("warning", "warning_noted", text=sentence),
            Effect.AUDIT: self.audit_log.add,
            Effect.END_SESSIONS: self.logins.end,
        }
        self.turns = FairScheduler(loop.call_soon, broker.clock.cpu_seconds, self._may_begin)
        self.large = Large(self)
        self._in_workers = 0
        self._log_jobs = 0
        self._next_token = 1
        self.refusing = False

    @property
    def waiting_requests(self) -> int:
        """Requests that wait for a log, a group, a name or a worker."""
        waiting = {call for calls in self._waiting.values() for call in calls}
        behind = sum(map(len, self._waiting_after.values()))
        return len(self._parked) + len(waiting) + behind + self._in_workers

    def dispatch(self, connection: Connection, frame: memoryview) -> None:
        """Handle one request; ProtocolViolation when it is none."""
        api_key, version, correlation_id, client_id, position = read_request_header(frame, APIS)
        login = connection.session.login
        if login is not None and login.barred:
            self.logins.admit(login, api_key)
        handler = self._handlers.get(api_key)
        if handler is None:
            raise ProtocolViolation(f"API key {api_key} is not served")
        api = APIS[api_key]
        token = self._next_token
        self._next_token = token + 1
        call = Call(connection, api, version, correlation_id, token)
        self.requests[api.name] += 1
        if not api.serves(version):
            self._refuse_version(connection, call, handler)
            return
        context = RequestContext(token, version, client_id or "", connection.session)
        size = len(frame)
        if size <= AT_ONCE_FRAME_BYTES or api_key in (PRODUCE, FETCH):
            try:
                request = decode_small(api.request, version, frame, position)
            except TooLargeAtOnce:
                pass
            else:
                call.cost = request_bytes(api_key, size)
                connection.expect(call)
                if api_key == SASL_AUTHENTICATE:
                    self._hold(call)
                self._run(call, handler, self.broker, context, request)
                self.apply()
                return
        self._take_large(call, handler, context, frame, position)

    def _take_large(
        self, call: Call, handler: Handler, context: RequestContext, frame: memoryview, position: int
    ) -> None:
        """Work on a request slice by slice; its connection sends no more until that is done."""
        assert call.connection is not None
        size = len(frame)
        if size <= RECEIVE_BUFFER_BYTES:  # else it is memory of its own, without further writes
            frame = memoryview(bytearray(frame))
        call.cost = request_bytes(PRODUCE, size) + size
        call.connection.expect(call)
        self._hold(call)
        job = self.large.job(call, handler, context, frame, position)
        if size <= QUEUED_FRAME_BYTES:
            self.turns.begin(job)
        else:
            self.turns.add(job)

    def _hold(self, call: Call) -> None:
        if call.connection is not None and not call.held:
            call.held = True
            call.connection.hold()

    def job_ended(self, call: Call) -> None:
        """A call that ran in slices is answered, waits, or has failed; after a waiting token nothing
        is taken, whatever the size of its request.
        """
        if call.api is None or call.api.key != SASL_AUTHENTICATE:
            self._release_connection(call)
        self.apply()

    def _release_connection(self, call: Call) -> None:
        if call.held and call.connection is not None:
            call.held = False
            call.connection.release()

    def _refuse_version(self, connection: Connection, call: Call, handler: Handler) -> None:
        """Answer an unknown ApiVersions version with error 35 in a version-0 body (KIP-511); anything else closes the
        connection.
        """
        assert call.api is not None
        if call.api.key != API_VERSIONS:
            raise ProtocolViolation(
                f"{call.api.name} version {call.version} is not served, {call.api.min_version} "
                f"to {call.api.max_version} are"
            )
        connection.expect(call)
        call.version = 0
        outcome = handler(self.broker, RequestContext(call.token, 0, "", connection.session), None)
        assert isinstance(outcome, Reply)
        assert isinstance(outcome.response, ApiVersionsResponse)
        outcome.response.error_code = ErrorCode.UNSUPPORTED_VERSION
        call.answer(outcome.response)

    @property
    def working(self) -> bool:
        """Whether a request waits for a sync or a worker; long polls and groups do not count."""
        return self.syncer.busy or self.checks.busy or self._log_jobs > 0 or self._in_workers > 0

    def sync_all(self) -> None:
        """Sync whatever is not synced yet, and wait for no interval any more."""
        self.syncer.sync_at_once()
        for topic in self.broker.store.topics.values():
            for log in topic.partitions:
                if log.high_watermark < log.log_end_offset and log.fault is None:
                    self.syncer.sync_soon(log)

    def start(self, step: Callable[[], Outcome]) -> None:
        """Do work of the broker's own, without a response; a bug in it leaves a trace and stops nothing else."""
        self._run(Call(None, None, 0, 0, NO_TOKEN), step)
        self.apply()

    def _run(self, call: Call, step: Callable[..., Outcome | None], *arguments: Any) -> None:
        """Take one step of a call; a violation or a bug costs its connection alone, also when others are served
        here.
        """
        try:
            outcome = step(*arguments)
            if outcome is not None:
                self.resolve(call, outcome)
        except Exception as error:  # noqa: BLE001 - the neighbours go on; the trace says what to mend
            self.fail(call, error)

    def fail(self, call: Call, error: Exception) -> None:
        """A call failed, by its client's fault or by ours."""
        if isinstance(error, ProtocolViolation):
            self._abandon_wait(call)
            if call.connection is not None:
                call.connection.violate(error)
        else:
            self._handler_failed(call, error)

    def _handler_failed(self, call: Call, error: Exception) -> None:
        self.failures += 1
        trace = "".join(traceback.format_exception(error))
        log_line("error", "handler_failed", api=call.name, version=call.version, error=repr(error), trace=trace)
        self._abandon_wait(call)
        if call.connection is not None:
            call.connection.abort()

    def resolve(self, call: Call, outcome: Outcome) -> None:
        """Send an answer, or let the call wait for what its outcome says."""
        if isinstance(outcome, Reply):
            if outcome.size and not self.has_room(call, outcome):
                return
            if self.large.parked:
                self.large.call_ended(call)
            call.answer(outcome.response)
            if call.api is not None and call.api.key == SASL_AUTHENTICATE:
                self._release_connection(call)
            if outcome.closes and call.connection is not None:
                call.connection.close()
        elif isinstance(outcome, Wait):
            self._wait(call, outcome)
        elif isinstance(outcome, Park):
            self._park(call, outcome)
        elif isinstance(outcome, AfterName):
            self._queue(call, outcome)
        elif isinstance(outcome, RunInWorker):
            self._do(call, outcome)
        elif not self.turns.run(self.large.more(call, outcome)):
            self._hold(call)

    def has_room(self, call: Call, reply: Reply) -> bool:
        """Return whether a large response may be sent; if not it is dropped, and made again once there is memory."""
        connection, again, pool = call.connection, reply.retry, self.answers_pool
        if connection is None or again is None:
            return True
        share = connection.answers
        if share.fits(reply.size):
            return True

        def try_again() -> None:
            if connection.on_close.pop(call.token, None) is not None:
                self._run(call, again)
                self.apply()

        if not connection.is_first(call):  # it could not be sent: one that goes ahead must come to its end
            call.when_first = try_again
        elif share in pool.ahead_bytes:
            pool.wait_behind(share, call, try_again)
        elif pool.go_ahead(share, reply.size):
            return True
        else:
            pool.wait(call, try_again)
        connection.on_close[call.token] = lambda: self._drop_answer(call)
        return False

    def _drop_answer(self, call: Call) -> None:
        self.answers_pool.forget(call)
        self.large.call_ended(call)

    def _may_begin(self) -> bool:
        """Whether one more large request may be read; those that wait hold what they were read into."""
        if self.large.has_room:
            return True
        self._answer_patient()
        return False

    def _memory_is_short(self) -> None:
        """Long polls are answered early when they hold much of what others wait for."""
        held = sum(call.cost for call in self._patient)
        if held > self.requests_pool.bytes_max // 4:
            self._answer_patient()

    def _answer_patient(self) -> None:
        if self._patient and not self._answering_early:
            self._answering_early = True
            self._loop.call_soon(self._answer_early)

    def _answer_early(self) -> None:
        self._answering_early = False
        for call in list(islice(self._patient, EARLY_ANSWERS)):
            self._deadline(call)
        if self.requests_pool.waiting:
            self._memory_is_short()

    def _do(self, call: Call, do: RunInWorker) -> None:
        self._in_workers += 1

        def done(result: Any, error: Exception | None) -> None:
            self._in_workers -= 1
            if do.over is not None:
                do.over()
            if error is None:
                self._run(call, do.then, result)
            elif isinstance(error, (StorageFault, Refusal)):
                log_line("error", "job_failed", error=error)
                self._run(call, do.failed, error)
            else:
                self._handler_failed(call, error)
            self.apply()

        def job_dropped() -> None:
            self._in_workers -= 1
            if do.over is not None:
                do.over()

        worker = self._workers[do.worker]
        if do.worker == "logins" and call.connection is not None:
            self._passwords.submit(worker, Waiting(call.connection, do.work, done, job_dropped), call.token)
        else:
            worker.submit(do.work, done, background=do.background)

    def _park(self, call: Call, park: Park) -> None:
        self._parked[call.token] = call
        connection = call.connection
        if connection is not None:
            connection.on_close[call.token] = lambda: self._abandon(call)
            if not park.keeps and call.cost > REQUEST_BYTES:  # the group counts what it needs of the request
                connection.requests.give(call.cost - REQUEST_BYTES)
                call.cost = REQUEST_BYTES

    def _queue(self, call: Call, after: AfterName) -> None:
        call.after_name = after
        self._waiting_after.setdefault(after.name, {})[call] = None
        if call.connection is not None:
            call.connection.on_close[call.token] = lambda: self._abandon_wait(call)

    def _free_soon(self, *names: str) -> None:
        self._freed += names
        if self._freed and not self._freeing:
            self._freeing = True
            self._loop.call_soon(self._free)

    def _free(self) -> None:
        """Let the first who waits for a free name go on, the next ones in turns of their own; of one name, until one
        of them takes it.
        """
        self._freeing = False
        while self._freed:
            name = self._freed[0]
            if name not in self.broker.topics.changing and (calls := self._waiting_after.get(name)):
                call = next(iter(calls))
                behind = call.after_name
                assert behind is not None
                self._forget(call)
                self._run(call, behind.retry)
                break
            self._freed.popleft()
        self._free_soon()
        self.apply()

    def _abandon(self, call: Call) -> None:
        self._abandon_wait(call)
        self.broker.groups.abandon(call.token, self.broker.clock.steady_ms())

    def _abandon_wait(self, call: Call) -> None:
        self._forget(call)
        self.large.call_ended(call)

    def _wait(self, call: Call, wait: Wait) -> None:
        call.wait = wait
        for log in wait.logs:
            self._waiting.setdefault(log, {})[call] = None
            if wait.syncs and log.high_watermark < log.log_end_offset and log.fault is None:
                self.syncer.sync_awaited(log)
        call.timer = self._loop.call_later(wait.wait_ms / 1000, self._deadline, call)
        if wait.patient:
            self._patient[call] = None
        if call.connection is not None:
            call.connection.on_close[call.token] = lambda: self._abandon_wait(call)
            if wait.holds:
                call.connection.hold()
            if wait.kept_bytes:
                call.connection.requests.take(wait.kept_bytes)

    def _deadline(self, call: Call) -> None:
        wait = call.wait
        if wait is not None:
            self._forget(call)
            self._run(call, wait.at_deadline)
            self.apply()

    def _forget(self, call: Call) -> None:
        """Remove a call from all wait lists."""
        self._parked.pop(call.token, None)
        if call.wait is not None:
            self._patient.pop(call, None)
            for log in call.wait.logs:
                waiting = self._waiting.get(log)
                if waiting is not None:
                    waiting.pop(call, None)
                    if not waiting:
                        del self._waiting[log]
            if call.wait.holds and call.connection is not None:
                call.connection.release()
            if call.wait.kept_bytes and call.connection is not None:
                call.connection.requests.give(call.wait.kept_bytes)
            call.wait = None
        if call.after_name is not None:
            queue = self._waiting_after[call.after_name.name]
            del queue[call]
            if not queue:
                del self._waiting_after[call.after_name.name]
            call.after_name = None
        if call.timer is not None:
            call.timer.cancel()
            call.timer = None
        if call.connection is not None:
            call.connection.on_close.pop(call.token, None)

    def _logs_synced(self, logs: Sequence[PartitionLog]) -> None:
        if self.offline_partitions.tries:
            for log in logs:
                if log.fault is None:
                    self.offline_partitions.log_synced(log)
        self.logs_moved(*logs)

    def logs_moved(self, *logs: PartitionLog) -> None:
        """Ask everyone who waits for one of `logs`, once, whether that was enough."""
        for log in logs:
            if log.fault is None:
                self.broker.advance_high_watermark(log)
                self._moved[log] = None
            else:
                self._offline(log)
        self.apply()
        for log in logs:
            if self._sync_is_awaited(log) and log.high_watermark < log.log_end_offset and log.fault is None:
                self.syncer.sync_awaited(log)

    def _sync_is_awaited(self, log: PartitionLog) -> bool:
        """Whether a request waits for more than a write or a roll of this log."""
        waiting = self._waiting.get(log)
        return waiting is not None and any(call.wait is not None and call.wait.syncs for call in waiting)

    def _offline(self, log: PartitionLog) -> None:
        """Wake its waiters; say once that a partition is lost, and bring it back. One that was deleted is none."""
        self._moved[log] = None
        self.syncer.forget(log)
        if self.broker.cluster is not None:
            self.broker.cluster.replication.log_moved(log)  # another replica is to lead
        if self.broker.store.holds(log) and log not in self._told_offline:
            self._told_offline.add(log)
            self.offline_partitions.begin(log)
            log_line("error", "partition_offline", topic=log.topic, partition=log.partition, fault=log.fault)

    def is_back(self, log: PartitionLog) -> None:
        """A replica's log is online again: should it fail once more, that is said."""
        self._told_offline.discard(log)

    def _wake(self, moved: Iterable[PartitionLog]) -> None:
        calls: dict[Call, None] = {}
        for log in moved:
            calls.update(self._waiting.get(log, {}))
        for call in calls:
            wait = call.wait
            if wait is not None:
                self._run(call, self._ready, call, wait)

    def _ready(self, call: Call, wait: Wait) -> Outcome | None:
        outcome = wait.ready()
        if outcome is not None:
            self._forget(call)
        return outcome

    def apply(self) -> None:
        """Apply the effects that steps have left; a call is woken once, however many of its logs have moved."""
        left = self.broker.effects.left
        while left or self._moved:
            if left:
                effect, about = left.popleft()
                self._appliers[effect](about)
            else:
                moved, self._moved = self._moved, {}
                self._wake(moved)

    def _start(self, outcome: Outcome) -> None:
        self._run(Call(None, None, 0, 0, NO_TOKEN), lambda: outcome)

    def _answer(self, answered: tuple[int, Message | Steps]) -> None:
        token, response = answered
        call = self._parked.get(token)
        if call is not None:
            self._forget(call)
            answer = response if isinstance(response, Steps) else Reply(response)
            self._run(call, lambda: answer)

    def _log_appended(self, log: PartitionLog) -> None:
        if log.high_watermark == log.log_end_offset:
            self._moved[log] = None
        elif self._sync_is_awaited(log):
            self.syncer.sync_awaited(log)
        elif self.broker.throttle.sync_early:
            self.syncer.sync_soon(log)
        else:
            self.syncer.sync_later(log)

    def _high_watermark_moved(self, log: PartitionLog) -> None:
        self._moved[log] = None

    def _write(self, log: PartitionLog) -> None:
        """Have the worker write what the disk would make the loop wait for; appends to this partition wait."""
        self._log_jobs += 1
        writing, seconds, throttle = log.writer.writing, self.broker.clock.seconds, self.broker.throttle
        assert writing is not None

        def work() -> float:
            begin = seconds()
            writing.run()
            return seconds() - begin

        def done(took: float | None, error: Exception | None) -> None:
            self._log_jobs -= 1
            if error is not None:
                log.fail(StorageFault(writing.path, writing.position, f"the write failed: {error!r}"))
            log.writer.end_write()
            if writing.error is None:
                self.broker.batch_appended(log, len(writing.records))
                throttle.unsynced_bytes += 0 if log.settings.left_to_kernel else len(writing.records)
            throttle.wrote_behind(took or 0.0, len(writing.records))
            self.logs_moved(log)

        self._workers["writer"].submit(work, done)

    def _roll(self, log: PartitionLog) -> None:
        """Close the segment in the disk worker, which syncs it; appends to this partition wait, others do not."""
        self._log_jobs += 1
        throttle, size = self.broker.throttle, 0 if log.settings.left_to_kernel else log.writer.unsynced_bytes

        def done(_result: Any, error: Exception | None) -> None:
            self._log_jobs -= 1
            log.writer.end_roll()
            if error is None:
                throttle.unsynced_bytes = max(0, throttle.unsynced_bytes - size)
            elif isinstance(error, StorageFault):
                log.fail(error)
            else:
                log_line("error", "roll_failed", topic=log.topic, partition=log.partition, error=repr(error))
                log.fail(StorageFault(f"{log.topic}-{log.partition}", log.log_end_offset, repr(error)))
            self.logs_moved(log)

        self._workers["disk"].submit(log.roller.roll, done)
