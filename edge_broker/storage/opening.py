"""A start: opens a data directory and its topics, and recovers from a crash.

| step | written, synced |
|---|---|
| lock the directory, refuse one of another broker or kind of broker | the directory, if it is new |
| read ids, confirmed ends, dirty markers, age | |
| begin an epoch | `clean-shutdown` removed, or `leader-epoch` raised |
| finish interrupted deletions | `deleted/` |
| after a power loss, in a cluster | `registrations`: the newest epoch before it |
| open or make the ledger, then open each topic (open_partition.py) | a loss into the ledger, then its log |
| truncated logs | their ends, then the truncation files are removed |
| directories of no topic | erased if empty, else moved to `aside/` |
| the losses of acknowledged, unsynced data | the ledger, then the markers are cleared |
| the end | age, confirmed ends, `last-recovery` |

Contains: that order. Does not contain: the recovery of one partition, the time after the start (log_store.py).
Source: Kafka's LogManager, its loadLogs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drupelet.ledger import LEDGER_CONFIG
from edge_broker.errors import StorageFault
from edge_broker.protocol.message import NO_UUID
from edge_broker.storage.data_directory import STORE
from edge_broker.storage.files.atomic_files import OUT_OF_SPACE, drop_leftovers, fault_of, read_whole
from edge_broker.storage.loss.startup_ledger import DirectLedger, EarlyLedger
from edge_broker.storage.metadata.broker_id import check_membership
from edge_broker.storage.metadata.topic_record import TOPIC_SUFFIX, decode_topic, id_text, split_partition_directory
from edge_broker.storage.recovery.dirty_markers import MarkKey, Marks, Session
from edge_broker.storage.recovery.open_partition import (
    OpenRequest,
    RecoveryContext,
    note_cut,
    offline_partition,
    open_partition,
)
from edge_broker.storage.recovery.unclean_shutdown import Cut
from edge_broker.storage.retention.topic_deletion import id_in
from edge_broker.storage.topic import Topic, confirmed_ends

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterator

    from edge_broker.clock import Reading
    from edge_broker.storage.data_directory import DataDirectory
    from edge_broker.storage.files.sync_cost import Card
    from edge_broker.storage.log.partition_log import PartitionLog
    from edge_broker.storage.metadata.loss_records import Ledger, Loss
    from edge_broker.storage.shared_log_parts import SharedLogParts
    from edge_broker.storage.topic_files import TopicFiles


class Opening:
    """One start of a data directory, used once: `open`, then its results.

    `topics` are all topics by name, `card` the measured cost of a sync, `recovery_bytes` what was read of logs as the
    last stop was not clean, `unwritten` losses that the ledger did not accept.
    """

    def __init__(self, directory: DataDirectory, topic_files: TopicFiles, shared: SharedLogParts) -> None:
        self.topics: dict[str, Topic] = {}
        self.card: Card | None = None
        self.recovery_bytes = 0
        self.unwritten: list[Loss] = []
        self._directory = directory
        self._fs = directory.fs
        self._topic_files = topic_files
        self._shared = shared
        self._marks: Marks | None = None  # as the previous process left them

    def open(
        self,
        reading: Reading,
        new_uuid: Callable[[], uuid.UUID],
        node: str,
        *,
        in_cluster: bool,
        broker_id: int | None,
    ) -> None:
        """Open the directory and all its topics; a partition that cannot be opened is offline and noted.

        OSError, StorageFault, ConfigurationError: the directory cannot be served.
        """
        directory = self._directory
        self._take_directory(new_uuid, in_cluster=in_cluster, broker_id=broker_id)
        names = self._fs.names(directory.path)  # without the files that a crash left half replaced
        self._read(reading)
        clean = directory.begin_epoch(names)
        if not clean:
            topics = directory.path_of("topics")
            drop_leftovers(self._fs, topics, self._fs.names(topics))
            self._fs.sync_directory(topics)  # a killed process may leave names that no disk has
        self._topic_files.deletions.finish()
        context = self._context(reading, clean=clean)
        context = context._replace(ledger=self._open_ledger(context, names, new_uuid, node))
        for name in sorted(self._fs.names(directory.path_of("topics"))):
            if name.endswith(TOPIC_SUFFIX) and name != directory.own_ledger + TOPIC_SUFFIX:
                self._add(self._open_topic(context, name, names))
        self.recovery_bytes = sum(context.walked)
        directory.keep_truncated_ends(context.truncated)
        self._clear_unknown_directories(self._fs.names(directory.path))
        self._write_findings(context)

    def _take_directory(self, new_uuid: Callable[[], uuid.UUID], *, in_cluster: bool, broker_id: int | None) -> None:
        """Lock the directory, make its first files, and check whose it is."""
        directory = self._directory
        names = directory.lock()
        check_membership(self._fs, directory.path, in_cluster=in_cluster)
        if STORE not in names:
            directory.initialise(names, new_uuid)
            names = self._fs.names(directory.path)
        if broker_id is not None:
            directory.keep_broker_id(broker_id, in_cluster=in_cluster)
        if in_cluster:
            directory.open_registrations(names, new_uuid)

    def _read(self, reading: Reading) -> None:
        self._directory.read_ids()
        self._directory.read_positions()
        self._marks = self._directory.read_marks()
        self.card = self._directory.read_card()
        self._directory.read_age(reading)

    def _context(self, reading: Reading, *, clean: bool) -> RecoveryContext:
        """Return the context of each partition's recovery; registrations before a power loss are kept as such."""
        directory = self._directory
        directory.in_use.session = Session(reading.boot_id, self._fs.mount(directory.path))
        cut = None if clean else self._cut()
        if directory.registrations is not None and cut is not None and not cut.took_nothing:
            directory.keep_registrations(directory.registrations.behind_a_cut())
        now, files = directory.age.now(reading), self._topic_files.open_files
        return RecoveryContext(files, directory.leader_epoch, clean, now, directory.notes, [], [], cut=cut)

    def _cut(self) -> Cut | None:
        """Return the possible loss of an unclean stop, in addition to findings; None if the kernel had everything."""
        session = self._directory.in_use.session
        if self._marks is not None:
            return Cut(self._marks.lost_in(session), kept=self._marks.session.has_kept_writes_of(session))
        return None if self._directory.is_same_boot(session.boot_id) else Cut(None)

    def _add(self, topic: Topic) -> None:
        self._shared.give_to(topic)
        self.topics[topic.name] = topic

    # topics

    def _open_ledger(
        self, context: RecoveryContext, names: list[str], new_uuid: Callable[[], uuid.UUID], node: str
    ) -> Ledger:
        """Open the topic of losses before all others, which write into it; made at the first start."""
        directory = self._directory
        early, file_name = EarlyLedger(), directory.own_ledger + TOPIC_SUFFIX
        if directory.registrations is not None:
            from edge_broker.storage.loss.ledger_journal import take_over  # noqa: PLC0415 - memory: for a cluster alone

            take_over(self._fs, directory.path)
            names[:] = self._fs.names(directory.path)
        if self._fs.exists(f"{directory.path_of('topics')}/{file_name}"):
            topic = self._open_topic(context._replace(ledger=early), file_name, names)
        else:
            topic = self._topic_files.make_own_topic(directory.own_ledger, 1, LEDGER_CONFIG, new_uuid())
        ledger = DirectLedger(topic.partitions[0], lambda: context.now, node)
        self._shared.ledger = ledger
        self._add(topic)
        if early.losses:
            ledger.write(early.losses)
        return ledger

    def _open_topic(self, context: RecoveryContext, file_name: str, names: list[str]) -> Topic:
        directory = self._directory
        path = f"{directory.path_of('topics')}/{file_name}"
        try:
            record = decode_topic(path, read_whole(self._fs, path))
            settings = self._topic_files.settings_of(record.name, record.config, compacted=record.compacted)
        except (StorageFault, OSError) as error:
            fault = error if isinstance(error, StorageFault) else fault_of(error, path, 0)
            return self._offline_topic(context, file_name[: -len(TOPIC_SUFFIX)], names, fault)
        partitions: list[PartitionLog] = []
        for partition in range(record.partitions):
            where = (record.name, record.topic_id, partition, directory.path_of(f"{record.name}-{partition}"))
            stored = directory.positions.stored.get((record.topic_id, partition))
            wanted = OpenRequest(*where, settings, stored, directory.is_replicated(record.name))
            partitions.append(open_partition(context, wanted))
            self._shared.producer_memory.join(partitions[-1].writer.producers)
        return Topic(record.name, record.topic_id, partitions, record.config, settings)

    def _offline_topic(self, context: RecoveryContext, topic: str, names: list[str], fault: StorageFault) -> Topic:
        """Return a topic whose file is corrupt. It keeps its name and directories, so that none are made again."""
        directory, settings = self._directory, self._topic_files.defaults
        directory.notes.append(f"topic {topic} is offline: {fault}")
        found = [place[1] for name in names if (place := split_partition_directory(name)) and place[0] == topic]
        paths = [directory.path_of(f"{topic}-{partition}") for partition in range(max(found, default=0) + 1)]
        topic_id = id_in(self._fs, paths[0]) or NO_UUID
        logs = [
            offline_partition(context, topic, partition, path, settings, fault) for partition, path in enumerate(paths)
        ]
        for partition in range(len(logs)):
            stored = directory.positions.stored.get((topic_id, partition))
            note_cut(context, topic, id_text(topic_id), partition, settings, stored)
        return Topic(topic, topic_id, logs, {}, settings)

    def _clear_unknown_directories(self, names: list[str]) -> None:
        """Erase partition directories of no topic that have no bytes, move others to `aside/`."""
        for name in names:
            place = split_partition_directory(name)
            if place is None:
                continue
            topic = self.topics.get(place[0])
            if topic is None or place[1] >= len(topic.partitions):
                self._topic_files.deletions.clear_way(name)

    # findings, for the next start

    def _write_findings(self, context: RecoveryContext) -> None:
        """Write all that the next start must know; a full disk does not end the start. OSError."""
        directory = self._directory
        try:
            self._write_losses(context)
            if self._marks != Marks(directory.in_use.session, frozenset()):
                directory.in_use.clear(self._offline_marks(context))
            directory.write_age()  # the next start asks whether the power was off in between
            if not context.clean:
                directory.positions.write(confirmed_ends(self.topics.values(), directory.positions.stored))
            if not context.clean or directory.notes:
                directory.write_last_recovery(context.now.wall_ms, self.recovery_bytes)
        except StorageFault as fault:
            directory.notes.append(f"{fault}; the next start looks at the same again")
        except OSError as error:
            if error.errno not in OUT_OF_SPACE:
                raise
            path = error.filename or directory.path
            directory.notes.append(f"{path}: no space to write it; what was written before stays true")

    def _write_losses(self, context: RecoveryContext) -> None:
        """Write the losses of a power loss; the markers stay until the ledger has them. StorageFault, Refusal."""
        losses = context.cut.losses if context.cut is not None else []
        in_use = self._directory.in_use
        in_use.held, self.unwritten = bool(losses), losses
        if losses:
            self._shared.ledger.write(losses)
        in_use.held, self.unwritten = False, []

    def _offline_marks(self, context: RecoveryContext) -> Iterator[MarkKey]:
        """Return the markers of partitions that could not be opened, whose losses are not in the ledger."""
        if self._marks is not None and not context.clean:
            unseen = self._marks.keys - self._marks.lost_in(self._directory.in_use.session)
            for topic in self.topics.values():
                for log in topic.partitions:
                    if log.fault is not None and (key := (id_text(topic.topic_id), log.partition)) in unseen:
                        yield key
