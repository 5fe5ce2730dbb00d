"""A derivation or a secret changes by the overlapping rotation: no order of plays locks a service out."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from ansible.errors import AnsibleError

from tests.support.ansible.preflight import BOARD, look, preflight
from tests.support.ansible.preflight import board as inventory_of
from tests.support.ansible_files import load

site_access = load("plugins/action/site_access.py")
rotation = load("plugins/action/site_rotation.py")
passwords = site_access.passwords
SECRET, NEW = "a secret of 24 characters", "k4Tq9ZbXw2Rm7VdYp3Ls8NfHc6Jg5Ue1"
TARGET, USER = "10.0.0.9:9092", "mirror-pi-1"
BY_HMAC = {"through": 1, "derivation": "hmac"}
BY_SCRYPT = {"through": 1, "derivation": "scrypt"}


@pytest.fixture(autouse=True)
def _cheap(monkeypatch):
    """Make scrypt cheap: its cost is a matter of test_site_passwords.py."""
    monkeypatch.setattr(passwords, "SCRYPT_N", 16)
    monkeypatch.setattr(passwords, "KEYS", passwords.Keys())


def site(derivation: str = "hmac", number: int = 1, *former: dict[str, Any], secret: str = SECRET) -> Any:
    """pi-1, whose mirror writes to dc-1."""
    settings = {"security_secret": secret, "security_derivation": derivation, "security_former": list(former)}
    hosts = {
        "pi-1": settings | {"security_rotation": number, "mirror_target": TARGET, "mirror_site": "plant-7.pi-1"},
        "dc-1": {
            "security_secret": secret,
            "security_derivation": "hmac",
            "security_former": [],
            "ansible_host": "10.0.0.9",
            "central_listen": "0.0.0.0:9092",
        },
    }
    groups = {"all": ["pi-1", "dc-1"], "central": ["dc-1"], "mirror": ["pi-1"]}
    return site_access.Site(hosts, groups, "")


def password(of: Any, number: int = 0) -> str:
    found: str = of.password("pi-1", USER, number)
    return found


def given(of: Any, has: list[str] | None, present: str = "") -> tuple[str, str]:
    """The user and password that the mirror of pi-1 is given for dc-1; it is not refused."""
    client = of.client("pi-1", "mirror", TARGET, has, present)
    assert client.refusal == ""
    return client.user, client.password


CHANGES = {
    "to scrypt": (site("hmac"), site("scrypt", 2, BY_HMAC)),
    "back to hmac": (site("scrypt"), site("hmac", 2, BY_SCRYPT)),
    "a new secret": (site("hmac"), site("hmac", 2, BY_HMAC | {"secret": SECRET}, secret=NEW)),
    "both": (site("hmac"), site("scrypt", 2, BY_HMAC | {"secret": SECRET}, secret=NEW)),
    "two changes": (site("hmac"), site("scrypt", 3, BY_HMAC, {"through": 2, "derivation": "scrypt", "secret": NEW})),
}


@pytest.mark.parametrize(("before", "after"), CHANGES.values(), ids=CHANGES)
def test_the_broker_first_then_the_service(before, after):
    old, newest = password(before), after.user("mirror", "pi-1")
    assert after.users("dc-1")[newest] == password(after) != old
    assert password(after, 1) == old, "a new card of the board gets the old password, too"
    assert given(after, [USER, newest], old) == (newest, password(after))


@pytest.mark.parametrize(("before", "after"), CHANGES.values(), ids=CHANGES)
def test_the_service_first_then_the_broker(before, after):
    old = password(before)
    assert given(after, [USER], old) == (USER, old)
    assert given(after, [USER]) == (USER, old), "a new card"
    assert given(after, None, old) == (USER, old), "its broker cannot be asked"
    assert given(after, [], old) == (USER, old), "an older version has made the broker's users"


def test_the_same_secret_gives_another_password_by_each_derivation():
    assert password(site("hmac")) != password(site("scrypt"))


def test_a_secret_that_is_gone_leaves_a_service_its_password_while_its_broker_lacks_the_newest():
    """The former secret was lost: nobody can say what the old password was but the board that has it."""
    old = password(site("hmac"))
    assert given(site("hmac", 2, secret=NEW), [USER], old) == (USER, old)


def test_a_service_whose_password_is_of_another_rotation_gets_the_one_that_its_broker_has():
    after = site("scrypt", 3, {"through": 2, "derivation": "hmac"})
    assert given(after, [USER], password(after, 2)) == (USER, password(site("hmac")))


@pytest.mark.parametrize(("first", "second"), [("hmac", "scrypt"), ("scrypt", "hmac")])
@pytest.mark.parametrize("has", [[USER], None, []])
def test_a_service_is_refused_another_derivation_without_a_rotation(first, second, has):
    old = password(site(first))
    client = site(second).client("pi-1", "mirror", TARGET, has, old)
    assert client.password == old, "nothing is changed, whoever goes on without the refusal"
    assert f"The password of {USER} comes by {first}, and the inventory has rotation 1 of pi-1 come by {second}" in (
        client.refusal
    )
    assert "would be locked out until they are played" in client.refusal
    assert (
        f"set security_rotation of pi-1 to 2, and let security_former of pi-1 say {{through: 1, derivation: {first}}}."
        in client.refusal
    )
    assert old not in client.refusal


def test_a_secret_that_is_replaced_without_a_rotation_changes_at_once_as_ever():
    assert given(site("hmac", secret=NEW), [USER], password(site("hmac"))) == (USER, password(site(secret=NEW)))


@pytest.mark.parametrize(("first", "second"), [("hmac", "scrypt"), ("scrypt", "hmac")])
def test_a_broker_is_refused_another_derivation_of_what_it_has(first, second):
    by_scrypt = [USER] if first == "scrypt" else []
    site(first).check_derivations([USER], by_scrypt)
    with pytest.raises(AnsibleError, match=r"would be locked out.*set security_rotation of pi-1 to 2"):
        site(second).check_derivations([USER], by_scrypt)
    former = {"through": 1, "derivation": first}
    with pytest.raises(AnsibleError, match=rf"let security_former of pi-1 say \{{through: 1, derivation: {first}\}}"):
        site(second, 2).check_derivations([USER], by_scrypt)
    site(second, 2, former).check_derivations([USER], by_scrypt)
    site(second, 2, former).check_derivations([USER, f"{USER}~2"], by_scrypt if second == "hmac" else [f"{USER}~2"])


def test_users_of_nobodys_rotation_are_left_to_other_checks():
    found = site("scrypt", 2)
    found.check_derivations([f"{USER}~3", "admin", "scada", "mirror-pi-9", "ops~2"], [])
    without = site("scrypt", secret="")
    without.check_derivations([USER], [])
    removed = site_access.Site(found._hosts, found.groups, "pi-1 1\n")
    removed.check_derivations([USER], [])


def test_any_sequence_of_rotations_changes_and_plays_never_locks_a_board_out():
    """The inventory says what each rotation came from, as the sentences ask for; the broker checks the password."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    for _ in range(60):
        number, derivation, secret, former = 1, "hmac", SECRET, []
        now = site()
        held, board = {USER: password(now)}, (USER, password(now))
        used: set[str] = set()
        for _ in range(25):
            match chance.choice(("rotate", "derivation", "secret", "play broker", "play board", "new card", "log in")):
                case "rotate" | "derivation" | "secret" as what:
                    former.append({"through": number, "derivation": derivation, "secret": secret})
                    number += 1
                    if what == "derivation":
                        derivation = "scrypt" if derivation == "hmac" else "hmac"
                    if what == "secret":
                        secret = f"{chance.randrange(1 << 80):030d}"
                    now = site(derivation, number, *former, secret=secret)
                case "play broker":
                    users, newest = now.users("dc-1"), now.user("mirror", "pi-1")
                    have = {user: rotation.HeldUser(user in used) for user in held}
                    order = rotation.Order([newest], [], {USER: ["pi-1"]}, {})
                    kept = rotation.plan(order, have, list(held)).kept
                    held = {user: held[user] for user in kept} | {newest: users[newest]}
                case "play board":
                    board = given(now, list(held), board[1])
                case "new card":
                    board = given(now, list(held))
                case "log in":
                    user, mine = board
                    assert held.get(user) == mine, f"seed {seed}: {user} is locked out of {sorted(held)}"
                    used.add(user)


# --- preflight -------------------------------------------------------------------------------------------------------


def found(tmp_path: Any, *log_ins: str, **variables: Any) -> list[str]:
    """What preflight finds of a board with these log-ins at its broker."""
    given = inventory_of("broker", security_secret=NEW, **variables)
    lines: list[str] = look(given, tmp_path=tmp_path, answer=BOARD + "".join(f"log_in {one}\n" for one in log_ins))
    return lines


@pytest.mark.parametrize("derivation", ["argon2", "HMAC", "", None, 1, ["scrypt"]])
def test_preflight_names_a_derivation_that_there_is_none_of(derivation, tmp_path):
    lines = found(tmp_path, security_derivation=derivation)
    assert any("write hmac or scrypt. [security_derivation]" in line for line in lines), lines


@pytest.mark.parametrize(
    "former", ["hmac", [{"through": 1, "derivation": "hmac"}], [{"through": "x", "derivation": "hmac"}]]
)
def test_preflight_names_a_former_derivation_that_cannot_be(former, tmp_path):
    assert any("security_former" in line for line in found(tmp_path, security_former=former))


@pytest.mark.parametrize(
    "former",
    [
        {"through": 1, "derivation": "hmac", "secret": SECRET},
        [{"through": 1, "derivation": "hmac", "secret": SECRET}, 1],
        [{"through": 1, "derivation": SECRET[:3], "secret": SECRET}],
        [{"through": 1, "derivation": "hmac", "secrets": SECRET}],
        [{"through": 1, "derivation": "hmac", "secret": [SECRET]}],
    ],
)
def test_preflight_shows_no_former_secret(former, tmp_path):
    lines = found(tmp_path, security_former=former, security_rotation=2)
    assert SECRET not in "\n".join(lines)


def test_preflight_lets_a_site_by_either_derivation_be(tmp_path):
    assert found(tmp_path, "gateway-pi-1 hmac", "admin hmac") == []
    assert found(tmp_path, "gateway-pi-1 scrypt", security_derivation="scrypt") == []
    rotated = {"security_derivation": "scrypt", "security_rotation": 2, "security_former": [BY_HMAC]}
    assert found(tmp_path, "gateway-pi-1 hmac", **rotated) == []
    assert found(tmp_path, "gateway-pi-1 hmac", "gateway-pi-1~2 scrypt", **rotated) == []


@pytest.mark.parametrize(("first", "second"), [("hmac", "scrypt"), ("scrypt", "hmac")])
def test_preflight_refuses_another_derivation_without_a_rotation(first, second, tmp_path):
    (line,) = found(tmp_path, f"gateway-pi-1 {first}", security_derivation=second)
    assert f"pi-1: The password of gateway-pi-1 comes by {first}" in line
    assert "would be locked out until they are played" in line
    assert (
        f"set security_rotation of pi-1 to 2, and let security_former of pi-1 say {{through: 1, derivation: {first}}}"
        in line
    )


def test_preflight_refuses_a_rotation_that_forgets_what_the_old_log_in_came_from(tmp_path):
    changed = {"security_derivation": "scrypt", "security_rotation": 2}
    (line,) = found(tmp_path, "gateway-pi-1 hmac", "gateway-pi-1~2 scrypt", **changed)
    assert "let security_former of pi-1 say {through: 1, derivation: hmac}." in line
    assert "set security_rotation" not in line
    assert found(tmp_path, "gateway-pi-1 hmac", rotation="now", **changed) == [], "the run ends it"


def test_the_answer_of_a_host_has_its_log_ins():
    host = preflight.Host(
        preflight.KnownSettings(), "pi-1", ["broker"], {}, "log_in gateway-pi-1~2 scrypt\nlog_in admin hmac\n"
    )
    assert host.log_ins == {"gateway-pi-1~2": "scrypt", "admin": "hmac"}


def test_the_sentence_of_a_refusal_has_a_remedy_that_passes():
    """The values that it names are taken from it and given to the site."""
    client = site("scrypt", 1).client("pi-1", "mirror", TARGET, [USER], password(site("hmac")))
    number = int(re.findall(r"security_rotation of pi-1 to (\d+)", client.refusal)[0])
    through, derivation = re.findall(r"\{through: (\d+), derivation: (\w+)\}", client.refusal)[0]
    mended = site("scrypt", number, {"through": int(through), "derivation": derivation})
    assert given(mended, [USER], password(site("hmac"))) == (USER, password(site("hmac")))
