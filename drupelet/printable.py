"""Text from outside made safe to show: names of devices, files and topics, and what a peer says.

| where it is shown | function |
|---|---|
| a value of a log line, a name within a sentence | `name_text` |
| a name that a sentence always shows in quotes | `quote` |
| a peer's words about an error | `peer_text` |
| a word of a command that a person is advised to run | `shell_word`, of a file `shell_path` |
| a value of a metric's label | `label_text` |
| a whole sentence or page whose names are not marked | `printable` |

`name_text`, `quote` and `label_text` give no two texts the same result, so that no name can pass for another.
A control character, an escape code or a direction of writing never reaches a terminal, a line or a page raw.
Does not contain: the wording of any message.
"""

from __future__ import annotations

import os

PEER_CHARACTERS_MAX = 300


def printable(text: str) -> str:
    r"""Return the text with the escape of each character that is not printable: `\x1b` for ESC, `\n` for a new line."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def name_text(name: object) -> str:
    """Return a name for a sentence or a log line: bare where nothing is ambiguous, else a printable JSON string."""
    text = str(name)
    if text and text.isprintable() and not any(mark in text for mark in ' ="'):
        return text
    return quote(text)


def label_text(value: object) -> str:
    """Return the value of a metric's label, before the exposition format's own escapes.

    A printable value stays as it is, unless it begins with a double quote. Any other is a printable JSON string.
    """
    text = str(value)
    return text if text.isprintable() and not text.startswith('"') else quote(text)


def shell_word(text: object) -> str:
    r"""Return one word of a shell command, as it is where the shell takes it so, else quoted.

    Unprintable characters and bytes that are no UTF-8 become escapes of `$'…'`, which bash and zsh read; backticks and
    single quotes too, so that the word can stand in a command between backticks.
    """
    import shlex  # noqa: PLC0415 - every command imports this module, and few advise one

    word = str(text)
    if word.isprintable() and "'" not in word and "`" not in word:
        return shlex.quote(word)
    return "$'" + "".join(map(_in_dollar_quotes, word)) + "'"


def shell_path(path: str | os.PathLike[str]) -> str:
    """Return a file's absolute path as one word of a shell command."""
    return shell_word(os.path.abspath(path))


def _in_dollar_quotes(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable() and character != "`":
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


def peer_text(text: str | None) -> str:
    """Return a peer's words about an error in quotes, at most PEER_CHARACTERS_MAX of them; empty where it says nothing.

    In quotes it ends no sentence of ours, and begins none that names something else.
    """
    if not text:
        return ""
    return quote(text if len(text) <= PEER_CHARACTERS_MAX else f"{text[:PEER_CHARACTERS_MAX]}…")


def quote(text: str) -> str:
    """Return a name in double quotes, as a JSON string without a character that is not printable."""
    import json  # noqa: PLC0415 - every command imports this module, and few quote a name

    whole = json.dumps(text, ensure_ascii=False)
    return whole if whole.isprintable() else json.dumps(text)
