"""Rights of mirrors are never wider than the names and beginnings given; preflight refuses what rights cannot say."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.ansible.preflight import BOARD, known, look, preflight
from tests.support.ansible.site_access import made, site_access, told
from tests.support.ansible_files import ANSIBLE

SECRET = "k4Tq9ZbXw2Rm7VdYp3Ls8NfHc6Jg5Ue1"
HAS_RELEASE = BOARD.replace("\nrelease\n", "\nrelease 1.0\n")
COPIES = "ALTER CREATE DESCRIBE DESCRIBE_CONFIGS READ WRITE"
READS = "DESCRIBE DESCRIBE_CONFIGS READ"


def boards(**of_boards: dict[str, Any]) -> dict[str, Any]:
    """Boards by name, with - for _, each with a mirror to dc-1."""
    hosts = {
        name.replace("_", "-"): {"mirror_target": "10.0.0.9:9092", "mirror_site": "plant"} | given
        for name, given in of_boards.items()
    }
    names = dict.fromkeys(hosts)
    return {
        "all": {
            "vars": {"security_secret": SECRET},
            "hosts": hosts | {"dc-1": {"ansible_host": "10.0.0.9", "central_advertise": "10.0.0.9:9092"}},
            "children": {
                "broker": {"hosts": names},
                "mirror": {"hosts": names},
                "central": {"hosts": {"dc-1": None}},
            },
        }
    }


def rights(tmp_path, server: str, **of_board: Any) -> set[str]:
    """Rights of the mirror of pi-1 to topics of its own, at one of its two brokers."""
    lines = told(made(tmp_path, boards(pi_1=of_board)).acls(server))
    return {line.removeprefix("mirror-pi-1 TOPIC ") for line in lines if re.match(r"mirror-pi-1 TOPIC \w+ [^_]", line)}


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("readings|farm.temp", ["LITERAL readings", "LITERAL farm.temp"]),
        (r"farm\.temp", ["LITERAL farm.temp"]),
        ("readings.*|logs", ["PREFIXED readings", "LITERAL logs"]),
        (r"farm\..*", ["PREFIXED farm."]),
        ("farm.north.*", ["PREFIXED farm.north"]),
        ("sensor[0-9]+|logs", ["PREFIXED sensor", "LITERAL logs"]),
        ("readings(_a|_b)?", ["PREFIXED readings"]),
        ("^logs$|", ["LITERAL logs"]),
        (".*", ["LITERAL *"]),
    ],
)
def test_a_mirror_reads_the_names_and_beginnings_of_its_pattern_and_no_more(pattern, names, tmp_path):
    assert rights(tmp_path, "pi-1", mirror_topics=pattern) == {f"{name}: {READS}" for name in names}
    identity = {"mirror_settings": {"policy": "identity"}, "mirror_topics": pattern}
    assert rights(tmp_path, "dc-1", **identity) == {f"{name}: {COPIES}" for name in names}


NAMES = st.text("ab.-_1", min_size=1, max_size=6)
PIECES = st.sampled_from(
    ["a", "b", "1", "-", "_", r"\.", "(a|b)", "[ab|]", "a?", "b*", "|", "(?:a)", "a{1,2}", r"\w", "^", "$", ".*"]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=6).map("".join), NAMES)
@example("a|b?", "b")
@example("(a|b)1", "b1")
@example("(?i)a|b", "B")
@example("a(?i:b)", "aB")
def test_no_topic_that_a_pattern_selects_is_without_rights(pattern, name):
    try:
        matches = re.fullmatch(pattern, name)
    except re.error:
        return
    names = site_access.topic_names(pattern).names
    if matches:
        assert any(name.startswith(one[:-1]) if one.endswith("*") else name == one for one in names), names


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=6).map("".join), NAMES)
@example(r"a\.b.*", "a.bb")
def test_the_rights_of_a_pattern_without_a_finding_are_for_what_it_selects_alone(pattern, name):
    found = site_access.topic_names(pattern)
    if not found.inexact and any(
        name.startswith(one[:-1]) if one.endswith("*") else name == one for one in found.names
    ):
        assert re.fullmatch(pattern, name)


def test_settings_at_the_datacenter_are_changed_only_where_a_variable_says_so(tmp_path):
    assert rights(tmp_path, "dc-1") == {f"PREFIXED plant.: {COPIES}"}
    asked = rights(tmp_path, "dc-1", mirror_sync_topic_configs=True)
    assert asked == {"PREFIXED plant.: ALTER ALTER_CONFIGS CREATE DESCRIBE DESCRIBE_CONFIGS READ WRITE"}
    no = rights(tmp_path, "dc-1", mirror_sync_topic_configs="no")
    assert no == {f"PREFIXED plant.: {COPIES}"}


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        (
            {"mirror_topics": "readings|farm.temp"},
            "mirror_topics has farm.temp, where a dot .* write farm\\\\.temp\\. \\[mirror_topics",
        ),
        ({"mirror_topics": "farm.temp.*"}, "has farm.temp.*, where a dot .* write farm\\\\.temp\\.\\*\\."),
        ({"mirror_topics": "s[0-9]+"}, "has s\\[0-9\\]\\+, .*write each name, or s\\.\\* for all that begin so\\."),
        ({"mirror_topics": "(a|b)"}, "has \\(a\\|b\\), .*write each name, or a beginning such as readings"),
        (
            {"mirror_topics": ".*", "mirror_settings": {"policy": "identity"}},
            "could write every topic at dc-1\\. Write each",
        ),
    ],
)
def test_a_new_board_whose_rights_would_be_wider_than_its_topics_is_refused(given_, said, tmp_path):
    found = look(boards(pi_1=given_), tmp_path=tmp_path)
    assert len(found) == 1, found
    assert re.search(said, found[0]), found
    assert look(boards(pi_1=given_), tmp_path=tmp_path, answer=HAS_RELEASE) == []  # it is told, not cut off
    assert (
        look(
            boards(pi_1=given_ | {"preflight_accept": "x"}),
            tmp_path=tmp_path,
            security_secret="",
            broker_security="none",
            central_security="none",
        )
        == []
    )


@pytest.mark.parametrize("pattern", [r"farm\.temp|readings.*", ".*", "a-b|c_d|^e$", ""])
def test_a_pattern_of_names_and_beginnings_passes(pattern, tmp_path):
    assert look(boards(pi_1={"mirror_topics": pattern}), tmp_path=tmp_path) == []


def test_a_site_whose_name_begins_another_ones_is_refused(tmp_path):
    given_ = boards(pi_1={"mirror_site": "farm"}, pi_2={"mirror_site": "farm.north"}, pi_3={"mirror_site": "farmyard"})
    assert look(given_, tmp_path=tmp_path) == [
        "pi-1: mirror_site is farm, whose rights are for all of farm.* at dc-1, the topics of farm.north (pi-2) "
        "included: give one of the two another name, such as farm-north. [mirror_site]"
    ]
    assert look(given_, tmp_path=tmp_path, answer=HAS_RELEASE) == []


def test_a_mirror_that_keeps_names_and_may_write_the_topics_of_a_site_is_refused(tmp_path):
    identity = {"mirror_settings": {"policy": "identity"}}
    given_ = boards(pi_1=identity | {"mirror_topics": r"farm\.temp|logs"}, pi_2={"mirror_site": "farm"})
    assert look(given_, tmp_path=tmp_path) == [
        "pi-1: mirror_topics gives rights to farm.temp at dc-1, the topics of farm (pi-2) included: name other topics, "
        "or give that site another name. [mirror_site]"
    ]
    given_ = boards(pi_1=identity | {"mirror_topics": "fa.*"}, pi_2={"mirror_site": "farm"})
    assert "mirror_topics gives rights to fa* at dc-1" in look(given_, tmp_path=tmp_path)[0]


def test_sites_at_targets_of_their_own_may_share_a_beginning(tmp_path):
    given_ = boards(pi_1={"mirror_site": "farm"}, pi_2={"mirror_site": "farm.north", "mirror_target": "10.0.0.8:9092"})
    assert look(given_, tmp_path=tmp_path) == []


def test_a_running_site_is_told(tmp_path):
    notes: list[Any] = []
    given_ = boards(pi_1={"mirror_site": "farm", "mirror_topics": "a.b"}, pi_2={"mirror_site": "farm.north"})
    hosts = [
        preflight.Host(known, name, [g for g, m in given_["all"]["children"].items() if name in m["hosts"]],
                       given_["all"]["vars"] | variables, HAS_RELEASE)
        for name, variables in given_["all"]["hosts"].items()
    ]  # fmt: skip
    members = {group: list(of["hosts"]) for group, of in given_["all"]["children"].items()}
    assert preflight.findings(members, hosts, notes) == []
    assert [note.key for note in notes if note.key.startswith("mirror_")] == ["mirror_topics", "mirror_site"]


def test_the_example_inventories_need_no_wider_rights():
    for path in ANSIBLE.glob("inventories/*/group_vars/*/*.yml"):
        topics = (yaml.safe_load(path.read_text()) or {}).get("mirror_topics")
        assert not topics or site_access.topic_names(topics).inexact == []
