"""The gateway's configuration: the example works, and every mistake is one sentence with file, key and remedy."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from drupelet.command.config_check import Keys
from drupelet.errors import ConfigurationError
from drupelet.kafka.security import SECURITY_KEYS
from gateway import cli
from gateway.config import KEYS, parse_config, read_config
from gateway.connect.mosquitto_conf import render

SMALL = 'state_dir = "s"\n[kafka]\nbootstrap_servers = "h:1"\n'
BOARD = SMALL + "[board]\n"
ROUTE = '[[mqtt.routes]]\npattern = "a/{x}"\ntopic = "t"\n'
EXAMPLE = files("gateway").joinpath("example.toml").read_text(encoding="utf-8")


def test_the_example_is_valid_and_checked_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "gateway.toml"
    assert cli.main(["example"]) == 0
    file.write_text(capsys.readouterr().out)
    assert cli.main(["check", "--config", str(file)]) == 0
    told = capsys.readouterr()
    assert "sites/{site}/devices/{device}/readings -> readings, key {device}, time time_ms (auto)" in told.out
    assert "dead letters -> dead_letters" in told.out
    assert all(line.startswith("WARNING: mosquitto.") for line in told.err.splitlines())  # it may not be installed


def test_the_example_shows_every_key_with_its_default() -> None:
    shown = re.sub(r"(?m)^# ([a-z_]+ +?= |\[\[files)", r"\1", EXAMPLE)
    told = parse_config(Path("/etc/g.toml"), _without_examples(shown))
    plain = parse_config(Path("/etc/g.toml"), EXAMPLE)
    assert told.kafka == plain.kafka
    assert told.mqtt == plain.mqtt
    assert told.journal == plain.journal
    (shown_file,) = told.files
    (default_file,) = parse_config(Path("/etc/g.toml"), SMALL + '[[files]]\npath = "/var/log/myapp/*.log"').files
    assert shown_file == default_file
    assert told.mosquitto == plain.mosquitto
    assert (told.log_level, told.stop_timeout_ms) == (plain.log_level, plain.stop_timeout_ms)


def _without_examples(text: str) -> str:
    """Leave out the keys that have no default: the example only says how they would look."""
    optional = (
        "metrics_token_file",
        "username",
        "password_file",
        "headers",
        "name",
        "client_id",
        "units",
        "directory",
        "continuation",
        "rotated",
        "time_zone",
        "time_format",
    )
    return "\n".join(line for line in text.splitlines() if not line.startswith((*optional, "ssl_", "sasl_")))


def test_no_key_is_missing_from_the_example_or_the_readme() -> None:
    sources = ("config.py", "times/time_settings.py")
    source = "".join(files("gateway").joinpath(name).read_text(encoding="utf-8") for name in sources)
    keys = set(re.findall(r'(?:text|number|choice|path|topic|take|has|optional_path|tables?)\(\s*"(\w+)"', source))
    assert len(keys) > 30, keys
    keys |= set(SECURITY_KEYS)
    readme = files("gateway").joinpath("README.md").read_text(encoding="utf-8")
    assert [key for key in sorted(keys) if not re.search(rf"\b{key}\b", EXAMPLE)] == []
    assert [key for key in sorted(keys) if not re.search(rf"\b{key}\b", readme)] == []


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "g.toml: state_dir is missing: give it as a string."),
        ("x = ", "g.toml is not TOML"),
        ('state_dir = "s"', "g.toml: kafka.bootstrap_servers is missing"),
        (SMALL, "g.toml names no source: add [mqtt], [[files]], [journal] or [board]."),
        (
            "[kafka]\nbootstrap = 'h:1'\n[board]",
            'kafka.bootstrap is not a key of the gateway: did you mean "bootstrap_servers',
        ),
        ("[[mqtt.routes]]\npatern = 'a'", 'mqtt.routes[0].patern is not a key of the gateway: did you mean "pattern"?'),
        (SMALL + '[mqtt]\nclient_id = ""\n' + ROUTE, "mqtt.client_id is empty"),
        (
            SMALL + '[mqtt]\nclient_id = "a\\u0000"\n' + ROUTE,
            "mqtt.client_id is not usable: MQTT takes 1 to 65535 bytes",
        ),
        (
            SMALL + '[mqtt]\nusername = "u"\npassword_file = "gone"\n' + ROUTE,
            "gone, which is not there: put the file there",
        ),
        (SMALL + '[mqtt]\nssl_cert_file = "c"\n' + ROUTE, "mqtt.ssl_key_file is missing: ssl_cert_file needs it."),
        (SMALL + '[mqtt]\nssl_key_file = "c"\n' + ROUTE, "mqtt.ssl_cert_file is missing: ssl_key_file needs it."),
        (SMALL + '[mqtt]\ntls = false\nssl_ca_file = "c"\n' + ROUTE, "mqtt.tls is false, and ssl_ca_file"),
        (SMALL + '[[files]]\npath = "a"\ncontinuation = "("', 'files[0].continuation is "(", no regular expression'),
        (SMALL + '[journal]\nunits = ["--rotate"]', "journal.units must be names of units"),
        (SMALL + '[journal]\nunits = "ssh"', "journal.units is 'ssh': write an array."),
        (SMALL + '[journal]\npriority = "high"', "use one of emerg, alert"),
        (SMALL + '[journal]\ntopic = "dead_letters"', "journal.topic is dead_letters"),
        (BOARD + '[mosquitto]\ntls_listeners = ["h:1"]', "mosquitto.ssl_cert_file is missing: tls_listeners need"),
        (BOARD + "[mosquitto]\nlisteners = []", "mosquitto.listeners is empty"),
        (BOARD + "[mosquitto]\nrequire_certificate = true", "mosquitto.ssl_ca_file is missing: require_certificate"),
        (BOARD + '[mosquitto]\nuser = "a\\nb"', "mosquitto.user holds a control character"),
        (SMALL + "linger = 1\n[board]", 'kafka.linger is not a key of the gateway: did you mean "linger_ms"?'),
        (SMALL + "[bord]", 'g.toml: bord is not a key of the gateway: did you mean "board"?'),
        (BOARD + "zzz = 1", "board.zzz is not a key of the gateway: known here: interval_ms, name, topic."),
        (BOARD + "interval_ms = 5", "board.interval_ms is 5: use 100 to 86400000."),
        (BOARD + "interval_ms = true", "board.interval_ms is True: write a whole number."),
        (BOARD + 'interval_ms = "1"', "board.interval_ms is '1': write a whole number."),
        (BOARD + 'topic = "a b"', 'board.topic is not usable: "a b" is not a Kafka topic name'),
        (BOARD + 'topic = "__edge_ledger"', "kept for the loss ledger"),
        (BOARD + 'name = ""', "board.name is empty"),
        ("metrics = 'x'\n" + BOARD, 'metrics is "x": write HOST:PORT'),
        ("metrics = 'x:70000'\n" + BOARD, "write HOST:PORT"),
        ("log_level = 'loud'\n" + BOARD, 'log_level is "loud": use one of debug, info, warning, error.'),
        (SMALL + "compression_type = 'bz2'\n[board]", "use one of none, gzip, lz4, snappy, zstd."),
        (SMALL + "security_protocol = 'SSL'\nssl_ca_file = 'no.pem'\n[board]", "no.pem, which is not there"),
        (
            SMALL + "ssl_ca_file = 'no.pem'\n[board]",
            "kafka.ssl_ca_file is set, and kafka.security_protocol is",
        ),
        (SMALL + "security_protocol = 'SASL_SSL'\n[board]", "g.toml: kafka.sasl_username is missing: kafka.security_"),
        (SMALL + "sasl_pasword_file = 'x'\n[board]", 'did you mean "sasl_password_file"?'),
        (SMALL + "[mqtt]", "mqtt.routes is missing: add a [[mqtt.routes]] table"),
        (SMALL + "[mqtt]\nroutes = [1]", "mqtt.routes must be tables: start each one with [[mqtt.routes]]."),
        (SMALL + ROUTE + 'key = "{y}"', 'mqtt.routes[0] is not usable: {y} in "{y}" is not a capture'),
        (SMALL + ROUTE + "headers = { a = 1 }", "mqtt.routes[0].headers.a is 1: write a string."),
        (SMALL + ROUTE + 'timestamp_field = "t"\ntime_unit = "min"', "use one of auto, s, ms, us, ns, iso, text."),
        (SMALL + ROUTE + 'timestamp_field = "t"\ntime_units = "s"', 'did you mean "time_unit"?'),
        (SMALL + ROUTE + 'time_unit = "s"', "mqtt.routes[0].time_unit needs timestamp_field"),
        (SMALL + 'dead_letter_topic = "a b"\n[board]', "kafka.dead_letter_topic is not usable"),
        (SMALL + 'dead_letter_topic = "__edge_ledger"\n[board]', "kept for the loss ledger"),
        (SMALL + 'dead_letter_topics = "x"\n[board]', 'did you mean "dead_letter_topic"?'),
        (SMALL + 'dead_letter_topic = "t"\n' + ROUTE, "mqtt.routes[0].topic is t, which kafka.dead_letter_topic keeps"),
        (BOARD + 'topic = "dead_letters"', "board.topic is dead_letters, which kafka.dead_letter_topic keeps"),
        (SMALL + '[[files]]\npath = "a"\ntopic = "dead_letters"', "files[0].topic is dead_letters"),
        (SMALL + ROUTE + ROUTE, "mqtt.routes[1] is never reached"),
        (SMALL + ROUTE + ROUTE.replace("a/{x}", "+/b"), "both match some topics"),
        (SMALL + '[mqtt]\npassword_file = "p"\n' + ROUTE, "mqtt.username is missing: a password_file needs one."),
        (SMALL + "[[files]]", "files[0].path is missing"),
        (SMALL + '[[files]]\npath = "a"\n[[files]]\npath = "a"', "is named twice"),
        (BOARD + "[mosquitto]\nlisteners = [1]", "mosquitto.listeners must be strings"),
    ],
)
def test_mistakes_name_file_key_and_remedy(content: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_config(Path("g.toml"), content)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_mistake_is_one_line_on_stderr_and_exit_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "g.toml"
    for content in ("", None, b"\xff"):
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
        for command in ("run", "check", "mosquitto-conf"):
            assert cli.main([command, "--config", str(file)]) == 2
            told = capsys.readouterr()
            assert told.out == ""
            assert told.err.startswith(f"edge-gateway: {file}")
            assert told.err.count("\n") == 1


def test_every_declared_key_is_taken() -> None:
    whole = SMALL + "[mqtt]\n" + ROUTE + '[[files]]\npath = "a"\n[journal]\n[board]\n[mosquitto]\n'
    for place, key in [(place, key) for place, keys in _tables(KEYS) for key, below in keys.items() if below is None]:
        values: Any = tomllib.loads(whole)
        table = values
        for name in place:
            table = table[name][0] if isinstance(table[name], list) else table[name]
        table[key] = 1.5  # of no key's kind
        with pytest.raises(ConfigurationError, match=rf"\b{key}(\.\w+)? is 1\.5: write"):
            read_config(Path("g.toml"), values)


def _tables(keys: Keys, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Keys]]:
    yield place, keys
    for key, below in keys.items():
        if below is not None:
            yield from _tables(below, (*place, key))


def test_mosquitto_conf_names_whole_paths_and_the_files_of_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'persistence_dir = "db"\npassword_file = "pw"\nssl_cert_file = "c"\nssl_key_file = "k"\nssl_ca_file = "ca"\n'
    text += 'tls_listeners = ["0.0.0.0:8883"]\nrequire_certificate = true\n'
    (tmp_path / "g.toml").write_text(BOARD + "[mosquitto]\n" + text)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["mosquitto-conf", "--config", "g.toml"]) == 0
    lines = capsys.readouterr().out.splitlines()
    tls = lines.index("listener 8883 0.0.0.0")
    assert lines.index("listener 1883 127.0.0.1") < tls
    assert f"persistence_location {tmp_path}/db/" in lines
    assert f"password_file {tmp_path}/pw" in lines[: lines.index("listener 1883 127.0.0.1")]
    expected = {f"certfile {tmp_path}/c", f"keyfile {tmp_path}/k", f"cafile {tmp_path}/ca", "require_certificate true"}
    assert expected <= set(lines[tls:])


def test_relative_paths_are_relative_to_the_file() -> None:
    config = parse_config(Path("/etc/drupelet/g.toml"), BOARD)
    assert config.state_dir == Path("/etc/drupelet/s")


def test_mosquitto_conf_is_persistent_bounded_and_on_loopback() -> None:
    lines = render(parse_config(Path("g.toml"), BOARD).mosquitto).splitlines()
    for line in (
        "listener 1883 127.0.0.1",
        "persistence true",
        "max_queued_messages 0",
        "max_queued_bytes 67108864",
        "max_packet_size 900000",
        "autosave_interval 10",
        "sys_interval 10",
    ):
        assert line in lines


def test_an_open_listener_is_warned_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "g.toml"
    file.write_text(BOARD + '[mosquitto]\nlisteners = ["0.0.0.0:1883"]\n')
    assert cli.main(["mosquitto-conf", "--config", str(file)]) == 0
    told = capsys.readouterr()
    assert "listener 1883 0.0.0.0" in told.out
    assert told.err.count("0.0.0.0:1883") == 1
    assert "WARNING: mosquitto.listeners 0.0.0.0:1883 lets anyone publish" in told.err


def test_every_command_has_help_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["run", "--help"], ["check", "--help"], ["mosquitto-conf", "--help"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        assert ended.value.code == 0
        assert "example: edge-gateway" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        cli.main(["run"])
    assert ended.value.code == 2


def test_the_example_is_toml_as_it_stands() -> None:
    assert tomllib.loads(EXAMPLE)["state_dir"]
