"""Replace a board's lines in a known_hosts file, so that ssh trusts a card that is written again.

Format: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT; hashed names are HMAC-SHA1. Lines with a marker (@cert-authority,
@revoked), comments and patterns stay. Does not contain: the key itself (`host_key`).
"""

import base64
import binascii
import fcntl
import hashlib
import hmac
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from drupelet.errors import ConfigurationError
from hardware.flash.first_boot.settings import HostKey

NAME = re.compile(r"[A-Za-z0-9._:%-]+|\[[A-Za-z0-9._:%-]+\]:[0-9]{1,5}")
FILE_BYTES_MAX = 16 << 20


def check_names(names: Sequence[str]) -> None:
    """Raise ConfigurationError for an invalid host name or address in known_hosts."""
    for name in names:
        if not NAME.fullmatch(name):
            raise ConfigurationError(
                f"{name!r} is not a name or an address that ssh looks up: give pi-1, 192.0.2.11 or [192.0.2.11]:2222."
            )


def check_writable(path: Path) -> None:
    """Raise ConfigurationError unless the file can be replaced, or made; a missing folder is made too."""
    place = Path(os.path.realpath(path))
    folder = place.parent if place.parent.exists() else place.parent.parent
    if place.exists() and not place.is_file():
        raise ConfigurationError(f"{path} is no file: give --known-hosts one, such as ~/.ssh/known_hosts.")
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigurationError(f"{path} cannot be written by this user: give another --known-hosts.")
    if place.exists() and not os.access(place, os.R_OK):
        raise ConfigurationError(f"{path} cannot be read by this user: give another --known-hosts.")
    if place.exists() and place.stat().st_size > FILE_BYTES_MAX:
        raise ConfigurationError(f"{path} is larger than any known_hosts: give another --known-hosts.")


def replace_line(path: Path, names: Sequence[str], key: HostKey) -> None:
    """Put the board's line into the file, durably and at once or not at all; raises OSError."""
    place = Path(os.path.realpath(path))
    if not place.parent.exists():
        place.parent.mkdir(mode=0o700)
        own_as(place.parent, place.parent.parent)
    with lock_folder(place.parent):
        old = place.read_bytes() if place.exists() else b""
        new = with_line(old.decode("utf-8", "surrogateescape"), names, key).encode("utf-8", "surrogateescape")
        file, name = tempfile.mkstemp(prefix=".known_hosts-", dir=place.parent)  # 0600
        try:
            with os.fdopen(file, "wb") as written:
                written.write(new)
                written.flush()
                os.fsync(written.fileno())
            if place.exists():
                os.chmod(name, place.stat().st_mode & 0o777)
            own_as(Path(name), place if place.exists() else place.parent)
            os.replace(name, place)
        except BaseException:
            os.unlink(name)
            raise


def own_as(path: Path, other: Path) -> None:
    """Give a file that root makes to the owner of the other: under sudo it stays the user's own."""
    if os.geteuid() == 0:
        owner = other.stat()
        os.chown(path, owner.st_uid, owner.st_gid)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Let one writer of this kind at a time into a folder."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def with_line(text: str, names: Sequence[str], key: HostKey) -> str:
    """PURE: return the file's text with the key for all of these names, instead of their former keys."""
    lines = text.removesuffix("\n").split("\n") if text else []
    kept = [left for line in lines if (left := without_names(line, names)) is not None]
    return "\n".join([*kept, f"{','.join(names)} {key.public}", ""])


def without_names(line: str, names: Sequence[str]) -> str | None:
    """Take the names out of a line; None if no other name is left in it."""
    hosts, _, rest = line.strip().partition(" ")
    if not hosts or not rest or hosts[0] in "#@":
        return line
    others = [host for host in hosts.split(",") if not any(is_same(host, name) for name in names)]
    if len(others) == len(hosts.split(",")):
        return line
    return f"{','.join(others)} {rest}" if others else None


def is_same(host: str, name: str) -> bool:
    """Return whether an entry, hashed or not, is that name."""
    if not host.startswith("|1|"):
        return host.lower() == name.lower()
    try:
        salt, digest = (base64.b64decode(part, validate=True) for part in host[3:].split("|"))
    except (ValueError, binascii.Error):
        return False  # no hash that ssh would recognise
    return hmac.compare_digest(hmac.new(salt, name.lower().encode(), hashlib.sha1).digest(), digest)
