"""Names that the product gives up, how many definitions of each a part has, and the bounds of these counts.

`python -m tests.support.names` lowers the bounds to the present counts and prints totals. It never raises a bound.

| rule | in the names of | given up |
|---|---|---|
| participle | functions, methods, classes | a participle or past tense, if it is the whole name: `told`, `_taken` |
| particle, pronoun | all | `between`, `ours`, if it is the whole name |
| metaphor | all | `reign`, `wish`, as a word of the name |
| replaced | as `REPLACED` says | names with a better one |

All are functions, methods, classes, modules, folders, parameters, and attributes of instances. Neither case nor
underscores around a name count. A part has one bound for each name, so that its modules can move.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests.support.product_sources import ROOT, Source, sources
from tests.support.sizes import attributes

COMMAND = "python -m tests.support.names"
TABLE = ROOT / "tests/unit/project/names_bounds.txt"
CALLABLE = frozenset({"function", "method", "class"})
ALL = CALLABLE | {"module", "folder", "parameter", "attribute"}
PARTICIPLES = """
become began begun born bought broken brought built came caught chosen dealt drawn driven eaten fallen fed
fell felt forgotten found frozen gave given gone got grown heard held hidden kept knew known laid led left
lent lost made meant met overdrawn overtaken paid rebuilt remade rewritten risen said saw seen sent shown
sold spent spoken stolen stood struck sworn taken taught thought thrown told took torn understood unheld
unkept unknown unmade unseen unsent untold unwritten went withdrawn woken won worn written wrote
"""
NOT_PARTICIPLES = frozenset({"embed", "exceed", "feed", "need", "preseed", "proceed", "seed", "shed", "speed"})
PARTICLES = frozenset({"again", "ahead", "anew", "around", "behind", "beside", "between", "within", "without"})
PRONOUNS = frozenset(
    {"anybody", "everybody", "mine", "nobody", "others", "ours", "somebody", "theirs", "whatever", "whoever", "yours"}
)
METAPHORS = """
dealing dealings dealt door doors heir heirs judge judged judges judging lane lanes life lives office reign
reigns surroundings wish wished wishes wishing
"""


class Replaced(NamedTuple):
    """A name's replacement, and where the rule holds: kinds of names, and parts, all if there are none."""

    name: str
    kinds: frozenset[str] = CALLABLE
    parts: tuple[str, ...] = ()


REPLACED = {
    "advance": Replaced("try_append", parts=("edge_broker",)),
    "answered": Replaced("on_response"),
    "begin_life": Replaced("start_session"),
    "do": Replaced("RunInWorker", frozenset({"class"})),
    "find_out": Replaced("resolve_in_flight"),
    "give_back": Replaced("return_to_buffer"),
    "go_on": Replaced("the verb of what goes on: apply_session_start"),
    "hold": Replaced("pause", parts=("mirror",)),
    "hurry": Replaced("retry_now"),
    "is_to_move": Replaced("must_move", ALL),
    "is_weak": Replaced("is_unfenced", ALL),
    "knows_again": Replaced("is_deduplicated"),
    "lead": Replaced("find_leader", parts=("mirror",)),
    "let_go": Replaced("release"),
    "look": Replaced("poll, check"),
    "mark": Replaced("InFlightRequest, LogPosition", frozenset({"class"})),
    "may_repeat": Replaced("try_resend"),
    "out": Replaced("emit", CALLABLE | {"parameter", "attribute"}, ("edge_broker",)),
    "owe": Replaced("mark_missing"),
    "owed": Replaced("missing", ALL),
    "own_up": Replaced("record_missing"),
    "part": Replaced("PartitionAppend", frozenset({"class"}), ("edge_broker",)),
    "pipe": Replaced("TargetConnection", ALL, ("mirror",)),
    "pipes": Replaced("target_connections", ALL, ("mirror",)),
    "rest": Replaced("back_off"),
    "safe": Replaced("mark_acked"),
    "set_trouble": Replaced("set_problem"),
    "settle": Replaced("resolve, complete"),
    "standing": Replaced("MembershipState", frozenset({"class", "module"})),
    "take_back": Replaced("requeue"),
    "tell": Replaced("report_problem", ALL),
    "turns": Replaced("SendQueue", frozenset({"class", "module"})),
}
RIGHT = {  # beginnings of paths where a name or word is right
    "advance": ("edge_broker/testing/",),  # a clock
    "again": ("mirror/plan_command.py",),  # a key of `edge-mirror plan --json`
    "changed": ("ansible/",),  # Ansible's word for what a task did
    "closed": ("edge_broker/testing/",),  # of Python's files
    "connected": ("edge_broker/cluster/znodes/zookeeper.py",),  # the broker's log has the names of session events
    "expired": ("edge_broker/cluster/znodes/zookeeper.py",),
    "failed": ("ansible/",),  # Ansible's word, too
    "life": ("hardware/", "mirror/partition/state_records.py"),  # of flash memory, as JEDEC names it; a stored field
    "out": ("edge_broker/compiled/",),  # a field of a struct of walk.c
    "owed": ("edge_broker/storage/segment/batch_scan.py",),  # a key of `edge-broker log dump --json`
    "started": ("spark/session.py",),  # a module that scripts of older releases import
    "suspended": ("edge_broker/cluster/znodes/zookeeper.py",),
    "tell": ("gateway/sources/file_reading/decompressed_file.py",),  # of Python's files
}
RULES = {
    "participle": "a verb with an object for a function, subject and participle for a callback, a noun for a class",
    "particle": "a noun, or a verb with an object",
    "pronoun": "a noun",
    "metaphor": "the field's word",
}
HEAD = f"""\
# The most definitions that each part may have of names that the product gives up: tests/support/names.py.
# `{COMMAND}` lowers these bounds to the present counts; it raises none. After a merge, run it again.
# If a name stands twice, the lower figure counts: both sides of a merge are kept (.gitattributes).
"""
_PARTICIPLES, _METAPHORS = frozenset(PARTICIPLES.split()), frozenset(METAPHORS.split())
SHOWN = 12  # definitions that a problem names

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


class Definition(NamedTuple):
    """A name, its kind, and where it is defined."""

    path: str
    line: int
    kind: str
    name: str


Key = tuple[str, str]  # part, name that is given up
Findings = dict[Key, list[Definition]]
Bounds = dict[Key, int]


def definitions(product: Iterable[Source]) -> Iterator[Definition]:
    """Return the names that some files define."""
    folders = set()
    for source in product:
        stem = source.path.rpartition("/")[2].removesuffix(".py")
        yield Definition(source.path, 1, "module", stem)
        if source.folder not in folders:
            folders.add(source.folder)
            yield Definition(source.folder, 1, "folder", source.folder.rpartition("/")[2])
        yield from _in(source.tree, source.path)


def _in(node: ast.AST, path: str) -> Iterator[Definition]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, FUNCTIONS):
            yield Definition(path, child.lineno, "method" if isinstance(node, ast.ClassDef) else "function", child.name)
            for argument in ast.walk(child.args):
                if isinstance(argument, ast.arg):
                    yield Definition(path, argument.lineno, "parameter", argument.arg)
        elif isinstance(child, ast.ClassDef):
            yield Definition(path, child.lineno, "class", child.name)
            for name, line in attributes(child).items():
                yield Definition(path, line, "attribute", name)
        if not isinstance(child, ast.expr):
            yield from _in(child, path)


def given_up(definition: Definition) -> Iterator[tuple[str, str]]:
    """Return what a name has that is given up, each with what is written instead."""
    for name, instead in _given_up(definition):
        if not definition.path.startswith(RIGHT.get(name, ())):
            yield name, instead


def _given_up(definition: Definition) -> Iterator[tuple[str, str]]:
    name, part = definition.name.strip("_").lower(), definition.path.partition("/")[0]
    words = {word.lower() for word in _WORD.findall(definition.name)}
    replaced = REPLACED.get(name)
    if replaced is not None and definition.kind in replaced.kinds and part in (replaced.parts or (part,)):
        yield name, replaced.name
    elif name in PARTICLES:
        yield name, RULES["particle"]
    elif name in PRONOUNS:
        yield name, RULES["pronoun"]
    elif definition.kind in CALLABLE and len(words) == 1 and _is_participle(name) and name not in _METAPHORS:
        yield name, RULES["participle"]
    for word in words & _METAPHORS:
        yield word, RULES["metaphor"]


def _is_participle(name: str) -> bool:
    return name in _PARTICIPLES or (name.endswith("ed") and name not in NOT_PARTICIPLES)


def findings(every: Iterable[Definition]) -> Findings:
    """Return the definitions of each name that is given up, by part."""
    found: Findings = defaultdict(list)
    for definition in every:
        for name, _ in given_up(definition):
            found[definition.path.partition("/")[0], name].append(definition)
    return dict(found)


def read_bounds(text: str) -> Bounds:
    """Return the bounds of a table's text."""
    bounds: Bounds = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            part, name, count = line.split()
            bounds[part, name] = min(int(count), bounds.get((part, name), int(count)))
    return bounds


def as_text(bounds: Bounds) -> str:
    """Return the table's text."""
    return "".join((HEAD, *(f"{part} {name} {count}\n" for (part, name), count in sorted(bounds.items()))))


def problems(bounds: Bounds, found: Findings) -> list[str]:
    """Return a sentence for each name that exceeds its bound, and for each bound that is out of date."""
    said = []
    for key in sorted(bounds.keys() | found.keys()):
        some, bound = found.get(key, []), bounds.get(key, 0)
        if len(some) < bound:
            said.append(f"{key[0]}: {len(some)} definitions of {key[1]!r}, the bound is {bound}: lower it: {COMMAND}")
        elif len(some) > bound:
            places = [f"{one.path}:{one.line} ({one.kind} {one.name})" for one in some[:SHOWN]]
            if len(some) > SHOWN:
                places.append(f"{len(some) - SHOWN} more")
            said.append(
                f"{key[0]}: {len(some)} definitions of {key[1]!r}, the bound is {bound}: "
                f"write {dict(given_up(some[0]))[key[1]]}: {', '.join(places)}"
            )
    return said


def lowered(bounds: Bounds, found: Findings) -> Bounds:
    """Return the bounds at present counts where these are lower."""
    return {key: min(bound, len(found[key])) for key, bound in bounds.items() if key in found}


def main() -> None:
    """Lower the bounds, then print what exceeds them and the totals."""
    found = findings(definitions(sources()))
    bounds = lowered(read_bounds(TABLE.read_text(encoding="utf-8")), found)
    TABLE.write_text(as_text(bounds), encoding="utf-8")
    for problem in problems(bounds, found):
        print(problem)
    totals: Counter[str] = Counter()
    for (part, _), some in found.items():
        totals[part] += len(some)
    for part, count in sorted(totals.items()):
        print(f"{count:6} {part}")
    print(f"{totals.total():6} definitions of names that are given up")


if __name__ == "__main__":
    main()
