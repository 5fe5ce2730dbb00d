"""Read a board's model, memory, temperature, supply, storage and clock; the same fields on all machines."""

from typing import TypeAlias

JSON: TypeAlias = "dict[str, JSON] | list[JSON] | str | int | float | bool | None"
