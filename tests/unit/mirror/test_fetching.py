from __future__ import annotations

from types import SimpleNamespace

import pytest
from aiokafka import TopicPartition
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest

from edge_broker.errors import ErrorCode
from edge_broker.protocol.record_batch import build_batch
from mirror import fetching
from mirror.fetching import EpochTap, epoch_starts

TP = TopicPartition("readings", 0)
FETCH = FetchRequest(500, 1, 1000, 1, [("readings", [(0, 40, 1000), (1, 7, 1000)])])


def batch(base_offset, leader_epoch):
    return bytes(build_batch([(None, b"x")] * 10, timestamp_ms=1, base_offset=base_offset, leader_epoch=leader_epoch))


class Client:
    """Answers a fetch with what it is told, and keeps what was asked."""

    def __init__(self, *partitions):
        self.partitions, self.asked, self.meanwhile = partitions, [], lambda: None

    async def send(self, node, request, **_options):
        self.asked.append(request.prepare({1: (0, 11), 3: (0, 5)}))
        self.meanwhile()
        return SimpleNamespace(topics=[("readings", list(self.partitions))])


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(fetching, "FENCED_PAUSE_S", 0)


async def test_fetches_carry_the_epochs_and_bring_some_back():
    client = Client((0, 0, 60, batch(40, 2) + batch(50, 2) + batch(60, 3)), (1, 0, 7, b""))
    tap = EpochTap(client)
    tap.set({TP: 3})
    answer = await client.send(1, FETCH)
    assert client.asked[0].topics == [("readings", [(0, 3, 40, -1, 1000), (1, -1, 7, -1, 1000)])]
    assert [partition[0] for partition in answer.topics[0][1]] == [0, 1]
    assert tap.starts == [(TP, (40, 2)), (TP, (60, 3))]
    assert not tap.fenced


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH])
async def test_a_fenced_partition_is_told_and_kept_from_the_consumer(code):
    client = Client((0, code, -1, b""), (1, 0, 17, batch(7, 1)))
    tap = EpochTap(client)
    answer = await client.send(1, FETCH)
    assert [partition[0] for partition in answer.topics[0][1]] == [1]
    assert tap.fenced == {TP}
    tap.set({})
    assert not tap.fenced


async def test_what_was_asked_for_before_the_positions_were_set_anew_is_dropped():
    client = Client((0, 0, 60, batch(40, 2)))
    tap = EpochTap(client)
    tap.set({TP: 2})
    client.meanwhile = lambda: tap.set({TP: 2})
    assert (await client.send(1, FETCH)).topics == []
    assert tap.starts == []


async def test_other_requests_pass_untouched():
    client = Client("as it was")
    EpochTap(client)
    assert (await client.send(1, MetadataRequest([]))).topics == [("readings", ["as it was"])]


def test_a_batch_that_is_cut_off_and_old_ones_are_passed_over():
    whole, old = batch(40, 2), bytearray(batch(30, 1))
    old[16] = 1  # its magic: these bytes are no epoch then
    assert list(epoch_starts(bytes(old) + whole + batch(50, 3)[:10])) == [(40, 2)]
    assert list(epoch_starts(b"")) == []
