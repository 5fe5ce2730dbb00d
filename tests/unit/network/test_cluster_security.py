"""A member of a cluster is secured with the cluster or not at all, and has something to show to the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from drupelet.errors import ConfigurationError
from edge_broker.config import STANDARD_AUTHORIZER, BrokerConfig, Endpoint
from edge_broker.listeners import Listener, plaintext
from edge_broker.network.cluster import check_nothing_is_secured, credentials, inter_broker_listener, link_security

AT = Endpoint("127.0.0.1", 9092)
OPEN = plaintext(AT)
LOGIN = Listener("BROKERS", "SASL_SSL", AT, AT)
MUTUAL = Listener("BROKERS", "SSL", AT, AT)


@pytest.mark.parametrize(
    ("settings", "listener", "what"),
    [
        ({"authorizer.class.name": STANDARD_AUTHORIZER}, OPEN, "authorizer.class.name is set"),
        ({}, LOGIN, "listener BROKERS has log-ins"),
    ],
)
def test_users_and_rights_are_not_had_where_they_are_everybody_s(
    settings: dict[str, str], listener: Listener, what: str
) -> None:
    with pytest.raises(ConfigurationError, match=rf"^{what}, .* USER:PASSWORD in edge.zookeeper.digest.file"):
        check_nothing_is_secured(BrokerConfig(settings), [listener])


@pytest.mark.parametrize("listener", [OPEN, MUTUAL])
def test_without_users_and_rights_a_cluster_needs_no_password(listener: Listener) -> None:
    check_nothing_is_secured(BrokerConfig(), [listener])
    assert credentials(BrokerConfig()) is None


@pytest.mark.parametrize(
    ("mode", "text", "why"), [(0o644, "u:p\n", "other users"), (0o600, "u\n", "is not USER:PASSWORD")]
)
def test_the_password_is_read_from_a_file_that_nobody_else_reads(
    tmp_path: Path, mode: int, text: str, why: str
) -> None:
    path = tmp_path / "digest"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match=why):
        credentials(BrokerConfig({"edge.zookeeper.digest.file": str(path)}))
    path.write_text("u:p:q\n")
    path.chmod(0o600)
    assert credentials(BrokerConfig({"edge.zookeeper.digest.file": str(path)})) == ("u", "p:q")


def test_a_broker_without_anything_to_show_is_told_the_key() -> None:
    with pytest.raises(ConfigurationError, match=r"edge\.inter\.broker\.config\.file"):
        link_security(BrokerConfig(), LOGIN)
    with pytest.raises(ConfigurationError, match="name one of the listeners, BROKERS"):
        inter_broker_listener(BrokerConfig({"inter.broker.listener.name": "CLIENT"}), [LOGIN])
