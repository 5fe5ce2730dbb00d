"""How the role gateway chooses its user at mosquitto: the newest that mosquitto has loaded, else the present one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.mqtt_play import MqttPlay

USERS = [{"name": "gateway", "password": "second", "acl": ["read #"], "rotation": 2}]
TOML = """\
[kafka]
sasl_username = "gateway-pi-1"

[mqtt]
host = "127.0.0.1"
username = {}
password_file = "/etc/drupelet/gateway-mqtt-password"
"""


@pytest.mark.parametrize(
    ("loaded", "present", "given"),
    [
        (["gateway"], "gateway", "gateway"),
        (["gateway", "gateway~2"], "gateway", "gateway~2"),
        (None, "gateway", "gateway"),
        (["gateway"], None, "gateway~2"),
    ],
)
def test_the_gateway_changes_its_user_when_mosquitto_has_the_new_one(tmp_path: Path, loaded, present, given):
    play = MqttPlay(tmp_path / "play")
    if loaded is not None:
        (play.etc / "drupelet/mqtt-log-ins").write_text(json.dumps({"users": dict.fromkeys(loaded, 0)}))
    if present is not None:
        (play.etc / "drupelet/gateway.toml").write_text(TOML.format(json.dumps(present)))
    assert play.gateway_user("gateway", USERS) == given
    assert ("goes on as gateway: mosquitto of pi-1 does not have gateway~2 yet" in play.said) == (given == "gateway")
