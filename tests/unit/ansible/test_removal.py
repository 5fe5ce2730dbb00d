"""What playbooks/remove.yml says is done and is left to do, by the inventory and the notes of the hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.ansible.site_access import made
from tests.support.ansible_files import load

removal = load("playbooks/action_plugins/removal.py")
HAD = {"broker": ["mirror-pi-1"], "mosquitto": ["gateway"]}


def inventory(groups: dict[str, list[str]], **hosts: dict[str, Any]) -> dict[str, Any]:
    """An inventory of hosts named pi1, pi2 and so on, with addresses 10.0.0.1, 10.0.0.2."""
    addresses = {host: {"ansible_host": f"10.0.0.{host[-1]}"} | variables for host, variables in hosts.items()}
    children = {group: {"hosts": dict.fromkeys(members)} for group, members in groups.items()}
    return {"all": {"hosts": addresses, "vars": {"security_secret": "a secret of 24 characters"}, "children": children}}


def test_each_place_is_named_with_what_it_ended_or_keeps_and_why():
    notes = {
        "dc-1": {"remove_had": HAD, "remove_ended": ["broker"]},
        "pi-4": {"remove_had": HAD, "remove_ended": ["broker"], "remove_failed": {"mosquitto": "not reached"}},
        "pi-5": {"remove_failed": {"broker": "no security_secret"}},
    }
    assert list(removal.ended_log_ins(notes)) == [
        "The broker of dc-1 has ended mirror-pi-1, with all generations.",
        "The broker of pi-4 has ended mirror-pi-1, with all generations.",
    ]
    assert list(removal.staying(notes)) == [
        "The mosquitto of pi-4 keeps gateway: not reached.",
        "The broker of pi-5 keeps its log-ins: no security_secret.",
    ]


@pytest.mark.parametrize(
    "facts",
    [
        {"remove_had": {"broker": []}, "remove_failed": {"broker": "not reached"}},
        {"remove_failed": {"broker": "pi-3 was removed by playbooks/remove.yml: for a new board of its name"}},
        {},
    ],
    ids=["the board had nothing there", "removed itself", "neither broker nor mosquitto"],
)
def test_a_host_where_the_board_had_no_log_in_is_none_that_keeps_one(facts):
    assert list(removal.staying({"pi-3": facts})) == list(removal.ended_log_ins({"pi-3": facts})) == []


def test_services_of_other_boards_that_use_the_lost_one_are_named(tmp_path: Path):
    groups = {
        "broker": ["pi1", "pi2"], "gateway": ["pi1", "pi2", "pi3"], "mirror": ["pi3"], "mosquitto": ["pi1", "pi2"],
        "spark_worker": ["pi2", "pi1"], "spark_master": ["pi1"],
    }  # fmt: skip
    site = made(
        tmp_path,
        inventory(
            groups,
            pi1={"gateway_mqtt_host": "127.0.0.1", "mirror_source": "127.0.0.1:9092"},
            pi2={
                "gateway_kafka": "pi1:9092", "gateway_mqtt_host": "127.0.0.1", "spark_bootstrap": "127.0.0.1:9092",
                "spark_master_url": "spark://10.0.0.1:7077",
            },
            pi3={
                "gateway_kafka": "10.0.0.2:9092", "gateway_mqtt_host": "10.0.0.1", "mirror_source": "10.0.0.2:9092",
                "mirror_target": "10.0.0.1:9092",
            },
        ),
    )  # fmt: skip
    assert list(removal.clients(site, "pi1")) == [
        "gateway_kafka of pi2 is pi1:9092, which is pi1: name another board.",
        "spark_master_url of pi2 is spark://10.0.0.1:7077, which is pi1: name another board.",
        "mirror_target of pi3 is 10.0.0.1:9092, which is pi1: name another board.",
        "gateway_mqtt_host of pi3 is 10.0.0.1, which is pi1: name another board.",
    ]


def test_a_member_of_a_cluster_its_metrics_and_its_topics_in_the_datacenter_are_named(tmp_path: Path):
    settings = {"zookeeper.connect": "10.0.0.2:2181", "broker.id": 4, "edge.zookeeper.digest.file": "/etc/digest"}
    lost = {
        "broker_settings": settings, "broker_metrics": "10.0.0.1:9101", "gateway_metrics": "127.0.0.1:9404",
        "mirror_site": "plant-7", "mirror_target": "dc-1:9092",
    }  # fmt: skip
    groups = {"broker": ["pi1"], "gateway": ["pi1"], "mirror": ["pi1"]}
    said = " ".join(removal.remaining_steps(made(tmp_path, inventory(groups, pi1=lost)), "pi1"))
    assert "a member of the cluster at 10.0.0.2:2181: give a new board its broker.id (4) and an empty disk" in said
    assert "The file of edge.zookeeper.digest.file is on the card" in said
    assert "take 10.0.0.1:9101 of pi1 out of the targets" in said
    assert "dc-1:9092 keeps the topics plant-7.* and the state of its mirror" in said


@pytest.mark.parametrize(("others", "is_named"), [(["pi1", "pi3"], True), (["pi1"], False)])
def test_the_log_in_that_sparks_boards_share_stays_and_is_named_with_the_remedy(others, is_named, tmp_path: Path):
    spark = {"spark_bootstrap": "10.0.0.2:9092"}
    groups = {"broker": ["pi2"], "spark_worker": others}
    site = made(tmp_path, inventory(groups, pi1=spark, pi2={"security_rotation": 3}, pi3=spark))
    said = " ".join(removal.remaining_steps(site, "pi1"))
    found = "The broker of pi2 keeps spark-pi2~3 for pi3, and its password is on the card: set security_rotation of pi2"
    assert (found in said) == is_named
    assert "spark_secret" in said
