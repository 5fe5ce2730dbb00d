"""The parts that all logs of a data directory share: the way to the ledger, spare blocks, the memory of producers.

Contains: those parts, and giving them to a log. Does not contain: which topics there are (log_store.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_broker.storage.log.producer_state_limit import ProducerMemory
from edge_broker.storage.metadata.loss_records import Ledger, NoLedger
from edge_broker.storage.metadata.topic_record import LEDGERS, OFFSETS_TOPIC, id_text

if TYPE_CHECKING:
    from edge_broker.storage.data_directory import DataDirectory
    from edge_broker.storage.topic import Topic

WRITTEN_ON = (*LEDGERS, OFFSETS_TOPIC)  # also where there is no space for another segment


class SharedLogParts:
    """The shared parts of one data directory; `ledger` may be replaced, the others never are."""

    def __init__(self, directory: DataDirectory) -> None:
        self.ledger: Ledger = NoLedger()
        self.spare = directory.spare
        self.producer_memory = ProducerMemory()
        self._directory = directory

    def give_to(self, topic: Topic) -> None:
        """Give a topic's logs their id, their role in a cluster, and the shared parts. It may be repeated."""
        topic_id, registrations = id_text(topic.topic_id), self._directory.registrations
        is_replicated = self._directory.is_replicated(topic.name)
        for log in topic.partitions:
            log.topic_id = topic_id
            log.replicated = is_replicated
            if registrations is not None:
                log.cut_epoch = registrations.cut_epoch
            log.ledger = self.ledger
            log.spare = self.spare
            log.writer.producer_memory = self.producer_memory
            self.producer_memory.join(log.writer.producers)
            log.roller.stays_without_space = topic.name in WRITTEN_ON
