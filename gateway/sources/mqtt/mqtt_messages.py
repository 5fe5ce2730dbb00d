"""Read the topic of a paho message, and convert its MQTT properties to Kafka headers.

README lists the headers. The import lets paho read texts that it would refuse, see `_read_text`.
Source: MQTT 5.0, sections 1.5.4 and 3.3.
"""

from __future__ import annotations

from typing import Any

import paho.mqtt.client as paho
import paho.mqtt.properties as paho_properties


def _read_text(buffer: bytes, bytes_max: int) -> tuple[str, int]:
    """Read a property's text and its length with the length field; accept any text that mosquitto accepted."""
    end = 2 + int.from_bytes(buffer[:2], "big")
    if len(buffer) < end or end > bytes_max:
        raise _paho_reads.MalformedPacket("a property's text is longer than its packet")
    return buffer[2:end].decode("utf-8", "backslashreplace"), end


# paho calls U+FEFF malformed, which MQTT 5, section 1.5.4, allows: mosquitto sends such a message again and again, and
# no later message would ever arrive
_paho_reads: Any = paho_properties
_paho_reads.readUTF = _read_text


def topic_of(message: paho.MQTTMessage) -> str:
    """Return the topic; bytes that are no UTF-8, which paho lets through and raises for here, are written as \\xNN."""
    return message.topic if is_utf8(message) else message._topic.decode("utf-8", "backslashreplace")


def is_utf8(message: paho.MQTTMessage) -> bool:
    """Return whether the topic is text."""
    try:
        return message.topic is not None
    except UnicodeDecodeError:
        return False


def headers_of(message: paho.MQTTMessage) -> tuple[tuple[str, bytes], ...]:
    """Return the properties of a message as Kafka headers; README has the table."""
    found = [("mqtt.qos", b"%d" % message.qos)]
    if message.retain:
        found.append(("mqtt.retain", b"1"))
    properties = message.properties
    for name, header in _PROPERTY_HEADERS:
        value = getattr(properties, name, None)
        if value is not None:
            found.append((header, value if isinstance(value, bytes) else _encode(str(value))))
    for name, value in getattr(properties, "UserProperty", ()):
        found.append((f"mqtt.user.{name}", _encode(value)))
    return tuple(found)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


_PROPERTY_HEADERS = (
    ("ContentType", "mqtt.content_type"),
    ("ResponseTopic", "mqtt.response_topic"),
    ("CorrelationData", "mqtt.correlation_data"),
    ("MessageExpiryInterval", "mqtt.message_expiry_s"),
)
