"""The audit lines of a broker: changes of rights and users always, with who made them; floods bounded by source."""

from __future__ import annotations

import errno
import random

import pytest

from edge_broker.broker.health import health_notes
from edge_broker.network.audit_log import HOSTS_MAX, OTHERS
from edge_broker.network.log_lines import LINES_MAX, WINDOW_S
from edge_broker.protocol import api
from edge_broker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from edge_broker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from edge_broker.security.acls import CLUSTER_NAME, AclBinding, Operation, PatternType, Permission, ResourceType
from edge_broker.storage.metadata.security_log import ADMINS_NAME, CHANGES_NAME, SecurityLog
from edge_broker.storage.metadata.security_store import NAME as SECURITY
from edge_broker.storage.metadata.security_store import SecurityStore
from edge_broker.testing.client import Client
from edge_broker.testing.site import Site
from tests.support.storage import batch
from tests.unit.broker.test_acls import create, guarded
from tests.unit.broker.test_logins import NAME, authenticate, handshake, logged_in, secured
from tests.unit.broker.test_produce import produce
from tests.unit.broker.test_rights import ADMIN, client
from tests.unit.broker.test_rights import guarded as rights_site

BOB = AclBinding(
    ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL, "User:bob", "*", Operation.ALL, Permission.ALLOW
)
CHANGES, ADMINS = f"/data/{CHANGES_NAME}", f"/data/{ADMINS_NAME}"
WINDOW_MS = WINDOW_S * 1000


def acls(count: int) -> list[AclBinding]:
    return [BOB._replace(resource_type=ResourceType.TOPIC, name=f"t{number}") for number in range(count)]


def lines(capsys: pytest.CaptureFixture[str], event: str) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if f" {event} " in line]


def content(site: Site, path: str) -> str:
    return site.disk.content(path).decode() if site.disk.exists(path) else ""


def denied(site: Site, principal: str, times: int = 1, host: str = "10.0.0.7") -> None:
    asking = client(site, principal, host)
    for _ in range(times):
        asking.ask(api.PRODUCE, produce(("t", 0, batch(b"a"))))


def from_host(site: Site, host: str) -> Client:
    made = site.client(NAME)
    made.connection.session.host = host
    return made


def guess(site: Site, user: str, host: str) -> None:
    """A log-in by SCRAM that fails at its last message."""
    asking = from_host(site, host)
    handshake(asking, "SCRAM-SHA-256")
    authenticate(asking, f"n,,n={user},r=nonce".encode())
    asking.send(api.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=b"none"))
    site.run_until_idle()


# changes: always, each, by whom


def test_twenty_harmless_changes_hide_no_right_to_everything(capsys: pytest.CaptureFixture[str]) -> None:
    site = guarded()
    admin = client(site, ADMIN)
    for acl in acls(2 * LINES_MAX):
        create(admin, acl)
    create(admin, BOB)
    assert any("ALL by User:bob" in line and "CLUSTER" in line for line in lines(capsys, "acl-added"))
    (line,) = (line for line in content(site, CHANGES).splitlines() if "CLUSTER" in line)
    assert "principal=User:admin host=" in line


def test_each_acl_of_a_large_change_by_a_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    site = guarded()
    command = SecurityStore.open(site.disk, "/data", random.Random(1).randbytes)
    command.change(lambda state: state.with_acls(frozenset([*acls(100), BOB])))
    site.dispatcher.start(site.broker.security.check_file)
    site.run_until_idle()
    assert len(lines(capsys, "acl-added")) == 101


def test_a_change_of_a_user_names_him_and_who_made_it(capsys: pytest.CaptureFixture[str]) -> None:
    site = guarded()
    wanted = [
        ScramCredentialUpsertion(
            name=f"u{number}", mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes([number]) * 32
        )
        for number in range(30)
    ]
    client(site, ADMIN).ask(api.ALTER_USER_SCRAM_CREDENTIALS, AlterUserScramCredentialsRequest(upsertions=wanted))
    site.run_until_idle()
    said = lines(capsys, "credential-set")
    assert [f"user=u{number} " in line for number, line in zip(sorted(range(30), key=str), said, strict=True)]
    assert all("principal=User:admin host=" in line for line in said)
    assert content(site, CHANGES).count("credential-set principal=User:admin") == 30


def test_a_change_is_in_the_security_log_before_it_is_on_the_disk() -> None:
    """So a power loss between the two leaves a line too many, and none too few."""
    site = guarded()
    seen: list[bytes] = []

    def witness(kind: str, path: str) -> None:
        if kind == "rename" and SECURITY in path:
            seen.append(site.disk.fork(1).content(CHANGES) if site.disk.exists(CHANGES) else b"")

    site.disk.witness = witness
    create(client(site, ADMIN), BOB)
    assert seen
    assert b"CLUSTER" in seen[0]
    site.disk.witness = None
    assert "CLUSTER" in content(site.reopen("cut"), CHANGES)


def test_a_change_that_the_disk_refuses_is_followed_by_its_failure() -> None:
    site = guarded()

    def fault(kind: str, path: str, size: int) -> int:
        if kind == "rename" and path.endswith(f"/{SECURITY}"):
            raise OSError(errno.EIO, "Input/output error", path)
        return size

    site.disk.fault = fault
    create(client(site, ADMIN), BOB)
    assert not site.broker.security.state.acls
    added, failed = content(site, CHANGES).splitlines()
    assert "acl-added" in added
    assert "change-failed principal=User:admin" in failed


def test_a_full_disk_leaves_the_change_in_the_ordinary_log_and_in_health(capsys: pytest.CaptureFixture[str]) -> None:
    """Once there is space the file has the line after all."""
    site = guarded()

    def fault(kind: str, path: str, size: int) -> int:
        if CHANGES_NAME in path:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return size

    site.disk.fault = fault
    create(client(site, ADMIN), BOB)
    assert site.broker.security.state.acls == {BOB}
    said = capsys.readouterr().err
    assert "acl-added principal=User:admin" in said
    assert "security-log-failed" in said
    assert any(CHANGES in note and "No space left" in note for note in health_notes(site.broker))
    site.disk.fault = None
    site.dispatcher.start(site.broker.security.check_file)
    site.run_until_idle()
    assert "CLUSTER" in content(site, CHANGES)
    assert not any(CHANGES in note for note in health_notes(site.broker))


# super users


def test_each_log_in_of_a_super_user_is_in_a_file_that_no_other_log_in_fills(
    capsys: pytest.CaptureFixture[str],
) -> None:
    site = secured({"super.users": "User:ops"}, users=("alice", "ops"))
    for _ in range(3 * LINES_MAX):
        logged_in(site)
    for _ in range(LINES_MAX + 5):
        logged_in(site, user="ops")
    site.run_until_idle()
    said = lines(capsys, "log-in")
    assert sum("User:ops" in line for line in said) == LINES_MAX + 5
    assert sum("User:alice" in line for line in said) == LINES_MAX
    kept = content(site, ADMINS).splitlines()
    assert len(kept) == LINES_MAX + 5
    assert all("principal=User:ops" in line for line in kept)


def test_a_super_user_that_comes_by_certificate_is_in_the_file_too() -> None:
    site = Site({"super.users": "User:CN=ops"})
    for principal in ("User:CN=ops", "User:CN=ann"):
        made = site.client()
        made.connection.session.principal = principal
        site.server.connection_closed(made.connection)
        site.server.connection_opened(made.connection)
    site.run_until_idle()
    assert "CN=ops" in content(site, ADMINS)
    assert "CN=ann" not in content(site, ADMINS)


# floods


def test_a_flood_of_one_principal_hides_no_denial_of_another(capsys: pytest.CaptureFixture[str]) -> None:
    site = rights_site()
    denied(site, "User:ann", 500)
    denied(site, "User:bob")
    assert [line for line in lines(capsys, "denied") if "principal=User:bob" in line]


def test_denials_about_topics_hide_none_about_the_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the same principal: he tries to give himself a right."""
    site = rights_site()
    denied(site, "User:ann", 500)
    create(client(site, "User:ann"), BOB)
    assert [line for line in lines(capsys, "denied") if "operation=ALTER resource=CLUSTER:" in line]


def test_guesses_at_a_super_user_without_a_password_are_not_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    """One that comes by certificate alone."""
    site = secured({"super.users": "User:ops"}, users=("ann",))
    for number in range(3 * LINES_MAX):
        guess(site, f"nobody{number}", "10.0.0.9")
    guess(site, "ops", "10.0.0.9")
    assert any("user=ops" in line for line in lines(capsys, "log-in-failed"))


def test_guesses_at_a_user_are_not_hidden_by_guesses_at_names_that_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    site = secured(users=("ops",))
    for number in range(3 * LINES_MAX):
        guess(site, f"nobody{number}", "10.0.0.9")
    guess(site, "ops", "10.0.0.9")
    assert any("user=ops" in line for line in lines(capsys, "log-in-failed"))


def test_what_is_left_out_is_summed_at_the_windows_end_though_nothing_else_comes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    site = rights_site()
    denied(site, "User:ann", 100)
    assert not lines(capsys, "audit-summed")
    site.loop.advance(WINDOW_MS)
    (line,) = lines(capsys, "audit-summed")
    assert f"of=denied source=User:ann left_out={100 - LINES_MAX} seconds=10.0" in line
    site.loop.advance(10 * WINDOW_MS)
    assert not lines(capsys, "audit-summed")


def test_denials_of_one_large_request_are_summed_too(capsys: pytest.CaptureFixture[str]) -> None:
    site = rights_site()
    client(site).ask(api.PRODUCE, produce(*((f"t{number}", 0, batch(b"a")) for number in range(50))))
    site.loop.advance(WINDOW_MS)
    said = capsys.readouterr().err
    assert said.count(" denied ") + int(said.partition("left_out=")[2].partition(" ")[0]) == 50


def test_a_flood_from_many_addresses_takes_bounded_memory_and_is_summed(capsys: pytest.CaptureFixture[str]) -> None:
    site = secured(users=("ops",))
    for number in range(3 * HOSTS_MAX):
        guess(site, "nobody", f"10.0.{number // 250}.{number % 250}")
    guess(site, "ops", "10.9.9.9")
    said = capsys.readouterr().err
    assert said.count(" log-in-failed ") == HOSTS_MAX + LINES_MAX + 1
    assert "user=ops" in said
    site.loop.advance(WINDOW_MS)
    (line,) = lines(capsys, "audit-summed")
    assert f"source={OTHERS} left_out={2 * HOSTS_MAX - LINES_MAX}" in line


def test_a_stop_in_the_middle_of_a_window_writes_its_sums(capsys: pytest.CaptureFixture[str]) -> None:
    site = rights_site()
    denied(site, "User:ann", 100)
    capsys.readouterr()
    site.loop.advance(WINDOW_MS / 2)
    site.dispatcher.audit_log.end_window()
    (line,) = lines(capsys, "audit-summed")
    assert f"left_out={100 - LINES_MAX} seconds=5.0" in line
    site.loop.advance(WINDOW_MS)
    assert not lines(capsys, "audit-summed")


def test_the_file_is_that_of_the_next_broker_too() -> None:
    site = guarded()
    create(client(site, ADMIN), BOB)
    before = content(site, CHANGES)
    again = site.reopen("cut")
    SecurityLog(again.disk, "/data", again.clock.wall_ms).write_changes([("acl-removed", {"acl": "x"})])
    assert content(again, CHANGES).startswith(before)
    assert content(again, CHANGES).count("\n") == before.count("\n") + 1
