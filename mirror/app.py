"""Runs the commands of edge-mirror: mirror until a signal, or print what it would do.

Does not contain: the parser of arguments (cli.py), decisions of the mirror.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial

from drupelet.command.command_line import announce
from drupelet.errors import CommandFailed, reason
from drupelet.host.heap import give_back_large_buffers, share_one_heap
from drupelet.host.systemd import Notifier, alive
from drupelet.observe.http import Pages
from drupelet.observe.log_tree import Log
from drupelet.tls.certificate_expiry import CertificateEnds
from kafka_wire.connection.route_watch import RouteWatch
from mirror.client.clients import clients_of
from mirror.client.source_client import Source
from mirror.client.target_client import Target
from mirror.config import Config
from mirror.errors import SameClusterError, SourceError, TargetError
from mirror.partition.state_records import topic_name
from mirror.plan_command import PlannedTopic, from_target, make_plan
from mirror.replication.replicator import Replicator
from mirror.session.transactional_ids import spare_ids
from mirror.status import metrics
from mirror.status.status_text import TRANSACTIONS
from mirror.text_tables import table

_log = Log("mirror")


YOUNG_OBJECTS_MAX = 25_000
"""A fetch of thousands of idle partitions makes as many objects and releases them all.

With Python's default of 700, the collector scanned them repeatedly: a quarter of the CPU that many idle topics take.
"""
NO_FENCES = "the target fences nothing for us: run one mirror of this site at a time"
NO_TRANSACTIONS = "transactions = true, and the target has none: take it out, or mirror to an Apache Kafka"
GRANT = "Grant the target's user Write and Describe there"
HELD_WITHOUT_SPARES = "one partition that falls short of replicas can hold up all topics"


async def run(config: Config) -> int:
    """Mirror until SIGTERM or SIGINT; return the exit status."""
    share_one_heap()
    give_back_large_buffers()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS_MAX)
    stop, notifier = asyncio.Event(), Notifier(os.environ, partial(_log.warning, "notify_failed"))

    def end() -> None:
        notifier.notify("STOPPING=1", "STATUS=waiting for acknowledgements")
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end)
    figures = metrics.Metrics()
    replicator = Replicator(config, figures, partial(clients_of, config))
    server = None
    if config.metrics:
        try:
            server = await metrics.serve(config.metrics, _pages(config, figures, replicator))
        except OSError as error:
            _log.error("metrics_port_refused", address=config.metrics, error=reason(error))
            return 1
    for side, security in (("source", config.source_security), ("target", config.target_security)):
        if said := security.ca_note(f"{side}_ssl_ca_file"):
            _log.warning("ca_file_changeable", text=said)
    _log.info("started", source=config.source, target=config.target, topics=config.topics, group=config.group_id)
    announce("edge-mirror ready")
    # READY even while both clusters are unreachable: the datacenter may be away for days, the broker may start later
    notifier.notify("READY=1", f"STATUS={_state(replicator)}")
    routes = _watch_routes(replicator)
    notifying = asyncio.ensure_future(notifier.keep_alive(alive(lambda: _state(replicator))))
    try:
        await replicator.run(stop)
    finally:
        notifying.cancel()
        if routes is not None:
            routes.close()
    if server is not None:
        server.close()
    if replicator.refusal:
        raise CommandFailed(replicator.refusal)
    return 0


def _watch_routes(replicator: Replicator) -> RouteWatch | None:
    try:
        return RouteWatch(replicator.retry_now)
    except OSError as error:
        _log.warning("routes_not_watched", error=reason(error), result="a link that is back is noticed a second later")
        return None


def _pages(config: Config, figures: metrics.Metrics, replicator: Replicator) -> Pages:
    ends = CertificateEnds()
    for side, security in (("source", config.source_security), ("target", config.target_security)):
        ends.watch((f"{side}_ssl_ca_file", security.ca_file), (f"{side}_ssl_cert_file", security.cert_file))

    def well() -> str:
        modes = [NO_FENCES] if replicator.is_unfenced else [TRANSACTIONS] if config.transactions else []
        return "; ".join(["ok", *modes, *replicator.notes(), *ends.notes()])

    return metrics.pages_of(figures, replicator, well, config.metrics_access.token())


def _state(replicator: Replicator) -> str:
    return replicator.trouble() or "mirroring"


async def plan(config: Config, *, as_json: bool) -> int:
    """Print a line per topic that `run` would mirror; return the exit status, 1 if one cannot be, or there is none."""
    source, target = Source(config.source_client, config.group_id), Target(config.target_client)
    target.source_cluster_id = lambda: source.cluster_id
    try:
        found, near = await make_plan(source, target, config)
        has_fences = await target.has_fences()
    except SourceError as error:
        raise CommandFailed(f"the source {config.source} cannot be asked ({error})") from error
    except SameClusterError as error:
        raise CommandFailed(str(error)) from error
    except TargetError as error:
        raise CommandFailed(f"the target {config.target} cannot be asked ({error})") from error
    finally:
        await source.close()
        await target.close()
    print(json.dumps([asdict(one) for one in found]) if as_json else _planned_table(found))
    refused = config.transactions and not has_fences
    if config.transactions or not has_fences:
        print(NO_TRANSACTIONS if refused else TRANSACTIONS if has_fences else NO_FENCES, file=sys.stderr)
    for rule in config.rules:
        if not any(rule.pattern.fullmatch(one.topic) for one in found):
            print(f'The table [topic."{rule.pattern.pattern}"] is for none of these topics', file=sys.stderr)
    for one in found:
        if one.trouble or one.reason:
            print(one.trouble or one.reason, file=sys.stderr)
    if near is not None:
        hint = f"; did you mean {near!r}?" if near else ""
        print(f"No topic of the source matches {config.topics!r}{hint}", file=sys.stderr)
    return 1 if refused or near is not None or any(one.trouble for one in found) else 0


async def makes_no_loop(config: Config) -> bool:
    """Print topics that would be passed over or refused, as they came from the target; return if none is refused."""
    source, target = Source(config.source_client, config.group_id), Target(config.target_client)
    target.source_cluster_id = lambda: source.cluster_id
    try:
        found = await from_target(source, target, config)
    except SameClusterError as error:
        print(f"source and target: {error}")
        return False
    except (SourceError, TargetError) as error:
        raise CommandFailed(f"the records from the target cannot be recognised ({error})") from error
    finally:
        await source.close()
        await target.close()
    for name, verdict in found.items():
        print(f"topic {name} {verdict.reason}")
    return not any(verdict.kind == "refused" for verdict in found.values())


async def has_transactions(config: Config) -> bool:
    """Print and return whether the target has the configured transactions.

    A denied spare transactional id is a warning: the mirror works without it.
    """
    target, own = Target(config.target_client), topic_name(config.group_id)
    spares = spare_ids(own)
    try:
        has_them = await target.has_fences()
        denied = await target.denied_operations([own, *spares]) if has_them else {}
    except TargetError as error:
        raise CommandFailed(f"the target {config.target} cannot be asked ({error})") from error
    finally:
        await target.close()
    if not has_them:
        print(f"target: {NO_TRANSACTIONS}")
    elif own in denied:
        print(f"target: no {_and(denied[own])} on the transactional id {own}. {GRANT}")
    else:
        print("target: ok, it has transactions")
        if left := [one for one in spares if one in denied]:
            lacking = _and(dict.fromkeys(operation for one in left for operation in denied[one]))
            print(f"WARNING: target: no {lacking} on {_and(left)}: {HELD_WITHOUT_SPARES}. {GRANT}", file=sys.stderr)
    return has_them and own not in denied


def _and(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _planned_table(found: list[PlannedTopic]) -> str:
    head = ["TOPIC", "TARGET NAME", "PARTITIONS", "THERE", "TO SEND", "AGAIN", "GONE"]
    rows: list[list[str | int | None]] = [
        [one.topic, one.target_name, one.partitions, one.partitions_there, one.to_send, one.again, one.gone]
        for one in found
    ]
    for title, texts in (
        ("FROM TARGET", [one.from_target for one in found]),
        ("SETTINGS", [one.settings for one in found]),
    ):
        if any(texts):
            head.append(title)
            rows = [[*row, text or None] for row, text in zip(rows, texts, strict=True)]
    return table(head, rows)
