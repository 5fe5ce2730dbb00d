"""playbooks/rotation.yml by ansible-playbook, on two boards whose files are in folders of the test.

The brokers' users are in a file of each board: a script has the place of the Python that runs access.py there.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.ansible.two_boards import NEVER, SEEN, TwoBoards


@pytest.fixture
def site(tmp_path: Path) -> TwoBoards:
    return TwoBoards(tmp_path / "site")


def test_a_gateway_that_moved_keeps_its_user_at_the_former_broker_until_a_run_sees_it_at_the_new_one(site):
    """It may have got its former files back after it was at the new broker."""
    site.holds("pi-1", {"admin": SEEN, "gateway-pi-1": SEEN})
    site.holds("pi-2", {"admin": SEEN, "gateway-pi-1": SEEN, "verify-pi-1": NEVER})
    site.uses("10.0.0.1:9092")
    assert "gateway-pi-1 of pi-1 still holds at pi-1" in site.run()
    assert site.users("pi-1") == {"admin", "gateway-pi-1"}
    assert json.loads((site.folder / "pi-1/moved.json").read_text()) == ["gateway-pi-1"]
    site.uses("10.0.0.2:9092")
    site.started_s_ago(60)
    assert "gateway-pi-1 of pi-1 still holds at pi-1" in site.run(), "it was not restarted with its new files"
    site.started_s_ago(0)
    assert "still holds" not in site.run()
    assert site.users("pi-1") == {"admin"}
    assert (site.folder / "pi-1/etc/broker-log-ins").read_text() == "admin\n"


@pytest.mark.night
def test_one_word_ends_the_user_of_a_gateway_that_moved_and_was_not_seen(site):
    site.holds("pi-1", {"admin": SEEN, "gateway-pi-1": SEEN})
    site.holds("pi-2", {"admin": SEEN, "gateway-pi-1": NEVER})
    said = site.run("-e", "rotation=now")
    assert (
        "its service moved to pi-2 and was not seen there in this run: what still uses it is refused until pi-1" in said
    )
    assert said.index("moved to pi-2") < said.index("TASK [broker : Create users and ACLs]")
    assert site.users("pi-1") == {"admin"}


@pytest.mark.parametrize("words", [[], ["--check"]])
def test_what_the_word_locks_out_is_listed_before_it_happens(site, words):
    site.variables["pi-1"]["security_rotation"] = 2
    site.holds("pi-2", {"admin": SEEN, "gateway-pi-1": SEEN, "gateway-pi-1~2": NEVER, "verify-pi-1~2": NEVER})
    site.holds("pi-1", {"admin": SEEN})
    said = site.run("-e", "rotation=now", *words)
    line = "gateway-pi-1 of pi-1 ends at pi-2 now, and gateway-pi-1~2 has not logged in: what still uses it is refused"
    assert said.index(line) < said.index("TASK [broker : Create users and ACLs]")
    assert ("gateway-pi-1" in site.users("pi-2")) == bool(words)


def test_the_word_with_a_limit_names_the_brokers_that_keep_old_log_ins(site):
    site.variables["pi-1"]["security_rotation"] = 2
    site.holds("pi-2", {"admin": SEEN, "gateway-pi-1": SEEN, "gateway-pi-1~2": NEVER, "verify-pi-1~2": NEVER})
    said = site.run("-e", "rotation=now", "--limit", "pi-1")
    assert "The limit leaves out pi-2: old log-ins hold there until a run with rotation=now reaches them." in said
    assert "gateway-pi-1" in site.users("pi-2")


@pytest.mark.night
def test_a_rotation_and_a_move_at_once_end_when_the_new_generation_was_used_at_the_new_broker(site):
    site.variables["pi-1"]["security_rotation"] = 2
    site.holds("pi-1", {"admin": SEEN, "gateway-pi-1": SEEN})
    site.holds("pi-2", {"admin": SEEN, "gateway-pi-1": SEEN, "gateway-pi-1~2": NEVER, "verify-pi-1~2": NEVER})
    site.uses("10.0.0.2:9092")
    site.run()
    assert "gateway-pi-1" in site.users("pi-1") & site.users("pi-2")
    site.uses("10.0.0.2:9092", generation=2)
    site.run()
    assert not {"gateway-pi-1"} & (site.users("pi-1") | site.users("pi-2"))


@pytest.mark.night
def test_the_log_in_that_sparks_boards_share_ends_in_the_run_in_which_each_of_them_uses_the_new_one(site):
    site.groups = {"spark_jobs": ["pi-1"], "spark_worker": ["pi-2"]}
    for variables in site.variables.values():
        variables.update(spark_bootstrap="10.0.0.1:9092", security_rotation=2, spark_secret="x" * 24)
    site.holds("pi-1", {"admin": SEEN, "spark-pi-1": SEEN, "spark-pi-1~2": SEEN})
    site.holds("pi-2", {"admin": SEEN})
    site.has_password_of_spark("pi-1", 2)
    site.has_password_of_spark("pi-2", 1)
    assert "it ends in the first run in which each of pi-2, pi-1 uses spark-pi-1~2" in site.run()
    site.has_password_of_spark("pi-2", 2)
    site.started_s_ago(60)
    assert "still holds" in site.run(), "services that were started before the password was written have the old one"
    site.has_password_of_spark("pi-2", 2)
    assert "still holds" not in site.run()
    assert site.users("pi-1") == {"admin", "spark-pi-1~2"}
