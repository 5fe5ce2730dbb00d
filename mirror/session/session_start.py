"""Starts the producer session of each partition stream under a fence, at the place that the target's log shows.

| step, for all streams of one fence | where |
|---|---|
| look up the mirror's last batch in each log | `_look_up`; `_look_early` while the fence is confirmed |
| check it against the state | `_resume`; partition/resume_rules.py has the verdicts |
| look further if that is not enough | `_begin_one`, `_in_its_place` |
| start the session, or without a fence continue the previous one | `_enter` |

Does not contain: fences, reads and writes of the state topic (producer_sessions.py), batches (producer/sender.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from drupelet.observe.log_tree import Log
from kafka_wire.cluster import Partition
from kafka_wire.transactions.fencing import LAST_EPOCH, Fence
from kafka_wire.transactions.last_batch_lookup import LookupRequest, LookupResult
from mirror.client.state_topic import StateTopic
from mirror.client.target_client import Target
from mirror.errors import LeaderlessError, SourceError, TargetError
from mirror.partition.provenance import Origin, carries
from mirror.partition.resume_rules import ResumePoint, TargetLookup, floor_of
from mirror.partition.state_records import Reading, StateError, StepsMissing, StoredState, Topics
from mirror.partition.stream import PartitionStream
from mirror.partition.target_state import PartitionState

_log = Log("mirror")

NOWHERE = 2**62  # as a floor: no batch of this mirror can be there, so only the log's end is queried
STEPS_MAX = 20_000  # fetches of a second, longer lookup
NOTHING_SEEN = LookupResult(0, 0, 0, None, -1, True)
LINES_MAX = 40  # log lines about partitions that start at once


class StartedSession(NamedTuple):
    """The place where a stream continues, and how many records were known to be mirrored before the lookup."""

    resumed: ResumePoint
    records_before: int


class Host(Protocol):
    """The owner of the streams."""

    @property
    def others_s(self) -> float:
        """For so long, in seconds, another mirror of the site may still write."""

    async def place(self, stream: PartitionStream, resumed: ResumePoint, end_offset: int) -> int:
        """Return the source offset at which a stream without usable state starts; `end_offset` is the target's.

        Raises SourceError, TargetError.
        """

    def report_problem(self, name: str, text: str) -> None:
        """Report what is wrong with `name`; no text when it is over."""

    def records_doubled(self, stream: PartitionStream, records: int) -> None:
        """Note that so many records are sent again that are at the target."""

    def mirror_fenced(self, text: str) -> None:
        """Note that another mirror has taken over: the target accepts no batch of this one any more."""

    def state_stored(self, stream: PartitionStream) -> None:
        """Note that more of a stream's batches may go."""

    def state_topic_lost(self, name: str) -> None:
        """Note that the state topic was deleted since it was opened, and is written again."""

    def transaction_ended(self, outcome: str) -> None:
        """Note a transaction's outcome, one of metrics.OUTCOMES."""


class SessionStart:
    """Starts the producer session of each partition in its state; of one process and one event loop."""

    def __init__(self, target: Target, host: Host, topic: StateTopic) -> None:
        """`topic` is read again if the steps in memory are not enough."""
        self.target, self.host = target, host
        self._topic = topic
        self._states: dict[Partition, PartitionState] = {}  # of every stream with a session, kept when it is dropped
        self._stored: dict[Partition, StoredState] | None = None  # read, and without a session yet
        self._made_ids: dict[str, str | None] = {}  # of topics that this mirror created, since a session in them
        self._tells = True  # a log line for each stream

    def _note_later(self, stream: PartitionStream, state: PartitionState) -> None:
        """Have the head of a session stored."""
        raise NotImplementedError

    async def _look_early(
        self, streams: Iterable[PartitionStream], fence: Fence
    ) -> dict[PartitionStream, LookupResult]:
        """Look while the markers are written; if one is seen, no older session can add a batch below it."""
        try:
            looks = await self._look_up(
                {stream: self._floor(stream) for stream in streams if not self._is_new(stream)}, fence
            )
        except TargetError:
            return {}  # the next lookup reports it
        return {
            stream: look
            for stream, look in looks.items()
            if isinstance(look, LookupResult) and shows_marker(look, fence)
        }

    async def _begin_fenced(
        self, streams: list[PartitionStream], fence: Fence | None, early: Mapping[PartitionStream, LookupResult]
    ) -> dict[PartitionStream, StartedSession | TargetError]:
        self._tells = len(streams) <= LINES_MAX
        if not self._tells:
            _log.info("sessions_started", partitions=len(streams))
        needless = {
            stream: NOTHING_SEEN for stream in streams if self._is_new(stream) and (fence is None or fence.is_confirmed)
        }
        seen = needless | {stream: early[stream] for stream in streams if stream in early}
        looks = seen | await self._look_up(
            {stream: self._floor(stream) for stream in streams if stream not in seen}, fence
        )
        found: dict[PartitionStream, StartedSession | TargetError] = {}
        for stream in streams:
            try:
                found[stream] = await self._begin_one(stream, looks[stream], fence)
            except (StateError, SourceError, TargetError) as error:
                found[stream] = TargetError(str(error))
        return found

    async def _look_up(
        self, floors: dict[PartitionStream, int], fence: Fence | None, steps_max: int = 200, below: int = NOWHERE
    ) -> dict[PartitionStream, LookupResult | str]:
        wanted, found = dict[Partition, LookupRequest](), dict[PartitionStream, LookupResult | str]()
        for stream, floor in floors.items():
            state = self._state(stream)
            fenced_by = -1 if fence is None else fence.producer_id
            ids = state.producer_ids | frozenset({fenced_by} - {-1})
            try:
                leader = await self.target.leader(stream.at_target)
            except LeaderlessError as error:  # the others start
                found[stream] = str(error)
                continue
            wanted[at_target(stream)] = LookupRequest(
                leader, ids, floor if state.map.steps else NOWHERE, below, fenced_by
            )
        looks = await self.target.look_up(wanted, steps_max) if wanted else {}
        return found | {stream: looks[at_target(stream)] for stream in floors if stream not in found}

    def _floor(self, stream: PartitionStream) -> int:
        return 0 if stream.answered_below else floor_of(self._state(stream).map.end)

    def _is_new(self, stream: PartitionStream) -> bool:
        """Return whether the log can tell nothing of a stream: the first response tells where it starts."""
        return not self._state(stream).map.steps and stream.commit is None

    def _state(self, stream: PartitionStream) -> PartitionState:
        partition = stream.partition
        state = self._states.get(partition)
        if state is None:
            assert self._stored is not None, "the state topic is read first"
            state = PartitionState(partition, self._topics(stream), self._stored.pop(partition, None))
            self._states[partition] = state
        return state

    def topic_made(self, topic: str) -> None:
        """Note that this mirror has created a topic at the target."""
        self._made_ids.pop(topic, None)

    def _origin(self, stream: PartitionStream) -> Origin | None:
        """Return the origin of a stream's records; it is alone only in the very topic that the mirror created."""
        origin, topic_id = stream.origin, self.target.topic_id(stream.target_topic)
        if origin is None or not origin.is_alone:
            return origin
        return origin._replace(is_alone=self._made_ids.setdefault(stream.target_topic, topic_id) == topic_id)

    def _topics(self, stream: PartitionStream) -> Topics:
        return Topics(stream.target_topic, stream.topic_id, self.target.topic_id(stream.target_topic))

    async def _begin_one(
        self, stream: PartitionStream, look: LookupResult | str, fence: Fence | None
    ) -> StartedSession:
        look = _whole(look, fence)
        state, resumed = await self._resume(stream, look)
        if resumed.verdict == "unknown":
            is_cut = look.is_taken or stream.answered_below
            look = _whole((await self._look_up({stream: 0}, fence, STEPS_MAX))[stream], fence)
            state, resumed = await self._resume(stream, look, may_be_compacted=not is_cut)
        if resumed.verdict == "displaced":
            state, resumed = await self._in_its_place(stream, resumed, fence)
        if resumed.verdict in ("unknown", "displaced"):
            raise TargetError(f"{stream.at_target} has too many batches of others after this mirror's to find its last")
        before, found, resumed = state.map.end.records, resumed, _requested_place(stream, state, resumed)
        if state.session.producer_id < 0 or resumed.verdict in ("source_anew", "target_anew"):
            place = await self.host.place(stream, resumed, look.end_offset)
            resumed = resumed._replace(source_offset=place)
        doubled = found.doubled + found.records - resumed.records
        if doubled > 0 and not stream.starts_anew:
            self.host.records_doubled(stream, doubled)
        try:
            await self._enter(stream, state, resumed, look.end_offset, fence)
        except ValueError as error:
            _log.error("offset_map_reset", **stream.fields(), reason=error)
            resumed, stream.contradicts = resumed._replace(placed=None), True
            state.drop_map(resumed)
            await self._enter(stream, state, resumed, look.end_offset, fence)
        if self._tells or resumed.lost:
            _log.info(
                "session_started",
                **stream.fields(),
                offset=resumed.source_offset,
                reason=resumed.verdict,
                lost=resumed.lost,
            )
        state.forget_below(look.start_offset)
        stream.state, stream.contradicts, stream.starts_anew, stream.resend_from = state, False, False, None
        stream.answered_below = False
        self._note_later(stream, state)
        return StartedSession(resumed, before)

    async def _in_its_place(
        self, stream: PartitionStream, resumed: ResumePoint, fence: Fence | None
    ) -> tuple[PartitionState, ResumePoint]:
        """Resume at the mirror's last batch that is in its place, below one that the target took in another place."""
        taken, state, below = resumed.records, self._state(stream), NOWHERE
        while resumed.verdict == "displaced" and resumed.placed is not None and resumed.placed[1] < below:
            below = resumed.placed[1]
            look = (await self._look_up({stream: 0}, fence, STEPS_MAX, below=below))[stream]
            if isinstance(look, str):
                raise TargetError(look)
            state, resumed = await self._resume(stream, look, may_be_compacted=False)
        return state, resumed._replace(doubled=max(0, taken - state.map.end.records))

    async def _resume(
        self, stream: PartitionStream, look: LookupResult, *, may_be_compacted: bool = True
    ) -> tuple[PartitionState, ResumePoint]:
        is_compacted = may_be_compacted and stream.is_compacted_there and not (look.is_taken or stream.answered_below)
        seen = TargetLookup(look.start_offset, look.end_offset, look.searched_from, look.last, is_compacted)
        state = self._state(stream)
        try:
            return state, state.resume(seen, self._topics(stream))
        except StepsMissing:
            reading = Reading(None)
            await self._topic.read(reading)
            partition = stream.partition
            state = PartitionState(partition, state.topics, reading.partitions()[partition])
            self._states[partition] = state
            return state, state.resume(seen, self._topics(stream))

    async def _enter(
        self, stream: PartitionStream, state: PartitionState, resumed: ResumePoint, end: int, fence: Fence | None
    ) -> None:
        if fence is not None:
            state.begin(self._topics(stream), *fence[:2], resumed, end, origin=self._origin(stream))
            return
        life = state.session
        may_go_on = life.producer_id >= 0 and resumed.verdict in ("found", "position") and not stream.contradicts
        # else the target would take a sequence for an earlier one, or there would be none
        is_behind = stream.resend_from is None and not resumed.doubled and resumed.records >= life.records
        is_same = state.topics == self._topics(stream) and carries(state.origin, stream.origin)
        if may_go_on and is_behind and is_same:
            state.continue_session(resumed, end)
            return
        if life.producer_id >= 0 and life.producer_epoch < LAST_EPOCH:
            producer = life.producer_id, life.producer_epoch + 1
        else:
            made = await self.target.producer()
            producer = made.id, made.epoch
        state.begin(self._topics(stream), *producer, resumed, end, origin=self._origin(stream))


def at_target(stream: PartitionStream) -> Partition:
    """Return the stream's partition at the target."""
    return stream.target_topic, stream.partition.partition


def shows_marker(look: LookupResult, fence: Fence) -> bool:
    """Return whether a look is after the fence: all batches of older sessions lie before its marker."""
    return look.marker_epoch >= fence.producer_epoch


def _requested_place(stream: PartitionStream, state: PartitionState, resumed: ResumePoint) -> ResumePoint:
    """Return another place than the state's if the log is another, order was lost, or a position was set by hand."""
    if state.session.producer_id < 0:
        return resumed._replace(verdict="source_anew") if stream.is_of_another_log else resumed
    if stream.resend_from is not None and stream.resend_from[0] < resumed.records:
        _log.error(
            "order_lost",
            **stream.fields(),
            offset=stream.resend_from[1],
            result="records that arrived after it are sent again",
        )
        return ResumePoint("found", *stream.resend_from)
    by_hand = stream.state is None and stream.set_by_hand not in (None, resumed.source_offset)
    if by_hand:
        _log.warning("position_set_by_hand", **stream.fields(), position=resumed.source_offset, to=stream.set_by_hand)
    return ResumePoint("source_anew", resumed.records) if by_hand or stream.starts_anew else resumed


def _whole(look: LookupResult | str, fence: Fence | None) -> LookupResult:
    if isinstance(look, str):
        raise TargetError(look)
    if fence is not None and not fence.is_confirmed and not shows_marker(look, fence):
        raise TargetError("the marker of its fence is not written yet")
    return look
