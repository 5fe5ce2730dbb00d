"""Classify the ACL of a znode, and say what a broker with a ZooKeeper user does about it.

| the ACL gives | owner | before the ownership record | with it |
|---|---|---|---|
| all permissions to the brokers' user, nothing to another | BROKERS | keep | keep |
| the same to the other accepted user, or to both | ACCEPTED | replace | replace |
| ADMIN to everybody or to an accepted user | OPEN | take over | refuse |
| ADMIN to neither, or cannot be read | FOREIGN | refuse | refuse |

The ownership record is the znode `/format/ownership`. A broker creates it once it has taken over what it found. It is a
child of `/format`, so that only the brokers can remove it, or `/format`, which has a child then.

Permission to delete a znode, or to create it, is the parent's. So the parent of all znodes is protected as well: the
chroot, or `/` where no other product has znodes.

Contains: these rules, as pure functions. Does not contain: requests (protection.py). Source: ZooKeeper's Programmer's
Guide, "ZooKeeper access control using ACLs".
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

from edge_broker.cluster.znodes.znode_codec import TOP
from edge_broker.cluster.znodes.zookeeper import ALL, AclEntries, AclEntry, Permission

ZOOKEEPERS_OWN = "zookeeper"


def digest_identity(user: str, password: str) -> str:
    """Return a user's identity in ACLs of the scheme `digest`: USER:HASH, as DigestAuthenticationProvider has it."""
    hashed = hashlib.sha1(f"{user}:{password}".encode(), usedforsecurity=False).digest()
    return f"{user}:{base64.b64encode(hashed).decode()}"


class Users(NamedTuple):
    """The brokers' identities: `own` owns znodes that a broker creates; `other` is accepted while users change."""

    own: str
    other: str = ""

    @property
    def accepted_users(self) -> tuple[str, ...]:
        """All of them."""
        return (self.own, self.other) if self.other else (self.own,)

    @property
    def acl(self) -> AclEntries:
        """The ACL of each znode."""
        return (AclEntry("digest", self.own),)


class Owner(Enum):
    """As above."""

    BROKERS = auto()
    ACCEPTED = auto()
    OPEN = auto()
    FOREIGN = auto()


class Action(Enum):
    """As above."""

    KEEP = auto()
    REPLACE = auto()
    TAKE_OVER = auto()
    REFUSE = auto()


def owner_of(entries: AclEntries, users: Users) -> Owner:
    """Classify an ACL."""
    if entries == users.acl:
        return Owner.BROKERS
    if entries and all(_is_accepted(entry, users) and entry.permissions == ALL for entry in entries):
        return Owner.ACCEPTED
    if any(entry.permissions & Permission.ADMIN and _covers_brokers(entry, users) for entry in entries):
        return Owner.OPEN
    return Owner.FOREIGN


def action_for(owner: Owner, *, is_recorded: bool) -> Action:
    """Return what a broker does about a znode; `is_recorded`: the ownership record exists."""
    if owner is Owner.OPEN:
        return Action.REFUSE if is_recorded else Action.TAKE_OVER
    return {Owner.BROKERS: Action.KEEP, Owner.ACCEPTED: Action.REPLACE, Owner.FOREIGN: Action.REFUSE}[owner]


def is_trusted(owner: Owner) -> bool:
    """Return whether a znode with such an ACL is believed once the ownership record exists."""
    return owner in (Owner.BROKERS, Owner.ACCEPTED)


def other_products(names: Iterable[str]) -> list[str]:
    """Return which children of the parent of all znodes are neither the brokers' nor ZooKeeper's own."""
    return sorted(set(names) - {path.removeprefix("/") for path in TOP} - {ZOOKEEPERS_OWN})


def _is_accepted(entry: AclEntry, users: Users) -> bool:
    return entry.scheme == "digest" and entry.identity in users.accepted_users


def _covers_brokers(entry: AclEntry, users: Users) -> bool:
    return entry.scheme == "world" or _is_accepted(entry, users)
