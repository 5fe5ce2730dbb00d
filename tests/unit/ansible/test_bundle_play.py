"""The bundle from its key to a board: bundle_key.yml, secret.yml, preflight's findings, the tasks that bring a file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.ansible.bundle import OTHER, PART, UNPACKED, BundleSite, additional, keys, signed_by_a_stranger, site
from tests.support.ansible.preflight import BOARD, board, known, look, preflight
from tests.support.ansible_files import ANSIBLE
from tests.support.runtimes import console_script

__all__ = ["keys", "site"]  # fixtures


def given(site: BundleSite, **more: Any) -> dict[str, Any]:
    """Return the inventory of a board that takes the bundle."""
    return board(**({"drupelet_bundle": str(site.folder), "drupelet_bundle_keys": [site.public]} | more))


# --- preflight -------------------------------------------------------------------------------------------------------


def test_a_signed_bundle_passes(site: BundleSite, tmp_path: Path) -> None:
    site.sign()
    assert look(given(site), tmp_path=tmp_path) == []


def test_a_changed_bundle_is_refused_before_any_host_is_changed(site: BundleSite, tmp_path: Path) -> None:
    site.sign()
    additional(site)
    (line,) = look(given(site), tmp_path=tmp_path)
    assert line == (
        f"pi-1: {site.folder}/wheels-cp313-aarch64.tar is no file of this bundle, MANIFEST does not list it: remove it."
        " [drupelet_bundle]"
    )


def test_a_strangers_bundle_is_refused(site: BundleSite, tmp_path: Path) -> None:
    signed_by_a_stranger(site)
    (line,) = look(given(site), tmp_path=tmp_path)
    assert ", which is no key of drupelet_bundle_keys: take a bundle of your own" in line


@pytest.mark.parametrize("keys_given", ["ssh-ed25519", ["no key"]])
def test_what_is_no_key_is_refused(site: BundleSite, tmp_path: Path, keys_given: Any) -> None:
    site.sign()
    lines = look(given(site, drupelet_bundle_keys=keys_given), tmp_path=tmp_path)
    assert any("which is no public key" in line for line in lines), lines


def test_an_older_bundle_than_any_board_has_had_is_refused(site: BundleSite, tmp_path: Path) -> None:
    """Also for a board whose card is new: another one remembers."""
    site.sign()
    answer = f"{BOARD}bundle 4000000000\n"
    (line,) = look(given(site), tmp_path=tmp_path, answer=answer)
    assert (
        " is older than the bundle of 2096-10-02 07:06:40 UTC that pi-1 has had: run playbooks/bundle.yml again" in line
    )
    assert look(given(site, drupelet_bundle_older=True), tmp_path=tmp_path, answer=answer) == []


def notes(**variables: Any) -> list[str]:
    host = preflight.Host(known, "pi-1", ["broker"], variables, BOARD)
    found: list[Any] = []
    preflight.findings({"broker": ["pi-1"]}, [host], found)
    return [note.text for note in found if note.key == "drupelet_bundle_keys"]


def test_a_site_without_a_key_goes_on_and_is_told(site: BundleSite, tmp_path: Path) -> None:
    for key in (None, "site"):
        site.sign(key)
        assert look(given(site, drupelet_bundle_keys=[]), tmp_path=tmp_path) == []
        (text,) = notes(drupelet_bundle=str(site.folder))
        assert text.startswith(
            f"{site.folder} is taken without a signature, as drupelet_bundle_keys is empty: playbooks/bu"
        )
    assert notes() == []
    assert notes(drupelet_bundle=str(site.folder), drupelet_bundle_keys=[site.public]) == []


# --- the key ---------------------------------------------------------------------------------------------------------


def play(place: Path, playbook: Path | str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a playbook for the inventory in `place`, whose user has a configuration folder of its own."""
    environment = os.environ | {"XDG_CONFIG_HOME": str(place / "config"), "ANSIBLE_ROLES_PATH": str(ANSIBLE / "roles")}
    command = [str(console_script("ansible-playbook")), "-i", str(place / "site"), str(playbook), *map(str, words)]
    return subprocess.run(
        command, cwd=ANSIBLE, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """Make the inventory of a site that has a secret."""
    (tmp_path / "site").mkdir()
    hosts = {"broker": {"hosts": {"pi-1": {"ansible_connection": "local", "security_secret": "x" * 24}}}}
    (tmp_path / "site/hosts.yml").write_text(yaml.safe_dump(hosts))
    return tmp_path


def test_one_command_makes_the_key_and_names_it_and_the_next_one_keeps_both(inventory: Path) -> None:
    done = play(inventory, "playbooks/bundle_key.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    key, named = inventory / "config/drupelet/bundle_key", inventory / "site/group_vars/all/bundle.yml"
    assert key.stat().st_mode & 0o777 == 0o600
    assert yaml.safe_load(named.read_text()) == {
        "drupelet_bundle_keys": [(inventory / f"{key}.pub").read_text().strip()]
    }
    before = key.read_bytes(), named.read_bytes()
    again = play(inventory, "playbooks/bundle_key.yml")
    assert " changed=0 " in again.stdout, again.stdout + again.stderr
    assert (key.read_bytes(), named.read_bytes()) == before


def test_a_site_that_runs_gets_no_key_by_the_command_for_new_ones(inventory: Path) -> None:
    done = play(inventory, "playbooks/secret.yml")
    assert "The inventory has a secret, which stays." in done.stdout, done.stdout + done.stderr
    assert not (inventory / "config").exists()
    assert not (inventory / "site/group_vars").exists()


# --- the tasks -------------------------------------------------------------------------------------------------------


@pytest.mark.root
def test_the_roles_tasks_bring_a_verified_file_and_no_other(site: BundleSite, inventory: Path) -> None:
    """Wheels, packages and jars all come by these tasks."""
    tasks = [
        {
            "ansible.builtin.include_role": {"name": "drupelet", "tasks_from": "bundled.yml"},
            "vars": {"bundled_file": "{{ item }}", "bundled_into": str(site.board)},
            "loop": [PART, OTHER],
        }
    ]
    book = inventory / "play.yml"
    environment = {"DRUPELET_STATE": str(site.state)}
    book.write_text(
        yaml.safe_dump([{"hosts": "all", "gather_facts": False, "environment": environment, "tasks": tasks}])
    )
    words = [f"-e@{inventory}/more.yml", "-e", f"ansible_python_interpreter={sys.executable}"]
    more = {
        "drupelet_bundle": str(site.folder),
        "drupelet_bundle_keys": [site.public],
        "drupelet_python": sys.executable,
    }
    (inventory / "more.yml").write_text(yaml.safe_dump(more))
    site.sign()
    before = site.has()
    dry = play(inventory, book, *words, "--check")
    assert dry.returncode == 0, dry.stdout + dry.stderr
    assert site.has() == before
    done = play(inventory, book, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert site.has().items() > UNPACKED.items()
    assert "Packages" in site.has()
    assert (site.state / "bundle-serial").read_text().strip().isdigit()
    shutil.copy(site.folder / PART, site.folder / OTHER)
    before = site.has()
    refused = play(inventory, book, *words)
    assert refused.returncode == 2
    assert (
        f"What came of {OTHER} is not what MANIFEST says: remove it there, run playbooks/bundle.yml" in refused.stdout
    )
    assert site.has() == before
