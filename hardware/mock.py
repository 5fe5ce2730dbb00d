"""Mock boards: captured file trees of machines that are not at hand, to be read as if they were the running one.

Each is one JSON file, `mock_boards/NAME.json`: absolute file name -> its text, or `{"hex": …}` for binary content.
What a command printed is below `/captured_commands`. Only what this package reads is kept.
"""

import json
from pathlib import Path

BOARDS = Path(__file__).with_name("mock_boards")


def mock_names() -> list[str]:
    """List the mock boards."""
    return sorted(path.stem for path in BOARDS.glob("*.json"))


def write_mock(name: str, directory: Path) -> Path:
    """Write a mock board's tree below a directory and return it, ready to be a `root`; raises KeyError if unknown."""
    if name not in mock_names():
        raise KeyError(f"there is no mock board {name!r}: there are {', '.join(mock_names())}")
    tree: dict[str, str | dict[str, str]] = json.loads((BOARDS / f"{name}.json").read_text())
    for file_name, content in tree.items():
        place = directory / file_name.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else bytes.fromhex(content["hex"]))
    return directory
