"""How passwords come from a site's secret: vectors of RFC 7914, golden values, and one derivation for all processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleError

from tests.support.ansible_files import load

passwords = load("plugins/action/site_access.py").passwords
Source = passwords.Source
SECRET, OLD = "a secret of 24 characters", "another secret of 30 characters"

# RFC 7914, section 12. The fourth vector needs 1 GiB.
VECTORS = [
    (
        (b"", b"", 16, 1, 1),
        "77d6576238657b203b19ca42c18a0497f16b4844e3074ae8dfdffa3fede21442"
        "fcd0069ded0948f8326a753a0fc81f17e8d3e0fb2e0d3628cf35e20c38d18906",
    ),
    (
        (b"password", b"NaCl", 1024, 8, 16),
        "fdbabe1c9d3472007856e7190d01e9fe7c6ad7cbc8237830e77376634b373162"
        "2eaf30d92e22a3886ff109279d9830dac727afb94a83ee6d8360cbdfa2cc0640",
    ),
    (
        (b"pleaseletmein", b"SodiumChloride", 16384, 8, 1),
        "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2"
        "d5432955613f0fcf62d49705242a9af9e61e85dc0d651e40dfcf017b45575887",
    ),
]


@pytest.mark.parametrize(("given", "expected"), VECTORS)
def test_scrypt_is_that_of_the_rfc(given, expected):
    assert passwords.scrypt(*given, 64).hex() == expected


@pytest.mark.parametrize(
    ("user", "rotation", "expected"),
    [
        ("gateway-pi-1", 1, "nhb7dt4jru6rj6dxnpnviuxoo3j2yzxn"),
        ("gateway-pi-1", 2, "oy7u7gnmmqi4zjxhyf5en75ncm5qy4z3"),
        ("admin", 1, "t5tmiableqawurmjtwogeobb33uv6gbl"),
        ("metrics", 3, "cooukbbrcetnebesd6iebitr5je23lrw"),
    ],
)
def test_passwords_by_hmac_are_those_of_every_running_site(user, rotation, expected):
    assert passwords.password(Source(SECRET, "hmac"), "pi-1", user, rotation) == expected


def test_passwords_by_scrypt_stay_what_they_are():
    """Computed once by the Scrypt of `cryptography` and HMAC, without this code."""
    by_scrypt = Source(SECRET, "scrypt")
    assert passwords.password(by_scrypt, "pi-1", "gateway-pi-1", 1) == "jvcowgbdpzlnrpzsgnt3qjkpmjeuibxs"
    assert passwords.password(by_scrypt, "pi-1", "admin", 2) == "ysauazdxssneym54r63l45qxrvjrmp7m"


def test_the_cost_is_at_least_what_owasp_asks_for():
    assert (passwords.SCRYPT_N, passwords.SCRYPT_R, passwords.SCRYPT_P) == (2**17, 8, 1)


def test_hosts_and_secrets_have_keys_of_their_own(monkeypatch):
    monkeypatch.setattr(passwords, "SCRYPT_N", 16)
    keys = {passwords.host_key(secret, host) for secret in (SECRET, OLD) for host in ("pi-1", "pi-2")}
    assert len(keys) == 4


# --- one derivation for all processes of a run -----------------------------------------------------------------------


def counted(file: Path) -> Callable[[str, str], bytes]:
    """Return a derivation that writes a line for each call."""

    def derive(secret: str, host: str) -> bytes:
        with file.open("a") as out:
            out.write(f"{host}\n")
        return f"{secret} {host}".encode().ljust(passwords.KEY_BYTES)[: passwords.KEY_BYTES]

    return derive


def in_a_fork(work: Callable[[], Any]) -> int:
    """Start a process that does the work and ends with 0, or with 1 where it raised."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return pid


def test_forks_share_what_one_of_them_has_derived(tmp_path):
    keys, file = passwords.Keys(), tmp_path / "derived"
    derive = counted(file)

    def work() -> None:
        for host in ("pi-1", "pi-2"):
            assert keys.get(SECRET, host, derive).rstrip() == f"{SECRET} {host}".encode()

    pids = [in_a_fork(work) for _ in range(6)]
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 6
    assert sorted(file.read_text().split()) == ["pi-1", "pi-2"]


def test_the_key_of_one_host_or_secret_is_never_another_ones(tmp_path):
    keys, derive = passwords.Keys(), counted(tmp_path / "derived")
    asked = [(secret, host) for secret in ("1 " + SECRET[:8], "2 " + SECRET[:8]) for host in ("pi-1", "pi-2")]
    found = [keys.get(*one, derive) for one in asked]
    assert len(set(found)) == 4
    assert [keys.get(*one, derive) for one in asked] == found
    assert len((tmp_path / "derived").read_text().split()) == 4


def test_a_process_that_is_killed_while_it_derives_keeps_no_other_from_it(tmp_path):
    keys, derive = passwords.Keys(), counted(tmp_path / "derived")

    def killed(*_: str) -> bytes:
        os.kill(os.getpid(), signal.SIGKILL)
        return b""

    pid = in_a_fork(lambda: keys.get(SECRET, "pi-1", killed))
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    assert keys.get(SECRET, "pi-1", derive).startswith(SECRET.encode())


def test_more_keys_than_there_is_room_for_are_right_all_the_same(tmp_path):
    keys, derive = passwords.Keys(slots=2), counted(tmp_path / "derived")
    for host in ("pi-1", "pi-2", "pi-3", "pi-4", "pi-3"):
        assert keys.get(SECRET, host, derive).rstrip() == f"{SECRET} {host}".encode()
    assert len((tmp_path / "derived").read_text().split()) == 4


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("derivation", "former", "key", "sentence"),
    [
        ("argon2", [], "security_derivation", "security_derivation is argon2: write hmac or scrypt."),
        ("SCRYPT", [], "security_derivation", "security_derivation is SCRYPT: write hmac or scrypt."),
        (None, [], "security_derivation", "security_derivation is empty: write hmac or scrypt."),
        (True, [], "security_derivation", "security_derivation is True: write hmac or scrypt."),
        (
            "hmac",
            "hmac",
            "security_former",
            "security_former is no list of entries: write [{through: 1, derivation: hmac}].",
        ),
        ("hmac", [1], "security_former", "security_former is no list of entries"),
        ("hmac", [{"derivation": "hmac"}], "security_former", "through empty: write the last rotation"),
        ("hmac", [{"through": 0, "derivation": "hmac"}], "security_former", "through 0: write the last rotation"),
        ("hmac", [{"through": 2, "derivation": "hmac"}], "security_former", "so set security_rotation to 3 or more."),
        ("hmac", [{"through": 1}], "security_former", "through 1 whose derivation is empty: write hmac or scrypt."),
        ("hmac", [{"through": 1, "derivation": "md5"}], "security_former", "whose derivation is md5"),
        ("hmac", [{"through": 1, "derivation": "hmac", "secret": "x"}], "security_former", "fewer than 16 characters"),
        ("hmac", [{"through": 1, "derivation": "hmac", "rotation": 1}], "security_former", "with rotation: it takes"),
        ("hmac", [{"through": 1, "derivation": "hmac"}] * 2, "security_former", "has through: 1 twice"),
    ],
)
def test_values_that_no_site_can_have(derivation, former, key, sentence):
    found = list(passwords.problems(derivation, 2, former))
    assert [one for one, _ in found] == [key], found
    assert sentence in found[0][1]
    with pytest.raises(AnsibleError, match="security_"):
        passwords.sources(SECRET, derivation, 2, former)


def test_a_python_without_scrypt_is_named_and_keeps_a_site_by_hmac_as_it_is(monkeypatch):
    monkeypatch.delattr(passwords.hashlib, "scrypt")
    passwords.has_scrypt.cache_clear()
    try:
        assert "which this machine's Python lacks" in next(passwords.problems("scrypt", 1, []))[1]
        with pytest.raises(AnsibleError, match="run Ansible by another Python"):
            passwords.host_key(SECRET, "pi-1")
        sources = passwords.sources(SECRET, "hmac", 1, [])
        assert sources.other_sources(1) == []
    finally:
        passwords.has_scrypt.cache_clear()


def test_each_rotation_has_its_source():
    former = [{"through": 4, "derivation": "scrypt"}, {"through": 2, "derivation": "hmac", "secret": OLD}]
    sources = passwords.sources(SECRET, "scrypt", 6, former)
    assert [sources.of(rotation) for rotation in (1, 2, 3, 4, 5, 6)] == [
        *[Source(OLD, "hmac")] * 2,
        *[Source(SECRET, "scrypt")] * 4,
    ]
    assert set(sources.other_sources(1)) == {Source(OLD, "scrypt"), Source(SECRET, "hmac"), Source(SECRET, "scrypt")}
