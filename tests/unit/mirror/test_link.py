"""What a link is taken to carry, on a model of one: a rate, a delay, and a queue before it."""

from __future__ import annotations

import pytest

from edge_broker.protocol.unpacking import CODEC_LZ4, CODEC_NONE, CODEC_ZSTD
from mirror.link.link_model import BATCH_BYTES_MIN, FIRST_BYTES, LEAST_BYTES, QUEUE_S, Link

BYTES_MAX = 4_000_000


def filled(rate, round_trip_s, seconds, *, requests=10**6, request_bytes=4096, is_metered=False):
    """A link after some seconds of as much as it lets go, and the longest that an answer took in the second half."""
    link, now, free_at, under_way, longest = Link(BYTES_MAX, is_metered=is_metered), 0.0, 0.0, [], 0.0
    while now < seconds:
        while requests and (not under_way or link.under_way_bytes + request_bytes <= link.limit_bytes):
            free_at = max(free_at, now) + request_bytes / rate
            under_way.append((free_at + round_trip_s, link.request_sent(now, request_bytes)))
            requests -= 1
        if not under_way:
            break
        now, mark = under_way.pop(0)
        if now > seconds / 2:
            longest = max(longest, now - mark.sent_at)
        link.request_acked(now, mark)
    return link, longest


@pytest.mark.parametrize(
    ("rate", "round_trip_s"), [(1_250_000, 0.1), (125_000, 0.3), (32_000, 0.6), (12_500_000, 0.001)]
)
def test_a_link_is_filled_and_its_queue_is_short(rate, round_trip_s):
    link, longest = filled(rate, round_trip_s, 30)
    assert link.rate == pytest.approx(rate, rel=0.2)
    assert link.limit_bytes >= min(BYTES_MAX, rate * round_trip_s)
    assert longest <= round_trip_s + 2 * QUEUE_S


def test_answers_that_come_at_once_behind_a_lost_segment_show_no_more_than_was_sent():
    """A connection is held up for two seconds, then all of it is answered beside what another has sent since."""
    link, _ = filled(1_250_000, 0.1, 30)
    before = link.rate
    held = [link.request_sent(31.0 + number / 1000, 50_000) for number in range(12)]
    link.request_acked(33.0, held[0])
    last = link.request_sent(33.0, 1_000)
    for number, mark in enumerate(held[1:]):
        link.request_acked(33.001 + number / 1000, mark)
    link.request_acked(33.1, last)
    assert link.rate == pytest.approx(before, rel=0.05)


def test_before_anything_is_known_a_little_may_be_under_way():
    link = Link(BYTES_MAX)
    assert (link.limit_bytes, link.rate, link.linger_s) == (FIRST_BYTES, None, 0.0)
    assert Link(1000).limit_bytes == 1000


def test_a_link_that_is_hardly_used_may_still_be_tried():
    link, _ = filled(1_250_000, 0.1, 30, requests=5, request_bytes=100)
    assert link.limit_bytes == LEAST_BYTES


def test_what_is_lost_is_no_longer_under_way_and_tells_nothing():
    link = Link(BYTES_MAX)
    link.request_lost(link.request_sent(0.0, 500))
    assert (link.under_way_bytes, link.rate) == (0, None)


def test_the_longest_round_trip_lingers_no_longer_than_people_bear():
    assert filled(125_000, 0.6, 30)[0].linger_s == 0.3
    assert filled(125_000_000, 0.0005, 3)[0].linger_s == 0.005


@pytest.mark.parametrize(
    ("rate", "codec", "size", "forwards"),
    [
        (125_000, CODEC_ZSTD, 40_000, True),
        (125_000, CODEC_ZSTD, 20_000, False),
        (125_000, CODEC_NONE, 400_000, False),
        (50_000_000, CODEC_ZSTD, 20_000, True),
        (50_000_000, CODEC_ZSTD, 2_000, False),
        (50_000_000, CODEC_NONE, 400_000, False),
    ],
)
def test_large_packed_batches_go_on_as_they_are(rate, codec, size, forwards):
    link, _ = filled(rate, 0.001, 3, request_bytes=65_536)
    assert link.forwards(codec, size, CODEC_ZSTD) is forwards


def packed(link, share, level):
    """Have packing take this share of the link's time, seven times less at level 1."""
    link.batch_packed(share / (7 if level == 1 else 1) * 100_000 / link.rate, 100_000, level)


def test_a_processor_that_is_slower_than_the_link_packs_faster_until_it_is_free():
    link, _ = filled(1_250_000, 0.1, 5)
    levels = []
    for share in [0.2] * 3 + [1.5] * 5 + [0.6] * 20 + [0.2] * 10:
        packed(link, share, link.zstd_level)
        levels.append(link.zstd_level)
    assert levels[:3] == [9, 9, 9]
    assert levels[7:28] == [1] * 21, "what would take 0.6 of the time is too near to more"
    assert levels[-1] == 9


def test_little_that_was_packed_slowly_tells_nothing_of_the_processor():
    link, _ = filled(1_250_000, 0.1, 5)
    link.batch_packed(5.0, 1000, 9)
    assert link.zstd_level == 9
    unknown = Link(BYTES_MAX)
    unknown.batch_packed(5.0, 100_000, 9)
    assert unknown.zstd_level == 9


def test_a_thin_link_is_worth_the_processors_time():
    assert [filled(rate, 0.01, 5)[0].zstd_level for rate in (125_000, 50_000_000)] == [9, 1]


@pytest.mark.parametrize("rate", [32_000, 125_000, 50_000_000])
def test_bytes_that_cost_money_are_worth_the_processors_time_on_any_link(rate):
    link, _ = filled(rate, 0.01, 5, is_metered=True)
    for _ in range(20):
        link.batch_packed(100.0, 100_000, link.zstd_level)  # far slower than the link
    assert (link.zstd_level, link.linger_s) == (19, 1.0)
    assert not link.forwards(CODEC_LZ4, 400_000, CODEC_ZSTD), "it would be as large as its producer has left it"
    assert link.forwards(CODEC_ZSTD, 400_000, CODEC_ZSTD)


def test_a_batch_of_a_metered_link_is_what_is_packed_in_a_quarter_of_a_second():
    link, _ = filled(1_250_000, 0.1, 5, is_metered=True)
    whole = link.batch_bytes
    packed(link, 0.5, 19)
    assert link.batch_bytes == whole, "the link is what is short"
    for _ in range(30):
        packed(link, 4.0, 19)
    assert link.batch_bytes == pytest.approx(whole / 4, rel=0.01)
    for _ in range(30):
        packed(link, 1e6, 19)
    assert link.batch_bytes == BATCH_BYTES_MIN
