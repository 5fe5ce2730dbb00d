"""PURE: build dead letters, and the settings of their topic.

A dead letter is the payload as it came, with these headers. Does not contain: clients, clocks, files.

| header | meaning |
|---|---|
| `source`; from MQTT `mqtt.topic`, `received_ms`; from files `inode`, `position` | as on every record |
| `dead_letter.reason` | one of the REASON_ names below |
| `dead_letter.detail` | the same as a sentence, at most DETAIL_BYTES_MAX |
| `dead_letter.route` | its route or file; omitted if no route matches |
| `dead_letter.topic` | its intended Kafka topic; omitted if no route matches |
| `dead_letter.payload_bytes` | only if the payload was cut: its full length. The rest is in the loss ledger |

The key is the record's own if it has one, else the MQTT topic; the timestamp is the time of receipt. The model is
Kafka Connect's dead letter queue (KIP-298), whose headers are `__connect.errors.*`.
"""

from __future__ import annotations

from dataclasses import replace

from gateway.records.records import Record

REASON_NO_ROUTE = "no_route"
REASON_TOPIC_NOT_UTF8 = "topic_not_utf8"
REASON_EMPTY_LEVEL = "empty_topic_level"
REASON_NOT_JSON = "not_json"
REASON_TOO_DEEP = "json_too_deep"
REASON_NO_READING = "no_reading"
REASON_TOO_LARGE = "record_too_large"
REASON_INVALID_RECORD = "invalid_record"
REASON_LINE_TOO_LONG = "line_too_long"

DETAIL_BYTES_MAX = 500
PAYLOAD_BYTES_STEPS = (65_536, 1_024, 0)  # a too large dead letter is cut to these lengths, in this order
REASON_HEADER = "dead_letter.reason"
PAYLOAD_BYTES_HEADER = "dead_letter.payload_bytes"

PARTITIONS = 1
# Edge broker: eviction removes them before other topics (priority 5), always with a ledger record
TOPIC_SETTINGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "edge.priority": "4",
    "edge.budget.bytes": str(256 << 20),
}
# Apache Kafka has no eviction and no ledger: the bound is time
KAFKA_TOPIC_SETTINGS = {"cleanup.policy": "delete", "retention.ms": str(30 * 86_400_000)}


def dead_letter(record: Record, topic: str, reason: str, detail: str) -> Record:
    """Return the dead letter of `record` for `topic`, with the reason."""
    own = [(REASON_HEADER, reason), ("dead_letter.detail", detail)]
    own += [("dead_letter.route", record.route), ("dead_letter.topic", record.topic)]
    headers = tuple((name, _encode_bounded(text)) for name, text in own if text)
    return replace(record, topic=topic, headers=record.headers + headers, timestamp_ms=record.received_ms)


def shorten(letter: Record) -> Record | None:
    """Return the dead letter with less of its payload, or None if no payload is left."""
    for payload_bytes in PAYLOAD_BYTES_STEPS:
        if payload_bytes < len(letter.value):
            return cut_to(letter, payload_bytes, whole_bytes(letter))
    return None


def cut_to(letter: Record, payload_bytes: int, whole: int) -> Record:
    """Return the dead letter with at most `payload_bytes` of its payload; a header has the full length, `whole`."""
    headers = tuple(header for header in letter.headers if header[0] != PAYLOAD_BYTES_HEADER)
    return replace(
        letter, value=letter.value[:payload_bytes], headers=(*headers, (PAYLOAD_BYTES_HEADER, b"%d" % whole))
    )


def whole_bytes(letter: Record) -> int:
    """Return the length of the original payload."""
    return int(dict(letter.headers).get(PAYLOAD_BYTES_HEADER, len(letter.value)))


def _encode_bounded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")[:DETAIL_BYTES_MAX]
