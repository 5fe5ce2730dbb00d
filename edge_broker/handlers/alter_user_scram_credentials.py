"""AlterUserScramCredentials (key 51): SCRAM credentials are set and removed, answered when that is synced and holds.

The client has hashed the password already: it never comes here. A user without credentials is gone, and his connections
with him. Source: AlterUserScramCredentials 0, KIP-554; Kafka's ScramControlManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations.acl_changes import refusal_of
from edge_broker.broker.outcomes import Outcome, Reply, Steps, Taken, changes_in_steps
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.protocol.api import ALTER_USER_SCRAM_CREDENTIALS
from edge_broker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from edge_broker.security.acls import Operation
from edge_broker.security.scram import MECHANISMS, Mechanism, ScramCredential, credential_of
from edge_broker.security.state import (
    Credentials,
    SecurityState,
    check_iterations,
    check_new_user_name,
    check_salt,
    check_user_name,
)

BY_NUMBER = {mechanism.number: mechanism for mechanism in MECHANISMS.values()}
Alteration: TypeAlias = ScramCredentialDeletion | ScramCredentialUpsertion
Changes: TypeAlias = dict[str, tuple[Mechanism, ScramCredential | None]]


@ServedApi(
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    {0: "credentials by their salted passwords (KIP-554)"},
    left_out="a user named *, whose rights would be everybody's",
)
@changes_in_steps
def alter_user_scram_credentials(
    broker: Broker, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> Taken:
    """Change each user that can be changed; the others get an error of their own."""
    alterations: list[Alteration] = [*request.deletions, *request.upsertions]
    names = list(dict.fromkeys(one.name for one in alterations))
    code = broker.rights.cluster(context, Operation.ALTER)
    if code:
        refusal = Refusal(code, f"{context.session.principal} has no right to ALTER the cluster, and so its users")
        return Steps(_answer(names, dict.fromkeys(names, refusal)))
    refused: dict[str, Refusal] = {}
    wanted: Changes = {}
    for one in alterations:
        yield None
        try:
            if one.name in wanted:
                raise Refusal(
                    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
                )
            if one.name not in refused:
                wanted[one.name] = _check(one)
        except Refusal as refusal:
            wanted.pop(one.name, None)
            refused[one.name] = refusal.without_frames()
    missing: set[str] = set()

    def edit(state: SecurityState) -> SecurityState:
        missing.clear()
        changed: dict[str, Credentials] = {}
        for name, (mechanism, credential) in wanted.items():
            held = dict(state.users.get(name, {}))
            if credential is not None:
                held[mechanism.name] = credential
            elif held.pop(mechanism.name, None) is None:
                missing.add(name)
                continue
            changed[name] = held
        return state.with_users(changed)

    def then() -> Outcome:
        for name in missing:
            refused[name] = Refusal(
                ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
            )
        return Steps(_answer(names, refused))

    def change_failed(error: Exception) -> Outcome:
        return Steps(_answer(names, refused | dict.fromkeys(wanted, refusal_of(error))))

    if not wanted:
        return Steps(_answer(names, refused))
    return broker.security.change(edit, then, change_failed, context.token, context.session.author)


def _check(one: Alteration) -> tuple[Mechanism, ScramCredential | None]:
    """Return the change of a user's credential; Refusal with Kafka's code."""
    (check_user_name if isinstance(one, ScramCredentialDeletion) else check_new_user_name)(one.name)
    mechanism = BY_NUMBER.get(one.mechanism)
    if mechanism is None:
        raise Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(one, ScramCredentialDeletion):
        return mechanism, None
    check_iterations(one.iterations)
    check_salt(bytes(one.salt))
    if len(one.salted_password) != mechanism.key_bytes:
        raise Refusal(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"a salted password of {len(one.salted_password)} bytes; by {mechanism.name} it has {mechanism.key_bytes}",
        )
    return mechanism, credential_of(mechanism, bytes(one.salted_password), bytes(one.salt), one.iterations)


def _answer(names: list[str], refused: Mapping[str, Refusal]) -> Taken:
    results: list[AlterUserScramCredentialsResult] = []
    for name in names:
        why = refused.get(name)
        results.append(
            AlterUserScramCredentialsResult(user=name, error_message=None)
            if why is None
            else AlterUserScramCredentialsResult(user=name, error_code=why.code, error_message=why.message)
        )
        yield results[-1]
    return Reply(AlterUserScramCredentialsResponse(results=results))
