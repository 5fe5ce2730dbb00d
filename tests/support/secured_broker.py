"""The edge broker or Apache Kafka with one listener, into which nobody gets without a log-in; with TLS by choice."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support import runtimes
from tests.support.certificates import Authority
from tests.support.entries import Bootstrap, Entry
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
) -> tuple[EdgeBroker | ApacheKafka, Entry]:
    """Describe it, and how USER gets in by `mechanism`, one of SCRAM's; `bootstrap` of the broker says so, too."""
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
    if issubclass(kind, EdgeBroker):
        broker = kind(directory, protocol=protocol, settings=own, **more)
        users(runtimes.console_script("edge-broker"), broker.data_dir, "add", USER, password=PASSWORD)
    else:
        own["sasl.mechanism.inter.broker.protocol"] = mechanism
        own[f"listener.name.client.{mechanism.lower()}.sasl.jaas.config"] = entry.java()["sasl.jaas.config"]
        broker = kind(directory, protocol=protocol, settings=own, scram={USER: PASSWORD}, **more)
    broker.bootstrap = Bootstrap(broker.bootstrap, entry, directory)
    return broker, entry
