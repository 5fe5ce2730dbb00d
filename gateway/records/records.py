"""PURE: events between a source and the publisher (`Record`), and ledger records for lost events (`Loss`).

In the ledger record (drupelet/ledger.py) partition and offsets are null, as the gateway loses events before they have
any. The cause is one of the CAUSE_ names below; the node is `gateway@<host>`. The topic may be `mqtt:<topic>` for
events that never reached Kafka. Does not contain: clients, clocks, files.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

from drupelet.host.boot_clock import BootMoment
from drupelet.ledger import LEDGER_TOPIC, encode
from drupelet.printable import printable
from gateway.times.timestamps import RECEIVED

CAUSE_TOO_LARGE = "record_too_large"
CAUSE_QUEUE_DROPPED = "mqtt_queue_dropped"
CAUSE_SOURCE_GONE = "source_offset_out_of_range"

TIME_UNIT_HEADER = "time_unit"  # of routes with a timestamp_field: the unit or form of the device's time
REASON_HEADER = "reason"  # of a ledger record, in addition to its JSON
NO_TIME = "no time"  # `unread` of a reading without a value in the route's field
MARK_BYTES_MAX = 128  # of the headers of a boot moment
RECORD_OVERHEAD_BYTES = 256  # memory of a pending record in addition to key, value and headers; measured, rounded up


@dataclass(frozen=True, slots=True)
class Record:
    """One event for a Kafka topic; the ledger record names `origin` if the event is lost.

    `route` is the MQTT route's pattern, the file's path, or "board". `time_unit` is the unit or form of the device's
    time, see `timestamps`; `overlooked` names a field that looks like the device's time and is not the route's.
    `unread` is the reason why the value of the route's field is no time; NO_TIME if there is no value. `moment` is when
    the timestamp was taken, if the source knows it better than the time of `offer`; `foreign_clock`: by another
    machine. `boot` is the moment that the record has as its mark, see `boot_times`.
    """

    source: str
    topic: str
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int
    received_ms: int
    origin: str
    route: str = ""
    time_unit: str = RECEIVED
    overlooked: str = ""
    unread: str = ""
    moment: BootMoment | None = None
    foreign_clock: bool = False
    boot: BootMoment | None = None

    @property
    def sent_headers(self) -> tuple[tuple[str, bytes], ...]:
        """The headers and the mark."""
        return self.headers if self.boot is None else (*self.headers, *self.boot.headers())

    @property
    def payload_bytes(self) -> int:
        """Bytes of key, value and headers; without the mark, which counts in no configured bound."""
        return len(self.key) + len(self.value) + _bytes(self.headers)

    @property
    def sent_bytes(self) -> int:
        """Bytes of key, value, headers and mark."""
        return self.payload_bytes + (0 if self.boot is None else _bytes(self.boot.headers()))

    @property
    def memory_bytes(self) -> int:
        """Approximate memory of the waiting record, in bytes."""
        return self.sent_bytes + RECORD_OVERHEAD_BYTES

    def at_receipt(self) -> Record:
        """Return the record with the time of receipt, for a broker that refuses the device's time."""
        unit = (TIME_UNIT_HEADER, RECEIVED.encode())
        headers = tuple(unit if header[0] == TIME_UNIT_HEADER else header for header in self.headers)
        return replace(self, timestamp_ms=self.received_ms, time_unit=RECEIVED, headers=headers)


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss as the ledger has it; `records` or `bytes` None is unknown."""

    id: str
    cause: str
    topic: str
    records: int | None
    bytes: int | None
    time_ms: int
    partition: None = None  # the gateway loses events before they have a partition
    first_offset: None = None
    end_offset: None = None
    machine_id: str | None = None  # of journal entries, and their sequence numbers
    first_seqnum: int | None = None
    last_seqnum: int | None = None

    def to_record(self, node: str, reason: str = "") -> Record:
        """Return the ledger record that reports the loss, noticed by `node`; `reason` goes into a header."""
        names = ("machine_id", "first_seqnum", "last_seqnum")
        more = {} if self.machine_id is None else {name: getattr(self, name) for name in names}
        key, value = encode(self, self.time_ms, node, **more)
        return Record(
            source="ledger",
            topic=LEDGER_TOPIC,
            key=key,
            value=value,
            headers=((REASON_HEADER, printable(reason).encode()),) if reason else (),
            timestamp_ms=self.time_ms,
            received_ms=self.time_ms,
            origin=self.topic,
        )


def _bytes(headers: tuple[tuple[str, bytes], ...]) -> int:
    return sum(len(name) + len(value) for name, value in headers)


def new_loss_id() -> str:
    """Return a random id for a loss; the caller uses the same id for every retry."""
    return str(uuid.uuid4())


def loss_id_for(*parts: object) -> str:
    """Return an id derived from the parts, so that a loss found again after a restart keeps its id."""
    text = "|".join(map(str, parts)).encode("utf-8", "backslashreplace").decode()  # a file's name may be no UTF-8
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"drupelet:{text}"))
