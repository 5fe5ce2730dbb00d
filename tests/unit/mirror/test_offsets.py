from __future__ import annotations

import pytest

from mirror.epochs import EpochStart
from mirror.offsets import Commit, PartitionOffsets, read_commit


def begun(offset=0, window=100, target_end=0):
    offsets = PartitionOffsets(offset)
    offsets.know_target_end(target_end)
    offsets.stored(offsets.next_commit(window))
    return offsets


def resumed(commit, window=100):
    offsets = PartitionOffsets.resume(commit)
    assert offsets.reserved == offsets.position, "the next life must learn first that we send it once more"
    offsets.stored(offsets.next_commit(window))
    return offsets


def test_nothing_may_be_sent_before_the_first_commit():
    offsets = PartitionOffsets(7)
    assert offsets.reserved == 7
    assert offsets.wants_commit(100)
    with pytest.raises(AssertionError, match="beyond"):
        offsets.send(8, 1)


def test_a_commit_without_the_target_end_reserves_nothing_once_the_end_is_known():
    offsets = PartitionOffsets(0)
    offsets.stored(offsets.next_commit(10))
    offsets.know_target_end(5)
    assert offsets.reserved == 0
    assert offsets.wants_commit(10)
    offsets.stored(offsets.next_commit(10))
    assert offsets.reserved == 10


def test_acknowledged_records_are_committed_and_reserve_more():
    offsets = begun(window=10)
    offsets.send(10, 10)
    assert offsets.next_commit(10) is None
    offsets.ack(0)
    assert offsets.next_commit(10) == Commit(10, 20, 10)
    assert offsets.wants_commit(10)


def test_a_clean_stop_promises_nothing_ahead():
    offsets = begun(window=10)
    offsets.send(4, 4)
    offsets.ack(0)
    assert offsets.last_commit() == Commit(4, 4, 4)


def test_what_is_under_way_at_a_stop_is_in_the_last_commit():
    offsets = begun(window=10)
    offsets.send(4, 4)
    assert offsets.last_commit() == Commit(0, 4, 0)


def test_records_found_at_the_target_after_a_kill_are_counted_once():
    offsets = resumed(Commit(100, 200, target_end=1000))
    for end, base, duplicates in ((130, 1050, 30), (160, 1080, 20), (190, 1110, 0)):
        offsets.send(end, 30)
        assert offsets.ack(base).duplicates == duplicates


def test_strangers_beyond_what_was_promised_are_not_ours():
    offsets = resumed(Commit(100, 110, target_end=1000))
    offsets.send(150, 50)
    assert offsets.ack(5000).duplicates == 10
    offsets.send(160, 10)
    assert offsets.ack(9000).duplicates == 0


def test_what_a_life_met_in_part_is_counted_by_the_next():
    offsets = begun(window=8)
    offsets.send(8, 8)  # arrives, and the mirror is killed
    offsets = resumed(offsets.committed, window=8)
    offsets.send(5, 5)
    assert offsets.ack(8).duplicates == 5
    offsets.stored(offsets.next_commit(8))  # and is killed again: of 5, 6 and 7 one copy lies below, not at, the end
    offsets = resumed(offsets.committed, window=8)
    offsets.send(10, 5)
    assert offsets.ack(13).duplicates == 3


def test_several_batches_are_safe_in_their_order():
    offsets = begun()
    offsets.send(20, 20)
    offsets.send(40, 15)
    offsets.skip(50)
    offsets.ack(0)
    assert (offsets.acked, offsets.position) == (20, 50)
    offsets.ack(20)
    assert (offsets.acked, offsets.position, offsets.target_end) == (50, 50, 35)


def test_what_is_taken_back_is_sent_again_and_no_duplicate():
    offsets = begun()
    offsets.send(20, 20)
    offsets.send(40, 20)
    offsets.ack(0)
    offsets.take_back()
    assert (offsets.acked, offsets.position) == (20, 20)
    offsets.send(40, 20)
    assert offsets.ack(20).duplicates == 0


def test_without_the_target_end_the_promised_part_of_each_batch_counts():
    offsets = resumed(Commit(100, 150))
    counted = []
    for end, base in ((120, 0), (140, 20), (160, 40)):
        offsets.send(end, 20)
        counted.append(offsets.ack(base).duplicates)
        offsets.stored(offsets.next_commit(100))
    assert counted == [20, 20, 10]


def test_what_two_lives_sent_is_counted_twice():
    offsets = resumed(Commit(100, 110, target_end=0, sent_times=2))
    assert offsets.committed.sent_times == 3
    offsets.send(110, 10)
    assert offsets.ack(20).duplicates == 20


def test_an_answer_without_an_offset_counts_the_whole_batch_if_it_may_be_there():
    offsets = begun()
    offsets.send(10, 10)
    offsets.restart()
    offsets.stored(offsets.next_commit(100))
    offsets.send(20, 20)
    assert offsets.ack(None).duplicates == 10


def test_a_target_that_went_back_is_noticed():
    offsets = begun(target_end=500)
    offsets.send(10, 10)
    assert offsets.ack(450).target_lost == 50


def test_a_rewind_counts_all_that_is_sent_again():
    offsets = PartitionOffsets.rewind(20, 50, target_end=80)
    offsets.stored(offsets.next_commit(10))
    assert offsets.committed == Commit(20, 50, 50, 2), "the next life is to count all 30, too"
    offsets.send(50, 30)
    assert offsets.ack(80).duplicates == 30


def test_explained_offsets_are_skipped():
    offsets = begun(10)
    offsets.skip(15)
    assert (offsets.acked, offsets.position) == (15, 15)


LONGEST = Commit(2**62, 2**62, 2**62, 2**31, "x" * 22, EpochStart(2**62 - 1, 2**31 - 1))


@pytest.mark.parametrize(
    "commit",
    [
        Commit(5, 9, 77),
        Commit(5, 5),
        Commit(0, 2**62, 2**62),
        Commit(5, 9, 77, 1, "f0zPYpr-QZGYZzyz7SdtyA"),
        Commit(5, 9, 77, 1, None, EpochStart(0, 0)),
        LONGEST,
    ],
)
def test_metadata_survives_the_trip(commit):
    assert read_commit(commit.offset, commit.metadata()) == commit
    assert len(commit.metadata()) < 250


def test_the_keys_of_an_older_version_are_as_they_were():
    assert Commit(5, 9, 77).metadata() == '{"version":1,"sent_up_to":9,"target_end":77,"sent_times":1}'


@pytest.mark.parametrize(
    ("keys", "epoch"),
    [
        ('"leader_epoch":3,"epoch_start":1', EpochStart(1, 3)),
        ('"leader_epoch":3', EpochStart(4, 3)),
        ('"leader_epoch":3,"epoch_start":5', EpochStart(4, 3)),
        ('"leader_epoch":"3"', None),
        ('"epoch_start":1', None),
    ],
)
def test_an_epoch_is_of_the_record_below_the_offset(keys, epoch):
    assert read_commit(5, '{"version":1,"sent_up_to":9,' + keys + "}").epoch == epoch


def test_a_commit_tells_the_epoch_of_the_last_record_that_is_safe():
    offsets = begun(window=100)
    offsets.topic_id = "id"
    offsets.epochs.note(0, 1)
    offsets.epochs.note(20, 2)
    assert offsets.last_commit().epoch is None
    offsets.send(20, 20)
    offsets.ack(0)
    assert offsets.last_commit() == Commit(20, 20, 20, 1, "id", EpochStart(0, 1))
    offsets.send(30, 10)
    offsets.ack(20)
    assert offsets.last_commit() == Commit(30, 30, 30, 1, "id", EpochStart(20, 2))


def test_what_comes_in_place_of_lost_records_is_sent_once_more_and_no_duplicate():
    offsets = resumed(Commit(100, 200, 1000, 1, "id", EpochStart(90, 2)))
    back = offsets.gone_back(80)
    assert (back.acked, back.position, back.target_end, back.topic_id) == (80, 80, 1000, "id")
    assert back.reserved == 80, "the commit must go back first"
    assert back.epochs.below(80) is None
    back.stored(back.next_commit(100))
    back.send(120, 40)
    assert back.ack(1060).duplicates == 0


@pytest.mark.parametrize(
    "text", ["", "null", "[1]", "{", '{"version":2,"sent_up_to":9}', '{"version":1}', '{"version":1,"sent_up_to":4}']
)
def test_foreign_metadata_counts_as_none(text):
    assert read_commit(5, text) == Commit(5, 5)
