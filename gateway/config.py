"""The gateway's configuration: a TOML file checked whole before anything starts.

Every error is a ConfigurationError that names the file, the key and the remedy. Nothing here opens a connection.
"""

from __future__ import annotations

import difflib
import platform
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gateway.errors import ConfigurationError
from gateway.records import LEDGER_TOPIC
from gateway.routing import Route, RouteError, check_kafka_topic, covers, parse_route, subscriptions
from gateway.timestamps import TIME_UNITS

CONFIG_BYTES_MAX = 1 << 20
COMPRESSION_TYPES = ("none", "gzip", "lz4", "snappy", "zstd")
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL")
_Value = TypeVar("_Value", str, int, bool, list[Any], dict[str, Any])
_KINDS = {str: "a string", int: "a whole number", bool: "true or false", list: "an array", dict: "a table"}


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """Where records go, and how much may wait in memory on the way."""

    bootstrap_servers: tuple[str, ...]
    dead_letter_topic: str
    security_protocol: str
    ssl_ca_file: Path | None
    compression_type: str
    linger_ms: int
    batch_bytes_max: int
    record_bytes_max: int
    request_timeout_ms: int
    pending_bytes_max: int
    pending_records_max: int


@dataclass(frozen=True, slots=True)
class MqttConfig:
    """Which mosquitto to read, as whom, and what goes where."""

    host: str
    port: int
    client_id: str
    username: str | None
    password_file: Path | None
    keepalive_s: int
    receive_maximum: int
    watch_drops: bool
    routes: tuple[Route, ...]


@dataclass(frozen=True, slots=True)
class FileConfig:
    """A log file to follow."""

    path: Path
    topic: str
    start: str
    line_bytes_max: int
    poll_interval_ms: int
    rotate_wait_ms: int
    save_interval_ms: int


@dataclass(frozen=True, slots=True)
class BoardConfig:
    """The board's own health as a source."""

    name: str
    topic: str
    interval_ms: int


@dataclass(frozen=True, slots=True)
class MosquittoConfig:
    """What `edge-gateway mosquitto-conf` writes."""

    listeners: tuple[tuple[str, int], ...]
    persistence_dir: Path
    queued_bytes_max: int
    packet_bytes_max: int
    inflight_messages_max: int
    autosave_interval_s: int
    sys_interval_s: int
    password_file: Path | None
    user: str


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """The whole file."""

    file: Path
    state_dir: Path
    node: str
    log_level: str
    metrics: tuple[str, int] | None
    stop_timeout_ms: int
    kafka: KafkaConfig
    mqtt: MqttConfig | None
    files: tuple[FileConfig, ...]
    board: BoardConfig | None
    mosquitto: MosquittoConfig


class _Table:
    """One table of the file, taken key by key; `done` complains about what nobody took."""

    def __init__(self, file: Path, name: str, values: dict[str, Any]) -> None:
        self.file = file
        self.name = name
        self.values = values
        self.known: list[str] = []

    def error(self, key: str, sentence: str) -> ConfigurationError:
        where = f"{self.name}.{key}" if self.name else key
        return ConfigurationError(f"{self.file}: {where} {sentence}")

    def take(self, key: str, kind: type[_Value], default: _Value | None = None) -> _Value:
        """Return a value of the right kind; a key without a default must be there."""
        self.known.append(key)
        value = self.values.get(key, default)
        if value is None:
            raise self.error(key, f"is missing: give it as {_KINDS[kind]}.")
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.error(key, f"is {value!r}: write {_KINDS[kind]}.")
        return value

    def has(self, key: str) -> bool:
        self.known.append(key)
        return key in self.values

    def text(self, key: str, default: str | None = None) -> str:
        value = self.take(key, str, default)
        if not value:
            raise self.error(key, "is empty: write at least one character, or leave the key out.")
        return value

    def number(self, key: str, default: int, low: int, high: int) -> int:
        value = self.take(key, int, default)
        if not low <= value <= high:
            raise self.error(key, f"is {value}: use {low} to {high}.")
        return value

    def choice(self, key: str, default: str, choices: tuple[str, ...]) -> str:
        value = self.take(key, str, default)
        if value not in choices:
            raise self.error(key, f'is "{value}": use one of {", ".join(choices)}.')
        return value

    def path(self, key: str, default: str | None = None) -> Path:
        """Return a path; a relative one is relative to the file it stands in."""
        return self.file.parent / Path(self.text(key, default)).expanduser()

    def optional_path(self, key: str) -> Path | None:
        return self.path(key) if self.has(key) else None

    def topic(self, key: str, default: str | None = None) -> str:
        value = self.text(key, default)
        try:
            check_kafka_topic(value)
        except RouteError as error:
            raise self.error(key, f"is not usable: {error}.") from error
        if value == LEDGER_TOPIC:
            raise self.error(key, f"is {LEDGER_TOPIC}, which is kept for the loss ledger: use another topic.")
        return value

    def table(self, key: str) -> _Table:
        name = f"{self.name}.{key}" if self.name else key
        return _Table(self.file, name, self.take(key, dict, {}))

    def tables(self, key: str) -> list[_Table]:
        name = f"{self.name}.{key}" if self.name else key
        values = self.take(key, list, [])
        if not all(isinstance(value, dict) for value in values):
            raise self.error(key, f"must be tables: start each one with [[{name}]].")
        return [_Table(self.file, f"{name}[{index}]", value) for index, value in enumerate(values)]

    def done(self) -> None:
        for key in self.values:
            if key not in self.known:
                near = difflib.get_close_matches(key, self.known, n=1, cutoff=0.5)
                remedy = f'did you mean "{near[0]}"?' if near else f"known here: {', '.join(sorted(self.known))}."
                raise self.error(key, f"is not a key of the gateway: {remedy}")


def load_config(path: Path) -> GatewayConfig:
    """Read and check a configuration file; raises ConfigurationError."""
    return parse_config(path, _read(path))


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(CONFIG_BYTES_MAX + 1)
        if len(content) > CONFIG_BYTES_MAX:
            raise ConfigurationError(f"{path} is larger than {CONFIG_BYTES_MAX} bytes: is it a gateway configuration?")
        return content.decode()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 at byte {error.start}: save it as UTF-8.") from error


def parse_config(path: Path, content: str) -> GatewayConfig:
    """Check a configuration given as text; `path` is for messages and relative paths. Raises ConfigurationError."""
    try:
        values = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is not TOML: {error}.") from error
    top = _Table(path, "", values)
    config = GatewayConfig(
        file=path,
        state_dir=top.path("state_dir"),
        node=f"gateway@{platform.node() or 'localhost'}",
        log_level=top.choice("log_level", "info", ("debug", "info", "warning", "error")),
        metrics=_address(top, "metrics") if top.has("metrics") else None,
        stop_timeout_ms=top.number("stop_timeout_ms", 5_000, 0, 600_000),
        kafka=_kafka(top.table("kafka")),
        mqtt=_mqtt(top.table("mqtt")) if top.has("mqtt") else None,
        files=tuple(_file(table) for table in top.tables("files")),
        board=_board(top.table("board")) if top.has("board") else None,
        mosquitto=_mosquitto(top.table("mosquitto")),
    )
    top.done()
    _check_sources(config)
    return config


def _check_sources(config: GatewayConfig) -> None:
    if config.mqtt is None and config.board is None and not config.files:
        raise ConfigurationError(f"{config.file} names no source: add [mqtt], [[files]] or [board].")
    paths = [file.path for file in config.files]
    for path in paths:
        if paths.count(path) > 1:
            raise ConfigurationError(f"{config.file}: files.path {path} is named twice: keep one of them.")
    _check_dead_letter_topic(config)


def _check_dead_letter_topic(config: GatewayConfig) -> None:
    """Refuse a source that writes to the dead-letter topic: its readers must find nothing but dead letters there."""
    topics = [
        (f"mqtt.routes[{index}]", route.topic) for index, route in enumerate(config.mqtt.routes if config.mqtt else ())
    ]
    topics += [(f"files[{index}]", file.topic) for index, file in enumerate(config.files)]
    topics += [("board", config.board.topic)] if config.board else []
    for name, topic in topics:
        if topic == config.kafka.dead_letter_topic:
            raise ConfigurationError(
                f"{config.file}: {name}.topic is {topic}, which kafka.dead_letter_topic keeps for what cannot be used:"
                " use another topic."
            )


def _address(table: _Table, key: str, text: str | None = None) -> tuple[str, int]:
    text = table.text(key) if text is None else text
    host, _, port = text.rpartition(":")
    if not host or not re.fullmatch(r"\d{1,5}", port) or int(port) > 65_535:
        raise table.error(key, f'is "{text}": write HOST:PORT, such as 127.0.0.1:9404.')
    return host.strip("[]"), int(port)


def _kafka(table: _Table) -> KafkaConfig:
    servers = table.text("bootstrap_servers")
    for server in servers.split(","):
        _address(table, "bootstrap_servers", server.strip())
    config = KafkaConfig(
        bootstrap_servers=tuple(server.strip() for server in servers.split(",")),
        dead_letter_topic=table.topic("dead_letter_topic", "dead_letters"),
        security_protocol=table.choice("security_protocol", "PLAINTEXT", SECURITY_PROTOCOLS),
        ssl_ca_file=table.optional_path("ssl_ca_file"),
        compression_type=table.choice("compression_type", "none", COMPRESSION_TYPES),
        linger_ms=table.number("linger_ms", 5, 0, 60_000),
        batch_bytes_max=table.number("batch_bytes_max", 65_536, 1_024, 1_000_000),
        record_bytes_max=table.number("record_bytes_max", 1_000_000, 1_024, 100_000_000),
        request_timeout_ms=table.number("request_timeout_ms", 30_000, 1_000, 600_000),
        pending_bytes_max=table.number("pending_bytes_max", 16_777_216, 65_536, 1 << 40),
        pending_records_max=table.number("pending_records_max", 10_000, 1, 10_000_000),
    )
    table.done()
    if config.ssl_ca_file is not None and not config.ssl_ca_file.is_file():
        raise table.error(
            "ssl_ca_file", f"is {config.ssl_ca_file}, which is not there: put the CA's certificate there."
        )
    if config.compression_type in ("lz4", "snappy", "zstd"):
        _check_codec(table, config.compression_type)
    return config


def _check_codec(table: _Table, codec: str) -> None:
    from aiokafka import codec as codecs  # noqa: PLC0415 (heavy, and only for these codecs)

    if not getattr(codecs, f"has_{codec}")():
        raise table.error("compression_type", f'is "{codec}", which needs cramjam: `pip install cramjam`, or use gzip.')


def _mqtt(table: _Table) -> MqttConfig:
    routes = tuple(_route(route) for route in table.tables("routes"))
    if not routes:
        raise table.error("routes", "is missing: add a [[mqtt.routes]] table with pattern and topic.")
    for index, route in enumerate(routes):
        if any(covers(earlier.topic_filter.split("/"), route.topic_filter.split("/")) for earlier in routes[:index]):
            raise table.error(f"routes[{index}]", "is never reached, an earlier route takes its topics: move it up.")
    try:
        subscriptions(routes)
    except RouteError as error:
        raise table.error("routes", f"is not usable: {error}.") from error
    config = MqttConfig(
        host=table.text("host", "127.0.0.1"),
        port=table.number("port", 1883, 1, 65_535),
        client_id=table.text("client_id", "drupelet-gateway"),
        username=table.text("username") if table.has("username") else None,
        password_file=table.optional_path("password_file"),
        keepalive_s=table.number("keepalive_s", 30, 5, 65_535),
        receive_maximum=table.number("receive_maximum", 1_000, 1, 65_535),
        watch_drops=table.take("watch_drops", bool, True),
        routes=routes,
    )
    table.done()
    if config.password_file is not None and config.username is None:
        raise table.error("username", "is missing: a password_file needs one.")
    return config


def _route(table: _Table) -> Route:
    headers = table.take("headers", dict, {})
    for name, value in headers.items():
        if not isinstance(value, str):
            raise table.error(f"headers.{name}", f"is {value!r}: write a string.")
    pattern, topic = table.text("pattern"), table.topic("topic")
    key = table.text("key", "{mqtt_topic}")
    timestamp_field = table.text("timestamp_field") if table.has("timestamp_field") else None
    time_unit = table.choice("time_unit", "auto", TIME_UNITS)
    table.done()
    if timestamp_field is None and "time_unit" in table.values:
        raise table.error("time_unit", "needs timestamp_field, the name of the JSON field that holds the time: add it.")
    try:
        return parse_route(
            pattern, topic, key=key, headers=headers, timestamp_field=timestamp_field, time_unit=time_unit
        )
    except RouteError as error:
        raise ConfigurationError(f"{table.file}: {table.name} is not usable: {error}.") from error


def _file(table: _Table) -> FileConfig:
    config = FileConfig(
        path=table.path("path"),
        topic=table.topic("topic", "logs"),
        start=table.choice("start", "beginning", ("beginning", "end")),
        line_bytes_max=table.number("line_bytes_max", 262_144, 64, 900_000),
        poll_interval_ms=table.number("poll_interval_ms", 250, 10, 60_000),
        rotate_wait_ms=table.number("rotate_wait_ms", 2_000, 0, 600_000),
        save_interval_ms=table.number("save_interval_ms", 1_000, 0, 600_000),
    )
    table.done()
    return config


def _board(table: _Table) -> BoardConfig:
    config = BoardConfig(
        name=table.text("name", platform.node() or "localhost"),
        topic=table.topic("topic", "board_health"),
        interval_ms=table.number("interval_ms", 1_000, 100, 86_400_000),
    )
    table.done()
    return config


def _mosquitto(table: _Table) -> MosquittoConfig:
    listeners = table.take("listeners", list, ["127.0.0.1:1883"])
    if not listeners or not all(isinstance(listener, str) for listener in listeners):
        raise table.error("listeners", 'must be strings HOST:PORT, such as ["127.0.0.1:1883"].')
    config = MosquittoConfig(
        listeners=tuple(_address(table, "listeners", listener) for listener in listeners),
        persistence_dir=table.path("persistence_dir", "/var/lib/mosquitto"),
        queued_bytes_max=table.number("queued_bytes_max", 64 << 20, 65_536, 1 << 40),
        packet_bytes_max=table.number("packet_bytes_max", 900_000, 1_024, 268_435_455),
        inflight_messages_max=table.number("inflight_messages_max", 1_000, 1, 65_535),
        autosave_interval_s=table.number("autosave_interval_s", 10, 1, 3_600),
        sys_interval_s=table.number("sys_interval_s", 10, 1, 3_600),
        password_file=table.optional_path("password_file"),
        user=table.text("user", "mosquitto"),
    )
    table.done()
    return config
