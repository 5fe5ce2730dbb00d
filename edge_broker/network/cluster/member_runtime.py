"""A broker as a member of a cluster: its session with ZooKeeper, its links to other brokers, and the clock.

The member receives each event in a turn on the loop. Then its effects are executed, then waiting followers are
checked, then what handlers left. Nothing in this module decides anything.

| effect | who carries it out |
|---|---|
| Ask | zookeeper_client.py |
| Send | link_table.py |
| Record, KeepCopy | the worker `files` |
| Contradicts | the sentence is logged, and the process ends |
| of logs | jobs/replica_jobs.py |
| Leads, LeadershipResigned | group coordinators, who waits |
| Broke | its trace is recorded, its log goes offline |
| Forward, Forget | the journal, broker/cluster/ledger_forwarding.py; link_table.py to another leader |

A bug in one of these, or in what a partition decides, costs its own partition here, which goes offline, so that another
replica may lead it; one in what the member decides, or in what a follower is answered, costs that step. Each leaves its
trace and is counted.

Does not contain: decisions (edge_broker.cluster), kazoo, files.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from drupelet.addresses import endpoint_text
from edge_broker.broker.cluster.cluster import Cluster
from edge_broker.broker.cluster.ledger_forwarding import JournalOf, LedgerMaking, forward, release_forwarded
from edge_broker.broker.operations.groups.deleted_topic_offsets import forget_deleted
from edge_broker.broker.operations.groups.group_loading import lead_offsets, resign_offsets
from edge_broker.broker.operations.unserved import REMEDY, find_unserved
from edge_broker.broker.outcomes import Outcome, Reply, RunInWorker
from edge_broker.cluster import effects
from edge_broker.cluster.effects import Effect
from edge_broker.cluster.inter_broker_messages import EntriesTaken
from edge_broker.cluster.member import ClusterMember
from edge_broker.cluster.partition.partition import LEADS
from edge_broker.cluster.state.cluster_state import NEVER_FULL_MS, Identity, PartitionId
from edge_broker.cluster.znodes.ownership import Users, digest_identity
from edge_broker.cluster.znodes.zookeeper import Answer, Connected, Event, Expired
from edge_broker.configuration.listeners import inter_broker_listener
from edge_broker.errors import ErrorCode, StorageFault
from edge_broker.network.cluster.ensemble_watch import EnsembleWatch
from edge_broker.network.cluster.jobs.replica_jobs import ReplicaJobs
from edge_broker.network.cluster.jobs.replica_space import mark_full_disk
from edge_broker.network.cluster.link_table import LinkTable
from edge_broker.network.cluster.member_credentials import (
    check_nothing_is_secured,
    credentials,
    link_security,
    peers_ca,
)
from edge_broker.network.cluster.member_settings import TICK_S, asked_session_ms, leave_ms_max, member_settings
from edge_broker.network.cluster.peer_links import PeerLinks
from edge_broker.network.cluster.previous_session import (
    Session,
    end_session,
    forget_session,
    place_of,
    read_session,
    write_session,
)
from edge_broker.network.cluster.replica_fetch_link import Bounds
from edge_broker.network.cluster.zookeeper_client import KazooSession
from edge_broker.network.log_lines import LimitedLog, log_line
from edge_broker.storage.metadata.cluster_copy import FILE as COPY
from edge_broker.storage.metadata.cluster_copy import ClusterCopy, read_cluster_copy, write_cluster_copy
from edge_broker.storage.metadata.kept_states import FILE as KEPT
from edge_broker.storage.metadata.kept_states import read_kept_states, write_kept_states
from edge_broker.storage.metadata.topic_record import OFFSETS_TOPIC, id_text

if TYPE_CHECKING:
    from edge_broker.broker.broker import Broker
    from edge_broker.broker.cluster.follower_fetch_sessions import FetchSession
    from edge_broker.network.dispatch.dispatcher import Dispatcher

LEAVE_S = 1.0
JOIN_S = 30.0  # then clients are let in, and see no leaders
OF_LOGS = (
    effects.Append,
    effects.BeginEpoch,
    effects.Enter,
    effects.Truncate,
    effects.StartAnew,
    effects.CutDamage,
    effects.PassOver,
    effects.Reopen,
    effects.OwnUp,
    effects.RemoveFront,
    effects.AdvanceHighWatermark,
)
"""After one of these failed the contents of the log are unknown."""


class KeptFile(NamedTuple):
    """A file that the member has written: the log event and the sentence of a failure, and when it is retried."""

    name: str
    event: str
    failure: str
    retry_interval: str


COPY_FILE = KeptFile(
    COPY, "cluster_copy_write_failed", "the copy of the cluster's topics, for a rebuild, cannot be written", "10 s"
)
STATES_FILE = KeptFile(
    KEPT,
    "kept_states_write_failed",
    "new states of partitions cannot be kept, and nothing is done by them",
    "second",
)


class ClusterShell:
    """One member; `stop` is called where this broker cannot be one, the `cluster`'s `contradiction` says why."""

    def __init__(
        self,
        broker: Broker,
        dispatcher: Dispatcher,
        loop: asyncio.AbstractEventLoop,
        stop: Callable[[], None],
    ) -> None:
        config, store = broker.config, broker.store
        assert store.directory.registrations is not None, "the store was not opened for a cluster"
        self._broker, self._dispatcher, self._loop, self._stop = broker, dispatcher, loop, stop
        listener = inter_broker_listener(config, list(broker.listeners.values()))
        kept = store.directory.registrations
        full_ms = self._now_ms() if mark_full_disk(broker, loop).was_full else NEVER_FULL_MS
        identity = Identity(broker.node_id, kept.directory, kept.epochs, kept.cluster, full_ms)
        endpoints = tuple((each.name, endpoint_text(*each.advertised)) for each in broker.listeners.values())
        rack = config.text("broker.rack") or None
        self._credentials = credentials(config)
        connect = config.text("zookeeper.connect")
        self.member = ClusterMember(
            identity,
            member_settings(config),
            rack,
            endpoints,
            new_cluster=store.directory.cluster_id,
            orphans=store.orphans,
            users=Users(*(digest_identity(*each) for each in self._credentials)) if self._credentials else None,
            chroot="".join(connect.partition("/")[1:]),
            kept=read_kept_states(store.fs, store.data_dir, kept.epochs),
            new_state_id=lambda: id_text(broker.clock.new_uuid()),
        )
        self.cluster = Cluster(self.member, listener.name, self._now_ms, self._carry_out)
        self.replicas = ReplicaJobs(broker, dispatcher, loop, self.member, self.turn)
        self._image_seen: tuple[object, ...] | None = None  # what was looked for unserved partitions by
        self._unserved: set[PartitionId] = set()  # those that are logged
        self._session_ms = asked_session_ms(config.integer("zookeeper.session.timeout.ms"))
        security = link_security(config, listener)
        self.peers_ca = peers_ca(config, security)
        self._log = LimitedLog(loop)
        peers = PeerLinks(
            self.member,
            self.turn,
            self._now_ms,
            listener=listener.name,
            closed_ports=self.cluster.view.closed_ports,
            session_ms=self._session_ms,
            security=security,
            bounds=Bounds(config.integer("replica.fetch.max.bytes"), config.integer("replica.fetch.wait.max.ms")),
            log=self._log,
        )
        fetchers = config.integer("num.replica.fetchers")
        self.links = LinkTable(fetchers, peers.open_fetch_link, peers.open_request_link, loop.time)
        self._carrying = self._looking = False
        self._left = asyncio.Event()
        self._carriers = self._table()
        self._making = LedgerMaking(broker)
        self.member.forwarding.journal = JournalOf(broker)
        self.member.keep_copy(self._read_copy())
        broker.join(self.cluster, partial(forget_deleted, broker))
        if self._credentials:
            broker.security.share(self.cluster, self._note_security)
        else:
            check_nothing_is_secured(config, broker.listeners.values())
        self._zookeeper = KazooSession(
            connect,
            self._session_ms,
            self,
            loop.call_soon_threadsafe,
            self._credentials,
            self._log.line,
        )
        self._ensemble = EnsembleWatch(connect, loop, broker.notes)
        self._kept_session, self._place = 0, place_of(store.data_dir, broker.time.now().boot_id)
        self._end_former_session()
        self.replicas.topics.report_logs()
        self._ticking = loop.create_task(self._tick())

    def _table(self) -> dict[type[Any], Callable[[Any], None]]:
        return {
            **self.replicas.carriers(),
            effects.Ask: lambda effect: self._zookeeper.ask(effect.token, effect.request),
            effects.Send: self._send,
            effects.Record: self._record,
            effects.KeepCopy: self._keep_copy,
            effects.KeepStates: self._keep_states,
            effects.Objects: self._objects,
            effects.Contradicts: lambda effect: self._fail_membership(effect.sentence),
            effects.Stray: self._stray,
            effects.AdvanceHighWatermark: self._advance_high_watermark,
            effects.Leads: self._leads,
            effects.LeadershipResigned: self._leadership_resigned,
            effects.Broke: self._broke,
            effects.Forward: self._forward,
            effects.Forget: self._forget,
            effects.ShutdownReady: lambda _: self._left.set(),
        }

    def _now_ms(self) -> float:
        """The clock that leases go by: since boot, and with the time of a suspended board."""
        return self._broker.clock.boot_ms()

    def _fail_membership(self, sentence: str) -> None:
        if not self.cluster.view.contradiction:
            self.cluster.view.contradiction = sentence
            log_line("error", "membership_refused", text=sentence)
            self._stop()

    # turns

    def turn(self, call: Callable[[float], None]) -> None:
        """Tell the member something, at the time of now, and execute what it wants."""
        try:
            call(self._now_ms())
        except Exception as error:  # noqa: BLE001 - a bug; what it has left before is executed all the same
            self._went_wrong("a decision", error)
        if not self._carrying:  # else the running execution continues with these effects
            self._carry_out()
            self.cluster.update()
            self._carry_out()  # who waits for a change may ask for the next
            self._dispatcher.apply()

    def _carry_out(self) -> None:
        """In order, also what is left meanwhile; then followers that wait are answered."""
        if self._carrying:
            return
        self._carrying = True
        left = self.member.effects
        try:
            while left:
                effect: Effect = left.pop(0)
                try:
                    self._carriers[type(effect)](effect)
                except Exception as error:  # noqa: BLE001 - a bug; those after it are executed
                    self._went_wrong(type(effect).__name__, error)
                    if isinstance(effect, OF_LOGS):
                        self.replicas.logs.fail(effect.partition, error)
        finally:
            self._carrying = False
        self._look_at_followers()
        self._tell_faults()

    def _look_at_followers(self) -> None:
        if not self._looking:  # a look may have effects of its own
            self._looking = True
            try:
                self.cluster.replication.fetches.each(partial(self._look_at, self._now_ms()))
            finally:
                self._looking = False

    def _look_at(self, at_ms: float, session: FetchSession) -> None:
        try:
            session.answer_if_due(at_ms)
        except Exception as error:  # noqa: BLE001 - a bug; concurrent writes are answered
            self._went_wrong(f"an answer to follower {session.replica}", error)
            session.give_up()

    def _went_wrong(self, what: str, error: Exception) -> None:
        """Log a bug that no client waits for."""
        self._dispatcher.failures += 1
        trace = "".join(traceback.format_exception(error))
        self._log.line("error", "cluster_step_failed", what=what, error=repr(error), trace=trace)

    def _broke(self, effect: effects.Broke) -> None:
        partition, error = effect
        self._went_wrong(f"a decision of {partition.topic}-{partition.partition}", error)
        self.replicas.logs.fail(partition, error)

    def _tell_faults(self) -> None:
        faults, self.member.faults = self.member.faults, []
        for fault in faults:
            self._log.line("error", "znode_not_read", error=fault)
        if (protection := self.member.protection) is not None:
            lines, protection.lines = protection.lines, []
            for line in lines:
                self._log.line(line.level, line.event, **line.fields)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            try:
                self._zookeeper.replace_dead_client()
                self._ensemble.tick()
                self.replicas.space.look_at_room()
                self.links.drop_unused(self.member.registrations)
                self.turn(self.member.tick)
                self._log_unserved()
                self.cluster.tick(self._now_ms())
                self._making.tick(self._now_ms())
                self._dispatcher.apply()
            except Exception as error:  # noqa: BLE001 - a bug; without ticks no lease would be proved any more
                self._went_wrong("a tick", error)

    # ZooKeeper, as its Listener

    @property
    def outside(self) -> str:
        """Why this process cannot come back into the cluster by itself; empty: it can."""
        if self._ticking.done():
            return "no tick of the cluster comes any more"
        return "the client of ZooKeeper has ended" if self._zookeeper.client_died else ""

    def answer_received(self, token: int, answer: Answer) -> None:
        """As Listener."""
        self.turn(lambda at_ms: self.member.answer_received(token, answer, at_ms))

    def event_received(self, event: Event) -> None:
        """As Listener."""
        if type(event).__name__ != "WatchFired":
            log_line("info", "zookeeper_session_changed", what=type(event).__name__)
            self._ensemble.look_soon()
        if isinstance(event, Connected):
            self._keep_session()
        self.turn(lambda at_ms: self.member.event_received(event, at_ms))

    def _end_former_session(self) -> None:
        """Concurrently with this process's own session, which waits for it if needed."""
        former = read_session(self._broker.store.fs, self._broker.store.data_dir)
        if former is not None and former.place == self._place:
            connect = self._broker.config.text("zookeeper.connect")
            self._loop.run_in_executor(None, end_session, connect, self._session_ms, former)

    def _keep_session(self) -> None:
        session_id, password = self._zookeeper.key
        if session_id == self._kept_session:
            return
        self._kept_session = session_id
        session = Session(self._place, session_id, password)
        work = partial(write_session, self._broker.store.fs, self._broker.store.data_dir, session)
        self._broker.effects.start(RunInWorker(work, lambda _: Reply(None), lambda _: Reply(None)))

    # effects that are no log's

    def _send(self, effect: effects.Send) -> None:
        self.links.send(effect.to, effect.message)

    def _record(self, effect: effects.Record) -> None:
        epoch, cluster = effect

        def registration_stored(_: object) -> Outcome:
            log_line("info", "broker_registered", broker=self._broker.node_id, epoch=epoch, cluster=cluster)
            self.turn(lambda at_ms: self.member.epoch_recorded(epoch, at_ms))
            return Reply(None)

        def storing_failed(error: Exception) -> Outcome:
            self._fail_membership(f"the registration cannot be kept, and nothing may be done without: {error}")
            return Reply(None)

        self._broker.effects.start(
            RunInWorker(
                partial(self._broker.store.directory.register, epoch, cluster), registration_stored, storing_failed
            )
        )

    def _read_copy(self) -> ClusterCopy:
        """The disk's copy of the cluster's topics; a damaged copy is written again once this broker is a member."""
        try:
            return read_cluster_copy(self._broker.store.fs, self._broker.store.data_dir)
        except FileNotFoundError:
            return ClusterCopy()
        except (StorageFault, OSError) as fault:
            log_line("warning", "cluster_copy_unreadable", error=fault, action="none, it is written again")
            return ClusterCopy()

    def _keep_copy(self, effect: effects.KeepCopy) -> None:
        store = self._broker.store
        work = partial(write_cluster_copy, store.fs, store.data_dir, effect.copy)
        self._keep(COPY_FILE, work, self.member.copy_kept)

    def _keep_states(self, effect: effects.KeepStates) -> None:
        store = self._broker.store
        work = partial(write_kept_states, store.fs, store.data_dir, *effect)
        self._keep(STATES_FILE, work, self.member.states_kept)

    def _keep(self, file: KeptFile, work: Callable[[], None], report: Callable[..., None]) -> None:
        """Have a worker replace a file, and tell the member whether it is done; a failure is a note while it lasts."""
        notes = self._broker.notes

        def file_stored(_: object) -> Outcome:
            notes.pop(file.name, None)
            self.turn(lambda at_ms: report(at_ms, done=True))
            return Reply(None)

        def storing_failed(error: Exception) -> Outcome:
            action = f"make space, or see to the disk; it is tried again every {file.retry_interval}"
            self._log.line("error", file.event, error=error, action=action)
            notes[file.name] = [f"{file.name}: {file.failure} ({error})"]
            self.turn(lambda at_ms: report(at_ms, done=False))
            return Reply(None)

        self._broker.effects.start(RunInWorker(work, file_stored, storing_failed))

    def _objects(self, effect: effects.Objects) -> None:
        (topic, partition), relation = effect
        log_line(
            "error",
            "partition_state_refused",
            topic=topic,
            partition=partition,
            relation=relation.name.lower(),
            reason="ZooKeeper's state does not follow the one by which this disk acted, as in an older copy",
            action="restore ZooKeeper's newest data, rebuild the znodes, or write a board off "
            "(`edge-broker cluster write-off --help`); nothing is truncated",
        )

    def _stray(self, effect: effects.Stray) -> None:
        self.replicas.topics.note_stray(*effect)
        self.cluster.view.strays.add((effect.topic, effect.topic_id))
        self._image_seen = None

    def _log_unserved(self) -> None:
        """Log each partition with records that is not served here, once, and once more when it is served again."""
        image = self.member.image
        seen = (self.cluster.view.images, image.changes, image.is_complete, self.cluster.view.serves)
        if seen == self._image_seen or not (image.is_complete and self.cluster.view.serves):
            return
        self._image_seen, found = seen, find_unserved(self.cluster.view, self._broker.store)
        for each in found:
            if each.partition not in self._unserved:
                log_line("error", "partition_not_served", **each.partition._asdict(), reason=each.reason, action=REMEDY)
        now = {each.partition for each in found}
        for partition in sorted(self._unserved - now):
            if partition.topic in image.topics:  # else it was deleted
                log_line("info", "partition_served_again", **partition._asdict())
        self._unserved = now

    def _note_security(self, note: str) -> None:
        self._broker.notes.setdefault("security", []).append(note)
        log_line("warning", "users_and_acls_noted", text=note)

    def _advance_high_watermark(self, effect: effects.AdvanceHighWatermark) -> None:
        self.replicas.follower.advance_high_watermark(effect)
        self.cluster.replication.fetches.each(lambda session: session.high_watermark_advanced(effect.partition))

    def _leads(self, effect: effects.Leads) -> None:
        partition, epoch = effect
        log_line("info", "leadership_taken", topic=partition.topic, partition=partition.partition, leader_epoch=epoch)
        if partition.topic == OFFSETS_TOPIC:
            self._broker.effects.start(lead_offsets(self._broker, partition.partition))
        self._partition_moved(partition)

    def _leadership_resigned(self, effect: effects.LeadershipResigned) -> None:
        partition = effect.partition
        log_line("info", "leadership_resigned", topic=partition.topic, partition=partition.partition)
        self.cluster.replication.fetches.each(lambda session: session.leadership_resigned(partition))
        if partition.topic == OFFSETS_TOPIC:
            self._broker.effects.start(resign_offsets(self._broker, partition.partition))
        self._partition_moved(partition)

    def _partition_moved(self, partition: PartitionId) -> None:
        self.replicas.logs.wake_waiters(partition)
        self.cluster.replication.fetches.each(lambda session: session.log_moved(partition))

    # the journal of what this board lost

    def _forward(self, effect: effects.Forward) -> None:
        to, turn = effect
        send = lambda message: self._send(effects.Send(to, message))  # noqa: E731
        self._broker.effects.start(forward(self._broker, to, turn, send, self._told_of_entries))

    def _told_of_entries(self, message: EntriesTaken) -> None:
        if message.error is not ErrorCode.NONE:
            self._log.line("warning", "ledger_entries_not_accepted", error=message.error.name)
        self.turn(lambda at_ms: self.member.message_received(message, at_ms))

    def _forget(self, effect: effects.Forget) -> None:
        def topic_forgotten(done: bool) -> None:
            self.turn(lambda at_ms: self.member.entries_forgotten(at_ms, done=done))

        self._broker.effects.start(release_forwarded(self._broker, effect.end_offset, topic_forgotten))

    # beginning and end

    async def wait_until_joined(self, stop: asyncio.Event) -> None:
        """Return once this broker is a member and knows what there is, or is to stop; JOIN_S at most."""
        until = self._loop.time() + JOIN_S
        while not (self._knows or stop.is_set()) and self._loop.time() < until:  # noqa: ASYNC110 - no event exists
            await asyncio.sleep(TICK_S)
        if not (self._knows or stop.is_set()):
            log_line(
                "warning",
                "cluster_not_joined",
                text=self.cluster.view.not_serving or "users and ACLs are not known yet",
            )

    @property
    def _knows(self) -> bool:
        return self.cluster.view.serves and self._broker.security.is_known

    async def leave(self) -> None:
        """Let others lead, as often and as long as is configured; LEAVE_S more at most."""
        if self._broker.config.boolean("controlled.shutdown.enable") and not self.cluster.view.contradiction:
            self.turn(self.member.shut_down)
            with suppress(TimeoutError):
                async with asyncio.timeout(leave_ms_max(self.member.settings) / 1000 + LEAVE_S):
                    await self._left.wait()
            leads = sum(each.role in LEADS for each in self.member.partitions.values())
            if leads:
                log_line("warning", "shutdown_without_new_leaders", partitions=leads)

    async def close(self) -> None:
        """End the session, so that others need not wait for its end; waiters learn that others lead."""
        self.turn(lambda at_ms: self.member.event_received(Expired(), at_ms))
        self._ticking.cancel()
        self.links.close()
        await self._loop.run_in_executor(None, self._end_session)
        self._log.end_window()
        self.replicas.logs.end_log_window()

    def _end_session(self) -> None:
        self._zookeeper.close()
        forget_session(self._broker.store.fs, self._broker.store.data_dir)
