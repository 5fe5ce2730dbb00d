"""FROM-A-BARE-CARD.md up to the cards, followed as it stands in a copy of its own: inventory, vault, flash, card.

The rest of it needs hosts: tests/page. Here also: each line of the page keeps its number, and a failure names it.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.page.script import PageRefused, Substitution, not_printed, script
from tests.page.substitutions import CARD, IMAGE, LAB
from tests.support.card_images import LAYOUTS, make_image
from tests.support.first_boot import KEY
from tests.support.runtimes import console_script

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "ansible/FROM-A-BARE-CARD.md"
HERE = (
    Substitution(
        "python3 -m venv .venv && . .venv/bin/activate", "true", "tests run in an environment that has it all"
    ),
    Substitution("pip install -e '.[hardware,ansible]'", "true", "the same"),
)
LOGS = {
    "var/log/cloud-init-output.log": "Cloud-init v. 25.2 finished\n",
    "var/log/cloud-init.log": "WARNING: it was warm\n",
}


def follow(text: str, folder: Path, *, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a script as a reader would, in a checkout of his own."""
    programs = console_script("ansible-playbook").parent
    environment = {**os.environ, "HOME": str(home), "PATH": f"{programs}:/usr/sbin:/sbin:{os.environ['PATH']}"}
    environment.pop("ANSIBLE_VAULT_PASSWORD_FILE", None)
    return subprocess.run(
        ["bash"], input=text, capture_output=True, text=True, check=False, cwd=folder, env=environment, timeout=220
    )


def test_the_page_up_to_the_cards_holds_as_it_stands(tmp_path):
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id_ed25519.pub").write_text(KEY + "\n")
    layout = LAYOUTS["trixie"]
    image = make_image(tmp_path / "image", replace(layout, root={**layout.root, **LOGS})).read_bytes()
    (home / IMAGE).write_bytes(lzma.compress(image, preset=0))
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT / "ansible", checkout / "ansible", ignore=shutil.ignore_patterns("support", "__pycache__"))
    text = script(PAGE.read_text(), (*HERE, *CARD), until="## 4. Provision")
    text = text.replace("IMAGE_SHA256", hashlib.sha256((home / IMAGE).read_bytes()).hexdigest())
    done = follow(text, checkout, home=home)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for seen in ("Cloud-init v. 25.2 finished", "WARNING: it was warm", "10.77.0.11/24"):
        assert seen in done.stdout, seen
    vault = checkout / "ansible/inventories/plant-7/group_vars/all/vault.yml"
    assert vault.read_text().startswith("$ANSIBLE_VAULT;")
    assert vault.stat().st_mode & 0o077 == 0


def test_every_playbook_and_document_that_the_page_names_is_there():
    text = PAGE.read_text()
    for name in re.findall(r"playbooks/\w+\.yml", text):
        assert (PAGE.parent / name).exists(), name
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (PAGE.parent / link).exists(), link


def test_the_whole_page_is_shell_and_each_substitution_is_needed(tmp_path):
    text = script(PAGE.read_text(), (*CARD, *LAB))
    assert len(text.splitlines()) == len(PAGE.read_text().splitlines())
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr


def test_a_failure_names_the_line_of_the_page(tmp_path):
    page = (
        "# Title\n\nIt is told in `inventories/a/b.yml`:\n\n```yaml\na: $HOME\n```\n\n"
        "```sh\ncat inventories/a/b.yml\nfalse\ntrue\n```\n"
    )
    done = follow(script(page, ()), tmp_path, home=tmp_path)
    assert done.returncode == 1
    assert "a: $HOME" in done.stdout
    assert "PAGE:11: failed with 1: false" in done.stderr
    assert "PAGE:12" not in done.stdout


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("# T\n```\nls\n```\n", "line 2: a block is sh, yaml or text, not ''"),
        ("# T\n```yaml\na: 1\n```\n", "line 2: no sentence before it names the file"),
        ("# T\n```sh\nls\n", "line 2: the block does not end"),
    ],
)
def test_a_page_that_could_not_be_tried_whole_is_refused(page, says):
    with pytest.raises(PageRefused, match=re.escape(says)):
        script(page, ())


def test_a_substitution_that_nothing_needs_is_refused():
    with pytest.raises(PageRefused, match="no line of the page needs the substitution of 'x'"):
        script("# T\n", (Substitution("x", "y", "z"),))


def test_what_the_page_shows_is_held_against_what_was_printed_but_for_numbers():
    shown = '12:00:01.5Z  0/3  pi-1 {"run": "6b0d", "value": 0.04}\nledger ok  0.0 s\n'
    page = f"# T\n\n```sh\nls\n```\n\n```text\n{shown}```\n"
    alike = '    "12:00:02Z 0/1 pi-1 {"run": "f00d1e", "value": 8e-05}",\n"ledger      ok  3 s  more",\n'
    assert not_printed(page, alike) == []
    assert not_printed(page, alike.replace("ledger", "losses")) == ["9: ledger ok  0.0 s"]
    assert [line[:2] for line in not_printed(page, alike.replace("12:00:02Z 0/1", "1795280701136"))] == ["8:"]
    assert [line[:2] for line in not_printed(page, alike.replace("12:00:02Z", "2026 12:00:02Z"))] == ["8:"]
