"""Which log-ins the broker records on disk: the first by each credential, then one a day; and when it writes."""

from __future__ import annotations

import errno
from types import SimpleNamespace

from edge_broker.broker.state.log_in_record import RETURNS_MAX, RETURNS_MS
from edge_broker.security.scram import MECHANISMS, new_credential
from edge_broker.storage.metadata.log_in_times import DAY_MS, NAME, read_log_in_times
from edge_broker.testing.site import Site
from tests.support.scram import plain
from tests.unit.broker.test_logins import edited, failed, handshake, logged_in, secured

PATH = f"/data/{NAME}"


def times(site: Site):
    return read_log_in_times(site.disk, "/data")


def with_user(user: str, password: str):
    credentials = {name: new_credential(one, password, user.encode(), 4096) for name, one in MECHANISMS.items()}
    return lambda state: state.with_user(user, credentials)


def test_the_first_log_in_is_on_disk_and_the_next_thousand_write_nothing():
    site = secured()
    assert times(site) == {}
    logged_in(site)
    site.run_until_idle()
    first = times(site)["alice"]
    assert first.first_ms == first.last_ms == site.clock.wall_ms()
    before = site.disk.identity(PATH)
    for _ in range(50):
        site.loop.advance(60_000)
        logged_in(site)
        site.run_until_idle()
    assert site.disk.identity(PATH) == before
    site.loop.advance(DAY_MS)
    logged_in(site)
    site.run_until_idle()
    assert times(site)["alice"].first_ms == first.first_ms
    assert times(site)["alice"].last_ms == site.clock.wall_ms()


def test_a_power_loss_keeps_what_was_recorded_and_a_restart_writes_nothing():
    site = secured()
    logged_in(site)
    site.run_until_idle()
    kept = times(site)
    again = site.reopen("cut")
    assert times(again) == kept
    again.broker.listeners = site.broker.listeners
    before = again.disk.identity(PATH)
    logged_in(again)
    again.run_until_idle()
    assert again.disk.identity(PATH) == before


def test_a_new_password_counts_as_not_used_until_its_own_log_in():
    site = secured()
    logged_in(site)
    site.run_until_idle()
    old = times(site)["alice"]
    edited(site, with_user("alice", "another"))
    logged_in(site, password="another")
    site.run_until_idle()
    assert times(site)["alice"].tag != old.tag


def test_a_user_removed_and_made_again_with_the_same_password_counts_as_not_used():
    site = secured()
    logged_in(site)
    site.run_until_idle()
    old = times(site)["alice"]
    edited(site, lambda state: state.with_user("alice", {}))
    fresh = {name: new_credential(one, "secret", b"fresh salt", 4096) for name, one in MECHANISMS.items()}
    edited(site, lambda state: state.with_user("alice", fresh))
    assert times(site)["alice"] == old
    logged_in(site)
    site.run_until_idle()
    assert times(site)["alice"].tag != old.tag


def test_a_failed_log_in_is_not_recorded():
    site = secured()
    client = site.client("LOGIN")
    handshake(client, "PLAIN")
    failed(site, client, plain("alice", "wrong"))
    assert times(site) == {}


def test_log_ins_of_two_users_during_one_write_share_the_next_and_none_is_missing():
    site = secured(users=("alice", "bob", "carol"))
    for user in ("alice", "bob", "carol"):
        logged_in(site, user=user)
    site.run_until_idle()
    assert set(times(site)) == {"alice", "bob", "carol"}


def test_a_user_that_is_gone_leaves_the_file_with_the_next_write():
    site = secured(users=("alice", "bob"))
    logged_in(site)
    site.run_until_idle()
    edited(site, lambda state: state.with_user("alice", {}))
    logged_in(site, user="bob")
    site.run_until_idle()
    assert set(times(site)) == {"bob"}


def test_a_disk_that_refuses_is_noted_once_and_the_next_log_in_tries_again(capsys):
    site = secured()

    def full(kind: str, path: str, _size: int) -> None:
        if kind == "rename" and path.endswith(NAME):
            raise OSError(errno.ENOSPC, "No space left on device", path)

    site.disk.fault = full
    for _ in range(3):
        _, answer = logged_in(site)
        assert answer.error_code == 0
        site.run_until_idle()
    assert capsys.readouterr().err.count("log-ins of users are not recorded") == 1
    assert times(site) == {}
    site.disk.fault = None
    logged_in(site)
    site.run_until_idle()
    assert set(times(site)) == {"alice"}


def test_a_damaged_file_is_noted_and_made_again(capsys):
    site = secured()
    logged_in(site)
    site.run_until_idle()
    site.disk.open(PATH).write(b"?", 40)
    again = site.reopen("kill")
    assert "cannot be read" in capsys.readouterr().err
    again.broker.listeners = site.broker.listeners
    logged_in(again)
    again.run_until_idle()
    assert set(times(again)) == {"alice"}


def test_names_with_spaces_and_newlines_come_back():
    name = "a b\nc ä"
    site = secured(users=(name,))
    logged_in(site, "PLAIN", user=name)
    site.run_until_idle()
    assert set(times(site)) == {name}


OLD, NEW = "mirror-pi-1", "mirror-pi-1~2"


def newest(site: Site) -> str:
    """The user that the file has as the one that logged in last."""
    found = times(site)
    return max(found, key=lambda user: found[user].last_ms)


def log_in(site: Site, user: str, after_ms: int = 1000) -> None:
    site.loop.advance(after_ms)
    logged_in(site, "PLAIN", user=user)
    site.run_until_idle()


def test_a_service_that_falls_back_to_its_old_log_in_and_its_return_are_recorded_at_once():
    site = secured(users=(OLD, NEW))
    for user in (OLD, NEW, OLD, NEW, NEW, OLD):
        log_in(site, user)
        assert newest(site) == user


def test_two_clients_that_use_two_generations_in_turn_cost_two_writes_a_minute_and_others_none():
    users = (OLD, NEW, "mirror-pi-11", "mirror-pi-1~", "mirror-pi-1~02")
    site = secured(users=users)
    for user in users:
        log_in(site, user)
    files = set()
    for _ in range(150):
        for user in users:
            log_in(site, user)
            files.add(site.disk.identity(PATH))
    assert 2 * RETURNS_MAX <= len(files) <= 4 * RETURNS_MAX + 2  # 12.5 minutes
    log_in(site, OLD)
    log_in(site, NEW, RETURNS_MS)
    assert newest(site) == NEW


def set_back(site: Site) -> None:
    """The clock shows five days less than it did."""
    record, wall_ms = site.broker.log_ins._record, site.clock.wall_ms
    record._clock = SimpleNamespace(wall_ms=lambda: wall_ms() - 5 * DAY_MS, steady_ms=wall_ms)


def test_the_order_of_generations_stays_when_the_clock_is_set_back_and_after_a_restart():
    site = secured(users=(OLD, NEW))
    for user in (OLD, NEW):
        log_in(site, user)
    set_back(site)
    log_in(site, OLD)
    assert newest(site) == OLD
    again = site.reopen("cut")
    again.broker.listeners = site.broker.listeners
    assert newest(again) == OLD
    set_back(again)
    for user in (NEW, OLD):
        log_in(again, user)
        assert newest(again) == user
