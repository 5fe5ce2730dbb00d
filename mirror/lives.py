"""The mirror's lives at the target: fence, look, write; who goes on where, and what is stored before a batch may go.

| step of `begin`, for all lanes that wait | round trips |
|---|---|
| the state topic found or made, once | 1 to 3 |
| their partitions fenced, and at the start the state topic's | 3, 4 with the coordinator's search |
| the state topic read, once | 1 and more |
| their logs looked at | 2 and more, the first while the fence is confirmed, but at the start |
| their heads written | 1, with the first step of the first batch |

A lane begins a life when it starts, and whenever nobody knows any more which of its batches have arrived. Where no
fence is to be had (`is_weak`), the life that was goes on: one mirror at a time is then the operator's matter.

The rules are in state.py and resuming.py, their reasons in STATE.md. Must never come in: batches and when they are sent
(sending.py), the source's log and its epochs (positions.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from drupelet.backoff import Backoff
from drupelet.log_tree import Log
from edge_broker.errors import ErrorCode, error_name
from kafka_wire.cluster import Partition
from kafka_wire.errors import WireError
from kafka_wire.fencing import LAST_EPOCH, Fence, Fencing, Meanwhile, NoFence, Overtaken
from kafka_wire.looking import Look, Wanted
from mirror.between import Between
from mirror.errors import LeaderlessError, OvertakenError, SourceError, TargetError
from mirror.lane import Lane
from mirror.provenance import Origin, carries
from mirror.resuming import Resumed, Seen, floor_of
from mirror.spare import spare_ids
from mirror.state import PartitionState, Write
from mirror.state_records import Reading, StateError, StepsMissing, Stored, Topics, no_spare_record
from mirror.target import Target

_log = Log("mirror")

NOWHERE = 2**62  # as a floor: nothing of ours can be there, so only the end of the log is asked for
STEPS_MAX = 20_000  # fetches of a second, longer look
POSITION_S = 1800.0  # after which a position that has moved is stored, if no other write took it along
POSITION_RECORDS = (
    2**28
)  # behind the stored position, from which on that does not wait: a quarter of what a sequence tells
NOTHING_SEEN = Look(0, 0, 0, None, -1, True)
RENEW_S = 12 * 3600.0
GATHER_S = 0.1  # that those who may begin now wait for others
HEAD_S = 0.25  # that the head of a life waits for its first batch
LOOK_S = 60.0
LINES_MAX = 40  # about partitions that begin at once


class Begun(NamedTuple):
    """Where a lane goes on, and how many records were mirrored as far as was known before the look."""

    resumed: Resumed
    records_before: int


class Host(Protocol):
    """Who owns the lanes."""

    @property
    def others_s(self) -> float:
        """For so long another mirror of the site may still write."""

    async def place(self, lane: Lane, resumed: Resumed, end_offset: int) -> int:
        """Where at the source a lane begins of which the state tells nothing any more, as the target's log ends there.

        Raises SourceError, TargetError.
        """

    def tell(self, name: str, text: str) -> None:
        """What is wrong with `name`; no text when it is over."""

    def doubled(self, lane: Lane, records: int) -> None:
        """So many records are sent again that are at the target."""

    def overtaken(self, text: str) -> None:
        """Another mirror has taken over; nothing of ours is taken any more."""

    def stored(self, lane: Lane) -> None:
        """More of a lane's batches may go."""

    def state_topic_lost(self, name: str) -> None:
        """The state topic was deleted since it was opened, and is written again."""

    def transaction_ended(self, outcome: str) -> None:
        """A transaction has ended so, by metrics.OUTCOMES."""


class Lives:
    """Of one process and one start; of one event loop. `is_weak` once the target has refused to fence."""

    def __init__(self, target: Target, name: str, replicas: int, host: Host, backoff: tuple[float, float]) -> None:
        """`name` is that of the state topic and of the transactional id; `backoff` the first and longest wait, in s."""
        self.target, self.host = target, host
        self.is_weak = False
        self._name, self._replicas = name, replicas
        self._fencing = target.fencing(name)
        self._topic = target.state_topic(name)
        self._announced: dict[int, str] = {}  # spare ids of a mirror with transactions, by what was read last
        self._fenced: list[Partition] = []  # those that the last fence was asked for
        self._states: dict[Partition, PartitionState] = {}  # of every lane that has begun, kept when it is dropped
        self._stored: dict[Partition, Stored] | None = None  # what was read and not begun yet
        self._between = Between()
        self._opening, self._is_open, self._was_opened = asyncio.Lock(), False, False
        self._is_unsure = True  # whether a write to the state topic may have arrived
        self._waiting: dict[Lane, asyncio.Future[Begun]] = {}
        self._coming: set[Lane] = set()
        self._arrived = asyncio.Event()
        self._asked, self._failed = asyncio.Event(), asyncio.Event()
        self._urgent: dict[PartitionState, Lane] = {}
        self._due: set[PartitionState] = set()
        self._wake = asyncio.Event()
        self._backoff = Backoff(*backoff)
        self._fenced_at = 0.0
        self._made_ids: dict[str, str | None] = {}  # of topics that this mirror made, since a life began in them
        self._tells = True  # a line for each

    @property
    def target_ms(self) -> int | None:
        """What the target's clock shows at the most, None while that is unknown, or nothing is fenced."""
        return None if self.is_weak else self._topic.clock.now_ms

    # -- life

    async def run(self) -> None:
        """Begin lives, and write the state, until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for loop in (self._prepare(), self._begin_all(), self._ask_again(), self._write_all(), self._look_after()):
                tasks.create_task(loop)

    async def _prepare(self) -> None:
        """Do what needs no lane while their topics are made; what fails now is told when it is done again."""
        with contextlib.suppress(TargetError), mapped():
            await self._open_with_epoch()

    async def _open(self) -> None:
        async with self._opening:
            if not self._is_open:
                before = self._topic.topic_id
                is_new = await self._topic.open(self._replicas)
                if self._was_opened and (is_new or self._topic.topic_id != before):
                    self._write_again()
                self._is_open = self._was_opened = True

    def _write_again(self) -> None:
        """Have the state topic hold again all that is known: it was deleted, and made again."""
        for partition, stored in (self._stored or {}).items():  # of partitions that have not begun
            head = stored.head._replace(first_chunk=stored.held_chunk)
            assert self._stored is not None
            self._stored[partition] = stored._replace(head=head)
            self._due.add(PartitionState(partition, head.topics, self._stored[partition]))
        self._due.update(self._states.values())
        for state in self._due:
            state.store_again()
        self._wake.set()
        self.host.state_topic_lost(self._name)

    async def _open_with_epoch(self, *, anew: bool = False) -> None:
        """Have the next epoch given meanwhile; that there are no fences is told when one is asked for."""
        for error in await asyncio.gather(self._open(), self._fencing.prepare(anew=anew), return_exceptions=True):
            if isinstance(error, BaseException) and not isinstance(error, NoFence):
                raise error

    @contextlib.contextmanager
    def coming(self, lane: Lane) -> Iterator[None]:
        """Note that a lane is about to begin a life, if what it does now goes well."""
        self._coming.add(lane)
        try:
            yield
        finally:
            self._coming.discard(lane)
            if not self._coming:
                self._arrived.set()

    async def begin(self, lane: Lane) -> Begun:
        """Begin a life of a lane that has nothing under way; raises TargetError, and OvertakenError for good."""
        waiting = self._waiting.get(lane)
        if waiting is None:
            waiting = self._waiting[lane] = asyncio.get_running_loop().create_future()
            self._asked.set()
        return await asyncio.shield(waiting)

    def note(self, lane: Lane) -> None:
        """Have written what must be stored before the lane's next batch may go."""
        assert lane.state is not None
        self._urgent[lane.state] = lane
        self._wake.set()

    def _note_later(self, lane: Lane, state: PartitionState) -> None:
        """Have the head of a life written with the first step of its first batch, or alone when none comes soon."""

        def note() -> None:
            if lane.state is state and not lane.is_gone:  # a topic made anew: its lane has the state now, and is told
                self.note(lane)

        asyncio.get_running_loop().call_later(HEAD_S, note)

    async def stop(self, lanes: Iterable[Lane]) -> None:
        """Store the positions of lanes that have moved; raises TargetError."""
        behind = [lane.state for lane in lanes if lane.state is not None and lane.state.is_behind]
        if behind and not self._is_unsure:
            with mapped():  # a write that was cut off has left it unsure
                await self._topic.write([state.write().records for state in behind])

    # -- begin

    async def _begin_all(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            waiting: dict[Lane, asyncio.Future[Begun]] = {}
            try:
                with mapped():
                    found = await self._begin(waiting)
            except OvertakenError as error:
                self.host.overtaken(str(error))
                found = dict.fromkeys(self._take(waiting), error)
            except TargetError as error:
                found = dict.fromkeys(self._take(waiting), error)
                self.host.tell("state topic", str(error))
                if self._is_unsure:
                    self._failed.set()
            else:
                self._backoff.reset()
                self.host.tell("state topic", "")
            _tell(waiting, found)
            self._wake.set()

    async def _ask_again(self) -> None:
        """Begin again after a failure, though no lane asks for it: the state topic has to be made sure of."""
        while True:
            await self._failed.wait()
            self._failed.clear()
            await self.target.pauses.wait(self._backoff.next_s())
            self._asked.set()

    async def _begin(self, waiting: dict[Lane, asyncio.Future[Begun]]) -> dict[Lane, Begun | TargetError]:
        """Begin the lives of those that wait once an epoch is there, which `waiting` gets."""
        with_state = self._is_unsure
        if with_state and not self._is_open:
            await self._open_with_epoch(anew=True)

        def chosen() -> list[Partition]:
            self._fenced = [*map(_at, self._take(waiting)), *([self._topic.partition] if with_state else [])]
            return self._fenced

        early: dict[Lane, Look] = {}

        read: dict[Partition, Stored] | None = None

        async def meanwhile(fence: Fence) -> None:
            nonlocal read
            if self._stored is not None:
                early.update(await self._look_early(waiting, fence))
            elif with_state:
                read = await self._read_early(fence)

        await self._gathered()
        fence = await self._fence(chosen, meanwhile) if self._waiting or with_state else None
        lanes = [lane for lane in waiting if not lane.is_gone]
        if with_state:
            await self._begin_state(fence, read)
        found: dict[Lane, Begun | TargetError] = {}
        for lane in lanes:
            code = 0 if fence is None else fence.refused.get(_at(lane), 0)
            if code:
                found[lane] = TargetError(f"it cannot be fenced at the target: {_said(code)}")
        return found | await self._begin_fenced([lane for lane in lanes if lane not in found], fence, early)

    def _take(self, waiting: dict[Lane, asyncio.Future[Begun]]) -> list[Lane]:
        """Take all that wait."""
        some, self._waiting = self._waiting, {}
        waiting.update(some)
        return list(waiting)

    async def _fence(self, chosen: Callable[[], list[Partition]], meanwhile: Meanwhile) -> Fence | None:
        """Fence what is chosen once there is an epoch; None where the target has no fences for us."""
        try:
            fence = await self._fencing.begin_with(chosen, meanwhile)
        except NoFence as error:
            if not self.is_weak:
                _log.warning("no_fence", error=error, then="one mirror of this site at a time is up to you")
            self.is_weak = True
            await asyncio.sleep(self.host.others_s)
            chosen()
            return None
        self._between.given(*fence[:2])
        self.is_weak, self._fenced_at = False, asyncio.get_running_loop().time()
        return fence

    async def _gathered(self) -> None:
        """Wait a little for lanes that are about to ask: fenced alone, they would wait for another epoch."""
        if self._coming:
            self._arrived.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GATHER_S):
                    await self._arrived.wait()

    async def _read_early(self, fence: Fence) -> dict[Partition, Stored] | None:
        """Read the state while the markers are being written; None where its own is not seen, and it is read again."""
        try:
            with mapped():
                found = await self._read_state()
        except TargetError:
            return None  # it is told when it is read again
        return found if is_marked_by(self._topic.marked_by, fence) else None

    async def _begin_state(self, fence: Fence | None, read: dict[Partition, Stored] | None) -> None:
        """Write as one that nobody else is, and read what former lives have written, unless that was `read` early.

        Raises OvertakenError where another mirror has written since: what we have of the state is not what holds.
        """
        if fence is None:
            producer = await self.target.producer()
            self._topic.begin(producer.id, producer.epoch)
        elif (code := fence.refused.get(self._topic.partition)) is not None:
            raise TargetError(f"topic {self._name} cannot be fenced: {error_name(code)}")
        else:
            if read is None and not fence.is_confirmed:
                read = await self._read_early(fence)
                if read is None:
                    raise TargetError(f"topic {self._name} cannot be fenced: its marker is not written yet")
            self._topic.begin(*fence[:2])
        if self._stored is None or self._between:
            found = await self._read_state() if read is None else read
            if fence is not None and (self._announced or not is_marked_by(self._topic.marked_by, fence)):
                found = await self._fence_spares(found)
            if self._stored is None:
                self._stored = found
            elif any((one.head.producer_id, one.head.producer_epoch) in self._between for one in found.values()):
                raise OvertakenError("another mirror has written its state meanwhile")
        self._between.clear()
        self._is_unsure = False

    async def _read_state(self) -> dict[Partition, Stored]:
        """What the state topic tells of each partition."""
        reading = Reading()
        await self._topic.read(reading)
        self._announced = reading.spares
        return reading.partitions()

    async def _fence_spares(self, found: dict[Partition, Stored]) -> dict[Partition, Stored]:
        """Take spare ids of mirrors with transactions, and return the state that no one changes any more.

        `found` was read where some are announced, or where the state topic does not show our marker: then a mirror is
        about to announce one, and its open transaction hides what was committed after that began.
        """
        spares = {number: self.target.fencing(name) for number, name in self._wanted_spares().items()}
        found = await self._read_fenced(spares)
        if self._announced:
            await self._topic.write([[no_spare_record(self._name, number)] for number in self._announced])
            self._announced = {}
        return found

    def _wanted_spares(self) -> dict[int, str]:
        """Return those that are announced; all of them where one may be announced by now."""
        return self._announced or dict(enumerate(spare_ids(self._name), 1))

    async def _read_fenced(self, spares: Mapping[int, Fencing]) -> dict[Partition, Stored]:
        """Return the state, read under the next epochs of spare ids: what was begun under them has ended before."""
        try:
            for spare in spares.values():
                await spare.begin(self._fenced)
        except NoFence as error:
            raise TargetError(f"another mirror may use a spare transactional id: {error}") from error
        return await self._read_state()

    async def _look_early(self, lanes: Iterable[Lane], fence: Fence) -> dict[Lane, Look]:
        """Look while the markers are being written; where one is seen, what lies below it is all that there will be."""
        try:
            looks = await self._look({lane: self._floor(lane) for lane in lanes if not self._is_new(lane)}, fence)
        except TargetError:
            return {}  # it is looked again, and told then
        return {lane: look for lane, look in looks.items() if isinstance(look, Look) and shows_marker(look, fence)}

    async def _begin_fenced(
        self, lanes: list[Lane], fence: Fence | None, early: Mapping[Lane, Look]
    ) -> dict[Lane, Begun | TargetError]:
        self._tells = len(lanes) <= LINES_MAX
        if not self._tells:
            _log.info("lives", partitions=len(lanes))
        needless = {
            lane: NOTHING_SEEN for lane in lanes if self._is_new(lane) and (fence is None or fence.is_confirmed)
        }
        seen = needless | {lane: early[lane] for lane in lanes if lane in early}
        looks = seen | await self._look({lane: self._floor(lane) for lane in lanes if lane not in seen}, fence)
        found: dict[Lane, Begun | TargetError] = {}
        for lane in lanes:
            try:
                found[lane] = await self._begin_one(lane, looks[lane], fence)
            except (StateError, SourceError, TargetError) as error:
                found[lane] = TargetError(str(error))
        return found

    async def _look(
        self, floors: dict[Lane, int], fence: Fence | None, steps_max: int = 200, below: int = NOWHERE
    ) -> dict[Lane, Look | str]:
        wanted, found = dict[Partition, Wanted](), dict[Lane, Look | str]()
        for lane, floor in floors.items():
            state = self._state(lane)
            fenced_by = -1 if fence is None else fence.producer_id
            ids = state.producer_ids | frozenset({fenced_by} - {-1})
            try:
                leader = await self.target.leader(lane.at_target)
            except LeaderlessError as error:  # the others begin
                found[lane] = str(error)
                continue
            wanted[_at(lane)] = Wanted(leader, ids, floor if state.map.steps else NOWHERE, below, fenced_by)
        looks = await self.target.look(wanted, steps_max) if wanted else {}
        return found | {lane: looks[_at(lane)] for lane in floors if lane not in found}

    def _floor(self, lane: Lane) -> int:
        return 0 if lane.answered_below else floor_of(self._state(lane).map.end)

    def _is_new(self, lane: Lane) -> bool:
        """Whether the log can tell nothing of a lane: the first answer tells where it begins."""
        return not self._state(lane).map.steps and lane.commit is None

    def _state(self, lane: Lane) -> PartitionState:
        partition = lane.partition
        state = self._states.get(partition)
        if state is None:
            assert self._stored is not None, "the state topic is read first"
            state = PartitionState(partition, self._topics(lane), self._stored.pop(partition, None))
            self._states[partition] = state
        return state

    def topic_made(self, topic: str) -> None:
        """Note that this mirror has made a topic at the target."""
        self._made_ids.pop(topic, None)

    def _origin(self, lane: Lane) -> Origin | None:
        """Return the origin of what a lane sends; it is alone in the very topic that the mirror made, in no other."""
        origin, topic_id = lane.origin, self.target.topic_id(lane.target_topic)
        if origin is None or not origin.is_alone:
            return origin
        return origin._replace(is_alone=self._made_ids.setdefault(lane.target_topic, topic_id) == topic_id)

    def _topics(self, lane: Lane) -> Topics:
        return Topics(lane.target_topic, lane.topic_id, self.target.topic_id(lane.target_topic))

    async def _begin_one(self, lane: Lane, look: Look | str, fence: Fence | None) -> Begun:
        look = _whole(look, fence)
        state, resumed = await self._resume(lane, look)
        if resumed.verdict == "unknown":
            is_cut = look.is_taken or lane.answered_below
            look = _whole((await self._look({lane: 0}, fence, STEPS_MAX))[lane], fence)
            state, resumed = await self._resume(lane, look, may_be_compacted=not is_cut)
        if resumed.verdict == "displaced":
            state, resumed = await self._in_its_place(lane, resumed, fence)
        if resumed.verdict in ("unknown", "displaced"):
            raise TargetError(f"{lane.at_target} has too many batches of others behind those of ours to find the last")
        before, found, resumed = state.map.end.records, resumed, _wished(lane, state, resumed)
        if state.life.producer_id < 0 or resumed.verdict in ("source_anew", "target_anew"):
            place = await self.host.place(lane, resumed, look.end_offset)
            resumed = resumed._replace(source_offset=place)
        doubled = found.doubled + found.records - resumed.records
        if doubled > 0 and not lane.starts_anew:
            self.host.doubled(lane, doubled)
        try:
            await self._enter(lane, state, resumed, look.end_offset, fence)
        except ValueError as error:
            _log.error("map_begins_anew", **lane.fields(), because=error)
            resumed, lane.contradicts = resumed._replace(placed=None), True
            state.drop_map(resumed)
            await self._enter(lane, state, resumed, look.end_offset, fence)
        if self._tells or resumed.lost:
            _log.info("life", **lane.fields(), offset=resumed.source_offset, because=resumed.verdict, lost=resumed.lost)
        state.forget_below(look.start_offset)
        lane.state, lane.contradicts, lane.starts_anew, lane.resend_from = state, False, False, None
        lane.answered_below = False
        self._note_later(lane, state)
        return Begun(resumed, before)

    async def _in_its_place(self, lane: Lane, resumed: Resumed, fence: Fence | None) -> tuple[PartitionState, Resumed]:
        """Judge by the last batch of ours that is in its place, below one that the target took in that of others."""
        taken, state, below = resumed.records, self._state(lane), NOWHERE
        while resumed.verdict == "displaced" and resumed.placed is not None and resumed.placed[1] < below:
            below = resumed.placed[1]
            look = (await self._look({lane: 0}, fence, STEPS_MAX, below=below))[lane]
            if isinstance(look, str):
                raise TargetError(look)
            state, resumed = await self._resume(lane, look, may_be_compacted=False)
        return state, resumed._replace(doubled=max(0, taken - state.map.end.records))

    async def _resume(self, lane: Lane, look: Look, *, may_be_compacted: bool = True) -> tuple[PartitionState, Resumed]:
        is_compacted = may_be_compacted and lane.is_compacted_there and not (look.is_taken or lane.answered_below)
        seen = Seen(look.start_offset, look.end_offset, look.searched_from, look.last, is_compacted)
        state = self._state(lane)
        try:
            return state, state.resume(seen, self._topics(lane))
        except StepsMissing:
            reading = Reading(None)
            await self._topic.read(reading)
            partition = lane.partition
            state = PartitionState(partition, state.topics, reading.partitions()[partition])
            self._states[partition] = state
            return state, state.resume(seen, self._topics(lane))

    async def _enter(self, lane: Lane, state: PartitionState, resumed: Resumed, end: int, fence: Fence | None) -> None:
        if fence is not None:
            state.begin(self._topics(lane), *fence[:2], resumed, end, origin=self._origin(lane))
            return
        life = state.life
        may_go_on = life.producer_id >= 0 and resumed.verdict in ("found", "position") and not lane.contradicts
        # else the target would take a sequence for what came before it, or there would be none
        is_behind = lane.resend_from is None and not resumed.doubled and resumed.records >= life.records
        is_same = state.topics == self._topics(lane) and carries(state.origin, lane.origin)
        if may_go_on and is_behind and is_same:
            state.go_on(resumed, end)
            return
        if life.producer_id >= 0 and life.producer_epoch < LAST_EPOCH:
            producer = life.producer_id, life.producer_epoch + 1
        else:
            made = await self.target.producer()
            producer = made.id, made.epoch
        state.begin(self._topics(lane), *producer, resumed, end, origin=self._origin(lane))

    # -- write

    async def _write_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._is_unsure:
                continue
            urgent, self._urgent = self._urgent, {}
            due, self._due = self._due, set()
            some = [state for state in urgent if state.is_urgent] + [state for state in due if state not in urgent]
            if some:
                await self._write([(state, state.write()) for state in some], urgent)

    async def _write(self, writes: list[tuple[PartitionState, Write]], lanes: dict[PartitionState, Lane]) -> None:
        try:
            with mapped():
                await self._topic.write([write.records for _, write in writes])
        except asyncio.CancelledError:
            self._is_unsure = True
            raise
        except TargetError as error:
            self._is_unsure, self._is_open = True, False
            self._urgent = lanes | self._urgent
            for state, write in writes:
                state.not_stored(write)
            self.host.tell("state topic", str(error))
            if isinstance(error, OvertakenError):
                self.host.overtaken(str(error))
            else:
                self._failed.set()
            return
        for state, write in writes:
            state.stored(write)
            if state in lanes:
                self.host.stored(lanes[state])

    async def _look_after(self) -> None:
        """Have positions that have moved on stored, and the transactional id kept known to the coordinator."""
        loop = asyncio.get_running_loop()
        stored_at = loop.time()
        while True:
            await asyncio.sleep(LOOK_S)
            is_time = loop.time() - stored_at >= POSITION_S
            stored_at = loop.time() if is_time else stored_at
            self._due |= {
                state
                for state in self._states.values()
                if state.is_behind and (is_time or state.records_behind >= POSITION_RECORDS)
            }
            self._wake.set()
            await self._look_at_topic()
            if not (self.is_weak or self._is_unsure) and loop.time() - self._fenced_at >= RENEW_S:
                await self._renew()

    async def _look_at_topic(self) -> None:
        """Find out whether the state topic was deleted; else the next write would, which may be days away.

        Mirrors that read it at the target would not recognise what this one writes.
        """
        if self._is_unsure or not self._is_open:
            return
        with contextlib.suppress(TargetError), mapped():  # it is away: the next look tells
            if not await self._topic.is_same():
                self._is_unsure, self._is_open = True, False
                self._failed.set()

    async def _renew(self) -> None:
        try:
            with mapped():
                await self._fencing.extend([self._topic.partition])
        except OvertakenError as error:
            self.host.overtaken(str(error))
        except TargetError as error:
            self.host.tell("state topic", str(error))
        else:
            self._fenced_at = asyncio.get_running_loop().time()
            self.host.tell("state topic", "")


def _said(code: int) -> str:
    if code == ErrorCode.CONCURRENT_TRANSACTIONS:
        return f"{error_name(code)}: the transaction before has no end there yet; start the brokers that have it"
    return error_name(code)


def _at(lane: Lane) -> Partition:
    return lane.target_topic, lane.partition.partition


def shows_marker(look: Look, fence: Fence) -> bool:
    """Whether a look was behind the fence: whatever older lives wrote lies before its marker."""
    return look.marker_epoch >= fence.producer_epoch


def is_marked_by(marked_by: tuple[int, int] | None, fence: Fence) -> bool:
    """The same of the state topic, by the last marker that was read there."""
    return marked_by == fence[:2]


def _wished(lane: Lane, state: PartitionState, resumed: Resumed) -> Resumed:
    """From another place than the state tells, where the source lost what it had, or somebody wants it so."""
    if state.life.producer_id < 0:
        return resumed._replace(verdict="source_anew") if lane.is_of_another_log else resumed
    if lane.resend_from is not None and lane.resend_from[0] < resumed.records:
        _log.error(
            "order_lost", **lane.fields(), offset=lane.resend_from[1], then="what arrived behind it is sent again"
        )
        return Resumed("found", *lane.resend_from)
    by_hand = lane.state is None and lane.set_by_hand not in (None, resumed.source_offset)
    if by_hand:
        _log.warning("position_set_by_hand", **lane.fields(), position=resumed.source_offset, to=lane.set_by_hand)
    return Resumed("source_anew", resumed.records) if by_hand or lane.starts_anew else resumed


def _whole(look: Look | str, fence: Fence | None) -> Look:
    if isinstance(look, str):
        raise TargetError(look)
    if fence is not None and not fence.is_confirmed and not shows_marker(look, fence):
        raise TargetError("the marker of its fence is not written yet")
    return look


def _tell(waiting: dict[Lane, asyncio.Future[Begun]], found: Mapping[Lane, Begun | TargetError]) -> None:
    for lane, future in waiting.items():
        if future.done():
            continue
        told = found.get(lane)
        if isinstance(told, Begun):
            future.set_result(told)
        elif told is None:
            future.cancel()
        else:
            future.set_exception(told)
            future.exception()  # who asked may be gone


@contextlib.contextmanager
def mapped() -> Iterator[None]:
    """Raise what the target's connections raise as TargetError."""
    try:
        yield
    except Overtaken as error:
        raise OvertakenError(str(error)) from error
    except (WireError, StateError, TimeoutError, OSError) as error:
        raise TargetError(str(error)) from error
