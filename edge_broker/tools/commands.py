"""Run `topics`, `tail`, `groups` and `cluster status` with their options.

Contains: opening the cluster. Does not contain: options and help (arguments.py).
"""

from __future__ import annotations

import argparse

from drupelet.addresses import host_and_port
from drupelet.errors import CommandFailed, ConfigurationError
from drupelet.kafka.security import Security
from drupelet.printable import printable
from edge_broker.wire_client.cluster import Cluster
from edge_broker.wire_client.connection import NotThere, WireFailure


def run(options: argparse.Namespace) -> int:
    """Run one of the tools; its exit status. CommandFailed, ConfigurationError."""
    try:
        cluster = _cluster(options)
        try:
            return _tool(options, cluster)
        finally:
            cluster.close()
    except NotThere as mistake:
        raise ConfigurationError(printable(str(mistake))) from mistake
    except WireFailure as failure:
        hint = f"; is it running, and is --bootstrap {options.bootstrap} right?" if failure.unreachable else ""
        raise CommandFailed(f"{printable(str(failure))}{hint}") from failure


def _cluster(options: argparse.Namespace) -> Cluster:
    return Cluster(*_address(options.bootstrap), options.timeout, _security(options))


def _security(options: argparse.Namespace) -> Security:
    if options.command_config is None:
        return Security()
    from drupelet.kafka.properties import security_of  # noqa: PLC0415 - for who has such a file

    return security_of(options.command_config)


def _address(text: str) -> tuple[str, int]:
    if "," in text:
        raise ConfigurationError(f"--bootstrap is {text!r}; name one broker, any of the cluster: it tells of all")
    try:
        return host_and_port(text)
    except ValueError:
        raise ConfigurationError(f"--bootstrap is {text!r}; write HOST:PORT, for example 127.0.0.1:9092") from None


def _tool(options: argparse.Namespace, cluster: Cluster) -> int:
    if options.tool == "topics":
        from edge_broker.tools import topics  # noqa: PLC0415 - each command pays for itself alone

        return topics.show(cluster, options.topic, as_json=options.json)
    if options.tool == "groups":
        from edge_broker.tools import groups  # noqa: PLC0415

        return groups.show(cluster, options.group, as_json=options.json)
    if options.tool == "status":
        from edge_broker.tools import cluster_status  # noqa: PLC0415

        return cluster_status.show(cluster, as_json=options.json)
    from edge_broker.tools.tail import Tail, TailOptions  # noqa: PLC0415

    wanted = TailOptions(options.topic, options.number, options.follow, options.partition, options.begin, options.json)
    return Tail(cluster, wanted, options.timeout, lambda: _cluster(options)).run()
