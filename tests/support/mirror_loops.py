"""Mirrors that face each other: several clusters, the mirrors between them, and how a test waits until all is still.

No assertion may live here.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from drupelet.ledger import LEDGER_TOPIC
from mirror.ledger.losses import encode, loss
from tests.support.mirror_road import FAST, EdgeMirror, numbers, produce, read_all
from tests.support.processes import wait_until
from tests.support.waiting import CALL_S

FIRST_MARK = 1_000_000
_marks = itertools.count(FIRST_MARK)


def topics(bootstrap: str) -> list[str]:
    """Return a cluster's topics but those that brokers and mirrors keep, and ledgers that were mirrored once."""
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=CALL_S).topics
    return sorted(name for name in found if not name.startswith("__") and name.count(".__edge_ledger") != 1)


def found(bootstrap: str, topic: str) -> list[int]:
    """Return the sorted numbers in a topic, those that only marked the end of a wait left out."""
    return sorted(number for number in _numbers(bootstrap, topic) if number < FIRST_MARK)


def _numbers(bootstrap: str, topic: str) -> list[int]:
    records = read_all(bootstrap, topic)
    if topic != LEDGER_TOPIC:
        return numbers(records)
    return [json.loads(record.value or b"")["first_offset"] for record in records]


def write_down(bootstrap: str, number: int) -> None:
    """Write a loss into a cluster's ledger, of the record at the offset `number`."""
    entry = loss("record_refused", "lost", 0, number, number + 1, records=1, time_ms=number, node="test")
    key, value = encode(entry)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    failed: list[object] = []
    producer.produce(LEDGER_TOPIC, value, key, on_delivery=lambda error, _: failed.append(error) if error else None)
    if producer.flush(CALL_S) or failed:
        raise RuntimeError(f"{LEDGER_TOPIC} of {bootstrap} takes no entry: {failed}")


def wait_still(ways: Sequence[tuple[str, str, str, str]], rounds: int = 3) -> None:
    """Have records go all ways, one after another, several times: what would come back has come back then.

    A way is (source, topic there, target, topic there).
    """
    for source, topic, target, name in [*ways] * rounds:
        mark = next(_marks)
        if topic == LEDGER_TOPIC:
            write_down(source, mark)
        else:
            produce(source, topic, mark, mark + 1)
        wait_until(partial(_has, target, name, mark), 20, f"{mark} in {name}", poll_s=0.1)


def _has(bootstrap: str, topic: str, number: int) -> bool:
    return number in _numbers(bootstrap, topic)


@contextmanager
def mirrors(
    directory: Path,
    ways: Mapping[str, tuple[str, str]],
    settings: Mapping[str, str | int | bool] | None = None,
    **more: Any,
) -> Iterator[dict[str, EdgeMirror]]:
    """Run a mirror for each way, by a name: (source, target); `more` are its options."""
    with ExitStack() as stack:
        made = {
            name: EdgeMirror(directory / name, *sides, settings={**FAST, **(settings or {})}, **_of(name, more))
            for name, sides in ways.items()
        }
        for mirror in made.values():
            stack.enter_context(mirror)
        yield made


def _of(name: str, more: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value[name] if isinstance(value, Mapping) else value for key, value in more.items()}
