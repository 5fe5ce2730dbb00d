"""Rotations of passwords at a real edge broker: an old log-in holds until the new one was used, and then ends.

The play is that of the role broker, without hosts (tests/support/rotation_play.py); the clients log in by SCRAM.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_broker.protocol.messages.metadata import MetadataRequest
from tests.support.login_client import LoginClient, RefusedError
from tests.support.rotation_play import STEPS, Play
from tests.support.secured_edge import SecuredEdge
from tests.support.secured_kafka import USER
from tests.support.waiting import CALL_S, wait_until

OWNERS = {"gateway-pi-1": ["pi-1"], "mirror-pi-2": ["pi-2"]}
RIGHTS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{USER};User:ANONYMOUS",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SecuredEdge]:
    with SecuredEdge(tmp_path / "broker", settings=RIGHTS) as running:
        yield running


def site(gateway: int = 1, mirror: int = 1, *, without: str = "") -> dict[str, str]:
    """The users of a site by the rotation of each board, with their passwords."""
    names = {"gateway-pi-1": gateway, "mirror-pi-2": mirror}
    return {
        name if number == 1 else f"{name}~{number}": f"password {number} of {name}"
        for name, number in names.items()
        if name != without
    }


def rights(users: dict[str, str]) -> list[list[str]]:
    return [[user, "TOPIC", "LITERAL", "readings", word] for user in users for word in ("CREATE", "DESCRIBE", "WRITE")]


def played(play: Play, users: dict[str, str], **more: object) -> list[str]:
    return play.run(users, rights(users), owners=OWNERS, **more)  # type: ignore[arg-type]


def logged_in(broker: SecuredEdge, user: str, number: int) -> LoginClient:
    client = LoginClient(broker.login_port)
    base = user.partition("~")[0]
    try:
        client.log_in("SCRAM-SHA-512", user, f"password {number} of {base}")
    except RefusedError:
        client.__exit__()
        raise
    return client


def lets_in(broker: SecuredEdge, user: str, number: int) -> bool:
    """Whether the broker lets the user in, with the right to ask for the topic."""
    try:
        with logged_in(broker, user, number):
            return True
    except RefusedError:
        return False


def wait_let_in(broker: SecuredEdge, user: str, number: int) -> None:
    """The broker rereads its users within a second."""
    wait_until(lambda: lets_in(broker, user, number), CALL_S, f"{user} is let in")


def use(broker: SecuredEdge, play: Play, user: str, number: int) -> None:
    """Log in, as the service does when it is started again, and wait until the broker has recorded that."""
    wait_let_in(broker, user, number)
    wait_until(lambda: play.held()[user]["first_log_in"] != "never", CALL_S, f"the log-in of {user} is recorded")


def refused(broker: SecuredEdge, user: str, number: int) -> None:
    wait_until(lambda: not lets_in(broker, user, number), CALL_S, f"{user} is refused")


def test_the_old_log_in_holds_until_the_new_one_was_used_and_the_next_run_ends_it(broker, tmp_path):
    play = Play(broker.data_dir)
    played(play, site())
    use(broker, play, "gateway-pi-1", 1)
    played(play, site(gateway=2))
    assert lets_in(broker, "gateway-pi-1", 1)
    assert play.holding == ["gateway-pi-1"]
    played(play, site(gateway=2))
    assert lets_in(broker, "gateway-pi-1", 1), "a second run of the broker's tag must end nothing"
    use(broker, play, "gateway-pi-1~2", 2)
    played(play, site(gateway=2))
    refused(broker, "gateway-pi-1", 1)
    assert play.holding == []
    assert lets_in(broker, "gateway-pi-1~2", 2)
    assert played(play, site(gateway=2)) == []


def test_the_old_log_in_has_the_same_rights_and_loses_them_with_its_end(broker):
    play = Play(broker.data_dir)
    played(play, site())
    use(broker, play, "gateway-pi-1", 1)
    played(play, site(gateway=2))
    topics = MetadataRequest(topics=None)
    wait_let_in(broker, "gateway-pi-1", 1)
    with logged_in(broker, "gateway-pi-1", 1) as old:
        assert old.ask(3, 4, topics).brokers
        use(broker, play, "gateway-pi-1~2", 2)
        changed = played(play, site(gateway=2))
        assert "user gateway-pi-1" in changed
        assert {line for line in changed if "removed:" in line} == {
            f"removed: ALLOW {word} by User:gateway-pi-1 from * on TOPIC LITERAL readings"
            for word in ("CREATE", "DESCRIBE", "WRITE")
        }

        def is_closed() -> bool:
            try:
                old.ask(3, 4, topics)
            except (RefusedError, ConnectionError):
                return True
            return False

        wait_until(is_closed, CALL_S, "the connection that never reconnects is closed")


def test_a_service_that_got_its_former_files_back_keeps_its_old_log_in_after_the_new_one_was_used(broker):
    """Its new settings were no good, and the role put the former ones back, with the former password (F20)."""
    play = Play(broker.data_dir)
    played(play, site())
    use(broker, play, "gateway-pi-1", 1)
    played(play, site(gateway=2))
    use(broker, play, "gateway-pi-1~2", 2)
    before = play.held()["gateway-pi-1~2"]["last_ms"]
    wait_let_in(broker, "gateway-pi-1", 1)
    wait_until(lambda: play.held()["gateway-pi-1"]["last_ms"] > before, CALL_S, "the old log-in is recorded again")
    for _ in range(2):
        played(play, site(gateway=2))
        assert lets_in(broker, "gateway-pi-1", 1)
        assert play.holding == ["gateway-pi-1"]
    broker.stop()
    broker.start()
    played(play, site(gateway=2))
    assert lets_in(broker, "gateway-pi-1", 1)
    played(play, site(gateway=2), now=True)
    refused(broker, "gateway-pi-1", 1)


def test_an_offline_board_comes_back_after_two_rotations_with_its_first_password(broker):
    play = Play(broker.data_dir)
    played(play, site())
    use(broker, play, "mirror-pi-2", 1)
    for rotation in (2, 3):
        played(play, site(mirror=rotation))
    assert play.holding == ["mirror-pi-2", "mirror-pi-2~2"]
    broker.stop()
    broker.start()
    assert lets_in(broker, "mirror-pi-2", 1)
    played(play, site(mirror=3))
    assert lets_in(broker, "mirror-pi-2", 1)
    use(broker, play, "mirror-pi-2~3", 3)
    played(play, site(mirror=3))
    for user, number in (("mirror-pi-2", 1), ("mirror-pi-2~2", 2)):
        refused(broker, user, number)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_log_in_that_was_recorded_is_known_after_the_broker_died(broker, how):
    play = Play(broker.data_dir)
    played(play, site(gateway=2))
    use(broker, play, "gateway-pi-1~2", 2)
    getattr(broker, how)()
    assert play.held()["gateway-pi-1~2"]["first_log_in"] != "never"
    assert play.held()["mirror-pi-2"]["first_log_in"] == "never"
    broker.start()


def test_a_user_whose_service_moved_keeps_its_rights_until_it_was_seen_at_the_new_broker(broker):
    play = Play(broker.data_dir)
    played(play, site())
    use(broker, play, "mirror-pi-2", 1)
    moved = {"mirror-pi-2": ["dc-2"]}
    for _ in range(2):
        assert played(play, site(without="mirror-pi-2"), unseen=moved) == []
        assert play.holding == ["mirror-pi-2"]
    with logged_in(broker, "mirror-pi-2", 1) as mirror:
        assert mirror.ask(3, 4, MetadataRequest(topics=None)).brokers
    changed = played(play, site(without="mirror-pi-2"), unseen={"mirror-pi-2": []})
    refused(broker, "mirror-pi-2", 1)
    assert len([line for line in changed if "removed:" in line]) == 3


def test_a_service_that_moves_back_before_it_was_seen_goes_on_as_before(broker):
    play = Play(broker.data_dir)
    played(play, site())
    use(broker, play, "mirror-pi-2", 1)
    played(play, site(without="mirror-pi-2"), unseen={"mirror-pi-2": ["dc-2"]}, interrupted_at="made")
    assert played(play, site()) == []
    assert lets_in(broker, "mirror-pi-2", 1)


def test_one_word_ends_an_old_log_in_that_nobody_has_replaced(broker):
    play = Play(broker.data_dir)
    played(play, site())
    use(broker, play, "mirror-pi-2", 1)
    with logged_in(broker, "mirror-pi-2", 1):
        played(play, site(mirror=2), now=True)
        refused(broker, "mirror-pi-2", 1)
    use(broker, play, "mirror-pi-2~2", 2)
    assert play.holding == []


def test_remove_ends_both_log_ins_of_a_board_in_the_middle_of_its_rotation(broker):
    play = Play(broker.data_dir)
    played(play, site())
    played(play, site(mirror=2))
    use(broker, play, "mirror-pi-2", 1)
    played(play, site(without="mirror-pi-2"), removed={"pi-2": 2})
    for user, number in (("mirror-pi-2", 1), ("mirror-pi-2~2", 2)):
        refused(broker, user, number)
    assert lets_in(broker, "gateway-pi-1", 1)


def test_a_run_with_an_older_inventory_brings_no_ended_log_in_back_beside_another_run(broker):
    """It made its plan before the other run ended a password that had leaked."""
    first, second = Play(broker.data_dir), Play(broker.data_dir)
    played(first, site())
    use(broker, first, "gateway-pi-1", 1)
    second.known = set(first.known)
    assert played(first, site(), meanwhile=lambda: played(second, site(gateway=2), now=True)) == []
    assert first.overtaken_by == ["gateway-pi-1", "gateway-pi-1~2"]
    wait_let_in(broker, "gateway-pi-1~2", 2)
    refused(broker, "gateway-pi-1", 1)


def test_two_runs_at_once_of_one_rotation_leave_both_log_ins(broker):
    first, second = Play(broker.data_dir), Play(broker.data_dir)
    played(first, site())
    use(broker, first, "gateway-pi-1", 1)
    second.known = set(first.known)
    played(first, site(gateway=2), meanwhile=lambda: played(second, site(gateway=2)))
    assert first.overtaken_by == ["gateway-pi-1~2"]
    assert lets_in(broker, "gateway-pi-1", 1)
    use(broker, first, "gateway-pi-1~2", 2)
    assert "user gateway-pi-1" in played(first, site(gateway=2)), "the run that is repeated goes on from there"


@pytest.mark.parametrize("step", STEPS[:-1])
def test_a_run_that_is_cut_off_between_any_two_steps_refuses_nobody_and_is_continued(broker, step):
    play = Play(broker.data_dir)
    played(play, site())
    use(broker, play, "gateway-pi-1", 1)
    played(play, site(gateway=2), interrupted_at=step)
    assert lets_in(broker, "gateway-pi-1", 1)
    played(play, site(gateway=2))
    use(broker, play, "gateway-pi-1~2", 2)
    played(play, site(gateway=2), interrupted_at=step)
    assert lets_in(broker, "gateway-pi-1~2", 2)
    played(play, site(gateway=2))
    refused(broker, "gateway-pi-1", 1)
    assert set(play.held()) == {USER, "gateway-pi-1~2", "mirror-pi-2"}


def test_a_first_run_that_is_cut_off_leaves_no_user_that_remove_forgets(broker):
    """The list of our users is written before they are made."""
    play = Play(broker.data_dir)
    played(play, site(), interrupted_at="made")
    played(play, site(without="mirror-pi-2"), removed={"pi-2": 1})
    refused(broker, "mirror-pi-2", 1)
