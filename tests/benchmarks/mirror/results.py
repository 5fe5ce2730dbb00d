"""The file of figures: what is in it is not measured again. Layout: {"cells": {CELL: {SIDE: {"figures": …, …}}}}.

It is written anew, as a whole, behind each cell, so that a run that is broken off loses one cell at most. Infinite
figures are the text "never", since JSON has none. Must never come in: what figures mean.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NEVER = "never"


class Results:
    """Figures by cell and side."""

    def __init__(self, path: Path) -> None:
        """Open a file, or begin one; ValueError: it is none of ours."""
        self._path = path
        self._cells: dict[str, dict[str, dict[str, Any]]] = {}
        if path.exists():
            try:
                self._cells = json.loads(path.read_text())["cells"]
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{path} holds no figures of this benchmark: move it away") from error

    def has(self, cell: str, side: str) -> bool:
        """Whether this was measured; what failed is to be measured again."""
        found = self.figures(cell, side)
        return bool(found) and "failed" not in found

    def figures(self, cell: str, side: str) -> dict[str, Any]:
        """What was measured; empty when nothing was."""
        found = self._cells.get(cell, {}).get(side, {}).get("figures", {})
        return {name: math.inf if value == NEVER else value for name, value in found.items()}

    def put(self, cell: str, side: str, figures: Mapping[str, Any], **about: Any) -> None:
        """Keep figures, and what there is to say about how they came."""
        told = {name: NEVER if value == math.inf else value for name, value in figures.items()}
        self._cells.setdefault(cell, {})[side] = {"figures": told, **about}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps({"cells": self._cells}, indent=1) + "\n")
        partial.replace(self._path)
