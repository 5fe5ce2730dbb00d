"""`__edge_ledger` over the wire: who may write there, and that only ledger records get in."""

from __future__ import annotations

import gzip
import json
import struct
from typing import Any

import pytest

from drupelet.errors import ConfigurationError
from drupelet.ledger import LEDGER_TOPIC
from edge_broker.broker.context import Session
from edge_broker.configuration.config import BrokerConfig
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import PRODUCE
from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.record_batch import CHECKED_POSITION, CRC_POSITION, build_batch
from edge_broker.storage.metadata.loss_records import CAUSES, Loss, LossContext, encode_loss, fault_of_record
from edge_broker.testing.client import Client
from edge_broker.testing.clock import NOW_MS
from edge_broker.testing.site import Site
from gateway.records.records import Loss as GatewayLoss
from mirror.ledger.losses import encode as encode_mirror
from mirror.ledger.losses import loss as mirror_loss
from tests.support.storage import batch, ledger_record
from tests.unit.broker.test_produce import code, part, produce

WRITERS = "10.0.0.7, 10.0.1.0/24,fd00::7"


def ledger_batch(
    *records: tuple[bytes | None, bytes | None], producer: tuple[int, int, int] = (-1, -1, -1)
) -> memoryview:
    made = build_batch(
        list(records) or [ledger_record()],
        timestamp_ms=NOW_MS,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
    )
    return memoryview(bytearray(made))


def zipped(plain: memoryview) -> memoryview:
    """The same batch, compressed with gzip."""
    whole = bytearray(plain[:61]) + gzip.compress(bytes(plain[61:]))
    struct.pack_into(">i", whole, 8, len(whole) - 12)
    whole[22] |= 1
    whole[CRC_POSITION:CHECKED_POSITION] = crc32c(memoryview(whole)[CHECKED_POSITION:]).to_bytes(4, "big")
    return memoryview(whole)


def client_from(site: Site, address: str) -> Client:
    client = site.client()
    client.connection.session = Session(f"{address}:4711")
    return client


def asked(client: Client, records: memoryview, acks: int = -1) -> Any:
    return part(client.ask(PRODUCE, produce((LEDGER_TOPIC, 0, records), acks=acks)))


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.7", True),
        ("::ffff:10.0.0.7", True),
        ("10.0.1.200", True),
        ("fd00::7", True),
        ("fd00::7%eth0", True),
        ("10.0.0.8", False),
        ("::ffff:10.0.0.8", False),
        ("10.0.2.1", False),
        ("fd00::8", False),
    ],
)
def test_this_machine_and_the_writers_may_write_and_nobody_else(address: str, allowed: bool) -> None:
    site = Site({"edge.ledger.writers": WRITERS})
    client = client_from(site, address)
    answer = asked(client, ledger_batch())
    assert answer.error_code == (0 if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert site.store.topics[LEDGER_TOPIC].partitions[0].log_end_offset == allowed
    assert allowed or "edge.ledger.writers" in answer.error_message


def test_without_the_key_only_this_machine_may_write_and_neighbours_in_the_request_do_not_pay() -> None:
    site = Site()
    site.topic()
    client = client_from(site, "10.0.0.7")
    answer = client.ask(PRODUCE, produce((LEDGER_TOPIC, 0, ledger_batch()), ("t", 0, batch(b"a"))))
    assert [code(answer, at) for at in (0, 1)] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NONE]
    assert asked(site.client(), ledger_batch()).error_code == 0


@pytest.mark.parametrize("word", ["10.0.0.300", "gateway.local", "10.0.0.0/40"])
def test_what_is_no_address_and_no_network_is_a_sentence_at_the_start(word: str) -> None:
    with pytest.raises(ConfigurationError, match=r"edge\.ledger\.writers names .* no address and no network"):
        BrokerConfig({"edge.ledger.writers": f"10.0.0.1,{word}"})


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_ledger_record_is_answered_after_the_sync_whatever_acks(acks: int) -> None:
    site = Site({"log.flush.interval.ms": 86_400_000})
    assert asked(site.client(), ledger_batch(), acks).error_code == 0
    log = site.store.topics[LEDGER_TOPIC].partitions[0]
    assert (log.high_watermark, log.marked) == (1, False)


def test_what_gateway_mirror_and_broker_write_is_taken_also_compressed_and_idempotent() -> None:
    site = Site()
    gateway = GatewayLoss("an id", "mqtt_queue_dropped", "mqtt:t", 3, None, NOW_MS).to_record("gateway@board")
    mirror = encode_mirror(
        mirror_loss("source_offset_jump", "t", 3, 5, 9, records=4, time_ms=NOW_MS, node="edge-mirror@board")
    )
    broker = encode_loss(Loss("evicted", "t", "id", 0, 1, None, None, None), LossContext(NOW_MS, "1", True, "boot"))
    records = ledger_batch((gateway.key, gateway.value), mirror, broker)
    client = site.client()
    assert asked(client, records).base_offset == 0
    assert asked(client, zipped(records)).base_offset == 3
    for sequence, offset in ((0, 6), (0, 6), (1, 7)):
        assert asked(client, zipped(ledger_batch(producer=(7, 0, sequence)))).base_offset == offset


def test_requests_that_are_in_flight_together_keep_their_order() -> None:
    site = Site()
    client = site.client()
    for sequence in range(5):
        client.send(PRODUCE, produce((LEDGER_TOPIC, 0, ledger_batch(producer=(7, 0, sequence)))))
    site.run_until_idle()
    assert [part(answer).base_offset for answer in client.answers()] == [0, 1, 2, 3, 4]


NOT_LEDGER: dict[str, tuple[bytes | None, bytes | None]] = {
    "no JSON": (b"k", b"hello"),
    "no value": (b"k", None),
    "a list": (b"k", b"[1]"),
    "a deep list": (b"k", b"[" * 100_000),
    "no UTF-8": (b"k", b'{"id":"\xff"}'),
    "a great number": (b"queue:t:1", ledger_record()[1].replace(b'"records": 3', b'"records": ' + b"9" * 5000)),
    "another version": ledger_record(version=2),
    "no version": ledger_record(version=None),
    "no id": (b"", ledger_record(id="")[1]),
    "another key": (b"another", ledger_record()[1]),
    "no key": (None, ledger_record()[1]),
    "half a surrogate": (b"queue:t:1", ledger_record()[1].replace(b"gateway@", b"\\ud800")),
    "a cause that is a number": ledger_record(cause=3),
    "no topic": ledger_record(topic=None),
    "a text as an offset": ledger_record(first_offset="3"),
    "true as an offset": ledger_record(first_offset=True),
    "an offset below 0": ledger_record(first_offset=-1),
    "a broken offset": ledger_record(first_offset=1.5),
    "more than an offset holds": ledger_record(last_offset=1 << 63),
    "no time": ledger_record(time_ms=None),
    "no node": ledger_record(node=None),
    "the broker's cause without an offset": ledger_record(cause=CAUSES[0]),
}


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("name", NOT_LEDGER)
def test_what_is_no_ledger_record_is_refused_with_its_whole_batch(name: str, compressed: bool) -> None:
    site = Site()
    client = site.client()
    assert fault_of_record(*NOT_LEDGER[name])
    records = ledger_batch(ledger_record(), NOT_LEDGER[name], producer=(7, 0, 0))
    answer = asked(client, zipped(records) if compressed else records)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert "record 1 of the batch is no ledger record" in answer.error_message
    assert site.store.topics[LEDGER_TOPIC].partitions[0].log_end_offset == 0
    assert asked(client, ledger_batch(producer=(7, 0, 0))).base_offset == 0, "the refused batch used a sequence"


def test_a_batch_whose_inside_is_a_lie_is_refused() -> None:
    records = ledger_batch()
    records[60] = 9  # as many records as are not there
    records[CRC_POSITION:CHECKED_POSITION] = crc32c(records[CHECKED_POSITION:]).to_bytes(4, "big")
    answer = asked(Site().client(), records)
    assert answer.error_code == ErrorCode.INVALID_RECORD


def test_a_batch_that_is_no_batch_and_a_request_without_one_are_refused() -> None:
    site = Site()
    flipped = ledger_batch()
    flipped[70] ^= 1
    assert asked(site.client(), flipped).error_code == ErrorCode.CORRUPT_MESSAGE
    answer = site.client().ask(PRODUCE, produce((LEDGER_TOPIC, 0, None)))
    assert code(answer) is ErrorCode.INVALID_RECORD


def test_acks_0_that_may_not_write_closes_the_connection() -> None:
    site = Site()
    client = client_from(site, "10.0.0.7")
    client.send(PRODUCE, produce((LEDGER_TOPIC, 0, ledger_batch()), acks=0))
    site.run_until_idle()
    assert client.transport.closed


def test_a_record_of_ours_that_carries_more_fields_is_taken() -> None:
    key, value = ledger_record(clock="trusted", boot_id="b", first_timestamp=None)
    assert json.loads(value)["clock"] == "trusted"
    assert fault_of_record(key, value) == ""
