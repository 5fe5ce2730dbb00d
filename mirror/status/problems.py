"""Keeps the present problems by name; reports one sentence for all of a kind, and log lines limited in rate.

| a name | is of |
|---|---|
| TOPIC-PARTITION, alone or before ` source`, ` position`, ` stalled` | a partition |
| `source…`, `target…` | a side, or one of its brokers |
| anything else | a part of the mirror: commit, ledger, positions |

A kind is the same text, whatever topic, partition and numbers are in it. A log line of a kind is written at once; later
ones within LOG_S are counted, and reported in one. If there are more than KINDS_MAX kinds, the others count as one.
Does not contain: what is wrong, any reaction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from drupelet.observe.log_tree import Log

NOT_YET = "not reached yet"
NAMED_MAX = 3
LOG_S = 30.0
KINDS_MAX = 30
_WORD = re.compile(r"(?<![:\w.-])[\w.-]*\w")  # and no port
_PARTITION = re.compile(r"(.+)-(\d+)(?: source| position| stalled)?")
_log = Log("mirror")


class _Problem(NamedTuple):
    text: str
    kind: str


class _LoggedKind:
    """A kind that was logged: when, how many came since, and the last of them."""

    def __init__(self, at: float) -> None:
        self.at, self.more, self.name, self.text = at, 0, "", ""


class Troubles(Mapping[str, str]):
    """The present problems, in the order in which they came; `note` may be called any number of times."""

    def __init__(self) -> None:
        self._noted: dict[str, _Problem] = {}
        self._told: dict[tuple[str, str], _LoggedKind] = {}

    def __getitem__(self, name: str) -> str:
        return self._noted[name].text

    def __iter__(self) -> Iterator[str]:
        return iter(self._noted)

    def __len__(self) -> int:
        return len(self._noted)

    def note(self, name: str, text: str, now: float) -> None:
        """Note what is wrong with `name`, no text: nothing; `now` is in seconds of any monotonic clock."""
        before = self._noted.pop(name, None)
        if text:
            kind = before.kind if before is not None and before.text == text else _kind(name, text)
            self._noted[name] = _Problem(text, kind)
            if before is None or before.text == NOT_YET:
                self._log_kind("trouble", name, self._noted[name], now)
        elif before is not None and before.text != NOT_YET:
            self._log_kind("well_again", name, before, now)

    def start(self, name: str) -> None:
        """Note that it was never reached, which is not logged yet."""
        self._noted[name] = _Problem(NOT_YET, NOT_YET)

    def tick(self, now: float) -> None:
        """Log the lines that were held back for LOG_S; about each second."""
        for key, told in list(self._told.items()):
            if now - told.at < LOG_S:
                continue
            if told.more:
                self._write(key[0], told.name, told.text, told.more)
                self._told[key] = _LoggedKind(now)
            else:
                del self._told[key]

    def sentences(self) -> list[str]:
        """Return a sentence for each kind: its names, sides before partitions, and the text of its first one."""
        kinds: dict[str, list[str]] = {}
        for name, noted in self._noted.items():
            kinds.setdefault(noted.kind, []).append(name)
        return [self._sentence(names) for names in kinds.values()]

    def _sentence(self, names: list[str]) -> str:
        first = sorted(names, key=lambda name: (not name.startswith(("source", "target")), _natural(name)))
        more = f" and {len(first) - NAMED_MAX} more" if len(first) > NAMED_MAX else ""
        return f"{', '.join(first[:NAMED_MAX])}{more}: {self[first[0]]}"

    def _log_kind(self, event: str, name: str, noted: _Problem, now: float) -> None:
        key = event, noted.kind
        if key not in self._told and len(self._told) >= KINDS_MAX:
            key = event, ""
        told = self._told.get(key)
        if told is None:
            self._told[key] = _LoggedKind(now)
            self._write(event, name, noted.text, 0)
        else:
            told.more, told.name, told.text = told.more + 1, name, noted.text

    @staticmethod
    def _write(event: str, name: str, text: str, more: int) -> None:
        many = {"times": more} if more > 1 else {}
        if event == "trouble":
            _log.warning(event, where=name, error=text, **many)
        else:
            _log.info(event, where=name, **many)


def _kind(name: str, text: str) -> str:
    """Return the text without the parts that differ between partitions."""
    found = _PARTITION.fullmatch(name)
    own = () if found is None else (found[1], f"{found[1]}-{found[2]}")
    ends = tuple(f".{one}" for one in own)  # their names at the target

    def generalise(word: re.Match[str]) -> str:
        said = word[0]
        if said.replace(".", "", 1).isdigit():
            return "#"
        return "*" if said in own or (ends and said.endswith(ends)) else said

    return _WORD.sub(generalise, text)


def _natural(name: str) -> tuple[str, int]:
    """Return a sort key by which readings-2 comes before readings-11."""
    found = _PARTITION.fullmatch(name)
    return (name, 0) if found is None else (found[1], int(found[2]))
