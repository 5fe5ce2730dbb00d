"""The judge of a cluster's history: a sound one passes, and each way of breaking it is found by what it breaks."""

import pytest

from tests.support.cluster_history import (
    ALL,
    Acked,
    AckedCommit,
    FetchedCommit,
    History,
    LedgeredLoss,
    Sent,
    Shown,
    Stored,
    sent_anew,
    violations,
)

PLACE = ("readings", 0)
OFFSETS = ("__consumer_offsets", 0)
LOG = {
    0: Stored("a-1", 1, sent=Sent(7, 0, 0)),
    1: Stored("b-1", 1),
    2: Stored("a-2", 3, sent=Sent(7, 0, 1)),
    3: Stored("b-2", 3),
}
GROUP = Stored("committed", 2, "key")


def sound():
    """Three boards, one failover between epochs 1 and 3; b is at acks=1 and lost a record of epoch 2 at offset 2."""
    return History(
        acked=[
            Acked(PLACE, 0, "a-1"),
            Acked(PLACE, 1, "b-1", 1, (1, 1)),
            Acked(PLACE, 2, "b-9", 1, (2, 2)),
            Acked(PLACE, 2, "a-2"),
            Acked(PLACE, 3, "b-2", 1, (3, 1 << 31)),
        ],
        shown=[Shown("r1", PLACE, 0, "a-1"), Shown("r2", PLACE, 0, "a-1"), Shown("r2", PLACE, 2, "a-2")],
        committed=[AckedCommit(1, 2, "g", PLACE, 1), AckedCommit(4, 5, "g", PLACE, 3)],
        found=[FetchedCommit(3, "g", PLACE, 1), FetchedCommit(4, "g", PLACE, 3), FetchedCommit(6, "g", PLACE, 3)],
        logs={
            PLACE: {board: dict(LOG) for board in (1, 2, 3)},
            OFFSETS: {1: {5: GROUP}, 2: {4: GROUP, 5: GROUP}, 3: {}},
        },
        in_sync={PLACE: {1, 2, 3}, OFFSETS: {1, 2, 3}},
        ledger=[LedgeredLoss(1, "truncated", PLACE, 2, 2, 2)],
        compacted={"__consumer_offsets"},
    )


def test_a_sound_history_passes():
    assert violations(sound()) == []


def test_an_empty_history_passes():
    assert violations(History()) == []


def without(history, offset, *boards):
    for board in boards:
        del history.logs[PLACE][board][offset]


def lose_what_acks_all_answered(history):
    without(history, 2, 1, 2, 3)
    history.shown.pop()


def lose_it_on_one_replica(history):
    history.shown.pop()
    history.logs[PLACE][3][2] = Stored("b-9", 2)


def lose_the_end_on_one_replica(history):
    history.acked.pop()
    without(history, 3, 2)


def lose_a_duplicate_on_one_replica(history):
    history.acked[3] = history.acked[3]._replace(offset=None)
    lose_it_on_one_replica(history)


def lose_what_was_shown(history):
    history.shown.append(Shown("r1", PLACE, 4, "c-1"))


def show_two_records(history):
    history.shown.append(Shown("r1", PLACE, 2, "b-9"))


def answer_twice(history):
    history.acked.append(Acked(PLACE, 2, "c-1"))


def answer_twice_in_an_epoch(history):
    history.acked.append(Acked(PLACE, 2, "c-1", 1, (2, 2)))


def lose_without_a_word(history):
    history.ledger.clear()


def ledger_of(**changes):
    def change(history):
        history.ledger = [entry._replace(**changes) for entry in history.ledger]

    return change


def stored_behind(*records):
    """All boards have these behind what they hold."""

    def change(history):
        for log in history.logs[PLACE].values():
            log.update(enumerate(records, 4))

    return change


def store_twice(history):
    stored_behind(Stored("a-1", 3))(history)


def store_a_sequence_twice(history):
    stored_behind(Stored("a-2", 3, sent=Sent(7, 0, 1)))(history)


def store_one_that_was_sent_before(history):
    stored_behind(Stored("a-2", 3, sent=Sent(7, 1, 0)), Stored("a-2", 3, sent=Sent(7, 0, 2)))(history)


def store_it_for_another_producer(history):
    stored_behind(Stored("a-2", 3, sent=Sent(8, 0, 0)))(history)


def leave_out_a_sequence(history):
    stored_behind(Stored("a-3", 3, sent=Sent(7, 0, 3)))(history)


def store_out_of_order(history):
    stored_behind(Stored("c-2", 3), Stored("c-1", 3))(history)


def tell_an_older_commit(history):
    history.found.append(FetchedCommit(6, "g", PLACE, 1))


def tell_no_commit(history):
    history.found.append(FetchedCommit(3, "g", PLACE, 0))


def commit_backwards(history):
    history.committed.append(AckedCommit(7, 8, "g", PLACE, 2))


def leave_the_in_sync_set(history):
    history.in_sync[PLACE] = {1, 2}


def know_no_in_sync_set(history):
    del history.in_sync[OFFSETS]


def differ_in_epoch(history):
    history.logs[PLACE][2][1] = Stored("b-1", 2)


def differ_in_the_group(history):
    history.logs[OFFSETS][2][5] = GROUP._replace(value="other")


def have_one_more(history):
    history.logs[PLACE][2][4] = Stored("b-3", 3)


def give_up(history):
    history.given_up.append("a-7: timed out")


BROKEN = {
    lose_what_acks_all_answered: "readings-0 offset 2 was answered at acks=all as 'a-2'",
    lose_it_on_one_replica: "readings-0 offset 2 was answered at acks=all as 'a-2'",
    lose_a_duplicate_on_one_replica: "'a-2' was answered as a duplicate in readings-0, and boards [3] lack it",
    lose_the_end_on_one_replica: "readings-0: boards lack offsets that others hold: {2: [3]}",
    lose_what_was_shown: "readings-0 offset 4 was shown to r1 as 'c-1', boards hold",
    show_two_records: "readings-0 offset 2 was shown to r2 as 'a-2', to r1 as 'b-9'",
    answer_twice: "readings-0 offset 2 was answered for 'a-2' and for 'c-1'",
    answer_twice_in_an_epoch: "readings-0 offset 2 was answered for 'b-9' and for 'c-1'",
    lose_without_a_word: "readings-0 offset 2 was answered at acks=1 in epochs (2, 2) as 'b-9'",
    ledger_of(leader_epoch=1): "no ledger has it",
    ledger_of(cause="evicted"): "no ledger has it",
    ledger_of(place=("readings", 1)): "no ledger has it",
    ledger_of(first_offset=3, last_offset=None): "no ledger has it",
    ledger_of(first_offset=0, last_offset=1): "no ledger has it",
    store_twice: "'a-1' is stored twice: readings-0 offset 0 and readings-0 offset 4",
    store_a_sequence_twice: "offset 4 holds 'a-2' as sequence 1 of producer 7 epoch 0, where 2 was due",
    store_one_that_was_sent_before: "'a-2' is stored twice: readings-0 offset 4 and readings-0 offset 5",
    store_it_for_another_producer: "'a-2' is stored twice: readings-0 offset 2 and readings-0 offset 4",
    leave_out_a_sequence: "offset 4 holds 'a-3' as sequence 3 of producer 7 epoch 0, where 2 was due",
    store_out_of_order: "readings-0 offset 5 holds 'c-1' behind number 2",
    tell_an_older_commit: "group g of readings-0 was answered 3 as committed, then told 1",
    tell_no_commit: "group g of readings-0 was answered 1 as committed, then told 0",
    commit_backwards: "group g of readings-0 was answered 3 as committed, then committed 2",
    leave_the_in_sync_set: "readings-0 is in sync on {1, 2}",
    know_no_in_sync_set: "__consumer_offsets-0 is in sync on None",
    differ_in_epoch: "readings-0 offset 1 is Stored(value='b-1', leader_epoch=1",
    differ_in_the_group: "__consumer_offsets-0 offset 5 is Stored(value='committed'",
    have_one_more: "readings-0: boards lack offsets that others hold: {1: [4], 3: [4]}",
    give_up: "a producer gave up: a-7: timed out",
}


def test_a_duplicate_that_is_stored_passes():
    history = sound()
    history.acked.append(Acked(PLACE, None, "a-1"))
    assert violations(history) == []


def test_what_a_producer_sent_under_its_next_epoch_is_told_and_passes():
    history = sound()
    assert sent_anew(history) == []
    stored_behind(Stored("a-1", 3, sent=Sent(7, 1, 0)), Stored("a-2", 3, sent=Sent(7, 1, 1)))(history)
    assert violations(history) == []
    again, _ = sent_anew(history)
    assert again.startswith("'a-1' was sent as Sent(producer_id=7, producer_epoch=0, sequence=0) to readings-0")


@pytest.mark.parametrize(("break_it", "sentence"), BROKEN.items())
def test_each_broken_history_is_found(break_it, sentence):
    history = sound()
    break_it(history)
    assert any(sentence in found for found in violations(history)), violations(history)


@pytest.mark.parametrize(
    "changes",
    [{"leader_epoch": None}, {"cause": "unsynced_cut"}, {"first_offset": 0, "last_offset": None}, {"board": 3}],
)
def test_an_entry_that_may_mean_a_record_covers_it(changes):
    history = sound()
    ledger_of(**changes)(history)
    assert violations(history) == []


def test_an_epoch_that_is_not_known_to_one_is_between_two():
    history = sound()
    history.acked[2] = history.acked[2]._replace(epochs=(1, 2))
    assert violations(history) == []
    history.ledger = [history.ledger[0]._replace(leader_epoch=3)]
    assert violations(history) != []


def test_what_acks_all_was_answered_for_is_never_excused_by_a_ledger():
    history = sound()
    history.acked[2] = history.acked[2]._replace(acks=ALL, epochs=None)
    assert any("acks=all as 'b-9'" in found for found in violations(history))
