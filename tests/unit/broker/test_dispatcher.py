"""Dispatcher, server and connections: order, bounds, and that one connection's trouble stays its own."""

from __future__ import annotations

from typing import Any, cast

import pytest

from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.outcomes import Outcome, Reply, RunInWorker, Wait
from edge_broker.errors import ErrorCode, ProtocolViolation, StorageFault
from edge_broker.handlers import APIS, HANDLERS
from edge_broker.network.background.metrics import metrics_text
from edge_broker.network.connection.connection import UNANSWERED_MAX, WRITE_BUFFER_BYTES_MAX, Connection
from edge_broker.network.dispatch.oversized_requests import PARKED_BYTES_MAX
from edge_broker.network.log_lines import LINES_MAX
from edge_broker.network.server.listener_server import LOOPBACK_CONNECTIONS
from edge_broker.protocol.api import API_VERSIONS, DESCRIBE_CONFIGS, FETCH, HEARTBEAT, LIST_GROUPS, METADATA, PRODUCE
from edge_broker.protocol.messages.api_versions import ApiVersionsRequest
from edge_broker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from edge_broker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from edge_broker.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from edge_broker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from edge_broker.testing.client import Client, Transport
from edge_broker.testing.site import Site
from tests.support.storage import batch, fill
from tests.unit.broker.test_fetch import BY_NAME, fetch, parts
from tests.unit.broker.test_produce import code, part, produce

ALL_TOPICS = MetadataRequest(topics=None)
NAMED = ApiVersionsRequest(client_software_name="test", client_software_version="1.0-b")


def with_handler(key: int, handler: Any) -> Site:
    return Site(handlers={**HANDLERS, key: handler})


# order


def test_answers_leave_in_the_order_of_the_requests() -> None:
    site = Site()
    (log,) = site.topic()
    fill(log, 1)
    client = site.client()
    client.send(FETCH, fetch(("t", 0, 1), max_wait_ms=1000), BY_NAME)
    client.send(PRODUCE, produce(("t", 0, batch(b"a")), acks=1))
    client.send(API_VERSIONS, NAMED)
    assert client.answers() == []  # the fetch waits for the sync that its waiting asked for
    site.run_until_idle()
    fetched, produced, versions = client.answers()
    assert fetched.responses[0].partitions[0].high_watermark == 2
    assert part(produced).base_offset == 1
    assert versions.api_keys


def test_one_round_serves_all_that_one_turn_of_the_loop_brings() -> None:
    site = Site()
    site.topic(partitions=3)
    clients = [site.client() for _ in range(6)]
    for number, client in enumerate(clients):
        client.feed(client.frame(PRODUCE, produce(("t", number % 3, batch()))))
    site.run_until_idle()
    assert all(code(client.answer()) is ErrorCode.NONE for client in clients)
    assert site.dispatcher.syncer.rounds == 1


# trouble that stays its own


def test_a_bug_in_a_handler_closes_its_connection_and_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(broker: Broker, context: RequestContext, request: Any) -> Outcome:
        raise KeyError("a bug")

    site = with_handler(HEARTBEAT, broken)
    site.topic()
    victim, other = site.client(), site.client()
    other.send(PRODUCE, produce(("t", 0, batch())))
    victim.send(PRODUCE, produce(("t", 0, batch())))
    victim.send(HEARTBEAT, HeartbeatRequest())
    site.run_until_idle()
    assert victim.transport.closed
    assert code(other.answer()) is ErrorCode.NONE
    assert site.dispatcher.failures == 1
    assert "KeyError" in capsys.readouterr().err
    assert site.dispatcher.waiting_requests == 0


@pytest.mark.parametrize("error", [KeyError("a bug"), ProtocolViolation("acks=0"), "unencodable"])
def test_trouble_while_others_are_woken_costs_its_own_connection(error: Any) -> None:
    """The handler's second step fails; whoever waits for the same log behind it is answered all the same."""

    def waits(broker: Broker, context: RequestContext, request: Any) -> Outcome:
        log = broker.store.topics["t"].partitions[0]

        def ready() -> Outcome | None:
            if log.high_watermark == 0:
                return None
            if error == "unencodable":
                return Reply(HeartbeatResponse(error_code=1 << 20))
            raise error

        return Wait([log], ready, 1000, ready)  # type: ignore[arg-type]

    site = with_handler(HEARTBEAT, waits)
    site.topic()
    victim, other = site.client(), site.client()
    victim.send(HEARTBEAT, HeartbeatRequest())
    other.send(PRODUCE, produce(("t", 0, batch())))
    site.run_until_idle()
    assert victim.transport.closed
    assert code(other.answer()) is ErrorCode.NONE
    assert site.dispatcher.waiting_requests == 0


@pytest.mark.parametrize("error", [KeyError("a bug"), StorageFault("file", 7, "broken")])
def test_trouble_in_a_worker_reaches_its_own_call(error: Exception) -> None:
    def works(broker: Broker, context: RequestContext, request: Any) -> Outcome:
        def work() -> None:
            raise error

        failed = Reply(HeartbeatResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR))
        return RunInWorker(work, lambda _: Reply(HeartbeatResponse()), lambda _: failed)

    site = with_handler(HEARTBEAT, works)
    client, other = site.client(), site.client()
    client.send(HEARTBEAT, HeartbeatRequest())
    site.run_until_idle()
    if isinstance(error, StorageFault):
        assert client.answer().error_code == ErrorCode.KAFKA_STORAGE_ERROR
    else:
        assert client.transport.closed
    assert other.ask(LIST_GROUPS, ListGroupsRequest()) == ListGroupsResponse()
    assert not site.dispatcher.working


@pytest.mark.parametrize("request_", ["fetch", "produce", "rolling", "cold"])
def test_a_connection_lost_while_its_request_waits_leaves_nothing_behind(request_: str) -> None:
    site = Site()
    (log,) = site.topic(config={"segment.bytes": "4096"})
    fill(log, 1, 3500)
    client = site.client()
    if request_ == "fetch":
        client.send(FETCH, fetch(("t", 0, 1), max_wait_ms=60_000), BY_NAME)
    elif request_ == "cold":
        site.disk.cold = True
        client.send(FETCH, fetch(("t", 0, 0)), BY_NAME)
    else:
        client.send(PRODUCE, produce(("t", 0, batch(bytes(1000 if request_ == "rolling" else 10)))))
    assert site.dispatcher.waiting_requests == 1
    client.lose()
    site.run_until_idle()
    assert site.dispatcher.waiting_requests == 0
    assert site.server.connections == set()
    assert client.connection.on_close == {}
    site.loop.advance(120_000)
    site.disk.cold = False
    assert code(site.client().ask(PRODUCE, produce(("t", 0, batch(b"next"))))) is ErrorCode.NONE


def test_unknown_keys_and_versions_close_their_connection() -> None:
    site = Site()
    for key, version in ((PRODUCE, 2), (PRODUCE, 99), (FETCH, 3), (77, 0)):
        client = site.client()
        frame = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1\0\4test\0"
        client.feed(len(frame).to_bytes(4, "big") + frame)
        assert client.transport.closed, (key, version)
    assert site.server.violations == 4
    assert site.dispatcher.failures == 0


# ApiVersions


@pytest.mark.parametrize("version", [0, 2, 3, 4])
def test_api_versions_come_from_the_handlers(version: int) -> None:
    response = Site().client().ask(API_VERSIONS, NAMED, version)
    assert response.error_code == 0
    expected = {key: (APIS[key].min_version, APIS[key].max_version) for key in HANDLERS}
    expected[PRODUCE] = (0, APIS[PRODUCE].max_version)  # advertised and refused, for librdkafka before 2.11.1
    assert {one.api_key: (one.min_version, one.max_version) for one in response.api_keys} == expected


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(("name", "number"), [("", "1"), ("a", ""), ("with space", "1"), ("-dash", "1"), ("a", "1-")])
def test_a_client_whose_software_has_no_plain_name_is_refused_as_by_kafka(version: int, name: str, number: str) -> None:
    asked = ApiVersionsRequest(client_software_name=name, client_software_version=number)
    response = Site().client().ask(API_VERSIONS, asked, version)
    assert (response.error_code, response.api_keys) == (ErrorCode.INVALID_REQUEST, [])


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_an_unknown_version_is_answered_35_in_a_version_0_body_on_an_open_connection(version: int) -> None:
    client = Site().client()
    frame = client.frame(API_VERSIONS, ApiVersionsRequest(), version, body=b"anything at all")
    client._sent[1] = (API_VERSIONS, 0)
    client.feed(frame)
    response = client.answer()
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert {one.api_key for one in response.api_keys} == set(HANDLERS)
    assert client.ask(API_VERSIONS, ApiVersionsRequest(), 0).error_code == 0


# clients that send much, or do not read


def pipelined(client: Client, count: int) -> bytes:
    return b"".join(client.frame(METADATA, ALL_TOPICS, 1) for _ in range(count))


def test_a_client_that_does_not_read_gets_a_bounded_number_of_answers_made() -> None:
    """One receive buffer holds thousands of small requests for large answers."""
    site = Site()
    (log,) = site.topic()
    fill(log, 20, 50_000)
    client = site.client()
    client.transport.stuck = True
    frames = b"".join(client.frame(FETCH, fetch(("t", 0, 0)), BY_NAME) for _ in range(200))
    assert len(frames) < len(site.server.receive_buffer)
    client.feed(frames)
    site.run_until_idle()
    assert len(client.transport.sent) < WRITE_BUFFER_BYTES_MAX + (2 << 20)
    assert not client.transport.reading
    answered = len(client.answers())
    for _ in range(400):
        if answered == 200:
            break
        client.transport.stuck = True
        client.transport.drain()
        site.run_until_idle()
        answered += len(client.answers())
    assert answered == 200
    assert client.transport.reading
    assert client.connection.requests.held == 0


def test_too_many_unanswered_requests_wait_in_bounded_memory_and_keep_their_order() -> None:
    site = Site()
    (log,) = site.topic()
    client = site.client()
    count = 3 * UNANSWERED_MAX
    client.feed(b"".join(client.frame(PRODUCE, produce(("t", 0, batch()))) for _ in range(count)))
    site.loop.run()
    assert log.log_end_offset == UNANSWERED_MAX
    assert not client.transport.reading
    site.run_until_idle()
    assert [part(one).base_offset for one in client.answers()] == list(range(count))
    assert client.transport.reading
    assert client.connection.requests.held == 0


def test_answers_that_wait_for_an_earlier_one_are_bounded() -> None:
    site = Site()
    (log,) = site.topic()
    fill(log, 20, 50_000)
    client = site.client()
    frames = [client.frame(FETCH, fetch(("t", 0, 20), max_wait_ms=60_000), BY_NAME)]
    frames += [client.frame(FETCH, fetch(("t", 0, 0)), BY_NAME) for _ in range(100)]
    client.feed(b"".join(frames))
    site.run_until_idle()
    kept = sum(len(piece) for exchange in client.connection.unanswered for piece in exchange.frame or ())
    assert WRITE_BUFFER_BYTES_MAX < kept < WRITE_BUFFER_BYTES_MAX + (2 << 20)
    assert not client.transport.reading
    site.loop.advance(60_000)
    assert len(client.answers()) == 101
    assert client.transport.reading


def test_a_request_that_waits_for_the_disk_does_not_hold_on_to_its_buffer() -> None:
    site = Site({"message.max.bytes": 1 << 20})
    site.topic(config={"max.message.bytes": "1048588"})
    client = site.client()
    frame = client.frame(PRODUCE, produce(("t", 0, batch(bytes(1_000_000))), ("missing", 0, batch())))
    client.feed(frame[:1000])
    own = client.connection._own
    assert own is not None
    client.feed(frame[1000:])
    assert site.dispatcher.waiting_requests == 1
    own.clear()  # BufferError while anybody still has a view of it
    site.run_until_idle()
    assert code(client.answer()) is ErrorCode.NONE


def arrive(client: Client, data: bytes) -> bytes:
    """Bytes arrive as the broker reads them; what it does not read."""
    while data and client.transport.reading:
        size = len(client.connection.get_buffer(-1))
        client.feed(data[:size])
        data = data[size:]
        client.settle()
    return data


def test_requests_that_find_no_memory_wait_for_it() -> None:
    site = Site({"queued.max.request.bytes": 1 << 20, "socket.request.max.bytes": 1 << 20})
    site.topic(config={"max.message.bytes": "1048588"})
    pool = site.server.requests
    taken = pool.bytes_max
    pool.add(taken)
    first, second, third = (site.client() for _ in range(3))
    rest = [
        arrive(client, client.frame(PRODUCE, produce(("t", 0, batch(bytes(20_000)))))) for client in (first, second)
    ]
    assert code(first.answer()) is ErrorCode.NONE, "one at least may always grow to its end"
    assert code(second.answer()) is ErrorCode.NONE
    assert rest == [b"", b""]
    half = first.frame(PRODUCE, produce(("t", 0, batch(bytes(520_000)))))
    arrive(first, half[:20_000])
    rest = [arrive(second, second.frame(PRODUCE, produce(("t", 0, batch(bytes(20_000))))))]
    assert rest[0]
    assert not second.transport.closed
    assert code(third.ask(PRODUCE, produce(("t", 0, batch(bytes(1000)))))) is ErrorCode.NONE, "small ones pass"
    site.loop.advance(9_000)
    assert not first.transport.closed
    site.loop.advance(3_000)
    first.lose_when_closed()
    assert first.transport.closed, "10 s without a byte, and another waits"
    site.run_until_idle()
    assert arrive(second, rest[0]) == b""
    assert code(second.answer()) is ErrorCode.NONE
    assert pool.used == taken


def test_a_half_request_that_nobody_waits_for_is_left_alone() -> None:
    site = Site()
    client = site.client()
    arrive(client, client.frame(PRODUCE, produce(("t", 0, batch(bytes(40_000)))))[:20_000])
    site.loop.advance(120_000)
    assert not client.transport.closed


def test_a_connection_lost_with_requests_put_back_gives_their_memory_back() -> None:
    site = Site()
    site.topic(config={"segment.bytes": "4096"})
    client = site.client()
    client.feed(b"".join(client.frame(PRODUCE, produce(("t", 0, batch(bytes(3000))))) for _ in range(5)))
    assert site.server.requests.used > 0
    client.lose()
    assert site.server.requests.used == 0
    site.run_until_idle()


def test_nothing_that_was_put_back_overtakes_another_connection_that_is_being_woken() -> None:
    """Answers make room for put-back requests in the middle of waking; those run after everyone who waited."""
    site = Site()
    (log,) = site.topic(config={"segment.bytes": "4096"})
    fill(log, 1, 3500)
    first, second = site.client(), site.client()
    first.feed(
        first.frame(PRODUCE, produce(("t", 0, batch(bytes(1000) + b"1")), acks=1))
        + first.frame(PRODUCE, produce(("t", 0, batch(b"3")), acks=1))
    )
    second.feed(second.frame(PRODUCE, produce(("t", 0, batch(b"2")), acks=1)))
    site.run_until_idle()
    assert [part(one).base_offset for one in first.answers()] == [1, 3]
    assert part(second.answer()).base_offset == 2


def test_a_bad_frame_among_those_put_back_closes_the_connection() -> None:
    site = Site()
    site.topic(config={"segment.bytes": "4096"})
    client = site.client()
    frames = [client.frame(PRODUCE, produce(("t", 0, batch(bytes(3000))))) for _ in range(2)]
    client.feed(b"".join(frames) + b"\xff\xff\xff\xff")
    assert not client.transport.closed
    site.run_until_idle()
    client.lose_when_closed()
    assert client.transport.closed
    assert site.server.violations == 1


def test_one_more_connection_than_allowed_is_closed_and_a_free_place_is_taken() -> None:
    site = Site({"max.connections": 2})
    clients = [site.client() for _ in range(3)]
    assert [client.transport.closed for client in clients] == [False, False, True]
    clients[2].lose_when_closed()
    clients[0].lose()
    assert not site.client().transport.closed


# stopping


def test_stopping_refuses_what_is_new_and_answers_what_is_under_way() -> None:
    site = Site({"edge.flush.interval.min.ms": 60_000})
    (log,) = site.topic()
    idle, polling, busy = site.client(), site.client(), site.client()
    busy.ask(PRODUCE, produce(("t", 0, batch())))
    polling.send(FETCH, fetch(("t", 0, 1), max_wait_ms=600_000), BY_NAME)
    busy.send(PRODUCE, produce(("t", 0, batch())))  # its round begins in 60 s
    assert busy.answers() == []
    site.dispatcher.refusing = True
    site.server.refuse()
    site.dispatcher.sync_all()
    busy.feed(busy.frame(PRODUCE, produce(("t", 0, batch()))))  # too late: dropped
    assert site.dispatcher.working
    site.run_until_idle()
    assert not site.dispatcher.working
    assert code(busy.answer()) is ErrorCode.NONE
    assert log.log_end_offset == 2
    assert len(polling.answers()) == 1  # the same sync brought it data
    idle.send(API_VERSIONS, NAMED)
    assert idle.answers() == []
    site.server.close_connections()
    assert all(client.transport.closed for client in (idle, polling, busy))


def test_stopping_waits_for_workers_and_rolls_and_not_for_long_polls() -> None:
    site = Site()
    (log,) = site.topic(config={"segment.bytes": "4096"})
    fill(log, 1, 3500)
    polling, making, rolling = site.client(), site.client(), site.client()
    polling.send(FETCH, fetch(("t", 0, 1), max_wait_ms=600_000), BY_NAME)
    assert not site.dispatcher.working
    making.send(METADATA, MetadataRequest(topics=[], allow_auto_topic_creation=False), 4)
    rolling.send(PRODUCE, produce(("t", 0, batch(bytes(1000)))))
    assert site.dispatcher.working
    site.server.refuse()
    site.dispatcher.sync_all()
    site.run_until_idle()
    assert not site.dispatcher.working
    assert code(rolling.answer()) is ErrorCode.NONE


def test_metrics_count_each_waiting_request_once() -> None:
    site = Site()
    site.topic(partitions=5)
    site.client().send(FETCH, fetch(*(("t", number, 0) for number in range(5)), max_wait_ms=1000), BY_NAME)
    text = metrics_text(site.broker, site.dispatcher, site.server, 0)
    assert "edge_broker_requests_waiting 1\n" in text
    assert 'edge_broker_requests_total{api="Fetch"} 1\n' in text


# how many connections, and from where


class _From(Transport):
    def __init__(self, host: str) -> None:
        super().__init__()
        self.host = host

    def get_extra_info(self, name: str) -> object:
        return (self.host, 4711) if name == "peername" else None


def _from(site: Site, host: str) -> Connection:
    connection = Connection(site.server, site.loop.time)
    connection.connection_made(cast(Any, _From(host)))
    return connection


def _taken(site: Site, host: str) -> bool:
    return not _from(site, host).closing


def test_one_address_has_so_many_connections_and_some_are_kept_for_this_machine() -> None:
    site = Site({"max.connections": 100, "max.connections.per.ip": 50})
    assert [_taken(site, "10.0.0.1") for _ in range(60)].count(True) == 50
    assert [_taken(site, "10.0.0.2") for _ in range(100 - LOOPBACK_CONNECTIONS - 50)].count(False) == 0
    assert len(site.server.connections) == 100 - LOOPBACK_CONNECTIONS
    assert [_taken(site, "127.0.0.1") for _ in range(LOOPBACK_CONNECTIONS)].count(False) == 0
    assert len(site.server.connections) == 100


def test_who_has_most_connections_keeps_nobody_else_out(capsys: pytest.CaptureFixture[str]) -> None:
    site = Site({"max.connections": 100})
    places = 100 - LOOPBACK_CONNECTIONS
    greedy = [_from(site, "10.0.0.1") for _ in range(places)]
    assert not _taken(site, "10.0.0.1"), "one address takes no place from itself"
    busy, logged_in = greedy[0], greedy[1]
    for number, connection in enumerate(greedy):
        connection.last_active = site.loop.time() + number
    busy.last_active = site.loop.time() + places
    logged_in.session.principal = "User:greedy"
    others = [_from(site, "10.0.0.2") for _ in range(places)]
    assert [one.closing for one in others].count(False) == places // 2
    assert not busy.closing
    assert not logged_in.closing
    assert [one.closing for one in greedy[2:]] == [True] * (places // 2) + [False] * (places // 2 - 2)
    assert len(site.server.connections) == places
    line = "max.connections=100: so many are open, and its address has most of them; one from 10.0.0.2 takes its place"
    assert line in capsys.readouterr().err


def test_who_has_logged_in_loses_no_place() -> None:
    site = Site({"max.connections": 100})
    for connection in [_from(site, "10.0.0.1") for _ in range(100 - LOOPBACK_CONNECTIONS)]:
        connection.session.principal = "User:gateway"
    assert not _taken(site, "10.0.0.2")


def test_what_clients_make_the_log_say_is_limited_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    site = Site({"max.connections": 2})
    for _ in range(500):
        _taken(site, "10.0.0.1")
    site.loop.advance(20_000)
    _taken(site, "10.0.0.1")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == LINES_MAX + 2
    assert f"audit-summed of=connection_refused source=10.0.0.1 left_out={499 - LINES_MAX} " in lines[-2]


def test_refused_connections_of_one_address_hide_none_of_another(capsys: pytest.CaptureFixture[str]) -> None:
    site = Site({"max.connections": 2})
    for _ in range(3 * LINES_MAX):
        _taken(site, "10.0.0.1")
    _taken(site, "10.0.0.2")
    assert "client=10.0.0.2:" in capsys.readouterr().err


# requests and answers that are large


def many(count: int) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=f"no topic {number}") for number in range(count)],
        allow_auto_topic_creation=False,
    )


def test_a_large_request_is_worked_on_in_turns_and_small_ones_pass_it() -> None:
    site = Site()
    client, other = site.client(), site.client()
    client.feed(client.frame(METADATA, many(20_000)))
    other.feed(other.frame(API_VERSIONS, NAMED))
    assert other.answer().api_keys
    assert client.answers() == []
    assert len(site.dispatcher.turns) == 1
    site.run_until_idle()
    assert len(client.answer().topics) == 20_000
    assert site.dispatcher.turns.pieces > 8
    assert (client.connection.requests.held, site.server.requests.used) == (0, 0)


def test_what_would_take_too_much_memory_to_read_or_to_answer_closes_its_connection() -> None:
    site = Site()
    site.topic()
    described = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None)] * 10_000,
        include_documentation=True,
    )
    for key, request in ((METADATA, many(60_000)), (DESCRIBE_CONFIGS, described)):
        client = site.client()
        client.send(key, request)
        site.run_until_idle()
        assert client.transport.closed
        client.lose_when_closed()
    assert len(site.dispatcher.turns) == 0
    assert site.server.requests.used == 0
    assert site.server.violations == 2


def test_the_work_on_a_request_ends_with_its_connection() -> None:
    site = Site()
    client = site.client()
    client.feed(client.frame(METADATA, many(20_000)))
    client.lose()
    site.run_until_idle()
    assert len(site.dispatcher.turns) == 0
    assert site.server.requests.used == 0


def test_when_memory_for_answers_is_short_a_fetch_gets_one_batch_or_waits() -> None:
    site = Site()
    (log,) = site.topic()
    fill(log, 20, 50_000)
    pool = site.server.answers
    pool.add(pool.bytes_max - 60_000)
    pool.spare_bytes = 0
    client, second = site.client(), site.client()
    for one in (client, second):
        one.transport.stuck = True
        one.send(FETCH, fetch(("t", 0, 0)), BY_NAME)
    site.run_until_idle()
    records = parts(client.answer())[0].records
    assert 50_000 < len(records) < 60_000
    assert len(parts(second.answer())[0].records) == len(records), "one at least may always have its answer"
    third = site.client()
    third.send(FETCH, fetch(("t", 0, 0)), BY_NAME)
    site.run_until_idle()
    assert third.answers() == []
    assert not third.transport.closed
    client.transport.drain()
    second.transport.drain()
    site.loop.advance(1_000)
    site.run_until_idle()
    assert parts(third.answer())[0].records


def test_one_answer_of_a_client_goes_ahead_not_all_that_it_asked_for() -> None:
    site = Site()
    (log,) = site.topic()
    fill(log, 20, 50_000)
    pool = site.server.answers
    pool.add(pool.bytes_max)
    client = site.client()
    client.transport.stuck = True
    client.feed(b"".join(client.frame(FETCH, fetch(("t", 0, 0)), BY_NAME) for _ in range(20)))
    site.run_until_idle()
    assert len(client.answers()) == 1
    client.transport.drain()
    client.transport.stuck = True
    site.loop.advance(1_000)
    site.run_until_idle()
    assert len(client.answers()) == 1, "the next one"


def test_requests_whose_answers_find_no_memory_count_and_no_more_are_read_then() -> None:
    site = Site()
    site.topic()
    pool = site.server.answers
    pool.add(pool.bytes_max)
    pool.spare_bytes = 0
    clients = [site.client() for _ in range(40)]
    for one in clients:
        one.transport.stuck = True
        one.feed(one.frame(METADATA, many(7_000)))
        site.run_until_idle()
    turns, large = site.dispatcher.turns, site.dispatcher.large
    assert not large.has_room
    assert PARKED_BYTES_MAX < sum(large.parked.values()) < 2 * PARKED_BYTES_MAX
    assert len(turns) > 0
    for one in clients:
        one.lose()
    site.run_until_idle()
    assert (len(turns), large.parked, site.server.requests.used, pool.used) == (0, {}, 0, pool.bytes_max)


def test_a_client_that_takes_no_byte_of_its_answers_is_closed_and_a_slow_one_is_not() -> None:
    site = Site()
    (log,) = site.topic()
    fill(log, 20, 50_000)
    clients = slow, dead = site.client(), site.client()
    for one in clients:
        one.transport.stuck = True
        one.send(FETCH, fetch(("t", 0, 0)), BY_NAME)
    for _ in range(30):
        site.loop.advance(10_000)
        slow.transport.buffered -= 1
    assert dead.transport.closed
    assert not slow.transport.closed


def test_long_polls_are_answered_early_when_others_wait_for_what_they_hold() -> None:
    site = Site({"queued.max.request.bytes": 1 << 20, "socket.request.max.bytes": 1 << 20})
    site.topic()
    polling = [site.client() for _ in range(30)]
    for client in polling:
        client.feed(b"".join(client.frame(FETCH, fetch(("t", 0, 0), max_wait_ms=10**9), BY_NAME) for _ in range(16)))
    site.run_until_idle()
    assert 0 < sum(len(client.answers()) for client in polling) < 30 * 16
    waiting = site.client()
    arrive(waiting, waiting.frame(PRODUCE, produce(("t", 0, batch(bytes(20_000))), acks=1)))
    site.run_until_idle()
    assert code(waiting.answer()) is ErrorCode.NONE
