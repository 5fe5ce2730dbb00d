"""Names each right and each user that a change of users and ACLs touches, as events of the security log.

| event | fields |
|---|---|
| `changed-by-command`, `changed-by-another-broker` | `acls_added`, `acls_removed`, `users_changed`: the first event |
| `acl-added`, `acl-removed` | `acl` |
| `credential-set`, `credential-removed` | `user`, `mechanism` |

Each event begins with the fields that say who made the change: `principal` and `host`, or `by` and what is known of the
caller. Does not contain: files (storage/metadata/security_log.py), secrets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from edge_broker.security.acls import AclBinding
from edge_broker.security.state import Credentials, SecurityState, difference

Author: TypeAlias = Mapping[str, object]
Event: TypeAlias = tuple[str, Mapping[str, object]]

COMMAND: Author = {"by": "command"}
ANOTHER_BROKER: Author = {"by": "another broker"}
PART_CHARACTERS_MAX = 1024  # of a principal, a host or a name in an event; Kafka bounds the name of a topic alone


def change_events(before: SecurityState, after: SecurityState, author: Author) -> list[Event]:
    """Return one event for each right and each credential that differs, in the order of their names."""
    changed = difference(before, after)
    events: list[Event] = []
    for event, acls in (("acl-removed", changed.removed), ("acl-added", changed.added)):
        events += [(event, {**author, "acl": acl_text(acl)}) for acl in sorted(acls)]
    for user in sorted(changed.users):
        events += [
            (event, {**author, "user": user, "mechanism": mechanism})
            for event, mechanism in _credential_events(before.users.get(user, {}), after.users.get(user, {}))
        ]
    if events and "by" in author:
        events.insert(0, _summary(author, len(changed.added), len(changed.removed), len(changed.users)))
    return events


def acl_text(acl: AclBinding) -> str:
    """Return an ACL as one line, no part of which is so long that a reader could lose the others."""
    return str(acl._replace(principal=_shorten(acl.principal), host=_shorten(acl.host), name=_shorten(acl.name)))


def _credential_events(before: Credentials, after: Credentials) -> Iterator[tuple[str, str]]:
    for mechanism in sorted(before.keys() | after.keys()):
        if before.get(mechanism) != after.get(mechanism):
            yield "credential-set" if mechanism in after else "credential-removed", mechanism


def _summary(author: Author, added: int, removed: int, users: int) -> Event:
    counts = {"acls_added": added, "acls_removed": removed, "users_changed": users}
    others = {name: value for name, value in author.items() if name != "by"}
    return f"changed-by-{author['by']}".replace(" ", "-"), {**others, **counts}


def _shorten(text: str) -> str:
    if len(text) <= PART_CHARACTERS_MAX:
        return text
    return f"{text[:PART_CHARACTERS_MAX]}… ({len(text)} characters)"
