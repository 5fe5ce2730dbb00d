"""DescribeClientQuotas: none are set, Kafka's checks, and whose right it is to ask."""

from __future__ import annotations

import pytest

from edge_broker.configuration.config import STANDARD_AUTHORIZER
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import DESCRIBE_CLIENT_QUOTAS
from edge_broker.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from edge_broker.testing.site import Site

EXACT, DEFAULT, SPECIFIED = range(3)


def request(*components: tuple[str, int, str | None]) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=name, match_type=kind, match=match) for name, kind, match in components]
    )


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    "components", [(), [("user", SPECIFIED, None), ("client-id", DEFAULT, None)], [("ip", EXACT, "10.0.0.7")]]
)
def test_nobody_has_any(components: list[tuple[str, int, str | None]], version: int) -> None:
    answer = Site().client().ask(DESCRIBE_CLIENT_QUOTAS, request(*components), version)
    assert (answer.error_code, answer.error_message, answer.entries) == (ErrorCode.NONE, "", [])


@pytest.mark.parametrize(
    ("components", "code", "told"),
    [
        ([("", EXACT, "a")], ErrorCode.INVALID_REQUEST, "empty entity type"),
        ([("group", EXACT, "a")], ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type group"),
        ([("user", EXACT, "a")] * 2, ErrorCode.INVALID_REQUEST, "more than once"),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST, "MATCH_TYPE_EXACT"),
        ([("user", DEFAULT, "a")], ErrorCode.INVALID_REQUEST, "MATCH_TYPE_DEFAULT"),
        ([("user", SPECIFIED, "a")], ErrorCode.INVALID_REQUEST, "MATCH_TYPE_SPECIFIED"),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST, "Unknown match type 3"),
        ([("user", -1, None)], ErrorCode.INVALID_REQUEST, "Unknown match type -1"),
        ([("ip", EXACT, "::1"), ("user", EXACT, "a")], ErrorCode.INVALID_REQUEST, "IP filter"),
    ],
)
def test_what_kafka_refuses_is_refused(
    components: list[tuple[str, int, str | None]], code: ErrorCode, told: str
) -> None:
    answer = Site().client().ask(DESCRIBE_CLIENT_QUOTAS, request(*components))
    assert (answer.error_code, answer.entries) == (code, None)
    assert told in answer.error_message


def test_whoever_may_not_describe_the_clusters_configuration_is_told_nothing() -> None:
    site = Site({"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"})
    answer = site.client().ask(DESCRIBE_CLIENT_QUOTAS, request(("", EXACT, None)))
    assert (answer.error_code, answer.entries) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
