"""DescribeUserScramCredentials (key 50): who can log in by which SCRAM mechanism, and with how many iterations.

No salt and no key is ever told. Source: DescribeUserScramCredentials 0, KIP-554; Kafka's ScramImage.
"""

from __future__ import annotations

from collections import Counter

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.outcomes import Reply, Taken, reads_in_steps
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import DESCRIBE_USER_SCRAM_CREDENTIALS
from edge_broker.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from edge_broker.security.acls import Operation
from edge_broker.security.scram import MECHANISMS
from edge_broker.security.state import SecurityState


@ServedApi(
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    {0: "mechanisms and iterations of users (KIP-554)"},
)
@reads_in_steps
def describe_user_scram_credentials(
    broker: Broker, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> Taken:
    """Describe the users that are named, or all."""
    code = broker.rights.cluster(context, Operation.DESCRIBE)
    if code:
        message = f"{context.session.principal} has no right to DESCRIBE the cluster, and so its users"
        return Reply(DescribeUserScramCredentialsResponse(error_code=code, error_message=message))
    state = broker.security.state
    asked = Counter(user.name for user in request.users) if request.users else dict.fromkeys(state.users, 1)
    results: list[DescribeUserScramCredentialsResult] = []
    for user, times in asked.items():
        results.append(_result(state, user, times))
        yield results[-1]
    return Reply(DescribeUserScramCredentialsResponse(results=results))


def _result(state: SecurityState, user: str, times: int) -> DescribeUserScramCredentialsResult:
    credentials = state.users.get(user)
    if times > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        return DescribeUserScramCredentialsResult(
            user=user, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=message
        )
    if credentials is None:
        message = f"Attempt to describe a user credential that does not exist: {user}"
        return DescribeUserScramCredentialsResult(
            user=user, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=message
        )
    infos = [
        CredentialInfo(mechanism=MECHANISMS[name].number, iterations=one.iterations)
        for name, one in credentials.items()
    ]
    return DescribeUserScramCredentialsResult(user=user, credential_infos=infos)
