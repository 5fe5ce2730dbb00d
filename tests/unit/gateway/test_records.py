"""The ledger record's exact form, state files, and log lines."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from gateway import state
from gateway.logfmt import Log, LogfmtFormatter, quote
from gateway.records import LEDGER_TOPIC, Loss, loss_id_for, new_loss_id


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


def test_log_lines_are_logfmt(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        Log("gateway.x").warning("it_happened", topic="a b", n=3, empty="", quoted='"')
    line = LogfmtFormatter().format(caplog.records[0])
    stamp, rest = line.split(" ", 1)
    assert rest == r'warning gateway.x it_happened topic="a b" n=3 empty="" quoted="\""'
    assert stamp.endswith("Z")
    assert len(stamp) == len("2026-11-21T12:55:26.000Z")


def test_a_value_cannot_forge_a_log_line() -> None:
    assert "\n" not in quote("a\nb c=d")
