"""Run `cluster rebuild`: read disks, show the plan, and write it.

Contains: files and text. Does not contain: ZooKeeper (session.py), decisions (cluster/rebuild/rebuild_plan.py).
"""

from __future__ import annotations

import argparse
from typing import Any

from drupelet.errors import ConfigurationError, reason
from drupelet.printable import printable
from drupelet.quantities import quantity_text
from drupelet.tls.file_reads import read_named
from edge_broker.cluster.rebuild.disks import Disk, DiskFault, decode
from edge_broker.cluster.rebuild.rebuild import RebuildRefused
from edge_broker.cluster.rebuild.rebuild_plan import Decisions, Plan, PlannedPartition, plan_rebuild
from edge_broker.cluster.state.cluster_state import NO_LEADER, PartitionId
from edge_broker.cluster.znodes.znode_codec import is_number
from edge_broker.configuration.config import BrokerConfig, read_config
from edge_broker.configuration.ensemble import check_ensemble
from edge_broker.output import write_json, write_table

DONE, REFUSED = 0, 1
_COLUMNS = ("partition", "leader", "in sync", "end", "epoch", "missing", "may be lost", "remark")


def run(options: argparse.Namespace) -> int:
    """Plan, and write unless it is a dry run: DONE, REFUSED. ConfigurationError, CommandFailed."""
    config = _configuration(options)
    plan = plan_rebuild([_disk(path) for path in options.disk], _decisions(options))
    _show(plan, as_json=options.json)
    if plan.refusals:
        return REFUSED
    if not options.dry_run:
        from edge_broker.rebuild.session import write  # noqa: PLC0415 - a dry run needs no ZooKeeper

        try:
            write(plan, config, replaces=options.replace)
        except RebuildRefused as refused:
            _say(f"refused: {refused}", "refusal", str(refused), as_json=options.json)
            return REFUSED
        text = "the znodes are written; start the brokers"
        _say(text, "done", text, as_json=options.json)
    return DONE


def _configuration(options: argparse.Namespace) -> BrokerConfig:
    """Return the configuration, checked also for a dry run, after which the same options have to do."""
    if not (options.config or options.set or options.dry_run):
        raise ConfigurationError("give --config FILE.toml or --set zookeeper.connect=HOST:PORT, or --dry-run")
    text = _read("--config", options.config) if options.config else None
    config = read_config(text, options.config or "", options.set)
    if not (config.text("zookeeper.connect") or options.dry_run):
        raise ConfigurationError("zookeeper.connect is not set; name the new ensemble there")
    check_ensemble(config)
    return config


def _read(option: str, path: str) -> str:
    try:
        return read_named(path).decode()
    except OSError as error:
        raise ConfigurationError(f"{option} {path} cannot be read: {reason(error)}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{option} {path} is not UTF-8 at byte {error.start}") from None


def _disk(path: str) -> Disk:
    try:
        return decode(_read("--disk", path))
    except DiskFault as fault:
        raise ConfigurationError(f"--disk {path} {fault}") from None


def _decisions(options: argparse.Namespace) -> Decisions:
    prefer: dict[PartitionId, int] = {}
    for text in options.prefer:
        name, equals, broker = text.rpartition("=")
        topic, dash, partition = name.rpartition("-")
        if not (equals and dash and topic and is_number(partition) and is_number(broker)):
            raise ConfigurationError(f"--prefer is {text!r}; give TOPIC-PARTITION=ID, as readings-0=2")
        prefer[PartitionId(topic, int(partition))] = int(broker)
    kept, dropped = frozenset(options.keep_topic), frozenset(options.drop_topic)
    if kept & dropped:
        raise ConfigurationError(f"{min(kept & dropped)} is kept and dropped; give one of the two")
    return Decisions(frozenset(options.written_off), prefer, kept, dropped)


# the plan as text


def _show(plan: Plan, *, as_json: bool) -> None:
    partitions = [each for topic in plan.topics for each in topic.partitions]
    if as_json:
        for fact in _facts(plan):
            write_json(fact)
        return
    counts = f"{quantity_text(len(plan.topics), 'topic')}, {quantity_text(len(partitions), 'partition')}"
    print(f"cluster {printable(plan.format.cluster)}: {counts}")
    print(f"epochs go on above {plan.format.epoch_base}, producer ids at {plan.producer_ids}")
    print()
    write_table(_COLUMNS, [_row(each) for each in partitions], none="no partitions")
    print()
    for left_out in plan.left_out:
        print(f"left out: topic {printable(left_out.name)} ({printable(left_out.topic_id)}): {left_out.reason}")
    for note in plan.notes:
        print(f"note: {printable(note)}")
    for refusal in plan.refusals:
        print(f"refused: {printable(refusal)}")
    lost = sum(each.may_lose or each.leader == NO_LEADER for each in partitions)
    written = "nothing is" if plan.refusals else "it can be"
    print(f"{quantity_text(lost, 'partition')} may have lost records; {written} written")


def _row(each: PlannedPartition) -> tuple[object, ...]:
    lost = f"from {each.end_offset} on" if each.may_lose else "all" if each.leader == NO_LEADER else ""
    in_sync = ",".join(str(entry.broker) for entry in each.state.in_sync)
    leader = None if each.leader == NO_LEADER else each.leader
    missing = ",".join(map(str, each.missing))
    name = f"{each.partition.topic}-{each.partition.partition}"
    return name, leader, in_sync, each.end_offset, each.state.leader_epoch, missing, lost, each.note


def _facts(plan: Plan) -> list[dict[str, Any]]:
    head = {"cluster_id": plan.format.cluster, "epoch_base": plan.format.epoch_base, "producer_ids": plan.producer_ids}
    facts: list[dict[str, Any]] = [{"kind": "cluster", **head}]
    for topic in plan.topics:
        for each in topic.partitions:
            facts.append(
                {
                    "kind": "partition",
                    "topic": each.partition.topic,
                    "partition": each.partition.partition,
                    "topic_id": topic.topic.topic_id,
                    "replicas": topic.topic.replicas[each.partition.partition],
                    "leader": each.leader,
                    "in_sync": [entry.broker for entry in each.state.in_sync],
                    "end_offset": each.end_offset,
                    "leader_epoch": each.state.leader_epoch,
                    "missing": each.missing,
                    "may_lose": each.may_lose,
                    "remark": each.note,
                }
            )
    facts += [{"kind": "left_out", **each._asdict()} for each in plan.left_out]
    facts += [{"kind": "note", "text": each} for each in plan.notes]
    return facts + [{"kind": "refusal", "text": each} for each in plan.refusals]


def _say(text: str, kind: str, value: str, *, as_json: bool) -> None:
    if as_json:
        write_json({"kind": kind, "text": value})
    else:
        print(printable(text))
