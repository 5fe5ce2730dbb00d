"""Mirrors that face each other, of which each may not see what the other one keeps: nothing loops, and it is said.

At each broker the source's user logs in, and an ACL takes from it what a test says; the target's user may do all.
"""

from __future__ import annotations

import subprocess

import pytest
from confluent_kafka import Producer

from edge_broker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support import runtimes
from tests.support.login_client import LoginClient
from tests.support.mirror_loops import found, mirrors, wait_still
from tests.support.mirror_road import create_topic, delete_topic, produce
from tests.support.processes import wait_until
from tests.support.secured_edge import SecuredEdge
from tests.support.secured_kafka import PASSWORD, USER
from tests.support.waiting import CALL_S

SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
}
TOPIC_AUTHORIZATION_FAILED = 29
UNSEEN = "may not see the state topics of other mirrors"


def acl(broker, action, *words):
    command = [runtimes.console_script("edge-broker"), "acl", action, "--data-dir", broker.data_dir, *words]
    subprocess.run(command, capture_output=True, text=True, check=True, timeout=CALL_S)


def hide(broker):
    """Take the right, and wait until that holds: the broker rereads its file within a second."""
    acl(broker, "add", "--deny", f"User:{USER}", "--operation", "describe", "--topic", "__edge-mirror-", "--prefixed")
    wait_until(lambda: is_hidden(broker), CALL_S, "the ACL holds")


def is_hidden(broker):
    topics = [MetadataRequestTopic(name="__edge-mirror-of-nobody-state")]
    wanted = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    with LoginClient(broker.login_port) as client:
        client.log_in("SCRAM-SHA-512", USER, PASSWORD)
        return client.ask(3, 4, wanted).topics[0].error_code == TOPIC_AUTHORIZATION_FAILED


def show(broker):
    acl(broker, "remove", "--principal", f"User:{USER}")


@pytest.fixture
def ends(tmp_path):
    with SecuredEdge(tmp_path, name="a", settings=SECURED) as a, SecuredEdge(tmp_path, name="b", settings=SECURED) as b:
        yield a, b


@pytest.fixture
def login(tmp_path):
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    return {
        "source_security_protocol": "SASL_PLAINTEXT",
        "source_sasl_username": USER,
        "source_sasl_password_file": str(password),
        "ledger": False,
    }


def produce_with_id(bootstrap, first, end):
    """Produce numbers to `t` as a producer with an id, as mirrors are."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(first, end):
        producer.produce("t", b"%d of the test" % number, b"k")
    assert producer.flush(CALL_S) == 0


def ways(a, b):
    return {"up": (a.login, b.bootstrap), "down": (b.login, a.bootstrap)}


def command(source, target, directory, *words):
    """Run a command as the mirror in a directory would."""
    whole = [runtimes.console_script("edge-mirror"), *words, "--source", source, "--target", target, "--topics", "t"]
    whole += ["--config", directory / "mirror.toml"]
    return subprocess.run(whole, capture_output=True, text=True, timeout=CALL_S * 3, check=False)


def test_mirrors_that_see_no_state_topics_refuse_new_topics_until_they_do(ends, login, tmp_path):
    a, b = ends
    for broker in ends:
        create_topic(broker.bootstrap, "t", 1)
        hide(broker)
    produce(a.bootstrap, "t", 0, 20)
    produce(b.bootstrap, "t", 100, 110)
    with mirrors(tmp_path, ways(a, b), login, topics="t") as running:
        for mirror in running.values():
            wait_until(lambda told=mirror: UNSEEN in told.get("/health")[1], 20, "the mirror says what it may not see")
            assert mirror.get("/health")[0] == 503
        for words in (["plan"], ["check", "--connect"]):
            done = command(a.login, b.bootstrap, tmp_path / "up", *words)
            assert done.returncode == 1, done
            assert UNSEEN in done.stdout + done.stderr
        assert found(a.bootstrap, "t") == list(range(20))
        assert found(b.bootstrap, "t") == list(range(100, 110))
        for broker in ends:
            show(broker)
        wait_still([(a.bootstrap, "t", b.bootstrap, "t"), (b.bootstrap, "t", a.bootstrap, "t")])
        assert all(mirror.get("/health")[0] == 200 for mirror in running.values())
    assert found(a.bootstrap, "t") == found(b.bootstrap, "t") == [*range(20), *range(100, 110)]


def test_one_way_that_may_not_see_them_sends_the_topics_that_a_key_accepts(ends, login, tmp_path):
    a, b = ends
    for name in ("t", "u"):
        create_topic(a.bootstrap, name, 1)
    hide(a)
    for name in ("t", "u"):
        produce(a.bootstrap, name, 0, 20)
    sides, accepted = {"up": (a.login, b.bootstrap)}, {**login, "accept_unseen": "t"}
    with mirrors(tmp_path, sides, accepted, topics="t|u", site="up") as running:
        wait_until(lambda: found(b.bootstrap, "up.t") == list(range(20)), 20, "t is mirrored")
        wait_until(lambda: "u: is refused" in running["up"].get("/health")[1], 20, "u is refused")
        assert "set accept_unseen" in running["up"].get("/health")[1]
        planned = command(a.login, b.bootstrap, tmp_path / "up", "plan")
        assert planned.returncode == 0, planned  # its topics are t alone
        assert UNSEEN in planned.stderr
        assert command(a.login, b.bootstrap, tmp_path / "up", "check", "--connect").returncode == 0
    with mirrors(tmp_path, sides, accepted, topics="t", site="up") as running:  # and after a restart
        produce(a.bootstrap, "t", 20, 25)
        wait_until(lambda: found(b.bootstrap, "up.t") == list(range(25)), 20, "t is mirrored on")
        assert running["up"].get("/health")[0] == 200


def test_a_mirror_that_loses_the_right_to_see_them_stops_at_its_next_start(ends, login, tmp_path):
    a, b = ends
    for broker in ends:
        create_topic(broker.bootstrap, "t", 1)
    produce(a.bootstrap, "t", 0, 20)
    there_and_back = [(a.bootstrap, "t", b.bootstrap, "t"), (b.bootstrap, "t", a.bootstrap, "t")]
    with mirrors(tmp_path, ways(a, b), login, topics="t"):
        wait_still(there_and_back)
    for broker in ends:
        hide(broker)
    with mirrors(tmp_path, ways(a, b), login, topics="t") as running:
        for mirror in running.values():
            wait_until(lambda told=mirror: UNSEEN in told.get("/health")[1], 20, "the mirror says what it may not see")
        for broker in ends:
            show(broker)
        wait_still(there_and_back)
    assert found(a.bootstrap, "t") == found(b.bootstrap, "t") == list(range(20))


def test_a_running_mirror_that_loses_the_right_waits_with_new_producers(ends, login, tmp_path):
    a, b = ends
    for broker in ends:
        create_topic(broker.bootstrap, "t", 1)
    produce(a.bootstrap, "t", 0, 20)
    there_and_back = [(a.bootstrap, "t", b.bootstrap, "t"), (b.bootstrap, "t", a.bootstrap, "t")]
    with mirrors(tmp_path, ways(a, b), login, topics="t") as running:
        wait_still(there_and_back)
        hide(b)
        sides = b.login, a.bootstrap, tmp_path / "down"
        wait_until(lambda: UNSEEN in command(*sides, "plan").stderr, 20, "the ACL holds")
        produce_with_id(b.bootstrap, 100, 110)  # by a producer that is new to the mirror
        wait_until(lambda: "cannot be read" in running["down"].get("/health")[1], 20, "it says what it cannot read")
        assert found(a.bootstrap, "t") == list(range(20))
        show(b)
        wait_still(there_and_back)
    assert found(a.bootstrap, "t") == found(b.bootstrap, "t") == [*range(20), *range(100, 110)]


def test_one_way_with_positions_of_the_last_release_goes_on_and_says_so(ends, login, tmp_path):
    """There is no state that tells of origins, as if the release before had written it."""
    a, b = ends
    create_topic(a.bootstrap, "t", 1)
    produce(a.bootstrap, "t", 0, 20)
    with mirrors(tmp_path, {"up": (a.login, b.bootstrap)}, login, topics="t", site="up"):
        wait_still([(a.bootstrap, "t", b.bootstrap, "up.t")])
    delete_topic(b.bootstrap, "__edge-mirror-up-state")
    hide(a)
    with mirrors(tmp_path, {"up": (a.login, b.bootstrap)}, login, topics="t", site="up") as running:
        wait_still([(a.bootstrap, "t", b.bootstrap, "up.t")])
        status, told = running["up"].get("/health")
        assert status == 200
        assert UNSEEN in told
    assert found(b.bootstrap, "up.t") == list(range(20))
