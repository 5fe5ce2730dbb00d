"""The ledger record's exact form, and state files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drupelet.ledger import LEDGER_TOPIC
from gateway import state
from gateway.records.records import Loss, loss_id_for, new_loss_id


def test_a_ledger_record_has_the_documented_keys_in_order() -> None:
    record = Loss("i", "record_too_large", "mqtt:a/b", 1, 7, 1764000000000).to_record("gateway@pi")
    assert (record.topic, record.key, record.timestamp_ms) == (LEDGER_TOPIC, b"i", 1764000000000)
    assert list(json.loads(record.value).items()) == [
        ("version", 1),
        ("id", "i"),
        ("cause", "record_too_large"),
        ("topic", "mqtt:a/b"),
        ("partition", None),
        ("first_offset", None),
        ("last_offset", None),
        ("records", 1),
        ("bytes", 7),
        ("time_ms", 1764000000000),
        ("node", "gateway@pi"),
    ]


def test_loss_ids_are_new_or_the_same_on_purpose() -> None:
    assert new_loss_id() != new_loss_id()
    assert loss_id_for("a", 1) == loss_id_for("a", 1) != loss_id_for("a", 2)


def test_state_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "state.json"
    assert state.load(path) is None
    for content in ({"a": 1}, {"b": [2]}):
        state.save(path, content)
        assert state.load(path) == content
    assert [entry.name for entry in path.parent.iterdir()] == ["state.json"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": 1} x'])
def test_damaged_state_is_named_with_the_remedy(tmp_path: Path, content: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(content)
    with pytest.raises(state.StateError, match=r"state\.json is damaged .*: remove it"):
        state.load(path)
