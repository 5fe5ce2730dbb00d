"""`edge-broker cluster status`: who is there, who leads, what lacks replicas, and what stops if a board goes now.

Everything is asked by the Kafka protocol, of any Kafka cluster:

| what | asked by |
|---|---|
| brokers, controller, leaders, replicas, in-sync sets | Metadata, of the broker that the command is pointed to |
| min.insync.replicas | DescribeConfigs |
| how much each replica has | ListOffsets with replica id -2, of every broker, leaders first |
| how old the first record is that a follower lacks | Fetch, where it may be read yet |
| full disks, and what else is wrong with a broker of ours | DescribeLogDirs, of every broker |
| ZooKeeper servers that do not answer | DescribeConfigs (`zookeeper.connect`), then each server itself |

Followers are asked after leaders, so a lag is never larger than it was. If no ZooKeeper server answers this machine
while the cluster has a controller, this machine cannot reach them: then the brokers' own findings count.

Contains: what that comes to, and its text. Does not contain: requests (wire_client).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any, NamedTuple

from drupelet.addresses import endpoint_text
from drupelet.printable import printable
from edge_broker.clock import SystemClock
from edge_broker.configuration.ensemble_servers import Server, servers_of, silent_servers
from edge_broker.errors import ErrorCode, error_name
from edge_broker.output import duration_text, write_json, write_table
from edge_broker.wire_client.cluster import LATEST, BoardProblem, BrokerDisk, Cluster, Node, Partition, Place, Topic
from edge_broker.wire_client.connection import WireFailure
from edge_broker.wire_client.reading import first_record

WELL, NOT_WELL = 0, 1
NEEDED_KEY, ENSEMBLE_KEY = "min.insync.replicas", "zookeeper.connect"
DISK, ZOOKEEPER = "disk", "zookeeper"
"""Kinds of a broker's problems that have a text of their own (broker/health.py)."""
ROWS_MAX = 30


class BrokerReports(NamedTuple):
    """Reports of brokers; `needed` has min.insync.replicas by topic, `ends` how much a broker has of a partition."""

    cluster_id: str | None
    controller: int
    brokers: Mapping[int, Node]
    topics: Mapping[str, Topic]
    needed: Mapping[str, int]
    ends: Mapping[tuple[int, Place], int]
    silent: Mapping[int, str]  # brokers that are registered and do not answer, and why
    disks: Mapping[int, BrokerDisk] = {}
    servers: tuple[Server, ...] = ()  # of ZooKeeper, as the brokers name them
    silent_servers: Mapping[Server, str] = {}

    @property
    def reaches_servers(self) -> bool:
        """Whether this machine's own look at ZooKeeper's servers counts."""
        return self.controller < 0 or len(self.silent_servers) < len(self.servers)


class PartitionStatus(NamedTuple):
    """One partition; `lags` has what each follower lacks, as far as it was told."""

    place: Place
    partition: Partition
    needed: int
    lags: Mapping[int, int]

    @property
    def is_led(self) -> bool:
        """Whether it has a leader."""
        return self.partition.leader >= 0

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is missing or lags."""
        return len(self.partition.in_sync) < len(self.partition.replicas)

    @property
    def is_under_min_in_sync(self) -> bool:
        """Whether acks=all is refused."""
        return len(self.partition.in_sync) < self.needed

    @property
    def problem(self) -> str:
        """The problem; empty: none."""
        if not self.is_led:
            return f"no leader: {error_name(self.partition.error_code)}" if self.partition.error_code else "no leader"
        if self.is_under_min_in_sync:
            return f"acks=all is refused: {NEEDED_KEY} is {self.needed}"
        return "under-replicated" if self.is_under_replicated else ""


class Board(NamedTuple):
    """One broker; `unled` and `refusing` are what would have no leader or refuse acks=all if it went now."""

    broker: int
    node: Node | None
    problem: str
    leads: int
    replicas: int
    in_sync: int
    lag: int | None
    behind_ms: int | None
    unled: list[Place]
    refusing: list[Place]
    disk: BrokerDisk | None = None

    @property
    def full(self) -> BoardProblem | None:
        """This broker's report of its disk; None if that has free space."""
        return next((each for each in self.problems if each.kind == DISK), None)

    @property
    def problems(self) -> tuple[BoardProblem, ...]:
        """This broker's report of itself, ZooKeeper's servers aside."""
        found = self.disk.problems if self.disk is not None else ()
        return tuple(each for each in found if each.kind != ZOOKEEPER)


def show(cluster: Cluster, *, as_json: bool) -> int:
    """Print what a cluster is like: WELL, or NOT_WELL. WireFailure: the broker that was named does not answer."""
    seen = read_reports(cluster)
    standings = list(standings_of(seen))
    boards = [_board(cluster, seen, standings, each) for each in _brokers(seen)]
    faults = list(_faults(seen, standings, boards))
    if as_json:
        _write_json(seen, standings, boards, faults)
    else:
        _write(cluster, seen, standings, boards, faults)
    return NOT_WELL if faults else WELL


# what brokers tell


def read_reports(cluster: Cluster) -> BrokerReports:
    """Ask."""
    topics = dict(cluster.topics())
    settings = cluster.settings(list(topics), [NEEDED_KEY])
    needed = {
        name: int(value)
        for name, found in settings.items()
        for key, value, _ in found
        if key == NEEDED_KEY and value is not None and value.isdigit()
    }
    ends: dict[tuple[int, Place], int] = {}
    silent: dict[int, str] = {}
    disks: dict[int, BrokerDisk] = {}
    connects: dict[str, None] = {}
    for of_leaders in (True, False):
        for node in cluster.nodes():
            places = [
                (topic.name, partition.number)
                for topic in topics.values()
                for partition in topic.partitions
                if node in partition.replicas and (partition.leader == node) is of_leaders
            ]
            if node not in silent:
                try:
                    cluster.at(node)
                    found = cluster.ends_at(node, places) if places else {}
                except WireFailure as failure:
                    silent[node] = str(failure).removeprefix(f"broker {node} ")
                else:
                    ends |= {(node, place): one.offset for place, one in found.items() if not one.error_code}
    for node in cluster.nodes():
        if node not in silent:
            try:
                disk, connect = cluster.disk(node), cluster.broker_setting(node, ENSEMBLE_KEY)
            except WireFailure as failure:
                silent[node] = str(failure).removeprefix(f"broker {node} ")
            else:
                disks |= {node: disk} if disk is not None else {}
                connects[connect] = None
    servers = tuple(dict.fromkeys(server for connect in connects for server in servers_of(connect)))
    return BrokerReports(
        cluster.cluster_id,
        cluster.controller,
        cluster.brokers,
        topics,
        needed,
        ends,
        silent,
        disks,
        servers,
        silent_servers(servers),
    )


def _behind_ms(cluster: Cluster, seen: BrokerReports, standing: PartitionStatus, broker: int) -> int | None:
    """The age of the first record that a follower lacks; None: it may not be read yet, or has no time."""
    name, number = standing.place
    place = Topic(name, False, [standing.partition], 0)
    try:
        shown = cluster.offsets([place], LATEST).get(standing.place)
        begin = seen.ends[broker, standing.place]
        if shown is None or shown.error_code or begin >= shown.offset:
            return None
        record = first_record(cluster, name, number, standing.partition.leader, begin, shown.offset)
    except WireFailure:  # its leader has gone in this moment
        return None
    return None if record is None or record.timestamp < 0 else max(0, SystemClock().wall_ms() - record.timestamp)


# what it comes to


def standings_of(seen: BrokerReports) -> Iterator[PartitionStatus]:
    """Every partition."""
    for topic in seen.topics.values():
        for partition in topic.partitions:
            place = topic.name, partition.number
            end = seen.ends.get((partition.leader, place))
            lags = {
                broker: max(0, end - seen.ends[broker, place])
                for broker in partition.replicas
                if end is not None and broker != partition.leader and (broker, place) in seen.ends
            }
            needed = min(seen.needed.get(topic.name, 1), len(partition.replicas))  # as Kafka: all is all there can be
            yield PartitionStatus(place, partition, needed, lags)


def _brokers(seen: BrokerReports) -> list[int]:
    """Those that are there, and those that are only named as replicas."""
    named = {each for topic in seen.topics.values() for one in topic.partitions for each in one.replicas}
    return sorted({*seen.brokers, *named})


def without_broker(
    standings: list[PartitionStatus], broker: int, silent: Container[int] = ()
) -> tuple[list[Place], list[Place]]:
    """Return partitions that would lose their leader, and those that would refuse acks=all, if a broker went.

    Nothing is expected of others that are `silent` now.
    """
    unled, refusing = [], []
    for standing in standings:
        in_sync = standing.partition.in_sync
        left = sum(each != broker and each not in silent for each in in_sync)
        if not standing.is_led or broker not in in_sync:
            continue
        if left == 0:
            unled.append(standing.place)
        elif left < standing.needed <= len(in_sync):
            refusing.append(standing.place)
    return unled, refusing


def _board(cluster: Cluster, seen: BrokerReports, standings: list[PartitionStatus], broker: int) -> Board:
    held = [each for each in standings if broker in each.partition.replicas]
    followed = [each for each in held if each.partition.leader != broker]
    node = seen.brokers.get(broker)
    known = [each for each in followed if broker in each.lags]
    most = max(known, key=lambda each: each.lags[broker], default=None)
    lags = most is not None and most.lags[broker] > 0
    unled, refusing = without_broker(standings, broker, seen.silent) if node is not None else ([], [])
    return Board(
        broker,
        node,
        "not there" if node is None else seen.silent.get(broker, ""),
        sum(each.partition.leader == broker for each in held),
        len(held),
        sum(broker in each.partition.in_sync for each in held),
        sum(each.lags[broker] for each in known) if known or (node is not None and not followed) else None,
        _behind_ms(cluster, seen, most, broker) if most is not None and lags else None,
        unled,
        refusing,
        seen.disks.get(broker),
    )


def _faults(seen: BrokerReports, standings: list[PartitionStatus], boards: list[Board]) -> Iterator[str]:
    """Return the problems, a few words each; those that stop most first."""
    unled = sum(not each.is_led for each in standings)
    refusing = sum(each.is_led and each.is_under_min_in_sync for each in standings)
    few = sum(each.is_led and each.is_under_replicated for each in standings)
    untold = [topic for topic in seen.topics.values() if topic.error_code]
    if unled:
        yield f"{_partitions(unled)} without a leader"
    if refusing:
        yield f"{_partitions(refusing)} below {NEEDED_KEY}"
    if few:
        yield f"{_partitions(few)} under-replicated"
    if untold:
        yield f"topic {untold[0].name} is not told: {error_name(untold[0].error_code)}"
    if seen.controller < 0:
        yield "no controller is known: ZooKeeper may not answer, then nothing is acked"
    for board in boards:
        if board.problem:
            yield f"broker {board.broker} {'is not there' if board.node is None else 'does not answer'}"
        if (full := board.full) is not None:
            yield f"the disk of broker {board.broker} is full{_since(full)}"
        if code := _refusal(board):
            yield f"broker {board.broker} does not tell of its disk: {code}"
        for problem in board.problems:
            if problem.kind != DISK:
                yield f"broker {board.broker}: {problem.text}"
    yield from _silent_servers(seen)


def _silent_servers(seen: BrokerReports) -> Iterator[str]:
    """Yield a sentence for each ZooKeeper server that does not answer."""
    if seen.servers and seen.reaches_servers:
        for server, why in seen.silent_servers.items():
            yield f"ZooKeeper server {server.text} does not answer: {why}"
    else:
        told = (each.text for disk in seen.disks.values() for each in disk.problems if each.kind == ZOOKEEPER)
        yield from dict.fromkeys(told)


def _refusal(board: Board) -> str:
    """Return why a broker does not tell of its disk; empty: it does, or this user may not ask."""
    code = board.disk.error_code if board.disk is not None else 0
    return "" if code in (ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED) else error_name(code)


def _since(full: BoardProblem) -> str:
    return f" for {duration_text(full.for_ms)}" if full.for_ms >= 0 else ""


def _partitions(count: int) -> str:
    return _count(count, "partition")


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


# text


def _write(
    cluster: Cluster, seen: BrokerReports, standings: list[PartitionStatus], boards: list[Board], faults: list[str]
) -> None:
    controller = seen.controller if seen.controller >= 0 else "nobody"
    print(f"cluster {seen.cluster_id} at {cluster.bootstrap.place}, controller: {controller}")
    columns = [
        "broker",
        "address",
        "rack",
        "leads",
        "replicas",
        "in sync",
        "lag",
        "behind",
        "if it goes now",
        "problem",
    ]
    rows = [_row(board) for board in boards]
    for name in ("rack", "behind", "problem"):
        at = columns.index(name)
        if all(row[at] in (None, "") for row in rows):
            columns, rows = columns[:at] + columns[at + 1 :], [row[:at] + row[at + 1 :] for row in rows]
    write_table(columns, rows)
    for broker, why in seen.silent.items():
        print(printable(f"broker {broker}: {why}"))
    for board in boards:
        for problem in board.problems:
            print(printable(f"broker {board.broker}: {problem.text}"))
        if board.disk is not None and board.disk.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            print(f"broker {board.broker}: whether its disk is full is not known; DESCRIBE on the cluster is needed")
    if not seen.reaches_servers and seen.servers:
        print("ZooKeeper: this machine reaches no server, but the cluster has a controller; what brokers say counts")
    bad = [each for each in standings if each.problem]
    if bad:
        print()
        write_table(
            ("topic", "partition", "leader", "replicas", "in sync", "lag", "problem"),
            [
                (
                    each.place[0],
                    each.place[1],
                    each.partition.leader if each.is_led else None,
                    _ids(each.partition.replicas),
                    _ids(each.partition.in_sync),
                    sum(each.lags.values()) if each.lags else None,
                    each.problem,
                )
                for each in bad[:ROWS_MAX]
            ],
        )
        if len(bad) > ROWS_MAX:
            print(f"and {len(bad) - ROWS_MAX:,} more, which --json tells")
    print()
    well = f"well: {_count(len(seen.brokers), 'broker')}, {_partitions(len(standings))}, every replica in sync"
    print(printable(f"not well: {'; '.join(faults)}" if faults else well))


def _ids(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers)) or "-"


def _row(board: Board) -> list[object]:
    node = board.node
    return [
        board.broker,
        None if node is None else endpoint_text(node.host, node.port),
        None if node is None else node.rack,
        board.leads,
        board.replicas,
        board.in_sync,
        board.lag,
        None if board.behind_ms is None else duration_text(board.behind_ms),
        "-" if node is None else _if_it_goes(board),
        _problem_text(board),
    ]


def _problem_text(board: Board) -> str:
    if board.problem and board.node is not None:
        return "does not answer"
    if (full := board.full) is not None:
        return f"its disk is full{_since(full)}"
    return board.problem or ("see below" if board.problems else "")


def _if_it_goes(board: Board) -> str:
    words = []
    if board.unled:
        words.append(f"{_partitions(len(board.unled))} without a leader")
    if board.refusing:
        words.append(f"{_partitions(len(board.refusing))} refuse{'' if len(board.refusing) > 1 else 's'} acks=all")
    return ", ".join(words) or "nothing stops"


def _write_json(seen: BrokerReports, standings: list[PartitionStatus], boards: list[Board], faults: list[str]) -> None:
    write_json(
        {
            "kind": "cluster",
            "cluster_id": seen.cluster_id,
            "controller": seen.controller if seen.controller >= 0 else None,
            "brokers": len(seen.brokers),
            "partitions": len(standings),
            "without_leader": sum(not each.is_led for each in standings),
            "under_min_in_sync": sum(each.is_under_min_in_sync for each in standings),
            "under_replicated": sum(each.is_under_replicated for each in standings),
            "problems": faults,
        }
    )
    for server in seen.servers:
        why = seen.silent_servers.get(server)
        write_json({"kind": "zookeeper", "server": server.text, "answers": why is None, "problem": why or ""})
    for board in boards:
        write_json(_board_facts(board))
    for each in standings:
        write_json(
            {
                "kind": "partition",
                "topic": each.place[0],
                "partition": each.place[1],
                "leader": each.partition.leader if each.is_led else None,
                "replicas": each.partition.replicas,
                "in_sync": each.partition.in_sync,
                "min_in_sync": each.needed,
                "lag": {str(broker): lag for broker, lag in each.lags.items()},
                "problem": each.problem,
            }
        )


def _board_facts(board: Board) -> dict[str, Any]:
    node, disk, full = board.node, board.disk, board.full
    return {
        "kind": "broker",
        "broker": board.broker,
        "host": None if node is None else node.host,
        "port": None if node is None else node.port,
        "rack": None if node is None else node.rack,
        "leads": board.leads,
        "replicas": board.replicas,
        "in_sync": board.in_sync,
        "lag": board.lag,
        "behind_ms": board.behind_ms,
        "without_it_no_leader": [f"{name}-{number}" for name, number in board.unled],
        "without_it_acks_all_refused": [f"{name}-{number}" for name, number in board.refusing],
        "problem": board.problem,
        "disk_total_bytes": None if disk is None or disk.total_bytes < 0 else disk.total_bytes,
        "disk_free_bytes": None if disk is None or disk.free_bytes < 0 else disk.free_bytes,
        "disk_is_full": None if disk is None or disk.error_code else full is not None,
        "disk_full_for_ms": None if full is None or full.for_ms < 0 else full.for_ms,
        "problems": [each.text for each in board.problems],
    }
