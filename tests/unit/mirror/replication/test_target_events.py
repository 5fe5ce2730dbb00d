"""What the sender and the sessions report: counted, logged, and passed to its owner."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mirror.partition.provenance import Origin
from mirror.partition.send_state import GONE
from mirror.partition.stream import Memory
from mirror.replication.target_events import TargetEvents
from mirror.status.metrics import Metrics
from mirror.status.rates import Progress
from tests.unit.mirror.replication.parts import TP, Period, Problems, new_stream


class Setup:
    def __init__(self, *streams):
        self.metrics, self.memory, self.period, self.problems = Metrics(), Memory(), Period(), Problems()
        self.refusals, self.committed, self.synced, self.created = [], [], [], []
        self.registry = SimpleNamespace(streams={one.partition: one for one in streams}, must_check=False)
        self.period.sessions = SimpleNamespace(topic_made=self.created.append)
        self.events = TargetEvents(
            self.registry, self.period, SimpleNamespace(others_s=4.0), self.memory, self.metrics, Progress(),
            committer=SimpleNamespace(position_changed=self.committed.append),
            config_sync=SimpleNamespace(topic_created=lambda stream, settings: self.synced.append((stream, settings))),
            initial_position=SimpleNamespace(find="find"), refused_records=SimpleNamespace(resolve="resolve"),
            report_problem=self.problems.report, refuse=self.refusals.append,
        )  # fmt: skip

    def value(self, name, *labels):
        metric = getattr(self.metrics, name)
        return (metric.labels(*labels) if labels else metric)._value.get()


def test_an_acknowledged_batch_is_counted_by_records_and_bytes():
    stream, setup = new_stream(), Setup()
    packed = SimpleNamespace(records=3, payload_bytes=50, batch=b"x" * 20)
    setup.events.batch_acked(stream, SimpleNamespace(packed=packed))
    assert setup.value("records", "readings", "0") == 3
    assert setup.value("bytes", "readings", "0") == 50
    assert setup.value("sent") == 20


@pytest.mark.parametrize("lost", [0, 5])
def test_a_session_that_has_started_has_positions_checked(lost, caplog):
    setup = Setup()
    setup.events.session_started(new_stream(), lost)
    assert setup.registry.must_check
    assert setup.memory.room.is_set()
    assert setup.value("target_lost") == lost
    assert ("target_lost" in caplog.text) == bool(lost)


def test_duplicates_transactions_and_lost_connections_are_counted():
    setup = Setup()
    setup.events.records_doubled(new_stream(), 7)
    setup.events.transaction_ended("committed")
    setup.events.connection_lost()
    assert setup.value("duplicates") == 7
    assert setup.value("transactions", "committed") == 1
    assert setup.value("restarts", "target") == 1


def test_a_stream_sends_what_waited_for_the_state_topic_unless_it_was_dropped():
    stream, gone, setup = new_stream(), new_stream(), Setup()
    gone.send_state = GONE
    setup.events.state_stored(stream)
    setup.events.state_stored(gone)
    assert setup.period.considered == [stream]


def test_the_first_reason_for_which_another_mirror_fenced_this_one_stays():
    setup = Setup()
    setup.events.mirror_fenced("INVALID_PRODUCER_EPOCH")
    setup.events.mirror_fenced("later")
    assert setup.events.fenced_by == "INVALID_PRODUCER_EPOCH"
    assert setup.memory.room.is_set()


def test_a_lost_state_topic_is_a_note_of_health():
    setup = Setup()
    setup.events.state_topic_lost("__edge-mirror-lab-state")
    setup.events.state_topic_lost("__edge-mirror-lab-state")
    [note] = setup.events.notes
    assert note.startswith("__edge-mirror-lab-state was deleted at the target")


def test_a_topic_that_the_mirror_created_under_another_name_is_its_own(caplog):
    stream, same_name, other = new_stream(), new_stream(TP._replace(partition=1)), new_stream(TP._replace(topic="logs"))
    same_name.target_topic = "readings"
    for one in (stream, same_name, other):
        one.origin = Origin(frozenset({"source-id"}))._replace(is_alone=False)
    setup = Setup(stream, same_name, other)
    with caplog.at_level("INFO"):
        setup.events.topic_created(stream, {"cleanup.policy": "delete"})
    assert [one.origin.is_alone for one in (stream, same_name, other)] == [True, False, False]
    assert setup.created == ["lab.readings"]
    assert setup.synced == [(stream, {"cleanup.policy": "delete"})]
    assert "topic_created" in caplog.text


def test_other_reports_go_to_their_owners():
    stream, setup = new_stream(), Setup()
    setup.events.report_problem("target", "away")
    setup.events.refuse("one cluster")
    setup.events.offsets_changed(stream)
    assert setup.problems == {"target": "away"}
    assert setup.refusals == ["one cluster"]
    assert setup.committed == [stream]
    assert (setup.events.place, setup.events.refused_record, setup.events.others_s) == ("find", "resolve", 4.0)
