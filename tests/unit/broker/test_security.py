"""Users and rights in a running broker: a change holds once it is synced, another process's within a second."""

import random

from edge_broker.broker.health import health_notes, health_problem
from edge_broker.broker.outcomes import Reply
from edge_broker.configuration.config import STANDARD_AUTHORIZER
from edge_broker.errors import StorageFault
from edge_broker.security.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from edge_broker.security.scram import ScramCredential
from edge_broker.storage.metadata.security_store import NAME, SecurityStore
from edge_broker.testing.site import Site

CREDENTIAL = ScramCredential(b"salt", 4096, b"s" * 32, b"k" * 32)


def with_user(name):
    return lambda state: state.with_user(name, {"SCRAM-SHA-256": CREDENTIAL})


def changed(site, edit):
    """What became of a change: True once it holds, or what stood against it."""
    found = []

    def then():
        found.append(True)
        return Reply(None)

    def failed(error):
        found.append(error)
        return Reply(None)

    site.dispatcher.start(lambda: site.broker.security.change(edit, then, failed))
    assert not found
    site.run_until_idle()
    return found[0]


def looked(site):
    site.dispatcher.start(site.broker.security.check_file)
    site.run_until_idle()
    return site.broker.security.state


def test_a_change_holds_once_it_is_synced_and_after_a_cut():
    site = Site()
    assert changed(site, with_user("a")) is True
    assert set(site.broker.security.state.users) == {"a"}
    assert set(site.reopen("cut").broker.security.state.users) == {"a"}


def test_what_a_command_changes_beside_the_broker_holds_at_its_next_look(capsys):
    site = Site()
    SecurityStore.open(site.disk, "/data", random.Random(1).randbytes).change(with_user("a"))
    assert not site.broker.security.state.users
    assert set(looked(site).users) == {"a"}
    assert "credential-set by=command user=a" in capsys.readouterr().err


def test_acls_that_nobody_asks_are_told_in_log_and_health(capsys):
    read = AclBinding(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:a", "*", Operation.READ, Permission.ALLOW)
    acls = frozenset({read})
    site = Site()
    assert list(health_notes(site.broker)) == []
    SecurityStore.open(site.disk, "/data", random.Random(1).randbytes).change(lambda state: state.with_acls(acls))
    looked(site)
    looked(site)
    (said,) = health_notes(site.broker)
    assert said.startswith("1 ACL has no effect, and every client may do everything: set authorizer.class.name=")
    assert capsys.readouterr().err.count("ACL has no effect") == 1
    asked = Site({"authorizer.class.name": STANDARD_AUTHORIZER})
    SecurityStore.open(asked.disk, "/data", random.Random(1).randbytes).change(lambda state: state.with_acls(acls))
    looked(asked)
    assert list(health_notes(asked.broker)) == []


def test_super_users_that_nobody_asks_about_are_told():
    site = Site({"super.users": "User:admin"})
    (said,) = health_notes(site.broker)
    assert said.startswith("super.users has no effect, and every client may do everything: set authorizer.class.name=")
    asked = Site({"super.users": "User:admin", "authorizer.class.name": STANDARD_AUTHORIZER})
    assert list(health_notes(asked.broker)) == []


def test_a_file_that_others_may_read_is_told_until_it_is_the_owner_s_again(capsys):
    site = Site()
    changed(site, with_user("a"))
    for mend in (site.disk.modes.clear, lambda: changed(site, with_user("b"))):
        site.disk.modes[f"/data/{NAME}"] = 0o644
        assert "a" in looked(site).users
        looked(site)
        (said,) = health_notes(site.broker)
        assert said.startswith(f"others may read /data/{NAME}: `chmod 600 /data/{NAME}`, and give the users new")
        assert health_problem(site.broker) is None
        assert capsys.readouterr().err.count("others may read") == 1
        mend()
        looked(site)
        assert list(health_notes(site.broker)) == []


def test_a_file_that_others_may_write_lets_nobody_in():
    site = Site()
    changed(site, with_user("a"))
    site.disk.modes[f"/data/{NAME}"] = 0o660
    assert "others may write /data/security: " in looked(site).damage
    assert "chmod 600" in health_problem(site.broker)
    site.disk.modes.clear()
    assert "a" in looked(site).users


def test_damage_is_said_by_health_and_lets_nobody_change_anything(capsys):
    site = Site()
    changed(site, with_user("a"))
    sound = site.disk.content(f"/data/{NAME}")
    site.disk.put(f"/data/{NAME}", b"?")
    assert looked(site).damage
    looked(site)
    assert "nobody can log in" in health_problem(site.broker)
    assert capsys.readouterr().err.count("cannot be read") == 1
    assert isinstance(changed(site, with_user("b")), StorageFault)
    site.disk.put(f"/data/{NAME}", sound)
    assert set(looked(site).users) == {"a"}
    assert health_problem(site.broker) is None
