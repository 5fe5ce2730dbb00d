"""Tags of provision: each role alone, with what it needs before it and nothing of the others."""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.runtimes import console_script

ANSIBLE = Path(__file__).parents[3] / "ansible"
ALWAYS = {
    "Run the preflight rules against the inventory and the hosts",
    "Record the boards that are still in the run",
    "Sync the file systems of the boards",
    "Show which hosts rotation=now leaves out",
    "Find brokers that hold old credentials",
    "Use the new credentials",
    "Revoke old credentials at the brokers",
    "Revoke old credentials at mosquitto",
}
PLAYS = {
    "packages": {"Set up the sources of packages"},
    "base": {"Configure the operating system of the boards"},
    "broker": {"Build the wheel", "Pack Apache Kafka's jars", "Install the brokers"},
    "central": {"Pack Apache Kafka's jars", "Install the datacenter's Apache Kafka"},
    "mosquitto": {"Install mosquitto"},
    "gateway": {"Build the wheel", "Install the gateways"},
    "mirror": {"Build the wheel", "Install the mirrors"},
    "spark": {"Build the wheel", "Pack Spark's Kafka connector", "Install Spark"},
}


@functools.cache
def listed(*words: str) -> str:
    """What Ansible lists of provision on the inventory four-boards."""
    command = [
        str(console_script("ansible-playbook")),
        "-i",
        "inventories/four-boards",
        "playbooks/provision.yml",
        *words,
    ]
    return subprocess.run(command, cwd=ANSIBLE, capture_output=True, text=True, check=True, timeout=120).stdout


def plays_with_tasks(said: str) -> set[str]:
    """The plays in which more is done than arguments held against what the role declares, which every run does."""
    blocks = re.split(r"(?m)^  play #\d+ ", said)[1:]
    return {
        found[1]
        for block in blocks
        if (found := re.match(r"\([^)]*\): (.*?)\tTAGS", block))
        and re.search(r"(?m)^      (?!.*: Validating arguments)\S", block)
    }


def test_the_tags_are_those_of_the_roles():
    tags = {tag for line in listed("--list-tags").splitlines() for tag in re.findall(r"TASK TAGS: \[(.*)\]", line)}
    assert {tag for tags_of_play in tags for tag in tags_of_play.split(", ") if tag} == {*PLAYS, "always"}


@pytest.mark.parametrize("tag", PLAYS)
def test_a_role_comes_alone_with_what_it_needs(tag):
    assert plays_with_tasks(listed("--list-tasks", "--tags", tag)) == PLAYS[tag] | ALWAYS


def test_a_role_that_is_skipped_is_the_only_one():
    left = plays_with_tasks(listed("--list-tasks", "--skip-tags", "mosquitto"))
    assert left == set().union(*PLAYS.values()) - PLAYS["mosquitto"] | ALWAYS
