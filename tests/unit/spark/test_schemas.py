"""A reading has one declaration, from which the gateway's JSON Schema and Spark's columns both come.

Invariant: a field that the declaration gains, loses or changes is gained, lost or changed in Spark's columns too.
"""

from __future__ import annotations

import pytest
from pyspark.sql.types import DoubleType, LongType, StringType

from drupelet import reading_schema
from spark.streams import schemas

SPARK = {"string": StringType, "integer": LongType, "number": DoubleType}


def columns() -> dict[str, str]:
    """Return Spark's columns of a device's JSON, by name."""
    return dict(each.split(" ") for each in schemas.device_json().split(", "))


def test_spark_reads_the_fields_of_the_declaration_with_their_types() -> None:
    declared = reading_schema.field_types()
    found = columns()
    assert list(found) == list(declared)
    for name, kinds in declared.items():
        if name not in schemas.READ_OTHERWISE:
            assert {found[name]} == {SPARK[kind]().simpleString().upper() for kind in kinds}
    assert schemas.READ_OTHERWISE.keys() <= declared.keys()


def test_a_change_of_the_declaration_is_a_change_of_the_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = {"value": {"number"}, "device": {"string"}, "time_ms": {"number", "string"}, "battery_pct": {"integer"}}
    monkeypatch.setattr(reading_schema, "field_types", lambda: changed)
    assert columns() == {"value": "DOUBLE", "device": "STRING", "time_ms": "BIGINT", "battery_pct": "BIGINT"}
