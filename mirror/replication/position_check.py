"""Checks the positions of streams before they are read on, and moves back those whose records the source lost.

Contains: which broker is queried, and the reaction. Does not contain: the rules (the tables in leader_epochs.py).

| result for a stream's position                | then                                         | log line          |
|-----------------------------------------------|----------------------------------------------|-------------------|
| it stands                                     | it is read on                                |                   |
| its leader cannot say now                     | it is not read, and queried again            | problem           |
| the source lost records below it              | ledger record, back to where they began      | source_went_back  |
| the topic was created again                   | a session starts at the source's log start   | topic_made_anew   |
| an older version's, the same at both ends     | it is read on                                | position_proved   |
| an older version's, not the same              | ledger record, back to where the two part    | source_went_back  |
| an older version's, and it cannot be proved   | it is accepted, this once                    | position_believed |

Going back waits until all that was read is safe at the target; meanwhile the stream is not read, the others are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from drupelet.observe.log_tree import Log
from mirror.client.log_queries import EpochQuestion
from mirror.client.source_client import Source
from mirror.client.target_client import Target
from mirror.errors import TargetError, UntoldError
from mirror.ledger import losses
from mirror.partition import leader_epochs
from mirror.partition.stream import PartitionStream

_log = Log("mirror")

PROOFS_MAX = 16  # at a time, each of a few requests over the link, before streams whose position stands are read


class Lose(Protocol):
    """Records a range in the loss ledger, and returns when that is safe."""

    def __call__(
        self, lane: PartitionStream, cause: losses.Cause, first: int, end: int, *, occasion: str
    ) -> Awaitable[None]:
        """Record [first, end); neither raises nor gives up."""


class Positions:
    """Checks positions by `settle`; `tell` reports what is wrong with a name, no text when it is over.

    `begin_anew` starts a stream's session at the start of the source's log.
    """

    def __init__(
        self,
        source: Source,
        target: Target,
        lose: Lose,
        begin_anew: Callable[[PartitionStream], None],
        tell: Callable[[str, str], None],
    ) -> None:
        self._source, self._target = source, target
        self._lose, self._begin_anew_with_log, self._tell = lose, begin_anew, tell
        self._proofs = 0

    async def settle(self, lanes: Iterable[PartitionStream]) -> None:
        """Check every stream that may not be read, as far as possible now; raises SourceError."""
        unsettled = [lane for lane in lanes if lane.has_session and not lane.is_read and not _waits(lane)]
        self._proofs = PROOFS_MAX
        while unsettled:
            for lane in unsettled:
                if lane.may_go_back:
                    await self._go_back(lane)
            judged = [lane for lane in unsettled if lane.go_back_to is None and not _waits(lane)]
            await self._ask([lane for lane in judged if await self._must_be_asked(lane)])
            unsettled = [lane for lane in judged if lane.may_go_back]  # and is checked again at its new position

    async def _must_be_asked(self, lane: PartitionStream) -> bool:
        try:
            return await self._must_ask(lane)
        except UntoldError as error:  # the others go on
            self._tell(f"{lane.name} position", str(error))
            return False

    async def _must_ask(self, lane: PartitionStream) -> bool:
        """Decide without the leader as far as possible, and return whether it must be queried."""
        offsets = lane.offsets
        match leader_epochs.judge_standing(
            lane.read_offset,
            offsets.topic_id,
            offsets.epochs,
            source_topic_id=lane.topic_id,
            source_epoch=lane.leader.epoch,
        ):
            case "ask":
                return True
            case "stands":
                self._stands(lane)
            case "anew":
                _log.warning("topic_made_anew", **lane.fields(), acked=lane.offsets.acked, topic_id=lane.topic_id)
                lane.go_back_to, lane.starts_anew = 0, True
            case "unproved":
                await self._prove(lane)
        return False

    def _stands(self, lane: PartitionStream) -> None:
        if lane.topic_id is not None:
            lane.offsets.topic_id = lane.topic_id
        lane.leader_epoch = lane.leader.epoch
        self._tell(f"{lane.name} position", "")

    async def _ask(self, lanes: list[PartitionStream]) -> None:
        asked = {lane.partition: lane for lane in lanes}
        places = {lane.partition: (lane.offsets, lane.read_offset) for lane in lanes}
        questions = {}
        for partition, lane in asked.items():
            known = lane.offsets.epochs.below(lane.read_offset)
            assert known is not None
            questions[partition] = EpochQuestion(known.leader_epoch, lane.leader)
        for partition, answer in (await self._source.epoch_ends(questions)).items():
            if places[partition] != (asked[partition].offsets, asked[partition].read_offset):
                continue  # a session has started elsewhere meanwhile
            if isinstance(answer, str):
                self._tell(f"{asked[partition].name} position", f"its leader cannot judge it: {answer}")
                continue
            try:
                await self._judge(asked[partition], answer)
            except UntoldError as error:
                self._tell(f"{asked[partition].name} position", str(error))

    async def _judge(self, lane: PartitionStream, answer: leader_epochs.EpochEnd) -> None:
        starts = {lane.partition: 0}
        if answer.end_offset < 0:
            starts, _ = await self._source.bounds([lane.partition])
        offset = leader_epochs.judge_epoch_end(
            lane.read_offset,
            lane.offsets.epochs,
            answer,
            source_epoch=lane.leader.epoch,
            log_start=starts[lane.partition],
        )
        if offset < lane.read_offset:
            self._went_back(lane, offset, answer.leader_epoch)
        else:
            self._stands(lane)

    def _went_back(self, lane: PartitionStream, offset: int, leader_epoch: int = -1) -> None:
        _log.error(
            "source_went_back",
            **lane.fields(),
            position=lane.read_offset,
            to=offset,
            leader_epoch=lane.leader.epoch,
        )
        lane.go_back_to, lane.go_back_epoch = offset, leader_epoch

    async def _go_back(self, lane: PartitionStream) -> None:
        offset, lost = lane.go_back_to, lane.offsets.epochs.below(lane.read_offset)
        assert offset is not None
        assert lane.state is not None
        if lane.starts_anew:
            lane.go_back_to = None
            self._begin_anew_with_log(lane)
            return
        if offset < lane.read_offset:
            epoch = "" if lost is None else str(lost.leader_epoch)  # in another one, the same offsets can be lost again
            offsets = lane.offsets
            await self._lose(lane, "source_truncated", offset, lane.read_offset, occasion=epoch)
            if lane.offsets is not offsets:
                return  # a session has started elsewhere meanwhile
        lane.go_back_to = None
        lane.start(lane.offsets.gone_back(offset, lane.go_back_epoch))
        lane.offsets.topic_id = lane.topic_id
        lane.state.go_back(offset, lane.offsets.epochs.below(offset))

    async def _prove(self, lane: PartitionStream) -> None:
        """Compare with the target, once its topic is known to exist; until then nothing could be sent anyway."""
        if not self._proofs:
            return
        self._proofs -= 1
        starts, ends = await self._source.bounds([lane.partition])
        start, end = starts[lane.partition], ends[lane.partition]
        if lane.read_offset > end:
            lane.leader_epoch = lane.leader.epoch  # the fetch is out of range, and all is read again
            return
        try:
            offset = await self._first_difference(lane, start)
        except TargetError as error:
            self._tell(f"{lane.name} position", f"the target cannot prove it: {error}")
            return
        if offset is not None and offset < lane.read_offset:
            self._went_back(lane, offset)
            return
        if offset is None:
            _log.warning("position_believed", **lane.fields(), position=lane.read_offset)
        else:
            _log.info("position_proved", **lane.fields(), position=lane.read_offset)
        lane.offsets.epochs.note(lane.read_offset - 1, lane.leader.epoch)
        self._stands(lane)

    async def _first_difference(self, lane: PartitionStream, log_start: int) -> int | None:
        """Return the offset from which source and target differ below the position; None if that cannot be told."""
        target_end, position = lane.offsets.target_end, lane.read_offset
        if target_end is None:
            return None
        ahead = target_end - position  # of the target, if the mirror was the only writer, and left nothing out

        async def same(offset: int) -> bool | None:
            here = await self._source.record_at(lane.partition, offset)
            there = await self._target.record_at(lane.at_target, offset + ahead) if offset + ahead >= 0 else None
            return None if here is None or there is None else here == there

        last = await same(position - 1)
        if last is not False:
            return position if last else None
        first = max(log_start, await self._target.start_offset(lane.at_target) - ahead)
        search = leader_epochs.search_difference(first, position - 1)
        try:
            offset = next(search)
            while True:
                offset = search.send(await same(offset))
        except StopIteration as found:
            difference: int | None = found.value
            return difference


def _waits(lane: PartitionStream) -> bool:
    """Return whether a session at the start of the source's log is about to start."""
    return lane.starts_anew and lane.go_back_to is None
