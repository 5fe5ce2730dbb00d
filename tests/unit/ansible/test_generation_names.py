"""The name of a later generation, `gateway-pi-1~2`, wherever a user's name is written by hand or by a role."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from edge_broker.cli import main as edge_broker
from gateway.config import load_config as gateway_config
from mirror.config import load as mirror_config
from tests.support.ansible.preflight import board, look

NAME = "gateway-pi-1~2"
SECRET = "k4Tq9ZbXw2Rm7VdYp3Ls8NfHc6Jg5Ue1"


def test_edge_broker_takes_the_name_in_users_rights_and_super_users(tmp_path, capsys, monkeypatch):
    data = ["--data-dir", str(tmp_path / "data")]
    monkeypatch.setattr("sys.stdin", io.StringIO("a password\n"))
    assert edge_broker(["user", "add", NAME, *data]) == 0
    may = ["--operation", "write", "--topic", "readings"]
    assert edge_broker(["acl", "add", "--allow", f"User:{NAME}", *may, *data]) == 0
    assert edge_broker(["acl", "list", "--principal", f"User:{NAME}", *data]) == 0
    assert f"User:{NAME}" in capsys.readouterr().out.splitlines()[-1]
    assert edge_broker(["user", "remove", NAME, *data]) == 0
    settings = {
        "listeners": "SECURED://127.0.0.1:9092",
        "listener.security.protocol.map": "SECURED:SASL_PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:admin;User:{NAME}",
    }
    config = tmp_path / "broker.toml"
    config.write_text("".join(f'"{key}" = "{value}"\n' for key, value in settings.items()))
    assert edge_broker(["check", "--config", str(config)]) == 0, capsys.readouterr()


def test_gateway_and_mirror_take_the_name(tmp_path):
    password = tmp_path / "password"
    password.write_text("a password")
    password.chmod(0o600)
    login = f'security_protocol = "SASL_PLAINTEXT"\nsasl_username = "{NAME}"\nsasl_password_file = "{password}"\n'
    (tmp_path / "gateway.toml").write_text(
        f'state_dir = "{tmp_path}"\n[kafka]\nbootstrap_servers = "127.0.0.1:9092"\n{login}'
        f'[mqtt]\nusername = "gateway~2"\npassword_file = "{password}"\n'
        '[[mqtt.routes]]\npattern = "sites/{site}/readings"\ntopic = "readings"\n'
    )
    found = gateway_config(tmp_path / "gateway.toml")
    assert found.kafka.security.username == NAME
    assert found.mqtt is not None
    assert found.mqtt.username == "gateway~2"
    sides = "".join(f"{side}_{line}\n" for side in ("source", "target") for line in login.splitlines())
    (tmp_path / "mirror.toml").write_text(sides)
    mirror = mirror_config(tmp_path / "mirror.toml", {"source": "a:1", "target": "b:2"}, ("source", "target"))
    assert (mirror.source_security.username, mirror.target_security.username) == (NAME, NAME)


@pytest.mark.parametrize(
    "variables",
    [
        {"broker_users": [{"name": "scada~2", "password": "p", "read": ["readings"]}]},
        {"broker_settings": {"super.users": f"User:admin;User:{NAME}"}},
        {"security_rotation": 2},
    ],
)
def test_preflight_takes_the_name_of_a_brokers_user(variables: dict[str, Any], tmp_path: Path):
    given = {"broker_security": "secured", "security_secret": SECRET, **variables}
    assert look(board("broker", **given), tmp_path=tmp_path) == []


def test_preflight_takes_a_rotation_of_a_device(tmp_path: Path):
    users = [{"name": "gateway", "password": "p", "acl": ["read #"], "rotation": 2}]
    given = {"gateway_mqtt_username": "gateway", "gateway_mqtt_password": "p", "mosquitto_users": users}
    found = look(board("mosquitto", security_secret=SECRET, **given), tmp_path=tmp_path)
    assert not [line for line in found if "rotation" in line or "mosquitto_users" in line]
