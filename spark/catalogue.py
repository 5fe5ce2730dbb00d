"""Describe the jobs and their settings in plain text: `edge-spark list`.

Contains: names, units, meanings, the settings of each job. Does not contain: Spark, so that errors appear at once.
"""

from collections.abc import Iterator
from typing import NamedTuple

from spark.config import BOUNDS, Settings

SUMMARIES = {
    "readings": "windows and alarms in one process",
    "windows": "min, mean, max, count per device and event-time window, to a compacted topic and to Parquet",
    "alarms": "readings far from their device's recent mean, to a topic",
}
ALL, WINDOWS, ALARMS = frozenset(SUMMARIES), frozenset({"readings", "windows"}), frozenset({"readings", "alarms"})


class Meaning(NamedTuple):
    """The meaning of a setting; `unit` is empty for names."""

    jobs: frozenset[str]
    unit: str
    text: str


MEANINGS = {
    "security_protocol": Meaning(ALL, "", "of the broker: PLAINTEXT, SSL, SASL_SSL or SASL_PLAINTEXT"),
    "ssl_ca_file": Meaning(ALL, "", "PEM file of the trusted CAs; default: Java's own"),
    "ssl_cert_file": Meaning(ALL, "", "PEM file of the job's own certificate"),
    "ssl_key_file": Meaning(ALL, "", "its key, PKCS #8 in PEM, for this user alone"),
    "sasl_mechanism": Meaning(ALL, "", "SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN; default: the first"),
    "sasl_username": Meaning(ALL, "", "the user who logs in"),
    "sasl_password_file": Meaning(ALL, "", "file with the password and no line end, for this user alone"),
    "topic": Meaning(ALL, "", "the topic that is read"),
    "trigger_ms": Meaning(ALL, "ms", "time from one batch to the next; longer saves processor time and card writes"),
    "batch_records_max": Meaning(
        ALL, "records", "most that a batch takes, of all partitions together; bounds its memory"
    ),
    "ahead_max_ms": Meaning(ALL, "ms", "a reading dated further past its receipt is malformed"),
    "malformed_trigger_ms": Meaning(ALL, "ms", "interval of the check for records that are no readings"),
    "output_partitions": Meaning(ALL, "partitions", "of a results topic that the job creates"),
    "windows_topic": Meaning(WINDOWS, "", "where windows are written; compacted"),
    "late_topic": Meaning(WINDOWS, "", "where readings are written that came too late for their window; compacted"),
    "window_ms": Meaning(WINDOWS, "ms", "length of a window of event time; needs a new --checkpoint when it changes"),
    "lateness_max_ms": Meaning(WINDOWS, "ms", "how long after its end, in event time, a window still changes"),
    "alarms_topic": Meaning(ALARMS, "", "where alarms are written"),
    "recent_readings": Meaning(ALARMS, "readings", "of a device, with which its next one is compared"),
    "recent_readings_min": Meaning(ALARMS, "readings", "a device with fewer has no alarms yet"),
    "alarm_score_min": Meaning(ALARMS, "standard deviations", "distance from the recent mean that is an alarm"),
    "deviation_min": Meaning(
        ALARMS, "in the reading's unit", "least standard deviation, so that a steady device is quiet"
    ),
}


def listing(job: str | None) -> Iterator[str]:
    """Write the lines that describe one job and its settings, or all."""
    yield "jobs (edge-spark run JOB):"
    for name, summary in SUMMARIES.items():
        if job in (None, name):
            yield f"  {name:10} {summary}"
    for title, jobs in (("every job", ALL), ("windows and readings", WINDOWS), ("alarms and readings", ALARMS)):
        if job is None or job in jobs:
            yield f"\nsettings of {title} (--set KEY=VALUE):"
            for key, meaning in MEANINGS.items():
                if meaning.jobs == jobs:
                    yield describe_setting(key, meaning)
    yield "\nalso --set spark.…=… (options of Spark) and --set kafka.…=… (of every Kafka client); no secrets"


def describe_setting(key: str, meaning: Meaning) -> str:
    """Describe one setting: key and default, what it is, its unit and bounds."""
    bounds = " to ".join(f"{bound:.10g}" for bound in BOUNDS.get(key, ()))
    range_ = f" ({bounds} {meaning.unit})" if bounds else ""
    return f"  {key}={getattr(Settings(), key)}".ljust(34) + f" {meaning.text}{range_}"
