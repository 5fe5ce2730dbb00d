"""Brokers of a cluster in this process: real members over the model of ZooKeeper, real stores and handlers.

    cluster = InCluster(3)                       # boards 1, 2, 3, all of them served
    answer = cluster.ask(1, METADATA, MetadataRequest(topics=None))

What members want done is done at once: there is no network between them but a list, and a board that is `stop`ped is
out of it. Time passes by `settle`, in steps, until nothing moves any more. A board has whole topics on its disk, though
it serves only the partitions that it is a replica of.

Must never come in: what the product's own shell does for speed and for safety (network/cluster/member_runtime.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from edge_broker.broker.cluster.cluster import Cluster
from edge_broker.broker.cluster.ledger_forwarding import JournalOf, LedgerMaking, forward, release_forwarded, take
from edge_broker.broker.operations.groups.deleted_topic_offsets import forget_deleted
from edge_broker.broker.operations.groups.group_loading import lead_offsets, resign_offsets
from edge_broker.cluster import effects
from edge_broker.cluster.effects import Effect
from edge_broker.cluster.inter_broker_messages import ForwardEntries, Message, ReplicaFetched
from edge_broker.cluster.member import ClusterMember, MembershipState
from edge_broker.cluster.partition.partition import Settings
from edge_broker.cluster.state.cluster_state import Identity, PartitionId
from edge_broker.cluster.znodes.zookeeper import Answer, Event
from edge_broker.configuration.settings import Value
from edge_broker.protocol.message import Message as Request
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.metadata.cluster_copy import ClusterCopy, read_cluster_copy, write_cluster_copy
from edge_broker.storage.metadata.topic_record import OFFSETS_TOPIC, id_of, id_text
from edge_broker.storage.replica.reopen_replica import reopen
from edge_broker.storage.replica.replica_log import Replica, begins_before
from edge_broker.storage.replica.replica_truncation import (
    RecordedTruncation,
    enter,
    enter_unknown,
    hold,
    resume_as,
    truncate,
)
from edge_broker.storage.replica.reset_to_leader_start import begin_amid, start_anew
from edge_broker.storage.retention.segment_removal import follow_start
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.loop import Loop
from edge_broker.testing.site import Site
from edge_broker.testing.zookeeper import Ensemble, GoodLinks
from edge_broker.thread_checks import LOOP, running_in

SESSION_MS = 6000
TICK_MS = 100.0
STEP_MS = 10.0
SETTLED_STEPS = 40  # without anything that moves
BYTES_MAX = 1 << 20


class Board:
    """One broker, and what carries out its member's effects."""

    def __init__(
        self,
        cluster: InCluster,
        number: int,
        settings: Mapping[str, Value],
        rack: str | None,
        disk: SimulatedDisk | None = None,
    ) -> None:
        self.cluster, self.number = cluster, number
        self.alive, self.turns = True, 0
        self.site = Site(
            {"broker.id": number, **settings},
            disk=disk,
            loop=cluster.loop,
            in_cluster=True,
            chance=random.Random(number + 1000 * cluster.lives),
        )
        cluster.lives += 1
        registrations = self.site.store.directory.registrations
        assert registrations is not None
        self.member = ClusterMember(
            Identity(number, registrations.directory, registrations.epochs, registrations.cluster),
            Settings(),
            rack,
            (("PLAINTEXT", f"edge{number}.local:9092"),),
            new_cluster="cluster-of-tests",
        )
        self.replicas: dict[PartitionId, Replica] = {}
        self.held: dict[PartitionId, RecordedTruncation] = {}
        self.refused = ""
        self._doing = False
        self.broker = self.site.broker
        self.facade = Cluster(self.member, "PLAINTEXT", self.now_ms, self.carry_out)
        self.broker.join(self.facade, partial(forget_deleted, self.broker))
        self.notes: list[str] = []
        if cluster.shares_security:
            self.broker.security.share(self.facade, self.notes.append)
        self.member.forwarding.journal = JournalOf(self.broker)
        self.member.keep_copy(self._copy())
        self.making = LedgerMaking(self.broker)
        for topic in self.site.store.topics.values():
            for log in topic.partitions:
                if self.site.store.directory.is_replicated(topic.name):
                    self.member.has(PartitionId(topic.name, log.partition), id_text(topic.topic_id))
        self.client = self.site.client()
        dice = random.Random(100 + number)
        self.session = cluster.ensemble.client(self, SESSION_MS, GoodLinks(dice))
        cluster.loop.call_later(TICK_MS / 1000, self._tick)

    def _copy(self) -> ClusterCopy:
        try:
            return read_cluster_copy(self.site.store.fs, self.site.store.data_dir)
        except FileNotFoundError:
            return ClusterCopy()

    def now_ms(self) -> float:
        return self.cluster.loop.time() * 1000

    # what comes in

    def _tick(self) -> None:
        if self.alive:
            self.member.tick(self.now_ms())
            self.facade.tick(self.now_ms())
            self.making.tick(self.now_ms())
            self.carry_out()
            self.cluster.loop.call_later(TICK_MS / 1000, self._tick)

    def answer_received(self, token: int, answer: Answer) -> None:
        if self.alive:
            self.member.answer_received(token, answer, self.now_ms())
            self.carry_out()

    def event_received(self, event: Event) -> None:
        if self.alive:
            self.member.event_received(event, self.now_ms())
            self.carry_out()

    def received(self, message: Message) -> None:
        if self.alive and isinstance(message, ForwardEntries):
            self.broker.effects.start(take(self.broker, message, lambda told: self.cluster.send(message.sender, told)))
            self.site.dispatcher.apply()
        elif self.alive:
            self.member.message_received(message, self.now_ms())
            self.carry_out()

    def stop(self) -> None:
        """The process ends; its session does, too, at once."""
        self.alive = False
        self.session.close()

    # what goes out

    def carry_out(self) -> None:
        """Do all effects, then let waiters look, in a turn of its own where one is under way."""
        if self._doing:
            return
        self._doing = True
        with running_in(LOOP):
            while self.member.effects:
                self.turns += 1
                self._do(self.member.effects.pop(0))
            self.facade.update()
        self._doing = False
        if self.member.effects:
            self.carry_out()
        self.site.dispatcher.apply()

    def _do(self, effect: Effect) -> None:
        member, now_ms = self.member, self.now_ms()
        if isinstance(effect, effects.Ask):
            self.session.ask(effect.token, effect.request)
        elif isinstance(effect, effects.Send):
            self.cluster.send(effect.to, self._with_records(effect.message))
        elif isinstance(effect, effects.Record):
            self.work(lambda: self.site.store.directory.register(effect.epoch, effect.cluster))
            member.epoch_recorded(effect.epoch, now_ms)
        elif isinstance(effect, effects.KeepCopy):
            store = self.site.store
            self.work(lambda: write_cluster_copy(store.fs, store.data_dir, effect.copy))
            member.copy_kept(now_ms, done=True)
        elif isinstance(effect, effects.Contradicts):
            self.refused = effect.sentence
        elif isinstance(effect, effects.Configure):
            self._configure(effect)
        elif isinstance(effect, effects.OpenLog):
            self._open(effect.partition, effect.topic_id)
        elif isinstance(effect, effects.RemoveLog):
            self._remove(effect.partition)
        elif isinstance(effect, effects.Append):
            assert isinstance(effect.records, bytes)
            records, replica = memoryview(bytearray(effect.records)), self.replicas[effect.partition]
            first = begins_before(records, replica.log.state)
            if first is not None:
                assert hold(replica.log)
                batch = records[: first.size]
                resume_as(
                    replica.log,
                    self.work(lambda: begin_amid(self.site.store, replica.log, batch, self.broker.time.now())),
                )
                replica.batches_appended()
                records = records[first.size :]
            if records:
                self.work(lambda: replica.append(records, self.broker.time.now()), "writer")
            self.site.dispatcher.syncer.sync_soon(replica.log)
            self.cluster.loop.call_soon(self._moved, effect.partition)
        elif isinstance(effect, effects.BeginEpoch):
            replica = self.replicas[effect.partition]
            replica.begin_epoch(effect.epoch)
            self.work(replica.keep_epoch, "disk")
            member.epoch_begun(effect.partition, effect.epoch, now_ms)
        elif isinstance(effect, effects.AdvanceHighWatermark):
            replica = self.replicas[effect.partition]
            self.work(lambda: replica.show(effect.high_watermark), "reader")
            self.cluster.loop.call_soon(self.site.dispatcher.logs_moved, replica.log)
        elif isinstance(effect, effects.Leads | effects.LeadershipResigned):
            replica = self.replicas[effect.partition]
            if effect.partition.topic == OFFSETS_TOPIC:
                change = lead_offsets if isinstance(effect, effects.Leads) else resign_offsets
                self.broker.effects.start(change(self.broker, effect.partition.partition))
            self.cluster.loop.call_soon(self.site.dispatcher.logs_moved, replica.log)
        elif isinstance(effect, effects.Enter):
            self._enter(effect)
        elif isinstance(effect, effects.Truncate):
            self._truncate(effect)
        elif isinstance(effect, effects.StartAnew):
            self._start_anew(effect)
        elif isinstance(effect, effects.RemoveFront):
            log = self.log(effect.partition)
            self.work(lambda: follow_start(log, min(effect.start_offset, log.high_watermark), self.broker.time.now()))
        elif isinstance(effect, effects.Reopen):
            self._reopen(effect)
        elif isinstance(effect, effects.Stray):
            self.facade.view.strays.add((effect.topic, effect.topic_id))
        elif isinstance(effect, effects.Forward):
            self._forward(effect)
        elif isinstance(effect, effects.Forget):
            self.broker.effects.start(release_forwarded(self.broker, effect.end_offset, self._forgotten))
        elif not isinstance(effect, effects.ShutdownReady):
            raise AssertionError(f"board {self.number}: {effect}")

    def _enter(self, effect: effects.Enter) -> None:
        """Once nothing is in the way, and if it is still wanted."""
        found, log = self.member.partitions.get(effect.partition), self.log(effect.partition)
        if self.alive and found is not None and effect.losses and effect.losses[0].end_offset is None:
            self.work(lambda: enter_unknown(log, effect.losses[0].epoch, effect.cause))
            self.member.losses_recorded(effect.partition, effect.token, self.now_ms())
            return
        if not self.alive or found is None or found.cutting is None or found.cutting.token != effect.token:
            return
        if effect.partition not in self.held and not hold(log):
            self.cluster.loop.call_later(STEP_MS / 1000, self._enter, effect)
            return
        lost_from = found.cutting.lost_from
        self.held[effect.partition] = self.work(lambda: enter(log, lost_from, effect.cause))
        self.member.losses_recorded(effect.partition, effect.token, self.now_ms())
        self.carry_out()

    def _truncate(self, effect: effects.Truncate) -> None:
        log, entered = self.log(effect.partition), self.held.pop(effect.partition)
        resume_as(log, self.work(lambda: truncate(self.site.store, log, entered, self.broker.time.now())))
        self.member.log_truncated(effect.partition, self.now_ms())
        self.cluster.loop.call_soon(self.site.dispatcher.logs_moved, log)

    def _start_anew(self, effect: effects.StartAnew) -> None:
        partition, start_offset = effect
        log = self.log(partition)
        del self.held[partition]
        resume_as(log, self.work(lambda: start_anew(self.site.store, log, start_offset, self.broker.time.now())))
        self.member.log_truncated(partition, self.now_ms())
        self.cluster.loop.call_soon(self.site.dispatcher.logs_moved, log)

    def _reopen(self, effect: effects.Reopen) -> None:
        replica, now = self.replicas[effect.partition], self.broker.time.now()
        how = partial(reopen, self.site.store, replica.log, now, led_from=replica.led_from)
        found = self.work(partial(how, may_recreate=effect.may_recreate, kept_until=effect.kept_until))
        replica.log.go_on_as(found.log)
        replica.led_from = None
        self.site.dispatcher.is_back(replica.log)
        self.cluster.loop.call_soon(self._reopened, effect.partition)

    def _reopened(self, partition: PartitionId) -> None:
        self.member.log_reopened(partition, self.now_ms())
        self.carry_out()

    def _moved(self, partition: PartitionId) -> None:
        if self.alive:
            self.member.log_moved(partition, self.now_ms())
            self.carry_out()

    def _forward(self, effect: effects.Forward) -> None:
        def send(message: ForwardEntries) -> None:
            self.cluster.send(effect.to, message)

        self.broker.effects.start(forward(self.broker, effect.to, effect.turn, send, self.received))

    def _forgotten(self, done: bool) -> None:
        self.member.entries_forgotten(self.now_ms(), done=done)
        self.carry_out()

    def _with_records(self, message: Message) -> Message:
        if isinstance(message, ReplicaFetched) and message.wants_records:
            replica = self.replicas[message.partition]
            data = self.work(lambda: replica.read(message.fetch_offset, BYTES_MAX, blocking=True), "reader")
            return message._replace(records=bytes(data or b""))
        return message

    def work(self, call: Callable[[], Any], worker: str = "files") -> Any:
        """As a worker does it."""
        with running_in(worker):
            return call()

    def _configure(self, effect: effects.Configure) -> None:
        store = self.site.store
        topic = store.topics.get(effect.topic)
        if topic is not None:
            config = dict(effect.config)
            store.use_config(topic, config, self.work(lambda: store.topic_files.write_config(topic, config)))
            if effect.partitions > len(topic.partitions):
                store.add_partitions(
                    topic, self.work(lambda: store.topic_files.make_partitions(topic, effect.partitions))
                )

    def _open(self, partition: PartitionId, topic_id: str) -> None:
        store, known = self.site.store, self.member.image.topics[partition.topic]
        if partition.topic not in store.topics:
            made = self.work(
                lambda: store.topic_files.make_topic(
                    partition.topic, len(known.replicas), dict(known.config), id_of(topic_id)
                )
            )
            store.add_topic(made)
        self.replicas[partition] = replica = Replica(self.log(partition))
        self.cluster.loop.call_soon(self._opened, partition, topic_id, replica)

    def _opened(self, partition: PartitionId, topic_id: str, replica: Replica) -> None:
        self.member.log_opened(partition, topic_id, replica, self.now_ms())
        self.carry_out()

    def _remove(self, partition: PartitionId) -> None:
        del self.replicas[partition]
        store = self.site.store
        if partition.topic in store.topics:
            topic = store.remove_topic(partition.topic)
            self.broker.effects.offline(topic.partitions)
            self.work(lambda: store.topic_files.erase_topic(topic))
            store.forget_topic(topic)

    def log(self, partition: PartitionId) -> PartitionLog:
        return self.site.store.topics[partition.topic].partitions[partition.partition]


class InCluster:
    """So many boards, numbered from 1, and the ensemble."""

    def __init__(
        self,
        boards: int = 3,
        settings: Mapping[str, Value] | None = None,
        racks: Mapping[int, str] | None = None,
        *,
        shares_security: bool = False,
        disks: Mapping[int, SimulatedDisk] | None = None,
        prepare: Callable[[Ensemble], None] = lambda ensemble: None,
    ) -> None:
        """`shares_security`: users and ACLs are the cluster's, as where its znodes are the brokers' alone.

        `prepare` gets the ensemble before any board does.
        """
        self.loop = Loop()
        self.ensemble = Ensemble(self.loop, random.Random(7), servers=1)
        self.settings, self.racks = settings or {}, racks or {}
        self.shares_security, self._disks = shares_security, disks or {}
        self.boards: dict[int, Board] = {}
        self.lives = 0  # so many boards were begun
        self.dropping = 0  # so many messages like `_dropped` are lost
        self._dropped: Callable[[Message], bool] = lambda message: False
        prepare(self.ensemble)
        for number in range(1, boards + 1):
            self.add(number)
        self.pass_until(lambda: all(each.member.standing is MembershipState.SERVING for each in self.boards.values()))
        self.settle()

    def add(self, number: int, disk: SimulatedDisk | None = None) -> Board:
        """One board more, which is to become a member."""
        disk = disk or self._disks.get(number)
        self.boards[number] = Board(self, number, self.settings, self.racks.get(number), disk)
        return self.boards[number]

    def restart(self, number: int, disk: SimulatedDisk | None = None) -> Board:
        """The board's process ends at once, and begins again: on its own disk, or on another one."""
        old = self.boards[number]
        old.stop()
        self.work()
        old.site.disk.kill()
        return self.add(number, disk or old.site.disk)

    @property
    def alive(self) -> list[Board]:
        """The boards that run."""
        return [board for board in self.boards.values() if board.alive]

    def drop(self, like: Callable[[Message], bool], times: int) -> None:
        """Lose the next messages that are like this."""
        self._dropped, self.dropping = like, times

    def send(self, to: int, message: Message) -> None:
        """From one board to another, at once."""
        board = self.boards.get(to)
        if self.dropping and self._dropped(message):
            self.dropping -= 1
        elif board is not None:
            self.loop.call_later(0.001, board.received, message)

    def work(self) -> None:
        """What loop and workers can do without time passing."""
        for board in self.alive:
            board.site.run_until_idle()

    def pass_until(self, reached: Callable[[], bool], ms_max: float = 60_000) -> None:
        """Let time pass until something holds."""
        end = self.loop.time() + ms_max / 1000
        while not reached():
            assert self.loop.time() < end, "it does not come to hold"
            self.loop.advance(STEP_MS)
            self.work()

    def pass_for(self, ms: float) -> None:
        """Let so much time pass."""
        end = self.loop.time() + ms / 1000
        self.pass_until(lambda: self.loop.time() >= end, ms + STEP_MS)

    def settle(self) -> None:
        """Let time pass until the image of no board has changed for a while."""
        quiet, before = 0, self._seen()
        while quiet < SETTLED_STEPS:
            self.loop.advance(STEP_MS)
            self.work()
            now = self._seen()
            quiet, before = (quiet + 1 if now == before else 0), now

    def _seen(self) -> list[object]:
        return [
            (
                board.member.standing,
                sorted(board.facade.view.broker_ids),
                dict(board.facade.view.topics),
                {each: found.role for each, found in board.member.partitions.items()},
                {each: board.member.state(each) for each in board.member.partitions},
                {each: replica.log.high_watermark for each, replica in board.replicas.items()},
            )
            for board in self.boards.values()
            if board.alive
        ]

    def ask(self, board: int, key: int, request: Request, version: int = -1) -> Any:
        """The answer of one board, time passing until it comes."""
        client = self.boards[board].client
        client.send(key, request, version)
        found: list[Any] = []

        def answered() -> bool:
            found.extend(client.answers())
            return bool(found)

        self.pass_until(answered, 120_000)
        assert len(found) == 1, found
        return found[0]
