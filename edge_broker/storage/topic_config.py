"""Topic-level configuration: Kafka's keys, their bounds, and the settings a log works with.

Lives here: the one table of topic-level keys, and turning explicitly set texts into checked settings. Must never come
in: broker keys (config.py), files. Source: Kafka documentation, "Topic Configs".
"""

from collections.abc import Mapping
from typing import NamedTuple

from edge_broker.config import LEFT_TO_KERNEL_MS
from edge_broker.errors import ErrorCode, Refusal

LONG_MAX = 9223372036854775807
INT_MAX = 2147483647

Value = int | str


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
    read_only: bool = False


_TABLE = (
    TopicKey(
        "cleanup.policy",
        "cleanup_policy",
        "delete",
        "What becomes of old records: delete drops segments by retention; compact keeps all until compaction exists.",
        choices=("delete", "compact", "compact,delete", "delete,compact"),
    ),
    TopicKey(
        "compression.type", "", "producer", "Batches are kept as the producer compressed them.", choices=("producer",)
    ),
    TopicKey("delete.retention.ms", "delete_retention_ms", 86_400_000, "How long compaction will keep a tombstone."),
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
        1000,
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
    TopicKey("max.message.bytes", "message_bytes_max", 1_048_588, "Largest record batch accepted.", 61, 1 << 30),
    TopicKey(
        "message.timestamp.type",
        "message_timestamp_type",
        "CreateTime",
        "Whose time a record carries: the producer's, or the broker's at the append.",
        choices=("CreateTime", "LogAppendTime"),
    ),
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
        "edge.durability",
        "durability",
        "synced",
        "synced: acks=all is answered after the disk confirmed; kernel: left to the kernel by flush.ms.",
        choices=("synced", "kernel"),
        read_only=True,
    ),
)
TOPIC_KEYS: dict[str, TopicKey] = {key.name: key for key in _TABLE}


class LogSettings:
    """What a partition's log goes by; sizes in bytes, times in milliseconds, -1 is unbounded for retention."""

    __slots__ = (
        "cleanup_policy",
        "delete_retention_ms",
        "flush_ms",
        "index_interval_bytes",
        "message_bytes_max",
        "message_timestamp_type",
        "producer_id_expiration_ms",
        "retention_bytes",
        "retention_ms",
        "segment_bytes",
        "segment_ms",
    )

    def __init__(
        self,
        *,
        cleanup_policy: str = "delete",
        delete_retention_ms: int = 86_400_000,
        flush_ms: int = 1000,
        index_interval_bytes: int = 4096,
        message_bytes_max: int = 1_048_588,
        message_timestamp_type: str = "CreateTime",
        producer_id_expiration_ms: int = 86_400_000,
        retention_bytes: int = -1,
        retention_ms: int = 604_800_000,
        segment_bytes: int = 67_108_864,
        segment_ms: int = 604_800_000,
    ) -> None:
        self.cleanup_policy = cleanup_policy
        self.delete_retention_ms = delete_retention_ms
        self.flush_ms = flush_ms
        self.index_interval_bytes = index_interval_bytes
        self.message_bytes_max = message_bytes_max
        self.message_timestamp_type = message_timestamp_type
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.retention_bytes = retention_bytes
        self.retention_ms = retention_ms
        self.segment_bytes = segment_bytes
        self.segment_ms = segment_ms

    @property
    def left_to_kernel(self) -> bool:
        """True for a topic whose answers mean written, not synced."""
        return self.flush_ms >= LEFT_TO_KERNEL_MS

    @property
    def log_append_time(self) -> bool:
        """True when the broker stamps its own time into each batch."""
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def deletes(self) -> bool:
        """True when retention may delete; a topic that is only compacted is kept whole."""
        return "delete" in self.cleanup_policy

    @property
    def durability(self) -> str:
        """`synced` or `kernel`."""
        return "kernel" if self.left_to_kernel else "synced"


class TopicConfigEntry(NamedTuple):
    """One key of a topic as DescribeConfigs shows it; `explicit` when it was set for the topic itself."""

    name: str
    value: str
    explicit: bool
    kind: type
    doc: str
    read_only: bool


def check_topic_config(config: Mapping[str, str]) -> dict[str, Value]:
    """The values of explicitly set keys by setting; Refusal INVALID_CONFIG names the key and the remedy."""
    return {
        TOPIC_KEYS[name].setting: _value(name, text)
        for name, text in config.items()
        if name in TOPIC_KEYS or _unknown(name)
    }


def topic_settings(defaults: LogSettings, config: Mapping[str, str]) -> LogSettings:
    """The settings of a topic: its explicitly set keys over the broker's defaults; Refusal INVALID_CONFIG."""
    values = check_topic_config(config)
    values.pop("", None)
    settings = LogSettings()
    for name in LogSettings.__slots__:
        setattr(settings, name, values.get(name, getattr(defaults, name)))
    return settings


def describe_topic_config(defaults: LogSettings, config: Mapping[str, str]) -> list[TopicConfigEntry]:
    """Every topic-level key with the value that holds for a topic with this explicit configuration."""
    settings = topic_settings(defaults, config)
    return [
        TopicConfigEntry(
            key.name,
            config.get(key.name) or str(getattr(settings, key.setting) if key.setting else key.default),
            key.name in config,
            type(key.default),
            key.doc,
            key.read_only,
        )
        for key in _TABLE
    ]


def _unknown(name: str) -> bool:
    import difflib  # noqa: PLC0415 - only needed to word a refusal

    near = difflib.get_close_matches(name, TOPIC_KEYS, n=1, cutoff=0.5)
    remedy = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(TOPIC_KEYS))}"
    raise Refusal(ErrorCode.INVALID_CONFIG, f"unknown topic configuration {name!r}; {remedy}")


def _value(name: str, text: str) -> Value:
    key = TOPIC_KEYS[name]
    if key.read_only:
        raise Refusal(ErrorCode.INVALID_CONFIG, f"{name} is read-only; it follows from flush.ms")
    if isinstance(key.default, str):
        value = ",".join(part.strip() for part in text.split(","))
        if value not in key.choices:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"{name}={text!r} is not served; use {' or '.join(key.choices)}")
        return value
    try:
        number = int(text)
    except ValueError:
        raise Refusal(ErrorCode.INVALID_CONFIG, f"{name}={text!r} is no whole number; write decimal digits") from None
    if not key.low <= number <= key.high:
        bounds = f"only {key.low} is served" if key.low == key.high else f"use {key.low} to {key.high}"
        raise Refusal(ErrorCode.INVALID_CONFIG, f"{name}={number} is out of bounds; {bounds}. {key.doc}")
    return number
