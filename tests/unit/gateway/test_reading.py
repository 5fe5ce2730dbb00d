"""What a reading is: the JSON Schema, the documents that show one, and what the gateway takes say the same.

Invariants:
- whatever the schema allows becomes a record, at the device's own time where it gives one;
- what the gateway makes a dead letter is outside the schema;
- the message is the same in every document.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from drupelet import reading_schema
from gateway.config import parse_config
from gateway.records.records import Record
from gateway.routing.routes import Message, Rejection, route_message

ROOT = Path(__file__).parents[3]
DOCUMENTS = ("gateway/README.md", "spark/README.md", "ansible/FROM-A-BARE-CARD.md")
SCHEMA = reading_schema.schema()
READING = Draft202012Validator(SCHEMA)
RECEIVED_MS = 1_764_000_000_555
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no failure
_EXAMPLE = parse_config(Path("g.toml"), files("gateway").joinpath("example.toml").read_text(encoding="utf-8"))


def routed(payload: bytes, topic: str = "sites/plant-7/devices/thermometer-1/readings") -> Record | Rejection:
    """Route a payload as the example configuration does."""
    assert _EXAMPLE.mqtt is not None
    return route_message(_EXAMPLE.mqtt.routes, Message(topic, payload, RECEIVED_MS))


def published(document: str) -> dict[str, str]:
    """Return the options of the one mosquitto_pub line that publishes a reading in a document."""
    text = (ROOT / document).read_text(encoding="utf-8").replace("\\\n", " ")
    (line,) = re.findall(r"(?m)^mosquitto_pub .*/readings .*$", text)
    words = shlex.split(line)[1:]
    return dict(zip(words[::2], words[1::2], strict=True))


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("example", SCHEMA["examples"], ids=str)
def test_the_schema_s_examples_are_readings_that_the_gateway_takes(example: Any) -> None:
    READING.validate(example)
    record = routed(json.dumps(example).encode())
    assert isinstance(record, Record)
    has_time = isinstance(example, dict) and "time_ms" in example
    assert (record.time_unit != "received") == has_time


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"value": "21.5"},
        {"value": None},
        {"value": 1, "device": ""},
        {"value": 1, "device": 7},
        {"value": 1, "seq": 1.5},
        {"value": 1, "time_ms": 0},
        {"value": 1, "time_ms": -1_764_000_000},
        {"value": 1, "time_ms": 12_345},
        {"value": 1, "time_ms": True},
        {"value": 1, "time_ms": None},
        {"value": 1, "time_ms": "yesterday"},
        {"value": 1, "time_ms": "2026-11-21"},
        [1],
        "21.5",
        True,
        None,
    ],
    ids=str,
)
def test_the_schema_refuses_what_is_no_reading(other: object) -> None:
    assert not READING.is_valid(other)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_document_shows_the_same_message(document: str) -> None:
    first, shown = published(DOCUMENTS[0]), published(document)
    assert (shown["-t"], shown["-m"], shown["-q"]) == (first["-t"], first["-m"], first["-q"])
    assert json.loads(shown["-m"]) in SCHEMA["examples"]
    assert isinstance(routed(shown["-m"].encode(), shown["-t"]), Record)


def test_the_readme_shows_a_reading_with_all_fields() -> None:
    (shown,) = re.findall(r"(?ms)^```json\n(.*?)^```", (ROOT / "gateway/README.md").read_text(encoding="utf-8"))
    assert json.loads(shown) in SCHEMA["examples"]
    assert set(json.loads(shown)) == set(SCHEMA["oneOf"][1]["properties"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
TIMES = (
    st.integers(10**9, 10**10 - 1)
    | st.integers(10**12, 10**13 - 1)
    | st.integers(10**15, 10**16 - 1)
    | st.integers(10**18, 10**19 - 1)
    | st.floats(1e9, 1e10, exclude_max=True)
    | st.datetimes().map(lambda moment: moment.isoformat())
)
READINGS = st.floats(allow_nan=False, allow_infinity=False) | st.fixed_dictionaries(
    {"value": JSON | st.floats()}, optional={"device": JSON, "seq": JSON, "time_ms": TIMES | JSON, "unit": JSON}
)


@UNHURRIED
@given(READINGS | JSON)
def test_schema_and_gateway_agree(document: Any) -> None:
    routing = routed(json.dumps(document).encode())
    if isinstance(routing, Rejection):
        assert not READING.is_valid(document) or not math.isfinite(document)
    elif READING.is_valid(document) and isinstance(document, dict):
        named = document.get("time_ms")
        if isinstance(named, (int, float)):
            assert routing.time_unit in ("s", "ms", "us", "ns")
        elif named is None:
            assert (routing.time_unit, routing.timestamp_ms) == ("received", RECEIVED_MS)
