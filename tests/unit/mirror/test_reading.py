"""Which partitions are asked for together, how long a leader may wait, and what its answers say."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from edge_broker.errors import ErrorCode
from edge_broker.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from edge_broker.protocol.record_batch import build_batch
from kafka_wire.apis import FETCH, FETCH_BY_ID
from kafka_wire.connection.errors import ConnectionLost
from kafka_wire.partitions import TopicPartition
from mirror.client.fetcher import (
    FETCH_BYTES_FIRST,
    FETCH_BYTES_MIN,
    PARTITION_BYTES_MAX,
    SLOTS,
    WAIT_ALL_S,
    WAIT_S,
    Place,
    Reader,
)

NODE = 7
BATCH = bytes(build_batch([(None, b"x")], timestamp_ms=1))
PARTITIONS = [TopicPartition("t", number) for number in range(8)]


class Leader:
    """A cluster of one leader that answers when a test says so; `asked` are its fetches, by slot, newest last."""

    def __init__(self):
        self.asked = []

    async def connection(self, node, slot):
        assert node == NODE
        leader = self

        class Connection:
            async def ask(self, _asked, request, *, timeout_s):
                answer = asyncio.get_running_loop().create_future()
                leader.asked.append((slot, request, answer))
                return await answer

        return Connection()

    def numbers(self, at=-1):
        """The partitions that a fetch asks for."""
        return [one.partition for topic in self.asked[at][1].topics for one in topic.partitions]

    def answer(self, at=-1, *, error_code=0, end=0, **batches):
        """Answer a fetch: p3=BATCH has records in partition 3, all others nothing new."""
        slot, request, answer = self.asked[at]
        data = [
            PartitionData(
                partition_index=one.partition,
                error_code=error_code,
                high_watermark=end,
                records=batches.get(f"p{one.partition}", b""),
                aborted_transactions=[AbortedTransaction(producer_id=3, first_offset=5)],
            )
            for topic in request.topics
            for one in topic.partitions
        ]
        answer.set_result(FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=data)]))
        return slot


@pytest.fixture
def leader():
    return Leader()


@pytest.fixture
async def reader(leader):
    made = Reader(leader, 30.0)
    yield made
    made.close()


async def poll(reader, *numbers, room=10**9):
    """Ask for these partitions, and give what is answered at once."""
    wanted = {PARTITIONS[number]: Place(NODE, 2, 40) for number in numbers}
    return await reader.poll(wanted, room, 0.01, asyncio.Event())


async def test_what_is_quiet_is_asked_for_together_and_may_wait_long(leader, reader):
    assert await poll(reader, 0, 1, 2) == []
    ((slot, request, _),) = leader.asked
    assert (slot, leader.numbers()) == (0, [0, 1, 2])
    assert request.max_wait_ms == WAIT_ALL_S * 1000
    (topic,) = request.topics
    assert {(one.fetch_offset, one.current_leader_epoch) for one in topic.partitions} == {(40, 2)}
    assert await poll(reader, 0, 1, 2) == []
    assert len(leader.asked) == 1, "what is asked for is not asked for twice"


async def test_who_comes_later_holds_up_nobody_and_is_held_up_by_nobody(leader, reader):
    await poll(reader, 0, 1)
    await poll(reader, 0, 1, 2)
    assert (leader.asked[1][0], leader.numbers()) == (1, [2])
    assert leader.asked[1][1].max_wait_ms <= WAIT_S * 1000


async def test_what_has_records_is_dealt_among_the_slots_that_are_free(leader, reader):
    await poll(reader, *range(6))
    leader.answer(**{f"p{number}": BATCH for number in range(6)})
    assert len(await poll(reader)) == 6
    await poll(reader, *range(6))
    dealt = [leader.numbers(at) for at in range(1, len(leader.asked))]
    assert len(dealt) == SLOTS
    assert sorted(number for some in dealt for number in some) == list(range(6))


async def test_what_is_urgent_is_in_no_fetch_with_a_backlog_and_has_a_slot_of_its_own(leader, reader):
    async def ask(*numbers):
        places = {PARTITIONS[number]: Place(NODE, 2, 40, number in (0, 1)) for number in numbers}
        return await reader.poll(places, 10**9, 0.01, asyncio.Event())

    await ask(*range(6))
    leader.answer(**{f"p{number}": BATCH for number in range(1, 6)})
    await ask()
    await ask(*range(6))
    dealt = {leader.asked[at][0]: leader.numbers(at) for at in range(1, len(leader.asked))}
    assert dealt[SLOTS - 1] == [1]
    assert dealt[0] == [0], "what is quiet, urgent or not"
    assert sorted(dealt[1] + dealt[2]) == [2, 3, 4, 5]
    at = next(at for at in range(1, len(leader.asked)) if leader.asked[at][0] == 0)
    leader.answer(at, p0=BATCH)
    await ask()
    await ask(0)
    assert (leader.asked[-1][0], leader.numbers()) == (0, [0]), "its slot is taken by 1, so it goes where there is one"


async def test_a_partition_without_news_is_not_told(leader, reader):
    await poll(reader, 0, 1)
    leader.answer(end=44)
    assert [answer.log_end for answer in await poll(reader)] == [44, 44]
    await poll(reader, 0, 1)
    leader.answer(end=44, p1=BATCH)
    (answer,) = await poll(reader)
    assert (answer.partition, bytes(answer.batches), answer.aborted) == (PARTITIONS[1], BATCH, [(3, 5)])


async def test_an_error_is_told_with_the_place_that_was_asked_for(leader, reader):
    await poll(reader, 0)
    leader.answer(error_code=ErrorCode.FENCED_LEADER_EPOCH)
    (answer,) = await poll(reader)
    assert (answer.error_code, answer.place) == (ErrorCode.FENCED_LEADER_EPOCH, Place(NODE, 2, 40))


async def test_a_lost_connection_is_told_for_all_that_it_was_asked(leader, reader):
    await poll(reader, 0, 1)
    leader.asked[0][2].set_exception(ConnectionLost("gone"))
    assert [answer.failed for answer in await poll(reader)] == ["gone", "gone"]


async def test_a_partition_that_is_left_out_of_an_answer_is_told(leader, reader):
    await poll(reader, 0, 1)
    leader.asked[0][2].set_result(FetchResponse(responses=[]))
    assert [answer.failed for answer in await poll(reader)] == ["it was not answered"] * 2


@pytest.mark.parametrize(("room", "size"), [(10**9, FETCH_BYTES_FIRST), (100_000, 100_000), (5, FETCH_BYTES_MIN)])
async def test_no_more_is_asked_for_than_there_is_room_for(leader, reader, room, size):
    await poll(reader, 0, room=room)
    request = leader.asked[0][1]
    assert request.max_bytes == size
    assert request.topics[0].partitions[0].partition_max_bytes == min(size, PARTITION_BYTES_MAX)


async def test_who_is_woken_waits_no_longer(leader, reader):
    woken = asyncio.Event()
    woken.set()
    assert await reader.poll({PARTITIONS[0]: Place(NODE, -1, 0)}, 10**6, 3600.0, woken) == []
    assert reader.silent_s >= 0.0


@pytest.mark.parametrize("serves", [True, False])
async def test_a_topic_is_asked_for_by_its_id_where_the_leader_takes_that(serves):
    """And what is answered of an id is of the topic that had it."""
    topic_id, asked, text = UUID(int=5), [], "AAAAAAAAAAAAAAAAAAAABQ"

    class Connection:
        def serves(self, _asked):
            return serves

        async def ask(self, how, request, *, timeout_s):
            (topic,) = request.topics
            asked.append((how, topic.topic, topic.topic_id))
            data = [PartitionData(partition_index=3, error_code=0, high_watermark=9, records=BATCH)]
            named = {"topic_id": topic.topic_id} if how is FETCH_BY_ID else {"topic": topic.topic}
            return FetchResponse(responses=[FetchableTopicResponse(partitions=data, **named)])

    class Cluster:
        async def connection(self, node, slot):
            return Connection()

    reader = Reader(Cluster(), 30.0)
    place = Place(NODE, 2, 40, topic_id=text)
    (answer,) = await reader.poll({PARTITIONS[3]: place}, 10**6, 5.0, asyncio.Event())
    reader.close()
    assert (answer.partition, answer.place, bytes(answer.batches)) == (PARTITIONS[3], place, BATCH)
    assert asked == [(FETCH_BY_ID if serves else FETCH, "t", topic_id)]
