from __future__ import annotations

import json
import re

import pytest

from drupelet.errors import ConfigurationError
from mirror import cli
from mirror.config import load
from mirror.ledger import losses
from mirror.topics.selection import TopicNameError, target_name

RUN = ("source", "target", "topics")
GIVEN = {"source": "a:1", "target": "b:2", "topics": "x"}


def test_the_command_line_overrides_the_file(tmp_path):
    path = tmp_path / "mirror.toml"
    path.write_text('source = "c:3"\nsite = "lab"\nledger = false\n')
    config = load(path, {**GIVEN, "site": None}, RUN)
    assert (config.source, config.site, config.ledger) == ("a:1", "lab", False)
    assert (config.name_policy, config.group_id) == ("prefix", "edge-mirror-lab")


def test_without_a_site_names_stay_and_the_target_names_the_group():
    config = load(None, GIVEN, RUN)
    assert (config.name_policy, config.group_id) == ("identity", "edge-mirror-b:2")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"sorce": "x:1"}, "did you mean source"),
        ({"source": ""}, "source is not set"),
        ({"source": "nowhere"}, "must be HOST:PORT"),
        ({"source": "a:1,b"}, r"must be HOST:PORT\[,HOST:PORT\]"),
        ({"target": "b:2,,c:3"}, "must be HOST:PORT"),
        ({"target": "b:2,"}, "must be HOST:PORT"),
        ({"topics": "("}, "topics .* not a regular expression"),
        ({"exclude": "("}, "exclude .* not a regular expression"),
        ({"target": "b:2,a:1"}, "both a:1"),
        ({"policy": "prefix"}, "needs a site"),
        ({"policy": "both"}, "policy 'both'"),
        ({"site": "ä b"}, "cannot start a topic name"),
        ({"target": "a:1"}, "two clusters"),
        ({"compression": "rar"}, "compression 'rar'"),
        ({"commit_interval_ms": 0}, "commit_interval_ms must be between"),
        ({"commit_interval_ms": "5"}, "must be of type int"),
        ({"ledger": 1}, "must be of type bool"),
    ],
)
def test_bad_configuration_is_one_sentence(values, text):
    with pytest.raises(ConfigurationError, match=text) as raised:
        load(None, {**GIVEN, **values}, RUN)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_no_toml_is_named(tmp_path):
    path = tmp_path / "mirror.toml"
    path.write_text("source = ")
    with pytest.raises(ConfigurationError, match=r"mirror\.toml is not TOML"):
        load(path, {}, RUN)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load(tmp_path / "none.toml", {}, RUN)


@pytest.mark.parametrize("arguments", [["run", "--source", "a:1"], ["status", "--source", "a:1"]])
def test_the_command_ends_with_2_on_bad_configuration(arguments, capsys):
    assert cli.main(arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["plan", "--help"], ["status", "--help"]])
def test_help_has_an_example(arguments, capsys):
    with pytest.raises(SystemExit) as raised:
        cli.main(arguments)
    assert raised.value.code == 0
    assert re.search("examples?:\n  edge-mirror ", capsys.readouterr().out)


def selection(**values):
    return load(None, {**GIVEN, **values}, RUN).selection


def test_only_matching_topics_and_the_ledger_are_mirrored():
    names = ["readings", "__consumer_offsets", "__edge_ledger", "__other"]
    assert selection(topics="read.*|.*").of(names) == ["__edge_ledger", "readings"]
    assert selection(topics="read.*|.*", ledger=False).of(names) == ["readings"]
    assert selection(topics="readings").of(["readings2"]) == []


def test_what_is_excluded_is_left_out_but_for_the_ledger():
    names = ["readings", "readings.raw", "__edge_ledger"]
    assert selection(topics=".*", exclude=r".*\.raw|__edge_ledger").of(names) == ["__edge_ledger", "readings"]


@pytest.mark.parametrize(
    ("values", "near"),
    [
        ({"topics": "readings"}, None),
        ({"topics": "reading"}, "readings"),
        ({"topics": "alarms"}, ""),
        ({"topics": "readings", "exclude": "readings"}, ""),
        ({"topics": "reading.*", "exclude": "readings"}, ""),
    ],
)
def test_a_pattern_that_selects_nothing_is_told_with_what_it_may_have_meant(values, near):
    assert selection(**values).near_miss(["readings", "__edge_ledger"]) == near


def test_several_servers_of_a_cluster_have_commas_between():
    assert load(None, {**GIVEN, "target": "b:2, [::1]:3"}, RUN).target_client.servers == ["b:2", "[::1]:3"]


def test_names_at_the_target():
    assert target_name("readings", "prefix", "lab") == "lab.readings"
    assert target_name("readings", "identity", "lab") == "readings"
    with pytest.raises(TopicNameError, match="shorter site name"):
        target_name("x" * 249, "prefix", "lab")


def test_the_ledger_record_is_version_1_in_its_order():
    record = losses.loss(
        "source_offset_jump", "readings", 2, 10, 15, records=5, time_ms=1_764_000_000_000, node="mirror@board"
    )
    key, value = losses.encode(record)
    assert key == b"source_offset_jump:readings:2:10-14"
    assert value == (
        b'{"version":1,"id":"source_offset_jump:readings:2:10-14","cause":"source_offset_jump","topic":"readings",'
        b'"partition":2,"first_offset":10,"last_offset":14,"records":5,"bytes":null,"time_ms":1764000000000,'
        b'"node":"mirror@board"}'
    )
    assert json.loads(value)["bytes"] is None


def test_each_side_is_secured_by_keys_of_its_own(tmp_path):
    (tmp_path / "ca.pem").touch()
    (tmp_path / "pw").touch(0o600)
    path = tmp_path / "mirror.toml"
    path.write_text(
        'source_security_protocol = "SSL"\nsource_ssl_ca_file = "ca.pem"\ntarget_security_protocol = "SASL_PLAINTEXT"\n'
        'target_sasl_username = "u"\ntarget_sasl_password_file = "pw"\n'
    )
    config = load(path, GIVEN, RUN)
    assert config.source_client.security[:2] == ("SSL", str(tmp_path / "ca.pem"))
    assert config.target_client.security[:2] == ("SASL_PLAINTEXT", None)
    assert (config.target_security.mechanism, config.target_security.username) == ("SCRAM-SHA-512", "u")
    assert (config.source_client.bootstrap_servers, config.target_client.bootstrap_servers) == ("a:1", "b:2")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            "target_ssl_ca_file = 'x'",
            "mirror.toml: target_ssl_ca_file is set, and target_security_protocol is",
        ),
        ("source_security_protocol = 'SASL_SSL'", "mirror.toml: source_sasl_username is missing"),
        ("source_sasl_pasword_file = 'x'", "did you mean source_sasl_password_file"),
        ("sasl_username = 'x'", "_sasl_username?"),
    ],
)
def test_a_mistake_in_them_names_side_and_remedy(tmp_path, line, text):
    path = tmp_path / "mirror.toml"
    path.write_text(line)
    with pytest.raises(ConfigurationError) as raised:
        load(path, GIVEN, RUN)
    assert text in str(raised.value)
