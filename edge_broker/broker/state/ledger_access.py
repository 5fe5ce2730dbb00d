"""Check which clients may produce to `__edge_ledger`, and which records it accepts.

| asked from | answered with |
|---|---|
| with an authorizer: by whom it does not let WRITE there | TOPIC_AUTHORIZATION_FAILED |
| with an authorizer: by whom it names for it (topic_registry.py), from anywhere | what the check of the records says |
| this machine, or an address in `edge.ledger.writers` | what the check of the records says |
| any other address | TOPIC_AUTHORIZATION_FAILED |

| a batch | answered with |
|---|---|
| every record is a ledger record (loss_records.py) | as any other, but after the sync, whatever acks it asks for |
| one of them is not | INVALID_RECORD, which names it; nothing is written |

Does not contain: what is lost (loss_writes.py writes the broker's own losses). Without an authorizer an address is
all that counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.configuration.config import Network
from edge_broker.errors import ErrorCode, ProtocolViolation, Refusal
from edge_broker.protocol.record_batch import check_batch, records_of
from edge_broker.storage.metadata.loss_records import fault_of_record
from edge_broker.thread_checks import runs_in

Networks: TypeAlias = Sequence[Network]


def check_writer(writers: Networks, host: str) -> None:
    """Refuse clients that are neither on this machine nor in `writers`; `host` is an address."""
    import ipaddress  # noqa: PLC0415 - 0.25 MB, which most boards do without

    address = ipaddress.ip_address(host.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback or any(address in network for network in writers):
        return
    raise Refusal(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        f"{LEDGER_TOPIC} may be written from this machine and from the addresses in edge.ledger.writers, "
        f"and {address} is none of them",
    )


@runs_in()
def ledger_refusal(records: memoryview | None, batch_bytes_max: int) -> Refusal | None:
    """Why a batch is not taken into the ledger, None when it is."""
    try:
        check_batch(records, batch_bytes_max)
        assert records is not None
        for record in records_of(records):
            reason = fault_of_record(record.key, record.value)
            if reason:
                return Refusal(
                    ErrorCode.INVALID_RECORD, f"record {record.offset} of the batch is no ledger record: {reason}"
                )
    except Refusal as refusal:
        return refusal.without_frames()
    except ProtocolViolation as violation:
        return Refusal(ErrorCode.INVALID_RECORD, str(violation))
    return None
