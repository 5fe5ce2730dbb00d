"""What must hold of both ends once a schedule of the mirror is over: everything once, in order, or written down.

| of the source | must be |
|---|---|
| a record that is there | at the target, or in the ledger where the target takes none like it |
| a record that was deleted | was at the target, or is in the ledger, or was gone before the mirror began |
| a record that is at the target, and that the source has lost since | in the ledger |
| offsets that are missing in a topic that does not compact | in the ledger |
| a record of an aborted transaction | nowhere |

At the target each is once, in the source's order. Twice is allowed where README.md's table says so, and what is behind
the last time is in order all the same. The map tells of each record where it is.

With transactions "at the target" is what readers of committed records find, who wait for nothing in the end, and
meanwhile, whenever one has ended (`torn`) or a position is told to the source (`ahead`), these hold: position and map
are those of the last record that is committed, and no position is ahead of what is. Must never come in: what is done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

from kafka_wire.cluster import Partition
from kafka_wire.partitions import TopicPartition
from mirror.partition.offset_map import OffsetMap
from mirror.partition.source_offsets import Commit
from mirror.partition.state_records import Reading
from mirror.partition.stream import PartitionStream
from tests.simulation.mirror_source import Fate, SourceLog
from tests.simulation.mirror_world import TARGET_OF, World

Range = tuple[int, int]


class Allowed:
    """What was done to a partition that excuses something."""

    def __init__(self) -> None:
        self.doubles = False  # the README's table says that records may come twice
        self.tail_lost = False  # the target has lost what it had acknowledged
        self.counted = 0  # so many records may come twice, as the mirror has told that they do
        self.map_anew = False  # the map was dropped, so that nothing is known of what was before
        self.map_near = False  # others have written, and the map may lie some offsets off
        self.forgot = False  # where it was is known from the group alone, or from an operator
        self.by_hand: list[int] = []  # serials that are to be there once more
        self.target_anew = False

    @property
    def knows_less(self) -> bool:
        """Whether what is stored need not be that of the target's log."""
        return self.tail_lost or self.map_anew or self.map_near or self.forgot or self.target_anew or self.doubles


class Audited:
    """Of one partition; `problems` are sentences."""

    def __init__(self, world: World, log: SourceLog, lane: PartitionStream, allowed: Allowed) -> None:
        self.world, self.log, self.lane, self.allowed = world, log, lane, allowed
        self.partition: TopicPartition = log.partition
        at = TARGET_OF + self.partition.topic, self.partition.partition
        self.is_open = bool(world.targets[at].open)
        self.there = world.targets[at].serials
        self.seen = world.targets[at].seen
        self.last = {serial: offset for offset, serial in self.there}
        entries = [one for one in world.ledger if (one["topic"], one["partition"]) == self.partition]
        self.refused = _ranges(one for one in entries if one["cause"] == "record_refused")
        self.lost = _ranges(one for one in entries if one["cause"] != "record_refused")
        self.cut = _ranges(one for one in entries if one["cause"] == "source_truncated")
        self.problems: list[str] = []
        self.doubled = len(self.there) - len(self.last)
        self._order()
        self._records()
        self._gaps()
        self._by_hand()
        self._map()
        if self.is_open:
            self.say("readers of committed records wait for a transaction that nobody ends")

    def say(self, text: str) -> None:
        self.problems.append(f"{self.partition.topic}-{self.partition.partition}: {text}")

    def _order(self) -> None:
        fates = self.log.fates  # what was taken out of turn may be gone when all is sent again
        out_of_turn = {serial for serial in self.last if self.allowed.counted and fates[serial].gone}
        last = sorted((offset, serial) for serial, offset in self.last.items() if serial not in out_of_turn)
        falls = [(one, other) for (_, one), (_, other) in pairwise(last) if other < one]
        if falls:
            self.say(f"record {falls[0][1]} is behind {falls[0][0]}")
        if self.doubled > self.allowed.counted and not self.allowed.doubles:
            twice = [serial for serial, times in Counter(serial for _, serial in self.there).items() if times > 1]
            self.say(f"{self.doubled} are doubled, first {twice[0]} at {self.log.fates[twice[0]].offset}")

    def _records(self) -> None:
        for serial, fate in self.log.fates.items():
            problem = self._problem(serial, fate)
            if problem:
                self.say(f"record {serial}, offset {fate.offset}, {problem}")
                return

    def _problem(self, serial: int, fate: Fate) -> str:
        is_there = serial in self.last
        if fate.is_aborted:
            return "was aborted, and is at the target" if is_there else ""
        if fate.gone == "cut":
            is_told = self.allowed.forgot or _has(self.cut, fate.offset) or self.log.log_number > 1
            return "was lost by the source, and is not in the ledger" if is_there and not is_told else ""
        if fate.gone in ("anew", "compacted"):
            return ""
        if fate.is_bad and not fate.gone:
            return "" if _has(self.refused, fate.offset) else "is refused, and not in the ledger"
        if fate.gone == "deleted":
            is_other = fate.log != self.log.topic_id or fate.offset < (self.log.told_start or 0)
            if is_other or serial in self.seen or _has(self.lost, fate.offset) or _has(self.refused, fate.offset):
                return ""
            return "was deleted, and is neither at the target nor in the ledger"
        return "" if is_there else "is missing"

    def _gaps(self) -> None:
        for first, end in self.log.gaps:
            if first < max(self.log.start, self.log.told_start or 0):
                continue
            if not all(_has(self.lost, offset) for offset in range(first, end)):
                self.say(f"offsets {first} to {end - 1} are missing, and not in the ledger")

    def _by_hand(self) -> None:
        times = Counter(serial for _, serial in self.there)
        once = [serial for serial in self.allowed.by_hand if times[serial] == 1]
        if once and not self.allowed.target_anew:
            self.say(f"record {once[0]} was to be sent again by hand, and is there once")

    def _map(self) -> None:
        assert self.lane.state is not None
        known, state = self.lane.state.map, self.lane.state
        in_memory = known.steps[0].source_offset if state._held_chunk > state._first_chunk else 0  # older: in the topic
        for serial, fate in self.log.fates.items():
            offset = self.last.get(serial)
            if offset is None or fate.gone or self.allowed.map_near or fate.offset < in_memory:
                continue
            found = known.to_target(fate.offset)
            if (found is None and not self.allowed.map_anew) or (found is not None and found != (offset, True)):
                self.say(f"offset {fate.offset} is at {offset}, and the map tells {found}")
                return


def problems_of(
    world: World, lanes: dict[TopicPartition, PartitionStream], allowed: dict[TopicPartition, Allowed]
) -> list[str]:
    """What does not hold."""
    found: list[str] = []
    for partition, log in world.logs.items():
        audited = Audited(world, log, lanes[partition], allowed[partition])
        found += audited.problems
    return found


def torn(world: World, allowed: dict[TopicPartition, Allowed], partitions: Collection[Partition]) -> list[str]:
    """What of these partitions at the target, whose transaction has ended, is not as their position and map say."""
    reading = Reading(None)
    for key, value in world.state.items():
        reading.take(key, value)
    stored = reading.partitions()
    found = []
    for partition, log in world.logs.items():
        at = TARGET_OF + partition.topic, partition.partition
        is_known = partition in stored and stored[partition].head.is_transactional
        if at not in partitions or at not in world.targets or not is_known or allowed[partition].knows_less:
            continue
        end, there = stored[partition].head.end, world.targets[at].serials
        place = OffsetMap(stored[partition].steps, end).place_of(end.records - 1)
        told = None if place is None else (place.target_offset, place.source_offset)
        is_there = (there[-1][0], log.fates[there[-1][1]].offset) if there else None
        if told != is_there:
            found.append(
                f"{partition.topic}-{partition.partition}: {is_there} is committed, and the state tells {told}"
            )
    return found


def ahead(
    world: World, allowed: dict[TopicPartition, Allowed], positions: Mapping[TopicPartition, Commit]
) -> list[str]:
    """Which positions are ahead of what is at the target, or will be whatever comes."""
    found = []
    for partition, commit in positions.items():
        log, there = world.logs[partition], world.targets.get((TARGET_OF + partition.topic, partition.partition))
        is_cut = any(fate.gone == "cut" for fate in log.fates.values())  # a position may be of what was there before
        if there is None or is_cut or allowed[partition].knows_less or commit.topic_id != log.topic_id:
            continue
        decided = world.decided((TARGET_OF + partition.topic, partition.partition))
        for serial, fate in log.fates.items():
            is_due = fate.log == log.topic_id and fate.offset < commit.offset
            is_owed = not (fate.gone or fate.is_aborted or fate.is_bad)
            if is_due and is_owed and serial not in there.seen and serial not in decided:
                found.append(f"{partition}: position {commit.offset} is told, and record {serial} is not committed")
                break
    return found


def _ranges(entries: Any) -> list[Range]:
    return [(entry["first_offset"], entry["last_offset"]) for entry in entries]


def _has(ranges: Sequence[Range], offset: int) -> bool:
    return any(first <= offset <= last for first, last in ranges)
