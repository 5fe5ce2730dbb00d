"""The first play: what is misspelt, missing or in the way is found on all hosts; good inventories pass."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

from spark.config import SETTABLE, Settings
from tests.support.ansible.preflight import BOARD, SECRET, board, known, look, preflight
from tests.support.ansible_files import ANSIBLE

VAULT = dict.fromkeys(
    (
        "vault_gateway_mqtt_password",
        "vault_verify_mqtt_password",
        "vault_thermometer_1_password",
        "vault_spark_secret",
    ),
    "x" * 24,
) | {"vault_security_secret": SECRET}


# --- good ones -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["one-board", "four-boards", "many-sites"])
def test_the_example_inventories_pass_once_their_passwords_are_there(name, tmp_path):
    assert look(ANSIBLE / "inventories" / name, tmp_path=tmp_path, **VAULT) == []


@pytest.mark.parametrize("name", ["four-boards", "many-sites"])
def test_the_example_inventories_with_spark_mirror_all_that_its_jobs_write(name):
    site = yaml.safe_load((ANSIBLE / "inventories" / name / "group_vars/site/site.yml").read_text())
    written = {getattr(Settings(), setting) for setting in SETTABLE if setting.endswith("_topic")}
    assert written >= {"readings_windows", "readings_late"}
    assert {topic for topic in written if not re.fullmatch(site["mirror_topics"], topic)} == set()


SCENARIOS = sorted(path.parent.parent for path in (ANSIBLE / "molecule").glob("*/inventory/hosts.yml"))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.name)
def test_the_inventories_of_the_scenarios_have_no_misspelt_name(scenario, tmp_path, monkeypatch):
    monkeypatch.setenv("MOLECULE_PROJECT_DIRECTORY", str(ANSIBLE))
    monkeypatch.setenv("MOLECULE_SCENARIO_NAME", scenario.name)
    found = look(ANSIBLE / "molecule/lab/connection.yml", scenario / "inventory", tmp_path=tmp_path)
    assert [line for line in found if "no role takes" in line or "no playbook knows" in line] == []


@pytest.mark.parametrize(
    "name",
    ["site_name", "plant", "my_gateway_kafka", "rack", "vault_gateway_mqtt_pasword", "lab_name", "owner_email", "brok"],
)
def test_a_users_own_variable_passes(name, tmp_path):
    assert look(board(**{name: "x"}), tmp_path=tmp_path) == []


def test_a_host_that_the_inventory_does_not_have_is_named(tmp_path):
    given = board(broker_listen="{{ hostvars['dc-2'].ansible_host }}:9092")
    assert look(given, tmp_path=tmp_path) == [
        "pi-1: broker_listen asks for the host dc-2, which the inventory lacks: put it in, or name another. "
        "[broker_listen]"
    ]


def test_own_groups_pass_and_so_do_groups_of_groups(tmp_path):
    inventory = board("broker basement")
    inventory["all"]["children"]["brokers"] = {"children": {"broker": None}}
    inventory["all"]["children"]["plant_7"] = {"hosts": {"pi-1": None}}
    assert look(inventory, tmp_path=tmp_path) == []


def test_what_a_role_works_out_later_is_no_finding(tmp_path):
    given = board(broker_data_dir="{{ drupelet_root }}/data", broker_listen="{{ ansible_default_ipv4.address }}:9092")
    assert look(given, tmp_path=tmp_path) == []


OPEN = "broker_listen is 0.0.0.0:9092, where anybody in the network could do everything"


@pytest.mark.parametrize(
    ("variables", "answer", "found"),
    [
        ({"broker_listen": "0.0.0.0:9092"}, BOARD, True),
        ({"broker_listen": "0.0.0.0:9092", "broker_network_trusted": True}, BOARD, False),
        ({"broker_listen": "0.0.0.0:9092", "broker_settings": {"edge.network.trusted": True}}, BOARD, False),
        ({"broker_listen": "0.0.0.0:9092", "broker_engine": "kafka"}, BOARD, False),
        ({"broker_listen": "0.0.0.0:9092"}, f"{BOARD}listens *:9092 edge-broker.service edge-broker\n", False),
        ({"broker_listen": "0.0.0.0:9092", "broker_security": "secured", "security_secret": SECRET}, BOARD, False),
        ({"broker_listen": "[::1]:9092"}, BOARD, False),
    ],
)
def test_a_network_that_nobody_calls_trusted_is_told_before_the_broker_refuses_it(variables, answer, found, tmp_path):
    told = look(board(broker_advertise="pi-1:9092", **variables), tmp_path=tmp_path, answer=answer, **VAULT)
    assert [line for line in told if OPEN in line and line.endswith("[broker_network_trusted]")] == told
    assert bool(told) is found


@pytest.mark.parametrize("role", ["gateway", "mirror"])
@pytest.mark.parametrize(
    ("variables", "answer", "found"),
    [
        ({"{}_metrics": "0.0.0.0:9404"}, BOARD, True),
        ({"{}_metrics": "127.0.0.1:9404"}, BOARD, False),
        ({"{}_metrics": "0.0.0.0:9404", "{}_network_trusted": True}, BOARD, False),
        ({"{}_metrics": "0.0.0.0:9404", "security_secret": SECRET}, BOARD, False),
        ({"{}_metrics": "0.0.0.0:9404"}, BOARD + "listens *:9404 edge-{}.service edge\n", False),
    ],
)
def test_metrics_that_would_be_everybodys_are_told_before_anything_changes(role, variables, answer, found, tmp_path):
    given = {name.format(role): value for name, value in variables.items()}
    host = preflight.Host(known, "pi-1", [role], given, answer.format(role))
    told = list(preflight.metrics(host))
    assert [one.key for one in told] == [f"{role}_network_trusted"] * found
    assert all(f"{role}_metrics is 0.0.0.0:9404, where anybody" in one.text for one in told)


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({"mirror_target_username": "site"}, True),
        ({"mirror_target_username": "site", "mirror_target_password": ""}, True),
        ({"mirror_target_username": "site", "mirror_target_password": "x"}, False),
        ({}, False),
    ],
)
def test_a_mirror_that_would_log_in_without_a_password_is_told(variables, found, tmp_path):
    given = board("mirror", mirror_target="kafka:9092", mirror_site="a", mirror_source="far:9092", **variables)
    told = [line for line in look(given, tmp_path=tmp_path) if "mirror_target_password is not set" in line]
    assert [line.startswith("pi-1: mirror_target_username is site, and") for line in told] == [True] * found


LAN = {"mosquitto_listeners": ["127.0.0.1:1883", "0.0.0.0:1883"]}


@pytest.mark.parametrize(
    ("variables", "answer", "is_refused", "is_noted"),
    [
        (LAN, BOARD, True, False),
        (LAN | {"mosquitto_network_trusted": True}, BOARD, False, False),
        ({"mosquitto_listeners": ["[::1]:1883"]}, BOARD, False, False),
        ({}, BOARD, False, False),
        (LAN, BOARD + "listens *:1883 mosquitto.service mosquitto\n", False, True),
        (LAN, BOARD + "listens 127.0.0.1:1883 mosquitto.service mosquitto\n", True, False),
        (
            LAN | {"mosquitto_network_trusted": False},
            BOARD + "listens *:1883 mosquitto.service mosquitto\n",
            True,
            False,
        ),
    ],
)
def test_passwords_in_the_clear_are_told_before_anything_changes(variables, answer, is_refused, is_noted):
    host = preflight.Host(known, "pi-1", ["mosquitto"], variables, answer)
    refused, noted = list(preflight.strangers(host)), list(preflight.strangers_as_before(host))
    assert [one.key for one in refused] == ["mosquitto_network_trusted"] * is_refused
    assert [one.key for one in noted] == ["mosquitto_network_trusted"] * is_noted
    assert all("mosquitto_listeners has 0.0.0.0:1883, where passwords go" in one.text for one in (*refused, *noted))


def test_the_port_that_devices_get_by_default_is_claimed():
    variables = {"mosquitto_users": [{"name": "a", "password": "b", "acl": []}], "security_secret": SECRET}
    answer = f"{BOARD}listens 0.0.0.0:8883 emqx.service beam\n"
    (found,) = preflight.ports(preflight.Host(known, "pi-1", ["mosquitto"], variables, answer))
    assert "mosquitto_tls_listeners is 0.0.0.0:8883, and emqx.service listens there" in found.text
    assert not list(preflight.ports(preflight.Host(known, "pi-1", ["mosquitto"], {}, answer)))


NOBODY = "pi-1: its broker lets in everybody who reaches it"


@pytest.mark.parametrize("role", ["broker", "central"])
@pytest.mark.parametrize(
    ("variables", "answer", "found", "noted"),
    [
        ({}, BOARD, True, False),
        ({"security_secret": SECRET}, BOARD, False, False),
        ({"broker_network_trusted": True, "central_security": "none"}, BOARD, False, False),
        ({}, BOARD.replace("release", "release 0.2.0-0123abcd"), False, True),
        ({}, f"{BOARD}listens *:9092 kafka.service java\n", False, True),
    ],
)
def test_a_new_broker_that_would_know_nobody_is_told_and_one_of_before_is_noted(
    role, variables, answer, found, noted, tmp_path
):
    security = {"broker_security": "", "central_security": ""} | variables
    given = board(role, **security, **({"central_advertise": "10.0.0.1:9092"} if role == "central" else {}))
    told = [line for line in look(given, tmp_path=tmp_path, answer=answer) if NOBODY in line]
    assert [line.endswith(f"or say {role}_security: none. [{role}_security]") for line in told] == [True] * found
    host = preflight.Host(known, "pi-1", [role], security, answer)
    assert [", as before: put security_secret" in one.text for one in preflight.strangers_as_before(host)] == [
        True
    ] * noted


def test_a_provisioned_board_with_a_full_card_and_its_own_services_passes(tmp_path):
    answer = BOARD.replace("release", "release 0.2.0-0123abcd").replace("free_mb 20000", "free_mb 3")
    answer += (
        "listens 127.0.0.1:9092 edge-broker.service edge-broker\nlistens 0.0.0.0:1883 mosquitto.service mosquitto\n"
    )
    assert look(board("broker mosquitto"), tmp_path=tmp_path, answer=answer) == []


@pytest.mark.parametrize(("groups", "free", "need"), [("broker", 120, 200), ("spark_jobs", 1499, 1500)])
def test_a_provisioned_board_without_room_for_a_newer_release_is_noted(groups, free, need):
    answer = BOARD.replace("release", "release 0.2.0-0123abcd").replace("free_mb 20000", f"free_mb {free}")
    host = preflight.Host(known, "pi-1", groups.split(), {}, answer)
    assert preflight.as_lines(preflight.crowded_hosts(host), keys=False) == [
        f"pi-1: {free} MB are free for /opt/drupelet, and a newer release needs {need}: it would be refused there, so "
        "make room first."
    ]
    enough = preflight.Host(known, "pi-1", groups.split(), {}, answer.replace(f"_mb {free}", f"_mb {need}"))
    assert list(preflight.crowded_hosts(enough)) == []


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("Host key verification failed.", "If you know that it is the host: log in once by ssh, or ssh-keyscan"),
        ("WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! Host key verification failed.", "`ssh-keygen -R` with"),
        ("site@pi-1: Permission denied (publickey).", "Is ansible_user right, and has that user your key?"),
        ("Could not resolve hostname pi-1", "Is ansible_host right?"),
        ("Connection timed out", "Is it on, and is ansible_host right?"),
    ],
)
def test_a_host_that_is_not_reached_is_noted_with_what_to_do(said, remedy):
    host = preflight.Host(known, "pi-1", ["broker"], {}, None)
    whole = f"Task failed: Failed to connect to the host via ssh: {said}"
    (line,) = preflight.as_lines(preflight.check_reached(host, {"unreachable": True, "msg": whole}), keys=False)
    assert line.startswith(f"pi-1: not reached, so left out: {said.rstrip('.')}. ")
    assert remedy in line


# --- misspelt --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("broker_setings", "broker_settings"),
        ("base_firewal", "base_firewall"),
        ("mosquito_users", "mosquitto_users"),
        ("gateway_mqtt_pasword", "gateway_mqtt_password"),
        ("verify_mqtt_usrname", "verify_mqtt_username"),
        ("flash_ssh_key", "flash_ssh_keys"),
        ("drupelet_wheels", "drupelet_wheel"),
        ("brokr_settings", "broker_settings"),
    ],
)
def test_a_misspelt_variable_is_named_with_the_right_one(wrong, right, tmp_path):
    assert look(board(**{wrong: "x"}), tmp_path=tmp_path) == [
        f"pi-1: no role takes the variable {wrong}. Is it {right}? [{wrong}]"
    ]


def test_a_variable_like_nothing_known_but_with_a_roles_beginning_is_named(tmp_path):
    assert look(board(mirror_zzz="x"), tmp_path=tmp_path) == [
        "pi-1: no role takes the variable mirror_zzz; one of your own wants another beginning. [mirror_zzz]"
    ]


@pytest.mark.parametrize(
    ("wrong", "right"), [("brokers", "broker"), ("gatway", "gateway"), ("spark-jobs", "spark_jobs")]
)
def test_a_misspelt_group_is_named_with_the_right_one(wrong, right, tmp_path):
    assert look(board(f"base {wrong}"), tmp_path=tmp_path) == [
        f"inventory: no playbook knows the group {wrong}, with pi-1. Is it {right}? [{wrong}]"
    ]


def test_an_inventory_without_any_known_group_is_told_which_there_are(tmp_path):
    (line,) = look(board("boards"), tmp_path=tmp_path)
    assert line.startswith("inventory: no host is in a group that the playbooks know: base, broker, ")


def test_one_finding_of_many_hosts_is_one_line(tmp_path):
    hosts = {f"pi-{number}": {"base_firewal": True} for number in range(1, 10)}
    assert look({"base": {"hosts": hosts}}, tmp_path=tmp_path) == [
        "pi-1, pi-2, pi-3, pi-4, pi-5, pi-6 and 3 more: "
        "no role takes the variable base_firewal. Is it base_firewall? [base_firewal]"
    ]


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "variables", "told"),
    [
        ("gateway", {"gateway_mqtt_port": "eleven"}, "gateway_mqtt_port is not what its role takes: it is of type str"),
        ("broker", {"broker_engine": "rabbit"}, "value of broker_engine must be one of: drupelet, kafka"),
        ("broker", {"broker_settings": [1]}, "broker_settings is not what its role takes: it is of type list"),
        ("mosquitto", {"mosquitto_users": [{"name": "a", "password": "hidden"}]}, "missing required arguments: acl"),
        ("mirror", {"mirror_site": "a"}, "needs mirror_target, which is not set: HOST:PORT of the central Kafka."),
        ("gateway", {"gateway_mqtt_password": "{{ vault_x }}"}, "password is to be vault_x, which is in no file"),
        ("mosquitto", {"mosquitto_users": [{"name": "a", "password": "{{ vault_y }}", "acl": []}]}, "is to be vault_y"),
        ("broker", {"broker_listen": "{{ adress }}:9092"}, "broker_listen cannot be worked out: "),
    ],
)  # fmt: skip
def test_a_value_that_the_role_would_refuse_is_told_before(groups, variables, told, tmp_path):
    lines = look(board(groups, **variables), tmp_path=tmp_path, answer=None)
    assert [line for line in lines if told in line], lines
    assert "hidden" not in "".join(lines)


@pytest.mark.parametrize(
    "users",
    ["x", ["thermometer"], {"a": 1}, [1], [{"name": "a"}], [{"name": "a", "passwort": "hidden", "acl": ["write x"]}]],
)
def test_a_wrong_setting_is_told_once(users, tmp_path):
    (line,) = look(board("mosquitto", mosquitto_users=users), tmp_path=tmp_path, answer=None)
    assert line.startswith("pi-1: mosquitto_users is not what its role takes: ")
    assert "hidden" not in line
    assert "_Ansible" not in line


@pytest.mark.parametrize(
    ("groups", "name", "value", "wrong"),
    [
        ("broker", "broker_listen", 9092, "9092"),
        ("broker", "broker_listen", "9092", "9092"),
        ("broker", "broker_listen", "localhost:", "localhost:"),
        ("broker", "broker_listen", "127.0.0.1:90920", "127.0.0.1:90920"),
        ("broker", "broker_listen", "::1:9092", "::1:9092"),
        ("broker", "broker_metrics", "tcp://127.0.0.1:9101", "tcp://127.0.0.1:9101"),
        ("mosquitto", "mosquitto_listeners", ["127.0.0.1:1883", 8883], "8883"),
        ("gateway", "gateway_kafka", "pi-1:9092, pi-2", "pi-2"),
    ],
)
def test_an_address_that_is_none_is_told(groups, name, value, wrong, tmp_path):
    form = "ADDRESS" if groups == "mosquitto" else "HOST"
    lines = look(board(groups, **{name: value}), tmp_path=tmp_path, answer=BOARD if groups == "broker" else None)
    assert lines == [
        f"pi-1: {name} is not what its role takes: {wrong} is no {form}:PORT, such as 127.0.0.1:9092. [{name}]"
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gateway_kafka", "pi-1:9092, [fe80::1%eth0]:9092"),
        ("gateway_metrics", ""),
        ("gateway_metrics", "{{ ansible_facts.default_ipv4.address }}:9404"),
    ],
)
def test_an_address_that_is_one_passes(name, value, tmp_path):
    assert look(board("gateway", **{name: value}), tmp_path=tmp_path, answer=None) == []


SECURED = {"broker_security": "secured", "security_secret": SECRET}
LAN_MASTER = {"spark_master_url": "spark://10.0.0.7:7077", "spark_secret": "x" * 16, "spark_address": "10.0.0.7"}


@pytest.mark.parametrize(
    ("groups", "variables", "told"),
    [
        ("broker", {"broker_memory_max": 10}, "10, which are bytes is too little"),
        ("broker", {"broker_memory_max": "256 megabytes"}, "256 megabytes is no size of systemd"),
        ("gateway broker", {"gateway_memory_max": "0%"}, "0% is no size of systemd"),
        ("gateway broker", {"gateway_mqtt_port": 99999}, "99999 is no port"),
        ("base", {"base_open_ports": [8883, 99999]}, "99999 is no port"),
        ("base", {"base_ssh_port": 0}, "0 is no port"),
        ("base", {"base_trusted_networks": ["10.0.0.0/33"]}, "10.0.0.0/33 is no address and no network"),
        ("broker", {"broker_ledger_writers": ["pi-2.local"]}, "pi-2.local is no address and no network"),
        ("broker", {"broker_oom_score_adjust": -2000}, "-2000 must lie between -1000 and 1000"),
        ("broker", {"broker_watchdog_s": 1}, "1 must lie between 10 and 86400, or 0"),
        ("broker", {"broker_data_dir": "/var/lib"}, "/var/lib belongs to the system"),
        ("broker", {"broker_data_dir": "data"}, "data is no absolute path"),
        ("base", {"base_timezone": "Europe/Berlinn"}, "is no time zone: write such as Europe/Berlin"),
        ("base", {"base_hostname": "pi_1"}, "pi_1 is no host name"),
        ("broker", {"broker_settings": {"log.retension.ms": 5}}, "did you mean 'log.retention.ms'?"),
        ("broker", {"broker_settings": {"num.partitions": "many"}}, "num.partitions in broker_settings is 'many'"),
        ("broker", {"broker_settings": {"log.retention.ms": None}}, "has log.retention.ms as nothing"),
        ("broker", {"broker_settings": {"log": {"retention.ms": 5}}}, "has log as a mapping"),
        ("broker", {**SECURED, "broker_settings": {"super.users": "admin"}}, "super.users names 'admin'"),
        ("broker", {"broker_listen": "0.0.0.0:9092", "broker_network_trusted": True}, "set broker_advertise"),
        ("broker", {"broker_security": "migrate", "broker_secured_listen": "0.0.0.0:9094"}, "security_secret is not"),
        ("broker", {"broker_security": "secured"}, "broker_security is secured, and security_secret is not set"),
        ("broker", {**SECURED, "broker_security": "migrate"}, "needs broker_secured_listen"),
        (
            "broker",
            {**SECURED, "broker_security": "migrate", "broker_secured_listen": "0.0.0.0:9092"},
            "whose port broker_listen has already",
        ),
        ("broker", {**SECURED, "security_secret": "short"}, "security_secret has 5 characters"),
        ("spark_jobs", LAN_MASTER, "jobs and workers must see one checkpoint"),
        ("spark_worker", LAN_MASTER, "jobs and workers must see one checkpoint"),
        ("spark_worker", {"spark_secret": "x" * 16}, "the host has no Spark master of its own"),
        ("spark_master", {"spark_secret": "short"}, "a Spark cluster needs spark_secret"),
        ("broker", {"broker_metrics": "127.0.0.1:9092"}, "broker_listen and broker_metrics both want port 9092"),
    ],
)  # fmt: skip
def test_a_value_that_would_end_a_play_halfway_is_told_before(groups, variables, told, tmp_path):
    lines = look(board(groups, **variables), tmp_path=tmp_path)
    assert [line for line in lines if told in line], lines


@pytest.mark.parametrize(
    ("groups", "variables"),
    [
        ("broker", {"broker_memory_max": "infinity"}),
        ("broker", {"broker_memory_max": "25%"}),
        ("broker", {"broker_watchdog_s": 0}),
        ("broker", {"broker_data_dir": "/srv/kafka"}),
        ("base", {"base_trusted_networks": ["10.0.0.7/24", "fd00::/64"], "base_open_ports": [1, 65535]}),
        ("broker", {"broker_settings": {"log.retention.ms": 86400000, "auto.create.topics.enable": False}}),
        ("broker", {**SECURED, "broker_listen": "0.0.0.0:9094", "broker_advertise": "10.0.0.7:9094"}),
        ("broker", {**SECURED, "broker_security": "migrate", "broker_secured_listen": "127.0.0.1:9094"}),
        ("spark_jobs", {}),
        ("spark_jobs spark_worker spark_master", {"spark_secret": "x" * 16}),
        ("spark_worker", {**LAN_MASTER, "spark_checkpoint_shared": True}),
    ],
)
def test_a_value_of_its_form_passes(groups, variables, tmp_path):
    assert look(board(groups, **variables), tmp_path=tmp_path) == []


def test_two_boards_with_one_prefix_at_one_target_are_told(tmp_path):
    hosts = {
        name: {"mirror_target": "dc:9092", "mirror_site": site} for name, site in (("a", "x"), ("b", "x"), ("c", "y"))
    }
    given = {"mirror": {"hosts": hosts}, "broker": {"hosts": dict.fromkeys(hosts), "vars": {"broker_security": "none"}}}
    assert look(given, tmp_path=tmp_path) == [
        "a, b: mirror_site is x on 2 boards, whose topics would mix at dc:9092. [mirror_site]"
    ]


# --- hosts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "before", "after", "told"),
    [
        ("broker", "system debian 12", "system debian 11", "the system is Debian GNU/Linux 12 (bookworm); roles"),
        ("broker", "system debian 12", "system ubuntu 24.04", "[distribution]"),
        ("broker", "system debian 12", "system debian trixie/sid", "[distribution]"),
        ("broker", "python 3.11", "python ", "/usr/bin/python3 is missing"),
        ("broker", "python 3.11", "python 3.9", "Python is 3.9, and 3.11 is needed"),
        ("broker", "systemd running\n", "", "no systemd runs there"),
        ("broker", "architecture arm64", "architecture riscv64", "the architecture is riscv64; there are wheels for"),
        ("spark_jobs", "architecture arm64", "architecture armhf", "its programs are 32-bit"),
        ("broker", "free_mb 20000", "free_mb 120", "and what comes there needs 200. [space]"),
        ("spark_jobs", "free_mb 20000", "free_mb 1500", "1500 MB are free for /opt/drupelet, and what"),
        ("spark_jobs", "memory_mb 3700", "memory_mb 900", "the memory is 900 MB, and Spark wants 1700"),
        ("broker", "0.0.0.0:22 ssh.service sshd", "*:9092 redpanda.service rp", "9092, and redpanda.service"),
        ("broker", "0.0.0.0:22 ssh.service sshd", "*:9092 - java", "127.0.0.1:9092, and java listens there"),
        ("mosquitto", "0.0.0.0:22 ssh.service sshd", "[::]:1883 emqx.service beam", "127.0.0.1:1883, and emqx.service"),
        ("gateway broker", "", "", "gateway_mqtt_host is 127.0.0.1:1883 and nothing serves there"),
        ("gateway mosquitto", "", "", "nothing serves there: put the host into broker"),
    ],
)  # fmt: skip
def test_what_is_in_the_way_on_a_host_is_told(groups, before, after, told, tmp_path):
    lines = look(board(groups), tmp_path=tmp_path, answer=BOARD.replace(before, after) if before else BOARD)
    assert [line for line in lines if line.startswith("pi-1: ") and told in line], lines


def test_two_services_of_one_host_on_one_port_are_told(tmp_path):
    given = board("broker central", central_advertise="dc:9092")
    assert look(given, tmp_path=tmp_path) == [
        "pi-1: broker_listen and central_listen both want port 9092: set another port for one of them. [ports]"
    ]


def test_a_broker_that_somebody_else_put_on_the_board_will_do(tmp_path):
    given = board("gateway", gateway_mqtt=False)
    answer = BOARD + "listens 127.0.0.1:9092 redpanda.service rp\n"
    assert look(given, tmp_path=tmp_path, answer=answer) == []


def test_a_bundle_without_this_host_is_told(tmp_path):
    (tmp_path / "SHA256SUMS").write_text("0  wheels-cp313-aarch64.tar\n0  packages-bookworm-arm64.tar\n")
    (line,) = look(board(drupelet_bundle=str(tmp_path)), tmp_path=tmp_path)
    assert line.startswith(f"pi-1: {tmp_path} has no wheels-cp311-aarch64.tar: make it by")


def test_answers_of_any_kind_raise_nothing(tmp_path):
    for answer in (
        "",
        "\n",
        "listens",
        "listens x",
        "listens : - ",
        "system",
        "python x.y",
        "memory_mb",
        "free_mb -",
        "\0",
    ):
        look(board("base broker mosquitto gateway spark_jobs"), tmp_path=tmp_path, answer=answer)


@pytest.mark.parametrize("role", list(preflight.value_forms.MEMORY_MB_MIN))
def test_a_memory_below_what_a_service_takes_to_start_is_refused(role):
    name, least = f"{role}_memory_max", preflight.value_forms.MEMORY_MB_MIN[role]
    assert preflight.value_forms.problem(name, f"{least}M") == ""
    assert f"below {least}M" in preflight.value_forms.problem(name, f"{least - 1}M")
    if isinstance(known.defaults.get(name), str) and "{{" not in known.defaults[name]:
        assert preflight.value_forms.problem(name, known.defaults[name]) == ""


# --- the broker's rules ----------------------------------------------------------------------------------------------


def test_without_a_wheel_and_without_a_checkout_it_says_that_the_settings_are_not_checked(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight.broker_settings, "COLLECTION", tmp_path / "collections/drupelet/edge")
    loader = DataLoader()
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(board(broker_settings={"log.retention.mss": 1})))
    inventory = InventoryManager(loader=loader, sources=[str(tmp_path / "hosts.yml")])
    manager = VariableManager(loader=loader, inventory=inventory)
    variables = preflight.Variables(
        HostVars(inventory=inventory, variable_manager=manager, loader=loader), "pi-1", loader
    )
    host = preflight.Host(known, "pi-1", ["broker"], variables, BOARD)
    notes: list[Any] = []
    found = preflight.findings(inventory.get_groups_dict(), [host], notes)
    assert not [finding for finding in found if finding.key == "broker_settings"]
    assert preflight.as_lines(notes, keys=False) == [
        "pi-1: broker_settings is not checked before the run: there is no wheel yet (drupelet_wheel) and no checkout "
        "around the roles. The role checks it on each board, before it writes it."
    ]


# --- what it knows ---------------------------------------------------------------------------------------------------


def test_it_knows_the_groups_for_which_provision_has_a_play():
    plays = yaml.safe_load((ANSIBLE / "playbooks/provision.yml").read_text())
    assert {
        group
        for group in preflight.GROUPS
        if any(f"'{group}'" in f"{play.get('hosts')} {play.get('vars')}" for play in plays)
    } == set(preflight.GROUPS)
    roles = {entry["role"] for play in plays for entry in play.get("roles", [])}
    assert roles - {"packages"} == set(preflight.GROUPS.values())


def test_every_playbooks_variable_that_is_declared_is_read_by_one():
    text = "".join(path.read_text() for path in (ANSIBLE / "playbooks").rglob("*") if path.suffix in (".yml", ".py"))
    declaration = (ANSIBLE / "playbooks/meta/argument_specs.yml").read_text()
    for name in known.playbook_settings:
        assert text.count(name) > declaration.count(name), name
