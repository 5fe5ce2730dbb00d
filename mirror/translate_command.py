"""Runs `edge-mirror translate`: the place of a source offset at the target, and back.

| an offset | printed |
|---|---|
| of a record that is mirrored | its offset at the other end |
| not mirrored (a marker, compacted, in the ledger) | the offset of the next record there: where a consumer continues |
| of the end of the mirrored records | the end at the other end |
| beyond it, or below the first remaining step | a sentence, and status 1 |

The state topic has the map. Records mirrored after the last stored position are found by a lookup in the target's log,
as at a mirror's start. Nothing is changed at either end, and the source is not queried.
Does not contain: the map's arithmetic (partition/offset_map.py), what a lookup means (partition/resume_rules.py).
"""

from __future__ import annotations

import json

from drupelet.errors import CommandFailed
from kafka_wire.connection.errors import WireError
from kafka_wire.partitions import TopicPartition
from kafka_wire.transactions.last_batch_lookup import LookupRequest
from mirror.client.target_client import Target
from mirror.config import Config
from mirror.errors import TargetError
from mirror.partition.offset_map import OffsetAtOtherEnd, OffsetMap
from mirror.partition.resume_rules import TargetLookup, floor_of
from mirror.partition.state_records import Partition, Reading, StateError, topic_name
from mirror.partition.target_state import PartitionState

STEPS_MAX = 2000  # fetches of a lookup


async def translate(config: Config, partition: Partition, offset: int, *, back: bool, as_json: bool) -> int:
    """Print the offset at the other end; return the exit status. Raises CommandFailed."""
    target = Target(config.target_client)
    name = topic_name(config.group_id)
    try:
        state = await _state(target, name, partition)
        known = await _current_map(target, state)
    except (TargetError, WireError, StateError) as error:
        raise CommandFailed(f"the target {config.target} cannot be asked: {error}") from error
    finally:
        await target.close()
    found = known.to_source(offset) if back else known.to_target(offset)
    if found is None:
        raise CommandFailed(_nowhere(state, known, offset, back=back))
    print(_as_json(state, offset, found, back=back) if as_json else found.offset)
    return 0


async def _state(target: Target, name: str, partition: Partition) -> PartitionState:
    if name not in await target.topics([name]):
        raise CommandFailed(
            f"The target has no topic {name}: no mirror of this site has written there yet, or --site is another."
        )
    reading = Reading(None)
    await target.state_topic(name).read(reading)
    stored = reading.partitions().get(partition)
    if stored is None:
        raise CommandFailed(f"{partition[0]}-{partition[1]} is not mirrored, by the target's topic {name}.")
    return PartitionState(partition, stored.head.topics, stored)


async def _current_map(target: Target, state: PartitionState) -> OffsetMap:
    """Return the map up to the last record that is mirrored now."""
    if not state.map.steps:
        return state.map
    at = TopicPartition(state.topics.target, state.partition[1])
    wanted = LookupRequest(await target.leader(at), frozenset({state.session.producer_id}), floor_of(state.map.end))
    ((_, seen),) = (await target.look_up({(at.topic, at.partition): wanted}, STEPS_MAX)).items()
    if isinstance(seen, str):
        raise TargetError(seen)
    now = state.topics._replace(target_id=target.topic_id(at.topic))
    resumed = state.resume(TargetLookup(seen.start_offset, seen.end_offset, seen.searched_from, seen.last), now)
    if resumed.verdict == "target_anew":
        raise TargetError(f"topic {at.topic} was deleted and created again, and the mirror has not started there yet")
    if resumed.verdict == "found":
        state.continue_session(resumed, seen.end_offset)
    return state.map


def _nowhere(state: PartitionState, known: OffsetMap, offset: int, *, back: bool) -> str:
    name = f"{state.partition[0]}-{state.partition[1]}"
    end = known.end.target_offset if back else known.end.source_offset
    side = "target" if back else "source"
    if offset > end:
        return f"Offset {offset} of the {side} is beyond what is mirrored of {name}, which ends at {end}."
    return f"Offset {offset} of the {side} lies before the stored state of {name}: an older version mirrored it."


def _as_json(state: PartitionState, offset: int, found: OffsetAtOtherEnd, *, back: bool) -> str:
    ends = {"source": state.partition[0], "target": state.topics.target}
    return json.dumps(
        {
            "source_topic": ends["source"],
            "target_topic": ends["target"],
            "partition": state.partition[1],
            "source_offset": found.offset if back else offset,
            "target_offset": offset if back else found.offset,
            "is_record": found.is_record,
        }
    )
