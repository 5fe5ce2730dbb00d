"""Users and ACLs of a broker as one value, to and from the JSON that is stored.

| member of the JSON | content |
|---|---|
| secret | 32 random bytes, base64: false salts of users that do not exist are made of it |
| users | name to mechanism to `salt`, `iterations`, `stored_key`, `server_key`; the bytes in base64 |
| marks | name to a word that is another one when such a user is removed and added anew; older versions wrote none |
| acls | rows of resource type, resource name, pattern type, principal, host, operation, permission type |

Lives here: that value and its checks. Must never come in: files (storage/security_store.py), what the rights mean.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from edge_broker.errors import ErrorCode, Refusal
from edge_broker.security.acls import ACLS_MAX, ANYBODY, AclBinding, Operation, PatternType, Permission, ResourceType
from edge_broker.security.principals import USER
from edge_broker.security.scram import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISMS, ScramCredential

SECRET_BYTES = 32
USERS_MAX = 2000
USER_NAME_CHARACTERS_MAX = 255
SALT_BYTES_MAX = 128
Credentials = Mapping[str, ScramCredential]  # by mechanism


class SecurityState(NamedTuple):
    """Users with their credentials by mechanism, and ACLs; never changed, always replaced.

    `damage` says what is wrong with the file, in one sentence: then there are no users and no ACLs. `exposed` says what
    is wrong with who may read it. `marks` tell a user from an earlier one of the same name.
    """

    users: Mapping[str, Credentials] = {}
    acls: frozenset[AclBinding] = frozenset()
    damage: str = ""
    secret: bytes = b""
    marks: Mapping[str, str] = {}
    exposed: str = ""

    def with_user(self, name: str, credentials: Credentials) -> SecurityState:
        """The same with these credentials of a user and no others; without any the user is gone. Refusal."""
        return self.with_users({name: credentials})

    def with_users(self, changed: Mapping[str, Credentials]) -> SecurityState:
        """The same with these credentials of these users and no others; Refusal: more users than USERS_MAX."""
        users = {user: held for user, held in {**self.users, **changed}.items() if held}
        if len(users) > max(USERS_MAX, len(self.users)):
            raise Refusal(ErrorCode.POLICY_VIOLATION, f"{len(users)} users would be more than {USERS_MAX}; remove some")
        return self._replace(users=users)

    def marked(self, before: SecurityState, new_mark: Callable[[], str]) -> SecurityState:
        """The same with a mark of its own for each user that was not there `before`."""
        if self.users.keys() == before.users.keys():
            return self
        kept = {user: mark for user, mark in before.marks.items() if user in self.users}
        return self._replace(marks=kept | {user: new_mark() for user in self.users.keys() - before.users.keys()})

    def gone(self, after: SecurityState) -> frozenset[str]:
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
    """The JSON of a sound state, entries in the order of their names."""
    assert not state.damage
    document = {
        "secret": _text(state.secret),
        "users": {
            user: {mechanism: _credential_fields(one) for mechanism, one in credentials.items()}
            for user, credentials in state.users.items()
        },
        "marks": dict(state.marks),
        "acls": sorted(list(binding) for binding in state.acls),
    }
    return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def decode(data: bytes) -> SecurityState:
    """The state of a JSON text; ValueError says what is wrong with it."""
    try:
        document = json.loads(data)
        return SecurityState(
            users={
                user: {mechanism: _credential(mechanism, fields) for mechanism, fields in credentials.items()}
                for user, credentials in document["users"].items()
            },
            acls=frozenset(_binding(row) for row in document["acls"]),
            secret=_bytes(document["secret"], SECRET_BYTES),
            marks={user: str(mark) for user, mark in document.get("marks", {}).items()},
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a field is missing or of another kind: {error}") from None


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
