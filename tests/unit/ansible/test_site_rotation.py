"""Which old log-ins end after a rotation, and which stay: the plan, without any broker."""

from __future__ import annotations

import random
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleError

from tests.support.ansible_files import ANSIBLE, load

rotation = load("plugins/action/site_rotation.py")
HeldUser, Order, plan = rotation.HeldUser, rotation.Order, rotation.plan
USED, NEVER = HeldUser(used=True, first_log_in="2026-11-01T00:00:00.000Z"), HeldUser(first_log_in="never")
ACLS = [["mirror-pi-1~2", "TOPIC", "PREFIXED", "plant-7.", "WRITE"], ["admin2", "TOPIC", "LITERAL", "a", "READ"]]
OWNERS = {"mirror-pi-1": ["pi-1"]}


def order(users: list[str], **more: Any) -> Any:
    return Order(users, more.pop("acls", []), more.pop("owners", OWNERS), more.pop("removed", {}), **more)


def test_an_old_log_in_stays_with_the_rights_of_the_new_one_until_that_was_used():
    wanted = order(["admin", "mirror-pi-1~2"], acls=ACLS)
    first = plan(wanted, {"admin": USED, "mirror-pi-1": USED}, ["admin", "mirror-pi-1"])
    assert (first.kept, first.ended) == (["mirror-pi-1"], [])
    assert ["mirror-pi-1", "TOPIC", "PREFIXED", "plant-7.", "WRITE"] in first.acls
    assert len(first.acls) == 3
    unused = plan(wanted, {"mirror-pi-1": USED, "mirror-pi-1~2": NEVER}, ["mirror-pi-1", "mirror-pi-1~2"])
    assert unused.kept == ["mirror-pi-1"]
    used = plan(wanted, {"mirror-pi-1": USED, "mirror-pi-1~2": USED}, ["mirror-pi-1", "mirror-pi-1~2"])
    assert (used.kept, used.ended, used.acls) == ([], ["mirror-pi-1"], sorted(ACLS))


def test_what_still_holds_is_listed_by_board_and_service():
    found = plan(order(["mirror-pi-1~2"]), {"mirror-pi-1": USED, "mirror-pi-1~2": NEVER}, ["mirror-pi-1"])
    assert found.holding == [
        {
            "user": "mirror-pi-1",
            "service": "mirror",
            "board": "pi-1",
            "first_log_in": USED.first_log_in,
            "last_log_in": "unknown",
            "ends": "in the first run after mirror-pi-1~2 has logged in",
        }
    ]


def test_two_rotations_before_an_offline_board_returns_keep_three_generations():
    wanted = order(["mirror-pi-1~3"], acls=[["mirror-pi-1~3", "TOPIC", "LITERAL", "t", "WRITE"]])
    held = {"mirror-pi-1": USED, "mirror-pi-1~2": NEVER, "mirror-pi-1~3": NEVER}
    found = plan(wanted, held, list(held))
    assert found.kept == ["mirror-pi-1", "mirror-pi-1~2"]
    assert {row[0] for row in found.acls} == set(held)
    returned = plan(wanted, held | {"mirror-pi-1~3": USED}, list(held))
    assert returned.ended == ["mirror-pi-1", "mirror-pi-1~2"]


def test_one_word_ends_every_old_log_in_at_once():
    held = {"mirror-pi-1": USED, "mirror-pi-1~2": NEVER, "gateway-pi-1": USED}
    found = plan(order(["mirror-pi-1~2", "gateway-pi-1"], is_now=True), held, list(held))
    assert (found.kept, found.ended) == ([], ["mirror-pi-1"])


def refused(wanted: Any, held: dict[str, Any]) -> dict[str, str]:
    """What the word locks out, by user, and why it may."""
    found = plan(wanted, held, list(held))
    assert {row["user"] for row in found.refused} <= set(found.ended)
    return {row["user"]: row["why"] for row in found.refused}


def test_the_word_lists_each_log_in_that_a_service_may_still_use():
    never = {"mirror-pi-1": USED, "mirror-pi-1~2": NEVER}
    wanted = order(["mirror-pi-1~2"], is_now=True)
    assert refused(wanted, never) == {"mirror-pi-1": "mirror-pi-1~2 has not logged in"}
    assert refused(wanted, {"mirror-pi-1": USED}) == {"mirror-pi-1": "mirror-pi-1~2 has not logged in"}
    assert refused(wanted, never | {"mirror-pi-1~2": USED}) == {}
    assert refused(order(["mirror-pi-1~2"]), never) == {}
    back = never | {"mirror-pi-1": USED._replace(in_use=True), "mirror-pi-1~2": USED}
    assert refused(wanted, back) == {"mirror-pi-1": "its last log-in is newer than that of mirror-pi-1~2"}
    twice = refused(order(["mirror-pi-1~3"], is_now=True), never | {"mirror-pi-1~3": NEVER})
    assert set(twice) == {"mirror-pi-1", "mirror-pi-1~2"}


def test_the_word_lists_log_ins_that_boards_share_and_those_of_services_that_moved_and_not_removed_ones():
    shared = {"spark-pi-3": ["pi-2", "pi-3"]}
    held = {"spark-pi-3": USED, "spark-pi-3~2": USED}
    wanted = order(["spark-pi-3~2"], owners=shared, is_now=True, reports={"spark-pi-3~2": {"pi-2"}})
    assert refused(wanted, held) == {"spark-pi-3": "not all that share it are known to use spark-pi-3~2"}
    moved = order(["admin"], unseen={"mirror-pi-1": ["dc-2"]}, is_now=True)
    assert refused(moved, {"mirror-pi-1": USED}) == {
        "mirror-pi-1": "its service moved to dc-2 and was not seen there in this run"
    }
    assert refused(order([], removed={"pi-1": 1}, is_now=True), {"mirror-pi-1": USED}) == {}


def test_a_removed_boards_log_ins_end_whatever_was_used():
    held = {"mirror-pi-2": USED, "mirror-pi-2~2": NEVER, "mirror-pi-1": USED}
    found = plan(order(["mirror-pi-1"], removed={"pi-2": 2}), held, ["mirror-pi-1"])
    assert found.ended == ["mirror-pi-2", "mirror-pi-2~2"]


def test_a_new_board_of_a_removed_ones_name_inherits_no_overlap():
    """The broker was away when the board was removed: the stolen password must not hold until the new board comes."""
    found = plan(order(["mirror-pi-1~2"], removed={"pi-1": 1}), {"mirror-pi-1": USED}, ["mirror-pi-1"])
    assert (found.kept, found.ended) == ([], ["mirror-pi-1"])


def test_a_log_in_that_several_boards_share_ends_once_each_has_used_the_new_one():
    """The broker's own record tells of one use, not of whose."""
    shared = {"spark-pi-3": ["pi-2", "pi-3"]}
    held = {"spark-pi-3": USED, "spark-pi-3~2": USED}

    def ended(*hosts: str, user: str = "spark-pi-3~2", now: bool = False) -> list[str]:
        wanted = order(["spark-pi-3~2"], owners=shared, reports={user: set(hosts)}, is_now=now)
        found: list[str] = plan(wanted, held, list(held)).ended
        return found

    found = plan(order(["spark-pi-3~2"], owners=shared), held, list(held))
    assert found.kept == ["spark-pi-3"]
    assert found.holding[0]["ends"] == "in the first run in which each of pi-2, pi-3 uses spark-pi-3~2"
    assert ended() == ended("pi-3") == ended("pi-2", "pi-3", user="spark-pi-3") == []
    assert ended("pi-2", "pi-3") == ended("pi-1", "pi-2", "pi-3") == ended(now=True) == ["spark-pi-3"]


def held_by(**last: int) -> Any:
    """What edge-broker has recorded: generation, as `g2`, and the millisecond of its last log-in, 0 for none."""
    users = {"mirror-pi-1" if name == "g1" else f"mirror-pi-1~{name[1:]}": ms for name, ms in last.items()}
    return rotation.broker_held(
        {
            user: {"first_log_in": "2026" if ms else "never", "last_log_in": "2026", "last_ms": ms}
            for user, ms in users.items()
        },
        (),
    )


@pytest.mark.parametrize(
    ("last", "ended"),
    [
        ({"g1": 10, "g2": 20}, ["mirror-pi-1"]),
        ({"g1": 30, "g2": 20}, []),
        ({"g1": 30, "g2": 0}, []),
        ({"g1": 20, "g2": 20}, ["mirror-pi-1"]),
    ],
)
def test_an_old_log_in_that_was_used_after_the_new_one_stays(last, ended):
    """The service got its former files back, with its former password."""
    found = plan(order(["mirror-pi-1~2"]), held_by(**last), [])
    assert found.ended == ended
    assert len(found.holding) == 1 - len(ended)


def test_of_three_generations_the_one_that_the_service_fell_back_to_stays():
    held = held_by(g1=10, g2=30, g3=20)
    found = plan(order(["mirror-pi-1~3"]), held, [])
    assert (found.ended, found.kept) == (["mirror-pi-1"], ["mirror-pi-1~2"])
    assert "one still uses mirror-pi-1~2" in found.holding[0]["ends"]
    assert plan(order(["mirror-pi-1~3"]), held_by(g1=10, g2=30, g3=40), []).ended == ["mirror-pi-1", "mirror-pi-1~2"]


MOVED = {"mirror-pi-1": ["dc-2"]}


def test_a_user_whose_service_moved_to_another_broker_holds_until_it_was_seen_there():
    held = {"mirror-pi-1": USED, "admin": USED}
    found = plan(order(["admin"], unseen=MOVED), held, list(held))
    assert (found.kept, found.moved, found.ended, found.acls) == (["mirror-pi-1"], ["mirror-pi-1"], [], [])
    assert found.holding[0]["board"] == "pi-1"
    assert found.holding[0]["ends"] == "in the first run in which its service, which moved, uses dc-2"
    assert plan(order(["admin"], unseen={"mirror-pi-1": []}), held, list(held)).ended == ["mirror-pi-1"]


def test_a_service_that_moved_in_the_middle_of_a_rotation_keeps_both_of_its_users():
    held = {"mirror-pi-1": USED, "mirror-pi-1~2": NEVER}
    assert plan(order([], unseen=MOVED), held, list(held)).kept == ["mirror-pi-1", "mirror-pi-1~2"]
    assert plan(order([], unseen={"mirror-pi-1": []}), held, list(held)).ended == ["mirror-pi-1", "mirror-pi-1~2"]


@pytest.mark.parametrize("more", [{"is_now": True}, {"removed": {"pi-1": 2}}, {"unseen": {}}])
def test_a_moved_user_ends_by_the_word_with_its_board_and_with_its_service(more):
    held = {"mirror-pi-1": USED, "mirror-pi-1~2": NEVER}
    assert plan(order([], **{"unseen": MOVED, **more}), held, list(held)).ended == ["mirror-pi-1", "mirror-pi-1~2"]


def test_a_user_of_others_with_the_name_of_a_moved_one_is_left_alone():
    found = plan(order([], unseen=MOVED), {"mirror-pi-1": USED}, known=[])
    assert (found.kept, found.ended) == ([], [])


class Hostvars(dict[str, dict[str, Any]]):
    """Facts of this run, as Ansible gives them to an action."""

    def raw_get(self, host: str) -> dict[str, Any]:
        return self.get(host, {})


def unseen(places: list[Any], **facts: Any) -> list[str]:
    found: list[str] = rotation._unseen_brokers(places, rotation._reports(Hostvars(facts), list(facts)))
    return found


def test_a_moved_service_was_seen_where_its_board_reports_so_in_this_run():
    places = [["dc2", "mirror-pi1~2", ["pi1"]]]
    assert unseen(places) == unseen(places, pi1={"security_reported": ["dc1 mirror-pi1~2"]}) == ["dc2"]
    assert unseen(places, pi1={"security_reported": ["dc2 mirror-pi1"]}) == ["dc2"]
    assert unseen(places, pi1={"security_reported": ["dc2 mirror-pi1~2"]}) == []


def test_a_moved_service_must_be_seen_at_each_broker_that_it_uses_and_from_each_board_that_shares_it():
    two = [["dc2", "mirror-pi1", ["pi1"]], ["pi1", "mirror-pi1", ["pi1"]]]
    assert unseen(two, pi1={"security_reported": ["pi1 mirror-pi1"]}) == ["dc2"]
    shared = [["pi4", "spark-pi4", ["pi1", "pi2"]]]
    assert unseen(shared, pi1={"security_reported": ["pi4 spark-pi4"]}) == ["pi4"]
    assert unseen(shared, **{pi: {"security_reported": ["pi4 spark-pi4"]} for pi in ("pi1", "pi2")}) == []


def test_a_rotation_goes_up_only():
    with pytest.raises(AnsibleError, match="security_rotation of pi-1 is 1, and the broker has mirror-pi-1~2 already"):
        plan(order(["mirror-pi-1"]), {"mirror-pi-1": USED, "mirror-pi-1~2": NEVER}, [])
    with pytest.raises(AnsibleError, match=r"scada is an older log-in than scada~4.*name it scada~5"):
        plan(order(["scada"], owners={}), {"scada~4": NEVER}, [])


def test_users_of_others_stay_and_ours_that_are_no_longer_wanted_go():
    found = plan(order(["mirror-pi-1"]), {"ops": NEVER, "ops~2": NEVER, "gateway-pi-1": USED}, ["gateway-pi-1"])
    assert (found.kept, found.ended) == ([], ["gateway-pi-1"])


def test_a_run_cut_off_after_the_users_were_made_is_continued():
    """Nobody has written down yet that they are ours: neither is lost sight of."""
    held = {"mirror-pi-1": USED, "mirror-pi-1~2": USED}
    assert plan(order(["mirror-pi-1~2"]), held, known=[]).ended == ["mirror-pi-1"]


def test_broker_users_rotate_by_a_name_of_the_next_generation():
    found = plan(order(["scada~2"], owners={}), {"scada": USED}, ["scada"])
    assert (found.kept, found.holding[0]["board"]) == (["scada"], "unknown")
    both = plan(order(["scada", "scada~2"], owners={}), {"scada": USED, "scada~2": USED}, ["scada", "scada~2"])
    assert (both.kept, both.ended) == ([], [])


def test_any_sequence_of_rotations_log_ins_and_runs_never_locks_a_board_out():
    """A board logs in by what it was given; the broker must have it, unless the word or a removal ended it."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    for _ in range(300):
        held, wanted, board = {"mirror-pi-1": USED}, 1, "mirror-pi-1"
        for _ in range(30):
            match chance.choice(("rotate", "play broker", "play board", "log in")):
                case "rotate":
                    wanted += 1
                case "play broker":
                    newest = f"mirror-pi-1~{wanted}" if wanted > 1 else "mirror-pi-1"
                    found = plan(order([newest]), held, list(held))
                    held = {user: held.get(user, NEVER) for user in (*found.kept, newest)}
                case "play board":
                    board = max(held, key=lambda user: rotation.generation_of(user)[1])
                case "log in":
                    assert board in held, f"seed {seed}: {board} is locked out of {sorted(held)}"
                    held[board] = USED


@pytest.mark.parametrize(
    ("role", "files"),
    [
        ("gateway", {"/etc/drupelet/gateway-password", "/etc/drupelet/gateway-mqtt-password"}),
        ("mirror", {"/etc/drupelet/mirror-password", "/etc/drupelet/mirror-target-password"}),
    ],
)
def test_a_service_that_fails_after_a_rotation_gets_its_former_password_with_its_former_user(role, files):
    """The configuration names the generation, so a restored one needs the password that belongs to it."""
    tasks = yaml.safe_load((ANSIBLE / f"roles/{role}/tasks/main.yml").read_text())
    assert files <= set(tasks[0]["vars"]["drupelet_files"])
