"""The ledger's record: its exact form, and what a reader refuses. The table of faults is in tests/unit/broker."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from drupelet.ledger import encode, fault_of_record


class Loss(NamedTuple):
    id: str = "the:id"
    cause: str = "a_cause"
    topic: str = "t"
    partition: int | None = None
    first_offset: int | None = None
    end_offset: int | None = None
    records: int | None = 5
    bytes: int | None = None


def test_the_record_is_version_1_in_its_order() -> None:
    key, value = encode(Loss(partition=2, end_offset=15), 7, "bürd", clock="trusted")
    assert key == b"the:id"
    assert value.decode() == (
        '{"version":1,"id":"the:id","cause":"a_cause","topic":"t","partition":2,"first_offset":null,'
        '"last_offset":14,"records":5,"bytes":null,"time_ms":7,"node":"bürd","clock":"trusted"}'
    )


@pytest.mark.parametrize(("placed", "fault"), [((), ""), (("a_cause",), "partition is null, not a whole number")])
def test_a_cause_that_is_reckoned_with_must_say_where(placed: tuple[str, ...], fault: str) -> None:
    assert fault_of_record(*encode(Loss(), 7, ""), placed) == fault
