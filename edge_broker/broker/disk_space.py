"""The disk watched: when it is looked at, what groups have passed, and who may write meanwhile.

| event | what follows |
|---|---|
| a second is over | a look |
| a write found no space, or the room of the last look is used up | a look at once |
| a look closed segments, so that they can go | a look once they are closed |
| an event while a look is under way | one more look behind it |

Must never come in: what goes (storage/eviction.py), statvfs (storage/full_disk.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from edge_broker.broker.broker import Broker
from edge_broker.broker.outcome import Do, Outcome, Reply, Wait
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.storage.full_disk import DiskStatus, Passed
from edge_broker.storage.ledger import LEDGER_TOPIC
from edge_broker.storage.topics import OFFSETS_TOPIC

ROLL_MS_MAX = 60_000
ALWAYS_WRITTEN = frozenset({OFFSETS_TOPIC, LEDGER_TOPIC})


def passed_offsets(broker: Broker) -> Passed:
    """For each partition of a topic that names groups: below which offset all of them have committed; 0 for none."""
    found = {}
    for topic in broker.store.topics.values():
        groups = topic.settings.groups
        for log in topic.partitions if groups else ():
            found[topic.name, log.partition] = _passed_by_all(broker, groups, topic.name, log.partition)
    return found


def _passed_by_all(broker: Broker, groups: Iterable[str], topic: str, partition: int) -> int:
    """The least offset that these groups have committed; the first that has none is enough to know."""
    least = 1 << 63
    for group in groups:
        committed = broker.groups.offsets.get(group, topic, partition)
        if committed is None:
            return 0
        least = min(least, committed.offset)
    return least


def look(broker: Broker) -> Outcome:
    """Look at the disk in the worker `files`, unless that is under way: then once more afterwards."""
    if broker.looking:
        broker.look_again = True
        return Reply(None)
    broker.looking = True
    passed, now = passed_offsets(broker), broker.now()

    def work() -> DiskStatus:
        try:
            return broker.watch.look(passed, now)
        except (StorageFault, Refusal):
            raise
        except Exception as error:  # a bug in one look must not be the end of looking
            raise StorageFault(broker.store.data_dir, 0, f"the look at the disk failed: {error!r}") from error

    return Do(work, lambda found: _looked(broker, found), lambda _: _over(broker), background=True)


def look_soon(broker: Broker) -> None:
    """Have the disk looked at as soon as the worker is free."""
    if broker.looking:
        broker.look_again = True
    else:
        broker.effects.start(look(broker))


def check_room(broker: Broker, topic: str) -> None:
    """Refuse a write while there is no room for it: KAFKA_STORAGE_ERROR, which clients retry."""
    if topic in ALWAYS_WRITTEN:
        return
    if broker.room_bytes < 0:
        raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full; nothing was written, it will be taken again")
    if topic in broker.full_topics:
        raise Refusal(
            ErrorCode.KAFKA_STORAGE_ERROR, f"topic {topic!r} has reached edge.budget.bytes and nothing of it may go"
        )


def _looked(broker: Broker, found: DiskStatus) -> Outcome:
    broker.disk_status = found
    if found.refusing != broker.space_refused:
        now = "refused" if found.refusing else "taken again"
        broker.effects.note(f"writes are {now}: {found.free} of {found.total} bytes are free")
    broker.space_refused, broker.room_bytes, broker.full_topics = found.refusing, found.room_bytes, found.full_topics
    broker.effects.note(*found.notes)
    rolls = [log for log in found.rolls if log.begin_roll()]
    for log in rolls:
        broker.effects.roll(log)
    if not rolls:
        return _over(broker)

    def closed() -> Outcome | None:
        return None if any(log.rolling and log.fault is None for log in rolls) else again()

    def again() -> Outcome:
        if any(not log.segments[-1].size for log in rolls):  # else there was no space for that either
            broker.look_again = True
        return _over(broker)

    return Wait(rolls, closed, ROLL_MS_MAX, again)


def _over(broker: Broker) -> Outcome:
    broker.looking = False
    if not broker.look_again:
        return Reply(None)
    broker.look_again = False
    return look(broker)
