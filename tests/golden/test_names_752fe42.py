"""Names that users of 752fe42 met are there still: commands, options, keys, metrics, log events, fields of boards.

`names_752fe42/names.json` says which they were. There may be more by now; a log event that has another name is in
CHANGELOG.md as `old` → `new`.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import urllib.request
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from gateway.metrics import Metrics
from tests.support.command import in_process
from tests.support.golden import GOLDEN, differences, expected
from tests.support.mirror_road import bounds
from tests.support.processes import EdgeBroker, wait_until

ROOT = GOLDEN.parents[1]
THEN: dict[str, Any] = expected(GOLDEN / "names_752fe42" / "names.json")
RENAMED = dict(re.findall(r"`([a-z0-9_-]+)` → `([a-z0-9_-]+)`", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")))
PROGRAMS = {point.name: point for point in entry_points(group="console_scripts") if point.name.startswith("edge-")}


def run(*words: str | Path) -> str:
    """What a command writes, on both streams."""
    module = PROGRAMS[str(words[0])].module.removesuffix(".__main__") + ".cli"
    main: Callable[[list[str]], int] = __import__(module, fromlist=["main"]).main
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), contextlib.suppress(SystemExit):
        in_process(main)([str(word) for word in words[1:]])
    return out.getvalue()


@pytest.mark.parametrize("command", THEN["commands"])
def test_a_command_has_its_options_and_arguments(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    text = run(*command.split(), "--help")
    assert text.startswith(f"usage: {command} ")
    there = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", text))
    assert set(THEN["commands"][command]["options"]) <= there
    for argument in THEN["commands"][command]["arguments"]:
        assert re.search(rf"^  {re.escape(argument)}( |$)", text, re.MULTILINE), argument


def test_broker_keys_have_their_names_and_defaults() -> None:
    text = run("edge-broker", "keys")
    for title, keys in THEN["keys"]["broker"].items():
        table = text.split(title)[1]
        for key, default in keys.items():
            assert re.search(rf"^{re.escape(key)} +{re.escape(default)} ? ", table, re.MULTILINE), (key, default)


def test_spark_settings_have_their_names_and_defaults() -> None:
    now = dict(re.findall(r"^  (\w+)=(\S*)", run("edge-spark", "list"), re.MULTILINE))
    assert differences(THEN["keys"]["spark"], now) == []


GATEWAY = 'state_dir = "s"\n[kafka]\nbootstrap_servers = "h:1"\n'
OPENED = {"": "", "files": "[[files]]\n", "mqtt.routes": "[mqtt]\n[[mqtt.routes]]\n"}


def known(file: Path, program: str, text: str) -> set[str]:
    """The keys that a program says it knows, where a file has one that it does not."""
    file.write_text(f"{text}zzqqzz = 1\n")
    said = run(program, "check", "--config", file)
    match = re.search(r"known (?:here: |are )([\w., ]+?)\.?\n", said)
    assert match, said
    return set(match.group(1).split(", "))


@pytest.mark.parametrize("table", THEN["keys"]["gateway"])
def test_the_gateway_knows_its_keys(tmp_path: Path, table: str) -> None:
    opened = OPENED.get(table, f"[{table}]\n")
    text = "" if not table else GATEWAY + ("" if table == "kafka" else opened)
    assert set(THEN["keys"]["gateway"][table]) <= known(tmp_path / "gateway.toml", "edge-gateway", text)


@pytest.mark.parametrize(("table", "opened"), [("", ""), ("topic", '[topic."a"]\n')])
def test_the_mirror_knows_its_keys(tmp_path: Path, table: str, opened: str) -> None:
    assert set(THEN["keys"]["mirror"][table]) <= known(tmp_path / "mirror.toml", "edge-mirror", opened)


def series(text: str) -> dict[str, tuple[str, set[str]]]:
    """Type and labels of each metric."""
    found: dict[str, tuple[str, set[str]]] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            _, _, name, kind = line.split()
            found[name] = kind, set()
        elif not line.startswith("#"):
            name, labels = re.fullmatch(r"(\w+)(?:\{(.*)\})? \S+", line).groups()  # type: ignore[union-attr]
            for whole in (name, re.sub(r"_(bucket|sum|count)$", "", name)):
                if whole in found:
                    found[whole][1].update(re.findall(r'(\w+)="', labels or ""))
    return found


def test_the_broker_shows_its_metrics(tmp_path: Path) -> None:
    with EdgeBroker(tmp_path) as broker:
        assert bounds(broker.bootstrap, "readings") == (0, 0)  # requests, of which there are figures then
        wait_until(
            lambda: not lacking(_get(broker.metrics_url)),
            20,
            "figures that come by and by",
            seen=lambda: lacking(_get(broker.metrics_url)),
        )


def lacking(text: str) -> list[str]:
    """The broker's metrics that are not there, of another type, or without a label."""
    now = series(text)
    return [
        name
        for name, (kind, labels) in THEN["metrics"]["broker"].items()
        if name not in now or now[name][0] != kind or not now[name][1] >= set(labels)
    ]


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def test_the_gateway_counts_what_it_counted() -> None:
    now = series(generate_latest(Metrics().registry).decode())
    assert {name: kind for name, (kind, _) in THEN["metrics"]["gateway"].items()}.items() <= {
        name: kind for name, (kind, _) in now.items()
    }.items()


@pytest.mark.parametrize("part", [part for part, events in THEN["events"].items() if events])
def test_log_events_have_their_names_or_the_changelog_says_which(part: str) -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / part).rglob("*.py"))
    there = set(re.findall(r'"([a-z0-9_-]+)"', sources))
    gone = [event for event in THEN["events"][part] if RENAMED.get(event, event) not in there]
    assert gone == [], f"name it in CHANGELOG.md as `{gone[0]}` → `new_name`"


@pytest.mark.parametrize("words", THEN["boards"])
def test_a_board_is_told_as_it_was(words: str) -> None:
    what, *more = words.split()
    assert differences(THEN["boards"][words], json.loads(run("edge-board", what, "--json", *more))) == []
