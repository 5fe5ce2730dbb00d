"""The edge broker and Apache Kafka 4.3.1 secured alike: the same listeners, certificates, users and ACLs in both.

| listener | security.protocol | who gets in |
|---|---|---|
| CLIENT | PLAINTEXT | anybody, as User:ANONYMOUS |
| TLS | SSL | the same; nobody is asked for a certificate |
| WANTED | SSL | who shows a certificate is who it says, else User:ANONYMOUS |
| MUTUAL | SSL | who shows a certificate |
| LOGIN | SASL_PLAINTEXT | a user, by each mechanism |
| AGAIN | SASL_PLAINTEXT | the same, for REAUTH_MS |
| BOTH | SASL_SSL | a user |
| ALL | SASL_SSL | a user who shows a certificate as well |

Super users are ROOT, and who shows ADMIN's certificate, by which the tests set up what they need. Must never come in:
what is asked and held against each other.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from edge_broker.configuration.config import STANDARD_AUTHORIZER
from edge_broker.errors import ErrorCode
from edge_broker.protocol import api
from edge_broker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from edge_broker.protocol.messages.create_acls import CreateAclsRequest
from edge_broker.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from edge_broker.protocol.messages.describe_acls import DescribeAclsRequest
from edge_broker.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from edge_broker.security.acls import AclBinding
from edge_broker.security.scram import MECHANISMS, salt_password
from tests.differential.session import Session
from tests.support.acls import ANY_AT_ALL, creation, described
from tests.support.certificates import Authority
from tests.support.listeners import listener_settings
from tests.support.ports import free_port
from tests.support.processes import ApacheKafka, EdgeBroker
from tests.support.waiting import Deadline

LISTENERS = {
    "TLS": "SSL",
    "WANTED": "SSL",
    "MUTUAL": "SSL",
    "LOGIN": "SASL_PLAINTEXT",
    "AGAIN": "SASL_PLAINTEXT",
    "BOTH": "SASL_SSL",
    "ALL": "SASL_SSL",
}
CLIENT_AUTH = {"TLS": "none", "WANTED": "requested", "MUTUAL": "required", "ALL": "required"}
REAUTH_MS = 3_600_000
ROOT, ANN, ONLY_256, ONLY_512, COMMAS = "root", "ann", "only-256", "only-512", "a,b=c"
PASSWORDS = {user: f"pass-word of {user}" for user in (ROOT, ANN, ONLY_256, ONLY_512, COMMAS)}
LACKS = {ONLY_256: "SCRAM-SHA-512", ONLY_512: "SCRAM-SHA-256"}
ADMIN, BROKER, SHOWN = "admin", "broker", "ann"  # subjects of certificates
ITERATIONS, SALT = 4096, b"salt of everybody's"
SETTINGS: dict[str, str | int] = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": f"User:CN={ADMIN};User:CN={BROKER};User:{ROOT}",
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": "true",
    "log.retention.ms": -1,  # what the tests produce is from 2023
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "ssl.client.auth": "required",
    "connection.failed.authentication.delay.ms": 0,
    "sasl.enabled.mechanisms": ",".join(("PLAIN", *MECHANISMS)),
    "listener.name.again.connections.max.reauth.ms": REAUTH_MS,
    **{f"listener.name.{listener.lower()}.ssl.client.auth": auth for listener, auth in CLIENT_AUTH.items()},
}


class Broker(NamedTuple):
    """One of the two; `admin` may do everything, as may whoever shows `admins`."""

    addresses: Mapping[str, str]
    admin: Session
    admins: ssl.SSLContext

    def set_up(self, case: str) -> Session:
        """What a case sets itself up by."""
        return Session(self.addresses["MUTUAL"], case, context=self.admins)

    def use(self, acls: Iterable[AclBinding]) -> None:
        """Have these ACLs and no others, and wait until it goes by them: Kafka answers a moment before."""
        every = DeleteAclsFilter(**ANY_AT_ALL)
        self.admin.quietly(api.DELETE_ACLS, DeleteAclsRequest(filters=[every]), 3)
        creations = [creation(acl) for acl in acls]
        made = self.admin.quietly(api.CREATE_ACLS, CreateAclsRequest(creations=creations), 3)
        assert all(result.error_code == ErrorCode.NONE for result in made.results), made
        deadline = Deadline(30)
        while (found := self._described()) != set(acls):
            deadline.check("these ACLs", found)
            time.sleep(0.01)

    def _described(self) -> set[AclBinding]:
        """The ACLs that it goes by."""
        request = DescribeAclsRequest(**ANY_AT_ALL)
        return described(self.admin.quietly(api.DESCRIBE_ACLS, request, 3).resources)

    def add_users(self) -> None:
        """Give each user the credentials of its mechanisms, and wait until they hold."""
        upserted = 0
        for mechanism in MECHANISMS.values():  # of one request each user is in it once
            wanted = [
                ScramCredentialUpsertion(
                    name=user,
                    mechanism=mechanism.number,
                    iterations=ITERATIONS,
                    salt=SALT,
                    salted_password=salt_password(mechanism, password.encode(), SALT, ITERATIONS),
                )
                for user, password in PASSWORDS.items()
                if LACKS.get(user) != mechanism.name
            ]
            request = AlterUserScramCredentialsRequest(deletions=[], upsertions=wanted)
            made = self.admin.quietly(api.ALTER_USER_SCRAM_CREDENTIALS, request, 0)
            assert all(result.error_code == ErrorCode.NONE for result in made.results), made
            upserted += len(wanted)
        deadline = Deadline(30)
        everybody = DescribeUserScramCredentialsRequest(users=None)
        while True:
            found = self.admin.quietly(api.DESCRIBE_USER_SCRAM_CREDENTIALS, everybody, 0).results
            if sum(len(result.credential_infos) for result in found) == upserted:
                return
            deadline.check("these users", found)
            time.sleep(0.01)


class Secured(NamedTuple):
    """Both, and the contexts of clients: with no certificate (the empty name), or with one."""

    edge: Broker
    kafka: Broker
    contexts: Mapping[str, ssl.SSLContext]

    @property
    def brokers(self) -> tuple[Broker, Broker]:
        """The edge broker, then Apache Kafka."""
        return self.edge, self.kafka


@contextmanager
def secured_brokers(directory: Path) -> Iterator[Secured]:
    """Start both, with everybody's certificates and users."""
    authority, other = Authority(directory / "ca"), Authority(directory / "other", "other")
    signed = {name: authority.sign(name, "DNS:client") for name in (ADMIN, SHOWN)}
    signed["ended"] = authority.sign("ended", "DNS:client", days=-1)
    for name, days in (("between", 30), ("ended-between", -1)):
        between = Authority(directory / name, name, days=days, issuer=authority)
        certificate, key = between.sign("client", "DNS:client")
        certificate.write_text(certificate.read_text() + between.certificate.read_text())
        signed[name] = certificate, key
    signed["stranger"] = other.sign("stranger", "DNS:client")
    contexts = {name: client_context(authority, files) for name, files in signed.items()} | {
        "": client_context(authority)
    }
    settings = {
        **SETTINGS,
        "ssl.keystore.location": str(authority.store(BROKER, "DNS:localhost,IP:127.0.0.1")),
        "ssl.truststore.location": str(authority.certificate),
    }
    edge, edge_addresses = secured_edge(directory, settings)
    kafka = secured_kafka(directory, settings)
    kafka_addresses = {listener: f"127.0.0.1:{port}" for listener, port in kafka.ports.items()}
    kafka_addresses["CLIENT"] = kafka.bootstrap
    with ExitStack() as stack:
        brokers = []
        for process, addresses in ((edge, edge_addresses), (kafka, kafka_addresses)):
            stack.enter_context(process)
            admin = Session(addresses["MUTUAL"], "secured", context=contexts[ADMIN])
            stack.callback(admin.close)
            brokers.append(Broker(addresses, admin, contexts[ADMIN]))
            brokers[-1].add_users()
            admin.producer_id()  # Kafka has none for a moment
        yield Secured(*brokers, contexts)


def client_context(authority: Authority, files: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    """Trust the CA; show a certificate."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if files is not None:
        context.load_cert_chain(*files)
    return context


def secured_edge(directory: Path, settings: Mapping[str, str | int]) -> tuple[EdgeBroker, dict[str, str]]:
    """The edge broker, and the addresses of its listeners."""
    protocols = {"CLIENT": "PLAINTEXT", **LISTENERS}
    ports = {listener: free_port() for listener in protocols}
    addresses = {listener: f"127.0.0.1:{port}" for listener, port in ports.items()}
    own = listener_settings(protocols, ports) | {"broker.id": 1}
    process = EdgeBroker(directory, port=ports["CLIENT"], settings={**settings, **own}, protocol="SSL")
    return process, addresses


def secured_kafka(directory: Path, settings: Mapping[str, str | int]) -> ApacheKafka:
    """Apache Kafka, which talks to itself by TLS, so that User:ANONYMOUS is no super user."""
    protocols = {"CLIENT": "PLAINTEXT", "CONTROLLER": "SSL", **LISTENERS}
    own: dict[str, str | int] = {
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "inter.broker.listener.name": "MUTUAL",
        "offsets.topic.num.partitions": 1,
    }
    users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items() if user != COMMAS)
    for listener in (name.lower() for name, protocol in LISTENERS.items() if protocol.startswith("SASL")):
        module = "org.apache.kafka.common.security"
        own[f"listener.name.{listener}.plain.sasl.jaas.config"] = f"{module}.plain.PlainLoginModule required {users};"
        for mechanism in MECHANISMS:
            key = f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"
            own[key] = f"{module}.scram.ScramLoginModule required;"
    return ApacheKafka(directory, name="secured-kafka", settings={**settings, **own}, listeners=LISTENERS)
