"""Blocked partitions keep their share of the memory and of the link, and no more."""

from __future__ import annotations

import itertools
import random

from kafka_wire.partitions import TopicPartition
from mirror.partition.send_state import DRAINING, RESOLVING, SENDING
from mirror.partition.source_offsets import PartitionOffsets
from mirror.partition.stream import PartitionStream
from mirror.producer.failures.blocked_partitions import KEPT_SHARE, LINK_TIMES, BlockedPartitions

BYTES_MAX = 8000


def lane(number, held_bytes=0):
    made = PartitionStream(TopicPartition("readings", number), "lab.readings", {"cleanup.policy": "delete"})
    made.held_bytes = held_bytes
    return made


def test_the_first_keep_what_they_hold_and_the_others_let_it_go():
    held = BlockedPartitions(BYTES_MAX)
    blocked = [held.block(lane(number, 400)) for number in range(5)]
    assert blocked == [False, False, True, True, True]
    assert held.bytes == 2000


def test_one_record_above_the_share_is_let_go():
    assert BlockedPartitions(BYTES_MAX).block(lane(0, BYTES_MAX // KEPT_SHARE + 1))


def test_whatever_comes_the_blocked_keep_their_share():
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    held, lanes = BlockedPartitions(BYTES_MAX), [lane(number) for number in range(20)]
    for _ in range(2000):
        one = chance.choice(lanes)
        if chance.random() < 0.5:
            held.attempt(one)
            one.held_bytes = chance.choice([0, 300, 900, 5000])
        elif held.block(one):
            one.held_bytes = 0
        kept = sum(each.held_bytes for each in lanes if each.blocked)
        assert kept <= BYTES_MAX // KEPT_SHARE, f"seed {seed}"


def test_those_that_are_tried_are_read_one_at_a_time_the_longest_waiting_first():
    held, well = BlockedPartitions(BYTES_MAX), lane(9)
    lanes = [lane(number) for number in range(3)]
    for one in lanes:
        held.block(one)
    assert held.readable([*lanes, well], ()) == [well]
    held.attempt(lanes[1])
    held.attempt(lanes[0])
    assert held.readable([*lanes[::-1], well], ()) == [lanes[0], well]
    assert held.readable([lanes[1], well], {lanes[0].partition}) == [well], "while the other one is being read"
    lanes[0].held_bytes = 10
    assert held.readable([*lanes, well], ()) == [lanes[1], well], "one that holds something is tried with that"
    lanes[0].held_bytes = BYTES_MAX
    assert held.readable([*lanes, well], ()) == [well]
    held.forget(lanes[0])
    assert held.readable([*lanes, well], ()) == [lanes[0], lanes[1], well]


def test_all_attempts_together_take_a_fifth_of_the_link():
    held, now, used_s = BlockedPartitions(BYTES_MAX), 100.0, 0.0
    attempts = sorted((held.pause_s(now, link_s), link_s) for link_s in (0.5, 3.0, 20.0, 0.25))
    for wait_s, link_s in attempts:
        used_s += link_s
        assert wait_s >= LINK_TIMES * link_s
    assert attempts[-1][0] == LINK_TIMES * used_s
    assert held.pause_s(now + 1000, 2.0) == LINK_TIMES * 2.0


def test_one_whose_records_are_gone_at_the_source_is_blocked_no_more():
    held, one = BlockedPartitions(BYTES_MAX), lane(0)
    one.leader_epoch, one.source_end = 0, 7
    held.block(one)
    held.attempt(one)
    assert held.read_to_the_end() == []
    one.start(PartitionOffsets(7))
    assert held.read_to_the_end() == [one]
    for blocked, state in itertools.product((True, False), (SENDING, DRAINING, RESOLVING)):
        one.blocked, one.send_state = blocked, state
        assert held.read_to_the_end() == ([one] if not blocked and state is SENDING else [])
