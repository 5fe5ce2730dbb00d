"""The mirror's file as the role writes it: what it says is what the mirror reads, tables of topics too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment, StrictUndefined

from mirror.config import load

ROLE = Path(__file__).parents[3] / "ansible/roles/mirror"
LOGIN = {"protocol": "", "user": ""}
VARIABLES: dict[str, Any] = {
    "mirror_source": "127.0.0.1:9092",
    "mirror_target": "kafka.example.org:9092",
    "mirror_topics": "readings|logs.*",
    "mirror_site": "pi-1",
    "mirror_metrics": "127.0.0.1:9405",
    "mirror_metrics_access": {"token_file": "", "trusted": False},
    "mirror_source_login": LOGIN,
    "mirror_target_login": LOGIN,
    "mirror_settings": {"batch_bytes_max": 16384},
}


def written(rules: Mapping[str, Mapping[str, object]], path: Path) -> Path:
    """The file with these rules, from the template as Ansible fills it in."""
    environment = Environment(trim_blocks=True, undefined=StrictUndefined, autoescape=False)
    environment.filters["to_json"] = json.dumps
    template = environment.from_string((ROLE / "templates/mirror.toml.j2").read_text())
    path.write_text(template.render(VARIABLES, mirror_topic_rules=rules))
    return path


def test_rules_of_topics_reach_the_mirror_in_their_order(tmp_path: Path) -> None:
    rules = {
        "logs.*": {"urgent": True},
        r"log\w+": {"urgent": False, "on_refused": "dead_letter", "compression": "lz4"},
    }
    config = load(written(rules, tmp_path / "mirror.toml"), {}, required=("source", "target", "topics"))
    logs, readings = config.of_topic("logs"), config.of_topic("readings")
    assert (logs.urgent, logs.on_refused, logs.compression) == (True, "dead_letter", "lz4")
    assert (readings.urgent, readings.on_refused) == (False, "stop")
    assert config.batch_bytes_max == 16384


@pytest.mark.parametrize("key", ["urgent", "compression", "on_refused"])
def test_the_role_explains_each_key(key: str) -> None:
    assert key in (ROLE / "meta/argument_specs.yml").read_text()
