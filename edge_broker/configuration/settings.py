"""Declarations of settings, and the one table of topic settings.

| comes from here | where |
|---|---|
| what a log goes by | LogSettings, whose attributes are the declarations |
| the broker keys that hold for topics which set nothing | config.py |
| how a topic is checked and described | storage/metadata/topic_config.py |
| `edge-broker keys` and SETTINGS.md | cli.py, `python -m tests.support.settings` |

Kafka's keys that mean nothing on one board are in the table too: tools set them, and must not fail. Contains: names,
types, bounds, defaults, meanings. Does not contain: reading of values, keys of the broker alone (config.py).
Source: Kafka documentation, "Topic Configs"; Apache Kafka 4.3.1's answers.
"""

from enum import IntEnum
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, dataclass_transform

LONG_MAX = LEFT_TO_KERNEL_MS = 9223372036854775807
LONG_MIN = -LONG_MAX - 1
INT_MAX = 2147483647
FLUSH_MS = 1000

Value = int | float | bool | str


class Kind(IntEnum):
    """The type of a value, by Kafka's numbers (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class Key(NamedTuple):
    """One key of the broker or of a topic; `low` and `high` are inclusive bounds of numbers.

    `choices` are the allowed texts, of a list the allowed entries; `pattern` is what the whole text must be like.

    Of topics alone: `synonym` is the broker's key whose value holds for topics that do not set it. `setting` is the
    attribute of LogSettings, empty for what is kept and shown alone. A log goes by `least` where a smaller number is
    set, which Kafka takes.
    """

    name: str
    default: Value
    doc: str
    low: int = 0
    high: int = LONG_MAX
    choices: tuple[str, ...] = ()
    kind: Kind | None = None
    pattern: str = ""
    synonym: str = ""
    least: int = LONG_MIN
    setting: str = ""

    @property
    def type(self) -> Kind:
        """The declared value, or the one that follows from default and bounds."""
        return self.kind or _kind(self.default, self.high)

    @property
    def of_broker(self) -> "Key":
        """The broker's key for all topics."""
        return self._replace(name=self.synonym, low=max(self.low, self.least), synonym="", setting="")


def _kind(default: Value, high: int) -> Kind:
    if isinstance(default, bool):
        return Kind.BOOLEAN
    if isinstance(default, int):
        return Kind.INT if high <= INT_MAX else Kind.LONG
    return Kind.DOUBLE if isinstance(default, float) else Kind.STRING


def _topic(name: str, default: Value, doc: str, **more: Any) -> Any:
    """Declare an attribute of LogSettings as a topic's key."""
    return Key(name, default, doc, **more)


@dataclass_transform(kw_only_default=True)
class _DeclaredKey:
    """Its attributes are keyword arguments with defaults."""

    KEYS: ClassVar[dict[str, Key]]
    DEFAULTS: ClassVar[dict[str, Any]]

    def __init_subclass__(cls) -> None:
        """Take the declarations out of the class."""
        declared = {name: cls.__dict__[name] for name in cls.__annotations__}
        keys = [key._replace(setting=name) for name, key in declared.items() if isinstance(key, Key)]
        cls.KEYS = {key.name: key for key in keys}
        cls.DEFAULTS = declared | {key.setting: key.default for key in keys}
        for name in declared:
            delattr(cls, name)

    def __init__(self, **values: Any) -> None:
        for name, default in self.DEFAULTS.items():
            setattr(self, name, values.pop(name, default))
        if values:
            raise TypeError(f"there is no setting {', '.join(values)}")


class LogSettings(_DeclaredKey):
    """The settings of a partition's log; sizes in bytes, times in milliseconds, -1 is unbounded for retention.

    Derived values are computed once, as every append reads them: change no setting once a log has them.
    """

    cleanup_policy: str = _topic(
        "cleanup.policy",
        "delete",
        "The policy for old records: delete drops segments by retention; compact keeps the latest record of each key.",
        choices=("delete", "compact"),
        kind=Kind.LIST,
        synonym="log.cleanup.policy",
    )
    delete_retention_ms: int = _topic(
        "delete.retention.ms",
        86_400_000,
        "How long compaction keeps a tombstone.",
        synonym="log.cleaner.delete.retention.ms",
    )
    flush_ms: int = _topic(
        "flush.ms",
        FLUSH_MS,
        "Longest time that data without a waiter stays unsynced; 9223372036854775807 leaves the topic to the kernel: "
        "an answer then means written, not synced, and a power cut may take back what consumers have seen.",
        least=1,
        synonym="log.flush.interval.ms",
    )
    index_interval_bytes: int = _topic(
        "index.interval.bytes",
        4096,
        "Bytes of log between two entries of its index; fewer than 64 count as 64.",
        high=INT_MAX,
        least=64,
        synonym="log.index.interval.bytes",
    )
    max_compaction_lag_ms: int = _topic(
        "max.compaction.lag.ms",
        LONG_MAX,
        "Age at which a record is compacted, however little there is to compact.",
        low=1,
        synonym="log.cleaner.max.compaction.lag.ms",
    )
    message_bytes_max: int = _topic(
        "max.message.bytes",
        1_048_588,
        "Largest record batch accepted.",
        high=INT_MAX,
        least=61,
        synonym="message.max.bytes",
    )
    message_timestamp_type: str = _topic(
        "message.timestamp.type",
        "CreateTime",
        "Whose time a record carries: the producer's, or the broker's at the append.",
        choices=("CreateTime", "LogAppendTime"),
        synonym="log.message.timestamp.type",
    )
    min_cleanable_dirty_ratio: float = _topic(
        "min.cleanable.dirty.ratio",
        0.5,
        "Compaction begins when this part of the log's bytes was not compacted before.",
        high=1,
        synonym="log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms: int = _topic(
        "min.compaction.lag.ms",
        0,
        "Age before which a record is not compacted.",
        synonym="log.cleaner.min.compaction.lag.ms",
    )
    retention_bytes: int = _topic(
        "retention.bytes",
        -1,
        "Size of a partition above which its oldest closed segments are deleted; -1 has no bound.",
        low=LONG_MIN,
        least=-1,
        synonym="log.retention.bytes",
    )
    retention_ms: int = _topic(
        "retention.ms",
        604_800_000,
        "Age at which segments are deleted, the last one once all of it is that old; -1 keeps them.",
        low=-1,
        synonym="log.retention.ms",
    )
    segment_bytes: int = _topic(
        "segment.bytes",
        67_108_864,
        "Size at which a segment is closed and the next begun.",
        low=4096,
        high=INT_MAX,
        synonym="log.segment.bytes",
    )
    segment_ms: int = _topic(
        "segment.ms",
        604_800_000,
        "Age at which a segment is closed by the next append.",
        low=1,
        synonym="log.roll.ms",
    )
    required_groups: str = _topic(
        "edge.required.groups",
        "",
        "Consumer groups, with commas between them, that must have passed a record before it may go without being "
        "written down as lost. A group that has committed nothing has passed nothing.",
        kind=Kind.LIST,
        synonym="edge.required.groups",
    )
    priority: int = _topic(
        "edge.priority",
        5,
        "Which topics lose data first when the disk is full and all that is safe to go is gone: 0 first, 9 last.",
        high=9,
    )
    budget_bytes: int = _topic(
        "edge.budget.bytes",
        -1,
        "Size of the topic, all partitions together, above which it is treated like a full disk; -1 has no bound.",
        low=-1,
    )
    durability_set: str = _topic(
        "edge.durability",
        "",
        "When acks=all is answered. sync: after the disk has confirmed. interval: after the write; the disk follows "
        "within flush.ms, and consumers see only what it has confirmed. kernel: after the write; the disk follows when "
        "the kernel likes, and consumers see all. Unless set: kernel with flush.ms 9223372036854775807, else sync.",
        choices=("sync", "interval", "kernel"),
    )
    compacted: bool = False  # at some time, whatever its policy is now
    producer_id_expiration_ms: int = 86_400_000  # of the broker alone

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The groups that must have passed a record before it may go without being a loss."""
        return tuple(dict.fromkeys(filter(None, self.required_groups.split(","))))

    @cached_property
    def left_to_kernel(self) -> bool:
        """True for a topic whose data are never synced, and shown all the same."""
        return self.durability_set == "kernel" if self.durability_set else self.flush_ms >= LEFT_TO_KERNEL_MS

    @cached_property
    def sync_awaited(self) -> bool:
        """True when a waiting request has it synced at once; False: only the clock decides."""
        return self.durability_set != "interval" and not self.left_to_kernel

    @cached_property
    def log_append_time(self) -> bool:
        """True when the broker stamps its own time into each batch."""
        return self.message_timestamp_type == "LogAppendTime"

    @cached_property
    def compacts(self) -> bool:
        """True when only the latest record of each key is to stay."""
        return "compact" in self.cleanup_policy

    @property
    def may_have_gaps(self) -> bool:
        """True when compaction takes batches out, or may have: offsets that are missing are no damage."""
        return self.compacts or self.compacted

    @cached_property
    def roll_ms(self) -> int:
        """Age at which a segment is closed: in a topic that is compacted at max.compaction.lag.ms at the latest."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms

    @cached_property
    def roll_ms_min(self) -> int:
        """No segment is closed for its age before this one."""
        return self.segment_ms if self.segment_ms < self.max_compaction_lag_ms else self.max_compaction_lag_ms

    @cached_property
    def deletes(self) -> bool:
        """True when retention may delete; a topic that is only compacted is kept whole."""
        return "delete" in self.cleanup_policy

    @cached_property
    def durability(self) -> str:
        """`sync`, `interval` or `kernel`: what an answer with acks=all means."""
        return self.durability_set or ("kernel" if self.left_to_kernel else "sync")


_REPLICAS = r"\*|(\d+:\d+(,\d+:\d+)*)?"
_WITHOUT_EFFECT = (
    Key(
        "compression.type",
        "producer",
        "Without effect: batches are kept as the producer compressed them.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonym="compression.type",
    ),
    Key(
        "compression.gzip.level",
        -1,
        "Without effect: the broker compresses nothing.",
        high=INT_MAX,
        low=-1,
        choices=("-1", *map(str, range(1, 10))),
        synonym="compression.gzip.level",
    ),
    Key(
        "compression.lz4.level",
        9,
        "Without effect: the broker compresses nothing.",
        1,
        17,
        synonym="compression.lz4.level",
    ),
    Key(
        "compression.zstd.level",
        3,
        "Without effect: the broker compresses nothing.",
        -131_072,
        22,
        synonym="compression.zstd.level",
    ),
    Key("file.delete.delay.ms", 60_000, "Without effect: files go at once.", synonym="log.segment.delete.delay.ms"),
    Key(
        "flush.messages",
        LONG_MAX,
        "Without effect: a write with acks=all is synced before it is answered, others within flush.ms.",
        1,
        synonym="log.flush.interval.messages",
    ),
    Key(
        "follower.replication.throttled.replicas",
        "",
        "Without effect: replication between brokers is not throttled.",
        kind=Kind.LIST,
        pattern=_REPLICAS,
    ),
    Key(
        "leader.replication.throttled.replicas",
        "",
        "Without effect: replication between brokers is not throttled.",
        kind=Kind.LIST,
        pattern=_REPLICAS,
    ),
    Key(
        "local.retention.bytes",
        -2,
        "Without effect: there is no tiered storage; retention.bytes holds.",
        -2,
        synonym="log.local.retention.bytes",
    ),
    Key(
        "local.retention.ms",
        -2,
        "Without effect: there is no tiered storage; retention.ms holds.",
        -2,
        synonym="log.local.retention.ms",
    ),
    Key(
        "message.timestamp.after.max.ms",
        LONG_MAX,
        "Without effect: a board's clock may be wrong, so no record is refused for its distance to it.",
        synonym="log.message.timestamp.after.max.ms",
    ),
    Key(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        "Without effect: a board's clock may be wrong, so no record is refused for its distance to it.",
        synonym="log.message.timestamp.before.max.ms",
    ),
    Key(
        "min.insync.replicas",
        1,
        "Disks that must have a record before acks=all is answered, in a cluster; a broker that stands alone has one.",
        1,
        INT_MAX,
        synonym="min.insync.replicas",
    ),
    Key(
        "preallocate",
        False,
        "Without effect: segments grow as they are written.",
        synonym="log.preallocate",
    ),
    Key("remote.log.copy.disable", False, "Without effect: there is no tiered storage."),
    Key("remote.log.delete.on.disable", False, "Without effect: there is no tiered storage."),
    Key(
        "remote.storage.enable",
        False,
        "There is no tiered storage, so only false is taken.",
        choices=("false",),
    ),
    Key(
        "segment.index.bytes",
        10_485_760,
        "Without effect: an index grows as its segment does.",
        4,
        INT_MAX,
        synonym="log.index.size.max.bytes",
    ),
    Key("segment.jitter.ms", 0, "Without effect: segments of one board need not be spread."),
    Key(
        "unclean.leader.election.enable",
        False,
        "Let a replica lead that may lack acknowledged acks=all records, if no other one is left, in a cluster.",
        synonym="unclean.leader.election.enable",
    ),
)
_OF_CLUSTERS = ("min.insync.replicas", "unclean.leader.election.enable")
"""The broker has keys of these names of its own."""

TOPIC_KEYS = dict(sorted((LogSettings.KEYS | {key.name: key for key in _WITHOUT_EFFECT}).items()))
"""By name, in its order."""

BROKER_KEYS = tuple(key.of_broker for key in LogSettings.KEYS.values() if key.synonym)
"""Keys of the broker for all topics."""

SHOWN_BROKER_KEYS = (*(key.of_broker for key in _WITHOUT_EFFECT if key.synonym and key.name not in _OF_CLUSTERS),)
"""Keys that admin clients ask the broker for, and that cannot be set."""


def as_text(value: Value) -> str:
    """A value as Kafka writes it: `true`, `false`, decimal digits or the text itself."""
    return str(value).lower() if isinstance(value, bool) else str(value)
