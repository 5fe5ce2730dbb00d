"""Topic-level configuration: Kafka's keys, their bounds, and the settings a log works with.

Lives here: the one table of topic-level keys, and turning explicitly set texts into checked settings. Must never come
in: broker keys (config.py), files. Source: Kafka documentation, "Topic Configs".
"""

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from edge_broker.config import LEFT_TO_KERNEL_MS
from edge_broker.errors import ErrorCode, Refusal

LONG_MAX = 9223372036854775807
INT_MAX = 2147483647
FLUSH_MS = 1000
CONFIG_BYTES_MAX = 2048  # of one topic: all keys take some 600 with their values, the rest is for group names
LISTS = ("cleanup.policy", "edge.required.groups")
GROUPS_MAX = 20  # each is looked up for each partition once a second

Value = int | float | str


class TopicKey(NamedTuple):
    """One topic-level key; `setting` names its field of LogSettings, or is empty where `default` always holds.

    `low` and `high` are inclusive bounds of integers, `choices` the allowed texts.
    """

    name: str
    setting: str
    default: Value
    doc: str
    low: int = 0
    high: int = LONG_MAX
    choices: tuple[str, ...] = ()


_TABLE = (
    TopicKey(
        "cleanup.policy",
        "cleanup_policy",
        "delete",
        "What becomes of old records: delete drops segments by retention; compact keeps the latest record of each key.",
        choices=("delete", "compact", "compact,delete", "delete,compact"),
    ),
    TopicKey(
        "compression.type", "", "producer", "Batches are kept as the producer compressed them.", choices=("producer",)
    ),
    TopicKey("delete.retention.ms", "delete_retention_ms", 86_400_000, "How long compaction keeps a tombstone."),
    TopicKey("file.delete.delay.ms", "", 60_000, "Accepted for clients that set it; files go at once.", 0),
    TopicKey(
        "flush.messages",
        "",
        LONG_MAX,
        "Not counted here: a write with acks=all is synced before it is answered, others within flush.ms.",
        LONG_MAX,
    ),
    TopicKey(
        "flush.ms",
        "flush_ms",
        FLUSH_MS,
        "Longest time that data nobody waits for stays unsynced; 9223372036854775807 leaves the topic to the kernel: "
        "an answer then means written, not synced, and a power cut may take back what consumers have seen.",
        1,
    ),
    TopicKey(
        "index.interval.bytes",
        "index_interval_bytes",
        4096,
        "Bytes of log between two entries of its index.",
        64,
        INT_MAX,
    ),
    TopicKey(
        "max.compaction.lag.ms",
        "max_compaction_lag_ms",
        LONG_MAX,
        "Age at which a record is compacted, however little there is to compact.",
        1,
    ),
    TopicKey("max.message.bytes", "message_bytes_max", 1_048_588, "Largest record batch accepted.", 61, 1 << 30),
    TopicKey(
        "message.timestamp.type",
        "message_timestamp_type",
        "CreateTime",
        "Whose time a record carries: the producer's, or the broker's at the append.",
        choices=("CreateTime", "LogAppendTime"),
    ),
    TopicKey(
        "min.cleanable.dirty.ratio",
        "min_cleanable_dirty_ratio",
        0.5,
        "Compaction begins when this part of the log's bytes was not compacted before.",
        0,
        1,
    ),
    TopicKey("min.compaction.lag.ms", "min_compaction_lag_ms", 0, "Age before which a record is not compacted."),
    TopicKey(
        "min.insync.replicas",
        "",
        1,
        "Replicas that must hold a record before acks=all is answered; there is one here.",
        1,
        1,
    ),
    TopicKey(
        "retention.bytes",
        "retention_bytes",
        -1,
        "Size of a partition above which its oldest closed segments are deleted; -1 has no bound.",
        -1,
    ),
    TopicKey(
        "retention.ms", "retention_ms", 604_800_000, "Age at which closed segments are deleted; -1 keeps them.", -1
    ),
    TopicKey(
        "segment.bytes",
        "segment_bytes",
        67_108_864,
        "Size at which a segment is closed and the next begun.",
        4096,
        INT_MAX,
    ),
    TopicKey("segment.ms", "segment_ms", 604_800_000, "Age at which a segment is closed by the next append.", 1),
    TopicKey(
        "edge.required.groups",
        "required_groups",
        "",
        "Consumer groups, with commas between them, that must have passed a record before it may go without being "
        "written down as lost. A group that has committed nothing has passed nothing.",
    ),
    TopicKey(
        "edge.priority",
        "priority",
        5,
        "Which topics lose data first when the disk is full and all that is safe to go is gone: 0 first, 9 last.",
        0,
        9,
    ),
    TopicKey(
        "edge.budget.bytes",
        "budget_bytes",
        -1,
        "Size of the topic, all partitions together, above which it is treated like a full disk; -1 has no bound.",
        -1,
    ),
    TopicKey(
        "edge.durability",
        "durability_set",
        "sync",
        "When acks=all is answered. sync: after the disk has confirmed. interval: after the write; the disk follows "
        "within flush.ms, and consumers see only what it has confirmed. kernel: after the write; the disk follows when "
        "the kernel likes, and consumers see all. Unless set: kernel with flush.ms 9223372036854775807, else sync.",
        choices=("sync", "interval", "kernel"),
    ),
)
TOPIC_KEYS: dict[str, TopicKey] = {key.name: key for key in _TABLE}


class LogSettings:
    """What a partition's log goes by; sizes in bytes, times in milliseconds, -1 is unbounded for retention.

    What follows from them is worked out once, as every append asks for it: change none once a log has them.
    """

    def __init__(
        self,
        *,
        budget_bytes: int = -1,
        cleanup_policy: str = "delete",
        compacted: bool = False,
        delete_retention_ms: int = 86_400_000,
        durability_set: str = "",
        flush_ms: int = FLUSH_MS,
        index_interval_bytes: int = 4096,
        max_compaction_lag_ms: int = LONG_MAX,
        message_bytes_max: int = 1_048_588,
        message_timestamp_type: str = "CreateTime",
        min_cleanable_dirty_ratio: float = 0.5,
        min_compaction_lag_ms: int = 0,
        priority: int = 5,
        producer_id_expiration_ms: int = 86_400_000,
        required_groups: str = "",
        retention_bytes: int = -1,
        retention_ms: int = 604_800_000,
        segment_bytes: int = 67_108_864,
        segment_ms: int = 604_800_000,
    ) -> None:
        self.budget_bytes = budget_bytes
        self.cleanup_policy = cleanup_policy
        self.compacted = compacted  # at some time, whatever its policy is now
        self.delete_retention_ms = delete_retention_ms
        self.durability_set = durability_set
        self.flush_ms = flush_ms
        self.index_interval_bytes = index_interval_bytes
        self.max_compaction_lag_ms = max_compaction_lag_ms
        self.message_bytes_max = message_bytes_max
        self.message_timestamp_type = message_timestamp_type
        self.min_cleanable_dirty_ratio = min_cleanable_dirty_ratio
        self.min_compaction_lag_ms = min_compaction_lag_ms
        self.priority = priority
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.required_groups = required_groups
        self.retention_bytes = retention_bytes
        self.retention_ms = retention_ms
        self.segment_bytes = segment_bytes
        self.segment_ms = segment_ms

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


def list_of(settings: LogSettings, name: str) -> list[str]:
    """The entries of a key whose value is a list, one of LISTS."""
    return [part for part in getattr(settings, TOPIC_KEYS[name].setting).split(",") if part]


SETTINGS = tuple(LogSettings.__init__.__kwdefaults__ or ())


class TopicConfigEntry(NamedTuple):
    """One key of a topic as DescribeConfigs shows it; `explicit` when it was set for the topic itself."""

    name: str
    value: str
    explicit: bool
    kind: type
    doc: str


def check_config_size(config: Mapping[str, str]) -> None:
    """Refuse what a new topic would keep beyond CONFIG_BYTES_MAX and GROUPS_MAX; Refusal INVALID_CONFIG.

    Before anything else looks at it: other refusals repeat what they refuse. What older versions stored is opened.
    """
    size = sum(len(text) * (1 if text.isascii() else 4) for entry in config.items() for text in entry)
    if size > CONFIG_BYTES_MAX:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"the topic's configuration takes {size} bytes, {CONFIG_BYTES_MAX} are allowed; shorten its values",
        )
    groups = config.get("edge.required.groups", "").count(",") + 1
    if groups > GROUPS_MAX:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"edge.required.groups names {groups} groups, {GROUPS_MAX} are allowed; name fewer",
        )


def check_topic_config(config: Mapping[str, str]) -> dict[str, Value]:
    """The values of explicitly set keys by setting; Refusal INVALID_CONFIG names the key and the remedy."""
    values = {
        TOPIC_KEYS[name].setting: _value(name, text)
        for name, text in config.items()
        if name in TOPIC_KEYS or _unknown(name)
    }
    durability = values.get("durability_set", "kernel")
    if durability != "kernel" and values.get("flush_ms") == LEFT_TO_KERNEL_MS:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"flush.ms={LEFT_TO_KERNEL_MS} leaves the topic to the kernel, edge.durability={durability} does not; "
            "set one of them",
        )
    return values


def topic_settings(defaults: LogSettings, config: Mapping[str, str], *, compacted: bool = False) -> LogSettings:
    """The settings of a topic: its explicitly set keys over the broker's defaults; Refusal INVALID_CONFIG.

    `compacted`: its policy was to compact at some time.
    """
    values = check_topic_config(config)
    values.pop("", None)
    values["compacted"] = compacted
    settings = LogSettings()
    for name in SETTINGS:
        setattr(settings, name, values.get(name, getattr(defaults, name)))
    if settings.durability_set in ("sync", "interval") and settings.flush_ms == LEFT_TO_KERNEL_MS:
        settings.flush_ms = FLUSH_MS  # the broker's own default is no bound for a topic that wants one
    return settings


def describe_topic_config(defaults: LogSettings, config: Mapping[str, str]) -> list[TopicConfigEntry]:
    """Every topic-level key with the value that holds for a topic with this explicit configuration."""
    settings = topic_settings(defaults, config)
    return [
        TopicConfigEntry(
            key.name,
            config.get(key.name) or str(_shown(settings, key)),
            key.name in config,
            type(key.default),
            key.doc,
        )
        for key in _TABLE
    ]


def _shown(settings: LogSettings, key: TopicKey) -> Value:
    if key.name == "edge.durability":
        return settings.durability
    return getattr(settings, key.setting) if key.setting else key.default


def _unknown(name: str) -> bool:
    import difflib  # noqa: PLC0415 - only needed to word a refusal

    near = difflib.get_close_matches(name, TOPIC_KEYS, n=1, cutoff=0.5)
    remedy = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(TOPIC_KEYS))}"
    raise Refusal(ErrorCode.INVALID_CONFIG, f"unknown topic configuration {name!r}; {remedy}")


def _value(name: str, text: str) -> Value:
    key = TOPIC_KEYS[name]
    if isinstance(key.default, str):
        value = ",".join(part.strip() for part in text.split(","))
        if key.choices and value not in key.choices:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"{name}={text!r} is not served; use {' or '.join(key.choices)}")
        return value
    try:
        number = type(key.default)(text)
    except ValueError:
        kind = "whole number" if isinstance(key.default, int) else "number"
        raise Refusal(ErrorCode.INVALID_CONFIG, f"{name}={text!r} is no {kind}; write decimal digits") from None
    if not key.low <= number <= key.high:
        bounds = f"only {key.low} is served" if key.low == key.high else f"use {key.low} to {key.high}"
        raise Refusal(ErrorCode.INVALID_CONFIG, f"{name}={number} is out of bounds; {bounds}. {key.doc}")
    return number
