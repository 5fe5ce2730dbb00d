"""`edge_broker/SETTINGS.md`: what a broker and a topic can be told, made from the declarations.

`python -m tests.support.settings` writes it; a test says when it is not as the declarations say.
"""

from __future__ import annotations

from pathlib import Path

import edge_broker
from edge_broker.configuration.config import KEYS
from edge_broker.configuration.settings import INT_MAX, LONG_MAX, LONG_MIN, TOPIC_KEYS, Key, Kind, as_text

PATH = Path(edge_broker.__file__).parent / "SETTINGS.md"
NUMBERS = {Kind.INT, Kind.SHORT, Kind.LONG, Kind.DOUBLE}
LARGE = {INT_MAX, LONG_MAX, LONG_MIN}

HEAD = """# Settings of topics and of the broker

Made from the declarations (`python -m tests.support.settings`); `edge-broker keys` prints the same, DescribeConfigs
answers it. A topic's setting that is not set has the value of the broker's key, where there is one.

## Of a topic

| setting | type | default | allowed | the broker's key | meaning |
|---|---|---|---|---|---|
"""

BROKER = """
## Of the broker

| key | type | default | allowed | meaning |
|---|---|---|---|---|
"""


def settings() -> str:
    """The file's text."""
    topics = [_row(key, f"`{key.synonym}`" if key.setting and key.synonym else "") for key in TOPIC_KEYS.values()]
    return "".join((HEAD, *topics, BROKER, *(_row(key) for _, key in sorted(KEYS.items()))))


def _row(key: Key, *more: str) -> str:
    default = as_text(key.default)
    cells = [f"`{key.name}`", key.type.name.lower(), f"`{default}`" if default else "", _allowed(key), *more, key.doc]
    return f"| {' | '.join(cells)} |\n"


def _allowed(key: Key) -> str:
    if key.choices:
        return ", ".join(one or "nothing" for one in key.choices)
    return _bounds(key) if key.type in NUMBERS else ""


def _bounds(key: Key) -> str:
    low = "" if key.low in LARGE else f"from {key.low}"
    high = "" if key.high in LARGE else f"to {key.high}"
    return " ".join(filter(None, (low, high)))


if __name__ == "__main__":
    PATH.write_text(settings())
