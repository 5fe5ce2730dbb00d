"""The declaration of a reading, for the part that accepts readings and the parts that read them.

Contains: `reading.schema.json` and its fields' types. Does not contain: the use of a reading, a validator: the part
that acknowledges a device's message checks it.
"""

import json
from functools import cache
from importlib.resources import files
from typing import Any

NAME = "reading.schema.json"


@cache
def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of what a device publishes."""
    document: dict[str, Any] = json.loads(files("drupelet").joinpath(NAME).read_text(encoding="utf-8"))
    return document


def field_types() -> dict[str, set[str]]:
    """Return the JSON types that each field of a reading object may have, in the order of the declaration."""
    (record,) = (each for each in schema()["oneOf"] if each["type"] == "object")
    return {name: types(declared) for name, declared in record["properties"].items()}


def types(declared: dict[str, Any]) -> set[str]:
    """Collect the JSON types of one field, or of all its alternatives."""
    alternatives = declared.get("anyOf", [declared])
    return {each["type"] for each in alternatives}
