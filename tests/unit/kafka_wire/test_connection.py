"""Requests under way at once: matched in order, bounded in time, and each told when the connection ends."""

from __future__ import annotations

import asyncio
import random
import socket

import pytest

from drupelet.kafka.security import Security
from drupelet.tls.secret_files import Secret
from edge_broker.protocol.messages.api_versions import ApiVersionsResponse
from edge_broker.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from edge_broker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from edge_broker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from edge_broker.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from edge_broker.protocol.messages.sasl_handshake import SaslHandshakeResponse
from kafka_wire import apis
from kafka_wire.connection.connection import SILENT_S_MAX, Connection
from kafka_wire.connection.errors import BrokerRefused, ConnectionLost, VersionUnknown
from kafka_wire.connection.tcp_connect import QUIET_S
from tests.support.ports import free_port
from tests.support.scripted_wire import answer_to, framed, opened, playing, until
from tests.support.waiting import CALL_S

INIT = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
FETCH = FetchRequest()


def initialised(number):
    return InitProducerIdResponse(producer_id=number)


def fetched(content):
    partition = PartitionData(records=memoryview(content))
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])


def records_of(answer):
    return bytes(answer.responses[0].partitions[0].records)


async def told(connection, *, asked=apis.INIT_PRODUCER_ID, request=INIT, timeout_s=CALL_S):
    """What a request's failure says."""
    with pytest.raises(ConnectionLost) as lost:
        await connection.ask(asked, request, timeout_s=timeout_s)
    assert connection.is_closed
    assert connection.unanswered_count == 0
    assert str(connection.end_error) == str(lost.value)
    return str(lost.value)


async def test_requests_are_written_at_once_and_answered_in_order():
    async def play(peer):
        await peer.begin()
        requests = [await peer.request() for _ in range(5)]
        for number, request in enumerate(requests):
            peer.answer(request, initialised(number))
        await peer.request()

    async with playing(play) as port:
        connection = await opened(port)
        assert connection.place == f"127.0.0.1:{port}"
        under_way = [connection.send(apis.INIT_PRODUCER_ID, INIT, timeout_s=CALL_S) for _ in range(5)]
        assert connection.unanswered_count == 5
        assert [(await one).producer_id for one in under_way] == list(range(5))
        assert connection.unanswered_count == connection.unsent_bytes == 0
        assert connection.bytes_in > 5 * 16
        assert connection.heard_at <= asyncio.get_running_loop().time()
        connection.close()


@pytest.fixture
def algorithms(monkeypatch):
    """What the kernel is asked for, whose own is the usual one."""
    asked = []
    monkeypatch.setattr(
        "kafka_wire.connection.connection.set_congestion_control", lambda _, name: not asked.append(name)
    )
    monkeypatch.setattr("kafka_wire.connection.connection.congestion_control", lambda _: "usual")
    return asked


async def test_a_link_that_loses_is_sent_through_until_it_loses_no_more(algorithms):
    async def play(peer):
        await peer.begin()
        await peer.request()

    async with playing(play) as port:
        connection = await opened(port)
        for is_lossy in (False, True, True, False, False, True):
            assert connection.send_through_loss(is_lossy=is_lossy) is is_lossy
        connection.close()
        connection.send_through_loss(is_lossy=False)
    assert algorithms == ["bbr", "usual", "bbr"]


async def test_what_goes_through_losses_is_begun_anew_by_way_of_the_usual_algorithm(algorithms):
    async def play(peer):
        await peer.begin()
        await peer.request()

    async with playing(play) as port:
        connection = await opened(port)
        connection.fill_anew()
        assert algorithms == []
        connection.send_through_loss(is_lossy=True)
        connection.fill_anew()
        connection.close()
        connection.fill_anew()
    assert algorithms == ["bbr", "usual", "bbr"]


async def test_how_a_link_is_filled_is_asked_while_it_is_sent_through_and_a_rate_is_told_once(monkeypatch):
    told = []
    monkeypatch.setattr("kafka_wire.connection.connection.set_congestion_control", lambda _, name: True)
    monkeypatch.setattr("kafka_wire.connection.connection.read_link_fill", lambda _: "as told")
    monkeypatch.setattr("kafka_wire.connection.connection.set_rate_max", lambda _, bytes_s: told.append(bytes_s))

    async def play(peer):
        await peer.begin()
        await peer.request()

    async with playing(play) as port:
        connection = await opened(port)
        seen = []
        for is_lossy in (False, True, False):
            connection.send_through_loss(is_lossy=is_lossy)
            seen.append(connection.link_fill())
        assert seen == [None, "as told", None]
        for bytes_s in (None, 1000, 1000, 900, None, None):
            connection.limit_rate(bytes_s)
        connection.close()
        connection.limit_rate(1000)
    assert told == [1000, 900, None]


async def test_an_answer_that_nobody_waits_for_any_more_is_passed_over():
    async def play(peer):
        await peer.begin()
        first, second = await peer.request(), await peer.request()
        peer.write(framed(first.id.to_bytes(4, "big") + b"\0 not even readable"))
        peer.answer(second, initialised(2))
        await peer.request()

    async with playing(play) as port:
        connection = await opened(port)
        first = connection.send(apis.INIT_PRODUCER_ID, INIT, timeout_s=CALL_S)
        second = connection.send(apis.INIT_PRODUCER_ID, INIT, timeout_s=CALL_S)
        first.cancel()
        assert (await second).producer_id == 2
        connection.close()


@pytest.mark.parametrize("piece", [1, 3, 7, 4096, 1 << 20])
async def test_answers_come_in_pieces_of_any_size(piece):
    contents = [
        bytes([number]) * size for number, size in enumerate((0, 10, 70_000, 5, 3, 1_500_000 if piece > 7 else 9))
    ]

    async def play(peer):
        await peer.begin()
        requests = [await peer.request() for _ in contents]
        answers = [fetched(content) for content in contents]
        stream = b"".join(answer_to(request, answer) for request, answer in zip(requests, answers, strict=True))
        for at in range(0, len(stream), piece):
            peer.write(stream[at : at + piece])
            if at < 200 or piece > 7 or at % 5000 < piece:
                await peer.writer.drain()
                await asyncio.sleep(0)
        await peer.request()

    async with playing(play) as port:
        connection = await opened(port)
        under_way = [connection.send(apis.FETCH, FETCH, timeout_s=CALL_S) for _ in contents]
        assert [records_of(await one) for one in under_way] == contents
        connection.close()


async def test_records_are_written_as_they_are():
    batches = [bytes([number]) * size for number, size in enumerate((100, 20_000, 3_000_000))]

    async def play(peer):
        await peer.begin()
        for batch in batches:
            request = await peer.request()
            (data,) = request.message.topic_data[0].partition_data
            assert bytes(data.records) == batch
            peer.answer(request, ProduceResponse())
        await peer.request()

    async with playing(play) as port:
        connection = await opened(port)
        under_way = []
        for batch in batches:
            data = PartitionProduceData(index=0, records=memoryview(batch))
            asked = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=[data])])
            under_way.append(connection.send(apis.PRODUCE, asked, timeout_s=CALL_S))
        assert 0 < connection.unsent_bytes <= connection.unacknowledged_bytes
        await asyncio.gather(*under_way)
        assert connection.unsent_bytes == connection.unacknowledged_bytes == 0
        assert connection.bytes_out > sum(map(len, batches))
        connection.close()


async def test_the_newest_version_of_both_is_spoken():
    async def play(peer):
        await peer.begin(FETCH=(0, 5), PRODUCE=(13, 99), METADATA=(0, 3), LIST_OFFSETS=(0, -1))
        request = await peer.request()
        assert request.version == 5
        peer.answer(request, FetchResponse())
        await peer.request()

    async with playing(play) as port:
        connection = await opened(port)
        await connection.ask(apis.FETCH, FETCH, timeout_s=CALL_S)
        assert connection.version(apis.FETCH) == 5
        for asked, theirs in ((apis.PRODUCE, "versions 13 to 99"), (apis.METADATA, "versions 0 to 3")):
            with pytest.raises(VersionUnknown, match=theirs):
                connection.version(asked)
        with pytest.raises(VersionUnknown, match="serves none of ListOffsets"):
            connection.send(apis.LIST_OFFSETS, asked.api.request(), timeout_s=CALL_S)
        connection.close()


LIES = {
    "a size below 4": (lambda _: b"\0\0\0\3abc", "does not speak the Kafka protocol"),
    "a negative size": (lambda _: b"\xff\xff\xff\xff", "does not speak the Kafka protocol"),
    "a size beyond all": (lambda _: b"\x08\0\0\1", "does not speak the Kafka protocol"),
    "TLS's alert": (lambda _: b"\x15\x03\x03\0\x02\x02\x28", "answers in TLS on that port"),
    "HTTP": (lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak the Kafka protocol"),
    "another request's answer": (
        lambda request: answer_to(request._replace(id=request.id + 1), initialised(1)),
        "sent the response to another request",
    ),
    "no body": (lambda request: framed(request.id.to_bytes(4, "big")), "an answer that cannot be read"),
    "half a body": (lambda request: framed(answer_to(request, initialised(1))[4:-3]), "an answer that cannot be read"),
    "tags without end": (
        lambda request: framed(request.id.to_bytes(4, "big") + b"\xff\xff\xff\xff\x0f"),
        "an answer that cannot be read",
    ),
    "half an answer, then the end": (
        lambda request: answer_to(request, initialised(1))[:-3],
        "hung up without an answer",
    ),
    "the start of 128 MiB, then the end": (lambda _: b"\x08\0\0\0abcd", "hung up without an answer"),
    "the end": (lambda _: b"", "hung up without an answer"),
}


@pytest.mark.parametrize("lie", LIES)
async def test_what_is_no_answer_ends_the_connection_with_a_sentence(lie):
    content, says = LIES[lie]

    async def play(peer):
        await peer.begin()
        peer.write(content(await peer.request()))

    async with playing(play) as port:
        connection = await opened(port)
        first = connection.send(apis.INIT_PRODUCER_ID, INIT, timeout_s=CALL_S)
        second = connection.send(apis.INIT_PRODUCER_ID, INIT, timeout_s=CALL_S)
        said = await told(connection)
        assert said.startswith(f"127.0.0.1:{port} ")
        assert says in said
        for one in (first, second):
            with pytest.raises(ConnectionLost, match=says):
                await one
        assert str(await connection.wait_closed()) == said
        assert connection.unsent_bytes == connection.unacknowledged_bytes == 0


@pytest.mark.parametrize("seed", range(4))
async def test_wrong_bytes_anywhere(seed):
    """One answer has bytes changed, put in or cut off: it is read, or the connection ends, and no more."""
    chance = random.Random(seed)

    async def play(peer):
        await peer.begin()
        for number in range(3):
            content = bytearray(answer_to(await peer.request(), fetched(bytes(chance.randrange(200)))))
            if number == 1:
                at = chance.randrange(len(content))
                size = chance.choice((0, 1, len(content)))
                content[at : at + size] = bytes(chance.choices((0, 1, 127, 128, 255), k=chance.randrange(5)))
            peer.write(bytes(content))

    outcomes = set()
    async with playing(play) as port:
        for _ in range(60):
            connection = await opened(port)
            under_way = [connection.send(apis.FETCH, FETCH, timeout_s=CALL_S) for _ in range(3)]
            ended = await asyncio.gather(*under_way, return_exceptions=True)
            assert all(isinstance(one, (FetchResponse, ConnectionLost)) for one in ended)
            assert isinstance(ended[0], FetchResponse)
            outcomes.add(isinstance(ended[2], FetchResponse))
            connection.close()
    assert outcomes == {True, False}


async def test_an_answer_to_nothing_ends_the_connection():
    async def play(peer):
        await peer.begin()
        request = await peer.request()
        peer.write(answer_to(request, initialised(1)) * 2)
        await peer.request()

    async with playing(play) as port:
        connection = await opened(port)
        assert (await connection.ask(apis.INIT_PRODUCER_ID, INIT, timeout_s=CALL_S)).producer_id == 1
        assert "sent a response without a request" in str(await connection.wait_closed())


async def test_answers_out_of_order_end_the_connection():
    async def play(peer):
        await peer.begin()
        first, second = await peer.request(), await peer.request()
        peer.answer(second, initialised(2))
        peer.answer(first, initialised(1))
        await peer.request()

    async with playing(play) as port:
        connection = await opened(port)
        under_way = [connection.send(apis.INIT_PRODUCER_ID, INIT, timeout_s=CALL_S) for _ in range(2)]
        for one in under_way:
            with pytest.raises(ConnectionLost, match="to another request"):
                await one


async def test_a_broker_that_closes_after_an_answer_closed_the_connection():
    async def play(peer):
        await peer.begin()
        peer.answer(await peer.request(), initialised(1))

    async with playing(play) as port:
        connection = await opened(port)
        await connection.ask(apis.INIT_PRODUCER_ID, INIT, timeout_s=CALL_S)
        assert await told(connection) == f"127.0.0.1:{port} closed the connection"


async def test_silence_ends_the_connection_for_all_when_the_first_is_late():
    async def play(peer):
        await peer.begin()
        while True:
            await peer.request()

    async with playing(play) as port:
        connection = await opened(port)
        patient = connection.send(apis.FETCH, FETCH, timeout_s=CALL_S)
        assert "did not answer InitProducerId in time" in await told(connection, timeout_s=0.05)
        with pytest.raises(ConnectionLost, match="did not answer InitProducerId in time"):
            await patient


def told_to_kernel(connection):
    """After how many silent seconds it probes, and gives up."""
    asked = (socket.TCP_KEEPIDLE, socket.TCP_USER_TIMEOUT)
    idle_s, silence_ms = (connection._socket.getsockopt(socket.IPPROTO_TCP, option) for option in asked)
    return idle_s, silence_ms / 1000


async def test_what_is_answered_in_time_ends_nothing():
    async def play(peer):
        await peer.begin()
        for number in range(3):
            peer.answer(await peer.request(), initialised(number))
        await peer.request()

    async with playing(play) as port:
        connection = await opened(port)
        for _ in range(2):
            await connection.ask(apis.INIT_PRODUCER_ID, INIT, timeout_s=10 * CALL_S)
        await until(lambda: connection._is_quiet, "nothing is under way, long before the times of both have passed")
        assert told_to_kernel(connection) == (QUIET_S, QUIET_S + SILENT_S_MAX)
        await connection.ask(apis.INIT_PRODUCER_ID, INIT, timeout_s=CALL_S)
        assert told_to_kernel(connection) == (SILENT_S_MAX / 2, SILENT_S_MAX)
        connection.close()


async def test_closing_loses_what_is_under_way_and_what_is_sent_afterwards():
    async def play(peer):
        await peer.begin()
        await peer.request()
        assert await peer.reader.read() == b""

    async with playing(play) as port:
        connection = await opened(port)
        under_way = connection.send(apis.INIT_PRODUCER_ID, INIT, timeout_s=CALL_S)
        connection.close()
        connection.close()
        with pytest.raises(ConnectionLost, match="was closed here"):
            await under_way
        assert "was closed here" in await told(connection)


class TestOpening:
    async def test_a_closed_port_is_refused(self):
        with pytest.raises(BrokerRefused, match="refuses the connection: nothing listens there"):
            await opened(free_port())

    async def test_a_silent_broker_is_given_up(self):
        async def play(peer):
            await peer.request()
            await peer.request()

        async with playing(play) as port:
            with pytest.raises(ConnectionLost, match="was reached, but not ready in") as lost:
                await opened(port, timeout_s=0.2)
            assert not isinstance(lost.value, BrokerRefused)

    @pytest.mark.parametrize("content", [b"SSH-2.0-OpenSSH_9.6\r\n", b"", b"\0\0\0\4\0\0\0\7"])
    async def test_another_service_is_told(self, content):
        async def play(peer):
            await peer.request()
            peer.write(content)

        async with playing(play) as port:
            with pytest.raises(ConnectionLost, match=f"127.0.0.1:{port} "):
                await opened(port)

    async def test_a_name_that_nobody_has(self):
        with pytest.raises(ConnectionLost, match="has a name that is not found"):
            await open_at("no-such-host.invalid")

    async def test_a_name_that_nobody_may_have(self):
        with pytest.raises(ConnectionLost, match="has a name that is not found"):
            await open_at("a" * 70 + ".example")


async def greet(peer):
    """Play a broker that says what it serves, and no more."""
    await peer.begin()
    await peer.request()


class TestKnownBrokers:
    """One that has told what it serves is asked at once, from its next connection on, what there is to ask."""

    async def again(self, play, security=None):
        """Make a second connection to a broker that plays another part then, and ask it; what that came to know."""
        parts = iter((greet, play))

        async def begin(peer):
            await next(parts)(peer)

        async with playing(begin) as port:
            known = {}
            (await opened(port, known=known)).close()
            connection = await opened(port, security, known=known)
            try:
                answer = await connection.ask(apis.INIT_PRODUCER_ID, INIT, timeout_s=CALL_S)
                return answer.producer_id, connection, known.get(connection.place)
            except ConnectionLost as lost:
                return lost, connection, known.get(connection.place)
            finally:
                connection.close()

    @pytest.mark.parametrize("versions", [{}, {"INIT_PRODUCER_ID": (0, 99)}, {"FETCH": (4, 5)}])
    async def test_its_answer_is_not_waited_for(self, versions):
        async def play(peer):
            asked, request = await peer.request(), await peer.request()
            peer.serve(asked, **versions)
            peer.answer(request, initialised(7))
            await peer.request()

        found, connection, known = await self.again(play)
        assert found == 7
        assert [known[getattr(apis, name).api.key] for name in versions] == list(versions.values())
        assert connection.version(apis.FETCH) == versions.get("FETCH", (0, apis.FETCH.api.max_version))[1]

    @pytest.mark.parametrize("versions", [(0, -1), (0, 1), (90, 99)])
    async def test_one_that_serves_no_more_what_it_was_asked_by_is_asked_anew(self, versions):
        async def play(peer):
            peer.serve(await peer.request(), INIT_PRODUCER_ID=versions)
            await peer.request()
            await peer.request()

        lost, _, known = await self.again(play)
        assert "serves no more the versions that it served before" in str(lost)
        assert not isinstance(lost, BrokerRefused), "the next connection is made at once"
        assert known[apis.INIT_PRODUCER_ID.api.key] == versions

    @pytest.mark.parametrize("content", [b"", b"SSH-2.0-OpenSSH_9.6\r\n"])
    async def test_one_that_does_not_answer_is_waited_for_by_the_next(self, content):
        async def play(peer):
            await peer.request()
            peer.write(content)

        lost, _, known = await self.again(play)
        assert isinstance(lost, BrokerRefused)
        assert known is None

    async def test_one_that_refuses_what_it_serves_is_refused(self):
        async def play(peer):
            peer.answer(await peer.request(), ApiVersionsResponse(error_code=29))
            await peer.request()
            await peer.request()

        lost, _, _ = await self.again(play)
        assert isinstance(lost, BrokerRefused)
        assert "does not tell what it serves: TOPIC_AUTHORIZATION_FAILED" in str(lost)

    async def test_one_that_wants_a_log_in_hangs_up_behind_its_versions(self):
        async def play(peer):
            await peer.begin()
            await peer.request()

        lost, _, _ = await self.again(play)
        assert isinstance(lost, BrokerRefused), "so that it is tried ever more rarely"

    async def test_who_logs_in_waits_for_what_it_has_to_wait_for_anyway(self):
        async def play(peer):
            asked = await peer.request()
            handshake = await peer.request()
            assert handshake.key == apis.SASL_HANDSHAKE.api.key
            peer.serve(asked)
            peer.answer(handshake, SaslHandshakeResponse(mechanisms=["PLAIN"]))
            peer.answer(await peer.request(), SaslAuthenticateResponse())
            peer.answer(await peer.request(), initialised(7))
            await peer.request()

        found, _, _ = await self.again(play, by_plain())
        assert found == 7


async def open_at(host):
    await Connection.open(Security(), host, 9092, "unit", timeout_s=CALL_S)


def by_plain():
    return Security("SASL_PLAINTEXT", mechanism="PLAIN", username="u", password=Secret(lambda: "p"))


async def log_in(peer, lifetime_ms=0, error=0):
    """Answer a log-in by PLAIN."""
    peer.answer(await peer.request(), SaslHandshakeResponse(mechanisms=["PLAIN"]))
    request = await peer.request()
    assert request.message.auth_bytes == b"\0u\0p"
    message = "bad credentials" if error else None
    peer.answer(
        request, SaslAuthenticateResponse(error_code=error, error_message=message, session_lifetime_ms=lifetime_ms)
    )


class TestLogIns:
    async def test_what_is_sent_while_it_logs_in_again_waits_and_comes_behind_it(self):
        again = asyncio.Event()

        async def play(peer):
            await peer.begin()
            await log_in(peer, lifetime_ms=1500)
            first = await peer.request()
            handshake = await peer.request()
            assert handshake.key == apis.SASL_HANDSHAKE.api.key
            again.set()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(peer.reader.readexactly(1), 0.2)
            peer.answer(first, initialised(1))
            peer.answer(handshake, SaslHandshakeResponse(mechanisms=["PLAIN"]))
            peer.answer(await peer.request(), SaslAuthenticateResponse())
            for number in (2, 3):
                peer.answer(await peer.request(), initialised(number))
            await peer.request()

        async with playing(play) as port:
            connection = await opened(port, by_plain())
            under_way = [connection.send(apis.INIT_PRODUCER_ID, INIT, timeout_s=CALL_S)]
            await again.wait()
            under_way += [connection.send(apis.INIT_PRODUCER_ID, INIT, timeout_s=CALL_S) for _ in range(2)]
            assert connection.unanswered_count == 4  # the log-in's own is one
            assert connection.unsent_bytes > 0
            assert [(await one).producer_id for one in under_way] == [1, 2, 3]
            connection.close()

    async def test_a_password_that_is_wrong_by_then_ends_the_connection(self):
        async def play(peer):
            await peer.begin()
            await log_in(peer, lifetime_ms=1500)
            await log_in(peer, error=58)

        async with playing(play) as port:
            connection = await opened(port, by_plain())
            ended = await connection.wait_closed()
            assert isinstance(ended, BrokerRefused)
            assert "refuses the user 'u' by PLAIN" in str(ended)

    async def test_the_password_is_read_anew_for_each(self):
        passwords, tokens = ["old", "new", "newest"], []

        async def play(peer):
            await peer.begin()
            for lifetime_ms in (1500, 0):
                peer.answer(await peer.request(), SaslHandshakeResponse(mechanisms=["PLAIN"]))
                request = await peer.request()
                tokens.append(request.message.auth_bytes)
                peer.answer(request, SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms))
            await peer.request()

        async with playing(play) as port:
            security = by_plain()._replace(password=Secret(lambda: passwords[len(tokens)]))
            first = await opened(port, security)
            await until(lambda: len(tokens) == 2, "another log-in")
            second = await opened(port, security)
            assert tokens == [b"\0u\0old", b"\0u\0new", b"\0u\0newest"]
            first.close()
            second.close()

    async def test_what_tells_no_secret_goes_before_anything_is_answered(self):
        async def play(peer):
            asked, handshake, first = [await peer.request() for _ in range(3)]
            assert first.message.auth_bytes.startswith(b"n,,n=u,r=")
            peer.serve(asked)
            peer.answer(handshake, SaslHandshakeResponse(mechanisms=["SCRAM-SHA-512"]))
            peer.answer(first, SaslAuthenticateResponse(error_code=58, error_message="bad credentials"))

        async with playing(play) as port:
            with pytest.raises(BrokerRefused, match="refuses the user 'u' by SCRAM-SHA-512"):
                await opened(port, by_plain()._replace(mechanism="SCRAM-SHA-512"))

    async def test_a_password_waits_until_the_broker_takes_passwords(self):
        async def play(peer):
            asked, handshake = [await peer.request() for _ in range(2)]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(peer.reader.readexactly(1), 0.2)
            peer.serve(asked)
            peer.answer(handshake, SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-512"]))
            assert not await peer.reader.read()

        async with playing(play) as port:
            with pytest.raises(BrokerRefused, match="takes no log-in by PLAIN"):
                await opened(port, by_plain())

    async def test_one_that_is_refused_is_told_with_the_mechanisms_there(self):
        async def play(peer):
            await peer.begin()
            peer.answer(await peer.request(), SaslHandshakeResponse(error_code=33, mechanisms=["GSSAPI", "X"]))
            await peer.request()

        async with playing(play) as port:
            with pytest.raises(BrokerRefused, match="takes no log-in by PLAIN, but by GSSAPI or X: set sasl_mechanism"):
                await opened(port, by_plain())


async def test_a_broker_that_reads_nothing_is_given_up_by_the_kernel():
    async def play(peer):
        await peer.begin()
        peer.writer.transport.pause_reading()
        await asyncio.Event().wait()

    async with playing(play) as port:
        connection = await opened(port, silent_s_max=1.0)
        data = PartitionProduceData(index=0, records=memoryview(bytes(16 << 20)))
        asked = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=[data])])
        said = await told(connection, asked=apis.PRODUCE, request=asked)
        assert "acknowledged nothing for 1 s: is it on, and the link up?" in said


async def test_a_broker_that_throttles_may_read_nothing_for_so_long():
    async def play(peer):
        await peer.begin()
        request = await peer.request()
        peer.answer(request, InitProducerIdResponse(throttle_time_ms=1500))
        await peer.request()

    async with playing(play) as port:
        connection = await opened(port, silent_s_max=2.0)
        await connection.ask(apis.INIT_PRODUCER_ID, INIT, timeout_s=CALL_S)

        def silence_ms():
            return connection._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)

        assert silence_ms() == 3500
        assert connection.throttled_until > connection.heard_at
        await until(lambda: silence_ms() == 2000, "its time is over")
        connection.limit_unsent(4096)
        assert connection._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 4096
        connection.close()
