"""Which of the broker's answers mean what to the publisher: never this record, not this topic now, or try again."""

from __future__ import annotations

import pytest
from aiokafka.errors import for_code

from gateway.kafka.producer import _map_error
from gateway.kafka.publisher import (
    DeniedTopicError,
    KafkaFailure,
    RefusedRecordError,
    RefusedTimestampError,
    RefusedTooLargeError,
)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (10, RefusedTooLargeError),  # MESSAGE_TOO_LARGE
        (18, RefusedTooLargeError),  # RECORD_LIST_TOO_LARGE
        (29, DeniedTopicError),  # TOPIC_AUTHORIZATION_FAILED
        (32, RefusedTimestampError),  # INVALID_TIMESTAMP
        (45, KafkaFailure),  # OUT_OF_ORDER_SEQUENCE_NUMBER
        (56, KafkaFailure),  # KAFKA_STORAGE_ERROR
        (87, RefusedRecordError),  # INVALID_RECORD
    ],
)
def test_error_codes(code: int, kind: type[Exception]) -> None:
    mapped = _map_error(for_code(code)())
    assert type(mapped) is kind
    assert str(mapped)


def test_an_invalid_record_is_not_sent_again_by_the_client() -> None:
    assert for_code(87).retriable is False
