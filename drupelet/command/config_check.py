"""Read a TOML configuration and check it key by key; the error for an unknown key names the nearest one.

Does not contain: a part's keys; imports at module level that only TOML needs, as a broker may have no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from drupelet.errors import ConfigurationError, reason
from drupelet.tls.file_reads import read_named

if TYPE_CHECKING:
    from pathlib import Path

CONFIG_BYTES_MAX = 1 << 20
_Value = TypeVar("_Value", str, int, bool, list[Any], dict[str, Any])
Keys = Mapping[str, "Keys | None"]  # the keys of a table, each with those of the table, or array of tables, below it
_KINDS = {str: "a string", int: "a whole number", bool: "true or false", list: "an array", dict: "a table"}


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that a person may have meant; None when none is near."""
    import difflib  # noqa: PLC0415 - for a mistake alone

    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)), None)


def read_text(path: Path) -> str:
    """Return the text of a configuration file of at most a MiB; ConfigurationError names the file."""
    try:
        content = read_named(path, CONFIG_BYTES_MAX + 1)
        if len(content) > CONFIG_BYTES_MAX:
            raise ConfigurationError(f"{path} is larger than {CONFIG_BYTES_MAX} bytes: is it a configuration?")
        return content.decode()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {reason(error)}.") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 at byte {error.start}: save it as UTF-8.") from error


def parse_toml(text: str, name: object) -> dict[str, Any]:
    """Return the values of a TOML text; ConfigurationError says that `name` is none."""
    import tomllib  # noqa: PLC0415 - only who has a file pays for it

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{name} is not TOML: {error}.") from error


class Table:
    """One table of a file, read key by key. `part` is the owner of the keys."""

    def __init__(self, file: Path, part: str, values: Mapping[str, Any], name: str = "") -> None:
        self.file = file
        self.part = part
        self.values = values
        self.name = name

    def error(self, key: str, sentence: str) -> ConfigurationError:
        """Return the error that names the file and the key."""
        return ConfigurationError(f"{self.file}: {self._place(key)} {sentence}")

    def take(self, key: str, kind: type[_Value], default: _Value | None = None) -> _Value:
        """Return a value of the right kind; a key without a default must be there."""
        value = self.values.get(key, default)
        if value is None:
            raise self.error(key, f"is missing: give it as {_KINDS[kind]}.")
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.error(key, f"is {value!r}: write {_KINDS[kind]}.")
        return value

    def has(self, key: str) -> bool:
        """Return whether the key is set."""
        return key in self.values

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text that is not empty."""
        value = self.take(key, str, default)
        if not value:
            raise self.error(key, "is empty: write at least one character, or leave the key out.")
        return value

    def number(self, key: str, default: int, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`."""
        value = self.take(key, int, default)
        if not low <= value <= high:
            raise self.error(key, f"is {value}: use {low} to {high}.")
        return value

    def choice(self, key: str, default: str, choices: tuple[str, ...]) -> str:
        """One of `choices`."""
        value = self.take(key, str, default)
        if value not in choices:
            raise self.error(key, f'is "{value}": use one of {", ".join(choices)}.')
        return value

    def path(self, key: str, default: str | None = None) -> Path:
        """Return an absolute path; a relative one is relative to its file, not to the current folder."""
        from pathlib import Path  # noqa: PLC0415 - a part with paths in a file has imported it

        return (self.file.parent / Path(self.text(key, default)).expanduser()).absolute()

    def optional_path(self, key: str) -> Path | None:
        """Return a path, None when the key is not set."""
        return self.path(key) if self.has(key) else None

    def table(self, key: str) -> Table:
        """Return a table below this one; an empty one when the key is not set."""
        return self._below(key, self.take(key, dict, {}))

    def tables(self, key: str) -> list[Table]:
        """Return an array of tables."""
        values = self.take(key, list, [])
        if not all(isinstance(value, dict) for value in values):
            raise self.error(key, f"must be tables: start each one with [[{self._place(key)}]].")
        return [self._below(f"{key}[{index}]", value) for index, value in enumerate(values)]

    def refuse_unknown(self, keys: Keys) -> None:
        """Refuse a key that is none of `keys`, here and below.

        Call it before any key is read: a misspelt key explains a missing one.
        """
        for key in self.values:
            if key not in keys:
                near = nearest(key, keys)
                remedy = f'did you mean "{near}"?' if near else f"known here: {', '.join(sorted(keys))}."
                raise self.error(key, f"is not a key of the {self.part}: {remedy}")
        for key, below in keys.items():
            value = self.values.get(key)
            for index, values in enumerate(value if isinstance(value, list) else [value]):
                if below is not None and isinstance(values, dict):
                    name = f"{key}[{index}]" if isinstance(value, list) else key
                    self._below(name, values).refuse_unknown(below)

    def _place(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def _below(self, key: str, values: dict[str, Any]) -> Table:
        return Table(self.file, self.part, values, self._place(key))
