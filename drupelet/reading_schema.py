"""What a reading is, declared once for the part that takes it in and the parts that read it.

Here: `reading.schema.json` and its fields' types. Never here: what is done with a reading, or a validator: a device's
message is checked by the part that answers for it.
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
