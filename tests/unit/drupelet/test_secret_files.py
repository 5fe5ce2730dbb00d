"""Files with secrets: who may read them, and what is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from drupelet.errors import ConfigurationError
from drupelet.secret_files import Secret, first_line


def written(path: Path, content: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("content", [b"secret", b"secret\n", b"secret\r\nmore\n"])
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400, 0o440])
def test_the_first_line_is_the_secret(tmp_path: Path, content: bytes, mode: int) -> None:
    assert first_line(written(tmp_path / "s", content, mode), "key") == "secret"


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660, 0o601])
def test_what_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigurationError, match=r"key is .*, which other users of this host may use: chmod 600"):
        first_line(written(tmp_path / "s", b"secret", mode), "key")


@pytest.mark.parametrize(
    ("content", "says"), [(b"", "is empty"), (b"\nsecret", "is empty"), (b"\xff", "is not UTF-8"), (None, "no file")]
)
def test_what_is_no_secret(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path if content is None else written(tmp_path / "s", content)
    with pytest.raises(ConfigurationError, match=says):
        first_line(path, "key")
    with pytest.raises(ConfigurationError, match="cannot be read: no such file"):
        first_line(tmp_path / "none", "key")


def test_a_secret_is_not_shown() -> None:
    assert repr(Secret(lambda: "s3cret")) == str(Secret(lambda: "s3cret")) == "[hidden]"
