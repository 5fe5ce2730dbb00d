"""Files with secrets: who may read them, and what is read."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drupelet.errors import ConfigurationError
from drupelet.tls.secret_files import Secret, check_private, check_status, first_line


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
    with pytest.raises(ConfigurationError, match=r"key is .*, which other users of this host may use: `chmod g-w,o="):
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


def test_a_link_is_taken_and_its_target_counts(tmp_path: Path) -> None:
    target, link = written(tmp_path / "s", b"secret"), tmp_path / "link"
    link.symlink_to(target)
    assert first_line(link, "key") == "secret"
    target.chmod(0o644)
    with pytest.raises(ConfigurationError, match="other users of this host may use"):
        first_line(link, "key")


def test_a_pipe_is_taken_as_a_shell_makes_one(tmp_path: Path) -> None:
    """`--password-file <(pass show edge)` names /dev/fd/63."""
    read, write = os.pipe()
    with os.fdopen(read), os.fdopen(write, "w") as writer:
        writer.write("secret\n")
        writer.close()
        check_private(f"/dev/fd/{read}", "key")
        assert first_line(f"/dev/fd/{read}", "key") == "secret"


def status(uid: int, mode: int = 0o600) -> Any:
    return SimpleNamespace(st_mode=stat.S_IFREG | mode, st_uid=uid)


def test_a_file_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who owns it may change it, whatever its mode says."""
    monkeypatch.setattr(os, "geteuid", lambda: 990)
    monkeypatch.setenv("SUDO_UID", "1000")
    for uid in (0, 990):
        check_status(status(uid), "/etc/s", "key")
    with pytest.raises(ConfigurationError, match=r"key is /etc/s, which belongs to another user \(uid 1000\).*chown"):
        check_status(status(1000), "/etc/s", "key")


def test_root_takes_the_file_of_who_called_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", "1000")
    check_status(status(1000), "/etc/s", "key")
    with pytest.raises(ConfigurationError, match="uid 1001"):
        check_status(status(1001), "/etc/s", "key")
