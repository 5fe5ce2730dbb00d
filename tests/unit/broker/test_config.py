"""The broker's configuration and command line: every bad input is one sentence with a remedy and exit status 2."""

from __future__ import annotations

import pytest

from drupelet.errors import ConfigurationError
from edge_broker.cli import main
from edge_broker.configuration.config import KEYS, BrokerConfig, parse_endpoint, read_config
from edge_broker.configuration.settings import TOPIC_KEYS, LogSettings
from tests.support.settings import PATH, settings


def test_defaults_lie_within_their_bounds() -> None:
    for key in KEYS.values():
        assert key.doc.endswith(".")
        if isinstance(key.default, int) and not isinstance(key.default, bool):
            assert key.low <= key.default <= key.high, key.name


def test_the_tables_of_settings_are_as_they_are_declared() -> None:
    assert PATH.read_text() == settings(), "write it again: python -m tests.support.settings"


def test_keys_lists_what_the_broker_and_what_a_topic_may_be_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines() if not line.endswith(":")]
    assert names == [*KEYS, *TOPIC_KEYS]


def test_a_topics_setting_and_the_brokers_key_for_all_topics_are_declared_once() -> None:
    for key in LogSettings.KEYS.values():
        assert key.doc.endswith(".")
        if key.synonym:
            assert KEYS[key.synonym].default == LogSettings.DEFAULTS[key.setting] == key.default
            assert KEYS[key.synonym].doc == key.doc


def test_retention_defaults_to_one_week() -> None:
    assert BrokerConfig().integer("log.retention.ms") == 7 * 24 * 3600 * 1000


def test_toml_tables_and_dotted_keys_mean_the_same() -> None:
    one = read_config("[log.retention]\nms = 1000\n", "a.toml", [])
    other = read_config("'log.retention.ms' = 1000\n", "a.toml", [])
    assert one.integer("log.retention.ms") == other.integer("log.retention.ms") == 1000


def test_set_wins_over_the_file() -> None:
    assert read_config("num.partitions = 3\n", "a.toml", ["num.partitions=5"]).integer("num.partitions") == 5


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("log.retension.ms=5", "log.retention.ms"),
        ("num.partitions=0", "between 1 and 1000"),
        ("num.partitions=many", "whole number"),
        ("auto.create.topics.enable=1", "true or false"),
        ("log.cleanup.policy=shred", "compact"),
        ("num.partitions", "no '='"),
        ("group.min.session.timeout.ms=1900000", "above"),
    ],
)
def test_bad_setting_is_one_helpful_sentence(assignment: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_config(None, "", [assignment])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["nowhere", ":9092", "host:", "host:x", "host:70000"])
def test_bad_endpoint(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--listen"):
        parse_endpoint("--listen", text)


def test_ipv6_endpoint() -> None:
    assert parse_endpoint("--listen", "[::1]:9092") == ("::1", 9092)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve"], "--data-dir"),
        (["serve", "--data-dir", "d", "--listen", "0.0.0.0:9092"], "--advertise"),
        (["serve", "--data-dir", "d", "--listen", "x"], "HOST:PORT"),
        (["serve", "--data-dir", "d", "--listen", "h:1", "--config", "missing.toml"], "missing.toml"),
        (["serv"], "serv"),
    ],
)
def test_bad_usage_exits_2_with_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(arguments)
    except SystemExit as ended:
        status = int(str(ended.code))
    assert status == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_the_version_is_that_of_the_installed_distribution(monkeypatch, capsys) -> None:
    """The install role asks each program for it; said twice, the two would differ one day."""
    monkeypatch.setattr("importlib.metadata.version", lambda name: f"900.1 of {name}")
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("edge-broker 900.1 of drupelet, ")


CLUSTER_KEYS = (
    "zookeeper.connect",
    "zookeeper.session.timeout.ms",
    "broker.id",
    "broker.rack",
    "inter.broker.listener.name",
    "default.replication.factor",
    "min.insync.replicas",
    "replica.lag.time.max.ms",
    "replica.fetch.max.bytes",
    "replica.fetch.wait.max.ms",
    "num.replica.fetchers",
    "replica.high.watermark.checkpoint.interval.ms",
    "unclean.leader.election.enable",
    "auto.leader.rebalance.enable",
    "leader.imbalance.per.broker.percentage",
    "leader.imbalance.check.interval.seconds",
    "controlled.shutdown.enable",
    "controlled.shutdown.max.retries",
    "controlled.shutdown.retry.backoff.ms",
)


@pytest.mark.parametrize("key", CLUSTER_KEYS)
def test_a_misspelt_key_of_a_cluster_ends_with_2_and_the_right_one(
    key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert key in KEYS
    words = key.split(".")
    wrong = ".".join((*words[:-1], words[-1][:-1]))  # its last letter is missing
    assert main(["serve", "--data-dir", "d", "--listen", "h:1", "--set", f"{wrong}=1"]) == 2
    error = capsys.readouterr().err
    assert f"unknown configuration key {wrong!r} in --set; did you mean {key!r}?" in error
    assert error.count("\n") == 1
