"""The edge broker or Apache Kafka with one listener, into which nobody gets without a log-in; with TLS by choice.

Apache Kafka 4 refuses kcat of Debian 12 by SCRAM, as librdkafka before 2.6.1 repeats its nonce: there kcat comes by
PLAIN.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support import runtimes
from tests.support.certificates import Authority
from tests.support.entries import PLAIN, Bootstrap, Entry
from tests.support.processes import ApacheKafka, EdgeBroker
from tests.support.secured_edge import users
from tests.support.secured_kafka import PASSWORD, USER

NAMES = "DNS:localhost,IP:127.0.0.1"


def secured_broker(
    kind: type[EdgeBroker] | type[ApacheKafka],
    directory: Path,
    *,
    protocol: str,
    mechanism: str,
    settings: Mapping[str, str | int],
    **more: Any,
) -> EdgeBroker | ApacheKafka:
    """Describe it; its `bootstrap` says how USER gets in by `mechanism`, one of SCRAM's."""
    authority = Authority(directory / "ca") if protocol == "SASL_SSL" else None
    entry = Entry(protocol, mechanism, USER, PASSWORD, authority.certificate if authority is not None else None)
    own: dict[str, str | int] = {"sasl.enabled.mechanisms": mechanism, **settings}
    if authority is not None:
        own |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.store("broker", NAMES)),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.certificate),
        }
    broker: EdgeBroker | ApacheKafka
    by_kcat = entry
    if issubclass(kind, EdgeBroker):
        broker = kind(directory, protocol=protocol, settings=own, **more)
        users(runtimes.console_script("edge-broker"), broker.data_dir, "add", USER, password=PASSWORD)
    else:
        by_kcat = entry._replace(mechanism=PLAIN)
        own["sasl.enabled.mechanisms"] = f"{mechanism},{PLAIN}"
        own["listener.name.client.plain.sasl.jaas.config"] = (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        )
        own["sasl.mechanism.inter.broker.protocol"] = mechanism
        own[f"listener.name.client.{mechanism.lower()}.sasl.jaas.config"] = entry.java()["sasl.jaas.config"]
        broker = kind(directory, protocol=protocol, settings=own, scram={USER: PASSWORD}, **more)
    broker.bootstrap = Bootstrap(broker.bootstrap, entry, directory, kcat=by_kcat)
    return broker
