"""Who may do what at which broker: users, rights and passwords, worked out from an inventory as Ansible reads it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleError

from mirror.session.transactional_ids import spare_ids
from tests.support.ansible.site_access import SECRET, made, site_access, site_of, told
from tests.support.ansible_files import ANSIBLE, load


@pytest.fixture(scope="module")
def four() -> site_access.Site:
    return site_of(ANSIBLE / "inventories/four-boards")


def test_a_boards_broker_knows_its_own_services_and_each_may_do_what_it_does(four):
    mirrored = ("readings", "readings_windows", "readings_alarms", "readings_late", "logs", "board_health")
    assert told(four.acls("pi-1")) == {
        "gateway-pi-1 TOPIC LITERAL readings: CREATE DESCRIBE WRITE",
        "gateway-pi-1 TOPIC LITERAL board_health: CREATE DESCRIBE WRITE",
        "gateway-pi-1 TOPIC LITERAL dead_letters: CREATE DESCRIBE DESCRIBE_CONFIGS WRITE",
        "gateway-pi-1 TOPIC LITERAL boot_times: CREATE DESCRIBE DESCRIBE_CONFIGS WRITE",
        "gateway-pi-1 TOPIC LITERAL __edge_ledger: CREATE DESCRIBE DESCRIBE_CONFIGS WRITE",
        "verify-pi-1 TOPIC LITERAL readings: DESCRIBE READ",
        "verify-pi-1 TOPIC LITERAL readings_windows: DESCRIBE READ",
        "verify-pi-1 TOPIC LITERAL __edge_ledger: DESCRIBE READ",
        "verify-pi-1 GROUP LITERAL edge-verify: READ",
        *(f"mirror-pi-1 TOPIC LITERAL {topic}: DESCRIBE DESCRIBE_CONFIGS READ" for topic in mirrored),
        "mirror-pi-1 TOPIC LITERAL dead_letters: DESCRIBE DESCRIBE_CONFIGS READ",
        "mirror-pi-1 TOPIC LITERAL boot_times: DESCRIBE DESCRIBE_CONFIGS READ",
        "mirror-pi-1 TOPIC LITERAL __edge_dead_letter: CREATE DESCRIBE WRITE",
        "mirror-pi-1 TOPIC LITERAL __edge_ledger: CREATE DESCRIBE DESCRIBE_CONFIGS READ WRITE",
        "mirror-pi-1 TOPIC PREFIXED __edge-mirror-: DESCRIBE READ",
        "mirror-pi-1 GROUP LITERAL edge-mirror-plant-7.pi-1: DESCRIBE READ",
    }
    assert set(four.users("pi-1")) == {"admin", "gateway-pi-1", "mirror-pi-1", "verify-pi-1"}


def test_in_the_datacenter_each_board_has_its_own_topics_and_no_other(four):
    assert told(four.acls("dc-1")) == {
        line
        for board in ("pi-1", "pi-2", "pi-3")
        for line in (
            f"mirror-{board} TOPIC PREFIXED plant-7.{board}.: ALTER CREATE DESCRIBE DESCRIBE_CONFIGS READ WRITE",
            f"mirror-{board} TOPIC LITERAL __edge-mirror-plant-7.{board}-state: CREATE DESCRIBE READ WRITE",
            *(
                f"mirror-{board} TRANSACTIONAL_ID LITERAL {one}: DESCRIBE WRITE"
                for name in [f"__edge-mirror-plant-7.{board}-state"]
                for one in [name, *spare_ids(name)]
            ),
            f"mirror-{board} CLUSTER LITERAL kafka-cluster: DESCRIBE IDEMPOTENT_WRITE",
            f"verify-{board} TOPIC PREFIXED plant-7.{board}.: DESCRIBE READ",
        )
    }


def test_sparks_jobs_read_readings_and_write_results_where_they_are(four):
    rights = {line for line in told(four.acls("pi-3")) if line.startswith("spark")}
    results = {f"spark-pi-3 TOPIC LITERAL readings_{name}" for name in ("windows", "late", "alarms")}
    assert rights == {
        "spark-pi-3 TOPIC LITERAL readings: DESCRIBE READ",
        "spark-pi-3 CLUSTER LITERAL kafka-cluster: DESCRIBE IDEMPOTENT_WRITE",
        *(f"{result}: CREATE DESCRIBE DESCRIBE_CONFIGS WRITE" for result in results),
    }
    assert not [line for line in told(four.acls("pi-1")) if line.startswith("spark")]


def test_by_tls_beyond_loopback_by_a_log_in_alone_on_the_board(four):
    on_the_board = four.client("pi-1", "gateway", "127.0.0.1:9092")
    in_the_datacenter = four.client("pi-1", "mirror", "10.77.0.21:9092")
    assert (on_the_board.protocol, on_the_board.user) == ("SASL_PLAINTEXT", "gateway-pi-1")
    assert (in_the_datacenter.protocol, in_the_datacenter.user) == ("SASL_SSL", "mirror-pi-1")
    assert in_the_datacenter.password == four.users("dc-1")["mirror-pi-1"]
    assert four.client("pi-1", "mirror", "kafka.example.org:9092") == site_access.Client("", "", "", "")


def test_passwords_are_the_same_each_time_and_tell_nothing_of_each_other(four):
    users = four.users("dc-1") | four.users("pi-1") | {"admin of pi-2": four.users("pi-2")["admin"]}
    assert len(set(users.values())) == len(users)
    assert all(len(password) == 32 and password.isalnum() for password in users.values())
    again = site_of(ANSIBLE / "inventories/four-boards")
    assert again.users("dc-1") == four.users("dc-1")
    others = site_of(ANSIBLE / "inventories/four-boards", vault_security_secret="another of 24 characters")
    assert not set(others.users("dc-1").values()) & set(four.users("dc-1").values())


def board(**variables: Any) -> dict[str, Any]:
    groups = ("broker", "gateway", "mirror")
    given = {"security_secret": SECRET, "mirror_target": "10.0.0.9:9092", "mirror_site": "pi-1", **variables}
    return {
        "all": {
            "hosts": {"pi-1": given, "dc-1": {"ansible_host": "10.0.0.9", "security_secret": SECRET}},
            "children": {
                **{group: {"hosts": {"pi-1": None}} for group in groups},
                "central": {"hosts": {"dc-1": None}, "vars": {"central_advertise": "10.0.0.9:9092"}},
            },
        }
    }


def test_a_removed_board_has_no_user_anywhere_until_its_passwords_are_new(tmp_path):
    before = made(tmp_path, board())
    assert set(before.users("dc-1")) == {"admin", "mirror-pi-1", "verify-pi-1"}
    removed = made(tmp_path, board(), "pi-1 1\n")
    assert set(removed.users("dc-1")) == {"admin"}
    with pytest.raises(AnsibleError, match="for a new board of its name set its security_rotation to 2"):
        removed.check("pi-1")
    again = made(tmp_path, board(security_rotation=2), "pi-1 1\n")
    again.check("pi-1")
    assert set(again.users("dc-1")) == {"admin", "mirror-pi-1~2", "verify-pi-1~2"}
    assert again.users("dc-1")["mirror-pi-1~2"] != before.users("dc-1")["mirror-pi-1"]


TARGET = "10.0.0.9:9092"


def given(site: site_access.Site, has: list[str] | None, present: str = "") -> tuple[str, str]:
    """The user and password that the mirror of pi-1 is given for dc-1."""
    client = site.client("pi-1", "mirror", TARGET, has, present)
    return client.user, client.password


def test_a_rotation_gives_each_service_a_user_of_its_own_with_the_same_rights(tmp_path):
    first, second = made(tmp_path, board()), made(tmp_path, board(security_rotation=2))
    rights = {line.replace("~2 ", " ") for line in told(second.acls("dc-1"))}
    assert rights == told(first.acls("dc-1"))
    assert {name.partition("~")[2] for name in second.users("dc-1")} == {"", "2"}
    assert second.owners("dc-1") == {"mirror-pi-1": ["pi-1"], "verify-pi-1": ["pi-1"]}
    assert given(second, ["mirror-pi-1~2"]) == ("mirror-pi-1~2", second.users("dc-1")["mirror-pi-1~2"])


def test_a_service_keeps_its_old_log_in_until_its_broker_has_the_new_one(tmp_path):
    """F22 from the other side: --tags mirror, or --limit, before the broker was played."""
    first, third = made(tmp_path, board()), made(tmp_path, board(security_rotation=3))
    old, new = first.users("dc-1")["mirror-pi-1"], third.users("dc-1")["mirror-pi-1~3"]
    assert given(third, ["mirror-pi-1", "scada"], old) == ("mirror-pi-1", old)
    assert given(third, ["mirror-pi-1"]) == ("mirror-pi-1", old)
    assert given(third, ["mirror-pi-1", "mirror-pi-1~3"], old) == ("mirror-pi-1~3", new)
    assert given(third, ["mirror-pi-1", "mirror-pi-1~2"], old)[0] == "mirror-pi-1~2"


def test_a_broker_that_cannot_be_asked_changes_no_log_in(tmp_path):
    first, third = made(tmp_path, board()), made(tmp_path, board(security_rotation=3))
    old, new = first.users("dc-1")["mirror-pi-1"], third.users("dc-1")["mirror-pi-1~3"]
    assert given(third, None, old) == ("mirror-pi-1", old)
    assert given(third, None) == ("mirror-pi-1~3", new)
    assert given(third, None, "a password of something else") == ("mirror-pi-1~3", new)


def test_a_broker_of_an_older_version_knows_the_unmarked_name_with_any_rotation(tmp_path):
    second = made(tmp_path, board(security_rotation=2))
    now = second.users("dc-1")["mirror-pi-1~2"]
    assert given(second, [], now) == ("mirror-pi-1", now)
    assert given(second, []) == ("mirror-pi-1~2", now)


def test_a_generation_that_remove_has_ended_is_given_to_nobody(tmp_path):
    """The broker was away when its board was removed, and still lists the stolen board's user."""
    old = made(tmp_path, board()).users("dc-1")["mirror-pi-1"]
    second = made(tmp_path, board(security_rotation=2), "pi-1 1\n")
    for has in (["mirror-pi-1"], None, []):
        assert given(second, has, old)[0] == "mirror-pi-1~2"


def two_datacenters(**variables: Any) -> dict[str, Any]:
    inventory = board(**variables)
    inventory["all"]["hosts"]["dc-2"] = {
        "ansible_host": "10.0.0.8", "security_secret": SECRET, "central_advertise": "10.0.0.8:9092"
    }  # fmt: skip
    inventory["all"]["children"]["central"]["hosts"]["dc-2"] = None
    return inventory


def test_where_the_service_of_a_user_moved(tmp_path):
    """`dc-1` held the mirror of pi-1, whose target is dc-2 now; it uses its own board's broker as before."""
    moved = made(tmp_path, two_datacenters(mirror_target="10.0.0.8:9092", security_rotation=2))
    here = [("dc-2", "mirror-pi-1~2", ["pi-1"]), ("pi-1", "mirror-pi-1~2", ["pi-1"])]
    found = moved.moved_services("dc-1", ["mirror-pi-1", "mirror-pi-1~2", "scada", "admin"])
    assert {base: sorted(places) for base, places in found.items()} == {"mirror-pi-1": here}
    assert moved.moved_services("dc-2", ["mirror-pi-1"]) == {}


def test_a_service_that_moved_out_of_the_inventory_or_left_it_is_nowhere(tmp_path):
    outside = made(tmp_path, two_datacenters(mirror_target="kafka.example.org:9092", gateway_kafka="10.0.0.8:9092"))
    assert outside.moved_services("dc-1", ["gateway-pi-9", "spark-dc-1", "verify-pi-2"]) == {}
    assert [place for place, _, _ in outside.moved_services("pi-1", ["gateway-pi-1"])["gateway-pi-1"]] == ["dc-2"]
    removed = made(tmp_path, two_datacenters(mirror_target="10.0.0.8:9092"), "pi-1 1\n")
    assert removed.moved_services("dc-1", ["mirror-pi-1"]) == {}


def mqtt(tmp_path: Path, rotation: int = 2, removed: str = "", **of_pi_2: Any) -> site_access.Site:
    """Two boards; pi-1 has a mosquitto, and pi-2 uses it where `gateway_mqtt_host` says so."""
    users = [{"name": "gateway", "password": "p", "acl": [], "rotation": rotation}]
    host = {"security_secret": SECRET, "gateway_mqtt_username": "gateway"}
    hosts = {"pi-1": host | {"mosquitto_users": users, "ansible_host": "10.0.0.1"}, "pi-2": host | of_pi_2}
    groups = {"gateway": {"hosts": dict.fromkeys(hosts)}, "mosquitto": {"hosts": {"pi-1": None}}}
    return made(tmp_path, {"all": {"hosts": hosts, "children": groups}}, removed)


def test_a_gateway_logs_in_at_mosquitto_by_the_user_of_its_rotation(tmp_path):
    site = mqtt(tmp_path, gateway_mqtt_host="10.0.0.1")
    assert [site.mqtt_server(host) for host in ("pi-1", "pi-2")] == ["pi-1", "pi-1"]
    assert [site.mqtt_user(host, "gateway") for host in ("pi-1", "pi-2")] == ["gateway~2", "gateway~2"]
    assert site.mqtt_user("pi-1", "other") == "other"
    assert site.mqtt_owners("pi-1") == ({"gateway": ["pi-1", "pi-2"]}, [])
    elsewhere = mqtt(tmp_path, gateway_mqtt_host="mqtt.example.org")
    assert (elsewhere.mqtt_server("pi-2"), elsewhere.mqtt_user("pi-2", "gateway")) == ("", "gateway")


def test_a_gateway_keeps_its_user_until_mosquitto_has_the_new_one(tmp_path):
    site = mqtt(tmp_path, rotation=3)
    for has, present, given in (
        (["gateway"], "gateway", "gateway"),
        ([], "gateway~2", "gateway~2"),
        (["gateway", "gateway~3"], "gateway", "gateway~3"),
        (["gateway"], "", "gateway~3"),
        (["gateway"], "verify", "gateway~3"),
    ):
        assert site.mqtt_user("pi-1", "gateway", has, present) == given, (has, present)


def test_the_user_of_a_removed_boards_gateway_goes_unless_another_board_has_it(tmp_path):
    assert mqtt(tmp_path, removed="pi-1 1\n").mqtt_owners("pi-1") == ({"gateway": []}, ["gateway"])
    shared = mqtt(tmp_path, removed="pi-2 1\n", gateway_mqtt_host="pi-1")
    assert shared.mqtt_owners("pi-1") == ({"gateway": ["pi-1"]}, [])
    own = mqtt(tmp_path, removed="pi-2 1\n", gateway_mqtt_host="pi-1", gateway_mqtt_username="gateway-2")
    assert own.mqtt_owners("pi-1") == ({"gateway": ["pi-1"], "gateway-2": []}, ["gateway-2"])


def test_sparks_log_in_belongs_to_every_board_that_runs_jobs(four):
    assert four.owners("pi-3")["spark-pi-3"] == ["pi-3"]


@pytest.mark.parametrize(
    ("user", "base", "number"),
    [
        ("mirror-pi-1", "mirror-pi-1", 1),
        ("mirror-pi-1~2", "mirror-pi-1", 2),
        ("a~b~12", "a~b", 12),
        ("a~1", "a~1", 1),
        ("a~02", "a~02", 1),
        ("a~", "a~", 1),
        ("~2", "~2", 1),
        ("a~²", "a~²", 1),
    ],
)
def test_the_number_of_a_generation(user, base, number):
    assert site_access.generation_of(user) == (base, number)
    assert load("plugins/action/site_rotation.py").generation_of(user) == (base, number)
    assert site_access.generation_name(base, number) == user


@pytest.mark.parametrize(
    ("variables", "mode", "protocol"),
    [
        ({}, "secured", "SASL_PLAINTEXT"),
        ({"broker_listen": "0.0.0.0:9092"}, "secured", "SASL_SSL"),
        ({"broker_security": "none"}, "none", ""),
        ({"security_secret": ""}, "none", ""),
        ({"broker_security": "migrate", "broker_secured_listen": "0.0.0.0:9094"}, "migrate", ""),
        (
            {"broker_security": "migrate", "broker_secured_listen": "0.0.0.0:9094", "gateway_kafka": "127.0.0.1:9094"},
            "migrate",
            "SASL_SSL",
        ),
    ],
)
def test_what_a_broker_asks_of_its_clients(tmp_path, variables, mode, protocol):
    site = made(tmp_path, board(**variables))
    assert site.mode("pi-1") == mode
    assert site.client("pi-1", "gateway", site.text("pi-1", "gateway_kafka")).protocol == protocol


def test_a_pattern_that_is_a_beginning_needs_the_topics_that_begin_so_and_files_and_journal_have_theirs(tmp_path):
    given = board(
        mirror_topics="plant_.*",
        gateway_files=[{"path": "/var/log/a.log"}, {"path": "/b", "topic": "machine"}],
        gateway_journal=True,
        gateway_board=False,
        gateway_mqtt=False,
    )
    found = told(made(tmp_path, given).acls("pi-1"))
    assert "mirror-pi-1 TOPIC PREFIXED plant_: DESCRIBE DESCRIBE_CONFIGS READ" in found
    written = {line.split()[3].rstrip(":") for line in found if line.startswith("gateway") and "WRITE" in line}
    assert written == {"logs", "machine", "dead_letters", "boot_times", "__edge_ledger"}


def test_users_of_ones_own_may_do_what_is_said_of_them(tmp_path):
    users = [
        {"name": "scada", "password": "p", "read": ["readings", "plant_*"], "groups": ["scada"]},
        {"name": "crane", "password": "q", "write": ["crane"]},
    ]
    site = made(tmp_path, board(broker_users=users))
    assert site.users("pi-1").items() >= {"scada": "p", "crane": "q"}.items()
    assert told(site.acls("pi-1")) >= {
        "scada TOPIC LITERAL readings: DESCRIBE READ",
        "scada TOPIC PREFIXED plant_: DESCRIBE READ",
        "scada GROUP LITERAL scada: READ",
        "crane TOPIC LITERAL crane: CREATE DESCRIBE WRITE",
    }


def test_a_secret_that_could_be_guessed_is_refused(tmp_path):
    with pytest.raises(AnsibleError, match="no security_secret of 16 characters"):
        made(tmp_path, board(security_secret="short")).users("pi-1")


def test_apache_kafka_is_told_every_right_that_anybody_gets() -> None:
    told = load("roles/kafka/files/kafka_access.py")
    given = re.findall(r'"([A-Z_]{4,})"', Path(ANSIBLE, "plugins/action/site_access.py").read_text(encoding="utf-8"))
    kinds = {word for word in given if word in ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID")}
    assert kinds == set(told.KINDS)
    assert set(given) - kinds - {"SASL_SSL", "SASL_PLAINTEXT", "LITERAL", "PREFIXED"} <= set(told.OPERATIONS)
