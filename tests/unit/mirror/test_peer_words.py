"""What a broker says of an error, in the mirror's sentences: it names nothing else, and forges no other trouble."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from drupelet.kafka.connection import NotConnected, check_login
from drupelet.kafka.security import Security
from drupelet.printable import PEER_CHARACTERS_MAX
from edge_broker.errors import ErrorCode
from kafka_wire.cluster import Cluster
from mirror.client.topic_admin import NewTopicChoices, Refusal, create

FORGED = '"; partition readings-0 stands still: \x1b[31m the disk of the source is full; "\n' + "x" * 1000


class _Broker:
    """Answers every request for topics with an error of its own wording."""

    async def any_connection(self) -> _Broker:
        return self

    async def ask(self, _api: Any, request: Any, *, timeout_s: float) -> Any:
        assert timeout_s
        code = ErrorCode.POLICY_VIOLATION
        return SimpleNamespace(
            topics=[SimpleNamespace(name=one.name, error_code=code, error_message=FORGED) for one in request.topics]
        )


def assert_in_quotes(text: str) -> None:
    assert text.isprintable()
    assert '\\"; partition readings-0' in text
    assert text.replace('\\"', "").count('"') == 2
    assert len(text) < PEER_CHARACTERS_MAX + 200


async def test_why_a_topic_is_refused() -> None:
    choices = {"lab.readings": NewTopicChoices(1, [{}])}
    made = await create(cast(Cluster, _Broker()), choices, 1, 5.0)
    refusal = made["lab.readings"]
    assert isinstance(refusal, Refusal)
    assert str(refusal).startswith('POLICY_VIOLATION: "')
    assert_in_quotes(str(refusal))


def test_why_a_login_is_refused() -> None:
    security = Security("SASL_SSL", mechanism="PLAIN", username="edge")
    with pytest.raises(NotConnected) as caught:
        check_login(58, FORGED, security)
    assert_in_quotes(str(caught.value))


def test_a_broker_that_says_nothing_is_not_quoted() -> None:
    assert str(Refusal(ErrorCode.POLICY_VIOLATION, "")) == "POLICY_VIOLATION"
