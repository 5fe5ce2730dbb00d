"""Tables for some topics alone: which one counts, and what is wrong with one."""

from __future__ import annotations

import pytest

from drupelet.errors import ConfigurationError
from mirror.config import load
from mirror.topics.overrides import TopicSettings, rules_from, settings_of

FILE = """
source = "a:1"
target = "b:2"
topics = ".*"
[topic."alarms.*"]
urgent = true
[topic.".*_raw"]
compression = "lz4"
on_refused = "dead_letter"
[topic.".*"]
compression = "zstd"
"""


def test_the_first_table_that_sets_a_key_counts(tmp_path):
    (tmp_path / "mirror.toml").write_text(FILE)
    config = load(tmp_path / "mirror.toml", {}, ())
    assert config.of_topic("alarms_raw") == TopicSettings(urgent=True, compression="lz4", on_refused="dead_letter")
    assert config.of_topic("my_alarms") == TopicSettings(compression="zstd")
    assert config.of_topic("alarms_raw").text() == "urgent, lz4, dead_letter"
    assert settings_of("x", ()).text() == ""


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (3, "topic is 3: write a table per pattern"),
        ({"alarms": True}, "topic.alarms is True: write a table"),
        ({"a(": {}}, "'a\\(' is not a regular expression"),
        ({"a": {"urgnt": True}}, r'\[topic."a"\] has an unknown key urgnt: did you mean urgent\?'),
        ({"a": {"zzzzz": True}}, "known are urgent, compression, on_refused"),
        ({"a": {"urgent": 1}}, "urgent must be of type bool, not 1"),
        ({"a": {"compression": "brotli"}}, "compression 'brotli' is not known: use none, gzip"),
        ({"a": {"on_refused": "skip"}}, "on_refused 'skip' is not known: use stop, dead_letter"),
    ],
)
def test_what_is_wrong_is_told_with_the_remedy(tables, said):
    with pytest.raises(ConfigurationError, match=said):
        rules_from(tables)
