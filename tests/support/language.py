"""Words and sentences that the project's text gives up, their count in each file, and the bounds of these counts.

`python -m tests.support.language` lowers the bounds to the present counts and prints totals. It never raises a bound.

| text | counted |
|---|---|
| docstrings, comments and strings of the product; names of Ansible's tasks; pages | `WORDS`, `BEGINNINGS` |
| pages, without tables and headings | sentences over 25 words |

A file has its bounds under its path. A new file has none of these words, with one exception: if other files of its part
lost some, the command passes their bounds on, so that a module can move or be split with its text.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support import prose
from tests.support.product_sources import PARTS, ROOT, Source, sources

COMMAND = "python -m tests.support.language"
TABLE = ROOT / "tests/unit/project/language_bounds.txt"
WORDS_MAX = 25
LONG = f"sentences over {WORDS_MAX} words"
WORDS = {  # what is written instead
    "anew": "again, new",
    "are told": "receive",
    "behind": "after",
    "beside": "concurrently with, in addition to",
    "heir": "new leader",
    "in place of": "instead of",
    "is told": "receives",
    "Lives here": "Contains",
    "Must never come in": "Does not contain",
    "Never here": "Does not contain",
    "nobody": "no one named: say which client, broker or caller",
    "own up": "record as lost",
    "reign": "active period",
    "somebody": "say which client, broker or caller",
    "undaunted": "loss-tolerant",
    "wherever": "if",
    "whichever": "the one that",
    "whoever": "the client, broker or caller that",
}
BEGINS = "a sentence begins with "
BEGINNINGS = ("What", "Who", "Behind", "Of these")
ADVICE = {LONG: "divide them"} | {f"{BEGINS}{word}": "begin with the subject" for word in BEGINNINGS}
NOT_PRODUCT = ("ansible/molecule/", "ansible/support/")
GOALS = {  # of all files together
    "dialect": (100, ("anew", "whoever", "is told", "are told", "in place of", "Lives here", "Must never come in")),
    "behind": (120, ("behind",)),
}
HEAD = f"""\
# The most that each file may have of words and long sentences that the text gives up: tests/support/language.py.
# `{COMMAND}` lowers these bounds to the present counts; it raises none. After a merge, run it again.
# If a path stands twice, the lower figure counts: both sides of a merge are kept (.gitattributes).
"""

_WORD = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, WORDS))})(?![\w-])", re.IGNORECASE)
_SPELLING = {word.lower(): word for word in WORDS}
_BEGINNING = re.compile(rf"[\"'(*_]*({'|'.join(BEGINNINGS)})\b")


class Finding(NamedTuple):
    """A word or a long sentence, and its line."""

    line: int
    name: str


Findings = dict[str, list[Finding]]  # by path
Bounds = dict[str, Counter[str]]  # by path, then by name of the word


class Page(NamedTuple):
    """A file with prose."""

    path: str
    passages: Iterable[prose.Passage]
    has_long_sentences: bool = False


def pages(product: Iterable[Source], root: Path = ROOT) -> Iterator[Page]:
    """Return the product's Python files, Ansible's YAML files, and all Markdown files outside tests."""
    for source in product:
        if not source.path.startswith(NOT_PRODUCT):
            yield Page(source.path, prose.of_python(source))
    for path in sorted([*root.glob("*.md"), *_in_parts(root, "*.md")]):
        yield Page(path.relative_to(root).as_posix(), prose.of_markdown(path.read_text(encoding="utf-8")), True)
    for path in sorted([*_in_parts(root, "*.yml"), *_in_parts(root, "*.yaml")]):
        yield Page(path.relative_to(root).as_posix(), prose.of_tasks(path.read_text(encoding="utf-8")))


def _in_parts(root: Path, pattern: str) -> Iterator[Path]:
    for part in PARTS:
        for path in (root / part).rglob(pattern):
            if not path.is_symlink() and not path.relative_to(root).as_posix().startswith(NOT_PRODUCT):
                yield path


def findings(some: Iterable[Page]) -> Findings:
    """Return what is found in each page, sorted by line."""
    return {page.path: sorted(_findings(page)) for page in some}


def _findings(page: Page) -> Iterator[Finding]:
    for passage in page.passages:
        for match in _WORD.finditer(passage.text):
            yield Finding(passage.line(match.start()), _SPELLING[match.group().lower()])
        for sentence in passage.sentences():
            beginning = _BEGINNING.match(sentence.text)
            if beginning is not None and not sentence.text.endswith("?"):
                yield Finding(sentence.line, f"{BEGINS}{beginning.group(1)}")
            if page.has_long_sentences and sentence.kind is prose.Kind.TEXT and sentence.words > WORDS_MAX:
                yield Finding(sentence.line, LONG)


def counts(found: Findings) -> Bounds:
    """Return how often each word stands in each file that has one."""
    return {path: Counter(one.name for one in some) for path, some in found.items() if some}


def read_bounds(text: str) -> Bounds:
    """Return the bounds of a table's text."""
    bounds: Bounds = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            path, _, figures = line.partition(": ")
            pairs = (figure.rsplit(" ", 1) for figure in figures.split(", "))
            listed = Counter({name: int(figure) for name, figure in pairs})
            bounds[path] = bounds[path] & listed if path in bounds else listed
    return bounds


def as_text(bounds: Bounds) -> str:
    """Return the table's text."""
    rows = (
        f"{path}: {', '.join(f'{name} {figures[name]}' for name in sorted(figures))}\n"
        for path, figures in sorted(bounds.items())
        if figures
    )
    return "".join((HEAD, *rows))


def problems(bounds: Bounds, found: Findings) -> list[str]:
    """Return a sentence for each word that exceeds its bound, and for each bound that is out of date."""
    present = counts(found)
    said = []
    for path in sorted(bounds.keys() | present.keys()):
        listed, now = bounds.get(path, Counter()), present.get(path, Counter())
        if path not in found:
            said.append(f"{path}: there is no such file: {COMMAND}")
            continue
        for name in sorted(listed.keys() | now.keys()):
            if now[name] > listed[name]:
                lines = ", ".join(str(one.line) for one in found[path] if one.name == name)
                advice = f"write {WORDS[name]!r}" if name in WORDS else ADVICE[name]
                moved = "" if listed else f" (text that moved here keeps its bounds by {COMMAND})"
                said.append(f"{path}:{lines}: {name!r} {now[name]} times, the bound is {listed[name]}: {advice}{moved}")
            elif now[name] < listed[name]:
                said.append(f"{path}: {name!r} {now[name]} times, the bound is {listed[name]}: lower it: {COMMAND}")
    return said


def lowered(bounds: Bounds, found: Findings) -> Bounds:
    """Return the bounds at present counts where these are lower. No part has more of a word than its bounds allow."""
    present = counts(found)
    then = {path: listed & present.get(path, Counter()) for path, listed in bounds.items()}
    freed: dict[str, Counter[str]] = defaultdict(Counter)
    for path, listed in bounds.items():
        freed[_part(path)] += listed - then[path]
    for path in sorted(present.keys() - bounds.keys()):
        then[path] = present[path] & freed[_part(path)]
        freed[_part(path)] -= then[path]
    return {path: figures for path, figures in sorted(then.items()) if figures}


def _part(path: str) -> str:
    return path.partition("/")[0] if "/" in path else ""


def totals(present: Bounds) -> Counter[str]:
    """Return how often each word stands in all files."""
    return sum(present.values(), Counter[str]())


def main() -> None:
    """Lower the bounds, then print what exceeds them and the totals."""
    found = findings(pages(sources()))
    bounds = lowered(read_bounds(TABLE.read_text(encoding="utf-8")), found)
    TABLE.write_text(as_text(bounds), encoding="utf-8")
    for problem in problems(bounds, found):
        print(problem)
    total = totals(counts(found))
    for name, count in sorted(total.items()):
        print(f"{count:6} {name}")
    for name, (goal, words) in GOALS.items():
        print(f"{sum(total[word] for word in words):6} {name}: the goal is at most {goal}")
    sentences = sum(
        sentence.kind is prose.Kind.TEXT
        for page in pages([])
        if page.path.endswith(".md")
        for passage in page.passages
        for sentence in passage.sentences()
    )
    print(f"{total[LONG]:6} of {sentences} sentences of pages are over {WORDS_MAX} words: the goal is a tenth")


if __name__ == "__main__":
    main()
