"""The disk watched: when it is looked at, what groups have passed, and who may write meanwhile.

| event | what follows |
|---|---|
| a second is over | a look |
| a write found no space, or the room of the last look is used up | a look at once |
| a look closed segments, so that they can go | a look once they are closed |
| an event during a check | one more check after it |

Contains: when, and who may write. Does not contain: what goes (storage/retention/eviction_plan.py), statvfs
(storage/maintenance/disk_watch.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.broker.effects import Effects
from edge_broker.broker.outcomes import Outcome, Reply, RunInWorker, Wait
from edge_broker.configuration.config import BrokerConfig
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.storage.files.data_age import Now
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.maintenance.disk_watch import DiskStatus, DiskWatch, Passed
from edge_broker.storage.metadata.topic_record import OFFSETS_TOPIC
from edge_broker.storage.retention.segment_removal import OFFSET_MAX

ROLL_MS_MAX = 60_000
ALWAYS_WRITTEN = frozenset({OFFSETS_TOPIC, LEDGER_TOPIC})

Committed = Callable[[str, str, int], int | None]
"""The offset that a group has committed for a topic and a partition; None: none."""


class DiskSpace:
    """The space of one broker's disk; owned by the loop.

    `room_bytes` may be written before the disk is looked at again, `full_topics` may not be written to; `refusing`:
    nothing is taken but what the broker itself must write. `status` is what the last look found.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: LogStore,
        effects: Effects,
        now: Callable[[], Now],
        committed: Committed,
        led: Callable[[], Collection[PartitionLog] | None] = lambda: None,
        spares: Callable[[], bool] = lambda: False,
        for_others: Callable[[], Mapping[PartitionLog, int]] = dict,
    ) -> None:
        """`led` are the logs of which this broker decides what goes; None: all.

        `spares`: other boards can lead some of them. `for_others`: logs, and below which offset they are evicted, as
        full disks of other boards want.
        """
        self.watch = DiskWatch(
            store, config.integer("edge.disk.free.low.bytes"), config.integer("edge.disk.free.min.bytes")
        )
        self.status: DiskStatus | None = None
        self.room_bytes = 1 << 62
        self.full_topics: frozenset[str] = frozenset()
        self.refusing = False
        self.tight = False  # other boards should lead what is led here
        self._full_at_age_ms: int | None = None
        self.looking = False
        self._look_again = False
        self._store = store
        self._effects = effects
        self._now = now
        self._committed = committed
        self._led, self._spares, self._for_others = led, spares, for_others

    def passed_offsets(self) -> Passed:
        """For each partition of a topic that names groups: below which offset all have committed; 0 for none."""
        found = {}
        for topic in self._store.topics.values():
            groups = topic.settings.groups
            for log in topic.partitions if groups else ():
                found[topic.name, log.partition] = self._passed_by_all(groups, topic.name, log.partition)
        return found

    def passed_offset(self, log: PartitionLog) -> int:
        """Below which offset a record may go without being a loss."""
        groups = log.settings.groups
        return self._passed_by_all(groups, log.topic, log.partition) if groups else OFFSET_MAX

    def _passed_by_all(self, groups: Iterable[str], topic: str, partition: int) -> int:
        """The least offset that these groups have committed; the first that has none is enough to know."""
        least = 1 << 63
        for group in groups:
            committed = self._committed(group, topic, partition)
            if committed is None:
                return 0
            least = min(least, committed)
        return least

    def check(self) -> Outcome:
        """Look at the disk in the worker `files`, unless that is in progress: then once more afterwards."""
        if self.looking:
            self._look_again = True
            return Reply(None)
        self.looking = True
        passed, now, led, spares = self.passed_offsets(), self._now(), self._led(), self._spares()
        for_others = self._for_others()

        def work() -> DiskStatus:
            try:
                return self.watch.check(passed, now, led, spares=spares, for_others=for_others)
            except (StorageFault, Refusal):
                raise
            except Exception as error:  # a bug in one look must not be the end of looking
                raise StorageFault(self._store.data_dir, 0, f"the look at the disk failed: {error!r}") from error

        return RunInWorker(work, self._disk_checked, lambda _: self._over(), background=True)

    def look_soon(self) -> None:
        """Have the disk looked at as soon as the worker is free."""
        if self.looking:
            self._look_again = True
        else:
            self._effects.start(self.check())

    def check_room(self, topic: str) -> None:
        """Refuse a write while there is no room for it: KAFKA_STORAGE_ERROR, which clients retry."""
        if topic in ALWAYS_WRITTEN:
            return
        if self.room_bytes < 0:
            raise Refusal(
                ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full; nothing was written, it will be taken again"
            )
        if topic in self.full_topics:
            raise Refusal(
                ErrorCode.KAFKA_STORAGE_ERROR, f"topic {topic!r} has reached edge.budget.bytes and nothing of it may go"
            )

    def _disk_checked(self, found: DiskStatus) -> Outcome:
        self.status = found
        if found.refusing != self.refusing:
            now = "refused" if found.refusing else "taken again"
            self._effects.note(f"writes are {now}: {found.free} of {found.total} bytes are free")
        self.tight = found.tight
        self._note_full(found.refusing or found.tight)
        self.refusing, self.room_bytes, self.full_topics = found.refusing, found.room_bytes, found.full_topics
        self._effects.note(*found.notes)
        rolls = [log for log in found.rolls if log.writer.begin_roll()]
        for log in rolls:
            self._effects.roll(log)
        if not rolls:
            return self._over()

        def rolls_ended() -> Outcome | None:
            return None if any(log.writer.rolling and log.fault is None for log in rolls) else check_again()

        def check_again() -> Outcome:
            if any(not log.segments[-1].size for log in rolls):  # else there was no space for that either
                self._look_again = True
            return self._over()

        return Wait(rolls, rolls_ended, ROLL_MS_MAX, check_again)

    def _note_full(self, is_full: bool) -> None:
        if not is_full:
            self._full_at_age_ms = None
        elif self._full_at_age_ms is None:
            self._full_at_age_ms = self._now().age_ms

    @property
    def full_for_ms(self) -> int | None:
        """How long this process has found the disk full or nearly full; None while it has room."""
        return None if self._full_at_age_ms is None else self._now().elapsed_ms(self._full_at_age_ms)

    def _over(self) -> Outcome:
        self.looking = False
        if not self._look_again:
            return Reply(None)
        self._look_again = False
        return self.check()
