"""Checks the positions of streams before they are read on, and moves back those whose records the source lost.

Contains: which broker is queried, and the reaction. Does not contain: the rules (the tables in leader_epochs.py).

| result for a stream's position                | then                                         | log line          |
|-----------------------------------------------|----------------------------------------------|-------------------|
| it stands                                     | it is read on                                |                   |
| its leader cannot say now                     | it is not read, and queried again            | problem           |
| the source lost records below it              | ledger record, back to where they began      | source_truncated  |
| the topic was created again                   | a session starts at the source's log start   | topic_recreated   |
| an older version's, the same at both ends     | it is read on                                | position_proved   |
| an older version's, not the same              | ledger record, back to where the two part    | source_truncated  |
| an older version's, and it cannot be proved   | it is accepted, this once                    | position_accepted |

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
        self, stream: PartitionStream, cause: losses.Cause, first: int, end: int, *, occasion: str
    ) -> Awaitable[None]:
        """Record [first, end); neither raises nor gives up."""


class Positions:
    """Checks positions by `check`; `report_problem` reports what is wrong with a name, no text when it is over.

    `begin_anew` starts a stream's session at the start of the source's log.
    """

    def __init__(
        self,
        source: Source,
        target: Target,
        lose: Lose,
        begin_anew: Callable[[PartitionStream], None],
        report_problem: Callable[[str, str], None],
    ) -> None:
        self._source, self._target = source, target
        self._lose, self._begin_anew_with_log, self._report_problem = lose, begin_anew, report_problem
        self._proofs = 0

    async def check(self, streams: Iterable[PartitionStream]) -> None:
        """Check every stream that may not be read, as far as possible now; raises SourceError."""
        unsettled = [stream for stream in streams if stream.has_session and not stream.is_read and not _waits(stream)]
        self._proofs = PROOFS_MAX
        while unsettled:
            for stream in unsettled:
                if stream.may_go_back:
                    await self._go_back(stream)
            judged = [stream for stream in unsettled if stream.go_back_to is None and not _waits(stream)]
            await self._ask([stream for stream in judged if await self._must_be_asked(stream)])
            unsettled = [stream for stream in judged if stream.may_go_back]  # and is checked again at its new position

    async def _must_be_asked(self, stream: PartitionStream) -> bool:
        try:
            return await self._must_ask(stream)
        except UntoldError as error:  # the others go on
            self._report_problem(f"{stream.name} position", str(error))
            return False

    async def _must_ask(self, stream: PartitionStream) -> bool:
        """Decide without the leader as far as possible, and return whether it must be queried."""
        offsets = stream.offsets
        match leader_epochs.classify_standing(
            stream.read_offset,
            offsets.topic_id,
            offsets.epochs,
            source_topic_id=stream.topic_id,
            source_epoch=stream.leader.epoch,
        ):
            case "ask":
                return True
            case "stands":
                self._stands(stream)
            case "anew":
                _log.warning("topic_recreated", **stream.fields(), acked=stream.offsets.acked, topic_id=stream.topic_id)
                stream.go_back_to, stream.starts_anew = 0, True
            case "unproved":
                await self._prove(stream)
        return False

    def _stands(self, stream: PartitionStream) -> None:
        if stream.topic_id is not None:
            stream.offsets.topic_id = stream.topic_id
        stream.leader_epoch = stream.leader.epoch
        self._report_problem(f"{stream.name} position", "")

    async def _ask(self, streams: list[PartitionStream]) -> None:
        asked = {stream.partition: stream for stream in streams}
        places = {stream.partition: (stream.offsets, stream.read_offset) for stream in streams}
        questions = {}
        for partition, stream in asked.items():
            known = stream.offsets.epochs.below(stream.read_offset)
            assert known is not None
            questions[partition] = EpochQuestion(known.leader_epoch, stream.leader)
        for partition, answer in (await self._source.epoch_ends(questions)).items():
            if places[partition] != (asked[partition].offsets, asked[partition].read_offset):
                continue  # a session has started elsewhere meanwhile
            if isinstance(answer, str):
                self._report_problem(f"{asked[partition].name} position", f"its leader cannot judge it: {answer}")
                continue
            try:
                await self._resolve_answer(asked[partition], answer)
            except UntoldError as error:
                self._report_problem(f"{asked[partition].name} position", str(error))

    async def _resolve_answer(self, stream: PartitionStream, answer: leader_epochs.EpochEnd) -> None:
        starts = {stream.partition: 0}
        if answer.end_offset < 0:
            starts, _ = await self._source.bounds([stream.partition])
        offset = leader_epochs.resume_offset(
            stream.read_offset,
            stream.offsets.epochs,
            answer,
            source_epoch=stream.leader.epoch,
            log_start=starts[stream.partition],
        )
        if offset < stream.read_offset:
            self._went_back(stream, offset, answer.leader_epoch)
        else:
            self._stands(stream)

    def _went_back(self, stream: PartitionStream, offset: int, leader_epoch: int = -1) -> None:
        _log.error(
            "source_truncated",
            **stream.fields(),
            position=stream.read_offset,
            to=offset,
            leader_epoch=stream.leader.epoch,
        )
        stream.go_back_to, stream.go_back_epoch = offset, leader_epoch

    async def _go_back(self, stream: PartitionStream) -> None:
        offset, lost = stream.go_back_to, stream.offsets.epochs.below(stream.read_offset)
        assert offset is not None
        assert stream.state is not None
        if stream.starts_anew:
            stream.go_back_to = None
            self._begin_anew_with_log(stream)
            return
        if offset < stream.read_offset:
            epoch = "" if lost is None else str(lost.leader_epoch)  # in another one, the same offsets can be lost again
            offsets = stream.offsets
            await self._lose(stream, "source_truncated", offset, stream.read_offset, occasion=epoch)
            if stream.offsets is not offsets:
                return  # a session has started elsewhere meanwhile
        stream.go_back_to = None
        stream.start(stream.offsets.gone_back(offset, stream.go_back_epoch))
        stream.offsets.topic_id = stream.topic_id
        stream.state.go_back(offset, stream.offsets.epochs.below(offset))

    async def _prove(self, stream: PartitionStream) -> None:
        """Compare with the target, once its topic is known to exist; until then nothing could be sent anyway."""
        if not self._proofs:
            return
        self._proofs -= 1
        starts, ends = await self._source.bounds([stream.partition])
        start, end = starts[stream.partition], ends[stream.partition]
        if stream.read_offset > end:
            stream.leader_epoch = stream.leader.epoch  # the fetch is out of range, and all is read again
            return
        try:
            offset = await self._first_difference(stream, start)
        except TargetError as error:
            self._report_problem(f"{stream.name} position", f"the target cannot prove it: {error}")
            return
        if offset is not None and offset < stream.read_offset:
            self._went_back(stream, offset)
            return
        if offset is None:
            _log.warning("position_accepted", **stream.fields(), position=stream.read_offset)
        else:
            _log.info("position_proved", **stream.fields(), position=stream.read_offset)
        stream.offsets.epochs.note(stream.read_offset - 1, stream.leader.epoch)
        self._stands(stream)

    async def _first_difference(self, stream: PartitionStream, log_start: int) -> int | None:
        """Return the offset from which source and target differ below the position; None if that cannot be told."""
        target_end, position = stream.offsets.target_end, stream.read_offset
        if target_end is None:
            return None
        ahead = target_end - position  # of the target, if the mirror was the only writer, and left nothing out

        async def same(offset: int) -> bool | None:
            here = await self._source.record_at(stream.partition, offset)
            there = await self._target.record_at(stream.at_target, offset + ahead) if offset + ahead >= 0 else None
            return None if here is None or there is None else here == there

        last = await same(position - 1)
        if last is not False:
            return position if last else None
        first = max(log_start, await self._target.start_offset(stream.at_target) - ahead)
        search = leader_epochs.search_difference(first, position - 1)
        try:
            offset = next(search)
            while True:
                offset = search.send(await same(offset))
        except StopIteration as found:
            difference: int | None = found.value
            return difference


def _waits(stream: PartitionStream) -> bool:
    """Return whether a session at the start of the source's log is about to start."""
    return stream.starts_anew and stream.go_back_to is None
