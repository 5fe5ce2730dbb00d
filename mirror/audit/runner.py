"""Runs an audit: reads both ends' digests concurrently, matches and accounts for them by partition.

The order of the reads matters, as the mirror may be running: the source's positions, then the target, then the source.
So all that the target has is at the source, and all below the positions is at the target. AUDIT.md says what is proven,
and how an audit runs over a thin link.
Does not contain: what a difference is (account.py), where digests come from (endpoint.py), tables.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from drupelet.errors import CommandFailed
from kafka_wire.partitions import TopicPartition
from mirror.audit.compare.account import Account, AuditResult
from mirror.audit.compare.matching import SIDES, Side, match
from mirror.audit.digest.digests import Range
from mirror.audit.digest.partition_facts import Facts
from mirror.audit.digest.selection import Only
from mirror.audit.endpoints.cluster_endpoint import LiveEnd
from mirror.audit.endpoints.digest_lines import (
    Begin,
    all_line,
    begin_line,
    facts_line,
    parts_line,
    range_line,
    unread_line,
)
from mirror.audit.endpoints.endpoint import End, UnreadError
from mirror.audit.endpoints.remote_endpoint import Command, File, ToldEnd
from mirror.config import Config

OLDER: dict[Side, str] = {
    "target": "The target's digests are older than the source's positions: records missing there after the last one "
    "that both have count as pending, except those in the map. Use --target-by to have them proven.",
    "source": "The source's digests are older than the target's: records that were mirrored since, and are not in the "
    "map yet, count as foreign. Use --source-by to have them proven.",
}


PARTS = ("key", "value", "headers", "timestamp")


class Ways(NamedTuple):
    """How each end is read: from digests in a file, from a command's output, or, with neither, directly."""

    source_digests: Path | None = None
    source_by: str | None = None
    target_digests: Path | None = None
    target_by: str | None = None


Tell = Callable[[str, int, int], None]
"""Receives the progress: the partition, the offsets that were read of it, and of how many."""


async def audit(config: Config, ways: Ways, only: Only | None, report: Tell) -> AuditResult:
    """Audit each partition that is mirrored. Raises CommandFailed."""
    source = _end("source", config, ways.source_digests, ways.source_by, only)
    target = _end("target", config, ways.target_digests, ways.target_by, only)
    async with contextlib.aclosing(_Closing(source, target)):
        if isinstance(source, LiveEnd):
            await source.note_positions()
        await target.open()
        if isinstance(source, LiveEnd):
            source.target_id = target.cluster_id
        await source.open()
        older = _older((source, ways.source_digests), (target, ways.target_digests))
        audited = AuditResult([], [], [] if older is None else [OLDER[older]], [])
        async for here, told in _both(source, target, audited):
            if here.unknown or told.unknown:
                audited.unread.append(here if here.unknown else told)
                continue
            there = told if told.is_compacted is not None else told._replace(is_compacted=here.is_compacted)
            account = Account(here, there, older=older)
            try:
                await _audit({"source": source, "target": target}, account, report)
            except UnreadError as error:
                facts = account.facts[error.side]
                audited.unread.append(facts._replace(unknown=str(error), ledger=(), state=None))
            else:
                audited.accounts.append(account)
    return audited


def _end(side: Side, config: Config, path: Path | None, command: str | None, only: Only | None) -> End:
    if path is not None:
        return ToldEnd(side, File(path), only)
    if command is not None:
        return ToldEnd(side, Command(command), only)
    return LiveEnd(side, config, None if only is None else TopicPartition(only.topic, only.partition))


def _older(*ends: tuple[End, Path | None]) -> Side | None:
    """Return the end that was read before the audit, or before the other."""
    (source_ms, source), (target_ms, target) = ((end.at_ms if path else math.inf, end.side) for end, path in ends)
    return None if source_ms == target_ms else source if source_ms < target_ms else target


class _Closing:
    def __init__(self, *ends: End) -> None:
        self._ends = ends

    async def aclose(self) -> None:
        for end in self._ends:
            await end.close()


async def _both(source: End, target: End, audited: AuditResult) -> AsyncIterator[tuple[Facts, Facts]]:
    """Return each partition of the source with the target's; both ends return them ascending."""
    there = await target.next()
    while (here := await source.next()) is not None:
        while there is not None and there[:2] < here[:2]:
            audited.one_sided.append(there)
            there = await target.next()
        if there is not None and there[:2] == here[:2]:
            yield here, there
            there = await target.next()
        else:
            yield here, Facts(here.topic, here.partition, "", 0, 0, False)
    while there is not None:
        audited.one_sided.append(there)
        there = await target.next()


async def _audit(ends: Mapping[Side, End], account: Account, report: Tell) -> None:
    here, there = (account.facts[side] for side in SIDES)
    name, whole, done = f"{here.topic}-{here.partition}", here.end - here.start + there.end - there.start, 0
    matching = match(account)
    told: Sequence[Range] = []
    want = next(matching, None)
    while want is not None:
        side, offsets = want
        if not account.facts[side].name:
            told = []  # it does not exist
        elif offsets is not None:
            told = await ends[side].read_again(*offsets)
        else:
            one = await ends[side].range()
            told = [] if one is None else [one]
            if one is not None and one.records:
                done += one.last - one.first + 1
                report(name, done, whole)
        try:
            want = matching.send(told)
        except StopIteration:
            want = None
    account.close()
    await _explain(ends, account)


async def _explain(ends: Mapping[Side, End], account: Account) -> None:
    """Read which parts of the first changed record differ."""
    told = account.differences.told
    number = next((number for number, one in enumerate(told) if one.kind == "changed"), None)
    if number is None:
        return
    offsets: dict[Side, int | None] = {"source": told[number].source_offset, "target": told[number].target_offset}
    try:
        here, there = [await ends[side].parts(offset or 0) for side, offset in offsets.items()]
    except UnreadError:
        return  # the record counts as changed already
    if here is not None and there is not None:
        differ = [name for name in PARTS if getattr(here, name) != getattr(there, name)]
        told[number] = told[number]._replace(parts=tuple(differ))


async def tell_digests(
    side: Side, config: Config, only: Only | None, *, each: bool, report: Tell
) -> AsyncIterator[str]:
    """Return the lines of one end. Raises CommandFailed."""
    end = LiveEnd(side, config, None if only is None else TopicPartition(only.topic, only.partition))
    try:
        await end.open()
        yield begin_line(Begin(side, end.at_ms, "" if only is None else str(only), end.cluster_id or ""))
        count = 0
        while (facts := await end.next()) is not None:
            count += 1
            if facts.unknown and only is not None and only.first is not None:
                raise CommandFailed(f"{facts.name}-{facts.partition} cannot be read: {facts.unknown}")
            yield facts_line(facts)
            if only is not None and only.first is not None and only.end is not None:
                async for line in _lines_of(end, facts, only.first, only.end, each):
                    yield line
                continue
            async for line in _range_lines(end, facts, each, report):
                yield line
        yield all_line(count)
    finally:
        await end.close()


async def _lines_of(end: LiveEnd, facts: Facts, first: int, last: int, each: bool) -> AsyncIterator[str]:
    """Return the lines of the records in [first, last), and of a single one's parts. Raises CommandFailed."""
    try:
        for one in await end.read_again(first, last):
            yield range_line(one, each=each)
        parts = await end.parts(first) if last == first + 1 else None
    except UnreadError as error:
        raise CommandFailed(f"{facts.name}-{facts.partition} cannot be read: {error}") from error
    if parts is not None:
        yield parts_line(parts)


async def _range_lines(end: LiveEnd, facts: Facts, each: bool, report: Tell) -> AsyncIterator[str]:
    """Return the lines of a partition's ranges; if its topic compacts, always with each record's digest.

    There either end may have removed any record, so that few ranges are the same.
    """
    name = f"{facts.topic}-{facts.partition}"
    try:
        while (one := await end.range()) is not None:
            yield range_line(one, each=each or facts.is_compacted is not False)
            if one.records:
                report(name, one.last - facts.start, facts.end - facts.start)
    except UnreadError as error:
        yield unread_line(str(error))
