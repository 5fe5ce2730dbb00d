"""Record what a power loss, or an unmount, may have cost without a trace: a loss for each partition in use.

| the marks (dirty_markers.py) | who is believed to have been in use |
|---|---|
| have the present session | none: the kernel still had everything |
| say another session | whom they name |
| are not there, or both damaged, in the boot of the last start | none: a broker before the markers used that alone |
| are not there, or both damaged, in another boot | once: every partition, those left to the kernel aside |

Contains: the losses, pure. Does not contain: files, what else a start finds (open_partition.py).
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from edge_broker.storage.metadata.loss_records import Loss
from edge_broker.storage.metadata.topic_record import LEDGERS, OFFSETS_TOPIC

if TYPE_CHECKING:
    from edge_broker.configuration.settings import LogSettings
    from edge_broker.storage.recovery.dirty_markers import MarkKey

ANSWERED_SYNCED = (*LEDGERS, OFFSETS_TOPIC)  # whatever acks a producer asks for


class Cut:
    """A cut before this start; `keys` are the partitions in use, None: all are believed to have been.

    `kept`: there was none, the process alone has ended; `keys` are those that the disk had failed before.
    """

    def __init__(self, keys: Container[MarkKey] | None, *, kept: bool = False) -> None:
        self.losses: list[Loss] = []
        self._keys = keys
        self._kept = kept

    @property
    def took_nothing(self) -> bool:
        """Whether all that was ever written is there, of every partition."""
        return self._kept and not self._keys

    def kernel_had_all(self, topic_id: str, partition: int) -> bool:
        """Whether all that was ever written to a partition is there."""
        return self._kept and self._keys is not None and (topic_id, partition) not in self._keys

    def note(self, loss: Loss, settings: LogSettings) -> None:
        """Keep what a partition may have lost, if it was in use."""
        if self._keys is not None:
            if (loss.topic_id, loss.partition) in self._keys:
                self.losses.append(loss)
        elif loss.topic not in ANSWERED_SYNCED and not settings.left_to_kernel:
            self.losses.append(loss)


def unsynced_cut(
    topic: str, topic_id: str, partition: int, end_offset: int, leader_epoch: int, size: int | None = None
) -> Loss:
    """Return the loss of all unsynced records after an offset; `size` bytes of them were seen.

    `leader_epoch` is the one that began after it, which makes it another loss than the one of the next cut.
    """
    epoch = str(leader_epoch)
    return Loss("unsynced_cut", topic, topic_id, partition, end_offset, None, None, size, occasion=epoch)
