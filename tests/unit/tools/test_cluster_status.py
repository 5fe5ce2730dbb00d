"""`edge-broker cluster status` against brokers of a test's own making: all is well, and each thing that is not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from edge_broker.protocol.api import DESCRIBE_CONFIGS, DESCRIBE_LOG_DIRS, FETCH, LIST_OFFSETS, METADATA
from edge_broker.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from edge_broker.protocol.messages.describe_log_dirs import (
    BrokerProblem,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from edge_broker.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from edge_broker.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from edge_broker.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from edge_broker.tools.cluster_status import PartitionStatus, without_broker
from edge_broker.wire_client.cluster import Partition
from tests.support.ports import free_port
from tests.support.scripted_broker import ScriptedBroker
from tests.support.tools.batches import batch
from tests.support.tools.lies import Spoiler

Shape = tuple[int, Sequence[int], Sequence[int]]  # leader, replicas, in-sync replicas
ANY_REPLICA, NOT_LED, BROKER = -2, 6, 4


class Boards:
    """Brokers 1 to 3 of one cluster, of which topic t has the partitions that are told; `ends` by broker."""

    def __init__(
        self,
        *partitions: Shape,
        needed: int = 2,
        ends: Mapping[int, int] | None = None,
        spoil: Callable[[bytes], bytes] = bytes,
    ) -> None:
        self.partitions, self.needed, self.spoil = partitions, needed, spoil
        self.ends = ends or {}
        self.controller, self.there = 2, [1, 2, 3]
        self.ports: dict[int, int] = {}
        self.problems: dict[int, list[BrokerProblem]] = {}
        self.connect: str | None = None
        self.log_dirs_code = 0
        self.asked: list[tuple[int, int]] = []  # broker and the replica id that it was asked with

    @contextmanager
    def up(self, *silent: int) -> Iterator[str]:
        """Serve; the address of broker 1. `silent` ones are told of and cannot be reached."""
        with ExitStack() as stack:
            for number in self.there:
                if number in silent:
                    self.ports[number] = free_port()
                else:
                    self.ports[number] = stack.enter_context(ScriptedBroker(self._answers(number), self.spoil)).port
            yield f"127.0.0.1:{self.ports[1]}"

    def _answers(self, number: int) -> dict[int, Callable[[Any], Any]]:
        return {
            METADATA: self._metadata,
            DESCRIBE_CONFIGS: self._configs,
            DESCRIBE_LOG_DIRS: lambda _: self._log_dirs(number),
            LIST_OFFSETS: lambda request: self._offsets(number, request),
            FETCH: self._fetch,
        }

    def _metadata(self, _request: Any) -> MetadataResponse:
        shown = [
            MetadataResponsePartition(
                partition_index=at, leader_id=leader, replica_nodes=list(replicas), isr_nodes=list(in_sync)
            )
            for at, (leader, replicas, in_sync) in enumerate(self.partitions)
        ]
        brokers = [
            MetadataResponseBroker(node_id=each, host="127.0.0.1", port=self.ports[each], rack=f"shed-{each}")
            for each in self.there
        ]
        topics = [MetadataResponseTopic(name="t", partitions=shown)]
        return MetadataResponse(brokers=brokers, cluster_id="c1", controller_id=self.controller, topics=topics)

    def _configs(self, request: Any) -> DescribeConfigsResponse:
        if request.resources[0].resource_type == BROKER:
            return self._broker_config(request.resources[0])
        entry = DescribeConfigsResourceResult(name="min.insync.replicas", value=str(self.needed), config_source=1)
        names = [one.resource_name for one in request.resources]
        assert names == ["t"]
        found = [DescribeConfigsResult(resource_type=2, resource_name=name, configs=[entry]) for name in names]
        return DescribeConfigsResponse(results=found)

    def _broker_config(self, resource: Any) -> DescribeConfigsResponse:
        assert resource.configuration_keys == ["zookeeper.connect"]
        entry = DescribeConfigsResourceResult(name="zookeeper.connect", value=self.connect, config_source=4)
        found = DescribeConfigsResult(
            resource_type=BROKER, resource_name=resource.resource_name, configs=[entry] if self.connect else []
        )
        return DescribeConfigsResponse(results=[found])

    def _log_dirs(self, number: int) -> DescribeLogDirsResponse:
        disk = DescribeLogDirsResult(log_dir="/d", topics=[], total_bytes=1000, usable_bytes=100 * number)
        return DescribeLogDirsResponse(
            results=[] if self.log_dirs_code else [disk],
            error_code=self.log_dirs_code,
            problems=self.problems.get(number, []),
        )

    def _offsets(self, number: int, request: Any) -> ListOffsetsResponse:
        self.asked.append((number, request.replica_id))
        topics = []
        for topic in request.topics:
            found = []
            for one in topic.partitions:
                leader = self.partitions[one.partition_index][0]
                end = self.ends.get(number if request.replica_id == ANY_REPLICA else leader, 0)
                code = NOT_LED if number not in self.partitions[one.partition_index][1] else 0
                found.append(
                    ListOffsetsPartitionResponse(partition_index=one.partition_index, offset=end, error_code=code)
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=found))
        return ListOffsetsResponse(topics=topics)

    def _fetch(self, request: Any) -> FetchResponse:
        wanted = request.topics[0].partitions[0]
        data = PartitionData(
            partition_index=wanted.partition,
            high_watermark=99,
            records=memoryview(batch(wanted.fetch_offset, 1)[2]),
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])


ALL = (1, [1, 2, 3], [1, 2, 3])


def by_kind(ran: Any, kind: str) -> list[dict[str, Any]]:
    return [row for row in ran.rows if row["kind"] == kind]


def test_all_is_well(run) -> None:
    boards = Boards(ALL, (2, [2, 3, 1], [2, 3, 1]), ends={1: 7, 2: 7, 3: 7})
    with boards.up() as bootstrap:
        ran = run("cluster", "status", "--bootstrap-server", bootstrap)
    lines = ran.out.splitlines()
    assert (ran.status, ran.err) == (0, "")
    assert lines[0] == f"cluster c1 at {bootstrap}, controller: 2"
    assert lines[1].split()[:3] == ["broker", "address", "rack"]
    assert lines[3].split()[0::2] == ["2", "shed-2", "2", "0", "stops"]
    assert lines[-1] == "well: 3 brokers, 2 partitions, every replica in sync"
    assert "ledger" not in ran.out, "each broker has its own, whatever becomes of others"
    assert [each for each, _ in boards.asked] == [1, 2, 1, 2, 3], "leaders first"


def test_a_follower_is_behind(run) -> None:
    boards = Boards((1, [1, 2, 3], [1, 2]), ends={1: 100, 2: 99, 3: 40})
    with boards.up() as bootstrap:
        ran = run("cluster", "status", "--bootstrap-server", bootstrap, "--json")
    assert ran.status == 1
    first, second, third = by_kind(ran, "broker")
    assert (first["lag"], second["lag"], third["lag"]) == (0, 1, 60)
    assert third["behind_ms"] > 1000
    assert by_kind(ran, "partition")[0]["lag"] == {"2": 1, "3": 60}
    assert (third["without_it_no_leader"], third["without_it_acks_all_refused"]) == ([], [])
    assert second["without_it_acks_all_refused"] == ["t-0"]
    assert by_kind(ran, "cluster")[0]["problems"] == ["1 partition under-replicated"]


def test_boards_are_gone_and_say_nothing(run) -> None:
    boards = Boards((1, [1, 2, 3], [1]), (-1, [3], [3]), ends={1: 5})
    boards.there, boards.controller = [1, 2], -1
    with boards.up(2) as bootstrap:
        ran = run("cluster", "status", "--bootstrap", bootstrap)
        facts = run("cluster", "status", "--bootstrap", bootstrap, "--json")
    assert ran.status == facts.status == 1
    assert f"broker 2: cannot be reached at 127.0.0.1:{boards.ports[2]}" in ran.out
    one, two, three = by_kind(facts, "broker")
    assert one["without_it_no_leader"] == ["t-0"]
    assert "cannot be reached" in two["problem"]
    assert (two["lag"], three["lag"], three["problem"], three["host"]) == (None, None, "not there", None)
    assert [row["problem"] for row in by_kind(facts, "partition")] == [
        "acks=all is refused: min.insync.replicas is 2",
        "no leader",
    ]
    assert ran.out.splitlines()[-1] == (
        "not well: 1 partition without a leader; 1 partition below min.insync.replicas; 1 partition under-replicated; "
        "no controller is known: ZooKeeper may not answer, then nothing is acked; "
        "broker 2 does not answer; broker 3 is not there"
    )


def test_a_long_list_is_cut(run) -> None:
    with Boards(*[(1, [1, 2], [1])] * 40, needed=1).up() as bootstrap:
        ran = run("cluster", "status", "--bootstrap", bootstrap)
    assert "and 10 more, which --json tells" in ran.out
    assert "40 partitions without a leader" in ran.out, "if broker 1 goes"


def test_more_than_all_replicas_need_not_be_in_sync(run) -> None:
    """As for whoever writes: min.insync.replicas above the replication factor is the factor, as in Kafka."""
    with Boards((1, [1, 2, 3], [1, 2, 3]), (2, [2, 3], [2, 3]), needed=4).up() as bootstrap:
        ran = run("cluster", "status", "--bootstrap", bootstrap)
    assert (ran.status, ran.out.splitlines()[-1]) == (0, "well: 3 brokers, 2 partitions, every replica in sync")
    assert "refuse acks=all" in ran.out, "if one goes"


@pytest.mark.parametrize(
    ("in_sync", "needed", "unled", "refusing"),
    [
        ((1, 2, 3), 2, 0, 0),
        ((1, 2), 2, 0, 1),
        ((1, 2), 3, 0, 0),  # it is below it already
        ((1,), 1, 1, 0),
        ((2, 3), 2, 0, 0),  # it would not be missed
    ],
)
def test_what_stops_if_board_1_goes(in_sync: tuple[int, ...], needed: int, unled: int, refusing: int) -> None:
    leader = in_sync[0]
    standing = PartitionStatus(("t", 0), Partition(0, leader, (1, 2, 3), in_sync, 0), needed, {})
    assert tuple(map(len, without_broker([standing], 1))) == (unled, refusing)


@pytest.mark.parametrize("seed", range(3))
def test_wrong_bytes_anywhere(run, seed: int) -> None:
    boards = Boards(ALL, (2, [2, 3, 1], [2]), ends={1: 9, 2: 7, 3: 7}, spoil=Spoiler(seed))
    statuses = set()
    with boards.up() as bootstrap:
        for _ in range(15):
            ran = run("cluster", "status", "--bootstrap-server", bootstrap, "--timeout", 1)
            assert ran.err.count("\n") == 1 if ran.status == 2 else ran.out, ran
            statuses.add(ran.status)
    assert statuses == {1, 2}


def test_nothing_is_expected_of_a_board_that_says_nothing() -> None:
    standing = PartitionStatus(("t", 0), Partition(0, 1, (1, 2, 3), (1, 2, 3), 0), 2, {})
    assert tuple(map(len, without_broker([standing], 1, {2}))) == (0, 1)
    assert tuple(map(len, without_broker([standing], 1, {2, 3}))) == (1, 0)


def test_trouble_is_told_from_a_cluster_that_is_not_well(run) -> None:
    place = f"127.0.0.1:{free_port()}"
    ran = run("cluster", "status", "--bootstrap-server", place)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith(f"edge-broker: no broker answers at {place}: connection refused")
    for words in (["cluster"], ["cluster", "state"], ["cluster", "status", "--bootstrap-server", "here"]):
        assert run(*words).status == 2


FULL = "the disk is nearly full, so other boards lead and replicas here are not in sync: 9 bytes are free"


def test_a_full_disk_is_named_with_its_board_and_how_long(run) -> None:
    boards = Boards(ALL, ends={1: 7, 2: 7, 3: 7})
    boards.problems = {3: [BrokerProblem(kind="disk", text=FULL, for_ms=300_000)]}
    with boards.up() as bootstrap:
        ran = run("cluster", "status", "--bootstrap-server", bootstrap)
        facts = run("cluster", "status", "--bootstrap-server", bootstrap, "--json")
    assert ran.status == facts.status == 1
    assert ran.out.splitlines()[-1] == "not well: the disk of broker 3 is full for 5 min"
    assert f"broker 3: {FULL}" in ran.out
    assert ran.out.splitlines()[4].endswith("its disk is full for 5 min")
    one, _, three = by_kind(facts, "broker")
    assert (one["disk_is_full"], one["disk_free_bytes"], one["disk_total_bytes"]) == (False, 100, 1000)
    assert (three["disk_is_full"], three["disk_full_for_ms"], three["problems"]) == (True, 300_000, [FULL])


def test_what_a_board_says_of_itself_and_of_strays_is_named(run) -> None:
    stray = "topic old (abc) is on this disk and not in the cluster: it is kept, and not served"
    boards = Boards(ALL, ends={1: 7, 2: 7, 3: 7})
    boards.problems = {
        1: [BrokerProblem(kind="broker", text="2 partitions offline, first t-0: x\x1b[2J", for_ms=-1)],
        2: [BrokerProblem(kind="stray", text=stray, for_ms=-1)],
    }
    with boards.up() as bootstrap:
        ran = run("cluster", "status", "--bootstrap-server", bootstrap)
    assert ran.status == 1
    assert "\x1b" not in ran.out, "no broker writes on this terminal"
    offline = "2 partitions offline, first t-0: x\\x1b[2J"
    assert ran.out.splitlines()[-1] == f"not well: broker 1: {offline}; broker 2: {stray}"


def test_a_zookeeper_server_that_does_not_answer_is_named(run) -> None:
    gone = f"127.0.0.1:{free_port()}"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        well = f"127.0.0.1:{listening.getsockname()[1]}"

        def accept_one() -> None:
            listening.accept()[0].close()

        threading.Thread(target=accept_one, daemon=True).start()
        boards = Boards(ALL, ends={1: 7, 2: 7, 3: 7})
        boards.connect = f"{well},{gone}/site"
        with boards.up() as bootstrap:
            ran = run("cluster", "status", "--bootstrap-server", bootstrap, "--json")
    assert ran.status == 1
    assert by_kind(ran, "cluster")[0]["problems"] == [f"ZooKeeper server {gone} does not answer: connection refused"]
    assert [(row["server"], row["answers"]) for row in by_kind(ran, "zookeeper")] == [(well, True), (gone, False)]


def test_servers_that_this_machine_cannot_reach_are_the_brokers_to_name(run) -> None:
    said = "ZooKeeper server 10.0.0.2:2181 does not answer: no route to host"
    boards = Boards(ALL, ends={1: 7, 2: 7, 3: 7})
    boards.connect = f"127.0.0.1:{free_port()}"
    with boards.up() as bootstrap:
        well = run("cluster", "status", "--bootstrap-server", bootstrap)
        boards.problems = {n: [BrokerProblem(kind="zookeeper", text=said, for_ms=-1)] for n in (1, 3)}
        ran = run("cluster", "status", "--bootstrap-server", bootstrap)
        boards.controller = -1
        none = run("cluster", "status", "--bootstrap-server", bootstrap)
    assert (well.status, ran.status) == (0, 1)
    assert "this machine reaches no server" in well.out
    assert ran.out.splitlines()[-1] == f"not well: {said}", "once"
    assert f"ZooKeeper server {boards.connect} does not answer" in none.out, "nothing says that they are well"


def test_a_user_who_may_not_ask_for_disks_is_told_so(run) -> None:
    boards = Boards(ALL, ends={1: 7, 2: 7, 3: 7})
    boards.log_dirs_code = 31
    with boards.up() as bootstrap:
        ran = run("cluster", "status", "--bootstrap-server", bootstrap)
        boards.log_dirs_code = 56
        broken = run("cluster", "status", "--bootstrap-server", bootstrap)
    assert ran.status == 0
    assert "broker 2: whether its disk is full is not known; DESCRIBE on the cluster is needed" in ran.out
    assert broken.status == 1
    assert "broker 2 does not tell of its disk: KAFKA_STORAGE_ERROR" in broken.out
