"""Mock boards: captured file trees of other machines, read as if they were the running one.

Each is one JSON file, `mock_boards/NAME.json`: absolute file name -> its text, `{"hex": …}` for binary content, or
`{"link": …}` for a symbolic link. The output of a command is below `/captured_commands`. Only files that
this package reads are kept; a link to any other directory leads to an empty one.
"""

import json
from collections.abc import Mapping
from pathlib import Path

BOARDS = Path(__file__).with_name("mock_boards")


def mock_names() -> list[str]:
    """List the mock boards."""
    return sorted(path.stem for path in BOARDS.glob("*.json"))


def mock_tree(name: str) -> dict[str, str | dict[str, str]]:
    """Read a mock board's tree: file name -> content; raises KeyError if unknown."""
    if name not in mock_names():
        raise KeyError(f"there is no mock board {name!r}: there are {', '.join(mock_names())}")
    tree: dict[str, str | dict[str, str]] = json.loads((BOARDS / f"{name}.json").read_text())
    return tree


def write_mock(name: str, directory: Path) -> Path:
    """Write a mock board's tree below a directory and return it, ready to be a `root`; raises KeyError if unknown."""
    places = {directory / file_name.lstrip("/"): content for file_name, content in mock_tree(name).items()}
    for place, content in places.items():
        write_file(place, content)
    for link in filter(Path.is_symlink, places):
        link.resolve().mkdir(parents=True, exist_ok=True)
    return directory


def write_file(place: Path, content: str | Mapping[str, str]) -> None:
    """Write one file or link."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        place.write_bytes(content.encode())
    elif "link" in content:
        place.symlink_to(content["link"])
    else:
        place.write_bytes(bytes.fromhex(content["hex"]))
