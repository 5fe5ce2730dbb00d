"""Parses the command line of edge-mirror, and returns the exit status (0 done, 1 failed, 2 bad usage or configuration).

Does not contain: imports of a client before the arguments are checked: --help and --version answer at once.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from drupelet import event_loop
from drupelet.command.arguments import Parser, path, whole_number
from drupelet.command.command_line import run
from drupelet.errors import ConfigurationError
from drupelet.observe.log_tree import set_up
from drupelet.printable import printable
from mirror.audit.arguments import AUDIT_EXAMPLE, add_audit
from mirror.audit.digest.selection import needed_settings
from mirror.config import Config, load
from mirror.topics.selection import POLICIES

_RUN_EXAMPLE = """example:
  edge-mirror run --source 127.0.0.1:9092 --target kafka.example.org:9092 --topics 'readings|logs' --site hamburg
"""
_CHECK_EXAMPLE = """example:
  edge-mirror check --connect --config /etc/drupelet/mirror.toml
"""
_STATUS = """exit status:
  0 well, 1 a problem exists, a lag exceeds --max-lag or --max-age, or no state can be read, 2 bad usage,
  3 the mirror does not answer at --metrics: the state by its group at the source is printed

examples:
  edge-mirror status --config /etc/drupelet/mirror.toml --watch
  edge-mirror status --config /etc/drupelet/mirror.toml --max-age 600
  edge-mirror status --source 127.0.0.1:9092 --site hamburg
"""


_TRANSLATE_EXAMPLE = """A record that was not mirrored has the offset of the next one; `--json` tells which it is.

example:
  edge-mirror translate --config /etc/drupelet/mirror.toml readings 0 104711
"""
_PLAN_EXAMPLE = """example:
  edge-mirror plan --config /etc/drupelet/mirror.toml
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    return run("edge-mirror", lambda: _work(arguments), extra="mirror")


def _work(arguments: Sequence[str] | None) -> int:
    given = parser().parse_args(arguments)
    config = _load_config(given)
    if given.command == "check":
        return _check(given, config)
    set_up("mirror")
    return _start(given, config)


def _load_config(given: argparse.Namespace) -> Config:
    if given.command == "status":
        return _load_for_status(given)
    if given.command == "audit":
        return _load(given, needed_settings(given), serves=False)
    if given.command == "translate":
        return _load(given, ("target",), serves=False)
    return _load(given, ("source", "target", "topics"))


def _load_for_status(given: argparse.Namespace) -> Config:
    """Return the configuration; it needs a source unless it has the mirror's address, which can return all."""
    config = load(given.config, _overrides(given), (), serves=False)
    return config if config.metrics and not config.source else _load(given, ("source",), serves=False)


def _overrides(given: argparse.Namespace) -> dict[str, object]:
    names = ("source", "target", "topics", "exclude", "site", "policy", "metrics")
    return {name: getattr(given, name, None) for name in names}


def _load(given: argparse.Namespace, required: tuple[str, ...], *, serves: bool = True) -> Config:
    config = load(given.config, _overrides(given), required, serves=serves)
    if not config.site and not config.target:
        raise ConfigurationError(
            "neither site nor target is set: one of them names the group that holds the positions."
        )
    return config


def _check(given: argparse.Namespace, config: Config) -> int:
    from drupelet.kafka.connection import try_cluster  # noqa: PLC0415 - opens connections, and is needed for --connect only

    config.metrics_access.token()
    sides = (("source", config.source_client), ("target", config.target_client))
    for _, client in sides:
        if client.security.password is not None:
            client.security.password.text()
    print(f"{given.config or 'the options'}: ok")
    for side, client in sides:
        if client.security.shows_password:
            print(f"WARNING: {side} is sent the password in clear text: use SASL_SSL.", file=sys.stderr)
        if said := client.security.ca_note(f"{side}_ssl_ca_file"):
            print(f"WARNING: {printable(said)}.", file=sys.stderr)
    well = True
    for side, client in sides if given.connect else ():
        for end in try_cluster(side, client.security, client.servers):
            well = well and end.trouble is None
            print(end.line, flush=True)
    if given.connect and well:
        from mirror import app  # noqa: PLC0415 - brings the protocol, which takes long to import on a Pi

        well = asyncio.run(app.makes_no_loop(config))
        if config.transactions and well:
            well = asyncio.run(app.has_transactions(config))
    return 0 if well else 1


def _start(given: argparse.Namespace, config: Config) -> int:
    if given.command == "status":
        from mirror.status.status_command import StatusOptions, status  # noqa: PLC0415 - not for the others

        return status(config, StatusOptions(given.json, given.watch, given.max_lag, given.max_age))
    from mirror import app  # noqa: PLC0415 - brings the protocol, which takes long to import on a Pi

    if given.command == "run":
        return event_loop.run(app.run(config))
    if given.command == "audit":
        return _audit(given, config)
    if given.command == "translate":
        from mirror.translate_command import translate  # noqa: PLC0415 - likewise

        partition = given.topic, given.partition
        return asyncio.run(translate(config, partition, given.offset, back=given.back, as_json=given.json))
    return asyncio.run(app.plan(config, as_json=given.json))


def _audit(given: argparse.Namespace, config: Config) -> int:
    from mirror.audit import audit_command  # noqa: PLC0415 - likewise
    from mirror.audit.runner import Ways  # noqa: PLC0415 - likewise

    if given.digests_of:
        return asyncio.run(audit_command.digests(config, given.digests_of, given.only, each=given.each))
    ways = Ways(given.source_digests, given.source_by, given.target_digests, given.target_by)
    return asyncio.run(
        audit_command.audit(config, ways, given.only, as_json=given.json, may_double=given.allow_duplicates)
    )


def parser() -> Parser:
    """Describe the command line."""
    root = Parser(
        prog="edge-mirror",
        description="Mirror topics from an edge broker to the central Kafka; losses are recorded, never skipped.",
        epilog=_RUN_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_version()
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = _command(commands, "run", "mirror until SIGTERM or SIGINT", _RUN_EXAMPLE)
    _add_policy(run)
    run.add_argument("--metrics", metavar="HOST:PORT", help="serve /metrics, /health and /status there; off by default")
    check = _command(commands, "check", "check the configuration, and access to both sides", _CHECK_EXAMPLE)
    check.add_argument("--connect", action="store_true", help="also try both sides, and the brokers that they name")
    plan = _command(commands, "plan", "show what would be mirrored, by what name, and how much", _PLAN_EXAMPLE)
    _add_policy(plan)
    plan.add_argument("--json", action="store_true", help="print JSON instead of a table")
    status = _command(commands, "status", "show each topic's lag and rate, and the link", _STATUS)
    asked = "ask the mirror that serves its metrics there; without it, its group at the source"
    status.add_argument("--metrics", metavar="HOST:PORT", help=asked)
    status.add_argument("--json", action="store_true", help="print JSON instead of a table, partitions included")
    status.add_argument("--watch", action="store_true", help="repeat until Ctrl-C")
    a_number = whole_number(0, 2**63 - 1)
    status.add_argument("--max-lag", metavar="RECORDS", type=a_number, help="exit status 1 if a topic's lag is greater")
    status.add_argument("--max-age", metavar="SECONDS", type=a_number, help="the same by the age of its oldest record")
    translate = _command(commands, "translate", "print an offset's exact place at the other end", _TRANSLATE_EXAMPLE)
    translate.add_argument("topic", metavar="TOPIC", help="its name at the source")
    translate.add_argument("partition", metavar="PARTITION", type=whole_number(0, 2**31 - 1), help="its number")
    translate.add_argument("offset", metavar="OFFSET", type=a_number, help="at the source")
    translate.add_argument("--back", action="store_true", help="OFFSET is at the target; print the source's")
    translate.add_argument("--json", action="store_true", help="print JSON, with whether the offset has a record")
    audit = _command(commands, "audit", "prove from both ends that nothing is lost, doubled or changed", AUDIT_EXAMPLE)
    _add_policy(audit)
    add_audit(audit)
    return root


def _add_policy(command: argparse.ArgumentParser) -> None:
    text = "names at the target: SITE.TOPIC (prefix, the default with --site) or TOPIC (identity, the default without)"
    command.add_argument("--policy", choices=POLICIES, help=text)


def _command(commands: argparse._SubParsersAction[Parser], name: str, text: str, example: str) -> Parser:
    command = commands.add_parser(
        name, help=text, description=text, epilog=example, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command.add_argument("--source", metavar="HOST:PORT", help="the edge broker; several servers with commas between")
    command.add_argument("--target", metavar="HOST:PORT", help="the central Kafka; likewise")
    command.add_argument(
        "--topics", metavar="REGEX", help="whole names of the topics to mirror; __edge_ledger always is"
    )
    command.add_argument("--exclude", metavar="REGEX", help="whole names of topics to leave out")
    command.add_argument("--site", metavar="NAME", help="the site's name: prefix of the topics, part of the group id")
    command.add_argument(
        "--config", metavar="FILE.toml", type=path, help="more settings; the command line overrides it"
    )
    return command


if __name__ == "__main__":
    sys.exit(main())
