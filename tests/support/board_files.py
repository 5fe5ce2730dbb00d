"""The files of a board's kernel that health reads, put below a folder."""

from __future__ import annotations

from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden/boards"


def put(root: Path, name: str, text: str) -> None:
    place = root / name.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def put_cell(root: Path, name: str, value: int) -> None:
    put(root, name, "")
    (root / name.lstrip("/")).write_bytes(value.to_bytes(4, "big"))
