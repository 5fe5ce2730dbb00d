"""What aiokafka raises, in our words: no numbers of Python's, and the remedy where nobody answers."""

from __future__ import annotations

import pytest
from aiokafka.errors import KafkaConnectionError

from mirror.admin import mapped
from mirror.errors import SourceError, TargetError


@pytest.mark.parametrize("kind", [SourceError, TargetError])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            KafkaConnectionError("Unable to bootstrap from [('a', 9092, <AddressFamily.AF_UNSPEC: 0>), ('::1', 2, 0)]"),
            "no broker answers at a:9092, ::1:2: start it, or mend the address or the network",
        ),
        (KafkaConnectionError("[Errno 104] Connection reset"), "KafkaConnectionError: Connection reset"),
        (OSError(111, "Connection refused"), "Connection refused"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_an_error_of_the_client_is_told_without_its_numbers(
    kind: type[SourceError] | type[TargetError], error: Exception, said: str
) -> None:
    with pytest.raises(kind) as told, mapped(kind):
        raise error
    assert str(told.value) == said
