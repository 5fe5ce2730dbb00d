"""What becomes of offsets that the source does not have: a loss, then the next position."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.errors import UntoldError
from mirror.partition.leader_epochs import EpochStart, LeaderEpochs
from mirror.replication.backoffs import PartitionBackoffs
from mirror.replication.gap_resolver import GapResolver
from tests.unit.mirror.replication.parts import CONFIG, TP, Losses, Period, Problems, new_stream


class Source:
    """One partition with records in [start, end); `policy` is its topic's cleanup.policy of now."""

    def __init__(self, start=0, end=100, policy="delete", unknown=None):
        self.start, self.end, self.policy, self.unknown = start, end, policy, unknown or {}

    async def settings(self, names):
        if self.policy is None:
            raise UntoldError("topic readings cannot be described")
        return {name: {"cleanup.policy": self.policy} for name in names}

    async def known_bounds(self, partitions):
        known = [one for one in partitions if one not in self.unknown]
        return dict.fromkeys(known, self.start), dict.fromkeys(known, self.end), self.unknown


class Setup:
    def __init__(self, stream, source=None, losses=None, config=CONFIG):
        self.problems, self.period, self.losses = Problems(), Period(), losses or Losses()
        self.checked, self.duplicates = [], []
        self.on_check = lambda: None
        self.gaps = GapResolver(
            source or Source(), self.losses, config, {TP: stream}, PartitionBackoffs(config, self.problems.report),
            self.period, check_again=self.check_again, count_duplicates=self.count_duplicates,
        )  # fmt: skip

    def count_duplicates(self, stream, records):
        self.duplicates.append(records)

    async def check_again(self, partitions):
        self.checked += partitions
        self.on_check()


async def test_a_gap_of_a_topic_without_compaction_is_a_loss_and_then_crossed():
    stream = new_stream(read_offset=10)
    setup = Setup(stream)
    await setup.gaps.cross_gap(stream, 15)
    assert setup.losses.written == [("source_offset_jump", 10, 15)]
    assert (stream.read_offset, stream.crossed_to) == (15, 15)


async def test_a_gap_of_a_compacted_topic_is_no_loss():
    stream = new_stream(policy="compact", read_offset=10)
    setup = Setup(stream)
    await setup.gaps.cross_gap(stream, 15)
    assert setup.losses.written == []
    assert stream.read_offset == 15


async def test_a_gap_that_is_in_the_ledger_is_not_recorded_twice():
    stream = new_stream(read_offset=10)
    setup = Setup(stream)
    await setup.gaps.cross_gap(stream, 15)
    stream.read_from(10)
    await setup.gaps.cross_gap(stream, 15)
    assert len(setup.losses.written) == 1


async def test_the_policy_is_read_again_once_it_is_older_than_a_refresh_interval():
    config = replace(CONFIG, refresh_interval_ms=0)
    stream = new_stream(policy="compact", read_offset=200)
    setup = Setup(stream, Source(policy="delete"), config=config)
    await setup.gaps.cross_gap(stream, 210)  # the topic was compacted when 200 was the log's end
    assert setup.losses.written == []
    await setup.gaps.cross_gap(stream, 220)
    assert setup.losses.written == [("source_offset_jump", 210, 220)]


async def test_a_topic_that_cannot_be_described_leaves_the_position():
    stream = new_stream(read_offset=10)
    setup = Setup(stream, Source(policy=None), config=replace(CONFIG, refresh_interval_ms=0))
    with pytest.raises(UntoldError):
        await setup.gaps.cross_gap(stream, 15)
    assert stream.read_offset == 10


async def test_a_session_that_started_elsewhere_meanwhile_keeps_its_position():
    stream = new_stream(read_offset=10)
    setup = Setup(stream, losses=Losses(lambda one: one.read_from(3)))
    await setup.gaps.cross_gap(stream, 15)
    assert stream.read_offset == 3


async def test_below_the_log_start_the_expired_range_is_a_loss():
    stream = new_stream(read_offset=10)
    setup = Setup(stream, Source(start=40, end=100))
    await setup.gaps.resolve_out_of_range([TP])
    assert setup.losses.written == [("source_offset_out_of_range", 10, 40)]
    assert stream.read_offset == 40
    assert setup.period.considered == [stream]
    assert setup.checked == []


async def test_above_the_log_end_the_log_is_read_again_from_its_start():
    stream = new_stream(read_offset=120)
    setup = Setup(stream, Source(start=40, end=100))
    await setup.gaps.resolve_out_of_range([TP])
    assert setup.losses.written == [("source_offset_out_of_range", 100, 120)]
    assert (stream.go_back_to, stream.leader_epoch, stream.starts_anew) == (40, None, True)
    assert setup.duplicates == [60]
    assert stream.read_offset == 120  # until all that was read is safe


async def test_above_the_log_end_leader_epochs_are_checked_first_and_may_decide():
    stream = new_stream(read_offset=120)
    stream.offsets.epochs = LeaderEpochs([EpochStart(0, 0)])
    setup = Setup(stream, Source(start=40, end=100))
    setup.on_check = lambda: setattr(stream, "leader_epoch", None)
    await setup.gaps.resolve_out_of_range([TP])
    assert setup.checked == [TP]
    assert setup.losses.written == []


async def test_a_position_within_the_bounds_of_now_is_read_on():
    stream = new_stream(read_offset=50)
    setup = Setup(stream)
    await setup.gaps.resolve_out_of_range([TP])
    assert setup.losses.written == []
    assert stream.read_offset == 50


async def test_a_session_that_started_elsewhere_while_the_loss_was_written_is_not_moved():
    stream = new_stream(read_offset=10)
    setup = Setup(stream, Source(start=40), losses=Losses(lambda one: one.read_from(3)))
    await setup.gaps.resolve_out_of_range([TP])
    assert stream.read_offset == 3
    assert setup.period.considered == []


async def test_bounds_that_are_unknown_have_the_partition_back_off():
    stream = new_stream(read_offset=10)
    setup = Setup(stream, Source(unknown={TP: "NOT_LEADER_OR_FOLLOWER"}))
    await setup.gaps.resolve_out_of_range([TP])
    assert setup.problems == {"readings-0 source": "NOT_LEADER_OR_FOLLOWER"}
    assert stream.rest_until > 0
    assert stream.read_offset == 10


async def test_a_partition_that_was_dropped_meanwhile_is_left_out():
    setup = Setup(new_stream())
    await setup.gaps.resolve_out_of_range([TP._replace(partition=7)])
    assert setup.losses.written == []
