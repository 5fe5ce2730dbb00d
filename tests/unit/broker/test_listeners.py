"""Several listeners by Kafka's keys: what is refused, and that each client is told the address it came in by."""

from __future__ import annotations

import pytest

from drupelet.errors import ConfigurationError
from edge_broker.cli import main
from edge_broker.configuration.config import Endpoint, read_config
from edge_broker.configuration.listeners import Listener, listeners_text, read_listeners
from edge_broker.protocol.api import DESCRIBE_CLUSTER, FIND_COORDINATOR, METADATA
from edge_broker.protocol.messages.describe_cluster import DescribeClusterRequest
from edge_broker.protocol.messages.find_coordinator import FindCoordinatorRequest
from edge_broker.protocol.messages.metadata import MetadataRequest
from edge_broker.testing.site import Site

MAP = "listener.security.protocol.map=LAN:PLAINTEXT,HERE:PLAINTEXT"


def listeners(*settings: str, listen: Endpoint | None = None, advertise: Endpoint | None = None) -> list[Listener]:
    return list(read_listeners(read_config(None, "", settings), listen, advertise))


def refused(*settings: str, listen: Endpoint | None = None, advertise: Endpoint | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        listeners(*settings, listen=listen, advertise=advertise)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_short_form_is_one_listener_without_encryption() -> None:
    (one,) = listeners(listen=Endpoint("127.0.0.1", 0))
    assert one == ("PLAINTEXT", "PLAINTEXT", ("127.0.0.1", 0), ("127.0.0.1", 0))
    assert one.bound(4711).advertised == ("127.0.0.1", 4711)
    (one,) = listeners(listen=Endpoint("0.0.0.0", 0), advertise=Endpoint("pi.local", 9092))
    assert one.bound(4711) == ("PLAINTEXT", "PLAINTEXT", ("0.0.0.0", 4711), ("pi.local", 9092))


def test_several_listeners_and_what_their_clients_are_told() -> None:
    here, lan = listeners(
        "listeners=here://127.0.0.1:0 , LAN://[::]:9093",
        "advertised.listeners=LAN://pi-3.local:29093,HERE://localhost:0",
        MAP,
    )
    assert here.bound(5) == ("HERE", "PLAINTEXT", ("127.0.0.1", 5), ("localhost", 5))
    assert lan == ("LAN", "PLAINTEXT", ("::", 9093), ("pi-3.local", 29093))
    assert listeners_text([here, lan]) == "HERE://127.0.0.1:0,LAN://[::]:9093"
    assert listeners_text([here, lan], advertised=True) == "HERE://localhost:0,LAN://pi-3.local:29093"


def test_one_port_for_both_versions_of_ip_is_none_twice() -> None:
    assert len(listeners("listeners=HERE://127.0.0.1:9092,LAN://[::1]:9092", MAP)) == 2


def test_a_file_may_name_them_in_a_list() -> None:
    config = read_config('listeners = ["PLAINTEXT://127.0.0.1:9092"]\n', "a.toml", [])
    assert config.text("listeners") == "PLAINTEXT://127.0.0.1:9092"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["listeners=127.0.0.1:9092"], "NAME://HOST:PORT"),
        (["listeners=PLAINTEXT://h:70000"], "NAME://HOST:PORT"),
        (["listeners=A.B://h:1"], "letters, digits"),
        (["listeners=PLAINTEXT://h:1,plaintext://h:2"], "listeners names PLAINTEXT 2 times"),
        (["listeners=HERE://h:1,LAN://h:1", MAP], "HERE and LAN both have port 1"),
        (["listeners=HERE://127.0.0.1:1,LAN://10.0.0.1:1", MAP], "both have port 1"),
        (["listeners=LAN://h:1"], "add such as LAN:SSL to listener.security.protocol.map"),
        (["listeners=LAN://h:1", "listener.security.protocol.map=LAN:TLS"], "'LAN:TLS'"),
        (["listeners=PLAINTEXT://h:1", "advertised.listeners=SSL://h:1"], "advertised.listeners names SSL"),
        (["listeners=HERE://h:1,LAN://h:2", "advertised.listeners=LAN://h:2", MAP], "leaves out HERE"),
        (["listeners=PLAINTEXT://0.0.0.0:1"], "name it in advertised.listeners"),
        (["listeners=PLAINTEXT://:1"], "name it in advertised.listeners"),
        (["listeners=PLAINTEXT://h:1", "advertised.listeners=PLAINTEXT://[::]:1"], "cannot be told [::]:1"),
        (["listeners=PLAINTEXT://h:1", "listener.name.lan.sasl.enabled.mechanisms=PLAIN"], "listener LAN"),
        (["listener.name.lan.num.partitions=1"], "unknown configuration key"),
        (["listener.name.lan.sasl.enabled.mechanisms=GSSAPI"], "allowed: PLAIN"),
        ([], "add --listen HOST:PORT"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(settings: list[str], said: str) -> None:
    assert said in refused(*settings)


def test_the_short_form_and_the_keys_are_not_mixed() -> None:
    here = Endpoint("127.0.0.1", 1)
    assert "--listen and the key listeners" in refused("listeners=PLAINTEXT://h:1", listen=here)
    assert "set advertised.listeners" in refused("listeners=PLAINTEXT://h:1", advertise=here)
    assert "--advertise HOST:PORT" in refused("advertised.listeners=PLAINTEXT://h:1", listen=here)
    assert "--advertise HOST:PORT" in refused(listen=Endpoint("::", 1))


def test_a_listener_may_be_told_something_of_its_own() -> None:
    config = read_config(
        None, "", ["listener.name.lan.sasl.enabled.mechanisms=PLAIN", "connections.max.reauth.ms=5000"]
    )
    assert config.of_listener("LAN", "sasl.enabled.mechanisms") == "PLAIN"
    assert config.of_listener("HERE", "sasl.enabled.mechanisms") == "SCRAM-SHA-512,SCRAM-SHA-256"
    assert config.of_listener("LAN", "connections.max.reauth.ms") == "5000"


def test_a_key_of_one_mechanism_belongs_behind_its_listener() -> None:
    sound = "listener.name.lan.scram-sha-512.connections.max.reauth.ms"
    assert (
        read_config(None, "", [f"{sound}=1"]).own_of_listener("LAN", "scram-sha-512.connections.max.reauth.ms") == "1"
    )
    for key in ("scram-sha-512.connections.max.reauth.ms", "listener.name.lan.scram-sha-512.ssl.client.auth"):
        with pytest.raises(ConfigurationError, match="unknown configuration key"):
            read_config(None, "", [f"{key}=1"])
    with pytest.raises(ConfigurationError, match="write a whole number"):
        read_config(None, "", [f"{sound}=soon"])


def test_the_command_ends_with_2_and_the_sentence(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--data-dir", str(tmp_path / "d"), "--set", "listeners=LAN://h:1"]) == 2
    assert "listener LAN has no protocol" in capsys.readouterr().err


def test_a_client_is_told_the_address_of_the_listener_that_it_came_in_by() -> None:
    site = Site()
    here, lan = listeners("listeners=HERE://127.0.0.1:9092,LAN://10.0.0.7:9093", MAP)
    site.broker.listeners = {one.name: one for one in (here, lan)}
    for listener in (here, lan):
        client = site.client(listener.name)
        client.send(METADATA, MetadataRequest(topics=[]))
        client.send(DESCRIBE_CLUSTER, DescribeClusterRequest())
        client.send(FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=["g"]))
        site.run_until_idle()
        metadata, cluster, found = client.answers()
        (broker,), (node,), (coordinator,) = metadata.brokers, cluster.brokers, found.coordinators
        assert {(one.host, one.port) for one in (broker, node, coordinator)} == {listener.advertised}
