"""Mirrors that face each other, rings and stars: nothing comes back to where it was.

Real brokers and mirrors as processes. Each test waits until all that may arrive has arrived, and then until both ends
have stayed the same for a while.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support import runtimes
from tests.support.listeners import listener_settings
from tests.support.mirror_loops import found, mirrors, topics, wait_still, write_down
from tests.support.mirror_road import (
    FAST,
    EdgeMirror,
    bounds,
    create_topic,
    delete_topic,
    numbers,
    partition_count,
    produce,
    read_all,
)
from tests.support.processes import ApacheKafka, EdgeBroker, free_port, wait_until
from tests.support.waiting import CALL_S

UNSENT = "records that others write into it are not sent either"
GOLDEN = Path(__file__).parents[1] / "golden"


def command(source, target, name, *more):
    words = [runtimes.console_script("edge-mirror"), name, "--source", source, "--target", target, "--topics", "t"]
    return subprocess.run([*words, *more], capture_output=True, text=True, timeout=CALL_S * 3, check=False)


def audited(source, target, directory, *more, topics="t"):
    """Audit what the mirror in a directory has done; return the accounts of the source's ends, by topic."""
    words = [runtimes.console_script("edge-mirror"), "audit", "--json", "--source", source]
    words += [
        *(["--target", target] if target else []),
        "--topics",
        topics,
        "--config",
        directory / "mirror.toml",
        *more,
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=CALL_S * 3, check=False)
    assert done.returncode == 0, done
    accounts = defaultdict(Counter)
    for one in json.loads(done.stdout)["partitions"]:
        accounts[one["topic"]].update(one["source"])
    return accounts


def assert_refused(source, target, mirror):
    for name, *more in (["run"], ["plan"], ["check", "--connect"]):
        done = command(source, target, name, *more)
        assert done.returncode == 1, (name, done)
        assert "cluster id" in done.stdout + done.stderr, (name, done)
        assert "empty data directory" in done.stdout + done.stderr, (name, done)
    assert not mirror.log_path.exists()


@pytest.fixture
def broker_class(request):
    return {"edge": EdgeBroker, "kafka": ApacheKafka}[request.config.getoption("--broker")]


def test_one_cluster_by_two_names_is_refused(tmp_path, broker_class):
    with broker_class(tmp_path, name="one") as broker:
        create_topic(broker.bootstrap, "t", 1)
        produce(broker.bootstrap, "t", 0, 20)
        other = broker.bootstrap.replace("127.0.0.1", "localhost")
        assert_refused(broker.bootstrap, other, EdgeMirror(tmp_path / "m", broker.bootstrap, other, settings=FAST))
        assert bounds(broker.bootstrap, "t")[1] == 20


def test_a_cloned_card_is_refused_until_it_has_an_empty_data_directory(tmp_path):
    with EdgeBroker(tmp_path, name="one") as first:
        create_topic(first.bootstrap, "t", 1)
        produce(first.bootstrap, "t", 0, 20)
    shutil.copytree(first.data_dir, tmp_path / "clone")
    with first, EdgeBroker(tmp_path, name="two", data_dir=tmp_path / "clone") as second:
        sides = first.bootstrap, second.bootstrap
        assert_refused(*sides, EdgeMirror(tmp_path / "m", *sides, settings=FAST))
        second.stop()
        shutil.rmtree(tmp_path / "clone")
        second.start()
        assert command(*sides, "check", "--connect").returncode == 0


def with_two_listeners(tmp_path, broker_class):
    """Return a broker, and the address of its second listener."""
    if broker_class is ApacheKafka:
        broker = ApacheKafka(tmp_path, name="one", listeners={"OTHER": "PLAINTEXT"})
        return broker, f"127.0.0.1:{broker.ports['OTHER']}"
    ports = {"CLIENT": free_port(), "OTHER": free_port()}
    settings = listener_settings({"CLIENT": "PLAINTEXT", "OTHER": "PLAINTEXT"}, ports)
    return EdgeBroker(tmp_path, name="one", port=ports["CLIENT"], settings=settings), f"127.0.0.1:{ports['OTHER']}"


def test_one_cluster_by_a_second_listener_is_refused(tmp_path, broker_class):
    broker, other = with_two_listeners(tmp_path, broker_class)
    with broker:
        create_topic(broker.bootstrap, "t", 1)
        produce(broker.bootstrap, "t", 0, 20)
        assert_refused(broker.bootstrap, other, EdgeMirror(tmp_path / "m", broker.bootstrap, other, settings=FAST))
        assert bounds(broker.bootstrap, "t")[1] == 20


def test_a_cloned_card_with_a_node_id_of_its_own_is_refused(tmp_path):
    with EdgeBroker(tmp_path, name="one") as first:
        create_topic(first.bootstrap, "t", 1)
    shutil.copytree(first.data_dir, tmp_path / "clone")
    (tmp_path / "clone" / "broker-id").unlink()  # as the refusal of the other id advises
    clone = EdgeBroker(tmp_path, name="two", data_dir=tmp_path / "clone", settings={"broker.id": 2})
    with first, clone as second:
        sides = first.bootstrap, second.bootstrap
        assert_refused(*sides, EdgeMirror(tmp_path / "m", *sides, settings=FAST))


def test_a_source_whose_servers_are_of_both_clusters_ends_once_it_is_the_target(tmp_path):
    """As long as the first server answers, all is well; the other one is the target by another name."""
    with EdgeBroker(tmp_path, name="one") as first, EdgeBroker(tmp_path, name="two") as second:
        for broker in (first, second):
            create_topic(broker.bootstrap, "t", 1)
        produce(first.bootstrap, "t", 0, 20)
        target = second.bootstrap.replace("127.0.0.1", "localhost")
        source = f"{first.bootstrap},{second.bootstrap}"
        mirror = EdgeMirror(tmp_path / "m", source, target, topics="t", settings={**FAST, "ledger": False})
        mirror.start()
        try:
            wait_until(lambda: found(second.bootstrap, "t") == list(range(20)), 20, "t is mirrored")
            first.stop()
            wait_until(lambda: not mirror.running, 30, "the mirror ends")
            assert "cluster id" in mirror.log_path.read_text()
        finally:
            mirror.kill()
        assert found(second.bootstrap, "t") == list(range(20))


@pytest.fixture
def a(tmp_path, broker_class):
    with broker_class(tmp_path, name="a") as broker:
        yield broker.bootstrap


@pytest.fixture
def b(tmp_path, broker_class):
    with broker_class(tmp_path, name="b") as broker:
        yield broker.bootstrap


@pytest.fixture
def c(tmp_path, broker_class):
    with broker_class(tmp_path, name="c") as broker:
        yield broker.bootstrap


SITES = {"up": "up", "down": "down"}


def both(a, b):
    return {"up": (a, b), "down": (b, a)}


def test_identity_both_ways_carries_each_record_once(a, b, tmp_path):
    for bootstrap in (a, b):
        create_topic(bootstrap, "t", 1)
    produce(a, "t", 0, 20)
    produce(b, "t", 100, 110)
    with mirrors(tmp_path, both(a, b), topics="t") as running:
        wait_still([(a, "t", b, "t"), (b, "t", a, "t")])
        assert "t: sent without the records that came from the target" in running["down"].get("/health")[1]
        assert all(mirror.get("/health")[0] == 200 for mirror in running.values())
        passed_over = running["down"].metric("edge_mirror_passed_over_records_total")
        assert passed_over == running["up"].metric("edge_mirror_records_total") > 20
    assert found(a, "t") == found(b, "t") == [*range(20), *range(100, 110)]
    with mirrors(tmp_path, both(a, b), topics="t"):  # and after a restart
        produce(a, "t", 20, 25)
        wait_still([(a, "t", b, "t"), (b, "t", a, "t")])
    assert found(a, "t") == found(b, "t") == [*range(25), *range(100, 110)]
    accounts = [audited(a, b, tmp_path / "up")["t"], audited(b, a, tmp_path / "down")["t"]]
    assert [one["from_target"] for one in accounts] == [one["mirrored"] for one in reversed(accounts)]
    assert all(one["mirrored"] and not one["pending"] for one in accounts)


def test_digests_of_an_end_pass_over_what_came_from_the_target(a, b, tmp_path):
    """The source's digests depend on the target's cluster id; a target that is away is one sentence."""
    for bootstrap in (a, b):
        create_topic(bootstrap, "t", 1)
    produce(a, "t", 0, 20)
    with mirrors(tmp_path, both(a, b), {"policy": "identity"}, topics="t", site=SITES):
        wait_still([(a, "t", b, "t"), (b, "t", a, "t")])
    named = "--site", "down", "--policy", "identity"
    told = command(b, a, "audit", *named, "--digests-of", "source", "--each")
    assert told.returncode == 0, told
    (tmp_path / "digests").write_text(told.stdout)
    account = audited(b, a, tmp_path / "down", *named, "--source-digests", tmp_path / "digests")["t"]
    assert account == audited(b, a, tmp_path / "down", *named)["t"]
    assert account["from_target"] > 20
    (tmp_path / "digests").write_text(command(b, a, "audit", *named, "--digests-of", "target", "--each").stdout)
    account = audited(b, None, tmp_path / "down", *named, "--target-digests", tmp_path / "digests")["t"]
    assert account["from_target"] > 20
    nobody = command(b, f"127.0.0.1:{free_port()}", "audit", *named, "--digests-of", "source")
    assert "nothing tells which of them came from the target" in nobody.stdout


def test_site_names_both_ways_make_no_further_topics(a, b, tmp_path):
    create_topic(a, "t", 2)
    create_topic(b, "u", 1)
    produce(a, "t", 0, 20)
    produce(b, "u", 0, 10)
    with mirrors(tmp_path, both(a, b), topics=".*", site={"up": "a", "down": "b"}) as running:
        wait_still([(a, "t", b, "a.t"), (b, "u", a, "b.u")])
        wait_until(lambda: "a.t: passed over" in running["down"].get("/health")[1], 20, "a.t is named")
        produce(b, "a.t", 100, 105, partition=1)  # by hand, into the mirror's own
        wait_still([(a, "t", b, "a.t")])
        assert UNSENT in running["down"].get("/health")[1]
    assert topics(a) == ["b.u", "t"]
    assert topics(b) == ["a.t", "u"]
    assert found(b, "a.t") == list(range(20))
    assert found(a, "b.u") == list(range(10))
    told = audited(b, a, tmp_path / "down", "--site", "b", topics=".*")
    assert told["a.t"]["from_target"] == told["a.t"]["end"] - told["a.t"]["control"] - 5 > 0
    assert told["a.t"]["pending"] == 5  # those by hand
    planned = command(b, a, "plan", "--topics", ".*", "--site", "b")
    assert planned.returncode == 0
    assert "passed over" in planned.stderr
    assert UNSENT in planned.stderr
    delete_topic(b, "__edge-mirror-a-state")  # no position of a.t names its writer: none of it is known to be lost
    account = audited(b, a, tmp_path / "down", "--site", "b", topics=".*")["a.t"]
    assert (account["lost"], account["pending"]) == (0, account["end"] - account["control"])


def create_ledger(bootstrap):
    """An edge broker has made it already."""
    if not partition_count(bootstrap, "__edge_ledger"):
        create_topic(bootstrap, "__edge_ledger", 1)


def test_the_ledgers_entries_cross_once_though_data_goes_up_and_commands_down(a, b, tmp_path):
    create_topic(a, "data", 1)
    create_topic(b, "commands", 1)
    for bootstrap, number in ((a, 1), (b, 2)):
        create_ledger(bootstrap)
        write_down(bootstrap, number)
    produce(a, "data", 0, 20)
    produce(b, "commands", 0, 10)
    way = "__edge_ledger"
    with mirrors(tmp_path, both(a, b), topics={"up": "data", "down": "commands"}) as running:
        wait_still([(a, "data", b, "data"), (b, "commands", a, "commands"), (a, way, b, way), (b, way, a, way)])
        assert [mirror.get("/health")[0] for mirror in running.values()] == [200, 200]
    assert found(a, way) == found(b, way) == [1, 2]
    assert found(b, "data") == list(range(20))
    assert found(a, "commands") == list(range(10))


def test_a_users_own_topic_that_looks_mirrored_still_goes(a, b, tmp_path):
    create_topic(a, "t", 1)
    create_topic(b, "a.own", 1)
    create_topic(b, "a.t", 1)  # the user's too; the mirror from a writes into it as well
    produce(a, "t", 0, 20)
    produce(b, "a.own", 100, 110)
    produce(b, "a.t", 200, 210)
    with mirrors(tmp_path, both(a, b), topics=".*", site={"up": "a", "down": "b"}):
        wait_still([(a, "t", b, "a.t"), (b, "a.own", a, "b.a.own"), (b, "a.t", a, "b.a.t")])
    assert topics(a) == ["b.a.own", "b.a.t", "t"]
    assert topics(b) == ["a.own", "a.t"]
    assert found(a, "b.a.own") == list(range(100, 110))
    assert found(a, "b.a.t") == list(range(200, 210))
    assert found(b, "a.t") == [*range(20), *range(200, 210)]


def test_a_star_into_one_topic_with_commands_down_is_carried_once(a, b, c, tmp_path):
    """`c` is the centre of two sites; readings go up into one topic, commands down, ledgers both ways."""
    for bootstrap in (a, b, c):
        create_topic(bootstrap, "readings", 1)
        create_topic(bootstrap, "commands", 1)
    produce(a, "readings", 0, 20)
    produce(b, "readings", 100, 120)
    produce(c, "commands", 0, 10)
    for bootstrap, number in ((a, 1), (b, 2)):
        create_ledger(bootstrap)
        write_down(bootstrap, number)
    ways = {"a-up": (a, c), "b-up": (b, c), "a-down": (c, a), "b-down": (c, b)}
    selected = {name: "readings" if name.endswith("up") else "commands" for name in ways}
    sites = {name: name for name in ways}
    with mirrors(tmp_path, ways, {"policy": "identity"}, topics=selected, site=sites) as running:
        wait_still(
            [
                *((site, "readings", c, "readings") for site in (a, b)),
                *((c, "commands", site, "commands") for site in (a, b)),
                *((site, "__edge_ledger", c, "__edge_ledger") for site in (a, b)),
                (a, "__edge_ledger", b, "__edge_ledger"),
                (b, "__edge_ledger", a, "__edge_ledger"),
            ]
        )
        assert {name: mirror.get("/health")[0] for name, mirror in running.items()} == dict.fromkeys(ways, 200)
    assert found(c, "readings") == [*range(20), *range(100, 120)]
    assert found(a, "readings") == list(range(20))
    assert found(a, "commands") == found(b, "commands") == list(range(10))
    assert found(a, "__edge_ledger") == found(b, "__edge_ledger") == found(c, "__edge_ledger") == [1, 2]


def test_a_ring_of_names_ends_where_it_began(a, b, c, tmp_path):
    create_topic(a, "t", 1)
    produce(a, "t", 0, 20)
    ways = {"ab": (a, b), "bc": (b, c), "ca": (c, a)}
    with mirrors(tmp_path, ways, topics=".*", site={"ab": "a", "bc": "b", "ca": "c"}) as running:
        wait_still([(a, "t", b, "a.t"), (b, "a.t", c, "b.a.t")])
        wait_until(lambda: "b.a.t: passed over" in running["ca"].get("/health")[1], 20, "b.a.t is named")
    assert (topics(a), topics(b), topics(c)) == (["t"], ["a.t"], ["b.a.t"])


def test_a_ring_merged_by_identity_is_refused_by_name(a, b, c, tmp_path):
    for bootstrap in (a, b, c):
        create_topic(bootstrap, "t", 1)
    produce(a, "t", 0, 20)
    produce(b, "t", 100, 120)
    with mirrors(tmp_path, {"ab": (a, b), "bc": (b, c)}, {"ledger": False}, topics="t"):
        wait_still([(a, "t", b, "t"), (b, "t", c, "t")])
        with mirrors(tmp_path, {"ca": (c, a)}, {"ledger": False}, topics="t") as running:
            wait_until(lambda: "t: is refused" in running["ca"].get("/health")[1], 20, "t is refused")
            wait_still([(a, "t", b, "t"), (b, "t", c, "t")])
    assert found(a, "t") == list(range(20))
    assert found(c, "t") == [*range(20), *range(100, 120)]
    for name, *more in (["plan"], ["check", "--connect"]):
        done = command(c, a, name, "--config", tmp_path / "ca" / "mirror.toml", *more)
        assert done.returncode == 1, done
        assert "t is refused" in done.stdout + done.stderr


def test_a_deleted_state_topic_makes_no_loop(a, b, tmp_path):
    for bootstrap in (a, b):
        create_topic(bootstrap, "t", 1)
    produce(a, "t", 0, 20)
    with mirrors(tmp_path, both(a, b), {"ledger": False, "policy": "identity"}, topics="t", site=SITES):
        wait_still([(a, "t", b, "t"), (b, "t", a, "t")])
    delete_topic(b, "__edge-mirror-up-state")
    with mirrors(tmp_path, both(a, b), {"ledger": False, "policy": "identity"}, topics="t", site=SITES):
        wait_still([(a, "t", b, "t"), (b, "t", a, "t")])
    assert found(a, "t") == found(b, "t") == list(range(20))


def test_a_mirror_that_lost_its_state_and_starts_first_has_no_topic_refused(a, b, tmp_path):
    """Its head names no writer of what lies between the position of `down` and a fence's marker; `down` knows it."""
    for bootstrap in (a, b):
        create_topic(bootstrap, "t", 1)
    produce(a, "t", 0, 20)
    settings, there_and_back = {"ledger": False, "policy": "identity"}, [(a, "t", b, "t"), (b, "t", a, "t")]
    state_topic = "__edge-mirror-up-state"
    with mirrors(tmp_path, both(a, b), settings, topics="t", site=SITES):
        wait_still(there_and_back)
    with mirrors(tmp_path, {"up": (a, b)}, settings, topics="t", site=SITES):
        produce(a, "t", 20, 25)
        wait_until(lambda: found(b, "t") == list(range(25)), 20, "what down does not read yet is there")
    delete_topic(b, state_topic)
    with mirrors(tmp_path, {"up": (a, b)}, settings, topics="t", site=SITES):
        wait_until(lambda: partition_count(b, state_topic), 20, "its state topic is made")
        wait_until(lambda: any(one.key == b"head:t:0" for one in read_all(b, state_topic)), 20, "its head is stored")
        with mirrors(tmp_path, {"down": (b, a)}, settings, topics="t", site=SITES) as running:
            wait_still(there_and_back)
            assert running["down"].get("/health")[0] == 200
    assert found(a, "t") == found(b, "t") == list(range(25))


def test_what_was_passed_over_is_known_after_its_state_topic_was_deleted(a, b, tmp_path):
    """By what `down` has noted with its position: for its audit, and for itself at the next start."""
    for bootstrap in (a, b):
        create_topic(bootstrap, "t", 1)
    produce(a, "t", 0, 20)
    produce(b, "t", 100, 110)
    there, back = (a, "t", b, "t"), (b, "t", a, "down.t")
    up, down = {"policy": "identity", "ledger": False}, {"policy": "prefix", "ledger": False}
    with (
        mirrors(tmp_path, {"up": (a, b)}, up, topics="t", site=SITES),
        mirrors(tmp_path, {"down": (b, a)}, down, topics="t", site=SITES),
    ):
        wait_still([there, back])
    assert found(a, "down.t") == list(range(100, 110))
    account = audited(b, a, tmp_path / "down", "--site", "down")["t"]
    assert account["from_target"] > 20
    delete_topic(b, "__edge-mirror-up-state")
    assert audited(b, a, tmp_path / "down", "--site", "down")["t"] == account
    with mirrors(tmp_path, {"down": (b, a)}, down, topics="t", site=SITES):
        produce(b, "t", 110, 115)
        wait_still([back])
    assert found(a, "down.t") == list(range(100, 115))


def leave_as_the_last_release(bootstrap, state_topic):
    """Write a mirror's heads once more without their origins, as the release before left them."""
    golden = json.loads((GOLDEN / "mirror_state_752fe42.json").read_text())
    keys = json.loads(golden[-1][1]).keys()
    producer = Producer({"bootstrap.servers": bootstrap})
    for record in read_all(bootstrap, state_topic):
        if record.key.startswith(b"head:"):
            head = {key: value for key, value in json.loads(record.value).items() if key in keys}
            assert head.keys() == keys
            producer.produce(state_topic, json.dumps(head), record.key)
    assert producer.flush(CALL_S) == 0


def test_what_a_mirror_of_the_last_release_left_is_passed_over(a, b, tmp_path):
    for bootstrap in (a, b):
        create_topic(bootstrap, "t", 1)
    produce(a, "t", 0, 20)
    options = {"topics": "t", "site": SITES}
    settings = {"ledger": False, "policy": "identity"}
    with mirrors(tmp_path, {"up": (a, b)}, settings, **options):
        wait_still([(a, "t", b, "t")])
    leave_as_the_last_release(b, "__edge-mirror-up-state")
    with mirrors(tmp_path, {"down": (b, a)}, settings, **options):
        wait_still([(b, "t", a, "t")])
    assert found(a, "t") == list(range(20))
    with mirrors(tmp_path, both(a, b), settings, **options):  # up is of this release again
        wait_still([(a, "t", b, "t"), (b, "t", a, "t")])
    assert found(a, "t") == found(b, "t") == list(range(20))


@pytest.mark.parametrize("restarts", [False, True])
def test_a_state_topic_that_is_deleted_while_mirrors_run_makes_no_loop(a, b, tmp_path, restarts):
    """The mirror that keeps it goes on, also where a new producer begins; the other one knows what it has read."""
    for bootstrap in (a, b):
        create_topic(bootstrap, "t", 1)
    produce(a, "t", 0, 20)
    there_and_back = [(a, "t", b, "t"), (b, "t", a, "t")]
    with mirrors(tmp_path, both(a, b), {"ledger": False, "policy": "identity"}, topics="t", site=SITES) as running:
        wait_still(there_and_back)
        delete_topic(b, "__edge-mirror-up-state")
        produce(a, "t", 20, 25)
        produce(b, "t", 100, 105)
        wait_still(there_and_back)
        if restarts:
            running["up"].stop()
            running["up"].start()
            produce(a, "t", 25, 30)
            wait_still(there_and_back)
    expected = [*range(30 if restarts else 25), *range(100, 105)]
    assert found(a, "t") == found(b, "t") == expected


def test_a_topic_that_is_deleted_and_made_again_goes_if_it_is_a_users(a, b, tmp_path):
    create_topic(a, "t", 1)
    produce(a, "t", 0, 20)
    with mirrors(tmp_path, both(a, b), {"ledger": False}, topics=".*", site={"up": "a", "down": "b"}) as running:
        wait_still([(a, "t", b, "a.t")])
        wait_until(lambda: "a.t: passed over" in running["down"].get("/health")[1], 20, "a.t is named")
        running["up"].stop()
        delete_topic(b, "a.t")
        create_topic(b, "a.t", 1)
        produce(b, "a.t", 100, 110)
        wait_still([(b, "a.t", a, "b.a.t")])
        assert found(a, "b.a.t") == list(range(100, 110))


def test_a_state_topic_that_is_deleted_during_a_run_is_named_and_written_again_whole(a, b, tmp_path):
    """Else the next start would find heads without the steps that they name."""
    state_topic = "__edge-mirror-up-state"

    def in_t():
        return sorted(number for partition in range(2) for number in numbers(read_all(b, "up.t", partition)))

    create_topic(a, "t", 2)
    for number in range(2):
        produce(a, "t", 10 * number, 10 * number + 10, partition=number)
    with mirrors(tmp_path, {"up": (a, b)}, {"ledger": False}, topics="t|u", site="up") as running:
        wait_until(lambda: in_t() == list(range(20)), 20, "t is mirrored")
        delete_topic(b, state_topic)
        create_topic(a, "u", 1)
        produce(a, "u", 0, 5)
        wait_until(lambda: found(b, "up.u") == list(range(5)), 20, "u is mirrored")
        produce(a, "t", 20, 25, partition=1)
        wait_until(lambda: in_t() == list(range(25)), 20, "t is mirrored on")
        wait_until(lambda: running["up"].get("/health")[0] == 200, 20, "its group, too, is well")
        assert f"{state_topic} was deleted" in running["up"].get("/health")[1]
        assert "state_topic_deleted" in running["up"].log_path.read_text()
        keys = {record.key for record in read_all(b, state_topic)}
        assert {b"head:t:0", b"head:t:1", b"head:u:0", b"steps:t:0:0", b"steps:t:1:0"} <= keys
        running["up"].stop()
        running["up"].start()
        produce(a, "t", 25, 30)
        wait_until(lambda: in_t() == list(range(30)), 20, "t is mirrored after a restart")


def test_a_state_topic_of_another_mirror_that_is_deleted_is_named(a, b, tmp_path):
    for bootstrap in (a, b):
        create_topic(bootstrap, "t", 1)
    produce(a, "t", 0, 20)
    with mirrors(tmp_path, both(a, b), {"ledger": False, "policy": "identity"}, topics="t", site=SITES) as running:
        wait_still([(a, "t", b, "t"), (b, "t", a, "t")])
        running["up"].stop()
        delete_topic(b, "__edge-mirror-up-state")
        wait_until(lambda: "__edge-mirror-up-state was deleted" in running["down"].get("/health")[1], 20, "it is named")
        assert "state_topic_deleted" in running["down"].log_path.read_text()
        running["up"].start()
        wait_still([(a, "t", b, "t"), (b, "t", a, "t")])
        wait_until(lambda: "was deleted" not in running["down"].get("/health")[1], 20, "it is there again")
    assert found(a, "t") == found(b, "t") == list(range(20))
