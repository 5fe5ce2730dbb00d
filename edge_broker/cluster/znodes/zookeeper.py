"""Requests to ZooKeeper, and its answers and events: values alone, so that nothing in this module ever waits.

The core leaves requests, each under a token of its own, and receives answers and events later. Two ends implement
them: kazoo (zookeeper_client.py) and a model (zookeeper.py); tests/conformance/zookeeper holds both to this:

| promise | |
|---|---|
| order | answers of a session come in the order of their requests; events have no order among answers |
| watches | one event, once; a watch on a node that is not there is set by Exists and Children's parents, not by Get |
| Suspended | what was unanswered was answered CONNECTION_LOSS before; all watches are gone, without an event each |
| while suspended | a request is answered CONNECTION_LOSS, and was not sent |
| Expired | what was unanswered was answered SESSION_EXPIRED or CONNECTION_LOSS before; a new session is begun |
| reads | may be old: a server answers from what it has applied; never older than what this session has seen |
| Sync | a later read is not older than what the ensemble had when Sync was answered |
| Multi | all of it or nothing |

CONNECTION_LOSS means that the outcome is unknown: the write was done, was not, or will be until the session is
connected again. After Connected, Sync and then Get give the final state: the ensemble refuses requests in flight on a
connection that the session has left.

Does not contain: kazoo, paths (znode_codec.py), what is decided. Source: ZooKeeper's
Programmer's Guide ("Consistency Guarantees", "ZooKeeper Sessions", "ZooKeeper Watches").
"""

from __future__ import annotations

from enum import Enum, IntFlag, auto
from typing import NamedTuple, Protocol, TypeAlias

ANY_VERSION = -1


class Stat(NamedTuple):
    """ZooKeeper's Stat of a node; zxids grow with each change of the ensemble."""

    version: int
    czxid: int  # the change that made it
    mzxid: int  # the change that wrote it last
    ephemeral_owner: int  # the session that it ends with; 0: none
    acl_version: int = 0  # how often its ACL was replaced


class Permission(IntFlag):
    """Permissions of ZooKeeper; CREATE and DELETE are about a node's children, the others about the node."""

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16


ALL = Permission.READ | Permission.WRITE | Permission.CREATE | Permission.DELETE | Permission.ADMIN


class AclEntry(NamedTuple):
    """The permissions of one identity, as `world` and `anyone`, or `digest` and `USER:HASH`."""

    scheme: str
    identity: str
    permissions: Permission = ALL


AclEntries: TypeAlias = tuple[AclEntry, ...]
EVERYBODY: AclEntries = (AclEntry("world", "anyone"),)


class Node(NamedTuple):
    """The answer to Get."""

    data: bytes
    stat: Stat


class Names(NamedTuple):
    """The answer to Children: names without the path, in order."""

    names: tuple[str, ...]


class Acl(NamedTuple):
    """The answer to GetAcl. A caller without ADMIN gets the identities of digests without their hashes."""

    entries: AclEntries
    stat: Stat


class Done(NamedTuple):
    """The answer to Delete, Multi and Sync."""


class Failure(Enum):
    """Why a request was not done."""

    NO_NODE = auto()
    NODE_EXISTS = auto()
    BAD_VERSION = auto()
    NOT_EMPTY = auto()
    NO_AUTH = auto()  # the node is another's: the digest is wrong
    REFUSED = auto()  # anything else that ZooKeeper refuses; the event loop has logged its words
    CONNECTION_LOSS = auto()  # the outcome is unknown
    SESSION_EXPIRED = auto()  # not done, and nothing of this session will be


class MultiFailed(NamedTuple):
    """Nothing of a Multi was done, since the operation at this place could not be."""

    position: int
    failure: Failure


Answer: TypeAlias = Stat | Node | Names | Acl | Done | Failure | MultiFailed


class Create(NamedTuple):
    """Make a node: Stat, NO_NODE (its parent), NODE_EXISTS."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


class Get(NamedTuple):
    """Read a node, and with `watch` be told once that it changed or went: Node, NO_NODE (no watch then)."""

    path: str
    watch: bool = False


class SetData(NamedTuple):
    """Replace a node's data if it has this version: Stat, NO_NODE, BAD_VERSION."""

    path: str
    data: bytes
    version: int


class Delete(NamedTuple):
    """Remove a node if it has this version: Done, NO_NODE, BAD_VERSION, NOT_EMPTY."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Only in a Multi: the node has this version."""

    path: str
    version: int


Operation: TypeAlias = Create | SetData | Delete | Check


class Multi(NamedTuple):
    """Several operations at once: Done, MultiFailed."""

    operations: tuple[Operation, ...]


class Children(NamedTuple):
    """The names below a node, and with `watch` be told once that they changed: Names, NO_NODE (no watch then)."""

    path: str
    watch: bool = False


class Exists(NamedTuple):
    """Whether a node is there, and with `watch` be told once when it is made, changed or goes: Stat, NO_NODE."""

    path: str
    watch: bool = False


class GetAcl(NamedTuple):
    """Read a node's ACL: Acl, NO_NODE, NO_AUTH (neither READ nor ADMIN)."""

    path: str


class SetAcl(NamedTuple):
    """Replace a node's ACL if that has this version: Stat, NO_NODE, NO_AUTH (no ADMIN), BAD_VERSION."""

    path: str
    entries: AclEntries
    acl_version: int


class Sync(NamedTuple):
    """Let this session's server catch up: Done."""

    path: str = "/"


Request: TypeAlias = Create | Get | SetData | Delete | Multi | Children | Exists | GetAcl | SetAcl | Sync


class Change(Enum):
    """The event of a watch."""

    CREATED = auto()
    CHANGED = auto()
    DELETED = auto()
    CHILDREN = auto()


class WatchFired(NamedTuple):
    """A watch has fired, and is gone."""

    path: str
    change: Change


class Connected(NamedTuple):
    """The session is served: a new one, or the same one again. `timeout_ms` is what the ensemble agreed to."""

    session_id: int
    timeout_ms: int


class Suspended(NamedTuple):
    """The connection is lost; the session may live on, or have ended already."""


class Expired(NamedTuple):
    """The session has ended, and with it its ephemeral nodes."""


Event: TypeAlias = WatchFired | Connected | Suspended | Expired


class Listener(Protocol):
    """The requester: its methods are called in one thread, never from within `ask`."""

    def answer_received(self, token: int, answer: Answer) -> None:
        """The answer to what was asked under this token."""

    def event_received(self, event: Event) -> None:
        """A watch or the session."""


class ZooKeeper(Protocol):
    """A session with an ensemble, and the next one when it ends."""

    def ask(self, token: int, request: Request) -> None:
        """Send a request; its answer comes by the listener."""

    def close(self) -> None:
        """End the session, at once for all clients if the ensemble can be reached; no event comes after it."""
