"""`edge_broker/SUPPORTED.md`: which Kafka APIs the broker serves, made from its handlers.

`python -m tests.support.supported` writes it; a test says when it is not as the handlers say.
"""

from __future__ import annotations

from pathlib import Path

import edge_broker
from edge_broker.handlers import APIS
from edge_broker.protocol.api import Api

PATH = Path(edge_broker.__file__).parent / "SUPPORTED.md"
NOT_SERVED = (
    ("AddPartitionsToTxn to TxnOffsetCommit", "24 to 28", "transactions come later"),
    ("AlterReplicaLogDirs", "34", "there is one data directory"),
    ("delegation tokens", "38 to 41", "users log in by SCRAM or PLAIN"),
    ("AlterClientQuotas", "49", "nobody is held to a quota; DescribeClientQuotas tells of none"),
    ("DescribeQuorum", "55", "it belongs to KRaft; `edge-broker cluster status` shows who leads and who lags"),
    ("DescribeProducers, DescribeTransactions, ListTransactions", "61, 65, 66", "they belong to transactions"),
    ("ConsumerGroupHeartbeat, ConsumerGroupDescribe", "68, 69", "the new group protocol (KIP-848) comes later"),
    ("client telemetry", "71, 72", "clients go on without it"),
    ("share groups", "76 to 79", "not planned"),
)

HEAD = """# What of the Kafka protocol is served

Made from the handlers (`python -m tests.support.supported`); ApiVersions answers the same. Left out means: refused with
an error that clients know, or without effect where a client cannot tell. `make differential` compares the answers with
Apache Kafka's.

| API | key | versions | left out |
|---|---:|---|---|
"""

BROUGHT = """
## What each version brought

| API | version | brought |
|---|---:|---|
"""

MISSING = """
## Not served, and so not advertised

| API | keys | why, or what to do instead |
|---|---|---|
"""


def supported() -> str:
    """The file's text."""
    apis = [APIS[key] for key in sorted(APIS)]
    served = [f"| {api.name} | {api.key} | {_versions(api)} | {api.left_out} |\n" for api in apis]
    brought = [f"| {api.name} | {version} | {text} |\n" for api in apis for version, text in api.versions.items()]
    missing = [f"| {name} | {keys} | {why} |\n" for name, keys, why in NOT_SERVED]
    return "".join((HEAD, *served, BROUGHT, *brought, MISSING, *missing))


def _versions(api: Api) -> str:
    first, last = api.min_version, api.max_version
    text = f"{first} to {last}" if first < last else str(first)
    refused = f"; {api.advertised_min} to {first - 1} are advertised and refused (KAFKA-18659)"
    return text + refused if api.advertised_min < first else text


if __name__ == "__main__":
    PATH.write_text(supported())
