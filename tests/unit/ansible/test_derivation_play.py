"""Another derivation by ansible-playbook, on the two boards of test_rotation_play.py, with scrypt at its full cost.

The playbook SMALL has the tasks that broker and Apache Kafka share; the whole playbooks are for the night.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.ansible.two_boards import NEVER, SEEN, TwoBoards

COUNTING = """
import hashlib, os
derive = hashlib.scrypt
def counted(*words, salt, n, **more):
    if n > 2:
        with open(os.environ["DERIVED"], "ab") as file:
            file.write(salt.rpartition(b"\\0")[2] + b"\\n")
    return derive(*words, salt=salt, n=n, **more)
hashlib.scrypt = counted
"""

SMALL = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: security, tasks_from: server}
    - ansible.builtin.include_role: {name: security, tasks_from: rotation}
      vars:
        security_held: "{{ held }}"
        security_known: "{{ held.keys() | list }}"
"""

CLIENT = """
- hosts: pi-1
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: security, tasks_from: client}
      vars:
        security_service: gateway
        security_bootstrap: "{{ gateway_kafka }}"
        security_password_file: FOLDER/pi-1/etc/gateway-password
        security_group: root
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch) -> TwoBoards:
    """Boards whose playbooks write down for which host they derive a key."""
    (tmp_path / "counting").mkdir()
    (tmp_path / "counting/sitecustomize.py").write_text(COUNTING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "counting"))
    monkeypatch.setenv("DERIVED", str(tmp_path / "derived"))
    site = TwoBoards(tmp_path / "site")
    (site.folder / "playbooks/small.yml").write_text(SMALL)
    (site.folder / "playbooks/client.yml").write_text(CLIENT.replace("FOLDER", str(site.folder)))
    return site


def small(site: TwoBoards, code: int = 0, **held: list[str]) -> str:
    """Run SMALL; `held` are the users of each broker's host, all made by the site."""
    for host, variables in site.variables.items():
        variables["held"] = dict.fromkeys(held[host.replace("-", "")], SEEN)
    return site.run(playbook="small", code=code)


def marks(site: TwoBoards, host: str) -> list[str] | None:
    file = site.folder / host / "etc/broker-scrypt-log-ins"
    return file.read_text().splitlines() if file.exists() else None


BY_SCRYPT = {
    "security_derivation": "scrypt",
    "security_rotation": 2,
    "security_former": [{"through": 1, "derivation": "hmac"}],
}


def test_all_hosts_and_tasks_of_a_run_derive_each_key_once_and_the_derivation_is_written_down(site, tmp_path):
    for variables in site.variables.values():
        variables.update(BY_SCRYPT)
    said = small(site, pi1=["admin"], pi2=["admin", "gateway-pi-1"])
    assert "gateway-pi-1 of pi-1 still holds at pi-2" in said
    assert sorted((tmp_path / "derived").read_text().split()) == ["pi-1", "pi-2"]
    assert (marks(site, "pi-1"), marks(site, "pi-2")) == (None, ["gateway-pi-1~2", "verify-pi-1~2"])


def test_a_derivation_without_a_rotation_is_refused_before_anything_changes(site):
    site.variables["pi-1"]["security_derivation"] = "scrypt"
    said = small(site, 2, pi1=["admin"], pi2=["admin", "gateway-pi-1"])
    assert "The password of gateway-pi-1 comes by hmac, and the inventory has rotation 1 of pi-1 come by scrypt" in said
    assert (
        "set security_rotation of pi-1 to 2, and let security_former of pi-1 say {through: 1, derivation: hmac}."
        in said
    )
    assert marks(site, "pi-2") is None


def test_what_was_made_by_scrypt_is_refused_by_hmac(site):
    (site.folder / "pi-2/etc/broker-scrypt-log-ins").write_text("gateway-pi-1\nverify-pi-1\n")
    said = small(site, 2, pi1=["admin"], pi2=["admin", "gateway-pi-1"])
    assert "The password of gateway-pi-1 comes by scrypt, and the inventory has rotation 1 of pi-1 come by hmac" in said
    assert marks(site, "pi-2") == ["gateway-pi-1", "verify-pi-1"]


def test_a_board_that_is_played_alone_keeps_its_password_and_the_run_says_why(site):
    """Its broker is played in no run with this limit: what the board itself has tells of the derivation."""
    site.holds("pi-2", {"admin": SEEN, "gateway-pi-1": SEEN})
    site.uses("10.0.0.2:9092")
    file = site.folder / "pi-1/etc/gateway-password"
    before = file.read_text()
    site.variables["pi-1"]["security_derivation"] = "scrypt"
    said = site.run(playbook="client", code=2)
    assert "The password of gateway-pi-1 comes by hmac, and the inventory has rotation 1 of pi-1 come by scrypt" in said
    assert file.read_text() == before
    assert before not in said


@pytest.mark.night
def test_the_playbook_makes_the_new_log_in_beside_the_old_one(site, tmp_path):
    for variables in site.variables.values():
        variables.update(BY_SCRYPT)
    site.holds("pi-2", {"admin": SEEN, "gateway-pi-1": SEEN})
    site.holds("pi-1", {"admin": SEEN})
    said = site.run()
    assert "gateway-pi-1 of pi-1 still holds at pi-2" in said
    assert site.users("pi-2") == {"admin", "gateway-pi-1", "gateway-pi-1~2", "verify-pi-1~2"}
    assert marks(site, "pi-2") == ["gateway-pi-1~2", "verify-pi-1~2"]
    assert sorted((tmp_path / "derived").read_text().split()) == ["pi-1", "pi-2"]


@pytest.mark.night
def test_the_playbook_changes_no_user_when_it_refuses_a_derivation(site):
    site.holds("pi-2", {"admin": SEEN, "gateway-pi-1": SEEN, "gateway-pi-9": SEEN, "verify-pi-1": NEVER})
    before = (site.folder / "pi-2/held.json").read_text()
    site.variables["pi-1"]["security_derivation"] = "scrypt"
    said = site.run(code=2)
    assert "The password of gateway-pi-1 comes by hmac, and the inventory has rotation 1 of pi-1 come by scrypt" in said
    assert (
        "set security_rotation of pi-1 to 2, and let security_former of pi-1 say {through: 1, derivation: hmac}."
        in said
    )
    assert (site.folder / "pi-2/held.json").read_text() == before
    assert marks(site, "pi-2") is None


@pytest.mark.night
def test_a_site_by_hmac_gets_no_file_and_derives_no_key(site, tmp_path):
    site.holds("pi-2", {"admin": SEEN, "gateway-pi-1": SEEN, "gateway-pi-9": SEEN, "verify-pi-1": NEVER})
    site.run()
    assert site.users("pi-2") == {"admin", "gateway-pi-1", "verify-pi-1"}
    assert marks(site, "pi-2") is None
    assert not (tmp_path / "derived").exists()
