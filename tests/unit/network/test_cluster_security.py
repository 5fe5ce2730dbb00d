"""A member of a cluster is secured with the cluster or not at all, and has something to show to the others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from drupelet.errors import ConfigurationError
from edge_broker.configuration.config import STANDARD_AUTHORIZER, BrokerConfig, Endpoint
from edge_broker.configuration.listeners import Listener, inter_broker_listener, plaintext
from edge_broker.network.cluster.member_credentials import (
    check_nothing_is_secured,
    credentials,
    link_security,
    peers_ca,
)

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
    assert credentials(BrokerConfig()) == ()


@pytest.mark.parametrize(
    ("mode", "text", "why"),
    [
        (0o644, "u:p\n", "other users"),
        (0o600, "u\n", "its first line is not USER:PASSWORD"),
        (0o600, "u:p\nv\n", "its second line is not USER:PASSWORD"),
        (0o600, "u:p\nu:q\nu:r\n", "which has 3 lines; write one user, or two"),
        (0o600, "", "is empty"),
    ],
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
    assert credentials(BrokerConfig({"edge.zookeeper.digest.file": str(path)})) == (("u", "p:q"),)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("u:new\nu:old\n", (("u", "new"), ("u", "old"))),
        ("u:new\r\n\r\nv:old\r\n", (("u", "new"), ("v", "old"))),
        ("u:new\nu:new", (("u", "new"),)),
    ],
)
def test_a_second_line_is_the_other_user_while_they_change(
    tmp_path: Path, text: str, found: tuple[tuple[str, str], ...]
) -> None:
    path = tmp_path / "digest"
    path.touch(0o600)
    path.write_bytes(text.encode())
    assert credentials(BrokerConfig({"edge.zookeeper.digest.file": str(path)})) == found


def test_a_broker_without_anything_to_show_is_told_the_key() -> None:
    with pytest.raises(ConfigurationError, match=r"edge\.inter\.broker\.config\.file"):
        link_security(BrokerConfig(), LOGIN)
    with pytest.raises(ConfigurationError, match="name one of the listeners, BROKERS"):
        inter_broker_listener(BrokerConfig({"inter.broker.listener.name": "CLIENT"}), [LOGIN])


def shown(tmp_path: Path, protocol: str, mechanism: str = "SCRAM-SHA-512") -> str:
    path = tmp_path / "broker.properties"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    login = f'sasl.mechanism={mechanism}\nsasl.jaas.config={module} required username="b" password="p";\n'
    path.touch(0o600)
    path.write_text(f"security.protocol={protocol}\n" + (login if protocol.startswith("SASL") else ""))
    return str(path)


@pytest.mark.parametrize(
    ("protocol", "settings", "why"),
    [
        ("SSL", {}, "security.protocol is SSL, and the listener for brokers, BROKERS, speaks SASL_SSL"),
        ("SASL_SSL", {"sasl.mechanism.inter.broker.protocol": "PLAIN"}, "and sasl.mechanism.inter.broker.protocol is"),
        ("SASL_SSL", {"sasl.enabled.mechanisms": "PLAIN"}, "and listener BROKERS takes PLAIN"),
    ],
)
def test_what_brokers_like_this_one_would_refuse_ends_the_start(
    tmp_path: Path, protocol: str, settings: dict[str, str], why: str
) -> None:
    file = {"edge.inter.broker.config.file": shown(tmp_path, protocol)}
    with pytest.raises(ConfigurationError, match=re.escape(why)):
        link_security(BrokerConfig(file | settings), LOGIN)


def test_what_they_take_is_shown(tmp_path: Path) -> None:
    file = {"edge.inter.broker.config.file": shown(tmp_path, "SASL_SSL")}
    found = link_security(BrokerConfig(file | {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512"}), LOGIN)
    assert (found.protocol, found.mechanism, found.username) == ("SASL_SSL", "SCRAM-SHA-512", "b")


def test_the_cas_that_other_brokers_are_believed_by_are_known_by_their_key(tmp_path: Path) -> None:
    path = shown(tmp_path, "SASL_SSL")
    config = BrokerConfig({"edge.inter.broker.config.file": path})
    assert peers_ca(config, link_security(config, LOGIN)) is None, "the system's"
    (tmp_path / "ca.pem").touch()
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"ssl.truststore.location={tmp_path}/ca.pem\n")
    named = f"{path}: ssl.truststore.location"
    assert peers_ca(config, link_security(config, LOGIN)) == (f"{tmp_path}/ca.pem", named)


def test_the_listener_for_brokers_is_found_by_its_name_or_its_protocol() -> None:
    listeners = [OPEN, LOGIN]
    assert inter_broker_listener(BrokerConfig(), listeners) is OPEN
    assert inter_broker_listener(BrokerConfig({"inter.broker.listener.name": "BROKERS"}), listeners) is LOGIN
    by_protocol = BrokerConfig({"security.inter.broker.protocol": "SASL_SSL"})
    assert inter_broker_listener(by_protocol, listeners) is LOGIN
    with pytest.raises(ConfigurationError, match="which 2 listeners speak"):
        inter_broker_listener(by_protocol, [LOGIN, LOGIN._replace(name="CLIENT")])
    both = BrokerConfig({"security.inter.broker.protocol": "SASL_SSL", "inter.broker.listener.name": "BROKERS"})
    with pytest.raises(ConfigurationError, match="are both set"):
        inter_broker_listener(both, listeners)
