"""What mosquitto's journal tells of log-ins, and what becomes of its users by that."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleError

from tests.support.ansible_files import load

script = load("roles/mosquitto/files/log_ins.py")
rotation = load("plugins/action/site_rotation.py")
MADE = {"pump": 0, "pump~2": 1_000}


def connected(user: str, client: str = "auto-1", at: int = 2_000) -> str:
    return f"{at}: New client connected from 10.0.0.5:4711 as {client} (p2, c1, k60, u'{user}')."


def found(*lines: str, made: dict[str, int] = MADE) -> dict[str, Any]:
    told: dict[str, Any] = script.log_ins([line.encode() + b"\n" for line in lines], made)
    return told


def entry(name: str = "pump", rotation: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "password": "p", "acl": [f"write devices/{name}/#"], "rotation": rotation, **more}


def planned(*lines: str, users: tuple[str, ...] = ("pump", "pump~2"), now: bool = False, **more: Any) -> Any:
    """The plan for `pump` in its second rotation."""
    owners, removed = more.pop("owners", {}), more.pop("removed", [])
    held = rotation.mqtt_held(users, found(*lines))
    return rotation.mqtt_plan([entry(rotation=2, **more)], owners, removed, held, is_now=now)


def test_the_first_and_the_last_log_in_of_each_user():
    told = found(connected("pump", at=1), connected("pump~2", at=86_400), connected("pump~2", at=2 * 86_400))
    assert told["pump~2"] | {"connected": 0} == {
        "first": 1,
        "first_log_in": "1970-01-02T00:00:00.000Z",
        "last": 2,
        "last_log_in": "1970-01-03",
        "connected": 0,
    }


def test_a_log_in_before_the_user_was_made_was_by_another_password():
    assert "pump~2" not in found(connected("pump~2", at=999))
    assert "pump~2" in found(connected("pump~2", at=1_000))


def test_a_user_made_while_the_clock_was_ahead_is_seen_by_its_first_log_in_after_that():
    """Otherwise its old one would hold until the day that the clock had shown."""
    made = script.past_only({"pump": 5, "pump~2": 2_000_000_000}, 1_900_000_000)
    assert made == {"pump": 5, "pump~2": 0}
    assert "pump~2" in found(connected("pump~2", at=1_800_000_000), made=made)


@pytest.mark.parametrize(
    "end",
    [
        "Client a closed its connection.",
        "Client a disconnected.",
        "Client a disconnected, not authorised.",
        "Client a disconnected due to protocol error.",
        "Client a disconnected: The connection was lost.",
        "Bad socket read/write on client a: Connection reset by peer.",
        "Client a been disconnected by administrative action.",
        "Client a has exceeded timeout, disconnecting.",
        "Client a already connected, closing old connection.",
    ],
)
def test_a_client_is_connected_until_mosquitto_says_that_it_left(end):
    assert found(connected("pump", "a"))["pump"]["connected"] == 1
    assert found(connected("pump", "a"), f"3000: {end}")["pump"]["connected"] == 0
    assert found(connected("pump", "b"), f"3000: {end}")["pump"]["connected"] == 1


def test_a_client_whose_id_looks_like_the_end_of_another_does_not_end_it():
    lines = [connected("pump", "a"), "3000: Client a disconnected. closed its connection."]
    assert found(*lines)["pump"]["connected"] == 1


def test_no_client_outlives_mosquitto():
    assert (
        found(connected("pump", "a"), "Starting mosquitto.service - Mosquitto MQTT Broker...")["pump"]["connected"] == 0
    )


@pytest.mark.parametrize(
    "line",
    [
        connected("gateway", connected("pump~2")),
        connected("gateway", "\u2028" + connected("pump~2") + "\u2028"),
        "2000: Client " + connected("pump~2") + " disconnected.",
        connected("pump~2", "y" * 932),
        connected("gateway", "y" * 850 + " (p2, c1, k60, u'pump~2').").removesuffix(" (p2, c1, k60, u'gateway')."),
        connected("pump~2") + " more",
        connected("pump~2").replace(", u'pump~2'", ""),
    ],
)
def test_a_name_counts_only_where_mosquitto_wrote_it(line):
    assert "pump~2" not in found(line)


def test_an_old_user_holds_until_the_new_one_was_used():
    assert planned(connected("pump")).kept == ["pump"]
    assert planned(connected("pump"), "3: Client auto-1 disconnected.", connected("pump~2", "b")).ended == ["pump"]
    assert planned().holding[0]["ends"] == "in the first run after pump~2 has logged in"


def test_an_old_user_holds_while_a_client_uses_it():
    still = planned(connected("pump", "a"), connected("pump~2", "b"))
    later = planned(connected("pump~2", "b"), connected("pump", "a"), "3: Client a disconnected.")
    for one in (still, later):
        assert one.kept == ["pump"]
        assert one.holding[0]["ends"].endswith("one still uses pump")
    assert planned(connected("pump", "a"), connected("pump~2", "b"), now=True).ended == ["pump"]


def test_clocks_that_jump_back_do_not_change_the_order():
    assert planned(connected("pump", "a", at=9_000), "3: Client a closed its connection.", connected("pump~2")).ended


def test_a_log_in_that_devices_or_gateways_share_ends_by_the_word_alone():
    used = (connected("pump"), "3: Client auto-1 disconnected.", connected("pump~2"))
    for more in ({"shared": True}, {"owners": {"pump": ["pi-1", "pi-2"]}}):
        assert planned(*used, **more).kept == ["pump"]
        assert planned(*used, **more).holding[0]["ends"] == "by -e rotation=now, once all that share it have pump~2"
        assert planned(*used, now=True, **more).ended == ["pump"]


def test_a_user_that_removed_hosts_alone_use_ends_with_its_old_one():
    assert planned(removed=["pump"]).ended == ["pump", "pump~2"]


def test_a_user_without_an_entry_ends():
    held = rotation.mqtt_held(["pump", "pump~2", "old"], {})
    assert rotation.mqtt_plan([entry("lamp")], {}, [], held, is_now=False).ended == ["old", "pump", "pump~2"]


def test_mosquitto_goes_by_the_last_line_of_a_name():
    passwd = "a:$7$101$c2FsdA==$aGFzaA==\nbroken\n:$7$1$a$b\na:$7$101$c2FsdA==$bmV3\n"
    assert rotation.mqtt_hashes(passwd) == {"a": "$7$101$c2FsdA==$bmV3"}


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ([entry(rotation=0.5)], "rotation of pump in mosquitto_users is 0.5: give a number from 1 on"),
        ([entry(rotation=0)], "rotation of pump in mosquitto_users is 0"),
        ([entry(rotation=-1)], "rotation of pump in mosquitto_users is -1"),
        ([entry("a:b")], "a name in mosquitto_users is 'a:b': give one without colons"),
        ([entry("a\nb")], "a name in mosquitto_users is"),
        ([entry("pump~2", rotation=3)], "name in mosquitto_users is pump~2, with rotation 3: leave out its ~2"),
        ([entry(), entry()], "mosquitto_users has pump twice"),
        ([entry("pump~2"), entry(rotation=2)], "mosquitto_users has pump~2 twice"),
        ([entry() | {"acl": ["write devices/%u/#"]}], "acl of pump in mosquitto_users has write devices/%u/#"),
        ([entry() | {"acl": ["read %c"]}], "mosquitto takes %u and %c there as they are"),
    ],
)
def test_an_entry_that_mosquitto_cannot_serve_is_refused(entries, says):
    with pytest.raises(AnsibleError, match=says.replace("$", r"\$").replace("(", r"\(")):
        rotation.mqtt_plan(entries, {}, [], {}, is_now=False)


def test_a_rotation_of_a_device_goes_up_only():
    held = rotation.mqtt_held(["pump~3"], {})
    with pytest.raises(
        AnsibleError, match=r"rotation in mosquitto_users of pump is 2, .* has pump~3 already.*3 or more"
    ):
        rotation.mqtt_plan([entry(rotation=2)], {}, [], held, is_now=False)
