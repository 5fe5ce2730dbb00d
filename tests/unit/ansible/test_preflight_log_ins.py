"""Log-ins that exclude each other are found before anything is changed: at brokers, at mosquitto, of gateways."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.ansible.preflight import board, known, look, preflight

PASSWORD = "x" * 24
SCADA = {"name": "scada", "password": PASSWORD, "read": ["readings"]}
DEVICE = {"name": "pump", "password": PASSWORD, "acl": ["write sites/#"]}
GATEWAY = {"name": "gateway", "password": PASSWORD, "acl": ["read sites/#"]}


def of_broker(*names: str) -> dict[str, Any]:
    return board(broker_users=[SCADA | {"name": name} for name in names])


@pytest.mark.parametrize("name", ["admin", "gateway-pi-1", "mirror-pi-1~2", "verify-pi-1", "spark-pi-1"])
def test_a_user_of_the_site_itself_is_refused_in_broker_users(name, tmp_path):
    said = f"pi-1: broker_users has {name}, which the site makes itself: give it another name. [broker_users]"
    assert look(of_broker("scada", name), tmp_path=tmp_path) == [said]


def test_a_user_of_a_broker_that_is_given_twice_has_two_passwords_and_is_refused(tmp_path):
    said = "pi-1: broker_users has scada twice: give each user one entry. [broker_users]"
    assert look(of_broker("scada", "scada~2", "scada"), tmp_path=tmp_path) == [said]


@pytest.mark.parametrize("name", ["scada~2", "gateway", "gateway-pi-9", "administrator"])
def test_a_user_of_ones_own_passes(name, tmp_path):
    assert look(of_broker("scada", name), tmp_path=tmp_path) == []


@pytest.mark.parametrize(
    ("users", "said"),
    [
        ([DEVICE, DEVICE], "mosquitto_users has pump twice"),
        ([DEVICE | {"rotation": 2}, DEVICE | {"name": "pump~2"}], "mosquitto_users has pump~2 twice"),
        ([DEVICE | {"rotation": 0}], "rotation of pump in mosquitto_users is 0"),
        ([DEVICE | {"name": "pump:1"}], "a name in mosquitto_users is 'pump:1'"),
        ([DEVICE | {"acl": ["write sites/%u/#"]}], "acl of pump in mosquitto_users has write sites/%u/#"),
    ],
)
def test_users_that_the_role_mosquitto_would_refuse_in_the_middle_of_the_run_are_found(users, said, tmp_path):
    found = look(board("mosquitto", mosquitto_users=users), tmp_path=tmp_path)
    assert len(found) == 1
    assert said in found[0]


def with_gateway(**more: Any) -> dict[str, Any]:
    given = {
        "gateway_mqtt_username": "gateway",
        "gateway_mqtt_password": PASSWORD,
        "mosquitto_users": [GATEWAY, DEVICE],
    }
    routes = [{"pattern": "sites/{site}/devices/{device}/readings", "topic": "readings"}]
    return board("gateway mosquitto broker", **(given | {"gateway_mqtt_routes": routes} | more))


def test_a_gateway_with_the_user_and_the_password_of_mosquitto_passes(tmp_path):
    assert look(with_gateway(), tmp_path=tmp_path) == []
    rotated = with_gateway(mosquitto_users=[GATEWAY | {"rotation": 2}, DEVICE])
    assert look(rotated, tmp_path=tmp_path) == []
    elsewhere = with_gateway(gateway_mqtt_host="10.9.9.9", gateway_mqtt_username="other")
    assert look(elsewhere, tmp_path=tmp_path) == []


def test_a_gateway_whose_user_mosquitto_lacks_is_found(tmp_path):
    found = look(with_gateway(gateway_mqtt_username="gatway"), tmp_path=tmp_path)
    said = "gateway_mqtt_username is gatway, and mosquitto_users of pi-1 has no such user: name one of gateway, pump,"
    assert found == [f"pi-1: {said} or add it. [gateway_mqtt_username]"]


def test_a_password_that_was_changed_for_mosquitto_alone_is_found_and_not_shown(tmp_path):
    """The gateway would be refused with the new user and the old password."""
    changed = GATEWAY | {"rotation": 2, "password": "y" * 24}
    found = look(with_gateway(mosquitto_users=[changed, DEVICE]), tmp_path=tmp_path)
    said = "gateway_mqtt_password is another than the password of gateway in mosquitto_users of pi-1: set both to"
    assert found == [f"pi-1: {said} one variable of the vault. [gateway_mqtt_password]"]


ODD: list[Any] = [
    None, "", 0, -1, True, "abc", [], [1], ["a"], {}, {"a": 1}, [{}], [None], [{"name": None}], [{"name": "a"}],
    [{"name": 5, "password": 6, "acl": 7}], [{"name": "a", "acl": None, "password": None, "rotation": None}],
    [{"name": "a", "acl": "read x", "rotation": "x"}], [{"name": ["a"], "acl": {}, "rotation": [2]}],
]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "mosquitto_users",
        "broker_users",
        "broker_settings",
        "gateway_mqtt_username",
        "gateway_mqtt_password",
        "gateway_mqtt_host",
        "gateway_mqtt",
        "gateway_mqtt_routes",
        "security_more_names",
        "security_rotation",
        "mirror_settings",
        "spark_settings",
        "ansible_host",
    ],
)
def test_a_setting_of_any_type_is_a_finding_or_none_and_never_an_error_of_preflight(name, tmp_path):
    given = {"gateway_mqtt_username": "gateway", "gateway_mqtt_password": PASSWORD, "mosquitto_users": [GATEWAY]}
    for value in ODD:
        found = look(board("gateway mosquitto broker mirror spark_jobs", **(given | {name: value})), tmp_path=tmp_path)
        assert all(isinstance(line, str) for line in found)


@pytest.mark.parametrize("value", [True, 5, {"space": True}])
def test_a_preflight_accept_of_another_type_is_a_finding(value, tmp_path):
    found = look(board(preflight_accept=value), tmp_path=tmp_path)
    assert found == [
        f"pi-1: preflight_accept is {value}: write the words in brackets, as a list or separated by commas."
        " [preflight_accept]"
    ]


@pytest.mark.parametrize("value", [True, 5, {"space": True}, ["space"], "space,ports", None])
def test_the_words_that_a_host_accepts_are_read_from_any_type(value):
    host = preflight.Host(known, "pi-1", ["broker"], {"preflight_accept": value}, None)
    found = [host.finds("space", "little"), host.finds("ports", "taken")]
    left = [one.key for one in preflight.without_accepted(found, [host])]
    assert left == {"['space']": ["ports"], "space,ports": []}.get(str(value), ["space", "ports"])


@pytest.mark.parametrize("value", ["10.0.0.7", 7, True])
def test_networks_that_are_no_list_are_one_finding(value, tmp_path):
    """The role joins a list; of a text it would join the characters."""
    found = look(board(broker_ledger_writers=value), tmp_path=tmp_path)
    assert len(found) == 1
    assert f"{value} is no list: write such as [10.0.0.7, 10.0.0.0/24]" in found[0]
