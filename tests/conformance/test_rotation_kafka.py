"""Rotations at Apache Kafka, by the script of the role kafka: both generations hold until the new one was used."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ansible_files import load
from tests.support.login_client import LoginClient, RefusedError
from tests.support.processes import ApacheKafka
from tests.support.secured_kafka import SCRAM_MODULE
from tests.support.waiting import CALL_S, wait_until

ADMIN, PASSWORD = "admin", "password of admin"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{ADMIN};User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "listener.name.login.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{ADMIN}="{PASSWORD}";'
    ),
    "listener.name.login.scram-sha-512.sasl.jaas.config": SCRAM_MODULE,
}
OWNERS = {"mirror-pi-1": ["pi-1"]}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    folder = tmp_path_factory.mktemp("kafka")
    with ApacheKafka(folder, listeners={"LOGIN": "SASL_PLAINTEXT"}, settings=SETTINGS) as running:
        yield running


class Host:
    """The host of this Kafka as the role's script sees it, and its runs; `reported`: a board has used the new one."""

    def __init__(self, kafka: ApacheKafka, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.port = kafka.ports["LOGIN"]
        self.changed: list[str] = []
        self.overtaken_by: list[str] = []
        self._monkeypatch = monkeypatch
        self._script: Any = load("roles/kafka/files/kafka_access.py")
        self._rotation: Any = load("plugins/action/site_rotation.py")
        properties = folder / "server.properties"
        properties.write_text(
            f'listeners=LOCAL://127.0.0.1:{self.port}\nlogin=username="{ADMIN}" password="{PASSWORD}"\n'
        )
        monkeypatch.setattr(self._script, "PROPERTIES", str(properties))
        monkeypatch.setattr(self._script, "REMEMBERED", str(folder / "access.json"))

    def say(self, order: dict[str, Any]) -> Any:
        said = io.StringIO()
        self._monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(order)))
        self._monkeypatch.setattr("sys.stdout", said)
        self._script.main()
        return json.loads(said.getvalue())

    def play(
        self,
        generation: int,
        *,
        reported: bool = False,
        now: bool = False,
        removed: int = 0,
        moved_to: str = "",
        meanwhile: Callable[[], Any] = lambda: None,
    ) -> Any:
        """One run of roles/kafka/tasks/access.yml; the plan. `moved_to` has the mirror now, and has not seen it.

        Another run does `meanwhile` between plan and order.
        """
        user = "mirror-pi-1" if generation == 1 else f"mirror-pi-1~{generation}"
        users = {} if removed or moved_to else {user: f"password {generation}"}
        unseen = {"mirror-pi-1": [moved_to]} if moved_to else {}
        acls = [[name, "TOPIC", "PREFIXED", "plant-7.", "WRITE"] for name in users]
        told = self.say({"show": True})
        held = {
            name: self._rotation.HeldUser(used=reported and name == user) for name in told["held"] if name != "drupelet"
        }
        order = self._rotation.Order(users, acls, OWNERS, {"pi-1": removed}, now, unseen)
        plan = self._rotation.plan(order, held, told["known"])
        order = {"users": users, "acls": plan.acls, "kept": plan.kept, "moved": plan.moved, "ended": plan.ended}
        meanwhile()
        answer = self.say(order | {"planned": list(told["held"])})
        self.changed, self.overtaken_by = answer["changed"], answer["meanwhile"]
        return plan

    def lets_in(self, user: str, generation: int) -> bool:
        try:
            with LoginClient(self.port) as client:
                client.log_in("SCRAM-SHA-512", user, f"password {generation}")
                return True
        except RefusedError:
            return False


@pytest.fixture
def host(kafka: ApacheKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    found = Host(kafka, tmp_path, monkeypatch)
    found.say({"users": {}, "acls": [], "kept": [], "ended": ["mirror-pi-1", "mirror-pi-1~2", "mirror-pi-1~3"]})
    return found


def becomes(host: Host, user: str, generation: int, *, let_in: bool) -> None:
    wait_until(
        lambda: host.lets_in(user, generation) is let_in, CALL_S, f"{user} is {'let in' if let_in else 'refused'}"
    )


def test_both_generations_hold_until_the_board_has_used_the_new_one(host):
    host.play(1)
    becomes(host, "mirror-pi-1", 1, let_in=True)
    assert host.play(2).kept == ["mirror-pi-1"]
    becomes(host, "mirror-pi-1~2", 2, let_in=True)
    assert host.lets_in("mirror-pi-1", 1)
    assert host.play(2).kept == ["mirror-pi-1"], "a run in which no board reported ends nothing"
    assert host.play(2, reported=True).ended == ["mirror-pi-1"]
    becomes(host, "mirror-pi-1", 1, let_in=False)
    assert host.lets_in("mirror-pi-1~2", 2)
    assert set(host.say({"show": True})["known"]) == {"mirror-pi-1~2"}


def test_a_mirror_that_moved_to_another_kafka_keeps_its_user_and_rights_until_it_was_seen_there(host):
    host.play(1)
    becomes(host, "mirror-pi-1", 1, let_in=True)
    assert host.play(1, moved_to="dc-2").moved == ["mirror-pi-1"]
    assert host.changed == []
    assert host.lets_in("mirror-pi-1", 1)
    assert host.play(1, moved_to="dc-2", now=True).ended == ["mirror-pi-1"]
    becomes(host, "mirror-pi-1", 1, let_in=False)
    assert "removed: WRITE by User:mirror-pi-1 on TOPIC PREFIXED plant-7." in host.changed


def test_a_second_run_makes_no_password_again(host):
    host.play(1)
    host.play(2)
    order = {"users": {"mirror-pi-1~2": "password 2"}, "acls": [], "kept": ["mirror-pi-1"], "ended": []}
    assert host.say(order)["changed"] == [
        "removed: WRITE by User:mirror-pi-1 on TOPIC PREFIXED plant-7.",
        "removed: WRITE by User:mirror-pi-1~2 on TOPIC PREFIXED plant-7.",
    ]
    becomes(host, "mirror-pi-1", 1, let_in=True)


def test_a_run_with_an_older_inventory_brings_no_ended_log_in_back_beside_another_run(host):
    """It made its plan before the other run ended a password that had leaked."""
    host.play(1)
    becomes(host, "mirror-pi-1", 1, let_in=True)
    host.play(1, meanwhile=lambda: Host.play(host, 2, now=True))
    becomes(host, "mirror-pi-1~2", 2, let_in=True)
    becomes(host, "mirror-pi-1", 1, let_in=False)
    assert host.overtaken_by == ["mirror-pi-1", "mirror-pi-1~2"]


@pytest.mark.parametrize("how", [{"now": True}, {"removed": 3}])
def test_a_leak_and_a_removal_end_every_generation_at_once(host, how):
    for generation in (1, 2):
        host.play(generation)
    becomes(host, "mirror-pi-1~2", 2, let_in=True)
    host.play(3, **how)
    becomes(host, "mirror-pi-1", 1, let_in=False)
    becomes(host, "mirror-pi-1~2", 2, let_in=False)
    becomes(host, "mirror-pi-1~3", 3, let_in="now" in how)
