"""The mirror's positions against a source that loses its end again and again, under any order of events.

Invariants, for every sequence of appends, lost ends, batches, commits, clean stops and kills, judged by the tables in
`mirror/partition/leader_epochs.py`:
1. When the mirror has caught up, every record that the source still has is at the target.
2. Only what lies behind a loss is sent again: without a kill no record of the final log is there twice.
3. A position that nothing was lost below is never taken back.
"""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mirror.partition.leader_epochs import EpochEnd, classify_standing, resume_offset
from mirror.partition.source_offsets import PartitionOffsets, read_commit

ID = "f0zPYpr-QZGYZzyz7SdtyA"


class Source:
    """One log, (leader epoch, own number) per record; an unclean start raises the epoch, and may lose an end."""

    def __init__(self):
        self.log, self.epoch, self.made = [], 0, 0

    def append(self, count):
        for _ in range(count):
            self.log.append((self.epoch, self.made))
            self.made += 1

    def start_uncleanly(self, lost):
        del self.log[max(0, len(self.log) - lost) :]
        self.epoch += 1

    def epoch_end(self, epoch):
        if epoch > self.epoch:
            return EpochEnd(-1, -1)
        above = [offset for offset, (known, _) in enumerate(self.log) if known > epoch]
        end = above[0] if above else len(self.log)
        return EpochEnd(max((known for known, _ in self.log[:end]), default=epoch), end)


class Mirror:
    """Reads, sends and commits as the replicator does, one step at a time."""

    def __init__(self, source):
        self.source, self.target, self.group = source, [], None
        self.begin()

    def begin(self):
        self.offsets = PartitionOffsets(0) if self.group is None else PartitionOffsets.resume(read_commit(*self.group))
        if self.group is None:
            self.offsets.topic_id = ID
        self.under = None

    def judge(self):
        """Let the position stand, or take it back, until it stands under the source's epoch of now."""
        while self.under != self.source.epoch:
            position, epochs = self.offsets.position, self.offsets.epochs
            verdict = classify_standing(
                position, self.offsets.topic_id, epochs, source_topic_id=ID, source_epoch=self.source.epoch
            )
            to, answered = position, -1
            if verdict == "ask":
                answer = self.source.epoch_end(epochs.below(position).leader_epoch)
                answered = answer.leader_epoch
                to = resume_offset(position, epochs, answer, source_epoch=self.source.epoch, log_start=0)
            if to == position:
                self.under = self.source.epoch
            else:
                assert self.target_differs_at(to), "taken back below what both have"
                self.offsets = self.offsets.gone_back(to, answered)

    def target_differs_at(self, offset):
        return self.sent_as.get(offset) != (self.source.log[offset] if offset < len(self.source.log) else None)

    @property
    def sent_as(self):
        return dict(self.target)

    def commit(self):
        commit = self.offsets.next_commit()
        if commit is not None:
            self.group = (commit.offset, commit.metadata())
            self.offsets.commit_stored(commit)

    def work(self, count):
        self.judge()
        position = self.offsets.position
        end = min(position + count, len(self.source.log))
        if end <= position:
            return
        for offset in range(position, end):
            self.offsets.epochs.note(offset, self.source.log[offset][0])
        self.offsets.send(end)
        self.target += [(offset, self.source.log[offset]) for offset in range(position, end)]
        self.offsets.ack(len(self.target))

    def stop(self, killed):
        """Go on by the commit, as one that has lost its state; after a kill by the state, which has it all."""
        if not killed:
            self.commit()
            self.begin()
            return
        before = self.offsets
        self.offsets = PartitionOffsets(before.acked, target_end=before.target_end)
        self.offsets.topic_id, self.offsets.epochs = ID, before.epochs
        self.under = None


events = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 9)),
    st.tuples(st.just("lose"), st.integers(0, 12)),
    st.tuples(st.just("work"), st.integers(1, 9)),
    st.tuples(st.just("commit"), st.just(0)),
    st.tuples(st.just("stop"), st.just(0)),
    st.tuples(st.just("kill"), st.just(0)),
)


@given(st.lists(events, max_size=60))
@example(  # a commit knows one epoch: what a first loss was answered has to do for the second one
    [
        ("append", 1),
        ("lose", 0),
        ("append", 2),
        ("work", 2),
        ("stop", 0),
        ("lose", 2),
        ("work", 1),
        ("lose", 1),
    ]
)
@settings(max_examples=500, deadline=None)
def test_what_the_source_has_in_the_end_is_at_the_target(steps):
    source = Source()
    mirror = Mirror(source)
    for name, count in steps:
        match name:
            case "append":
                source.append(count)
            case "lose":
                source.start_uncleanly(count)
            case "work":
                mirror.work(count)
            case "commit":
                mirror.commit()
            case _:
                mirror.stop(name == "kill")
    for _ in range(40 + len(source.log)):
        mirror.work(9)
        mirror.commit()
    assert mirror.offsets.position == len(source.log)
    there = [record for _, record in mirror.target]
    assert set(source.log) <= set(there)
    assert len(there) == len(set(there))
