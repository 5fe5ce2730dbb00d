"""Whose session is read, what it is subscribed to, and who fights over it; no broker, no socket.

Invariants:
- a filter is forgotten only after it was unsubscribed, whenever the process is killed;
- a site that had the default id of older versions keeps it, and its queue;
- a session of another name is told as left behind until that is in the ledger.
"""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from gateway import state
from gateway.sources.mqtt.mqtt_session import (
    QUICK_ENDS_MIN,
    TAKEN_OVER,
    ConnectionEnds,
    MqttSession,
    forgotten_session,
)


def test_the_default_id_holds_the_hosts_name(tmp_path: Path) -> None:
    assert MqttSession(tmp_path, None).client_id == f"drupelet-gateway-{platform.node()}"


def test_a_site_of_an_older_version_keeps_its_session(tmp_path: Path) -> None:
    state.save(tmp_path / "mosquitto.json", {"session": True})
    session = MqttSession(tmp_path, None)
    assert (session.client_id, session.left_behind) == ("drupelet-gateway", None)
    named = MqttSession(tmp_path, "plant-7")  # an older version with an id of its own in the file
    assert (named.client_id, named.left_behind) == ("plant-7", None)


async def test_the_id_stays_when_the_host_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "before")
    await MqttSession(tmp_path, None).about_to_subscribe(["a"])
    monkeypatch.setattr(platform, "node", lambda: "after")
    assert MqttSession(tmp_path, None).client_id == "drupelet-gateway-before"


async def test_what_went_out_of_the_file_is_outdated_until_it_is_unsubscribed(tmp_path: Path) -> None:
    await MqttSession(tmp_path, "me").about_to_subscribe(["a", "b"])  # killed before it subscribed
    session = MqttSession(tmp_path, "me")
    assert session.outdated_filters(["b", "c"]) == ["a"]
    await session.about_to_subscribe(["b", "c"])  # killed before it unsubscribed
    assert MqttSession(tmp_path, "me").outdated_filters(["b", "c"]) == ["a"]
    await session.save_subscriptions(["b", "c"])
    assert MqttSession(tmp_path, "me").outdated_filters(["b", "c"]) == []
    assert MqttSession(tmp_path, "me").outdated_filters([]) == ["b", "c"]


async def test_another_id_leaves_the_old_session_behind_until_it_is_noted(tmp_path: Path) -> None:
    await MqttSession(tmp_path, "old").save_subscriptions(["a"])
    for _ in range(2):  # a start that was killed finds the same
        session = MqttSession(tmp_path, "new")
        assert (session.left_behind, session.changes) == ("old", 1)
    assert session.outdated_filters(["b"]) == []  # the new session has nothing yet
    await session.about_to_subscribe(["b"])
    assert MqttSession(tmp_path, "new").left_behind is None
    back = MqttSession(tmp_path, "old")
    assert (back.left_behind, back.changes) == ("new", 2)
    assert forgotten_session(tmp_path) == "new"


@pytest.mark.parametrize(
    "content",
    [
        *(
            {"client_id": 1},
            {"client_id": ""},
            {"client_id": "a", "subscriptions": [1], "changes": 0},
            {"client_id": "a"},
        ),
        {"client_id": "a", "subscriptions": [], "changes": True},
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, content: dict[str, object]) -> None:
    state.save(tmp_path / "mqtt-session.json", content)
    with pytest.raises(state.StateError, match=r"mqtt-session\.json holds no session: remove it"):
        MqttSession(tmp_path, None)


def test_a_session_that_is_taken_over_is_told_for_a_while() -> None:
    ends = ConnectionEnds("me")
    assert ends.problem(0) is None
    ends.connection_ended(TAKEN_OVER, 100, now_s=0)
    assert 'another client uses the client_id "me" and took the session over once' in str(ends.problem(1))
    ends.connection_ended(TAKEN_OVER, 100, now_s=2)
    assert "2 times: give each gateway its own mqtt.client_id" in str(ends.problem(3))
    assert ends.problem(93) is None


def test_a_bad_network_is_no_fight_but_quick_ends_are_told() -> None:
    ends = ConnectionEnds("me")
    for _ in range(QUICK_ENDS_MIN):
        ends.connection_ended("Unspecified error", 30, now_s=1)
    assert ends.problem(2) is None
    for _ in range(QUICK_ENDS_MIN):
        ends.connection_ended("Unspecified error", 0.1, now_s=1)
    assert 'another client uses the client_id "me", or the network is bad' in str(ends.problem(2))
