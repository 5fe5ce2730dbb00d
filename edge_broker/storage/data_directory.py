"""The data directory: the lock on it, and its files that belong to no topic.

| name | content |
|---|---|
| `.lock` | held while a broker runs on the directory |
| `store` | cluster id; written last when the directory is made |
| `leader-epoch` | raised and synced at each start that follows no clean stop |
| `producer-ids` | the first producer id that was never reserved |
| `age` | how old the directory is, see files/data_age.py |
| `card` | the measured cost of a sync, see files/sync_cost.py |
| `broker-id` | the broker that the directory belongs to, see metadata/broker_id.py |
| `secured` | the first start was of a release that serves no open network unasked |
| `recovery-point-offset-checkpoint` (`.2`) | per partition: its confirmed end, see recovery/recovery_checkpoint.py |
| `in-use` (`.2`) | dirty markers: partitions with acknowledged, unsynced data, see recovery/dirty_markers.py |
| `registrations` | in a cluster: the identity of this disk, see metadata/broker_registrations.py |
| `cluster-copy` | in a cluster: what ZooKeeper alone has of the topics, see metadata/cluster_copy.py |
| `kept-states` | in a cluster: the state of each partition by which this disk acts, see metadata/kept_states.py |
| `disk-was-full` | in a cluster: the disk was full a moment ago, see maintenance/full_disk_marker.py |
| `zookeeper-session` | in a cluster: see network/cluster/previous_session.py |
| `clean-shutdown` | written last at a clean stop, removed first at a start |
| `last-recovery` | the findings of the last start that had any |
| `topics/<topic>.json` | a topic, see metadata/topic_record.py |
| `<topic>-<partition>/` | its log |
| `.spare` | blocks reserved for a full disk, see files/spare_blocks.py |
| `deleted/` | topics whose deletion is in progress, see retention/topic_deletion.py |
| `aside/` | directories that belong to no topic; never deleted here |

Contains: the files up to `last-recovery` that this process reads or writes, and the lock. Does not contain: topics and
logs, the order of a start (opening.py). Source: Kafka's LogManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.errors import StorageFault
from edge_broker.storage.files.atomic_files import (
    OUT_OF_SPACE,
    drop_leftovers,
    encode_state,
    fault_of,
    read_state,
    replace,
)
from edge_broker.storage.files.data_age import KIND as AGE
from edge_broker.storage.files.data_age import Age, age_of
from edge_broker.storage.files.spare_blocks import SPARE_BYTES, Spare
from edge_broker.storage.files.sync_cost import Card, read_card, write_card
from edge_broker.storage.metadata.broker_id import FILE as BROKER_ID
from edge_broker.storage.metadata.broker_id import REGISTRATIONS, check_broker_id, write_broker_id
from edge_broker.storage.metadata.entry_file import read_entry, write_entry
from edge_broker.storage.metadata.producer_ids import FILE as PRODUCER_IDS
from edge_broker.storage.metadata.producer_ids import ProducerIds
from edge_broker.storage.metadata.topic_record import JOURNAL_TOPIC, id_text, split_partition_directory
from edge_broker.storage.recovery.dirty_markers import InUse, Marks
from edge_broker.storage.recovery.recovery_checkpoint import PositionsFiles
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Sequence

    from edge_broker.clock import Reading
    from edge_broker.storage.files.filesystem import File, FileSystem
    from edge_broker.storage.metadata.broker_registrations import Registrations
    from edge_broker.storage.recovery.open_partition import TruncatedLog

RECOVERY_NOTES_MAX = 500
RECOVERY_NOTE_CHARS_MAX = 1000
STORE = "store"
SECURED = "secured"
_CLEAN = "clean-shutdown"
_LAST_RECOVERY = "last-recovery"
_LEADER_EPOCH = "leader-epoch"


def served_anybody(fs: FileSystem, data_dir: str) -> bool:
    """Return whether the directory was made by a version that served any network, trusted or not."""
    return fs.exists(f"{data_dir}/{STORE}") and not fs.exists(f"{data_dir}/{SECURED}")


class DataDirectory:
    """One data directory; `notes` are sentences about what a start could not read or finish.

    Methods that run in the worker `files` run one after another.
    """

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.fs = fs
        self.path = path
        self.notes: list[str] = []
        self.spare = Spare(fs, path)
        self.in_use = InUse(fs, path)
        self.positions = PositionsFiles(fs, path)
        self.producer_ids = ProducerIds(fs, path)
        self.cluster_id = ""
        self.registrations: Registrations | None = None  # None: a single-node broker
        self.leader_epoch = 0
        self.started_unclean = False
        self.age = Age()
        self._age_kept: Age | None = None
        self._lock: File | None = None

    def path_of(self, name: str) -> str:
        """Return the path of a file or directory in it."""
        return f"{self.path}/{name}"

    # before a start has read anything

    def lock(self) -> list[str]:
        """Lock the directory, made if it is missing, and return its names. OSError; StorageFault if another has it."""
        if not self.fs.exists(self.path):
            self.fs.make_directory(self.path)
        self._lock = self.fs.lock(self.path_of(".lock"))
        if self._lock is None:
            raise StorageFault(
                self.path_of(".lock"), 0, "another broker runs on this data directory; stop it or use another one"
            )
        names = self.fs.names(self.path)
        if STORE not in names:  # also where an earlier process made the directory and was killed at once
            self.fs.sync_directory(self.path.rpartition("/")[0] or ("/" if self.path.startswith("/") else "."))
        return names

    def unlock(self) -> None:
        """Release the lock."""
        self._lock = None

    def initialise(self, names: Sequence[str], new_uuid: Callable[[], uuid.UUID]) -> None:
        """Write the files of a new directory, `store` last. OSError; StorageFault if it has partitions."""
        if any(split_partition_directory(name) for name in names):
            raise StorageFault(
                self.path_of(STORE),
                0,
                "is missing beside partition directories; restore it or use another data directory",
            )
        self.fs.make_directory(self.path_of("topics"))
        self._write_entry(_LEADER_EPOCH, "0")
        self._write_entry(PRODUCER_IDS, "0")
        self._write_entry(_CLEAN, "0")
        self._write_entry(SECURED, "1")
        self._write_entry(STORE, id_text(new_uuid()))

    def keep_broker_id(self, broker_id: int, *, in_cluster: bool) -> None:
        """Keep the id of the broker that serves the directory, or refuse another one.

        OSError, StorageFault, ConfigurationError.
        """
        kept = check_broker_id(self.fs, self.path, broker_id, in_cluster=in_cluster)
        if kept == broker_id:
            return
        try:
            write_broker_id(self.fs, self.path, broker_id)
        except OSError as error:
            if kept is not None or error.errno not in OUT_OF_SPACE:
                raise
            self.notes.append(f"{self.path_of(BROKER_ID)}: no space to write it; the next start does")

    def open_registrations(self, names: Sequence[str], new_uuid: Callable[[], uuid.UUID]) -> None:
        """Read the disk's identity in a cluster, or make one. OSError, StorageFault."""
        from edge_broker.storage.metadata.broker_registrations import (  # noqa: PLC0415 - memory: for a cluster alone
            Registrations,
            read_registrations,
            write_registrations,
        )

        if REGISTRATIONS in names:
            self.registrations = read_registrations(self.fs, self.path)
            self.fs.sync_directory(self.path)  # a killed process may leave a name that no disk has
            return
        self.registrations = Registrations(id_text(new_uuid()))
        write_registrations(self.fs, self.path, self.registrations)

    # a start reads, then begins an epoch

    def read_ids(self) -> None:
        """Read cluster id, leader epoch and producer ids. OSError; StorageFault: a file is missing or corrupt."""
        self.cluster_id = (self.registrations and self.registrations.cluster) or read_entry(self.fs, self.path, STORE)
        self.leader_epoch = int(read_entry(self.fs, self.path, _LEADER_EPOCH))
        self.producer_ids.read()

    def read_positions(self) -> None:
        """Read the confirmed ends of partitions; corrupt files are noted. OSError."""
        try:
            self.positions.read()
        except (StorageFault, ValueError) as fault:
            self.notes.append(f"{fault}; every active segment is checked from its start")

    def read_marks(self) -> Marks | None:
        """Return the dirty markers of the previous process; None if there are none, or corrupt ones, noted. OSError."""
        try:
            return self.in_use.read()
        except StorageFault as fault:
            self.notes.append(f"{fault}; after a cut every partition is believed to have been in use")
            return None

    def read_card(self) -> Card | None:
        """Return the measured cost of a sync; None if there is none, or a corrupt one, noted. OSError."""
        try:
            return read_card(self.fs, self.path)
        except (StorageFault, ValueError, LookupError, TypeError) as fault:
            self.notes.append(f"{self.path_of('card')}: {fault}; delete it to have the card measured again")
            return None

    def read_age(self, reading: Reading) -> None:
        """Read the age, and advance it to a reading of the clock; a corrupt file is noted. OSError."""
        try:
            self._age_kept = age_of(read_state(self.fs, self.path_of(AGE), AGE))
        except FileNotFoundError:
            pass  # of a new directory
        except (StorageFault, ValueError) as fault:
            self.notes.append(f"{fault}; age starts again at 0, so stored data is kept for longer")
        self.age = (self._age_kept or Age()).with_reading(reading)

    def is_same_boot(self, boot_id: str) -> bool:
        """Return whether the kept age is of this boot. The answer changes with the first `write_age` of a start."""
        return self._age_kept is not None and self._age_kept.boot_id == boot_id

    def begin_epoch(self, names: Sequence[str]) -> bool:
        """Return whether the last stop was clean; if not, raise the leader epoch, synced. OSError.

        `names` are those of the directory. Nothing may be served before.
        """
        if _CLEAN in names:
            self.fs.remove(self.path_of(_CLEAN))
            self.fs.sync_directory(self.path)
            return True
        drop_leftovers(self.fs, self.path, names)
        if self.fs.space(self.path).free < SPARE_BYTES:
            self.spare.give_up()  # a start writes little, and must
        self.started_unclean = True
        self.leader_epoch += 1
        self._write_entry(_LEADER_EPOCH, self.leader_epoch)
        return False

    def write_last_recovery(self, wall_ms: int, recovery_bytes: int) -> None:
        """Keep the findings of a start: the notes, and how many bytes of logs it read. OSError."""
        stop = "unclean" if self.started_unclean else "clean"
        head = f"{self.leader_epoch} {wall_ms} {stop} {recovery_bytes}"
        notes = [note.replace("\n", " ")[:RECOVERY_NOTE_CHARS_MAX] for note in self.notes]
        self._write(_LAST_RECOVERY, [head, *notes[:RECOVERY_NOTES_MAX]])

    # while the broker runs

    def is_replicated(self, topic: str) -> bool:
        """Return whether the logs of a topic are replicas, whose epochs elections alone raise."""
        return self.registrations is not None and topic != JOURNAL_TOPIC

    @property
    def own_ledger(self) -> str:
        """The topic with the losses of this disk: `__edge_ledger`, in a cluster the journal."""
        return LEDGER_TOPIC if self.registrations is None else JOURNAL_TOPIC

    @runs_in("files")
    def register(self, epoch: int, cluster: str) -> Registrations:
        """Keep the epoch of a registration in a cluster; synced when this returns. Nothing may use the epoch before.

        StorageFault leaves `registrations` as it was.
        """
        assert self.registrations is not None, "a single-node broker has no registration"
        registrations = self.registrations.with_epoch(epoch, cluster)
        try:
            self.keep_registrations(registrations)
        except OSError as error:
            raise fault_of(error, self.path_of(REGISTRATIONS), 0) from error
        self.cluster_id = cluster
        return registrations

    def keep_registrations(self, registrations: Registrations) -> None:
        """Write registrations, synced, if they differ. OSError."""
        from edge_broker.storage.metadata.broker_registrations import write_registrations  # noqa: PLC0415 - memory: for a cluster alone

        if registrations != self.registrations:
            write_registrations(self.fs, self.path, registrations)
            self.registrations = registrations

    @runs_in("files")
    def raise_leader_epoch(self, above: int) -> int:
        """Return a leader epoch greater than `above`, synced. OSError."""
        if self.leader_epoch <= above:
            self._write_entry(_LEADER_EPOCH, above + 1)
            self.leader_epoch = above + 1
        return self.leader_epoch

    def advance_age(self, reading: Reading) -> None:
        """Replace `age`, in one assignment. Loop, about every 10 s and whenever trust may change."""
        self.age = self.age.with_reading(reading)

    def write_age(self) -> None:
        """Write the age, synced, if it is worth a write. OSError."""
        age = self.age
        if age.worth_keeping(self._age_kept):
            self._write(AGE, age.lines())
            self._age_kept = age

    @runs_in("files")
    def keep_card(self, card: Card) -> None:
        """Keep the measured cost of a sync. StorageFault."""
        try:
            write_card(self.fs, self.path, card)
        except OSError as error:
            raise fault_of(error, self.path_of("card"), 0) from error

    def keep_truncated_ends(self, truncated: Sequence[TruncatedLog]) -> None:
        """Write the ends of truncated logs, synced, then remove their truncation files: the logs may grow. OSError."""
        if not truncated:
            return
        from edge_broker.storage.recovery.truncation_file import forget_truncation  # noqa: PLC0415 - memory: for a cluster alone

        ends = {(one.topic_id, one.partition): one.end for one in truncated}
        self.positions.write({**self.positions.stored, **ends})
        for one in truncated:
            forget_truncation(self.fs, one.directory)

    # at a stop

    def write_last_age(self) -> None:
        """Write the age, synced, worth a write or not: a stop is the last chance. OSError."""
        self._age_kept = None
        self.write_age()

    def mark_clean(self) -> None:
        """Mark the stop as clean, synced: every log is written and synced. OSError."""
        self._write_entry(_CLEAN, self.leader_epoch)

    def _write_entry(self, name: str, entry: object) -> None:
        write_entry(self.fs, self.path, name, entry)

    def _write(self, name: str, lines: list[str]) -> None:
        """Replace a file whose kind is its name, synced. OSError."""
        replace(self.fs, self.path, name, encode_state(name, 1, lines))
