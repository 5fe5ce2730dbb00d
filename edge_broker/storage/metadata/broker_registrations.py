"""Which disk this is for a cluster, and under which registrations it was served: the file `registrations`.

| line | content |
|---|---|
| 2 | `directory`, the identity of this data directory, which is made once |
| 3 | `cluster`, the id of the cluster that it belongs to, once it does |
| 4 | `cut`, the newest registration before the last power loss, once there was one |
| 5… | `epoch`, of one registration, the oldest first; the newest 256 are kept |

A data directory that has the file belongs to a cluster. Its epochs are synced before anything is done under them: an
in-sync set that names one of them speaks of this disk, and of no empty, cloned or restored one. A damaged file stops
the start, as the disk's identity cannot be guessed. Without it the disk counts as another one, which is the safe side.

A power loss may take acknowledged, unsynced records, as of a topic that is left to the kernel: no
entry of a registration up to `cut` holds for such a topic. It stays, as starts may come and go before the entry does.

Does not contain: who goes by it (cluster_state.py). Source: KIP-858 (directory ids), KIP-841.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_broker.errors import StorageFault
from edge_broker.storage.files.atomic_files import encode_state, read_state, replace
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import FileSystem

KIND = "registrations"
FILE = "registrations"
NO_CUT = -1
EPOCHS_KEPT = 256  # an entry of an older registration counts as another disk's: the safe side


class Registrations(NamedTuple):
    """The directory's identity, and the epochs under which it was registered, the newest last."""

    directory: str
    epochs: tuple[int, ...] = ()
    cluster: str = ""
    cut_epoch: int = NO_CUT

    def with_epoch(self, epoch: int, cluster: str) -> Registrations:
        """The same under one registration more, in this cluster."""
        return self._replace(epochs=(*self.epochs, epoch)[-EPOCHS_KEPT:], cluster=cluster)

    def behind_a_cut(self) -> Registrations:
        """The same where the power was gone since the newest one."""
        return self._replace(cut_epoch=self.epochs[-1]) if self.epochs else self


def read_registrations(fs: FileSystem, data_dir: str) -> Registrations:
    """Return the file's contents; FileNotFoundError, StorageFault if it is damaged."""
    path = f"{data_dir}/{FILE}"
    lines = read_state(fs, path, KIND)
    try:
        ((first, directory), *rest) = lines
        cluster = rest.pop(0)[1] if rest and rest[0][0] == "cluster" else ""
        cut_epoch = int(rest.pop(0)[1]) if rest and rest[0][0] == "cut" else NO_CUT
        epochs = tuple(int(number) for word, number in rest if word == "epoch")
        if first != "directory" or len(epochs) != len(rest):
            raise ValueError("a line has another word")
    except ValueError as error:
        raise StorageFault(
            path, 0, f"is no {KIND} file ({error}); restore it, or remove it: the disk counts as another one then"
        ) from None
    return Registrations(directory, epochs, cluster, cut_epoch)


@runs_in("files")
def write_registrations(fs: FileSystem, data_dir: str, registrations: Registrations) -> None:
    """Replace the file, synced. OSError."""
    lines = [f"directory {registrations.directory}"]
    lines += [f"cluster {registrations.cluster}"] if registrations.cluster else []
    lines += [f"cut {registrations.cut_epoch}"] if registrations.cut_epoch != NO_CUT else []
    lines += [f"epoch {epoch}" for epoch in registrations.epochs]
    replace(fs, data_dir, FILE, encode_state(KIND, 1, lines))
