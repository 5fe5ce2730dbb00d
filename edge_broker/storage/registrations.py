"""Which disk this is for a cluster, and under which registrations it was served: the file `registrations`.

| line | content |
|---|---|
| 2 | `directory`, the identity of this data directory, which is made once |
| 3 | `cluster`, the id of the cluster that it belongs to, once it does |
| 4… | `epoch`, of one registration, the oldest first; the newest 256 are kept |

A data directory that has the file belongs to a cluster. Its epochs are synced before anything is done under them: an
in-sync set that names one of them speaks of this disk, and of no empty, cloned or restored one. A damaged file stops
the start, as nobody may guess which disk this is. Without it the disk counts as another one, which is the safe side.

Lives here: that file. Must never come in: who goes by it (cluster/state.py). Source: KIP-858 (directory ids), KIP-841.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_broker.errors import StorageFault
from edge_broker.runs_in import runs_in
from edge_broker.storage.state_files import encode_state, read_state, replace

if TYPE_CHECKING:
    from edge_broker.storage.filesystem import FileSystem

KIND = "registrations"
FILE = "registrations"
EPOCHS_KEPT = 256  # an entry of an older registration counts as another disk's: the safe side


class Registrations(NamedTuple):
    """The directory's identity, and the epochs under which it was registered, the newest last."""

    directory: str
    epochs: tuple[int, ...] = ()
    cluster: str = ""

    def with_epoch(self, epoch: int, cluster: str) -> Registrations:
        """The same under one registration more, in this cluster."""
        return self._replace(epochs=(*self.epochs, epoch)[-EPOCHS_KEPT:], cluster=cluster)


def read_registrations(fs: FileSystem, data_dir: str) -> Registrations:
    """What the file says; FileNotFoundError, StorageFault when it is damaged."""
    path = f"{data_dir}/{FILE}"
    lines = read_state(fs, path, KIND)
    try:
        ((first, directory), *rest) = lines
        cluster = rest.pop(0)[1] if rest and rest[0][0] == "cluster" else ""
        epochs = tuple(int(number) for word, number in rest if word == "epoch")
        if first != "directory" or len(epochs) != len(rest):
            raise ValueError("a line has another word")
    except ValueError as error:
        raise StorageFault(
            path, 0, f"is no {KIND} file ({error}); restore it, or remove it: the disk counts as another one then"
        ) from None
    return Registrations(directory, epochs, cluster)


@runs_in("files")
def write_registrations(fs: FileSystem, data_dir: str, registrations: Registrations) -> None:
    """Replace the file, synced. OSError."""
    lines = [f"directory {registrations.directory}"]
    lines += [f"cluster {registrations.cluster}"] if registrations.cluster else []
    lines += [f"epoch {epoch}" for epoch in registrations.epochs]
    replace(fs, data_dir, FILE, encode_state(KIND, 1, lines))
