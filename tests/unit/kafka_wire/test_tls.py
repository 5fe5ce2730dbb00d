"""TLS towards a broker: whom we believe, and what is told of one that cannot be spoken to."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from drupelet.kafka.security import Security
from edge_broker.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from edge_broker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kafka_wire import apis
from kafka_wire.connection.errors import BrokerRefused, ConnectionLost
from tests.support.certificates import Authority
from tests.support.scripted_wire import opened, playing, until
from tests.support.waiting import CALL_S

LARGE = bytes(range(256)) * 12_000


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"), "site CA")


def by_tls(authority):
    return Security("SSL", ca_file=str(authority.certificate))


def shown(authority, name, alternatives, days=30):
    """What a server shows: a certificate for these names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.sign(name, alternatives, days=days))
    return context


async def test_large_requests_and_answers_go_both_ways(authority):
    async def play(peer):
        await peer.begin()
        for _ in range(3):
            request = await peer.request()
            (data,) = request.message.topic_data[0].partition_data
            assert bytes(data.records) == LARGE
            peer.answer(request, ProduceResponse())
            partition = PartitionData(records=memoryview(LARGE))
            answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
            peer.answer(await peer.request(), answer)
        await peer.request()

    data = PartitionProduceData(index=0, records=memoryview(LARGE))
    produce = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=[data])])
    context = shown(authority, "here", "IP:127.0.0.1")
    async with playing(play, tls=context) as port:
        connection = await opened(port, by_tls(authority))
        answers = []
        for _ in range(3):
            connection.send(apis.PRODUCE, produce, timeout_s=CALL_S)
            answers.append(connection.send(apis.FETCH, FetchRequest(), timeout_s=CALL_S))
        assert connection.unsent_bytes > len(LARGE)
        for one in answers:
            assert bytes((await one).responses[0].partitions[0].records) == LARGE
        await until(lambda: connection.unacknowledged_bytes == 0, "everything has been acknowledged")
        connection.close()


SHOWN = {
    "of another name": ("IP:127.0.0.3", 30, "has a certificate without this address"),
    "that ended": ("IP:127.0.0.1", -1, "has a certificate that ended on"),
}


@pytest.mark.parametrize("kind", SHOWN)
async def test_a_certificate_that_is_not_believed(authority, kind):
    alternatives, days, says = SHOWN[kind]

    async def play(peer):
        raise AssertionError("a request was sent")

    context = shown(authority, kind.replace(" ", "-"), alternatives, days)
    async with playing(play, tls=context) as port:
        with pytest.raises(BrokerRefused, match=f"127.0.0.1:{port} {says}"):
            await opened(port, by_tls(authority))


@pytest.mark.parametrize(("content", "says"), [(b"220 mail\r\n", "speaks no TLS on that port"), (b"", "hung up")])
async def test_a_peer_without_tls(authority, content, says):
    async def play(peer):
        await peer.reader.read(1)
        peer.write(content)

    async with playing(play) as port:
        with pytest.raises(BrokerRefused, match=says):
            await opened(port, by_tls(authority))


async def test_a_peer_that_is_silent_in_the_handshake(authority):
    async def play(peer):
        await asyncio.Event().wait()

    async with playing(play) as port:
        with pytest.raises(ConnectionLost, match="was reached, but not ready in") as lost:
            await opened(port, by_tls(authority), timeout_s=0.3)
        assert not isinstance(lost.value, BrokerRefused)
