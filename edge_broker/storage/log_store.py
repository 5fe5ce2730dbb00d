"""All topics of one data directory, and what must outlive the process beside them.

| name | content |
|---|---|
| `.lock` | held while a broker runs on the directory |
| `store` | cluster id; written last when the directory is made |
| `leader-epoch` | raised and synced at each start that follows no clean stop |
| `producer-ids` | the first producer id that was never reserved |
| `age` | how old the directory is, see files/data_age.py |
| `recovery-point-offset-checkpoint` (`.2`) | per partition: its confirmed end, see recovery/recovery_checkpoint.py |
| `in-use` (`.2`) | which partitions may have answered what no sync has confirmed, see recovery/dirty_markers.py |
| `registrations` | in a cluster: which disk this is, see metadata/broker_registrations.py |
| `cluster-copy` | in a cluster: what only ZooKeeper knows of the topics, see metadata/cluster_copy.py |
| `kept-states` | in a cluster: by which state of each partition this disk acts, see metadata/kept_states.py |
| `zookeeper-session` | in a cluster: see network/cluster/previous_session.py |
| `clean-shutdown` | written last at a clean stop, removed first at a start |
| `last-recovery` | what the last start that had anything to say found and did |
| `topics/<topic>.json` | what a topic is |
| `<topic>-<partition>/` | its log |
| `.spare` | blocks set aside for a full disk, see files/spare_blocks.py |
| `deleted/` | what is being deleted, see retention/topic_deletion.py |
| `aside/` | directories that belong to no topic; never deleted here |

Lives here: those files and the order in which they change. Must never come in: batches, segments. Source: Kafka's
LogManager.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from drupelet.ledger import LEDGER_CONFIG, LEDGER_TOPIC
from edge_broker.configuration.settings import LogSettings
from edge_broker.errors import StorageFault
from edge_broker.protocol.message import NO_UUID
from edge_broker.storage.files.atomic_files import (
    OUT_OF_SPACE,
    drop_leftovers,
    encode_state,
    fault_of,
    read_state,
    read_whole,
    replace,
    write_all,
)
from edge_broker.storage.files.batched_replace import BatchedFiles
from edge_broker.storage.files.data_age import KIND, Age, Now, age_of
from edge_broker.storage.files.filesystem import File, FileSystem
from edge_broker.storage.files.spare_blocks import SPARE_BYTES, Spare
from edge_broker.storage.files.sync_cost import Card, read_card, write_card
from edge_broker.storage.log.group_commit import GroupCommit
from edge_broker.storage.log.leader_epochs import NONE, LeaderEpochs
from edge_broker.storage.log.log_roller import make_segment_file
from edge_broker.storage.log.log_state import LogState
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log.producer_state import NOBODY, Producers
from edge_broker.storage.log.producer_state_limit import ProducerMemory
from edge_broker.storage.loss.startup_ledger import DirectLedger, EarlyLedger, ledger_settings
from edge_broker.storage.metadata.broker_id import FILE as BROKER_ID
from edge_broker.storage.metadata.broker_id import REGISTRATIONS, check_broker_id, check_membership, write_broker_id
from edge_broker.storage.metadata.loss_records import Ledger, Loss, NoLedger
from edge_broker.storage.metadata.topic_config import topic_settings
from edge_broker.storage.metadata.topic_record import (
    JOURNAL_TOPIC,
    LEDGERS,
    OFFSETS_TOPIC,
    TOPIC_SUFFIX,
    TopicRecord,
    check_topic_name,
    decode_topic,
    encode_partition_metadata,
    encode_topic,
    id_text,
    split_partition_directory,
)
from edge_broker.storage.recovery.dirty_markers import InUse, MarkKey, Marks, Session
from edge_broker.storage.recovery.open_partition import (
    RecoveryContext,
    Wanted,
    note_cut,
    offline_partition,
    open_partition,
)
from edge_broker.storage.recovery.recovery_checkpoint import FILES, PartitionKey, Position, PositionsFiles
from edge_broker.storage.recovery.unclean_shutdown import Cut
from edge_broker.storage.retention.eviction_plan import segment_bytes_max
from edge_broker.storage.retention.topic_deletion import Deletions, id_in
from edge_broker.storage.segment.open_file_cache import OpenFiles
from edge_broker.storage.segment.segment import Segment
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.clock import Reading
    from edge_broker.storage.metadata.broker_registrations import Registrations

PRODUCER_IDS_RESERVED = 1000
TOGETHER_MIN = 8  # logs to be written down at a stop, from which on one syncfs is waited for in place of theirs
WRITTEN_ON = (*LEDGERS, OFFSETS_TOPIC)  # also where there is no space for another segment
_CLEAN = "clean-shutdown"
SECURED = "secured"
_LAST_RECOVERY = "last-recovery"
RECOVERY_NOTES_MAX = 500
RECOVERY_NOTE_CHARS_MAX = 1000


class Topic:
    """A topic: `config` holds the explicitly set keys only, `settings` what its logs go by."""

    __slots__ = ("config", "name", "partitions", "settings", "topic_id")

    def __init__(
        self,
        name: str,
        topic_id: uuid.UUID,
        partitions: list[PartitionLog],
        config: dict[str, str],
        settings: LogSettings,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions
        self.config = config
        self.settings = settings

    def record(self) -> TopicRecord:
        """What its file says."""
        return TopicRecord(
            self.name, self.topic_id, len(self.partitions), self.config, compacted=self.settings.compacted
        )

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, {self.topic_id}, {len(self.partitions)} partitions)"


def served_anybody(fs: FileSystem, data_dir: str) -> bool:
    """Whether a data directory was made by a version that served any network without being told that it is trusted."""
    return fs.exists(f"{data_dir}/store") and not fs.exists(f"{data_dir}/{SECURED}")


class LogStore:
    """The topics of a data directory; methods that run in the worker `files` run one after another."""

    def __init__(self, fs: FileSystem, data_dir: str, settings: LogSettings) -> None:
        self.fs = fs
        self.data_dir = data_dir
        self.group_commit = GroupCommit(fs, data_dir)
        self.settings = settings
        self.cluster_id = ""
        self.leader_epoch = 0
        self.started_unclean = False
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[uuid.UUID, Topic] = {}
        self._hidden: dict[str, Topic] = {}  # about to be deleted; what a checkpoint or a stop says covers them
        self.recovery_notes: list[str] = []
        self.recovery_bytes = 0  # of logs, read at the start because the stop before was not clean
        self.ledger: Ledger = NoLedger()
        self.spare = Spare(fs, data_dir)
        self.producer_memory = ProducerMemory()
        self._deletions = Deletions(fs, data_dir, self.spare, self.recovery_notes)
        self._files = OpenFiles(fs)
        self._lock: File | None = None
        self.age = Age()
        self._age_kept: Age | None = None
        self._producer_id = 0
        self._positions = PositionsFiles(fs, data_dir)
        self.in_use = InUse(fs, data_dir)
        self._marks: Marks | None = None  # as the stop before left them
        self.registrations: Registrations | None = None  # None: this broker stands alone
        self._unwritten: list[Loss] = []  # what the ledger did not take at the start
        self.together_min = TOGETHER_MIN
        self._closed = False

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        data_dir: str,
        settings: LogSettings,
        reading: Reading,
        new_uuid: Callable[[], uuid.UUID],
        node: str = "",
        *,
        in_cluster: bool = False,
        broker_id: int | None = None,
    ) -> LogStore:
        """Open a data directory, making it first if it is not there; recovers what a crash left.

        `node` is the broker's id, for the ledger. `in_cluster`: logs are replicas (replica_log.py), but for the
        journal's;
        the directory gets an identity, and is never opened without this again. StorageFault for the store's own files,
        and where a start finds no space for what it has to write; any other partition that cannot be opened is offline
        and noted. With a `broker_id` the directory is that broker's alone (metadata/broker_id.py); ConfigurationError.
        """
        store = cls(fs, data_dir.rstrip("/") or "/", settings)
        try:
            store._open(reading, new_uuid, node, in_cluster=in_cluster, broker_id=broker_id)
        except BaseException as error:
            store._lock = None  # else the directory stays taken for as long as somebody holds the error
            if isinstance(error, OSError):
                raise fault_of(error, data_dir, 0) from error
            raise
        return store

    # opening

    def _open(
        self,
        reading: Reading,
        new_uuid: Callable[[], uuid.UUID],
        node: str,
        *,
        in_cluster: bool,
        broker_id: int | None,
    ) -> None:
        names = self._take_directory()
        check_membership(self.fs, self.data_dir, in_cluster=in_cluster)
        if "store" not in names:
            self._initialise(names, new_uuid)
            names = self.fs.names(self.data_dir)
        if broker_id is not None:
            self._take_broker_id(broker_id, in_cluster=in_cluster)
        if in_cluster:
            self._open_registrations(names, new_uuid)
        names = self.fs.names(self.data_dir)  # what a crash left of these files is gone by now
        self.cluster_id = (self.registrations and self.registrations.cluster) or self._one("store", "store")
        self.leader_epoch = int(self._one("leader-epoch", "leader-epoch"))
        self._producer_id = int(self._one("producer-ids", "producer-ids"))
        self._read_positions()
        self._marks = self._read_marks()
        self.group_commit.card = self._read_card()
        self.age = self._read_age().advanced(reading)
        clean = self._begin_epoch(names)
        if not clean:
            drop_leftovers(self.fs, self._path("topics"), self.fs.names(self._path("topics")))
            self.fs.sync_directory(self._path("topics"))  # a killed process may leave names that no disk has
        self._deletions.finish()
        now, walked = self.age.now(reading), list[int]()
        self.in_use.session = Session(reading.boot_id, self.fs.mount(self.data_dir))
        opening = RecoveryContext(self._files, self.leader_epoch, clean, now, self.recovery_notes, walked, [])
        opening = opening._replace(cut=None if clean else self._cut())
        if self.registrations is not None and opening.cut is not None and not opening.cut.took_nothing:
            self._register(self.registrations.behind_a_cut())
        opening = opening._replace(ledger=self._open_ledger(opening, names, new_uuid, node))
        for name in sorted(self.fs.names(self._path("topics"))):
            if name.endswith(TOPIC_SUFFIX) and name != self.own_ledger + TOPIC_SUFFIX:
                self.add_topic(self._open_topic(opening, name, names))
        self.recovery_bytes = sum(walked)
        self._forget_truncations(opening)
        self._put_unknown_files_aside(self.fs.names(self.data_dir))
        self._write_first_files(opening)

    def _take_broker_id(self, broker_id: int, *, in_cluster: bool) -> None:
        """Keep the id of the broker that is served from here, or refuse another one.

        OSError, StorageFault, ConfigurationError.
        """
        kept = check_broker_id(self.fs, self.data_dir, broker_id, in_cluster=in_cluster)
        if kept == broker_id:
            return
        try:
            write_broker_id(self.fs, self.data_dir, broker_id)
        except OSError as error:
            if kept is not None or error.errno not in OUT_OF_SPACE:
                raise
            self.recovery_notes.append(f"{self._path(BROKER_ID)}: no space to write it; the next start does")

    def _open_registrations(self, names: list[str], new_uuid: Callable[[], uuid.UUID]) -> None:
        """Learn which disk this is, or decide it. OSError, StorageFault."""
        from edge_broker.storage.metadata.broker_registrations import (  # noqa: PLC0415 - for a cluster alone
            Registrations,
            read_registrations,
            write_registrations,
        )

        if REGISTRATIONS in names:
            self.registrations = read_registrations(self.fs, self.data_dir)
            self.fs.sync_directory(self.data_dir)  # a killed process may leave a name that no disk has
            return
        self.registrations = Registrations(id_text(new_uuid()))
        write_registrations(self.fs, self.data_dir, self.registrations)

    @runs_in("files")
    def register(self, epoch: int, cluster: str) -> Registrations:
        """Keep the epoch of a registration, and of which cluster, synced when this returns: nothing may be done under
        it before.

        StorageFault leaves `registrations` as it was.
        """
        assert self.registrations is not None, "a broker that stands alone has no registration"
        kept = self.registrations.with_epoch(epoch, cluster)
        try:
            self._register(kept)
        except OSError as error:
            raise fault_of(error, self._path(REGISTRATIONS), 0) from error
        self.cluster_id = cluster
        return kept

    def _register(self, kept: Registrations) -> None:
        """Keep registrations, if they say something new. OSError."""
        from edge_broker.storage.metadata.broker_registrations import write_registrations  # noqa: PLC0415 - for a cluster alone

        if kept != self.registrations:
            write_registrations(self.fs, self.data_dir, kept)
            self.registrations = kept

    def log(self, topic: str, partition: int) -> PartitionLog | None:
        """What lies here of a partition, whoever leads it; None: nothing. All that a topic has lie where it lies."""
        there = self.topics.get(topic)
        logs = there.partitions if there is not None else []
        return logs[partition] if 0 <= partition < len(logs) else None

    def is_replicated(self, topic: str) -> bool:
        """Whether the logs of a topic are replicas, whose epochs elections alone raise."""
        return self.registrations is not None and topic != JOURNAL_TOPIC

    @property
    def orphans(self) -> tuple[str, ...]:
        """Topics with replicas here while the disk does not know its cluster, as without the file `registrations`.

        Not the ledger: a board that stood alone brings its own along.
        """
        if self.registrations is None or self.registrations.cluster:
            return ()
        return tuple(sorted(name for name in self.topics if name not in LEDGERS))

    @property
    def own_ledger(self) -> str:
        """The topic whose log has what this board lost: `__edge_ledger`, in a cluster the journal."""
        return LEDGER_TOPIC if self.registrations is None else JOURNAL_TOPIC

    @property
    def ledger_log(self) -> PartitionLog:
        """That log."""
        return self.topics[self.own_ledger].partitions[0]

    def _cut(self) -> Cut | None:
        """What a stop that was not clean may have cost besides what is found; None when the kernel had it all."""
        session = self.in_use.session
        if self._marks is not None:
            return Cut(self._marks.lost_in(session), kept=self._marks.session.kept(session))
        same_boot = self._age_kept is not None and self._age_kept.boot_id == session.boot_id
        return None if same_boot else Cut(None)

    def _write_first_files(self, opening: RecoveryContext) -> None:
        """What this start found and did, for the next one; a full disk must not be the end of a start. OSError."""
        try:
            self._write_cut(opening)
            if self._marks != Marks(self.in_use.session, frozenset()):
                self.in_use.clear(self._offline_marks(opening))
            self._write_age()  # the next start asks whether the power was off in between
            if not opening.clean:
                self._write_positions()
            if not opening.clean or self.recovery_notes:
                self._write_last_recovery(opening)
        except StorageFault as fault:
            self.recovery_notes.append(f"{fault}; the next start looks at the same again")
        except OSError as error:
            if error.errno not in OUT_OF_SPACE:
                raise
            path = error.filename or self.data_dir
            self.recovery_notes.append(f"{path}: no space to write it; what was written before stays true")

    def _write_cut(self, opening: RecoveryContext) -> None:
        """The losses of a cut; until the ledger has them the marks stay as they are. StorageFault, Refusal."""
        losses = opening.cut.losses if opening.cut is not None else []
        self.in_use.held, self._unwritten = bool(losses), losses
        if losses:
            self.ledger.write(losses)
        self.in_use.held, self._unwritten = False, []

    def _offline_marks(self, opening: RecoveryContext) -> Iterator[MarkKey]:
        """Marks of partitions that could not be opened, whose losses nobody has written down."""
        if self._marks is not None and not opening.clean:
            unseen = self._marks.keys - self._marks.lost_in(self.in_use.session)
            for topic in self.topics.values():
                for log in topic.partitions:
                    if log.fault is not None and (key := (id_text(topic.topic_id), log.partition)) in unseen:
                        yield key

    def _write_last_recovery(self, opening: RecoveryContext) -> None:
        """Keep what the last start that had anything to say found and did."""
        stop = "clean" if opening.clean else "unclean"
        head = f"{self.leader_epoch} {opening.now.wall_ms} {stop} {self.recovery_bytes}"
        notes = [note.replace("\n", " ")[:RECOVERY_NOTE_CHARS_MAX] for note in self.recovery_notes]
        self._write(_LAST_RECOVERY, _LAST_RECOVERY, [head, *notes[:RECOVERY_NOTES_MAX]])

    def _open_ledger(
        self, opening: RecoveryContext, names: list[str], new_uuid: Callable[[], uuid.UUID], node: str
    ) -> Ledger:
        """Open what losses go to before every other topic, so that they can write into it; made at the first start."""
        early, file_name = EarlyLedger(), self.own_ledger + TOPIC_SUFFIX
        if self.registrations is not None:
            self._take_ledger_over(names)
        if self.fs.exists(f"{self._path('topics')}/{file_name}"):
            topic = self._open_topic(opening._replace(ledger=early), file_name, names)
        else:
            topic = self._make_topic(self.own_ledger, 1, LEDGER_CONFIG, new_uuid())
        ledger = DirectLedger(topic.partitions[0], lambda: opening.now, node)
        self.ledger = ledger
        self.add_topic(topic)
        if early.losses:
            ledger.write(early.losses)
        return ledger

    def _take_ledger_over(self, names: list[str]) -> None:
        """Let the ledger of a board that stood alone be the journal of one in a cluster. OSError, StorageFault."""
        from edge_broker.storage.loss.ledger_journal import take_over  # noqa: PLC0415 - for a cluster alone

        take_over(self.fs, self.data_dir)
        names[:] = self.fs.names(self.data_dir)

    def use_ledger(self, ledger: Ledger) -> None:
        """Write losses down this way from now on; who appends to the ledger's log decides."""
        self.ledger = ledger
        for topic in list(self.topics.values()):
            for log in topic.partitions:
                log.ledger = ledger

    def _settings(self, name: str, config: dict[str, str], *, compacted: bool = False) -> LogSettings:
        if name in LEDGERS:
            return ledger_settings(self.settings)
        settings = topic_settings(self.settings, config, compacted=compacted)
        bytes_max = segment_bytes_max(self.fs.space(self.data_dir).total, settings.budget_bytes)
        settings.segment_bytes = min(settings.segment_bytes, bytes_max)
        return settings

    def _path(self, name: str) -> str:
        return f"{self.data_dir}/{name}"

    def _take_directory(self) -> list[str]:
        if not self.fs.exists(self.data_dir):
            self.fs.make_directory(self.data_dir)
        self._lock = self.fs.lock(self._path(".lock"))
        if self._lock is None:
            raise StorageFault(
                self._path(".lock"), 0, "another broker runs on this data directory; stop it or use another one"
            )
        names = self.fs.names(self.data_dir)
        if "store" not in names:  # also where an earlier process made the directory and was killed at once
            self.fs.sync_directory(self.data_dir.rpartition("/")[0] or ("/" if self.data_dir.startswith("/") else "."))
        return names

    def _initialise(self, names: list[str], new_uuid: Callable[[], uuid.UUID]) -> None:
        if any(split_partition_directory(name) for name in names):
            raise StorageFault(
                self._path("store"),
                0,
                "is missing beside partition directories; restore it or use another data directory",
            )
        self.fs.make_directory(self._path("topics"))
        self._write("leader-epoch", "leader-epoch", ["0"])
        self._write("producer-ids", "producer-ids", ["0"])
        self._write(_CLEAN, _CLEAN, ["0"])
        self._write(SECURED, SECURED, ["1"])
        self._write("store", "store", [id_text(new_uuid())])

    def _write(self, name: str, kind: str, lines: list[str]) -> None:
        replace(self.fs, self.data_dir, name, encode_state(kind, 1, lines))

    def _one(self, name: str, kind: str) -> str:
        """The single entry of one of the store's own files."""
        path = self._path(name)
        try:
            lines = read_state(self.fs, path, kind)
        except FileNotFoundError:
            raise StorageFault(path, 0, "is missing; restore it from a copy of the data directory") from None
        if len(lines) != 1 or len(lines[0]) != 1:
            raise StorageFault(
                path, 0, f"has {len(lines)} entries where one belongs; restore it from a copy of the data directory"
            )
        return lines[0][0]

    def _begin_epoch(self, names: list[str]) -> bool:
        """After a clean stop go on in the same epoch, else raise it; on disk before anything is served."""
        clean = _CLEAN in names
        if clean:
            self.fs.remove(self._path(_CLEAN))
            self.fs.sync_directory(self.data_dir)
        else:
            drop_leftovers(self.fs, self.data_dir, names)
            if self.fs.space(self.data_dir).free < SPARE_BYTES:
                self.spare.give_up()  # a start writes little, and must
            self.started_unclean = True
            self.leader_epoch += 1
            self._write("leader-epoch", "leader-epoch", [str(self.leader_epoch)])
        return clean

    def _read_positions(self) -> None:
        try:
            self._positions.read()
        except (StorageFault, ValueError) as fault:
            self.recovery_notes.append(f"{fault}; every active segment is checked from its start")

    def _read_marks(self) -> Marks | None:
        try:
            return self.in_use.read()
        except StorageFault as fault:
            self.recovery_notes.append(f"{fault}; after a cut every partition is believed to have been in use")
            return None

    def _read_age(self) -> Age:
        try:
            self._age_kept = age_of(read_state(self.fs, self._path("age"), KIND))
        except FileNotFoundError:
            return Age()
        except (StorageFault, ValueError) as fault:
            self.recovery_notes.append(f"{fault}; age begins anew, so what is stored is kept for longer")
            return Age()
        return self._age_kept

    def _read_card(self) -> Card | None:
        try:
            return read_card(self.fs, self.data_dir)
        except (StorageFault, ValueError, LookupError, TypeError) as fault:
            self.recovery_notes.append(f"{self._path('card')}: {fault}; delete it to have the card measured again")
            return None

    def _open_topic(self, opening: RecoveryContext, file_name: str, names: list[str]) -> Topic:
        path = f"{self._path('topics')}/{file_name}"
        try:
            record = decode_topic(path, read_whole(self.fs, path))
            settings = self._settings(record.name, record.config, compacted=record.compacted)
        except (StorageFault, OSError) as error:
            fault = error if isinstance(error, StorageFault) else fault_of(error, path, 0)
            return self._offline_topic(opening, file_name[: -len(TOPIC_SUFFIX)], names, fault)
        partitions: list[PartitionLog] = []
        for partition in range(record.partitions):
            directory = self._path(f"{record.name}-{partition}")
            stored = self._positions.stored.get((record.topic_id, partition))
            where = (record.name, record.topic_id, partition, directory)
            wanted = Wanted(*where, settings, stored, self.is_replicated(record.name))
            partitions.append(open_partition(opening, wanted))
            self.producer_memory.join(partitions[-1].writer.producers)
        return Topic(record.name, record.topic_id, partitions, record.config, settings)

    def _offline_topic(self, opening: RecoveryContext, topic: str, names: list[str], fault: StorageFault) -> Topic:
        """A topic whose file is damaged keeps its name and its directories, so that nothing is made in their place."""
        self.recovery_notes.append(f"topic {topic} is offline: {fault}")
        found = [place[1] for name in names if (place := split_partition_directory(name)) and place[0] == topic]
        directories = [self._path(f"{topic}-{partition}") for partition in range(max(found, default=0) + 1)]
        topic_id = id_in(self.fs, directories[0]) or NO_UUID
        logs = [
            offline_partition(opening, topic, partition, directory, self.settings, fault)
            for partition, directory in enumerate(directories)
        ]
        for partition in range(len(logs)):
            stored = self._positions.stored.get((topic_id, partition))
            note_cut(opening, topic, id_text(topic_id), partition, self.settings, stored)
        return Topic(topic, topic_id, logs, {}, self.settings)

    def _put_unknown_files_aside(self, names: list[str]) -> None:
        """Partition directories of no topic: erased without bytes (a creation was interrupted), else put aside."""
        for name in names:
            place = split_partition_directory(name)
            if place is None:
                continue
            topic = self.topics.get(place[0])
            if topic is None or place[1] >= len(topic.partitions):
                self._deletions.clear_way(name)

    # topics

    @runs_in("files")
    def make_topic(self, name: str, partitions: int, config: dict[str, str], topic_id: uuid.UUID) -> Topic:
        """Make a topic, on disk and synced when this returns; `add_topic` shows it. Reads only the settings.

        Refusal (INVALID_TOPIC_EXCEPTION, INVALID_CONFIG), StorageFault; what an interruption leaves is cleared at the
        next start.
        """
        check_topic_name(name)
        return self._make_topic(name, partitions, config, topic_id)

    def _make_topic(self, name: str, partitions: int, config: dict[str, str], topic_id: uuid.UUID) -> Topic:
        settings = self._settings(name, config)
        try:
            self._deletions.free_name(name)
            logs = [self._make_partition(name, partition, settings, topic_id) for partition in range(partitions)]
            self.fs.sync_directory(self.data_dir)
            self._write_topic(TopicRecord(name, topic_id, partitions, config))
        except OSError as error:
            raise fault_of(error, self._path(name), 0) from error
        return Topic(name, topic_id, logs, dict(config), settings)

    def _make_partition(self, topic: str, partition: int, settings: LogSettings, topic_id: uuid.UUID) -> PartitionLog:
        name = f"{topic}-{partition}"
        directory = self._path(name)
        if self.fs.exists(directory):
            self._deletions.clear_way(name)
        self.fs.make_directory(directory)
        metadata = self.fs.create(f"{directory}/partition.metadata")
        write_all(metadata, encode_partition_metadata(topic_id), 0)
        metadata.datasync()
        segment = Segment(self._files, directory, 0, 0, settings.index_interval_bytes)
        make_segment_file(self._files, segment)
        segment.open_tail()
        where = (topic, partition, directory, settings, self._files)
        epoch = NONE if self.is_replicated(topic) else self.leader_epoch
        return PartitionLog(LogState(*where, [segment], 0, epoch, LeaderEpochs()), Producers(forgotten_max=NOBODY))

    @runs_in("files")
    def make_partitions(self, topic: Topic, count: int) -> list[PartitionLog]:
        """Make more partitions, so that there are `count`, on disk and synced when this returns.

        `add_partitions` shows them. StorageFault; what an interruption leaves is cleared at the next start.
        """
        new = range(len(topic.partitions), count)
        try:
            logs = [self._make_partition(topic.name, index, topic.settings, topic.topic_id) for index in new]
            self.fs.sync_directory(self.data_dir)
            self._write_topic(topic.record()._replace(partitions=count))
        except OSError as error:
            raise fault_of(error, self._path(topic.name), 0) from error
        return logs

    def _write_topic(self, record: TopicRecord) -> None:
        replace(self.fs, self._path("topics"), f"{record.name}{TOPIC_SUFFIX}", encode_topic(record))

    @runs_in("files")
    def write_config(self, topic: Topic, config: dict[str, str]) -> LogSettings:
        """Give a topic another configuration, on disk and synced when this returns; `use_config` goes by it.

        Refusal (INVALID_CONFIG), StorageFault.
        """
        compacted = topic.settings.may_have_gaps
        settings = self._settings(topic.name, config, compacted=compacted)
        if config != topic.config:
            try:
                self._write_topic(topic.record()._replace(config=config, compacted=compacted))
            except OSError as error:
                raise fault_of(error, self._path(topic.name), 0) from error
        return settings

    def use_config(self, topic: Topic, config: dict[str, str], settings: LogSettings) -> None:
        """Go by a configuration that was written. Loop."""
        topic.config, topic.settings = config, settings
        for log in topic.partitions:
            log.state.settings = settings

    def add_partitions(self, topic: Topic, logs: Sequence[PartitionLog]) -> None:
        """Show partitions that were made."""
        topic.partitions = [*topic.partitions, *logs]
        self._adopt(topic)

    def add_topic(self, topic: Topic) -> None:
        """Show a topic that was made."""
        self._adopt(topic)
        self.topics[topic.name] = topic
        if topic.topic_id != NO_UUID:
            self.topics_by_id[topic.topic_id] = topic

    def _adopt(self, topic: Topic) -> None:
        for log in topic.partitions:
            log.topic_id = id_text(topic.topic_id)
            log.replicated = self.is_replicated(topic.name)
            if self.registrations is not None:
                log.cut_epoch = self.registrations.cut_epoch
            log.ledger = self.ledger
            log.spare = self.spare
            log.writer.producer_memory = self.producer_memory
            log.writer.producer_memory.join(log.writer.producers)
            log.roller.stays_without_space = topic.name in WRITTEN_ON

    def hide_topic(self, name: str) -> Topic:
        """Hide a topic that is about to be deleted: `show_again` or `remove_topic` must follow."""
        topic = self.topics.pop(name)
        self.topics_by_id.pop(topic.topic_id, None)
        self._hidden[name] = topic
        return topic

    def show_again(self, name: str) -> Topic:
        """Show a hidden topic as it was: it stays."""
        topic = self._hidden.pop(name)
        self.add_topic(topic)
        return topic

    def remove_topic(self, name: str) -> Topic:
        """Hide a topic for good; requests that wait for its logs find them offline.

        `erase_topic` must follow, and `forget_topic` where that came to its end.
        """
        if name not in self._hidden:
            self.hide_topic(name)
        topic = self._hidden.pop(name)
        self.in_use.leave(topic.partitions)
        for log in topic.partitions:
            log.fail(StorageFault(log.directory, 0, "the topic was deleted"))
        return topic

    @runs_in("files")
    def erase_topic(self, topic: Topic) -> None:
        """Delete a hidden topic: its name first, synced, then its files.

        A crash in between is finished at the next start. StorageFault leaves the rest to the next start, or to the next
        CreateTopics of that name.
        """
        for log in topic.partitions:
            log.retire_files()
        try:
            self._deletions.delete(topic.record())
        except OSError as error:
            raise fault_of(error, self._path(topic.name), 0) from error

    def forget_topic(self, topic: Topic) -> None:
        """Nothing is left of a topic that was erased."""
        self.in_use.gone(topic.partitions)

    # bringing partitions back (replica/resume_failed_log.py)

    def topic_of(self, log: PartitionLog) -> Topic | None:
        """A log's topic, while it is shown. Any thread may ask."""
        topic = self.topics.get(log.topic)
        return topic if topic is not None and log in topic.partitions else None

    def holds(self, log: PartitionLog) -> bool:
        """True while the log's topic is shown. Any thread may ask."""
        return self.topic_of(log) is not None

    def kept_topic_of(self, log: PartitionLog) -> Topic:
        """A log's topic, for whoever goes on with its files; StorageFault: it was deleted. Any thread may ask."""
        topic = self.topic_of(log)
        if topic is None:
            raise StorageFault(log.directory, 0, "the topic was deleted")
        return topic

    @runs_in("files")
    def raise_leader_epoch(self, above: int) -> int:
        """A leader epoch greater than `above`, synced. OSError."""
        if self.leader_epoch <= above:
            self._write("leader-epoch", "leader-epoch", [str(above + 1)])
            self.leader_epoch = above + 1
        return self.leader_epoch

    @runs_in("files")
    def reopen(self, topic: Topic, log: PartitionLog, end: Position | None, now: Now, notes: list[str]) -> PartitionLog:
        """What lies in a log's directory, opened as after an unclean stop; `fault` is set if not.

        Nothing else may run on the log, which is offline or to be truncated. OSError, StorageFault.
        """
        opening = RecoveryContext(self._files, self.leader_epoch, False, now, notes, [], [], self.ledger)
        where = (log.topic, topic.topic_id, log.partition, log.directory)
        wanted = Wanted(*where, log.settings, end, self.is_replicated(log.topic))
        log = open_partition(opening, wanted)
        self._forget_truncations(opening)
        return log

    def stored_end(self, topic: Topic, log: PartitionLog) -> Position | None:
        """What was written down last of where a log ends."""
        return self._positions.stored.get((topic.topic_id, log.partition))

    @runs_in("files")
    def make_anew(self, topic: Topic, log: PartitionLog) -> PartitionLog:
        """An empty log in place of one of which nothing is left; what else lies there is put aside. OSError."""
        stored = self._positions.stored
        self._positions.write({key: at for key, at in stored.items() if key != (topic.topic_id, log.partition)})
        fresh = self._make_partition(log.topic, log.partition, log.settings, topic.topic_id)
        self.fs.sync_directory(self.data_dir)
        return fresh

    def _forget_truncations(self, opening: RecoveryContext) -> None:
        """Write down where truncated logs end, then let them grow. OSError."""
        if not opening.truncated:
            return
        from edge_broker.storage.recovery.truncation_file import forget_truncation  # noqa: PLC0415 - for a cluster alone

        ends = {(one.topic_id, one.partition): one.end for one in opening.truncated}
        self._positions.write({**self._positions.stored, **ends})
        for one in opening.truncated:
            forget_truncation(self.fs, one.directory)

    # what outlives the process

    @runs_in("files")
    def reserve_producer_ids(self) -> range:
        """A block of 1000 producer ids, never given again; synced when this returns. StorageFault."""
        block = range(self._producer_id, self._producer_id + PRODUCER_IDS_RESERVED)
        try:
            self._write("producer-ids", "producer-ids", [str(block.stop)])
        except OSError as error:
            raise fault_of(error, self._path("producer-ids"), 0) from error
        self._producer_id = block.stop
        return block

    @property
    def producer_ids_end(self) -> int:
        """The first producer id above all that this broker reserved or was given."""
        return self._producer_id

    @runs_in("files")
    def keep_producer_ids(self, end: int) -> None:
        """Write down that the cluster gave this broker ids below `end`; synced when this returns. StorageFault."""
        try:
            self._write("producer-ids", "producer-ids", [str(max(end, self._producer_id))])
        except OSError as error:
            raise fault_of(error, self._path("producer-ids"), 0) from error
        self._producer_id = max(end, self._producer_id)

    def look(self, reading: Reading) -> None:
        """Let time pass: `age` is replaced in one assignment. Loop, about every 10 s and whenever trust may change."""
        self.age = self.age.advanced(reading)

    @runs_in("files")
    def keep_card(self, card: Card) -> None:
        """Write down what the card was measured to take. StorageFault."""
        try:
            write_card(self.fs, self.data_dir, card)
        except OSError as error:
            raise fault_of(error, self._path("card"), 0) from error

    @runs_in("files")
    def checkpoint(self) -> None:
        """Write down every partition's confirmed end, if one moved, and the age, if it is worth it.

        Reads each log's `synced`, which the loop replaces as one value. StorageFault harms no partition: what was
        written down before stays true.
        """
        try:
            self._write_positions()
            self._write_age()
        except OSError as error:
            raise fault_of(error, self._path(FILES[0]), 0) from error
        if self._unwritten:
            self.ledger.write(self._unwritten)
            self.in_use.held, self._unwritten = False, []

    def _write_positions(self) -> None:
        """As `checkpoint`, OSError; a log that is offline keeps what was written last."""
        positions: dict[PartitionKey, Position] = {}
        for topic in self._kept_topics():
            for log in topic.partitions:
                key = (topic.topic_id, log.partition)
                if log.fault is None:
                    end = log.synced
                    positions[key] = Position(log.log_start_offset, end.segment.base_offset, end.position, end.offset)
                elif key in self._positions.stored:
                    positions[key] = self._positions.stored[key]
        self._positions.write(positions)

    def _kept_topics(self) -> list[Topic]:
        """Every topic that a start would find as it is, the hidden ones too."""
        return [*self.topics.values(), *self._hidden.values()]

    def _write_age(self) -> None:
        age = self.age
        if age.worth_keeping(self._age_kept):
            self._write("age", KIND, age.lines())
            self._age_kept = age

    def batch_for(self, count: int) -> BatchedFiles | None:
        """Where the files of so many logs are replaced together; None: each on its own is quicker."""
        return BatchedFiles(self.fs, self.data_dir) if count >= self.together_min else None

    def _stop_logs(self, logs: list[PartitionLog]) -> list[StorageFault]:
        """Sync and write down what logs need for the next start, of many together; the faults of those that failed."""
        batch = self.batch_for(len(logs))
        faults = []
        if batch is not None:
            self._sync_together(logs)
        for log in logs:
            try:
                if log.fault is not None:
                    raise log.fault.kept()
                log.roller.stop(batch)
            except StorageFault as fault:
                faults.append(fault)
                if batch is not None:
                    batch.drop(log.directory)
        failed = batch.finish() if batch is not None else {}
        for log in logs:
            if log.directory in failed:
                log.fail(fault_of(failed[log.directory], log.directory, 0))
        return faults + [log.fault for log in logs if log.directory in failed and log.fault is not None]

    def _sync_together(self, logs: list[PartitionLog]) -> None:
        round_ = [(log, flush) for log in logs if (flush := log.writer.begin_flush()) is not None]
        for (log, flush), fault in zip(
            round_, self.group_commit.run([flush for _, flush in round_], "all"), strict=True
        ):
            if fault is None:
                log.writer.finish_flush(flush)
            else:
                log.fail(fault)

    @runs_in("files")
    def close(self) -> None:
        """Sync all, write everything down, mark the stop clean and let the directory go; nothing else may run.

        With a partition offline the stop is not marked clean. StorageFault when something could not be
        written.
        """
        if self._closed:
            return
        self._closed = True
        logs = [log for topic in self._kept_topics() for log in topic.partitions]
        faults = self._stop_logs([log for log in logs if log.roller.stop_due])
        try:
            self._write_positions()
            self.in_use.end()
            self._age_kept = None
            self._write_age()
            if all(log.fault is None for log in logs):
                self._write(_CLEAN, _CLEAN, [str(self.leader_epoch)])
        except OSError as error:
            faults.append(fault_of(error, self._path(FILES[0]), 0))
        for log in logs:
            log.close_files()
        self._lock = None
        if faults:
            raise faults[0]
