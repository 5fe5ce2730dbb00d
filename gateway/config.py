"""Read the gateway's configuration: a TOML file, checked as a whole before anything starts.

Every error is a ConfigurationError that names the file, the key and the remedy. Does not contain: connections.
"""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from drupelet.addresses import host_and_port
from drupelet.command.config_check import Keys, Table, parse_toml, read_text
from drupelet.errors import ConfigurationError
from drupelet.host.boot_clock import BOOT_TIMES_TOPIC
from drupelet.kafka.client import COMPRESSION_TYPES, ClientSettings
from drupelet.kafka.security import SECURITY_KEYS, Security, security_from
from drupelet.ledger import LEDGER_TOPIC
from drupelet.observe.metrics_access import ACCESS_KEYS, MetricsAccess, access_from, check_metrics
from drupelet.tls.secret_files import check_private
from gateway.routing.routes import Route, RouteError, check_kafka_topic, covers, parse_route, subscriptions
from gateway.times.time_settings import time_settings
from gateway.times.timestamps import TIME_UNITS

OLD_CLIENT_ID = "drupelet-gateway"  # the default of all sites alike, before it held the host's name
PRIORITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")  # syslog(3), most urgent first
_UNIT = re.compile(r"[\w:.\\@*?\[\]][\w:.\\@*?\[\]-]{0,254}", re.ASCII)  # systemd.unit(5), and patterns
_GLOB_MARKS = "*?["


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """The target of records, and how much may wait in memory."""

    bootstrap_servers: tuple[str, ...]
    dead_letter_topic: str
    security: Security
    compression_type: str
    linger_ms: int
    batch_bytes_max: int
    record_bytes_max: int
    request_timeout_ms: int
    pending_bytes_max: int
    pending_records_max: int

    def clients(self, node: str) -> ClientSettings:
        """Return the settings of every client of that cluster; `node` is the client id."""
        return ClientSettings(",".join(self.bootstrap_servers), node, self.request_timeout_ms, self.security)


@dataclass(frozen=True, slots=True)
class MqttConfig:
    """The connection to mosquitto, its user, and the routes."""

    host: str
    port: int
    client_id: str | None
    username: str | None
    password_file: Path | None
    tls: bool
    ssl_ca_file: Path | None
    ssl_cert_file: Path | None
    ssl_key_file: Path | None
    keepalive_s: int
    receive_maximum: int
    watch_drops: bool
    watch_oversize: bool
    routes: tuple[Route, ...]


@dataclass(frozen=True, slots=True)
class FileConfig:
    """A log file to follow, or all that match a pattern."""

    path: Path
    rotated: Path | None
    follow_links: bool
    files_max: int
    topic: str
    start: str
    continuation: str | None
    line_bytes_max: int
    poll_interval_ms: int
    rotate_wait_ms: int
    save_interval_ms: int

    @property
    def is_pattern(self) -> bool:
        """Whether the path is a pattern that stands for all matching files."""
        return any(mark in str(self.path) for mark in _GLOB_MARKS)


@dataclass(frozen=True, slots=True)
class JournalConfig:
    """The host's journal, or the entries that `units` and `priority` select."""

    topic: str
    units: tuple[str, ...]
    priority: str
    start: str
    directory: Path | None
    save_interval_ms: int


@dataclass(frozen=True, slots=True)
class BoardConfig:
    """The board's own health as a source."""

    name: str
    topic: str
    interval_ms: int


@dataclass(frozen=True, slots=True)
class MosquittoConfig:
    """The settings that `edge-gateway mosquitto-conf` writes."""

    listeners: tuple[tuple[str, int], ...]
    tls_listeners: tuple[tuple[str, int], ...]
    ssl_ca_file: Path | None
    ssl_cert_file: Path | None
    ssl_key_file: Path | None
    require_certificate: bool
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
    metrics_access: MetricsAccess
    stop_timeout_ms: int
    clock_trusted: str
    kafka: KafkaConfig
    mqtt: MqttConfig | None
    files: tuple[FileConfig, ...]
    journal: JournalConfig | None
    board: BoardConfig | None
    mosquitto: MosquittoConfig
    mosquitto_given: bool


def _keys(kind: type, below: Keys | None = None) -> Keys:
    """Return the keys of a table whose dataclass is named after them."""
    return {field.name: (below or {}).get(field.name) for field in fields(kind)}


_ROUTE_KEYS: Keys = dict.fromkeys(
    ("pattern", "topic", "key", "headers", "timestamp_field", "time_unit", "time_zone", "time_format")
)
_TABLES: Keys = {
    "kafka": dict.fromkeys(key for key in (*_keys(KafkaConfig), *SECURITY_KEYS) if key != "security"),
    "mqtt": _keys(MqttConfig, {"routes": _ROUTE_KEYS}),
    "files": _keys(FileConfig),
    "journal": _keys(JournalConfig),
    "board": _keys(BoardConfig),
    "mosquitto": _keys(MosquittoConfig),
}
_TOP = ("state_dir", "log_level", "metrics", *ACCESS_KEYS, "stop_timeout_ms", "clock_trusted")
KEYS: Keys = {key: _TABLES.get(key) for key in (*_TOP, *_TABLES)}


def load_config(path: Path) -> GatewayConfig:
    """Read and check a configuration file; raises ConfigurationError."""
    return parse_config(path, read_text(path))


def parse_config(path: Path, content: str) -> GatewayConfig:
    """Check a configuration given as text; `path` is for messages and relative paths. Raises ConfigurationError."""
    return read_config(path, parse_toml(content, path))


def read_config(path: Path, values: dict[str, Any]) -> GatewayConfig:
    """Check the values of a configuration file. Raises ConfigurationError."""
    top = Table(path, "gateway", values)
    top.refuse_unknown(KEYS)
    config = GatewayConfig(
        file=path,
        state_dir=top.path("state_dir"),
        node=f"gateway@{platform.node() or 'localhost'}",
        log_level=top.choice("log_level", "info", ("debug", "info", "warning", "error")),
        metrics=_address(top, "metrics") if top.has("metrics") else None,
        metrics_access=access_from(values, path.parent, lambda key: f"{path}: {key}"),
        stop_timeout_ms=top.number("stop_timeout_ms", 5_000, 0, 600_000),
        clock_trusted=top.choice("clock_trusted", "auto", ("auto", "true", "false")),
        kafka=_kafka(top.table("kafka")),
        mqtt=_mqtt(top.table("mqtt")) if top.has("mqtt") else None,
        files=tuple(_file(table) for table in top.tables("files")),
        journal=_journal(top.table("journal")) if top.has("journal") else None,
        board=_board(top.table("board")) if top.has("board") else None,
        mosquitto=_mosquitto(top.table("mosquitto")),
        mosquitto_given=top.has("mosquitto"),
    )
    if config.metrics is not None:
        check_metrics(config.metrics, config.metrics_access, lambda key: f"{path}: {key}")
    _check_sources(config)
    return config


def _check_sources(config: GatewayConfig) -> None:
    if not (config.mqtt or config.board or config.journal or config.files):
        raise ConfigurationError(f"{config.file} names no source: add [mqtt], [[files]], [journal] or [board].")
    paths = [file.path for file in config.files]
    for path in paths:
        if paths.count(path) > 1:
            raise ConfigurationError(f"{config.file}: files.path {path} is named twice: keep one of them.")
    _check_dead_letter_topic(config)


def _check_dead_letter_topic(config: GatewayConfig) -> None:
    """Refuse a source that writes to the dead-letter topic: readers must find only dead letters in it."""
    topics = [
        (f"mqtt.routes[{index}]", route.topic) for index, route in enumerate(config.mqtt.routes if config.mqtt else ())
    ]
    topics += [(f"files[{index}]", file.topic) for index, file in enumerate(config.files)]
    topics += [("journal", config.journal.topic)] if config.journal else []
    topics += [("board", config.board.topic)] if config.board else []
    for name, topic in topics:
        if topic == config.kafka.dead_letter_topic:
            raise ConfigurationError(
                f"{config.file}: {name}.topic is {topic}, which kafka.dead_letter_topic keeps for what cannot be used:"
                " use another topic."
            )


def _address(table: Table, key: str, text: str | None = None) -> tuple[str, int]:
    text = table.text(key) if text is None else text
    try:
        return host_and_port(text)
    except ValueError:
        raise table.error(key, f'is "{text}": write HOST:PORT, such as 127.0.0.1:9404.') from None


def _topic(table: Table, key: str, default: str | None = None) -> str:
    value = table.text(key, default)
    try:
        check_kafka_topic(value)
    except RouteError as error:
        raise table.error(key, f"is not usable: {error}.") from error
    if value == BOOT_TIMES_TOPIC:
        raise table.error(key, f"is {BOOT_TIMES_TOPIC}, which is kept for the times of boots: use another topic.")
    if value == LEDGER_TOPIC:
        raise table.error(key, f"is {LEDGER_TOPIC}, which is kept for the loss ledger: use another topic.")
    return value


def _kafka(table: Table) -> KafkaConfig:
    servers = table.text("bootstrap_servers")
    for server in servers.split(","):
        _address(table, "bootstrap_servers", server.strip())
    config = KafkaConfig(
        bootstrap_servers=tuple(server.strip() for server in servers.split(",")),
        dead_letter_topic=_topic(table, "dead_letter_topic", "dead_letters"),
        security=security_from(table.values, table.file.parent, lambda key: f"{table.file}: kafka.{key}"),
        compression_type=table.choice("compression_type", "none", COMPRESSION_TYPES),
        linger_ms=table.number("linger_ms", 5, 0, 60_000),
        batch_bytes_max=table.number("batch_bytes_max", 65_536, 1_024, 1_000_000),
        record_bytes_max=table.number("record_bytes_max", 1_000_000, 1_024, 100_000_000),
        request_timeout_ms=table.number("request_timeout_ms", 30_000, 1_000, 600_000),
        pending_bytes_max=table.number("pending_bytes_max", 16_777_216, 65_536, 1 << 40),
        pending_records_max=table.number("pending_records_max", 10_000, 1, 10_000_000),
    )
    if config.compression_type in ("lz4", "snappy", "zstd"):
        _check_codec(table, config.compression_type)
    return config


def _check_there(table: Table, key: str, path: Path | None) -> None:
    if path is not None and not path.is_file():
        raise table.error(key, f"is {path}, which is not there: put the file there, or mend the path.")


def _check_certificate(table: Table) -> None:
    """Refuse a certificate without its key, and a key without its certificate."""
    for one, other in (("ssl_cert_file", "ssl_key_file"), ("ssl_key_file", "ssl_cert_file")):
        if table.has(one) and not table.has(other):
            raise table.error(other, f"is missing: {one} needs it.")


def _check_codec(table: Table, codec: str) -> None:
    from aiokafka import codec as codecs  # noqa: PLC0415 (heavy, and only for these codecs)

    if not getattr(codecs, f"has_{codec}")():
        raise table.error(
            "compression_type",
            f'is "{codec}", which needs cramjam: install Drupelet again, which installs it, or use gzip.',
        )


def _mqtt(table: Table) -> MqttConfig:
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
        client_id=_client_id(table),
        username=table.text("username") if table.has("username") else None,
        password_file=table.optional_path("password_file"),
        tls=table.take("tls", bool, any(table.has(key) for key in ("ssl_ca_file", "ssl_cert_file"))),
        ssl_ca_file=table.optional_path("ssl_ca_file"),
        ssl_cert_file=table.optional_path("ssl_cert_file"),
        ssl_key_file=table.optional_path("ssl_key_file"),
        keepalive_s=table.number("keepalive_s", 30, 5, 65_535),
        receive_maximum=table.number("receive_maximum", 1_000, 1, 65_535),
        watch_drops=(drops := table.take("watch_drops", bool, True)),
        watch_oversize=table.take("watch_oversize", bool, drops),
        routes=routes,
    )
    if config.password_file is not None and config.username is None:
        raise table.error("username", "is missing: a password_file needs one.")
    if not config.tls and (config.ssl_ca_file or config.ssl_cert_file):
        raise table.error("tls", "is false, and ssl_ca_file or ssl_cert_file is set: leave one of them out.")
    _check_certificate(table)
    for key in ("password_file", "ssl_ca_file", "ssl_cert_file", "ssl_key_file"):
        _check_there(table, key, getattr(config, key))
    for key, path in (("password_file", config.password_file), ("ssl_key_file", config.ssl_key_file)):
        if path is not None:
            check_private(path, f"{table.file}: mqtt.{key}")
    return config


def _client_id(table: Table) -> str | None:
    """Return the name of the session, None if the gateway chooses it. Source of valid text: MQTT 5, section 1.5.4."""
    if not table.has("client_id"):
        return None
    value = table.text("client_id")
    if "\0" in value or len(value.encode()) > 65_535:
        raise table.error("client_id", "is not usable: MQTT takes 1 to 65535 bytes without NUL.")
    return value


def default_client_id() -> str:
    """Return the default name of the session; it has the host's name, as a session has one owner."""
    return f"{OLD_CLIENT_ID}-{platform.node() or 'localhost'}"


def _route(table: Table) -> Route:
    headers = table.take("headers", dict, {})
    for name, value in headers.items():
        if not isinstance(value, str):
            raise table.error(f"headers.{name}", f"is {value!r}: write a string.")
    pattern, topic = table.text("pattern"), _topic(table, "topic")
    key = table.text("key", "{mqtt_topic}")
    timestamp_field = table.text("timestamp_field") if table.has("timestamp_field") else None
    time_unit = table.choice("time_unit", "auto", TIME_UNITS)
    times = time_settings(table, timestamp_field, time_unit)
    try:
        return parse_route(
            pattern,
            topic,
            key=key,
            headers=headers,
            timestamp_field=timestamp_field,
            time_unit=time_unit,
            time_zone=times.zone,
            time_formats=times.formats,
        )
    except RouteError as error:
        raise ConfigurationError(f"{table.file}: {table.name} is not usable: {error}.") from error


def _file(table: Table) -> FileConfig:
    return FileConfig(
        path=table.path("path"),
        rotated=table.optional_path("rotated"),
        follow_links=table.take("follow_links", bool, False),
        files_max=table.number("files_max", 100, 1, 10_000),
        topic=_topic(table, "topic", "logs"),
        start=table.choice("start", "beginning", ("beginning", "end")),
        continuation=_continuation(table),
        line_bytes_max=table.number("line_bytes_max", 262_144, 64, 900_000),
        poll_interval_ms=table.number("poll_interval_ms", 250, 10, 60_000),
        rotate_wait_ms=table.number("rotate_wait_ms", 2_000, 0, 600_000),
        save_interval_ms=table.number("save_interval_ms", 1_000, 0, 600_000),
    )


def _continuation(table: Table) -> str | None:
    if not table.has("continuation"):
        return None
    value = table.text("continuation")
    try:
        re.compile(value.encode())
    except re.error as error:
        raise table.error("continuation", f'is "{value}", no regular expression ({error}): mend it.') from error
    return value


def _journal(table: Table) -> JournalConfig:
    units = table.take("units", list, [])
    if not all(isinstance(unit, str) and _UNIT.fullmatch(unit) for unit in units):
        raise table.error("units", 'must be names of units, such as ["ssh.service"].')
    return JournalConfig(
        topic=_topic(table, "topic", "logs"),
        units=tuple(units),
        priority=table.choice("priority", "debug", PRIORITIES),
        start=table.choice("start", "end", ("beginning", "end")),
        directory=table.optional_path("directory"),
        save_interval_ms=table.number("save_interval_ms", 1_000, 0, 600_000),
    )


def _board(table: Table) -> BoardConfig:
    return BoardConfig(
        name=table.text("name", platform.node() or "localhost"),
        topic=_topic(table, "topic", "board_health"),
        interval_ms=table.number("interval_ms", 1_000, 100, 86_400_000),
    )


def _mosquitto(table: Table) -> MosquittoConfig:
    tls_listeners = _listeners(table, "tls_listeners", [])
    config = MosquittoConfig(
        listeners=_listeners(table, "listeners", ["127.0.0.1:1883"]),
        tls_listeners=tls_listeners,
        ssl_ca_file=table.optional_path("ssl_ca_file"),
        ssl_cert_file=table.optional_path("ssl_cert_file"),
        ssl_key_file=table.optional_path("ssl_key_file"),
        require_certificate=table.take("require_certificate", bool, False),
        persistence_dir=table.path("persistence_dir", "/var/lib/mosquitto"),
        queued_bytes_max=table.number("queued_bytes_max", 64 << 20, 65_536, 1 << 40),
        packet_bytes_max=table.number("packet_bytes_max", 900_000, 1_024, 268_435_455),
        inflight_messages_max=table.number("inflight_messages_max", 1_000, 1, 65_535),
        autosave_interval_s=table.number("autosave_interval_s", 10, 1, 3_600),
        sys_interval_s=table.number("sys_interval_s", 10, 1, 3_600),
        password_file=table.optional_path("password_file"),
        user=table.text("user", "mosquitto"),
    )
    if not config.listeners and not config.tls_listeners:
        raise table.error("listeners", "is empty, and there are no tls_listeners: mosquitto would listen nowhere.")
    if config.tls_listeners and config.ssl_cert_file is None:
        raise table.error("ssl_cert_file", "is missing: tls_listeners need a certificate and its ssl_key_file.")
    if config.require_certificate and config.ssl_ca_file is None:
        raise table.error("ssl_ca_file", "is missing: require_certificate needs the CA that signed the devices' ones.")
    _check_certificate(table)
    _check_one_line(table)
    return config


def _listeners(table: Table, key: str, default: list[str]) -> tuple[tuple[str, int], ...]:
    listeners = table.take(key, list, default)
    if not all(isinstance(listener, str) for listener in listeners):
        raise table.error(key, 'must be strings HOST:PORT, such as ["127.0.0.1:1883"].')
    return tuple(_address(table, key, listener) for listener in listeners)


def _check_one_line(table: Table) -> None:
    """Refuse control characters: mosquitto.conf has no quotes, so a newline in a value would begin another setting."""
    for key, value in table.values.items():
        if isinstance(value, str) and not value.isprintable():
            raise table.error(key, "holds a control character, which mosquitto.conf cannot: leave it out.")
