"""Fetch (key 1): whole batches as they lie on disk, up to the high watermark, with long polling.

A partition answers with whole batches of one segment, from the one that holds the fetch offset on. A request waits
until `min_bytes` are there, a partition has an error or more segments to read, or `max_wait_ms` is over, also where
every read has to be left to a worker.
Sessions (KIP-227) are declined with session id 0, which is always legal; who goes on with one is told to begin anew.
Data that is not in the page cache, or not as it was written, or more than AT_ONCE_BYTES_MAX, is read in the reader
thread; damage that shows there is quarantined first, and the answer goes on behind it, as after compaction.

Must never come in: decoding of records. Source: Kafka protocol, Fetch 4 to 17; KIP-320, KIP-516, KIP-595.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from functools import partial

from edge_broker.broker.api import Served
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.outcome import Do, Outcome, Reply, Steps, Taken, Wait
from edge_broker.broker.read_through import DamageMet, read_through
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.protocol.api import FETCH
from edge_broker.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from edge_broker.security.acls import Operation
from edge_broker.storage.log import PartitionLog
from edge_broker.storage.reading import AT_ONCE_BYTES_MAX
from edge_broker.storage.segment import DamageFound

BY_ID_FROM = 13
NOT_LOOKED_AT = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
WITHOUT_SESSION = (0, -1)  # epochs that begin a session, which is declined, and end one
PARTITIONS_AT_ONCE = 64
Cold = tuple[PartitionData, PartitionLog, int, int]


class _Gathered:
    """One pass over a request's partitions."""

    __slots__ = ("bytes_max", "bytes_read", "cold", "final", "many", "shown", "syncing", "topics", "whose")

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
        self.final = False  # an error, or a reader behind the active segment: nothing is waited for

    def missing_bytes(self, bytes_min: int) -> int:
        """How much must come before there is enough; 0 when there is nothing to wait for."""
        if self.final or not self.shown:
            return 0
        return max(min(bytes_min, self.bytes_max) - self.bytes_read, 0)  # min.bytes above max.bytes is max.bytes

    def reply(self) -> Reply | Steps:
        """The answer; one of many partitions is looked at in steps, so that it is also written in steps."""
        if self.many:
            return Steps(self._weighed(), partial(fetch, *self.whose))
        return self._reply()

    def _reply(self) -> Reply:
        return Reply(FetchResponse(responses=self.topics), size=self.bytes_read, again=partial(fetch, *self.whose))

    def _weighed(self) -> Taken:
        for topic in self.topics:
            yield FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[])  # to be weighed
            yield from topic.partitions
        return self._reply()


@Served(
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
    left_out="sessions (KIP-227), declined with session id 0; racks and followers, as there is one broker",
)
def fetch(broker: Broker, context: RequestContext, request: FetchRequest) -> Outcome:
    """Answer at once when there is enough or something is wrong, else wait for the logs."""
    if broker.cluster is not None and _is_of_broker(request):
        from edge_broker.broker.follower_fetch import follower_fetch  # noqa: PLC0415 - for a cluster alone

        return follower_fetch(broker, context, request)
    if request.session_epoch not in WITHOUT_SESSION:
        return Reply(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    if _has_many(request):
        return Steps(_LongPoll(broker, context, request).begin_in_steps())
    gathered = _gather(broker, context, request)
    if not gathered.cold and (request.max_wait_ms <= 0 or not gathered.missing_bytes(request.min_bytes)):
        return gathered.reply()
    return _LongPoll(broker, context, request).begin(gathered)


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

    While it waits it counts what is shown behind what it has looked at, and reads again once that may be enough.
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

    def _gather_in_steps(self) -> Generator[None, None, _Gathered]:
        """What `_gather` does."""
        gathered = _Gathered(self._broker, self._context, self._request, many=True)
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

    def begin(self, gathered: _Gathered) -> Outcome:
        return _read_cold(self._broker, gathered, self._settle) if gathered.cold else self._settle(gathered)

    def _settle(self, gathered: _Gathered) -> Outcome:
        """What was cold is read; it may be less than was asked for."""
        left_ms = self._deadline_ms - self._broker.clock.steady_ms()
        if not self._waits_behind(gathered) or left_ms <= 0:
            return gathered.reply()
        return self._look() or Wait(list(self._shown), self._look, left_ms, self._at_deadline, patient=True)

    def _waits_behind(self, gathered: _Gathered) -> bool:
        """Count from what was gathered on; False when that is enough."""
        self._shown, self._missing_bytes = gathered.shown, gathered.missing_bytes(self._request.min_bytes)
        return self._missing_bytes > 0

    def _look(self) -> Outcome | None:
        """Read again when what is new may be enough, or something is wrong."""
        new_bytes = 0
        for log, shown_bytes in self._shown.items():
            if log.fault is not None:
                break
            new_bytes += log.shown_bytes - shown_bytes
        else:
            if new_bytes < self._missing_bytes:
                return None
        if _has_many(self._request):
            return Steps(self._look_in_steps())
        gathered = _gather(self._broker, self._context, self._request)
        if gathered.cold:
            return _read_cold(self._broker, gathered, self._settle)
        return None if self._waits_behind(gathered) else gathered.reply()

    def _at_deadline(self) -> Outcome:
        if _has_many(self._request):
            self._deadline_ms = 0
            return Steps(self._look_in_steps())
        last = _gather(self._broker, self._context, self._request)
        return _read_cold(self._broker, last, _Gathered.reply) if last.cold else last.reply()


def _gather(broker: Broker, context: RequestContext, request: FetchRequest) -> _Gathered:
    gathered = _Gathered(broker, context, request)
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
    gathered: _Gathered,
    wanted: FetchTopic,
    partition: FetchPartition,
    data: PartitionData,
) -> None:
    try:
        log = broker.topics.partition(
            context,
            wanted.topic if context.api_version < BY_ID_FROM else wanted.topic_id,
            partition.partition,
            Operation.READ,
            leader_epoch=partition.current_leader_epoch,
        )
        _read(broker, gathered, log, partition, data)
    except Refusal as refusal:
        _fail(gathered, data, refusal.code)
        if refusal.code in NOT_LOOKED_AT:
            data.aborted_transactions = []  # as Kafka, which has not asked a log then
    except StorageFault:
        _fail(gathered, data, ErrorCode.KAFKA_STORAGE_ERROR)


def _fail(gathered: _Gathered, data: PartitionData, code: ErrorCode) -> None:
    """Answer for a partition that was not read, without its offsets, as Kafka does."""
    data.error_code = code
    data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
    gathered.final = True


def _read(broker: Broker, gathered: _Gathered, log: PartitionLog, wanted: FetchPartition, data: PartitionData) -> None:
    """Read one partition into `data`; the first batch of a response may exceed the bounds, as KIP-74 wants."""
    data.log_start_offset = log.log_start_offset
    data.high_watermark = data.last_stable_offset = end = log.high_watermark
    gathered.shown.setdefault(log, log.shown_bytes)
    if end < log.log_end_offset and wanted.fetch_offset >= end and log not in gathered.syncing:
        gathered.syncing.add(log)
        broker.effects.sync(log)  # also for a poll that does not wait
    if wanted.fetch_offset < log.segments[-1].base_offset:
        gathered.final = True
    if broker.cluster is not None and end < wanted.fetch_offset <= log.log_end_offset:
        return  # a leader before this one has shown more than this one may show yet
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


def _read_cold(broker: Broker, gathered: _Gathered, settle: Callable[[_Gathered], Outcome]) -> Do:
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

    def refused(met: DamageMet, fault: StorageFault) -> None:
        _fail(gathered, gathered.cold.popleft()[0], ErrorCode.KAFKA_STORAGE_ERROR)
        faults.append((met[0], fault))

    def then() -> Outcome:
        for log, fault in faults:
            broker.note_fault(log, fault)
        return settle(gathered)

    return read_through(broker, work, then, refused)
