"""Keeps under which `broker.id`, and whether in a cluster, a data directory is served: the file `broker-id`.

| the file has | the directory | start with another `broker.id` |
|---|---|---|
| no such file: new, or of an earlier release | any | the file gets the present id |
| the present id | any | nothing to do |
| another id | has no replicas of a cluster, and joins one for the first time | the file gets the present id |
| another id | any other | refused: the ids of the disk's replicas, and of its ledger's entries, are of another broker |

A directory has replicas of a cluster if it has `registrations` or the journal of the ledger. One with `registrations`
is refused outside a cluster, and one with topics of a single node is refused in it.

Contains: that file and the refusals. Does not contain: where the id is used. Source: Kafka's `broker.id` in
`meta.properties`, InconsistentBrokerIdException.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drupelet.errors import ConfigurationError
from drupelet.ledger import LEDGER_TOPIC
from edge_broker.errors import StorageFault
from edge_broker.storage.files.atomic_files import encode_state, read_state, replace
from edge_broker.storage.metadata.topic_record import JOURNAL_TOPIC, TOPIC_SUFFIX
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import FileSystem

KIND = FILE = "broker-id"
REGISTRATIONS = "registrations"  # the file's name alone: a single node needs no code of it
TOPICS_NAMED = 5
_OF_MEMBERS = (REGISTRATIONS, f"topics/{JOURNAL_TOPIC}{TOPIC_SUFFIX}")  # files of a directory that was in a cluster


def read_broker_id(fs: FileSystem, data_dir: str) -> int:
    """Return the id that the file has; FileNotFoundError, StorageFault when it is damaged."""
    path = f"{data_dir}/{FILE}"
    remedy = "or remove it: the next start writes the broker.id of its configuration"
    try:
        lines = read_state(fs, path, KIND)
    except StorageFault as fault:
        raise StorageFault(path, fault.position, f"{fault.reason}; {remedy}") from fault
    if len(lines) != 1 or len(lines[0]) != 1 or not (lines[0][0].isascii() and lines[0][0].isdigit()):
        raise StorageFault(path, 0, f"has no broker id; restore it from a copy of the data directory, {remedy}")
    return int(lines[0][0])


@runs_in("files")
def write_broker_id(fs: FileSystem, data_dir: str, broker_id: int) -> None:
    """Replace the file, synced. OSError."""
    replace(fs, data_dir, FILE, encode_state(KIND, 1, [str(broker_id)]))


def check_membership(fs: FileSystem, data_dir: str, *, in_cluster: bool) -> None:
    """Refuse to open a cluster's directory alone, or a board's own topics in a cluster. OSError, StorageFault."""
    if not in_cluster and fs.exists(f"{data_dir}/{REGISTRATIONS}"):
        reason = "this data directory belongs to a cluster; start it with zookeeper.connect, or use another one"
        raise StorageFault(f"{data_dir}/{REGISTRATIONS}", 0, reason)
    if in_cluster and fs.exists(f"{data_dir}/store") and not has_replicas(fs, data_dir):
        _check_no_topics(fs, data_dir)


def _check_no_topics(fs: FileSystem, data_dir: str) -> None:
    """Refuse to make a member of a directory with topics; its ledger comes along. StorageFault.

    No cluster would serve those topics, nor a topic of one of their names, and the way back would be closed.
    """
    topics = sorted(name for name in fs.names(f"{data_dir}/topics") if name.endswith(TOPIC_SUFFIX))
    own = [topic for name in topics if (topic := name.removesuffix(TOPIC_SUFFIX)) != LEDGER_TOPIC]
    if not own:
        return
    shown = ", ".join(own[:TOPICS_NAMED]) + (f" and {len(own) - TOPICS_NAMED} more" * (len(own) > TOPICS_NAMED))
    raise StorageFault(
        data_dir,
        0,
        f"a board that stands alone has its topics here ({shown}), and no cluster would serve them; start the "
        "member with an empty data directory, and copy them into the cluster with edge-mirror, from a broker that "
        "serves this one without zookeeper.connect",
    )


def has_replicas(fs: FileSystem, data_dir: str) -> bool:
    """Return whether a directory has replicas of a cluster, or had them when it lost its file `registrations`."""
    return any(fs.exists(f"{data_dir}/{name}") for name in _OF_MEMBERS)


def check_broker_id(fs: FileSystem, data_dir: str, broker_id: int, *, in_cluster: bool) -> int | None:
    """Return the id that a directory has, None if it has none.

    ConfigurationError if it is not to be served as `broker_id`; OSError, StorageFault.
    """
    if not fs.exists(f"{data_dir}/{FILE}"):
        return None
    kept = read_broker_id(fs, data_dir)
    if kept != broker_id and (has_replicas(fs, data_dir) or not in_cluster):
        raise _another_broker(data_dir, kept, broker_id)
    return kept


def _another_broker(data_dir: str, kept: int, asked: int) -> ConfigurationError:
    return ConfigurationError(
        f"broker.id is {asked}, and the data directory {data_dir} is of broker {kept}; set broker.id={kept}, give this "
        f"broker its own card or data directory, or, if broker {asked} is to serve these data from now on, remove "
        f"{data_dir}/{FILE}"
    )
