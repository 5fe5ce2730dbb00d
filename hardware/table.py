"""Print the fields of a board: one JSON object with every field, or a table of those that it has.

Does not contain: the meaning of a field, the problems (`problems`).
"""

import json
import sys
from collections.abc import Iterator, Mapping

from drupelet.quantities import is_or_are, quantity_text
from hardware import JSON

PROBLEMS = "problems"


def write(fields: dict[str, JSON], as_json: bool) -> None:
    """Print fields as one JSON object, or as a table without null and empty ones; its last line counts these."""
    if as_json:
        sys.stdout.write(json.dumps(fields, ensure_ascii=False, indent=2) + "\n")
        return
    sys.stdout.writelines(f"{line}\n" for line in table(fields))
    if count := left_out(fields):
        fields_text = f"{quantity_text(count, 'field')} {is_or_are(count)}"
        sys.stdout.write(f"\n{fields_text} left out, which this machine lacks or does not tell: null in --json\n")


def table(fields: Mapping[str, JSON]) -> Iterator[str]:
    """Lay out fields as rows, then each value with fields of its own (a disk, a link) as a block below its name."""
    there = {name: value for name, value in fields.items() if is_there(name, value)}
    blocks = {name: value for name, value in there.items() if is_block(value)}
    width = max((len(name) for name in there if name not in blocks), default=0)
    for name, value in there.items():
        if name not in blocks:
            first, *more = texts_of(name, value)
            yield f"{name:{width}}  {first}"
            yield from (f"{'':{width}}  {text}" for text in more)
    for name, value in blocks.items():
        for title, inner in parts(value):
            yield from ("", f"{name}: {title}")
            yield from (f"  {line}" for line in table(inner))


def is_there(name: str, value: JSON) -> bool:
    """Return whether this machine has the value, or reports it; an empty list of problems is a report, too."""
    return name == PROBLEMS or value not in (None, [], {})


def left_out(fields: Mapping[str, JSON]) -> int:
    """Count the fields of all levels that a table lacks."""
    count = sum(not is_there(name, value) for name, value in fields.items())
    return count + sum(left_out(inner) for value in fields.values() if is_block(value) for _, inner in parts(value))


def is_block(value: JSON) -> bool:
    """Return whether a value has fields of its own."""
    inner = list(value.values()) if isinstance(value, dict) else value
    return isinstance(inner, list) and any(isinstance(each, dict) for each in inner)


def parts(value: JSON) -> Iterator[tuple[str, dict[str, JSON]]]:
    """Split a list of named objects, or an object of objects: (name, fields)."""
    if isinstance(value, list):
        for each in value:
            if isinstance(each, dict):
                yield str(each["name"]), {name: inner for name, inner in each.items() if name != "name"}
    if isinstance(value, dict):
        yield from ((name, each) for name, each in value.items() if isinstance(each, dict))


def texts_of(name: str, value: JSON) -> list[str]:
    """Return one value in a line, problems in a line each."""
    if name == PROBLEMS and isinstance(value, list):
        return [str(each) for each in value] or ["none"]
    return [text_of(name, value)]


def text_of(name: str, value: JSON) -> str:
    """Return one value in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key} {each}" for key, each in value.items())
    if isinstance(value, list):
        return "; ".join(map(str, value))
    return amount(value) if name.endswith("_bytes") and isinstance(value, int) else str(value)


def amount(count: int) -> str:
    """Write bytes as card makers count them."""
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
