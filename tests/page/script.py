"""A page as a shell script with the page's own line numbers, so that what fails is named by its line on the page.

| fence | becomes |
|---|---|
| `sh` | the commands, as they stand |
| `yaml` | the file that the sentence before it names |
| `text` | nothing: what is printed, for `not_printed` |

A fence of another kind is refused, so that nothing on the page goes untried. What cannot be had where the page is tried
is in a list of substitutions, each with its reason, and one that no line needs any more is refused too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

FENCE = re.compile(r"```(\w*)$")
FILE = re.compile(r"`((?:inventories/|group_vars/)[\w./-]+\.yml)`")
NUMBER = re.compile(r"[0-9a-f]*[0-9][0-9a-f.]*(?:(?<=e)-[0-9]+)?")
# Bash tells the line in $LINENO; a command is shown before it runs, unexpanded, so without what a variable holds.
HEAD = (
    "set -eE -o pipefail; shopt -s inherit_errexit; nl=$'\\n'; "
    "trap 'status=$?; echo \"PAGE:$LINENO: failed with $status: $BASH_COMMAND\" >&2' ERR; "
    'trap \'[ "$LINENO" = "${at-}" ] || { at=$LINENO; '
    'echo "PAGE:$at, after $SECONDS s: ${BASH_COMMAND%%"$nl"*}"; }\' DEBUG; '
)


@dataclass(frozen=True, slots=True)
class Substitution:
    """`new` in place of `old` on each line of a block that has it, and why; `prose`: in place of a sentence's line."""

    old: str
    new: str
    reason: str
    prose: bool = False


class PageRefused(ValueError):
    """The page, or the list of substitutions, is not one that can be tried; the message names the line."""


def script(page: str, substitutions: Iterable[Substitution], *, until: str = "") -> str:
    """Compose the script, of the lines before the heading `until`; PageRefused says what is wrong with the page."""
    lines = page.splitlines()
    if until:
        lines = lines[: lines.index(until)]
    used: set[str] = set()
    composed = [HEAD + "true"]
    kind, named, opened = None, "", 0
    for number, line in enumerate(lines[1:], start=2):
        fence = FENCE.match(line)
        if fence and kind is None:
            kind, opened = fence[1], number
            composed.append(opening(kind, named, number))
        elif line == "```":
            composed.append("PAGE" if kind == "yaml" else "")
            kind = None
        elif kind == "text":
            composed.append("")
        else:
            composed.append(replaced(line, substitutions, used, prose=kind is None))
            if kind is None:
                named = next(iter(reversed(FILE.findall(line))), named)
    if kind is not None:
        raise PageRefused(f"line {opened}: the block does not end")
    for substitution in substitutions:
        if not until and substitution.old not in used:
            raise PageRefused(f"no line of the page needs the substitution of {substitution.old!r} any more: remove it")
    return "\n".join(composed) + "\n"


def opening(kind: str, named: str, number: int) -> str:
    """The line in place of the one that opens a block."""
    if kind == "yaml":
        if not named:
            raise PageRefused(f"line {number}: no sentence before it names the file that this YAML is")
        return f"mkdir -p '{named.rpartition('/')[0]}'; cat >'{named}' <<'PAGE'"
    if kind not in ("sh", "text"):
        raise PageRefused(f"line {number}: a block is sh, yaml or text, not {kind!r}")
    return ""


def replaced(line: str, substitutions: Iterable[Substitution], used: set[str], *, prose: bool) -> str:
    """The line with what is put in place of its parts; of prose nothing else is left."""
    found = [substitution for substitution in substitutions if substitution.prose == prose and substitution.old in line]
    used.update(substitution.old for substitution in found)
    if prose:
        return "; ".join(substitution.new for substitution in found)
    for substitution in found:
        line = line.replace(substitution.old, substitution.new)
    return line


def shown(page: str) -> Iterator[tuple[int, str]]:
    """The lines that the page says are printed, with their numbers."""
    kind = None
    for number, line in enumerate(page.splitlines(), start=1):
        fence = FENCE.match(line)
        if fence:
            kind = fence[1] if kind is None else None
        elif kind == "text":
            yield number, line


def shape(line: str) -> str:
    """A line with all numbers, times and ids alike, one space for many, without the quote of Ansible's lists."""
    return " ".join(NUMBER.sub("#", line).split()).removeprefix('"')


def not_printed(page: str, said: str) -> list[str]:
    """The lines that the page shows and that nothing printed, but for numbers, each with its own."""
    shapes = [shape(line) for line in said.splitlines()]
    return [f"{n}: {line}" for n, line in shown(page) if not any(each.startswith(shape(line)) for each in shapes)]
