"""What a board is and how it is: model, memory, heat, supply, storage, clock. Reads only, the same fields anywhere."""

from typing import TypeAlias

JSON: TypeAlias = "dict[str, JSON] | list[JSON] | str | int | float | bool | None"
