"""`__edge_ledger` of a cluster: made by its controller, and told what boards keep in their journals.

| the topic | is made |
|---|---|
| by whom | the controller, without being asked; no client makes it |
| when | as many brokers are there as `default.replication.factor` says, and all of them know that it is the cluster's |
| how | one partition, `default.replication.factor` replicas, never compacted and never expired, always synced |

Contains: also a request of entries from the journal to the leader's response, if this broker is the leader.
Does not contain: when entries are forwarded (cluster/ledger_forwarding.py), sockets.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from drupelet.ledger import LEDGER_CONFIG, LEDGER_TOPIC
from edge_broker.broker.cluster.ledger_entries import take_entries
from edge_broker.broker.operations.cold_reads import DamageMet, read_through
from edge_broker.broker.operations.topic_creation import NewTopic, create, default_factor, replicated_config
from edge_broker.broker.outcomes import Outcome, Reply, RunInWorker
from edge_broker.cluster.inter_broker_messages import EntriesTaken, ForwardEntries
from edge_broker.cluster.member import LEDGER
from edge_broker.cluster.state.cluster_state import ONE_LEDGER_SINCE
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.storage.loss.ledger_journal import JournalBatch, forget, read_entries
from edge_broker.storage.segment.segment import DamageFound
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.broker.broker import Broker
    from edge_broker.broker.cluster_port import ClusterReads

PAUSE_MS = 1_000.0

Tell = Callable[[EntriesTaken], None]


def ledger_topic(broker: Broker) -> NewTopic:
    """How `__edge_ledger` is made in a cluster."""
    factor = default_factor(broker)
    return NewTopic(LEDGER_TOPIC, 1, replicated_config(broker, LEDGER_CONFIG, factor), factor)


class LedgerMaking:
    """Makes the topic where this broker is the controller; `tick` is called several times a second."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._due_ms = 0.0

    def tick(self, now_ms: float) -> None:
        """Begin to make it, if it is due."""
        broker = self._broker
        if broker.cluster is None or now_ms < self._due_ms or not _is_due(broker, broker.cluster.view):
            return
        self._due_ms = now_ms + PAUSE_MS
        broker.effects.start(self._make())

    def _make(self) -> Outcome:
        return create(self._broker, [ledger_topic(self._broker)], retry=self._make, then=self._creation_completed)

    def _creation_completed(self, errors: dict[str, Refusal]) -> Outcome:
        refusal = errors.get(LEDGER_TOPIC)
        if refusal is not None and refusal.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            self._broker.effects.note(f"{LEDGER_TOPIC} could not be made: {refusal.message}; it is tried again")
        return Reply(None)


def _is_due(broker: Broker, view: ClusterReads) -> bool:
    if not (view.serves and view.member.controller.holds) or LEDGER_TOPIC in view.topics:
        return False
    if LEDGER_TOPIC in broker.topics.changing:
        return False
    there = view.member.registrations.values()
    return len(there) >= default_factor(broker) and all(each.protocols[1] >= ONE_LEDGER_SINCE for each in there)


class JournalOf:
    """A broker's journal, for who decides when it is forwarded; whatever comes in its log's place."""

    def __init__(self, broker: Broker) -> None:
        self._store = broker.store

    @property
    def waits(self) -> bool:
        """Whether it has entries that are synced, and can be read."""
        log = self._store.ledger_log
        return log.log_start_offset < log.high_watermark and log.fault is None


class Reading:
    """Reads what is to be forwarded; `fault` says why it cannot be read."""

    def __init__(self, broker: Broker) -> None:
        assert broker.store.directory.registrations is not None, "a board that stands alone has no journal"
        self._log, self._directory = broker.store.ledger_log, broker.store.directory.registrations.directory
        self.found = JournalBatch(b"", 0)
        self.fault: Exception | None = None

    @runs_in("reader")
    def work(self) -> DamageMet | None:
        """As read_through asks for it."""
        try:
            if self.fault is None:
                self.found = read_entries(self._log, self._directory)
        except DamageFound as found:
            return self._log, found
        except (StorageFault, Refusal) as error:
            self.fault = error
        return None

    def quarantine_failed(self, _met: DamageMet, fault: StorageFault) -> None:
        """Damage that could not be recorded."""
        self.fault = fault


def forward(broker: Broker, to: int, turn: int, send: Callable[[ForwardEntries], None], report: Tell) -> Outcome:
    """Read the oldest entries of the journal, and have them taken: by this broker, or by the one that `send` reaches.

    `report` gets what is known here; another broker's answer comes by the way that `send` has.
    """
    reading = Reading(broker)

    def read() -> Outcome:
        batch, end_offset, left_out = reading.found
        message = ForwardEntries(LEDGER, broker.node_id, turn, end_offset, batch)
        if reading.fault is not None:
            broker.effects.note(f"the journal of {LEDGER_TOPIC} cannot be read: {reading.fault}")
            report(message.answer(ErrorCode.KAFKA_STORAGE_ERROR))
            return Reply(None)
        if left_out:
            broker.effects.note(f"{left_out} records of the journal are no ledger records, and are not forwarded")
        if not batch:  # the journal may still let go of what is none
            report(message.answer(ErrorCode.NONE))
        elif to != broker.node_id:
            send(message)
        else:
            return take(broker, message, report)
        return Reply(None)

    return read_through(broker.effects, reading.work, read, reading.quarantine_failed)


def take(broker: Broker, message: ForwardEntries, report: Tell) -> Outcome:
    """Have entries taken by this broker, if it leads."""

    def entries_taken(error: ErrorCode) -> Outcome:
        report(message.answer(error))
        return Reply(None)

    return take_entries(broker, memoryview(bytearray(message.records)), entries_taken)


def release_forwarded(broker: Broker, end_offset: int, told: Callable[[bool], None]) -> Outcome:
    """Let the journal go of what the cluster has; `told` gets whether it did."""
    log, now = broker.store.ledger_log, broker.time.now()

    def done(ok: bool, _: object) -> Outcome:
        told(ok)
        return Reply(None)

    def release_failed(error: Exception) -> Outcome:
        broker.effects.note(f"the journal of {LEDGER_TOPIC} keeps what was forwarded: {error}")
        return done(False, None)

    return RunInWorker(lambda: forget(log, end_offset, now), partial(done, True), release_failed, background=True)
