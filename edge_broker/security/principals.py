"""The principal of a client, by Kafka's names, and how the subject of its certificate becomes one.

| rule | a subject that it fits becomes |
|---|---|
| `DEFAULT` | itself |
| `RULE:pattern/replacement/` | the replacement, with `$1` for the first group |
| the same with `L` or `U` after it | that in small or capital letters |

The first rule that fits counts; a pattern fits the whole subject. Contains: the name of a principal.
Does not contain: its permissions. Source: KIP-371; Kafka's KafkaPrincipal and SslPrincipalMapper.
"""

from __future__ import annotations

import re
from typing import NamedTuple

USER = "User:"
ANONYMOUS = USER + "ANONYMOUS"
"""The principal of a client without authentication."""
DEFAULT_RULES = "DEFAULT"

_RULE = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_END = re.compile(r"\s*(,\s*|$)")
_BACK_REFERENCE = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)


class NoRuleFits(Exception):
    """No rule says what a subject is called."""


class Rule(NamedTuple):
    """One rule; `pattern` is None for DEFAULT."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def name(self, subject: str) -> str | None:
        """Return the name of the subject, None if the rule does not fit."""
        if self.pattern is None:
            return subject
        match = self.pattern.fullmatch(subject)
        if match is None:
            return None
        name = _BACK_REFERENCE.sub(lambda found: _replacement(found, match), self.replacement)
        return {"L": name.lower, "U": name.upper}.get(self.case, lambda: name)()


def _replacement(found: re.Match[str], match: re.Match[str]) -> str:
    """A character after a backslash, or a group; of a number too large its first digits are one, as in Java."""
    if found[1] is not None:
        return found[1]
    digits = found[2]
    used = len(digits)
    while used > 1 and int(digits[:used]) > match.re.groups:
        used -= 1
    return (match[int(digits[:used])] or "") + digits[used:]


def parse_rules(text: str) -> list[Rule]:
    """The rules in their order, with commas between them; ValueError says in words what is wrong with one."""
    rules: list[Rule] = []
    text = text.strip()
    position = 0
    while position < len(text):
        match = _RULE.match(text, position)
        end = _END.match(text, match.end()) if match else None
        if match is None or end is None:
            raise ValueError(f"{text[position:]!r} begins with no rule; write DEFAULT or RULE:pattern/replacement/[LU]")
        rules.append(_rule(match))
        position = end.end()
    return rules or [Rule(None, "", "")]


def _rule(match: re.Match[str]) -> Rule:
    if match[1]:
        return Rule(None, "", "")
    try:
        pattern = re.compile(match[2])
    except re.error as error:
        raise ValueError(f"{match[0]!r} has a pattern that cannot be read: {error}") from None
    for found in _BACK_REFERENCE.finditer(match[3]):
        if found[2] is not None and int(found[2][0]) > pattern.groups:
            raise ValueError(f"{match[0]!r} asks for group ${found[2]}, and its pattern has {pattern.groups}")
    return Rule(pattern, match[3], match[4])


def principal_of(subject: str, rules: list[Rule]) -> str:
    """Return the name of a client with a certificate of this subject; NoRuleFits."""
    for rule in rules:
        name = rule.name(subject)
        if name is not None:
            return USER + name
    raise NoRuleFits(f"no rule of ssl.principal.mapping.rules fits {subject!r}")
