"""Resolves a record that the target refuses for good, as `on_refused` says for its topic: dead letter, or stop.

Does not contain: which record of a batch is refused (producer/failures/refusals.py), the form of a dead letter
(ledger/dead_letter.py).
"""

from __future__ import annotations

from collections.abc import Callable

from drupelet.observe.log_tree import Log
from edge_broker.errors import ProtocolViolation, Refusal
from mirror.config import Config
from mirror.ledger.dead_letter import RefusedRecord, letter
from mirror.partition.stream import PartitionStream
from mirror.replication.loss_writer import LossWriter
from mirror.replication.topic_config_sync import Following

TOO_LARGE = ("MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE")
_log = Log("mirror")


class RefusedRecords:
    """Resolves for one mirror; the dead letter and the loss are on disk before the stream goes on."""

    def __init__(
        self,
        config: Config,
        losses: LossWriter,
        config_sync: Following,
        report_problem: Callable[[str, str], None],
    ) -> None:
        self._config, self._losses, self._config_sync = config, losses, config_sync
        self._report_problem = report_problem

    async def resolve(self, stream: PartitionStream, refused: RefusedRecord) -> bool:
        """Return whether the record is a dead letter and a loss now, so that the stream goes on after it."""
        if refused.reason in TOO_LARGE and await self._config_sync.has_raised(stream):
            return False
        text = f"the target refuses the record at offset {refused.offset}, of {refused.size} bytes: "
        text += f"{refused.reason}{': ' if refused.said else ''}{refused.said}"
        if self._config.of_topic(stream.partition.topic).on_refused == "stop":
            remedy = 'have the target take it, or set on_refused = "dead_letter" for its topic'
            self._report_problem(stream.name, f"{text}; it waits: {remedy}")
            return False
        try:
            batch = letter(stream.partition.topic, stream.partition.partition, refused)
        except (ValueError, Refusal, ProtocolViolation) as error:
            self._report_problem(stream.name, f"{text}; it cannot be put aside, and waits: {error}")
            return False
        await self._losses.write_letter(batch)
        _log.warning("dead_letter", **stream.fields(), offset=refused.offset, bytes=refused.size, error=refused.reason)
        await self._losses.write_loss(stream, "record_refused", refused.offset, refused.offset + 1, refused.size)
        return True
