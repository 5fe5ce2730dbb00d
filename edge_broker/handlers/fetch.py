"""Fetch (key 1): whole batches as they lie on disk, up to the high watermark, with long polling.

A partition answers with whole batches of one segment, from the one that holds the fetch offset on. A request waits
until `min_bytes` are there, a partition has an error or more segments to read, or `max_wait_ms` is over, also where
every read has to be left to a worker.
In a session (KIP-227) a request names what is new, and the answer what has changed; each looks at all that is wanted,
and at what its client may do, as one without a session does.
Data that is not in the page cache, or not as it was written, or more than AT_ONCE_BYTES_MAX, is read in the reader
thread; damage that shows there is quarantined first, and the response goes on after it, as after compaction.

Does not contain: decoding of records. Source: Kafka protocol, Fetch 4 to 17; KIP-320, KIP-516, KIP-595.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.cluster_port import Node
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations.cold_reads import DamageMet, read_through
from edge_broker.broker.operations.leader_directory import as_endpoints, next_leader
from edge_broker.broker.outcomes import Outcome, Reply, RunInWorker, Steps, Taken, Wait, run_steps
from edge_broker.broker.state.fetch_sessions import BEGINS, NONE, WITHOUT, FetchSession, WantedPartition, WantedTopic
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.protocol.api import FETCH
from edge_broker.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchLeaderIdAndEpoch,
    FetchNodeEndpoint,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from edge_broker.security.acls import Operation
from edge_broker.storage.log.log_reader import AT_ONCE_BYTES_MAX
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.segment.segment import DamageFound

if TYPE_CHECKING:
    from uuid import UUID

    from edge_broker.broker.state.topic_registry import AnyTopic
    from edge_broker.protocol.message import Message

BY_ID_FROM = 13
NEXT_LEADER_FROM = 16
OF_ANOTHER_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
NOT_LOOKED_AT = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
PARTITIONS_AT_ONCE = 64
QUIET_AT_ONCE = 1024  # of a session, where there is nothing new
Cold = tuple[PartitionData, PartitionLog, int, int]


class _FetchPass:
    """One pass over a request's partitions."""

    __slots__ = ("bytes_max", "bytes_read", "cold", "final", "leaders", "many", "shown", "syncing", "topics", "whose")

    def __init__(self, broker: Broker, context: RequestContext, request: FetchRequest, *, many: bool = False) -> None:
        # When memory for answers is short a fetch gets less, down to one batch.
        self.bytes_max = min(request.max_bytes, broker.fetch_bytes_max, broker.answers_room())
        self.many = many
        self.whose = broker, context, request
        self.topics: list[FetchableTopicResponse] = []
        self.shown: dict[PartitionLog, int] = {}  # bytes shown as they were looked at first; a request may repeat
        self.syncing: set[PartitionLog] = set()
        self.cold: deque[Cold] = deque()
        self.bytes_read = 0
        self.leaders: dict[int, Node] = {}  # of what others lead
        self.final = False  # an error, or a reader before the active segment: nothing is waited for

    def missing_bytes(self, bytes_min: int) -> int:
        """How much must come before there is enough; 0 when there is nothing to wait for."""
        if self.final or not self.shown:
            return 0
        return max(min(bytes_min, self.bytes_max) - self.bytes_read, 0)  # min.bytes above max.bytes is max.bytes

    def node_endpoints(self) -> list[FetchNodeEndpoint]:
        """Where those listen that lead what was not read."""
        return as_endpoints(self.leaders.values(), FetchNodeEndpoint)

    def reply(self) -> Reply | Steps:
        """The answer; one of many partitions is looked at in steps, so that it is also written in steps."""
        begun: list[int] = []
        again = partial(_fetch_again, begun, *self.whose)
        session = self._session()
        if session is None and not self.many:
            return self._reply(None, begun, again)
        weighed = self._weigh(session, begun, again)
        return Steps(weighed, again) if self.many else run_steps(weighed)

    def _session(self) -> FetchSession | None:
        """The session that the request begins, still empty."""
        broker, context, request = self.whose
        if request.session_epoch != BEGINS or not broker.fetch_sessions.slots:
            return None
        return FetchSession(context.session.peer, by_id=context.api_version >= BY_ID_FROM)

    def _reply(self, session: FetchSession | None, begun: list[int], retry: Callable[[], Outcome]) -> Reply:
        response = FetchResponse(responses=self.topics, node_endpoints=self.node_endpoints())
        if session is not None:
            broker = self.whose[0]
            response.session_id = broker.fetch_sessions.begin(session, broker.clock.steady_ms())
            begun.append(response.session_id)
        return Reply(response, size=self.bytes_read, retry=retry)

    def _weigh(
        self, session: FetchSession | None, begun: list[int], retry: Callable[[], Outcome]
    ) -> Generator[Message, None, Reply]:
        for topic, answer in zip(self.whose[2].topics, self.topics, strict=True):
            yield FetchableTopicResponse(topic=answer.topic, topic_id=answer.topic_id, partitions=[])  # to be weighed
            wanted = None if session is None else session.topic(topic)
            for asked, data in zip(topic.partitions, answer.partitions, strict=True):
                if session is not None and wanted is not None:
                    session.want(wanted, asked).update(data)
                yield data
        return self._reply(session, begun, retry)


@ServedApi(
    FETCH,
    FetchRequest,
    FetchResponse,
    {
        4: "isolation level (KIP-98)",
        5: "the log's start (KIP-107)",
        6: "KAFKA_STORAGE_ERROR (KIP-112)",
        7: "sessions (KIP-227)",
        8: "throttled by the client (KIP-219)",
        9: "leader epochs (KIP-320)",
        10: "zstd (KIP-110)",
        11: "racks (KIP-392)",
        12: "compact lengths, tags, diverging epochs (KIP-482, KIP-595)",
        13: "topic ids (KIP-516)",
        14: "tiered storage (KIP-405)",
        15: "a replica's state (KIP-903)",
        16: "a new leader in the answer (KIP-951)",
        17: "a replica's directory (KIP-853)",
    },
    left_out="racks, as nobody reads from a follower",
)
def fetch(broker: Broker, context: RequestContext, request: FetchRequest) -> Outcome:
    """Answer at once when there is enough or something is wrong, else wait for the logs."""
    if broker.cluster is not None and _is_of_broker(request):
        from edge_broker.broker.cluster.follower_fetch import follower_fetch  # noqa: PLC0415 - for a cluster alone

        return follower_fetch(broker, context, request)
    if request.session_epoch not in (BEGINS, WITHOUT):
        return _continue_session(broker, context, request)
    if request.session_id != NONE:
        broker.fetch_sessions.end(request.session_id)
    if _has_many(request):
        return Steps(_LongPoll(broker, context, request).begin_in_steps())
    gathered = _gather(broker, context, request)
    if not gathered.cold and (request.max_wait_ms <= 0 or not gathered.missing_bytes(request.min_bytes)):
        return gathered.reply()
    return _LongPoll(broker, context, request).begin(gathered)


def _fetch_again(begun: list[int], broker: Broker, context: RequestContext, request: FetchRequest) -> Outcome:
    """The response did not reach the client, nor the id of the session that it began."""
    for session_id in begun:
        broker.fetch_sessions.end(session_id)
    return fetch(broker, context, request)


def _is_of_broker(request: FetchRequest) -> bool:
    """Whether a broker asks; a consumer may say that it is none, -1, where others leave that out."""
    state = request.replica_state
    return request.replica_id >= 0 or (state is not None and state.replica_id >= 0)


def _has_many(request: FetchRequest) -> bool:
    topics = request.topics
    if len(topics) == 1:
        return len(topics[0].partitions) > PARTITIONS_AT_ONCE
    return len(topics) > PARTITIONS_AT_ONCE or sum([len(topic.partitions) for topic in topics]) > PARTITIONS_AT_ONCE


class _LongPoll:
    """A request that waits: what is cold is read by a worker; where there is too little, the logs are waited for.

    While it waits it counts the visible bytes after its last check, and reads again once they may be enough.
    Methods, not closures: a cycle of closures would keep an answer's records until the garbage is collected.
    """

    __slots__ = ("_broker", "_context", "_deadline_ms", "_missing_bytes", "_request", "_shown")

    def __init__(self, broker: Broker, context: RequestContext, request: FetchRequest) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._deadline_ms = broker.clock.steady_ms() + request.max_wait_ms
        self._missing_bytes = 0
        self._shown: dict[PartitionLog, int] = {}

    def begin_in_steps(self) -> Taken:
        gathered = yield from self._gather_in_steps()
        if not gathered.cold and self._request.max_wait_ms <= 0:
            return gathered.reply()
        return self.begin(gathered)

    def _look_in_steps(self) -> Taken:
        gathered = yield from self._gather_in_steps()
        return self.begin(gathered)

    def _gather_in_steps(self) -> Generator[None, None, _FetchPass]:
        """Run `_gather` step by step."""
        gathered = _FetchPass(self._broker, self._context, self._request, many=True)
        for wanted in self._request.topics:
            answer = FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[])
            gathered.topics.append(answer)
            yield None
            for partition in wanted.partitions:
                data = _nothing_of(partition, self._request)
                answer.partitions.append(data)
                _take(self._broker, self._context, gathered, wanted, partition, data)
                yield None
        return gathered

    def begin(self, gathered: _FetchPass) -> Outcome:
        return _read_cold(self._broker, gathered, self._finish) if gathered.cold else self._finish(gathered)

    def _finish(self, gathered: _FetchPass) -> Outcome:
        """A cold read is done; it may be shorter than requested."""
        left_ms = self._deadline_ms - self._broker.clock.steady_ms()
        if not self._waits_behind(gathered) or left_ms <= 0:
            return gathered.reply()
        return self._poll_again() or Wait(list(self._shown), self._poll_again, left_ms, self._at_deadline, patient=True)

    def _waits_behind(self, gathered: _FetchPass) -> bool:
        """Count from what was gathered on; False when that is enough."""
        self._shown, self._missing_bytes = gathered.shown, gathered.missing_bytes(self._request.min_bytes)
        return self._missing_bytes > 0

    def _poll_again(self) -> Outcome | None:
        """Read again when what is new may be enough, or something is wrong."""
        new_bytes = 0
        for log, shown_bytes in self._shown.items():
            if log.fault is not None:
                break
            new_bytes += log.shown_bytes - shown_bytes
        else:
            if new_bytes < self._missing_bytes:
                return None
        return self._read_again()

    def _read_again(self) -> Outcome | None:
        if _has_many(self._request):
            return Steps(self._look_in_steps())
        return self._enough(_gather(self._broker, self._context, self._request))

    def _enough(self, gathered: _FetchPass) -> Outcome | None:
        if gathered.cold:
            return _read_cold(self._broker, gathered, self._finish)
        return None if self._waits_behind(gathered) else gathered.reply()

    def _at_deadline(self) -> Outcome:
        if _has_many(self._request):
            self._deadline_ms = 0
            return Steps(self._look_in_steps())
        last = _gather(self._broker, self._context, self._request)
        return _read_cold(self._broker, last, _FetchPass.reply) if last.cold else last.reply()


class _Changes(_FetchPass):
    """One pass over the partitions of a session, and what is new there."""

    __slots__ = ("_poll", "_topics", "looked")

    def __init__(self, poll: _SessionPoll) -> None:
        super().__init__(*poll.whose)
        self._poll = poll
        self.looked: list[tuple[WantedPartition, PartitionData]] = []
        self._topics: dict[WantedTopic, AnyTopic | None] = {}  # of this step: each is asked for once

    def step_ends(self) -> None:
        """Others come between: what a client may do, and which topics there are, is asked again."""
        self._topics.clear()

    def _topic(self, of: WantedTopic) -> AnyTopic | None:
        """The topic, if it is there for this client."""
        if of not in self._topics:
            broker, context, _ = self.whose
            try:
                found = broker.topics.find_topic(context, _key(context, of), Operation.READ)
            except Refusal:
                found = None
            self._topics[of] = found
        return self._topics[of]

    def is_quiet(self, wanted: WantedPartition) -> bool:
        """Whether the client may read this, was told all of it, and waits at its end. Hot: each idle poll asks all."""
        quiet = wanted.quiet
        if quiet is None:
            return False
        topic_id, leader_epoch = quiet
        topic, asked = self._topic(wanted.of), wanted.asked
        log = None if topic is None or topic.topic_id is not topic_id else self._log(topic, asked.partition)
        if log is None:
            return False
        state = log.state
        shown, end = state.shown, asked.fetch_offset
        if (
            state.fault is not None
            or state.leader_epoch != leader_epoch
            or asked.current_leader_epoch not in (-1, leader_epoch)
            or shown.offset != end
            or wanted.high_watermark != end
            or wanted.last_stable_offset != end
            or wanted.log_start_offset != state.log_start_offset
        ):
            return False
        self.shown[log] = shown.segment.begin_bytes + shown.position
        if state.log_end_offset != end:
            self.whose[0].effects.sync(log)  # as _read: what comes next may be shown soon
        return True

    def _log(self, topic: AnyTopic, index: int) -> PartitionLog | None:
        return self.whose[0].topics.log_of(topic, index)

    def look_at(self, wanted: WantedPartition) -> None:
        """Read it, as without a session."""
        broker, context, request = self.whose
        data = _nothing_of(wanted.asked, request)
        _take(broker, context, self, wanted.of, wanted.asked, data)
        self.looked.append((wanted, data))
        wanted.quiet = None
        if data.error_code == ErrorCode.NONE and data.diverging_epoch is None and not data.records:
            topic = self._topic(wanted.of)
            log = None if topic is None else self._log(topic, wanted.asked.partition)
            if topic is not None and log is not None:
                wanted.quiet = topic.topic_id, log.state.leader_epoch

    def reply(self) -> Reply | Steps:
        """Return the changes, and nothing if another request has continued the session."""
        session = self._poll.session
        if session.epoch != self._poll.epoch:
            return Reply(FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.id))
        if not self.looked:
            return Reply(FetchResponse(session_id=session.id))
        said: list[WantedPartition] = []
        again = partial(self._poll.say_again, said)
        saying = self._describe(said, again)
        if len(self.looked) > PARTITIONS_AT_ONCE:
            return Steps(saying, again)
        return run_steps(saying)

    def _describe(self, said: list[WantedPartition], retry: Callable[[], Outcome]) -> Generator[Message, None, Reply]:
        session = self._poll.session
        topics: dict[WantedTopic, FetchableTopicResponse] = {}
        for wanted, data in self.looked:
            if not wanted.update(data):
                continue
            said.append(wanted)
            answer = topics.get(of := wanted.of)
            if answer is None:
                yield FetchableTopicResponse(topic=of.topic, topic_id=of.topic_id, partitions=[])  # to be weighed
                answer = FetchableTopicResponse(topic=of.topic, topic_id=of.topic_id, partitions=[])
                topics[of] = answer
            answer.partitions.append(data)
            if data.records:
                session.records_sent(wanted)
            yield data
        response = FetchResponse(
            session_id=session.id, responses=list(topics.values()), node_endpoints=self.node_endpoints()
        )
        return Reply(response, size=self.bytes_read, retry=retry)


class _SessionPoll(_LongPoll):
    """A request of a session; `epoch` is the session's while no other request has gone on with it."""

    __slots__ = ("epoch", "session")

    def __init__(self, broker: Broker, context: RequestContext, request: FetchRequest, session: FetchSession) -> None:
        super().__init__(broker, context, request)
        self.session, self.epoch = session, session.epoch

    @property
    def whose(self) -> tuple[Broker, RequestContext, FetchRequest]:
        return self._broker, self._context, self._request

    def begin_session(self) -> Taken:
        """Take in what is named, then look at everything."""
        sessions, session, request = self._broker.fetch_sessions, self.session, self._request
        try:
            yield from self._take_in()
        except Refusal as refusal:
            return Reply(FetchResponse(error_code=refusal.code))
        if session.order:
            return (yield from self._look_at_all())
        sessions.end(session.id)
        request.session_id, request.session_epoch = NONE, WITHOUT
        return fetch(*self.whose)

    def begin_with_few(self) -> Outcome:
        """The same of a few partitions, at once: how most consumers read, so that it costs little."""
        session, request = self.session, self._request
        before = session.bytes_held, len(session.order)
        for topic in request.topics:
            of = session.topic(topic)
            for asked in topic.partitions:
                session.want(of, asked)
        if session.bytes_held != before[0]:
            try:
                self._partitions_changed(*before)
            except Refusal as refusal:
                return Reply(FetchResponse(error_code=refusal.code))
        changes = _Changes(self)
        for wanted in list(session.order):
            if not changes.is_quiet(wanted):
                changes.look_at(wanted)
        if not changes.cold and (request.max_wait_ms <= 0 or not changes.missing_bytes(request.min_bytes)):
            return changes.reply()
        return self.begin(changes)

    def _take_in(self) -> Generator[None, None, None]:
        session, request, left = self.session, self._request, QUIET_AT_ONCE
        before = session.bytes_held, len(session.order)
        for topic in request.topics:
            of = session.topic(topic)
            for asked in topic.partitions:
                session.want(of, asked)
                left -= 1
                if left <= 0:
                    self._partitions_changed(*before)
                    before = session.bytes_held, len(session.order)
                    yield None
                    left = QUIET_AT_ONCE
        for forgotten in request.forgotten_topics_data:
            session.forget(forgotten)
        self._partitions_changed(*before)

    def _partitions_changed(self, bytes_before: int, partitions_before: int) -> None:
        now_ms = self._broker.clock.steady_ms()
        self._broker.fetch_sessions.partitions_changed(self.session, bytes_before, partitions_before, now_ms)

    def _look_at_all(self) -> Taken:
        changes = yield from self._pass()
        return self.begin(changes)

    def _pass(self) -> Generator[None, None, _Changes]:
        changes, left = _Changes(self), QUIET_AT_ONCE
        for wanted in list(self.session.order):
            if changes.is_quiet(wanted):
                left -= 1
            else:
                changes.look_at(wanted)
                left -= QUIET_AT_ONCE // PARTITIONS_AT_ONCE
            if left <= 0:
                yield None
                changes.step_ends()
                left = QUIET_AT_ONCE
        return changes

    def _read_again(self) -> Outcome | None:
        steps = self._pass()
        try:
            next(steps)
        except StopIteration as end:
            return self._enough(end.value)
        return Steps(self._begin_after(steps))

    def _begin_after(self, steps: Generator[None, None, _Changes]) -> Taken:
        changes = yield from steps
        return self.begin(changes)

    def _at_deadline(self) -> Outcome:
        self._deadline_ms = 0
        return _at_once_or_in_steps(self._look_at_all())

    def say_again(self, said: list[WantedPartition]) -> Outcome:
        """An answer was dropped, as there was no memory for it."""
        for wanted in said:
            wanted.tell_again()
        return _at_once_or_in_steps(self._look_at_all())


def _continue_session(broker: Broker, context: RequestContext, request: FetchRequest) -> Outcome:
    """A request of a session."""
    try:
        session = broker.fetch_sessions.resume(
            request.session_id,
            request.session_epoch,
            broker.clock.steady_ms(),
            by_id=context.api_version >= BY_ID_FROM,
        )
    except Refusal as refusal:
        return Reply(FetchResponse(error_code=refusal.code))
    poll = _SessionPoll(broker, context, request, session)
    few = 0 < len(session.order) <= PARTITIONS_AT_ONCE and not _has_many(request)
    if not few or request.forgotten_topics_data:
        return _at_once_or_in_steps(poll.begin_session())
    return poll.begin_with_few()


def _at_once_or_in_steps(steps: Taken) -> Outcome:
    """Return the result of a few steps; many steps are scheduled with others."""
    try:
        next(steps)
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome
    return Steps(steps)


def _key(context: RequestContext, topic: FetchTopic | WantedTopic) -> str | UUID:
    return topic.topic if context.api_version < BY_ID_FROM else topic.topic_id


def _gather(broker: Broker, context: RequestContext, request: FetchRequest) -> _FetchPass:
    gathered = _FetchPass(broker, context, request)
    for wanted in request.topics:
        answer = FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[])
        gathered.topics.append(answer)
        for partition in wanted.partitions:
            data = _nothing_of(partition, request)
            answer.partitions.append(data)
            _take(broker, context, gathered, wanted, partition, data)
    return gathered


def _nothing_of(partition: FetchPartition, request: FetchRequest) -> PartitionData:
    """A partition's answer before anything is read; readers of uncommitted data are not told what was aborted."""
    aborted: list[AbortedTransaction] | None = [] if request.isolation_level else None
    return PartitionData(
        partition_index=partition.partition, high_watermark=-1, records=b"", aborted_transactions=aborted
    )


def _take(
    broker: Broker,
    context: RequestContext,
    gathered: _FetchPass,
    wanted: FetchTopic | WantedTopic,
    partition: FetchPartition,
    data: PartitionData,
) -> None:
    try:
        log = broker.topics.partition(
            context,
            _key(context, wanted),
            partition.partition,
            Operation.READ,
            leader_epoch=partition.current_leader_epoch,
        )
        _read(broker, gathered, log, partition, data)
    except Refusal as refusal:
        _fail(gathered, data, refusal.code)
        if refusal.code in OF_ANOTHER_LEADER and context.api_version >= NEXT_LEADER_FROM:
            _tell_leader(broker, context, gathered, wanted, data)
        if refusal.code in NOT_LOOKED_AT:
            data.aborted_transactions = []  # as Kafka, which has not asked a log then
    except StorageFault:
        _fail(gathered, data, ErrorCode.KAFKA_STORAGE_ERROR)


def _tell_leader(
    broker: Broker, context: RequestContext, gathered: _FetchPass, wanted: FetchTopic | WantedTopic, data: PartitionData
) -> None:
    """Name the leader of a partition that was not read, so that no client needs metadata first (KIP-951)."""
    topic = broker.cluster.view.describe_by_id(wanted.topic_id) if broker.cluster is not None else None
    found = next_leader(broker, context.session, topic.name, data.partition_index) if topic is not None else None
    if found is not None:
        gathered.leaders[found.node.broker] = found.node
        data.current_leader = FetchLeaderIdAndEpoch(leader_id=found.node.broker, leader_epoch=found.leader_epoch)


def _fail(gathered: _FetchPass, data: PartitionData, code: ErrorCode) -> None:
    """Answer for a partition that was not read, without its offsets, as Kafka does."""
    data.error_code = code
    data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
    gathered.final = True


def _read(broker: Broker, gathered: _FetchPass, log: PartitionLog, wanted: FetchPartition, data: PartitionData) -> None:
    """Read one partition into `data`; the first batch of a response may exceed the bounds, as KIP-74 wants."""
    data.log_start_offset = log.log_start_offset
    data.high_watermark = data.last_stable_offset = end = log.high_watermark
    gathered.shown.setdefault(log, log.shown_bytes)
    if end < log.log_end_offset and wanted.fetch_offset >= end and log not in gathered.syncing:
        gathered.syncing.add(log)
        broker.effects.sync(log)  # also for a poll that does not wait
    if wanted.fetch_offset < log.segments[-1].base_offset:
        gathered.final = True
    if end < wanted.fetch_offset <= log.log_end_offset:
        return  # not synced yet, or shown by a leader before this one: no cut, and nothing to show
    if wanted.last_fetched_epoch >= 0 and _diverges(broker, log, wanted, data):
        gathered.final = True
        return
    bytes_left = gathered.bytes_max - gathered.bytes_read
    if bytes_left <= 0 and gathered.bytes_read > 0:
        return
    bytes_max = max(min(wanted.partition_max_bytes, bytes_left), 0)
    try:
        at_once = gathered.bytes_read < AT_ONCE_BYTES_MAX
        records = log.reader.read(wanted.fetch_offset, bytes_max, blocking=False) if at_once else None
    except StorageFault as fault:
        broker.note_fault(log, fault)
        raise
    if records is None:
        gathered.cold.append((data, log, wanted.fetch_offset, bytes_max))
        return
    data.records = records
    gathered.bytes_read += len(records)


def _diverges(broker: Broker, log: PartitionLog, wanted: FetchPartition, data: PartitionData) -> bool:
    """Tell a reader whose last epoch ended earlier here where to cut (KIP-595)."""
    epoch, end_offset = broker.epoch_end(log, wanted.last_fetched_epoch)
    if epoch == wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
        return False
    if epoch < 0:
        raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {wanted.last_fetched_epoch} was never seen here")
    data.diverging_epoch = FetchEpochEndOffset(epoch=epoch, end_offset=end_offset)
    data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
    return True


def _read_cold(broker: Broker, gathered: _FetchPass, settle: Callable[[_FetchPass], Outcome]) -> RunInWorker:
    """Read in the reader thread, then `settle`."""
    faults: list[tuple[PartitionLog, StorageFault]] = []

    def work() -> DamageMet | None:
        while gathered.cold:
            data, log, offset, bytes_max = gathered.cold[0]
            bytes_left = gathered.bytes_max - gathered.bytes_read
            if bytes_left <= 0 and gathered.bytes_read > 0:
                return None
            try:
                data.records = log.reader.read(offset, max(min(bytes_max, bytes_left), 0), blocking=True) or b""
                gathered.bytes_read += len(data.records)
            except DamageFound as found:
                return log, found
            except Refusal as refusal:
                _fail(gathered, data, refusal.code)
            except StorageFault as fault:
                _fail(gathered, data, ErrorCode.KAFKA_STORAGE_ERROR)
                faults.append((log, fault))
            gathered.cold.popleft()
        return None

    def quarantine_failed(met: DamageMet, fault: StorageFault) -> None:
        _fail(gathered, gathered.cold.popleft()[0], ErrorCode.KAFKA_STORAGE_ERROR)
        faults.append((met[0], fault))

    def then() -> Outcome:
        for log, fault in faults:
            broker.note_fault(log, fault)
        return settle(gathered)

    return read_through(broker.effects, work, then, quarantine_failed)
