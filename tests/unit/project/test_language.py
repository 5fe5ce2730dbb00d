"""Words and long sentences that the project gives up: no file has more of them than its bound, and bounds only fall.

The words, and the command that lowers the bounds, are in tests/support/language.py.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.language import (
    BEGINNINGS,
    BEGINS,
    HEAD,
    LONG,
    TABLE,
    WORDS,
    Finding,
    Findings,
    as_text,
    findings,
    lowered,
    pages,
    problems,
    read_bounds,
)
from tests.support.product_sources import ROOT, Source, sources

COMMAND = "python -m tests.support.language"
LONGEST = "The broker syncs " + "one " * 21 + "batch."
PLANTED = {  # text of a page, and what is found
    **{f"The broker {word} waits.": [word] for word in WORDS},
    **{
        f"It waits. {word} one wants, it does.": [f"{BEGINS}{word}"] for word in BEGINNINGS if word.lower() not in WORDS
    },
    "It waits. Behind it, one waits.": [f"{BEGINS}Behind", "behind"],
    "It waits behind\nthe leader.": ["behind"],
    "It is\ntold all.": ["is told"],
    "Anew, it begins ANEW.": ["anew", "anew"],
    "The wait is left-behind, or `behind` or ``behind``.": [],
    "See [the page](behind.md).": [],
    "What does it do?": [],
    "| key | meaning |\n|---|---|\n| What waits | begins anew |": [f"{BEGINS}What", "anew"],
    "- one\n- What waits": [f"{BEGINS}What"],
    "```\nbehind\n```\nafter": [],
    "````\n```\nbehind\n````\nanew": ["anew"],
    "<!-- behind\nanew -->": [],
    LONGEST: [],
    LONGEST.replace("batch.", "whole batch."): [LONG],
    LONGEST.replace("batch.", "— batch."): [],
    LONGEST.replace("batch.", "`of a whole` batch."): [LONG],
    LONGEST.replace("one ", "one\n").replace("batch.", "big\nbatch. It ends"): [LONG],
    f"# {LONGEST} and more": [],
    f"| {LONGEST} and more |": [],
    f"- {LONGEST}\n- It waits. {LONGEST}": [],
}


def planted(root: Path, files: Mapping[str, str]) -> Findings:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return findings(pages(sources(root), root))


def test_no_file_exceeds_its_bounds(product: list[Source]) -> None:
    assert problems(read_bounds(TABLE.read_text()), findings(pages(product))) == []


def test_every_kind_of_text_is_read(product: list[Source]) -> None:
    """A kind that is missing would have none of the words."""
    paths = {page.path for page in pages(product)}
    expected = {"README.md", "edge_broker/DESIGN.md", "ansible/README.md", "ansible/roles/broker/tasks/main.yml"}
    assert expected | {"mirror/cli.py", "ansible/plugins/action/site_access.py"} <= paths
    assert len(paths) > 700
    assert not any(path.startswith(("tests/", "ansible/molecule/")) for path in paths)


@pytest.mark.parametrize("text", PLANTED)
def test_words_and_sentences_are_found_in_a_page(tmp_path: Path, text: str) -> None:
    assert [one.name for one in planted(tmp_path, {"README.md": text})["README.md"]] == PLANTED[text]


PYTHON = '''"""Waits behind: `behind`.

What it waits for, nobody knows.

| state | then |
|---|---|
| idle | begins
anew |
"""

import wait  # anew, as
# it is

# It is
# told first.
behind = wait.behind("behind")
raise Trouble(f"{behind} is told: wait behind it")


class Lane:
    """What it is told."""

    def wait(self, anew):
        """Whoever calls."""
        return """
            In place of it.
        """
'''


def test_words_are_found_in_docstrings_comments_and_strings(tmp_path: Path) -> None:
    assert planted(tmp_path, {"mirror/a.py": PYTHON})["mirror/a.py"] == [
        Finding(1, "behind"),
        Finding(3, f"{BEGINS}What"),
        Finding(3, "nobody"),
        Finding(8, "anew"),
        Finding(11, "anew"),
        Finding(14, "is told"),
        Finding(17, "behind"),
        Finding(17, "is told"),
        Finding(21, f"{BEGINS}What"),
        Finding(21, "is told"),
        Finding(24, "whoever"),
        Finding(25, "in place of"),
    ]


TASKS = """- name: Read what nobody wrote
  ansible.builtin.shell: echo behind  # behind
- block:
    - name: "What is told"
      vars: {name: behind}
"""


def test_words_are_found_in_names_of_tasks(tmp_path: Path) -> None:
    found = planted(tmp_path, {"ansible/roles/a/tasks/main.yml": TASKS, "ansible/molecule/a/converge.yml": TASKS})
    expected = [Finding(1, "nobody"), Finding(4, f"{BEGINS}What"), Finding(4, "is told")]
    assert found == {"ansible/roles/a/tasks/main.yml": expected}


FILES = {"README.md": "Wait behind.\n\nOr behind it.\n"}


@pytest.mark.parametrize(
    ("bounds", "problem"),
    [
        ("README.md: behind 2", ""),
        ("README.md: behind 1", "README.md:1, 3: 'behind' 2 times, the bound is 1: write 'after'"),
        ("README.md: behind 3", f"README.md: 'behind' 2 times, the bound is 3: lower it: {COMMAND}"),
        ("README.md: anew 1, behind 2", f"README.md: 'anew' 0 times, the bound is 1: lower it: {COMMAND}"),
        ("README.md: behind 2\ngateway/a.py: anew 1", f"gateway/a.py: there is no such file: {COMMAND}"),
        ("", "README.md:1, 3: 'behind' 2 times, the bound is 0: write 'after' (text that moved here"),
    ],
)
def test_a_bound_is_the_present_count(tmp_path: Path, bounds: str, problem: str) -> None:
    found = problems(read_bounds(bounds), planted(tmp_path, FILES))
    assert len(found) == bool(problem)
    assert "".join(found).startswith(problem)


MOVES = {  # bounds and files, then the bounds that the command writes
    "fewer words": ("mirror/a.py: behind 3", {"mirror/a.py": 2}, "mirror/a.py: behind 2"),
    "none": ("mirror/a.py: behind 3", {"mirror/a.py": 0}, ""),
    "more": ("mirror/a.py: behind 3", {"mirror/a.py": 4}, "mirror/a.py: behind 3"),
    "deleted": ("mirror/a.py: behind 3", {}, ""),
    "new": ("mirror/a.py: behind 3", {"mirror/a.py": 3, "mirror/b.py": 1}, "mirror/a.py: behind 3"),
    "moved": ("mirror/a.py: behind 3", {"mirror/b/c.py": 3}, "mirror/b/c.py: behind 3"),
    "moved and more": ("mirror/a.py: behind 3", {"mirror/b/c.py": 4}, "mirror/b/c.py: behind 3"),
    "moved to another part": ("mirror/a.py: behind 3", {"gateway/a.py": 3}, ""),
    "split": (
        "mirror/a.py: behind 3",
        {"mirror/a.py": 1, "mirror/b.py": 1, "mirror/c.py": 2},
        "mirror/a.py: behind 1\nmirror/b.py: behind 1\nmirror/c.py: behind 1",
    ),
    "from one listed file to another": (
        "mirror/a.py: behind 3\nmirror/b.py: behind 1",
        {"mirror/a.py": 2, "mirror/b.py": 2},
        "mirror/a.py: behind 2\nmirror/b.py: behind 1",
    ),
}


@pytest.mark.parametrize("move", MOVES)
def test_the_command_lowers_and_never_raises(tmp_path: Path, move: str) -> None:
    before, files, after = MOVES[move]
    found = planted(tmp_path, {path: "# wait behind\n" * count for path, count in files.items()})
    then = lowered(read_bounds(before), found)
    assert then == read_bounds(after)
    assert read_bounds(as_text(then)) == then


def test_the_lower_of_two_bounds_counts() -> None:
    bounds = read_bounds("# head\nmirror/a.py: anew 2, behind 3\nmirror/a.py: behind 1, is told 4\n")
    assert bounds == {"mirror/a.py": {"behind": 1}}


def test_bounds_of_both_sides_of_a_merge_are_kept(tmp_path: Path) -> None:
    """Two changes that lower neighbouring bounds merge without a conflict."""

    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True, timeout=60
        )

    def change(text: str) -> None:
        table.write_text(HEAD + text)
        git("commit", "-qam", "a change of the bounds")

    table = tmp_path / TABLE.relative_to(ROOT)
    table.parent.mkdir(parents=True)
    shutil.copy(ROOT / ".gitattributes", tmp_path)
    git("init", "-q", "-b", "main")
    table.touch()
    git("add", ".")
    change("a.md: anew 4\nb.md: anew 4\nc.md: anew 4\n")
    git("checkout", "-q", "-b", "other")
    change("a.md: anew 3\nb.md: anew 4\nc.md: anew 4\n")
    git("checkout", "-q", "main")
    change("a.md: anew 4\nb.md: anew 2\nc.md: anew 4\n")
    git("rebase", "-q", "main", "other")
    assert read_bounds(table.read_text()) == {"a.md": {"anew": 3}, "b.md": {"anew": 2}, "c.md": {"anew": 4}}
