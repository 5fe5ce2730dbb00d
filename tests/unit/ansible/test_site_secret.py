"""One command puts a random secret into a new inventory's vault; preflight measures the one that is there."""

from __future__ import annotations

import base64
import os
import secrets
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.vault import VaultLib, VaultSecret

from tests.support.ansible.preflight import BOARD, SECRET, board, look, preflight
from tests.support.ansible_files import ANSIBLE, load
from tests.support.runtimes import console_script

strength = preflight._rules("secret_strength")
site_secret = load("playbooks/action_plugins/site_secret.py")
PASSWORD = "of the vault"
HAS_RELEASE = BOARD.replace("\nrelease\n", "\nrelease 1.0\n")
WEAK = [
    "x" * 24,
    "abcdefghijklmnop",
    "1234567890123456",
    "qwertzqwertzqwertz",
    "a secret of 24 characters",
    "correct horse battery staple",
    "to be or not to be that is the question",
    "Sommer2024!Sommer2024!",
    "PlantHamburg-2026-Kafka",
    "raspberrypi-raspberrypi",
    "1q2w1q2w1q2w1q2w1q2w1q2w1q2w1q2w",
    "the-datacenter-of-our-company-has-a-secret",
]


@pytest.mark.parametrize("secret", WEAK)
def test_a_phrase_that_somebody_chose_is_weak(secret):
    assert strength.bits(secret) < strength.BITS_MIN


def test_random_secrets_are_strong_whichever_tool_made_them():
    makers = (
        site_secret.new_secret,
        lambda: secrets.token_hex(16),
        lambda: secrets.token_urlsafe(18),
        lambda: base64.b64encode(secrets.token_bytes(18)).decode(),
        lambda: base64.b32encode(secrets.token_bytes(20)).decode().lower(),
        lambda: "".join(secrets.choice(site_secret.CHARACTERS + ".,:-_") for _ in range(28)),
    )
    for make in makers:
        found = [make() for _ in range(100)]
        weak = [one for one in found if strength.bits(one) < strength.BITS_MIN]
        assert len(weak) <= 1, weak  # about one in 10,000 looks like a phrase


def test_eight_words_of_a_list_are_strong():
    assert strength.bits("umbrella-tundra-violin-gravel-anchor-pepper-meadow-cactus") >= strength.BITS_MIN


@pytest.mark.parametrize("secret", WEAK[:6])
def test_a_new_site_with_a_weak_secret_is_refused_and_its_secret_is_not_shown(secret, tmp_path):
    found = look(board(security_secret=secret), tmp_path=tmp_path)
    assert len(found) == 1, found
    assert "bits of the 64 that keep it from being guessed" in found[0]
    assert "playbooks/secret.yml puts a random one there. [security_secret]" in found[0]
    assert secret not in found[0]


@pytest.mark.parametrize("answer", [HAS_RELEASE, None])
def test_a_site_that_runs_with_a_weak_secret_goes_on(answer, tmp_path):
    assert look(board(security_secret=WEAK[5]), tmp_path=tmp_path, answer=answer) == []


def test_a_site_that_runs_is_told(tmp_path):
    host = preflight.Host(preflight.KnownSettings(), "pi-1", ["broker"], {"security_secret": WEAK[5]}, HAS_RELEASE)
    notes: list[Any] = []
    preflight.findings({"broker": ["pi-1"]}, [host], notes)
    assert ["as before; README.md says how" in note.text for note in notes if note.key == "security_secret"] == [True]


def test_a_site_without_a_secret_stays_as_it_is(tmp_path):
    assert look(board(), tmp_path=tmp_path) == []


# --- the playbook ----------------------------------------------------------------------------------------------------


class Inventory:
    """A folder with hosts.yml, which playbooks/secret.yml is run for."""

    def __init__(self, path: Path) -> None:
        self.path, self.vault = path / "site", path / "site/group_vars/all/vault.yml"
        self.vault.parent.mkdir(parents=True)
        (self.path / "hosts.yml").write_text(yaml.safe_dump({"broker": {"hosts": {"pi-1": None, "pi-2": None}}}))
        self.variables({"security_secret": "{{ vault_security_secret }}"})
        (path / "password").write_text(PASSWORD)

    def variables(self, given: dict[str, Any]) -> None:
        (self.vault.parent / "site.yml").write_text(yaml.safe_dump(given))

    def run(self, *words: str, password: bool = True) -> subprocess.CompletedProcess[str]:
        command = [str(console_script("ansible-playbook")), "-i", str(self.path), "playbooks/secret.yml", *words]
        if password:
            command += ["--vault-password-file", str(self.path.parent / "password")]
        environment = os.environ | {"XDG_CONFIG_HOME": str(self.path.parent / "config")}
        return subprocess.run(
            command, cwd=ANSIBLE, env=environment, capture_output=True, text=True, check=False, timeout=120
        )

    def encrypt(self, text: str) -> None:
        self.vault.write_bytes(VaultLib().encrypt(text, secret=VaultSecret(PASSWORD.encode())))

    def read(self) -> str:
        return VaultLib([("default", VaultSecret(PASSWORD.encode()))]).decrypt(self.vault.read_bytes()).decode()


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    return Inventory(tmp_path)


def test_a_new_inventory_gets_a_random_secret_in_its_vault_once(inventory):
    dry = inventory.run("--check")
    assert dry.returncode == 0, dry.stdout + dry.stderr
    assert not inventory.vault.exists()
    assert not (inventory.path.parent / "config/drupelet/bundle_key").exists()
    done = inventory.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{inventory.vault} has a new vault_security_secret" in done.stdout
    assert "No variable uses it" not in done.stdout
    secret = yaml.safe_load(inventory.read())["vault_security_secret"]
    assert yaml.safe_load(inventory.read())["security_derivation"] == "scrypt"
    assert "Passwords come from it by scrypt (security_derivation)." in done.stdout
    assert strength.bits(secret) >= strength.BITS_MIN
    assert secret not in done.stdout + done.stderr
    assert inventory.vault.stat().st_mode & 0o777 == 0o600
    before = inventory.vault.read_bytes()
    again = inventory.run("-v")
    assert "The inventory has a secret, which stays." in again.stdout
    assert secret not in again.stdout + again.stderr
    assert inventory.vault.read_bytes() == before
    assert [path.name for path in inventory.vault.parent.iterdir() if path.name.startswith(".vault-")] == []
    keys = yaml.safe_load((inventory.vault.parent / "bundle.yml").read_text())["drupelet_bundle_keys"]
    assert keys == [(inventory.path.parent / "config/drupelet/bundle_key.pub").read_text().strip()]


def test_the_other_lines_of_a_vault_stay(inventory):
    inventory.encrypt("# mine\nvault_spark_secret: a  # of Spark")
    inventory.variables({"site_name": "plant-7", "security_derivation": "hmac"})
    done = inventory.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No variable uses it: write security_secret" in done.stdout
    assert inventory.read().startswith("# mine\nvault_spark_secret: a  # of Spark\nvault_security_secret: ")
    assert "security_derivation" not in inventory.read() + done.stdout


def test_a_secret_under_its_own_name_stays(inventory):
    inventory.variables({"security_secret": SECRET})
    done = inventory.run()
    assert "The inventory has a secret, which stays." in done.stdout, done.stdout + done.stderr
    assert not inventory.vault.exists()


def test_nothing_is_written_where_it_could_not_be_kept_or_used(inventory):
    done = inventory.run(password=False)
    assert "no vault password was given" in done.stdout + done.stderr
    assert done.returncode == 2
    inventory.vault.write_text("vault_spark_secret: a\n")
    done = inventory.run()
    assert "vault.yml is not encrypted: run `ansible-vault encrypt" in done.stdout + done.stderr
    assert inventory.vault.read_text() == "vault_spark_secret: a\n"
    inventory.vault.unlink()
    folder = inventory.path.with_name("site-security")
    folder.mkdir()
    (folder / "ca.key").write_text("encrypted")
    done = inventory.run()
    assert "the site has a secret, and a new one would not open its CA" in " ".join((done.stdout + done.stderr).split())
    assert not inventory.vault.exists()
