"""The command line `edge-gateway`: parses, reports errors as one sentence, sets exit codes."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from datetime import UTC
from importlib.resources import files

from drupelet.command.arguments import Parser, path
from drupelet.command.command_line import announce, run
from drupelet.errors import ConfigurationError
from drupelet.host.descriptors import raise_limit
from drupelet.observe.log_tree import Log, set_up
from drupelet.printable import printable
from gateway import notices
from gateway.config import GatewayConfig, MqttConfig, default_client_id, load_config
from gateway.open_files import limit_notices, open_files_max
from gateway.routing.routes import Route
from gateway.state import StateError

_EXAMPLES = {
    "run": "edge-gateway run --config /etc/drupelet/gateway.toml",
    "check": "edge-gateway check --connect --config /etc/drupelet/gateway.toml",
    "mosquitto-conf": "edge-gateway mosquitto-conf --config gateway.toml > /etc/mosquitto/mosquitto.conf",
    "example": "edge-gateway example > gateway.toml",
}
_HELP = {
    "run": "read the sources into the Kafka broker, in the foreground",
    "check": "check a configuration file, print what it would do and what this host lacks for it",
    "mosquitto-conf": "write the mosquitto.conf that goes with a configuration",
    "example": "write a commented configuration to start from",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status: 0 done, 1 failed, 2 bad usage or configuration."""
    return run("edge-gateway", lambda: _work(arguments), extra="gateway")


def _work(arguments: Sequence[str] | None) -> int:
    options = parser().parse_args(arguments)
    try:
        return _COMMANDS[options.command](options)
    except StateError as error:
        raise ConfigurationError(str(error)) from error


def parser() -> Parser:
    """Describe the command line."""
    root = Parser(
        prog="edge-gateway",
        description="Takes MQTT, log files and board health to a Kafka broker; acknowledges what is on disk there.",
        epilog=f"example: {_EXAMPLES['run']}",
    )
    root.add_version()
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in _HELP.items():
        command = commands.add_parser(
            name, help=text, description=text[0].upper() + text[1:], epilog=f"example: {_EXAMPLES[name]}"
        )
        if name != "example":
            command.add_argument("--config", type=path, required=True, metavar="FILE.toml", help="the configuration")
        if name == "check":
            command.add_argument("--connect", action="store_true", help="also try the Kafka broker and mosquitto")
    return root


def _run(options: argparse.Namespace) -> int:
    from gateway.app import Gateway  # noqa: PLC0415 (keeps --help and check quick)

    config = load_config(options.config)
    set_up("gateway", config.log_level, silent=("aiokafka",))  # the gateway reports its retries itself
    _warn([*notices.security(config), *notices.mosquitto(config), *limit_notices(config.files)])
    raise_limit(open_files_max(config.files))
    log = Log("gateway")

    async def work() -> None:
        await Gateway(config).run(lambda: announce("edge-gateway ready"))

    try:
        asyncio.run(work())
    except (ConfigurationError, StateError):
        raise
    except Exception as error:
        log.exception("failed", error=error)
        return 1
    return 0


def _check(options: argparse.Namespace) -> int:
    config = load_config(options.config)
    config.metrics_access.token()
    if config.kafka.security.password is not None:
        config.kafka.security.password.text()
    for sentence in notices.unreadable_paths(config):
        raise ConfigurationError(f"{options.config}: {sentence}")
    _warn([*notices.security(config), *notices.mosquitto(config), *notices.missing(config)])
    _warn([*notices.left_out(config), *notices.unwatched_losses(config), *limit_notices(config.files)])
    print(f"{options.config}: ok")
    for line in describe(config):
        print(f"  {line}")
    return _connect(config) if options.connect else 0


def _connect(config: GatewayConfig) -> int:
    from gateway.connect.kafka_check import try_all  # noqa: PLC0415 (what opens connections, only where asked for)

    well = True
    for end in try_all(config):
        well = well and end.trouble is None
        print(end.line, flush=True)
    return 0 if well else 1


def describe(config: GatewayConfig) -> list[str]:
    """Return what a configuration does, a line per source and route."""
    lines = [f"kafka {','.join(config.kafka.bootstrap_servers)}, dead letters -> {config.kafka.dead_letter_topic}"]
    if config.mqtt is not None:
        lines.append(f"mqtt {config.mqtt.host}:{config.mqtt.port} as {_client_id(config.mqtt)}")
        lines += [
            f"  {route.pattern} -> {route.topic}, key {route.key}, {_time(route)}" for route in config.mqtt.routes
        ]
    lines += [f"file {file.path} -> {file.topic}" for file in config.files]
    if config.journal is not None:
        where = "" if config.journal.directory is None else f" in {config.journal.directory}, all machines,"
        lines.append(f"journal{where} -> {config.journal.topic}, {', '.join(config.journal.units) or 'all units'}")
    if config.board is not None:
        lines.append(f"board {config.board.name} -> {config.board.topic}, every {config.board.interval_ms} ms")
    return lines


def _client_id(mqtt: MqttConfig) -> str:
    return mqtt.client_id or f"{default_client_id()}, or as before"


def _time(route: Route) -> str:
    if route.timestamp_field is None:
        return "time of receipt"
    zone = "" if route.times is None or route.times.zone is UTC else f", local times in {route.times.zone}"
    formats = "" if route.times is None else "".join(f', or "{text}"' for text in route.times.formats)
    return f"time {route.timestamp_field} ({route.time_unit}{zone}{formats})"


def _mosquitto_conf(options: argparse.Namespace) -> int:
    from gateway.connect.mosquitto_conf import render  # noqa: PLC0415

    config = load_config(options.config)
    _warn([*notices.security(config), *notices.mosquitto(config)])
    print(render(config.mosquitto), end="")
    return 0


def _example(_options: argparse.Namespace) -> int:
    print(files("gateway").joinpath("example.toml").read_text(encoding="utf-8"), end="")
    return 0


def _warn(sentences: list[str]) -> None:
    for sentence in sentences:
        print(f"WARNING: {printable(sentence)}", file=sys.stderr)


_COMMANDS = {"run": _run, "check": _check, "mosquitto-conf": _mosquitto_conf, "example": _example}

if __name__ == "__main__":
    sys.exit(main())
