"""The tools against brokers that are not there, say nothing, or say what is no Kafka; and against 10,000 topics."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from edge_broker.protocol.api import API_VERSIONS, DESCRIBE_CONFIGS, DESCRIBE_LOG_DIRS, LIST_OFFSETS, METADATA
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
from tests.support.ports import free_port
from tests.support.scripted_broker import ScriptedBroker
from tests.support.tools.answers import configs_answer, sizes_answer
from tests.support.tools.one_topic import OneTopic

COMMANDS = [["topics"], ["topics", "t"], ["tail", "t"], ["groups"], ["groups", "g"]]


@pytest.mark.parametrize("words", COMMANDS)
def test_nobody_listens(run, words):
    place = f"127.0.0.1:{free_port()}"
    ran = run(*words, "--bootstrap", place)
    assert ran == (
        1,
        "",
        f"edge-broker: no broker answers at {place}: connection refused; "
        f"is it running, and is --bootstrap {place} right?\n",
    )


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "did not answer within 0.2 s"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak the Kafka protocol: an answer of 1213486160 bytes"),
        (b"\xff\xff\xff\xff", "does not speak the Kafka protocol: an answer of -1 bytes"),
        (b"\0\0\0\x04\0\0\0\x63", "does not speak the Kafka protocol: an answer to another request"),
        (b"\0\0\0\x07\0\0\0\x01\0\0\x7f", "does not speak the Kafka protocol: ApiVersionsResponse"),
        (b"\x07\xff\xff\xff\0\0\0\x01", "did not answer within 0.2 s"),
    ],
)
def test_what_answers_is_no_broker(run, answer, said):
    with ScriptedBroker({API_VERSIONS: lambda _: answer}) as broker:
        limit = 0.2 if "0.2" in said else 60
        ran = run("topics", "--timeout", limit, "--bootstrap", broker.bootstrap)
        assert ran.status == 1
        assert said in ran.err
        assert ran.err.count("\n") == 1


def test_a_connection_that_is_closed_at_once(run):
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = "import sys; from edge_broker.cli import main; sys.exit(main(sys.argv[1:]))"
        place = f"127.0.0.1:{server.getsockname()[1]}"
        command = [sys.executable, "-c", code, "topics", "--bootstrap", place]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            connection, _ = server.accept()
            connection.recv(100)
            connection.close()
            _, error = process.communicate(timeout=60)
        assert process.returncode == 1
        assert f"{place} closed the connection: it may speak no Kafka, or want TLS" in error


def test_an_unknown_topic_names_the_nearest(run):
    with ScriptedBroker(OneTopic([], 0, 0).answers) as broker:
        for command in ("topics", "tail"):
            ran = run(command, "tt", "--bootstrap", broker.bootstrap)
            assert ran.status == 2
            assert f"there is no topic 'tt' at {broker.bootstrap}; did you mean 't'?" in ran.err


def test_a_topic_like_no_other_and_a_partition_too_many_name_the_remedy(run):
    with ScriptedBroker(OneTopic([], 0, 0).answers) as broker:
        ran = run("tail", "something-else", "--bootstrap", broker.bootstrap)
        assert (ran.status, "; `edge-broker topics` lists them" in ran.err) == (2, True)
        ran = run("tail", "t", "--partition", "7", "--bootstrap", broker.bootstrap)
        assert (ran.status, "topic 't' has no partition 7: it has partition 0 alone" in ran.err) == (2, True)


def test_bad_usage(run):
    for words, said in (
        (["tail"], "TOPIC"),
        (["tail", "t", "-n", "many"], "-n is 'many': give a whole number from 0 to 100000"),
        (["topics", "--timeout", "0"], "--timeout is '0': give 0.1 to 3600 seconds"),
        (["topics", "--timeout", "nan"], "--timeout is 'nan'"),
        (["topics", "--bootstrap", "here"], "write HOST:PORT"),
        (["cluster", "status", "--bootstrap-server", "a:1,b:2"], "name one broker, any of the cluster"),
    ):
        ran = run(*words)
        assert ran.status == 2
        assert said in ran.err


TOPICS = 10_000


def _many(_request):
    broker = MetadataResponseBroker(node_id=1, host="h", port=1)
    partition = MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])
    unled = MetadataResponsePartition(partition_index=0, error_code=5, leader_id=-1)
    topics = [
        MetadataResponseTopic(name=f"t{at}", partitions=[unled if at == 77 else partition]) for at in range(TOPICS)
    ]
    return MetadataResponse(brokers=[broker], topics=topics)


def _offsets(request):
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=0, offset=int(topic.name[1:]) if topic.partitions[0].timestamp == -1 else 0
                    )
                ],
            )
            for topic in request.topics
        ]
    )


def test_ten_thousand_topics_the_worst_first_then_the_largest(run):
    answers = {
        METADATA: _many,
        LIST_OFFSETS: _offsets,
        DESCRIBE_CONFIGS: configs_answer,
        DESCRIBE_LOG_DIRS: sizes_answer,
    }
    with ScriptedBroker(answers) as broker:
        ran = run("topics", "--bootstrap", broker.bootstrap)
        lines = ran.out.splitlines()
        assert ran.status == 0
        assert lines[0].split() == ["topic", "partitions", "records", "bytes", "retention", "cleanup", "problem"]
        assert lines[1].split()[0] == "t77"
        assert lines[1].endswith("partition 0: no leader")
        assert lines[2].split()[:4] == ["t4", "1", "4", "5,000,000"]
        assert [line.split()[0] for line in lines[3:5]] == ["t9999", "t9998"]
        assert lines[-1] == f"10000 topics at {broker.bootstrap}"
        assert max(len(getattr(one, "topics", None) or []) for one in broker.asked) <= 1000
