"""Prose of the project as passages: paragraphs, list items, cells of tables, comments, names of tasks.

| file | passages |
|---|---|
| Markdown | paragraphs, list items, headings, cells; no code blocks, no HTML comments |
| Python | the same of each docstring; strings of several words; comments, whose lines in a row are one |
| YAML | names of plays, blocks and tasks |

A code span counts as one word. A comment is found by its two spaces and `# `, so such a line of a template counts, too.
"""

from __future__ import annotations

import ast
import enum
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple, TypeGuard

from tests.support.product_sources import Source

CODE = re.compile(r"(`+)(?:(?!\1).)+?\1(?!`)")
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")
FENCE = re.compile(r"\s*(`{3,}|~{3,})")
HEADING = re.compile(r"\s*#{1,6}\s")
ROW = re.compile(r"\s*\|")
COMMENT = re.compile(r"(?:^\s*|\s\s)#(?!!)\s?(.*)")
TASK = re.compile(r"\s*-? ?name:\s+[\"']?(.+?)[\"']?\s*$")
END = re.compile(r"(?<=[.!?])[\"')\]*_]*\s+(?=[\"'(\[*_]*[A-Z`0-9])")


class _Text(ast.Constant):
    value: str


class Kind(enum.Enum):
    """The place of a passage in its page."""

    TEXT = enum.auto()
    HEADING = enum.auto()
    CELL = enum.auto()


class Sentence(NamedTuple):
    """A sentence, its line in the file, and the kind of its passage."""

    line: int
    text: str
    kind: Kind

    @property
    def words(self) -> int:
        """The number of words; a mark alone is none."""
        return sum(any(map(str.isalnum, word)) for word in self.text.split())


class Passage:
    """Text of one or more lines, joined, without code spans and addresses of links."""

    def __init__(self, lines: Iterable[tuple[int, str]], kind: Kind = Kind.TEXT) -> None:
        self.kind = kind
        self._lines: list[int] = []
        self._starts: list[int] = []
        parts: list[str] = []
        size = 0
        for line, text in lines:
            part = " ".join(LINK.sub(r"\1", CODE.sub("`x`", text)).split())
            self._lines.append(line)
            self._starts.append(size)
            parts.append(part)
            size += len(part) + 1
        self.text = " ".join(parts)

    def line(self, position: int) -> int:
        """Return the line of a character in the text."""
        return self._lines[bisect_right(self._starts, position) - 1]

    def sentences(self) -> Iterator[Sentence]:
        """Return the sentences."""
        ends = [match.end() for match in END.finditer(self.text)]
        for start, end in pairwise([0, *ends, len(self.text)]):
            if self.text[start:end].strip():
                yield Sentence(self.line(start), self.text[start:end].strip(), self.kind)


def of_markdown(text: str, first: int = 1) -> Iterator[Passage]:
    """Return the passages of a page, or of a docstring that begins at some line of its file."""
    gathered: list[tuple[int, str]] = []
    fence = ""
    for number, line in enumerate(re.sub(r"<!--.*?-->", _blank, text, flags=re.DOTALL).splitlines(), first):
        mark = FENCE.match(line)
        ends_passage = not line.strip() or mark or HEADING.match(line) or ROW.match(line) or ITEM.match(line)
        if gathered and (ends_passage or fence):
            yield Passage(gathered)
            gathered = []
        if mark and fence in ("", mark.group(1)):
            fence = "" if fence else mark.group(1)
        elif fence or not line.strip():
            continue
        elif HEADING.match(line):
            yield Passage([(number, line.strip().lstrip("#"))], Kind.HEADING)
        elif ROW.match(line):
            yield from _cells(number, line)
        else:
            gathered.append((number, ITEM.sub("", line.lstrip("> "))))
    if gathered:
        yield Passage(gathered)


def _blank(match: re.Match[str]) -> str:
    return "\n" * match.group().count("\n")


def _cells(number: int, line: str) -> Iterator[Passage]:
    for cell in re.split(r"(?<!\\)\|", CODE.sub("`x`", line).strip().strip("|")):
        if cell.strip(" :-"):
            yield Passage([(number, cell)], Kind.CELL)


def of_python(source: Source) -> Iterator[Passage]:
    """Return the passages of a file's docstrings, comments and strings of several words."""
    lines = source.text.splitlines()
    docstrings = set()
    for node in ast.walk(source.tree):  # a docstring comes after what it describes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and _is_text(first.value):
                docstrings.add(first.value)
                text = "\n".join(lines[first.lineno - 1 : first.end_lineno])
                yield from of_markdown(text.replace('"""', ""), first.lineno)
        elif _is_text(node) and node not in docstrings and " " in node.value.strip():
            yield Passage([(node.lineno, node.value)])
    gathered: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        if "#" not in line or (comment := COMMENT.search(line)) is None:
            continue
        stands_alone = not line[: comment.start(1)].strip(" #")
        if gathered and not (stands_alone and gathered[-1][0] == number - 1):
            yield Passage(gathered)
            gathered = []
        gathered.append((number, comment.group(1)))
    if gathered:
        yield Passage(gathered)


def _is_text(node: ast.AST) -> TypeGuard[_Text]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def of_tasks(text: str) -> Iterator[Passage]:
    """Return the names of an Ansible file's plays, blocks and tasks."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("- name:") and (name := TASK.match(line)) is not None:
            yield Passage([(number, name.group(1))])
