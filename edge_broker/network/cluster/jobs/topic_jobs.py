"""Jobs on whole topics, in the order of their coming, one job of each topic at a time.

| effect | job | then |
|---|---|---|
| OpenLog | makes the topic's logs in `files`, all of them with the first that is wanted | `opened` |
| Configure | writes the topic's file, makes more partitions | the logs use it |
| RemoveLog | erases the topic as DeleteTopics does | |

A job that the disk refuses is queued again after RETRY_S, if it is still wanted; other jobs of the topic go first.

Does not contain: jobs on one log (follower_jobs.py, truncation_jobs.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from edge_broker.broker.state.disk_space import ALWAYS_WRITTEN
from edge_broker.cluster.effects import (
    Configure,
    OpenLog,
    RemoveLog,
)
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.handlers.delete_topics import erase_here
from edge_broker.network.cluster.jobs.replica_logs import RETRY_S, ReplicaLogs
from edge_broker.network.cluster.jobs.replica_space import ReplicaSpace
from edge_broker.network.log_lines import log_line
from edge_broker.storage.metadata.topic_record import TOPIC_SUFFIX, id_of, id_text
from edge_broker.storage.replica.replica_log import Replica

if TYPE_CHECKING:
    from edge_broker.storage.topic import Topic

Work = Callable[[Callable[[], None]], None]
"""Begins a job, and calls its argument once the job is over."""


class TopicJobs:
    """The queue of jobs of each topic."""

    def __init__(self, logs: ReplicaLogs, space: ReplicaSpace) -> None:
        self._logs, self._space = logs, space
        self._broker, self._dispatcher, self._member, self._turn = logs.broker, logs.dispatcher, logs.member, logs.turn
        self._works: dict[str, deque[Work]] = {}  # of a topic, one after another
        self._strays: set[tuple[str, str]] = set()  # topics by name and id that stay here, and are not the cluster's

    def report_logs(self) -> None:
        """Tell the member which logs lie here from before."""
        for topic in self._broker.store.topics.values():
            if self._broker.store.directory.is_replicated(topic.name):
                for log in topic.partitions:
                    self._member.has(PartitionId(topic.name, log.partition), id_text(topic.topic_id))

    def note_stray(self, topic: str, topic_id: str) -> None:
        """A topic that lies here, and that the cluster does not know."""
        self._strays.add((topic, topic_id))

    def _report_obstructed(self, effect: OpenLog) -> None:
        """Files that stay have the name of a topic of the cluster, which cannot be on this disk then."""
        name, notes = effect.partition.topic, self._broker.notes.setdefault("strays", [])
        file = f"{self._broker.store.data_dir}/topics/{name}{TOPIC_SUFFIX}"
        note = (
            f"the cluster's topic {name} has no replica here, as another topic of its name is on this disk; stop this "
            f"broker, move {file} away and start it again: what the other holds is put aside then"
        )
        if note not in notes:
            notes.append(note)
            log_line("error", "replica_obstructed", topic=name, text=note)
        self._turn(lambda now_ms: self._member.log_obstructed(*effect, now_ms))

    def _queue(self, name: str, work: Work) -> None:
        waiting = self._works.get(name)
        if waiting is not None:
            waiting.append(work)
            return
        self._works[name] = deque()
        self._begin(name, work)

    def _begin(self, name: str, work: Work) -> None:
        self._logs.call_later(0, work, partial(self._end_work, name))

    def _end_work(self, name: str) -> None:
        waiting = self._works[name]
        if waiting:
            self._begin(name, waiting.popleft())
        else:
            del self._works[name]

    def _of_topic(
        self,
        work: Callable[[], Any],
        then: Callable[[Any], None],
        over: Callable[[], None],
        retry: Callable[[], None],
        what: str,
    ) -> None:
        """Do one job of a topic, and let the next one begin; a job that failed queues again after the others."""

        def done(result: Any) -> None:
            try:
                then(result)
            finally:
                over()

        def job_failed(_: Exception) -> None:
            over()
            self._logs.call_later(RETRY_S, retry)

        self._logs.run_in_files(work, done, job_failed, what, self._broker.store.data_dir)

    def open(self, effect: OpenLog) -> None:
        """Open the log of a partition; make its topic if this broker has none."""
        self._queue(effect.partition.topic, partial(self._open, effect))

    def _open(self, effect: OpenLog, over: Callable[[], None]) -> None:
        partition, topic_id = effect
        wanted = self._member.image.topics.get(partition.topic)
        topic = self._broker.store.topics.get(partition.topic)
        if wanted is None or wanted.topic_id != topic_id:
            over()
        elif topic is None:
            config, count = dict(wanted.config), len(wanted.replicas)

            def topic_created(made: Topic) -> None:
                self._broker.store.add_topic(made)
                self._report_opened(effect, made)

            make = partial(self._broker.store.topic_files.make_topic, partition.topic, count, config, id_of(topic_id))
            self._of_topic(make, topic_created, over, partial(self.open, effect), f"making topic {partition.topic}")
        elif id_text(topic.topic_id) != topic_id or partition.partition >= len(topic.partitions):
            over()  # another topic of this name is being deleted, or gets partitions: it goes on after that
            if (partition.topic, id_text(topic.topic_id)) in self._strays:
                self._report_obstructed(effect)
            self._logs.call_later(RETRY_S, self.open, effect)
        else:
            self._report_opened(effect, topic)
            over()

    def _report_opened(self, effect: OpenLog, topic: Topic) -> None:
        log = topic.partitions[effect.partition.partition]
        replica = self._logs.replicas.get(log)
        if replica is None:
            replica = self._logs.replicas[log] = Replica(log)
            replica.full = self._space.full and log.topic not in ALWAYS_WRITTEN
        self._turn(lambda now_ms: self._member.log_opened(effect.partition, effect.topic_id, replica, now_ms))

    def configure(self, effect: Configure) -> None:
        """Give a topic its configuration, and more partitions."""
        self._queue(effect.topic, partial(self._configure, effect))

    def _configure(self, effect: Configure, over: Callable[[], None]) -> None:
        store, config = self._broker.store, dict(effect.config)
        topic = store.topics.get(effect.topic)
        wanted = self._member.image.topics.get(effect.topic)
        if topic is None or (topic.config == config and len(topic.partitions) >= effect.partitions):
            over()
            return
        if wanted is None or wanted.topic_id != id_text(topic.topic_id):
            over()  # what is here is another topic of the name
            return

        def work() -> Callable[[], None]:
            settings = store.topic_files.write_config(topic, config)
            more = (
                store.topic_files.make_partitions(topic, effect.partitions)
                if effect.partitions > len(topic.partitions)
                else []
            )

            def show() -> None:
                store.use_config(topic, config, settings)
                if more:
                    store.add_partitions(topic, more)

            return show

        def configure_again() -> None:
            """By what is known then."""
            wanted = self._member.image.topics.get(effect.topic)
            if wanted is not None:
                self.configure(Configure(effect.topic, wanted.config, len(wanted.replicas)))

        self._of_topic(work, lambda show: show(), over, configure_again, f"changing topic {effect.topic}")

    def remove(self, effect: RemoveLog) -> None:
        """Erase a topic with all its logs; the first of its partitions does so."""
        self._queue(effect.partition.topic, partial(self._remove, effect))

    def _remove(self, effect: RemoveLog, over: Callable[[], None]) -> None:
        name = effect.partition.topic
        topic = self._broker.store.topics.get(name)
        if topic is None or id_text(topic.topic_id) != effect.topic_id:
            over()
            return
        for log in topic.partitions:
            self._logs.replicas.pop(log, None)
            self._logs.held.pop(PartitionId(name, log.partition), None)

        def topic_removed(failures: Mapping[str, str]) -> None:
            for reason in failures.values():
                log_line("error", "topic_not_removed", topic=name, error=reason)
                self._logs.call_later(RETRY_S, self.remove, effect)
            over()

        self._broker.effects.start(erase_here(self._broker, name, topic_removed))
