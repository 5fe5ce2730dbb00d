from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.partition.leader_epochs import EpochStart
from mirror.partition.source_offsets import PASSED_OVER_MAX, Commit, PartitionOffsets, read_commit


def test_several_batches_are_safe_in_their_order():
    offsets = PartitionOffsets(0)
    offsets.send(20)
    offsets.send(40)
    offsets.skip(50)
    offsets.ack(120)
    assert (offsets.acked, offsets.position, offsets.target_end) == (20, 50, 120)
    offsets.ack(140)
    assert (offsets.acked, offsets.position, offsets.target_end) == (50, 50, 140)


def test_what_is_taken_back_is_sent_again():
    offsets = PartitionOffsets(0)
    offsets.send(20)
    offsets.send(40)
    offsets.ack(20)
    offsets.requeue()
    assert (offsets.acked, offsets.position) == (20, 20)


def test_a_commit_is_made_once_or_again_where_it_would_be_forgotten():
    offsets = PartitionOffsets(7)
    offsets.send(9)
    offsets.ack(2)
    commit = offsets.next_commit()
    assert commit == Commit(9, 9, 2)
    offsets.commit_stored(commit)
    assert offsets.next_commit() is None
    assert offsets.next_commit(repeat=True) == commit


def test_explained_offsets_are_skipped():
    offsets = PartitionOffsets(10)
    offsets.skip(15)
    assert (offsets.acked, offsets.position) == (15, 15)


LONGEST = Commit(2**62, 2**62, 2**62, 2**31, "x" * 22, EpochStart(2**62 - 1, 2**31 - 1), (2**62,) * PASSED_OVER_MAX)


@pytest.mark.parametrize(
    "commit",
    [
        Commit(5, 9, 77),
        Commit(5, 5),
        Commit(0, 2**62, 2**62),
        Commit(5, 9, 77, 1, "f0zPYpr-QZGYZzyz7SdtyA"),
        Commit(5, 9, 77, 1, None, EpochStart(0, 0)),
        Commit(5, 9, 77, passed_over=(7, 1001)),
        LONGEST,
    ],
)
def test_metadata_survives_the_trip(commit):
    assert read_commit(commit.offset, commit.metadata()) == commit
    assert len(commit.metadata()) < 600


@pytest.mark.parametrize("told", ['"7"', "[true]", "[[7]]", "7", "null", '{"7":1}', "[7.5]"])
def test_writers_that_are_no_list_of_numbers_are_none(told):
    assert read_commit(5, f'{{"version":1,"sent_up_to":9,"passed_over":{told}}}') == Commit(5, 9)


def test_the_last_writers_that_were_passed_over_are_read():
    told = ",".join(map(str, range(1000)))
    found = read_commit(5, f'{{"version":1,"sent_up_to":9,"passed_over":[{told}]}}')
    assert found.passed_over == tuple(range(1000 - PASSED_OVER_MAX, 1000))


def test_a_writer_that_is_passed_over_is_committed_though_the_position_stays():
    offsets = PartitionOffsets(7)
    offsets.commit_stored(offsets.next_commit())
    assert offsets.next_commit((5,)) == Commit(7, 7, passed_over=(5,))
    offsets.commit_stored(offsets.next_commit((5,)))
    assert offsets.next_commit((5,)) is None


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
    offsets = PartitionOffsets(0)
    offsets.topic_id = "id"
    offsets.epochs.note(0, 1)
    offsets.epochs.note(20, 2)
    assert offsets.next_commit().epoch is None
    offsets.send(20)
    offsets.ack(20)
    assert offsets.next_commit() == Commit(20, 20, 20, 1, "id", EpochStart(0, 1))
    offsets.send(30)
    offsets.ack(30)
    assert offsets.next_commit() == Commit(30, 30, 30, 1, "id", EpochStart(20, 2))


def test_where_the_source_lost_its_end_nothing_is_known_from_there_on():
    offsets = PartitionOffsets.resume(Commit(100, 200, 1000, 1, "id", EpochStart(90, 2)))
    back = offsets.gone_back(80)
    assert (back.acked, back.position, back.target_end, back.topic_id) == (80, 80, 1000, "id")
    assert back.epochs.below(80) is None
    assert back.next_commit().offset == 80


@pytest.mark.parametrize(
    "text",
    [
        *("", "null", "[1]", "{", '{"version":2,"sent_up_to":9}', '{"version":1}', '{"version":1,"sent_up_to":4}'),
        '{"version":true,"sent_up_to":9}',
    ],
)
def test_foreign_metadata_counts_as_none_and_as_somebody_elses_will(text):
    commit = read_commit(5, text)
    assert commit == Commit(5, 5)
    assert commit.by_hand


def test_true_and_false_are_no_numbers_of_a_commit():
    """Python counts them as 1 and 0."""
    assert read_commit(0, '{"version":1,"sent_up_to":true}') == Commit(0, 0)
    assert read_commit(0, '{"version":1,"sent_up_to":true}').by_hand
    text = '{"version":1,"sent_up_to":9,"target_end":true,"sent_times":false,"leader_epoch":true}'
    assert read_commit(5, text) == Commit(5, 9)


@given(st.integers(0, 2**62), st.integers(0, 10**6), st.one_of(st.none(), st.integers(0, 2**62)), st.text())
def test_any_metadata_is_read_and_ours_survives(offset, ahead, target_end, text):
    commit = Commit(offset, offset + ahead, target_end)
    assert read_commit(offset, commit.metadata()) == commit
    assert read_commit(offset, text).sent_up_to >= offset
