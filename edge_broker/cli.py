"""The command `edge-broker`.

Lives here: options, help, exit statuses (0 done, 1 failed, 2 bad usage or configuration). Must never come in: the
broker itself,
which is imported only once the options are known to be good, so that --help and errors are quick.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from edge_broker import __version__
from edge_broker.errors import ConfigurationError, StorageFault

EXAMPLE = """examples:
  edge-broker serve --data-dir /var/lib/edge-broker --listen 127.0.0.1:9092
  edge-broker serve --data-dir data --listen 0.0.0.0:9092 --advertise pi-3.local:9092 \\
      --metrics 127.0.0.1:9101 --set log.retention.ms=86400000
  edge-broker keys          every configuration key with its default and meaning
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except ConfigurationError as error:
        return _fail(str(error), 2)
    except StorageFault as fault:
        return _fail(str(fault), 1)
    return status


def _fail(message: str, status: int) -> int:
    print(f"edge-broker: {message}", file=sys.stderr)
    return status


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    shape = argparse.RawDescriptionHelpFormatter
    parser = _Parser(
        prog="edge-broker",
        description="A light broker that speaks the Kafka protocol.",
        epilog=EXAMPLE,
        formatter_class=shape,
    )
    parser.add_argument("--version", action="version", version=f"edge-broker {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    serve = commands.add_parser("serve", help="serve in the foreground", epilog=EXAMPLE, formatter_class=shape)
    serve.add_argument(
        "--data-dir", required=True, metavar="DIR", help="where logs and offsets are kept; made when missing"
    )
    serve.add_argument(
        "--listen", required=True, metavar="HOST:PORT", help="where clients connect; port 0 picks a free one"
    )
    serve.add_argument("--advertise", metavar="HOST:PORT", help="the address that clients are told; default: --listen")
    serve.add_argument("--metrics", metavar="HOST:PORT", help="serve /metrics and /health here; default: off")
    serve.add_argument("--config", metavar="FILE.toml", help="configuration keys as TOML")
    serve.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="one configuration key; repeatable, wins over --config",
    )
    serve.set_defaults(run=_serve)
    keys = commands.add_parser(
        "keys", help="list the configuration keys", epilog="example:\n  edge-broker keys", formatter_class=shape
    )
    keys.set_defaults(run=_keys)
    return parser


def _serve(options: argparse.Namespace) -> int:
    from edge_broker.config import Endpoint, read_config  # noqa: PLC0415 - --help needs none of it

    text = _read(options.config) if options.config else None
    config = read_config(text, options.config or "", options.set)
    listen = Endpoint(*parse_endpoint("--listen", options.listen))
    advertise = Endpoint(*parse_endpoint("--advertise", options.advertise)) if options.advertise else None
    metrics = Endpoint(*parse_endpoint("--metrics", options.metrics)) if options.metrics else None
    if advertise is None and listen.host in ("0.0.0.0", "::"):  # noqa: S104 - refused, not bound
        raise ConfigurationError(
            f"--listen {options.listen} is no address that clients could be told; add --advertise HOST:PORT"
        )

    from edge_broker.app import Options, run  # noqa: PLC0415

    return run(Options(options.data_dir, listen, advertise, metrics, config))


def _keys(_options: argparse.Namespace) -> int:
    from edge_broker.config import KEYS, BrokerConfig  # noqa: PLC0415

    defaults = BrokerConfig()
    width = max(map(len, KEYS))
    for key in KEYS.values():
        print(f"{key.name:<{width}}  {defaults.text(key.name):>20}  {key.doc}")
    return 0


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read --config {path}: {error}") from None


def parse_endpoint(option: str, text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT` (an IPv6 address in brackets); ConfigurationError names the option."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigurationError(f"{option} is {text!r}; write HOST:PORT, for example 127.0.0.1:9092")
    return host, int(port)


if __name__ == "__main__":
    sys.exit(main())
