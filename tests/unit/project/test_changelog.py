"""CHANGELOG.md has the form of Keep a Changelog, fits on a page, and names the version of pyproject.toml."""

from __future__ import annotations

import datetime
import itertools
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
LINES_MAX = 150
CHARACTERS_MAX = 140
UNRELEASED = "[Unreleased]"
RENAMED = "Log events renamed in "
SECTIONS = ["Upgrade notes", RENAMED, "Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
PARTS = ["all", "broker", "cluster", "mirror", "gateway", "spark", "hardware", "ansible", "commands"]
RELEASE = re.compile(r"\[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d{2}-\d{2})")
ENTRY = re.compile(r"- \*\*([a-z, ]+)\*\*: (\S.*)")
RENAMES = re.compile(r"`[a-z0-9_-]+` → `[a-z0-9_-]+`(, `[a-z0-9_-]+` → `[a-z0-9_-]+`)*")


def headings(lines: list[str], level: int) -> list[tuple[str, list[str]]]:
    """Return each heading of a level with the lines below it."""
    mark = "#" * level + " "
    found: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith(mark):
            found.append((line.removeprefix(mark), []))
        elif found:
            found[-1][1].append(line)
    return found


def problems(text: str, version: str) -> list[str]:
    """Return one sentence for each rule that a changelog breaks."""
    lines = text.splitlines()
    found = [f"{len(lines)} lines, at most {LINES_MAX}"] if len(lines) > LINES_MAX else []
    found += [f"line {n} has {len(line)} characters" for n, line in enumerate(lines, 1) if len(line) > CHARACTERS_MAX]
    releases = headings(lines, 2)
    found += release_problems([title for title, _ in releases], version)
    for title, below in releases:
        number = title.partition("]")[0].strip("[")
        found += section_problems(number, headings(below, 3))
    return found


def release_problems(titles: list[str], version: str) -> list[str]:
    """Check the headings of the releases: their form, dates and order."""
    if not titles or titles[0] != UNRELEASED:
        return [f"the first release is not {UNRELEASED}"]
    order: list[tuple[str, tuple[int, ...]]] = []
    for title in titles[1:]:
        match = RELEASE.fullmatch(title)
        if match is None:
            return [f"{title!r} is not `[X.Y.Z] - YYYY-MM-DD`"]
        try:
            datetime.date.fromisoformat(match[4])
        except ValueError:
            return [f"{title!r} has no date of the calendar"]
        order.append((match[4], tuple(int(match[field]) for field in (1, 2, 3))))
    found = []
    if any(newer[0] < older[0] or newer[1] <= older[1] for newer, older in itertools.pairwise(order)):
        found.append("the releases are not newest first")
    if not order or order[0][1] != tuple(map(int, version.split("."))):
        found.append(f"{version} of pyproject.toml is not the newest release")
    return found


def section_problems(release: str, sections: list[tuple[str, list[str]]]) -> list[str]:
    """Check the sections of one release: names, order and entries."""
    found = []
    places = []
    for title, below in sections:
        name = RENAMED if title == RENAMED + release else title
        if name not in SECTIONS:
            found.append(f"{release} has the unknown section {title!r}")
            continue
        places.append(SECTIONS.index(name))
        entries = [line for line in below if line.startswith(("-", "*", " ", "#"))]
        if not entries:
            found.append(f"{release}, {title}: no entry")
        found += [f"{release}, {title}: {problem}" for problem in entry_problems(entries, renames=name == RENAMED)]
    if places != sorted(set(places)):
        found.append(f"{release}: sections are repeated or not in order")
    return found


def entry_problems(entries: list[str], *, renames: bool) -> list[str]:
    """Check the entries of one section: one line each, with a part, in the order of the parts."""
    found = []
    order = []
    for entry in entries:
        match = ENTRY.fullmatch(entry)
        if match is None or not set(parts := match[1].split(", ")) <= set(PARTS):
            found.append(f"{entry!r} is not `- **PART**: TEXT` on one line")
            continue
        order.append(PARTS.index(parts[0]))
        if renames and not RENAMES.fullmatch(match[2]):
            found.append(f"{entry!r} is not a list of `old` → `new`")
    if order != sorted(order):
        found.append("entries are not sorted by part")
    if renames:
        old = re.findall(r"`([a-z0-9_-]+)` →", "\n".join(entries))
        found += [f"{name} is renamed twice" for name in sorted({name for name in old if old.count(name) > 1})]
    return found


def test_the_changelog_keeps_its_form() -> None:
    assert problems(TEXT, VERSION) == []


SOUND = """# Changelog

## [Unreleased]

## [1.2.0] - 2027-02-28

### Log events renamed in 1.2.0
Change each alert that matches an old name.
- **broker**: `a-b` → `a_happened`, `c` → `c_happened`

### Fixed
- **broker**: a text.
- **gateway, mirror**: a text.

## [1.1.9] - 2027-02-28

### Added
- **all**: a text.
"""
FAULTS = {
    "too long a page": ("- **all**: a text.\n", "- **all**: a text.\n" * 140, "157 lines, at most 150"),
    "too long a line": ("**all**: a text.", "**all**: " + "a text. " * 20, "line 18 has 171 characters"),
    "no place for the next changes": ("## [Unreleased]\n\n", "", "the first release is not [Unreleased]"),
    "another form of a date": (
        "- 2027-02-28\n\n### Log",
        "(28 February 2027)\n\n### Log",
        "is not `[X.Y.Z] - YYYY-MM-DD`",
    ),
    "a date that does not exist": ("[1.1.9] - 2027-02-28", "[1.1.9] - 2027-02-29", "has no date of the calendar"),
    "an older date above": ("[1.2.0] - 2027-02-28", "[1.2.0] - 2027-02-27", "the releases are not newest first"),
    "an older version above": ("[1.1.9]", "[1.3.0]", "the releases are not newest first"),
    "a version without a release": ("[1.2.0]", "[1.2.1]", "1.2.0 of pyproject.toml is not the newest release"),
    "a section of another name": ("### Added", "### New", "1.1.9 has the unknown section 'New'"),
    "renames of another release": ("renamed in 1.2.0", "renamed in 1.1.0", "1.2.0 has the unknown section"),
    "sections out of order": (
        "### Log events renamed in 1.2.0",
        "### Security",
        "sections are repeated or not in order",
    ),
    "an empty section": ("### Added\n- **all**: a text.\n", "### Added\n", "1.1.9, Added: no entry"),
    "an entry of two lines": ("**all**: a text.\n", "**all**: a text\n  of two lines.\n", "'  of two lines.' is not"),
    "an unknown part": ("**all**", "**gatewya**", "is not `- **PART**: TEXT` on one line"),
    "parts out of order": ("- **broker**: a text.", "- **spark**: a text.", "entries are not sorted by part"),
    "no pair of names": ("`c` → `c_happened`", "`c` is `c_happened`", "is not a list of `old` → `new`"),
    "an event renamed twice": ("`c` → `c_happened`", "`a-b` → `c_happened`", "a-b is renamed twice"),
}


def test_a_sound_changelog_has_no_problem() -> None:
    assert problems(SOUND, "1.2.0") == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str) -> None:
    sound, planted, problem = FAULTS[fault]
    assert SOUND.count(sound) == 1
    found = problems(SOUND.replace(sound, planted), "1.2.0")
    assert [sentence for sentence in found if problem in sentence], found
