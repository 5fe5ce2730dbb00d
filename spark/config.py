"""The settings of a job: names, units, defaults and bounds; `--set key=value` changes them.

Contains: values and their checks; `client.keys` has the keys of Kafka's clients. Does not contain: Spark, Kafka, any
file but that and the default places.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from drupelet.command.config_check import nearest
from drupelet.errors import ConfigurationError

DAY_MS = 86_400_000
BOUNDS: dict[str, tuple[float, float]] = {
    "output_partitions": (1, 1_000),
    "window_ms": (100, DAY_MS),
    "lateness_max_ms": (0, 30 * DAY_MS),
    "ahead_max_ms": (0, 30 * DAY_MS),
    "trigger_ms": (100, DAY_MS),
    "malformed_trigger_ms": (100, DAY_MS),
    "batch_records_max": (1, 10_000_000),
    "recent_readings": (2, 10_000),
    "recent_readings_min": (2, 10_000),
    "alarm_score_min": (0.1, 1e6),
    "deviation_min": (1e-12, 1e9),
}


@dataclass(frozen=True)
class Settings:
    """A job's input, outputs and bounds; times in milliseconds; paths local or of any file system that Spark knows."""

    bootstrap: str = "127.0.0.1:9092"
    master: str = "local[2]"
    checkpoint: str = ""
    security_protocol: str = ""
    ssl_ca_file: str = ""
    ssl_cert_file: str = ""
    ssl_key_file: str = ""
    sasl_mechanism: str = ""
    sasl_username: str = ""
    sasl_password_file: str = ""
    topic: str = "readings"
    windows_topic: str = "readings_windows"
    late_topic: str = "readings_late"
    alarms_topic: str = "readings_alarms"
    output_partitions: int = 1
    window_ms: int = 10_000
    lateness_max_ms: int = 30_000  # later readings no longer change a window
    ahead_max_ms: int = 60_000  # a reading dated further past its receipt is malformed: it would close all windows
    trigger_ms: int = 2_000
    malformed_trigger_ms: int = 10_000
    batch_records_max: int = 20_000
    recent_readings: int = 30
    recent_readings_min: int = 10  # a device with fewer has no alarms yet
    alarm_score_min: float = 4.0  # distance from the recent mean, in standard deviations
    deviation_min: float = 0.1  # in the reading's unit: a steady device does not alarm on its last digit
    kafka: dict[str, str] = field(default_factory=dict)  # `kafka.` options for every Kafka client
    spark: dict[str, str] = field(default_factory=dict)  # `spark.` options for the session

    def place(self, name: str) -> str:
        """Name a directory below the checkpoint."""
        return f"{self.checkpoint.rstrip('/')}/{name}"


FIXED = {"bootstrap", "master", "checkpoint", "kafka", "spark"}  # set by their own options, or by a prefix
CLIENT_KEYS = Path(__file__).with_name("client.keys")
KAFKA_PREFIX = "kafka."
PROVIDER_PREFIX = "config.providers."  # then a provider's name, and `class` or a parameter of that class
CLASS_KEYS = {  # the client passes all its keys to such a class, also keys that it does not know itself
    "interceptor.classes",
    "metric.reporters",
    "partitioner.class",
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "security.providers",
    "ssl.engine.factory.class",
}
TOPICS = ("topic", "windows_topic", "late_topic", "alarms_topic")
TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
SETTABLE = {each.name: each.type for each in fields(Settings) if each.name not in FIXED}


def with_assignments(settings: Settings, assignments: Iterable[str]) -> Settings:
    """Apply `key=value` words in order; raises ConfigurationError for an unknown key or a value out of bounds."""
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise ConfigurationError(f"--set {assignment}: write it as key=value")
        settings = with_setting(settings, key.strip(), text.strip())
    return check_settings(settings)


def with_setting(settings: Settings, key: str, text: str) -> Settings:
    """Apply one setting given as text."""
    if key.startswith("kafka."):
        return replace(settings, kafka={**settings.kafka, key: text})
    if key.startswith("spark."):
        return replace(settings, spark={**settings.spark, key: text})
    if key not in SETTABLE:
        near = nearest(key, SETTABLE)
        raise ConfigurationError(f"unknown setting {key!r}: " + (f"did you mean {near!r}?" if near else KNOWN))
    changes: dict[str, Any] = {key: convert(key, text)}
    return replace(settings, **changes)


KNOWN = f"the settings are {', '.join(SETTABLE)}, any key of Kafka's clients under kafka., and any name under spark."


def convert(key: str, text: str) -> str | int | float:
    """Turn a setting's text into its type."""
    kind = SETTABLE[key]
    if kind is str:
        return text
    try:
        return int(text) if kind is int else float(text)
    except ValueError:
        raise ConfigurationError(f"{key}={text}: give a number") from None


def check_settings(settings: Settings) -> Settings:
    """Return the settings if they are within bounds; raises ConfigurationError that names the first that is not."""
    for name, (lowest, highest) in BOUNDS.items():
        value = getattr(settings, name)
        if not lowest <= value <= highest:
            raise ConfigurationError(f"{name}={value}: give a number from {lowest} to {highest}")
    check_kafka_keys(settings.kafka)
    check_topics({name: getattr(settings, name) for name in TOPICS})
    if settings.recent_readings < settings.recent_readings_min:
        raise ConfigurationError(f"recent_readings={settings.recent_readings} is below recent_readings_min")
    return settings


def check_kafka_keys(given: Iterable[str]) -> None:
    """Refuse a key that no client of Kafka has, unless a class that the user names may read it."""
    keys = [key.removeprefix(KAFKA_PREFIX) for key in given]
    if not keys or CLASS_KEYS.intersection(keys):
        return
    known = {line for line in CLIENT_KEYS.read_text().splitlines() if not line.startswith("#")}
    for key in keys:
        if key not in known and not key.startswith(PROVIDER_PREFIX):
            near = nearest(key, known)
            remedy = f"did you mean {KAFKA_PREFIX + near!r}?" if near else f"the keys are in {CLIENT_KEYS}"
            raise ConfigurationError(f"unknown setting {KAFKA_PREFIX + key!r}, which no client of Kafka has: {remedy}")


def check_topics(topics: Mapping[str, str]) -> None:
    """Refuse an invalid topic name, and two settings with one topic: a job would read its own output."""
    taken: dict[str, str] = {}
    for setting, topic in topics.items():
        if not TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
            raise ConfigurationError(f"{setting}={topic}: give a topic's name: letters, digits, '.', '_', '-'")
        if topic in taken:
            raise ConfigurationError(f"{setting}={topic} is the topic of {taken[topic]} too: give each its own")
        taken[topic] = setting


def default_checkpoint(job: str) -> str:
    """Return the default checkpoint of a job: $XDG_STATE_HOME/drupelet/spark/<job>."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
    return str(Path(base) / "drupelet/spark" / job)
