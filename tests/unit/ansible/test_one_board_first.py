"""Provision changes one running board first: if it fails, no other board is touched. New boards go together."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.ansible_files import ANSIBLE
from tests.support.runtimes import console_script

HOSTS = ("a", "b", "c")
UNITS = {
    "broker": "edge-broker", "mosquitto": "mosquitto", "gateway": "edge-gateway", "mirror": "edge-mirror",
    "spark": "edge-spark-job@readings",
}  # fmt: skip
GROUPS = {"spark": ("spark_worker", "spark_jobs")}
MEMBER = {"broker_settings": {"zookeeper.connect": "10.0.0.1:2181"}}


def play_of(tag: str) -> dict[str, Any]:
    plays = yaml.safe_load((ANSIBLE / "playbooks/provision.yml").read_text())
    (play,) = [play for play in plays if play.get("tags") == tag]
    return dict(play)


def plays_for_all() -> list[dict[str, Any]]:
    """The plays of provision before the brokers' that only note something."""
    plays = yaml.safe_load((ANSIBLE / "playbooks/provision.yml").read_text())
    return [play for play in plays if play.get("tags") == "always" and "set_fact" in str(play)]


def batches(
    tmp_path: Path,
    tag: str,
    answers: dict[str, str | None],
    failing: str = "",
    lost: str = "",
    own: dict[str, dict[str, object]] | None = None,
    **variables: object,
) -> list[str]:
    """Run a play with the order of provision's play `tag`, whose handler fails on one host; return each batch's hosts.

    `answers` has the answer of each host to preflight; a host of `None` was not reached; `lost` failed before.
    All hosts have `variables`, and each its `own`.
    """
    host = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": sys.executable}
    hosts = {name: host | variables | (own or {}).get(name, {}) for name in answers}
    groups = {group: {"hosts": dict.fromkeys(answers)} for group in GROUPS.get(tag, (tag,))}
    inventory = {"all": {"hosts": hosts}} | groups
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory))
    reached = {name: {"stdout": text} for name, text in answers.items() if text is not None}
    preflight = {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [{"set_fact": {"preflight_answer": "{{ (reached | default({}))[inventory_hostname] }}"}}],
        "vars": {"reached": {name: {"unreachable": True} for name in answers} | reached},
    }
    order = {key: value for key, value in play_of(tag).items() if key in ("hosts", "serial", "vars", "post_tasks")}
    changed = {
        "shell": f"echo {{{{ ansible_play_batch | join(' ') }}}} >{tmp_path}/{{{{ inventory_hostname }}}}.changed"
    }
    play = order | {
        "gather_facts": False,
        "handlers": [{"name": "Wait", "fail": {"msg": "sick"}, "when": f"inventory_hostname == '{failing}'"}],
        "tasks": [changed | {"notify": "Wait"}],
    }
    base = {"hosts": "all", "gather_facts": False, "tasks": [{"fail": None, "when": f"inventory_hostname == '{lost}'"}]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([preflight, base, *plays_for_all(), play]))
    command = [str(console_script("ansible-playbook")), "-i", str(tmp_path / "hosts.yml"), str(tmp_path / "play.yml")]
    done = subprocess.run(command, cwd=ANSIBLE, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in (0, 2), done.stdout + done.stderr
    files = sorted(tmp_path.glob("*.changed"), key=lambda path: path.stat().st_mtime_ns)
    return list(dict.fromkeys(path.read_text().strip() for path in files))


def running(names: Iterable[str], tag: str) -> dict[str, str | None]:
    return {name: f"python 3.11\nruns {UNITS[tag]}.service\nlistens x" if name in names else "x" for name in HOSTS}


@pytest.mark.parametrize("tag", UNITS)
def test_of_boards_that_run_one_goes_first_and_stops_the_others_if_it_fails(tag, tmp_path):
    assert batches(tmp_path, tag, running(HOSTS, tag), failing="a") == ["a"]


@pytest.mark.parametrize("failing", ["", "b"])
def test_after_the_first_board_all_others_go_together(failing, tmp_path):
    assert batches(tmp_path, "broker", running(HOSTS, "broker"), failing=failing) == ["a", "b c"]


@pytest.mark.parametrize("tag", UNITS)
def test_new_boards_go_together(tag, tmp_path):
    assert batches(tmp_path, tag, running((), tag)) == ["a b c"]


def test_a_running_board_goes_before_new_ones_wherever_it_stands_in_the_inventory(tmp_path):
    assert batches(tmp_path, "gateway", running(("c",), "gateway")) == ["c", "a b"]


def test_a_board_that_was_not_reached_is_never_the_first(tmp_path):
    assert batches(tmp_path, "broker", running(HOSTS, "broker") | {"a": None}) == ["b", "c a"]


def test_a_board_that_failed_in_a_play_before_is_not_the_first(tmp_path):
    assert batches(tmp_path, "broker", running(HOSTS, "broker"), lost="a") == ["b", "c"]


def test_a_broker_is_not_taken_for_running_by_the_name_of_another_service(tmp_path):
    answers: dict[str, str | None] = dict.fromkeys(HOSTS, "runs edge-broker-helper.service\nruns edge-gateway.service")
    assert batches(tmp_path, "broker", answers) == ["a b c"]


def test_boards_of_one_cluster_change_one_by_one_and_are_made_together(tmp_path):
    assert batches(tmp_path, "broker", running(HOSTS, "broker"), **MEMBER) == ["a", "b", "c"]
    assert batches(tmp_path, "broker", running((), "broker"), **MEMBER) == ["a b c"]


SHARED = {"spark_master_url": "spark://10.0.0.1:7077"}


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        pytest.param({"a": {"spark_address": "10.0.0.1"}, "b": SHARED, "c": SHARED}, ["a b c"], id="one_cluster"),
        pytest.param({"b": SHARED, "c": SHARED}, ["a", "b c"], id="own_one_first"),
        pytest.param({"a": SHARED, "b": SHARED}, ["c", "a b"], id="own_one_first_though_last"),
        pytest.param(
            {"a": {"spark_address": "127.0.0.1"}, "c": {"spark_master_url": "local[2]"}}, ["a", "b c"], id="all_own"
        ),
    ],
)
def test_boards_that_share_a_spark_master_change_together_and_one_with_its_own_before_them(own, expected, tmp_path):
    assert batches(tmp_path, "spark", running(HOSTS, "spark"), own=own) == expected


def test_new_boards_come_after_a_spark_cluster_that_runs_and_not_if_any_of_its_boards_fails(tmp_path):
    own: dict[str, dict[str, object]] = {"b": dict(SHARED), "c": dict(SHARED)}
    assert batches(tmp_path, "spark", running(("b", "c"), "spark"), own=own) == ["b c", "a"]
    for file in tmp_path.glob("*.changed"):
        file.unlink()
    assert batches(tmp_path, "spark", running(("b", "c"), "spark"), failing="c", own=own) == ["b c"]


def test_a_board_of_a_spark_cluster_that_is_away_holds_nobody_up(tmp_path):
    own: dict[str, dict[str, object]] = {"a": dict(SHARED), "b": dict(SHARED)}
    assert batches(tmp_path, "spark", running(("b",), "spark"), lost="a", own=own) == ["b", "c"]


def test_the_broker_checks_its_configuration_before_the_former_file_is_replaced():
    tasks = yaml.safe_load((ANSIBLE / "roles/broker/tasks/drupelet.yml").read_text())
    (task,) = [task for task in tasks if task["name"] == "Write the broker's configuration"]
    assert "edge-broker check --strict" in task["ansible.builtin.template"]["validate"]
    assert "Wait for the broker" in task["notify"]
