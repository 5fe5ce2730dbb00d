"""Ways in and rights, held against Apache Kafka: each listener, mechanism and credential with each set of rights.

| way in | who that is |
|---|---|
| PLAINTEXT, TLS without a certificate | User:ANONYMOUS |
| TLS with one | User:CN=ann |
| a log-in, with or without TLS and a certificate | User:ann |

Nobody's rights are another's: each set is given to each of the three. Must never come in: SASL's messages
(test_log_ins.py), each API's own rights (test_rights.py).
"""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from edge_broker.errors import ErrorCode
from edge_broker.protocol import api
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.describe_acls import DescribeAclsRequest
from edge_broker.protocol.messages.describe_cluster import DescribeClusterRequest
from edge_broker.protocol.messages.list_groups import ListGroupsRequest
from edge_broker.protocol.messages.metadata import MetadataRequest
from edge_broker.security.acls import CLUSTER_NAME, AclBinding, Operation, PatternType, Permission, ResourceType
from tests.differential.judging import Judge
from tests.differential.known import KNOWN_WAYS_IN
from tests.differential.log_in import LogIn, until_parted
from tests.differential.secured import (
    ADMIN,
    ANN,
    LISTENERS,
    ONLY_256,
    ONLY_512,
    PASSWORDS,
    ROOT,
    Broker,
    Secured,
)
from tests.differential.session import CLOSED, Asked
from tests.support.acls import ANY_AT_ALL
from tests.support.rights import ASKED, CLUSTER, GROUP, TOPIC, Names

ENCRYPTED = frozenset(listener for listener, protocol in LISTENERS.items() if protocol.endswith("SSL"))
SASL = tuple(listener for listener, protocol in LISTENERS.items() if protocol.startswith("SASL"))
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
CERTIFICATES = ("", "ann", "between", "ended", "ended-between", "stranger")
WHO = ("User:ANONYMOUS", "User:CN=ann", f"User:{ANN}")
OF_A_CLIENT = {
    "produce",
    "fetch by name",
    "fetch by id",
    "list offsets",
    "metadata",
    "metadata of none",
    "create topics",
    "describe configs of a topic",
    "find coordinator",
    "join group",
    "commit offsets",
    "fetch all offsets",
    "describe groups",
    "a producer id",
}


class Way(NamedTuple):
    """How to get in; no mechanism is no log-in."""

    listener: str
    certificate: str = ""
    mechanism: str = ""
    user: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, self))


WAYS = (
    Way("CLIENT"),
    Way("TLS"),
    Way("TLS", "ann"),
    Way("WANTED"),
    Way("WANTED", "ann"),
    Way("MUTUAL", "ann"),
    *(Way(listener, "ann" if listener == "ALL" else "", each, ANN) for listener in SASL for each in MECHANISMS),
    Way("BOTH", "ann", "SCRAM-SHA-512", ANN),
    Way("LOGIN", "", "SCRAM-SHA-256", ROOT),
    Way("BOTH", "", "PLAIN", ROOT),
    Way("MUTUAL", ADMIN),
)


def acl(kind: ResourceType, name: str, operation: Operation, **parts: Any) -> AclBinding:
    made = AclBinding(kind, name, PatternType.LITERAL, "", "*", operation, Permission.ALLOW)
    return made._replace(**parts)


READS, WRITES = acl(TOPIC, "ways-t", Operation.READ), acl(TOPIC, "ways-t", Operation.WRITE)
JOINS = acl(GROUP, "ways-g", Operation.READ)
PREFIXED = {"name": "ways-", "pattern_type": PatternType.PREFIXED}
EVERY = {"name": "*", "operation": Operation.ALL}
DENY = {"permission": Permission.DENY}
RIGHTS: dict[str, tuple[AclBinding, ...]] = {
    "none": (),
    "allowed": (READS, WRITES, JOINS),
    "denied": (READS._replace(**DENY), WRITES._replace(**DENY), JOINS._replace(**DENY)),
    "deny over allow": (READS, WRITES, JOINS, READS._replace(**DENY), JOINS._replace(operation=Operation.ALL, **DENY)),
    "prefixed": (READS._replace(**PREFIXED), JOINS._replace(**PREFIXED), WRITES._replace(name="w"), WRITES),
    "a deny by prefix": (READS, WRITES, JOINS, READS._replace(**PREFIXED, **DENY)),
    "wildcard": (READS._replace(**EVERY), JOINS._replace(**EVERY)),
    "this host": (READS._replace(host="127.0.0.1"), JOINS._replace(host="127.0.0.1")),
    "another host": (READS._replace(host="10.0.0.1"), JOINS._replace(host="10.0.0.1")),
    "another host is denied": (READS, READS._replace(host="10.0.0.1", **DENY)),
    "cluster": tuple(
        acl(CLUSTER, CLUSTER_NAME, each)
        for each in (Operation.CREATE, Operation.DESCRIBE, Operation.IDEMPOTENT_WRITE, Operation.DESCRIBE_CONFIGS)
    ),
    "configs": (READS._replace(operation=Operation.ALTER_CONFIGS), acl(TOPIC, "ways-none", Operation.CREATE)),
}


READABLE = {"allowed", "prefixed", "wildcard", "this host", "another host is denied"}
"""The rights of these let whoever has them fetch; super users always may."""


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    found = Judge(KNOWN_WAYS_IN)
    yield found
    print(f"\n{found.requests} answers of each broker by ways in")


class Inside:
    """One of the two, with a connection for each way in."""

    def __init__(self, broker: Broker, contexts: Mapping[str, ssl.SSLContext]) -> None:
        self.broker = broker
        admin = broker.set_up("ways")
        topic = admin.topic("t")
        self.names = Names(topic, admin.wait_for(topic, 1).topic_id, "ways-none", "ways-g", "ways-no-g")
        admin.coordinator(self.names.group)
        admin.close()
        self.log_ins = {way: enter(broker, contexts, way) for way in WAYS}

    def ask(self, way: Way) -> list[Asked]:
        """What is answered to who came in this way."""
        log_in = self.log_ins[way]
        begin = len(log_in.asked)
        for asked in ASKED:
            if asked.title in OF_A_CLIENT:
                log_in.request(asked.key, asked.request(self.names), asked.version, asked.title)
        for key, version, request in GENERAL:
            log_in.request(key, request, version, "")
        return log_in.asked[begin:]

    def close(self) -> None:
        for log_in in self.log_ins.values():
            log_in.close()


GENERAL: tuple[tuple[int, int, Message], ...] = (
    (
        api.METADATA,
        8,
        MetadataRequest(topics=None, **{f"include_{of}_authorized_operations": True for of in ("topic", "cluster")}),
    ),
    (api.DESCRIBE_CLUSTER, 1, DescribeClusterRequest(include_cluster_authorized_operations=True)),
    (api.LIST_GROUPS, 5, ListGroupsRequest()),
    (api.DESCRIBE_ACLS, 3, DescribeAclsRequest(**ANY_AT_ALL)),
)


def enter(broker: Broker, contexts: Mapping[str, ssl.SSLContext], way: Way) -> LogIn:
    """Come in."""
    log_in = LogIn(broker.addresses, "ways")
    try_to_enter(log_in, contexts, way, PASSWORDS.get(way.user, ""), keep=True)
    assert log_in.asked[-1].answer != CLOSED, way
    return log_in


def try_to_enter(
    log_in: LogIn,
    contexts: Mapping[str, ssl.SSLContext],
    way: Way,
    password: str,
    *,
    label: str = "",
    keep: bool = False,
) -> None:
    """Come in, as far as that goes: the last answer is of a request behind it, or the connection is closed."""
    log_in.context = contexts[way.certificate] if way.listener in ENCRYPTED else None
    with log_in.connection(f"{way} {label}", way.listener, keep=keep):
        if way.mechanism and log_in.handshake(way.mechanism).error_code == ErrorCode.NONE:
            log_in.messages(way.mechanism, way.user, password)
        log_in.served()


@pytest.fixture(scope="module")
def inside(secured: Secured) -> Iterator[tuple[Inside, Inside]]:
    with ExitStack() as stack:
        both = [Inside(broker, secured.contexts) for broker in secured.brokers]
        for one in both:
            stack.callback(one.close)
        yield both[0], both[1]


@pytest.mark.parametrize("rights", RIGHTS)
def test_rights_of_who_came_in_each_way(inside: tuple[Inside, Inside], judge: Judge, rights: str) -> None:
    acls = {each._replace(principal=who) for each in RIGHTS[rights] for who in WHO}
    for one in inside:
        one.broker.use(acls)
    roads = {way: (inside[0].ask(way), inside[1].ask(way)) for way in WAYS}
    judge.hold_all(rights, roads.values())
    for way, (ours, _) in roads.items():
        (fetched,) = (one.answer for one in ours if one.label.endswith(": fetch by name"))
        code = fetched["responses"]["ways-t"]["partitions"]["0"]["error_code"]
        may = rights in READABLE or way.user == ROOT or way.certificate == ADMIN
        assert code == (ErrorCode.NONE if may else ErrorCode.TOPIC_AUTHORIZATION_FAILED), way


@pytest.mark.parametrize("listener", ["CLIENT", *LISTENERS])
def test_who_comes_in(secured: Secured, judge: Judge, listener: str) -> None:
    """With each certificate and credential, right and wrong."""
    log_ins = [LogIn(broker.addresses, listener) for broker in secured.brokers]
    for log_in in log_ins:
        for way, label, password in tried(listener):
            try_to_enter(log_in, secured.contexts, way, password, label=label)
        log_in.close()
    ours, kafka = (log_in.roads for log_in in log_ins)
    judge.hold_all(f"who-{listener}", itertools.starmap(until_parted, zip(ours, kafka, strict=True)))


def tried(listener: str) -> Iterator[tuple[Way, str, str]]:
    """What is tried at a listener: a way, a word for it, a password."""
    right = "ann" if listener == "ALL" else ""
    for certificate in CERTIFICATES if listener in ENCRYPTED else ("",):
        yield Way(listener, certificate), "no log-in", ""
        if listener in SASL and certificate != right:
            yield Way(listener, certificate, MECHANISMS[1], ANN), "right", PASSWORDS[ANN]
    for mechanism in (*MECHANISMS, "UNKNOWN", "GSSAPI") if listener in SASL else ():
        for label, user, password in (
            ("right", ANN, PASSWORDS[ANN]),
            ("wrong password", ANN, PASSWORDS[ROOT]),
            ("unknown user", "nobody", PASSWORDS[ANN]),
            ("only 256", ONLY_256, PASSWORDS[ONLY_256]),
            ("only 512", ONLY_512, PASSWORDS[ONLY_512]),
        ):
            yield Way(listener, right, mechanism, user), label, password


def test_every_known_difference_of_ways_in_is_still_there(judge: Judge) -> None:
    """Of those whose cases ran."""
    assert judge.mended([*RIGHTS, *(f"who-{listener}" for listener in ("CLIENT", *LISTENERS))]) == []
