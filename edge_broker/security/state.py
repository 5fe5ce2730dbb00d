"""Users and ACLs of a broker as one value, to and from the JSON that is stored.

| member of the JSON | content |
|---|---|
| secret | 32 random bytes, base64: false salts of users that do not exist are made of it |
| users | name to mechanism to `salt`, `iterations`, `stored_key`, `server_key`; the bytes in base64 |
| marks | name to a word that changes when such a user is removed and added again; older versions wrote none |
| acls | rows of resource type, resource name, pattern type, principal, host, operation, permission type |
| generation | only of a cluster: how often its users and ACLs were changed |
| wanted | only in a broker's copy: what commands want there: `users` (none: removed), `added`, `removed`, `restore` |

Contains: the value and its checks. Does not contain: files (security_store.py), what the rights mean.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from edge_broker.errors import ErrorCode, Refusal
from edge_broker.security.acls import ACLS_MAX, ANYBODY, AclBinding, Operation, PatternType, Permission, ResourceType
from edge_broker.security.principals import USER
from edge_broker.security.scram import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISMS, ScramCredential

SECRET_BYTES = 32
USERS_MAX = 2000
USER_NAME_CHARACTERS_MAX = 255
SALT_BYTES_MAX = 128
OWN = -1
NOT_READ_YET = "they are the cluster's, and this broker has not read them yet"
ZNODE_BYTES_MAX = 900_000  # ZooKeeper refuses requests of 1 MiB and more
ZNODE_VERSION = 1
Credentials = Mapping[str, ScramCredential]  # by mechanism


class WantedSecurity(NamedTuple):
    """The changes of a cluster's users and ACLs that commands request; a user without credentials is to go.

    `restore`: the cluster's are lost, damaged or old, and this broker's copy is to be them again.
    """

    users: Mapping[str, Credentials] = {}
    added: frozenset[AclBinding] = frozenset()
    removed: frozenset[AclBinding] = frozenset()
    restore: bool = False

    def made_to(self, state: SecurityState) -> SecurityState:
        """The state with these changes; Refusal: more than there may be."""
        return state.with_users(self.users).with_acls(state.acls - self.removed | self.added)

    def without_done(self, done: WantedSecurity) -> WantedSecurity:
        """Return the rest of it once those were made."""
        return WantedSecurity(
            {user: held for user, held in self.users.items() if done.users.get(user) != held or user not in done.users},
            self.added - done.added,
            self.removed - done.removed,
            self.restore and not done.restore,
        )


def difference(before: SecurityState, after: SecurityState) -> WantedSecurity:
    """Return the change from `before` to `after`, apart from its `restore`."""
    names = before.users.keys() | after.users.keys()
    return WantedSecurity(
        {name: after.users.get(name, {}) for name in names if before.users.get(name) != after.users.get(name)},
        after.acls - before.acls,
        before.acls - after.acls,
    )


class SecurityState(NamedTuple):
    """Users with their credentials by mechanism, and ACLs; never changed, always replaced.

    `damage` says what is wrong with the file, in one sentence: then there are no users and no ACLs. `exposed` says what
    is wrong with who may read it. `marks` tell a user from an earlier one of the same name. `generation` is OWN for a
    board that has them for itself, else they are a cluster's, and `wanted` is what commands want changed there.
    """

    users: Mapping[str, Credentials] = {}
    acls: frozenset[AclBinding] = frozenset()
    damage: str = ""
    secret: bytes = b""
    marks: Mapping[str, str] = {}
    exposed: str = ""
    generation: int = OWN
    wanted: WantedSecurity = WantedSecurity()

    @property
    def has_any(self) -> bool:
        """Whether there are users or ACLs."""
        return bool(self.users or self.acls)

    def with_user(self, name: str, credentials: Credentials) -> SecurityState:
        """The same with these credentials of a user and no others; without any the user is gone. Refusal."""
        return self.with_users({name: credentials})

    def with_users(self, changed: Mapping[str, Credentials]) -> SecurityState:
        """The same with these credentials of these users and no others; Refusal: more users than USERS_MAX."""
        users = {user: held for user, held in {**self.users, **changed}.items() if held}
        if len(users) > max(USERS_MAX, len(self.users)):
            raise Refusal(ErrorCode.POLICY_VIOLATION, f"{len(users)} users would be more than {USERS_MAX}; remove some")
        return self._replace(users=users)

    def with_marks(self, before: SecurityState, new_mark: Callable[[], str]) -> SecurityState:
        """The same with a mark of its own for each user that was not there `before`."""
        if self.users.keys() == before.users.keys():
            return self
        kept = {user: mark for user, mark in before.marks.items() if user in self.users}
        return self._replace(marks=kept | {user: new_mark() for user in self.users.keys() - before.users.keys()})

    def removed_users(self, after: SecurityState) -> frozenset[str]:
        """The users that are not there `after`wards, or are others of the same name."""
        return frozenset(
            user for user in self.users if user not in after.users or self.marks.get(user) != after.marks.get(user)
        )

    def with_acls(self, acls: frozenset[AclBinding]) -> SecurityState:
        """The same with these ACLs; Refusal: more than ACLS_MAX."""
        if len(acls) > max(ACLS_MAX, len(self.acls)):
            raise Refusal(
                ErrorCode.POLICY_VIOLATION,
                f"{len(acls)} ACLs would be more than {ACLS_MAX}; remove some, or let a prefix stand for many names",
            )
        return self._replace(acls=acls)


def credential_tag(credentials: Credentials) -> str:
    """Return 16 hex digits that change with the password of a user, and when a user is made again; no secret."""
    made = b"".join(
        credentials[mechanism].salt + credentials[mechanism].stored_key for mechanism in sorted(credentials)
    )
    return sha256(made).hexdigest()[:16]


def check_user_name(name: str) -> None:
    """Refuse what can be no user's name, with Kafka's code."""
    if not name:
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if len(name) > USER_NAME_CHARACTERS_MAX:
        raise Refusal(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"a name of {len(name)} characters; a user's has {USER_NAME_CHARACTERS_MAX} at most",
        )


def check_new_user_name(name: str) -> None:
    """Refuse what no new user may be called, with Kafka's code; Kafka itself takes a user named *."""
    check_user_name(name)
    if USER + name == ANYBODY:
        raise Refusal(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"a user cannot be named {name}: rights of {ANYBODY} are everybody's; choose another name",
        )


def check_iterations(iterations: int) -> None:
    """Refuse what can be no iterations of SCRAM, with Kafka's code."""
    if iterations < ITERATIONS_MIN:
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if iterations > ITERATIONS_MAX:
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")


def check_salt(salt: bytes) -> None:
    """Refuse what can be no salt, with Kafka's code for a credential."""
    if not 0 < len(salt) <= SALT_BYTES_MAX:
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"a salt of {len(salt)} bytes; it has 1 to {SALT_BYTES_MAX}")


def encode(state: SecurityState) -> bytes:
    """The JSON of a sound state as a file has it, entries in the order of their names."""
    document = _document(state)
    if state.generation != OWN:
        wanted = state.wanted
        document |= {
            "generation": state.generation,
            "wanted": {
                "users": _users_fields(wanted.users),
                "added": sorted(map(list, wanted.added)),
                "removed": sorted(map(list, wanted.removed)),
                "restore": wanted.restore,
            },
        }
    return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def decode(data: bytes) -> SecurityState:
    """The state of a JSON text; ValueError says what is wrong with it."""
    try:
        document = json.loads(data)
        state, generation = _state(document), document.get("generation", OWN)
        if generation == OWN:
            return state
        wanted = document["wanted"]
        return state._replace(
            generation=int(generation),
            wanted=WantedSecurity(
                _users(wanted["users"]),
                frozenset(map(_binding, wanted["added"])),
                frozenset(map(_binding, wanted["removed"])),
                bool(wanted["restore"]),
            ),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a field is missing or of another kind: {error}") from None


def encode_znode(state: SecurityState) -> bytes:
    """The JSON of a cluster's state; Refusal: more than a znode may have."""
    document = _document(state) | {"version": ZNODE_VERSION, "generation": state.generation}
    data = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
    if len(data) > ZNODE_BYTES_MAX:
        raise Refusal(
            ErrorCode.POLICY_VIOLATION,
            f"users and ACLs of a cluster would take {len(data)} bytes, and {ZNODE_BYTES_MAX} is all there may be; "
            "remove some, or let a prefix stand for many names",
        )
    return data


def decode_znode(data: bytes) -> SecurityState:
    """The cluster's state; ValueError says what is wrong with it."""
    try:
        document = json.loads(data)
        version, generation = document["version"], document["generation"]
        if version != ZNODE_VERSION:
            raise ValueError(f"it has version {version}, and this broker knows {ZNODE_VERSION}")
        if type(generation) is not int or generation < 0:
            raise ValueError(f"{generation!r} is no generation")
        return _state(document)._replace(generation=generation)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a field is missing or of another kind: {error}") from None


def _document(state: SecurityState) -> dict[str, Any]:
    assert not state.damage
    return {
        "secret": _text(state.secret),
        "users": _users_fields(state.users),
        "marks": dict(state.marks),
        "acls": sorted(list(binding) for binding in state.acls),
    }


def _state(document: Any) -> SecurityState:
    return SecurityState(
        users=_users(document["users"]),
        acls=frozenset(_binding(row) for row in document["acls"]),
        secret=_bytes(document["secret"], SECRET_BYTES),
        marks={user: str(mark) for user, mark in document.get("marks", {}).items()},
    )


def _users_fields(users: Mapping[str, Credentials]) -> dict[str, Any]:
    return {
        user: {mechanism: _credential_fields(one) for mechanism, one in credentials.items()}
        for user, credentials in users.items()
    }


def _users(users: Any) -> dict[str, Credentials]:
    return {
        user: {mechanism: _credential(mechanism, fields) for mechanism, fields in credentials.items()}
        for user, credentials in users.items()
    }


def _credential_fields(credential: ScramCredential) -> dict[str, str | int]:
    return {
        "salt": _text(credential.salt),
        "iterations": credential.iterations,
        "stored_key": _text(credential.stored_key),
        "server_key": _text(credential.server_key),
    }


def _credential(mechanism: str, fields: Mapping[str, object]) -> ScramCredential:
    size, iterations = MECHANISMS[mechanism].key_bytes, fields["iterations"]
    if not isinstance(iterations, int) or not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ValueError(f"{iterations!r} are no iterations of SCRAM")
    return ScramCredential(
        _bytes(fields["salt"]), iterations, _bytes(fields["stored_key"], size), _bytes(fields["server_key"], size)
    )


def _binding(row: list[object]) -> AclBinding:
    kinds = (ResourceType, str, PatternType, str, str, Operation, Permission)
    texts = [value for value in row if isinstance(value, str)]
    if len(row) != len(kinds) or len(texts) != kinds.count(str):
        raise ValueError(f"{row!r} is no ACL")
    return AclBinding._make(kind(value) for kind, value in zip(kinds, row, strict=True))


def _text(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def _bytes(text: object, size: int | None = None) -> bytes:
    data = binascii.a2b_base64(str(text), strict_mode=True)
    if size is not None and len(data) != size:
        raise ValueError(f"{len(data)} bytes stand where {size} belong")
    return data
