"""Signs the bundle that sites without internet are provisioned from, and verifies it before anything of it is used.

The file MANIFEST lists the bundle; MANIFEST.sig is its signature by `ssh-keygen -Y sign`, namespace drupelet-bundle:

    drupelet-bundle 1
    serial SECONDS            when it was signed; a newer bundle has a higher one
    SHA256  BYTES  NAME       one line for each file, by name

OpenSSH signs, because every machine has it that Ansible reaches by ssh, and every machine that Ansible runs on. A board
gets the package openssl by a role, so out of the bundle that is to be verified.

| command | runs on | does |
|---|---|---|
| sign FOLDER MADE [KEY] | where it is made | writes both files, for parts whose SHA-256 is the name of a file in MADE |
| check FOLDER | control node | verifies the signature and every byte; no file is missing, additional or a link |
| read FOLDER NAME ... | control node | verifies the signature and these files' sizes, prints a ticket for boards |
| unpack FILE [OLD] | board | verifies signature and bytes of FILE, removes the folder OLD, unpacks FILE beside itself |

`check` and `read` take the keys that may sign from DRUPELET_KEYS, public keys as OpenSSH writes them, one in a line.
Without keys they take a bundle as it is, by MANIFEST or SHA256SUMS. `unpack` takes the ticket from DRUPELET_TICKET. A
board keeps the highest serial of a verified bundle in SERIAL, and takes no older one unless DRUPELET_OLDER is 1.

Runs on Python 3.11 or newer with the standard library alone, on boards from standard input: `python3 -I - unpack FILE`.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

MANIFEST, SIGNATURE, SUMS = "MANIFEST", "MANIFEST.sig", "SHA256SUMS"
NAMESPACE = "drupelet-bundle"
FORMAT = f"{NAMESPACE} 1"
SERIAL = Path(os.environ.get("DRUPELET_STATE", "/var/lib/drupelet"), "bundle-serial")  # elsewhere for the tests
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")  # a plain file name: no folder, no link up, no option, nothing hidden
LINE = re.compile(r"([0-9a-f]{64})  ([0-9]{1,15})  (\S+)")
SUM_LINE = re.compile(r"([0-9a-f]{64}) [ *](\S+)")
MEMBER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+~%:-]*")  # a file of a part, such as a Debian package with an epoch
KEY = re.compile(r"(ssh|ecdsa|sk-ssh|sk-ecdsa)-[a-z0-9@.-]+ [A-Za-z0-9+/=]+( [^\n\r]*)?")
MANIFEST_BYTES_MAX = 60_000  # a ticket with it goes to a board as one word of a command
AGAIN = "run playbooks/bundle.yml again and copy the whole folder"


class Trouble(Exception):
    """A bundle cannot be used; one sentence that ends with the remedy."""


class File(NamedTuple):
    """A file of a bundle; `size` is in bytes, -1 where a bundle without MANIFEST does not say it."""

    sum: str
    size: int


class Bundle(NamedTuple):
    """A bundle's list: `serial` is 0 without a manifest, `is_signed` whether a key of the site signed it."""

    files: dict[str, File]
    serial: int = 0
    manifest: str = ""
    signature: str = ""
    is_signed: bool = False


# --- the manifest ----------------------------------------------------------------------------------------------------


def parse(text: str, where: str = MANIFEST) -> tuple[int, dict[str, File]]:
    """Return serial and files of a manifest; Trouble names the line that is not as it should be."""
    lines = text.split("\n")
    if lines[0] != FORMAT or lines[-1] != "" or len(lines) < 3:
        raise Trouble(f"{where} does not begin with `{FORMAT}` or is cut short: {AGAIN}")
    serial = re.fullmatch(r"serial ([0-9]{1,15})", lines[1])
    if serial is None:
        raise Trouble(f"line 2 of {where} has no serial: {AGAIN}")
    files: dict[str, File] = {}
    for number, line in enumerate(lines[2:-1], 3):
        found = LINE.fullmatch(line)
        if found is None or found[3] in files:
            raise Trouble(f"line {number} of {where} is not `SHA256  BYTES  NAME` of one more file: {AGAIN}")
        if NAME.fullmatch(found[3]) is None or found[3] in (MANIFEST, SIGNATURE):
            raise Trouble(f"line {number} of {where} names {found[3]!r}, which is no plain file name: {AGAIN}")
        files[found[3]] = File(found[1], int(found[2]))
    return int(serial[1]), files


def manifest_of(serial: int, files: Mapping[str, File]) -> str:
    """Return the text of a manifest."""
    lines = (f"{file.sum}  {file.size}  {name}" for name, file in sorted(files.items()))
    return "\n".join([FORMAT, f"serial {serial}", *lines, ""])


def sums_of(text: str) -> dict[str, str]:
    """Return name and SHA-256 of each line of SHA256SUMS."""
    return {found[2]: found[1] for line in text.splitlines() if (found := SUM_LINE.fullmatch(line))}


def when(serial: int) -> str:
    """Return the time of a serial, in UTC."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(serial))
    except (OverflowError, ValueError, OSError):
        return f"serial {serial}"


# --- keys and signatures ---------------------------------------------------------------------------------------------


def keys_of(text: str) -> list[str]:
    """Return the public keys that may sign, of lines; Trouble names what is none."""
    keys = [line.strip() for line in text.splitlines() if line.strip()]
    for key in keys:
        if KEY.fullmatch(key) is None:
            raise Trouble(
                f"drupelet_bundle_keys has {key!r}, which is no public key: write the line of the file that ends with "
                ".pub, such as `ssh-ed25519 AAAA...`"
            )
    return keys


def ssh_keygen(words: Sequence[str], text: str) -> subprocess.CompletedProcess[str]:
    """Run ssh-keygen with a text as its standard input; Trouble where it is missing."""
    try:
        return subprocess.run(  # noqa: S603 - our own words
            ["ssh-keygen", *words],  # noqa: S607 - where this system has it
            input=text,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise Trouble("ssh-keygen is missing on this machine: install the package openssh-client") from None


def verify(manifest: str, signature: str, keys: Sequence[str], where: str) -> None:
    """Raise Trouble unless one of the keys signed the manifest; `where` goes before its name."""
    with tempfile.TemporaryDirectory() as folder:
        allowed, signed = Path(folder, "allowed"), Path(folder, "signature")
        allowed.write_text("".join(f'{NAMESPACE} namespaces="{NAMESPACE}" {key}\n' for key in keys))
        signed.write_text(signature)
        words = ["-n", NAMESPACE, "-s", str(signed)]
        done = ssh_keygen(["-Y", "verify", "-f", str(allowed), "-I", NAMESPACE, *words], manifest)
        if done.returncode == 0:
            return
        other = ssh_keygen(["-Y", "check-novalidate", *words], manifest)
    if other.returncode != 0:
        raise Trouble(f"{where}{SIGNATURE} is not the signature of {MANIFEST}, so one of them was changed: {AGAIN}")
    by = re.search(r"SHA256:\S+", other.stdout)
    raise Trouble(
        f"{where}{MANIFEST} is signed by {by[0] if by else 'another key'}, which is no key of drupelet_bundle_keys: "
        "take a bundle of your own, or add the public key if you know whose it is"
    )


# --- the control node ------------------------------------------------------------------------------------------------


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file without following a link; Trouble where it is missing or something else."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Trouble(f"{path} is missing: {AGAIN}") from None
    except OSError as error:
        kind = "is a link" if path.is_symlink() else f"cannot be read, {error.strerror}"
        raise Trouble(f"{path} {kind}: remove it, then {AGAIN}") from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise Trouble(f"{path} is no file: remove it, then {AGAIN}")
    return os.fdopen(number, "rb")


def text_of(path: Path) -> str:
    """Return the text of a small file; Trouble where it is none."""
    with open_regular(path) as file:
        content = file.read(MANIFEST_BYTES_MAX + 1)
    if len(content) > MANIFEST_BYTES_MAX or not content.isascii():
        raise Trouble(f"{path} is no text of at most {MANIFEST_BYTES_MAX} bytes: {AGAIN}")
    return content.decode()


def load(folder: Path, keys: Sequence[str]) -> Bundle:
    """Return what a bundle lists, its signature verified where there are keys; Trouble says why it cannot be used.

    Without keys a bundle is taken as it is: by MANIFEST, or by SHA256SUMS where it is older than the manifest.
    """
    has = {name for name in (MANIFEST, SIGNATURE, SUMS) if os.path.lexists(folder / name)}
    if not keys and MANIFEST not in has:
        if SUMS not in has:
            raise Trouble(
                f"{folder} has no {SUMS}: make the bundle by playbooks/bundle.yml, or leave drupelet_bundle empty"
            )
        return Bundle({name: File(found, -1) for name, found in sums_of(text_of(folder / SUMS)).items()})
    if missing := {MANIFEST, *([SIGNATURE] if keys else [])} - has:
        raise Trouble(
            f"{folder} is not signed, it has no {' and no '.join(sorted(missing))}: run playbooks/bundle.yml where the "
            "key is (bundle_key), and copy the whole folder"
        )
    manifest = text_of(folder / MANIFEST)
    signature = text_of(folder / SIGNATURE) if SIGNATURE in has else ""
    if keys:
        verify(manifest, signature, keys, f"{folder}/")
    serial, files = parse(manifest, str(folder / MANIFEST))
    if SUMS in files:
        compare(folder / SUMS, files[SUMS])
    return Bundle(files, serial, manifest, signature, bool(keys))


def compare(path: Path, listed: File) -> None:
    """Raise Trouble where a file is not what the bundle lists; its bytes are read as a whole."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if listed.size in (-1, size) and hashlib.file_digest(file, "sha256").hexdigest() == listed.sum:
            return
    raise Trouble(f"{path} is not what {MANIFEST} says, it was changed or cut short: remove it, then {AGAIN}")


def check(folder: Path, keys: Sequence[str]) -> Bundle:
    """Verify a bundle as a whole: its signature, every byte, and that no file is missing or additional."""
    bundle = load(folder, keys)
    if not bundle.manifest:
        return bundle
    for entry in sorted(folder.iterdir()):
        if entry.name not in {*bundle.files, MANIFEST, SIGNATURE}:
            raise Trouble(f"{entry} is no file of this bundle, {MANIFEST} does not list it: remove it")
    for name, listed in bundle.files.items():
        compare(folder / name, listed)
    return bundle


def ticket(folder: Path, names: Sequence[str], keys: Sequence[str]) -> str:
    """Return what a board needs to verify these files, JSON in base64; Trouble where the bundle lacks one."""
    bundle = load(folder, keys)
    for name in names:
        if name not in bundle.files:
            raise Trouble(f"{folder} has no {name}: make it by playbooks/bundle.yml (64-bit boards alone)")
        with open_regular(folder / name) as file:
            if bundle.files[name].size not in (-1, os.fstat(file.fileno()).st_size):
                raise Trouble(f"{folder / name} has another size than {MANIFEST} says: remove it, then {AGAIN}")
    files = {name: bundle.files[name] for name in names} if not bundle.manifest else {}
    told = {"keys": list(keys), "manifest": bundle.manifest, "signature": bundle.signature, "files": files}
    return base64.b64encode(json.dumps(told, sort_keys=True).encode()).decode()


# --- where the bundle is made ----------------------------------------------------------------------------------------


def sign(folder: Path, made: Path, key: Path | None) -> str:
    """Write the manifest, and its signature where there is a key; return `made` or `unchanged`.

    Trouble: a part was changed, or, where there is a key, is none that this machine made, which a signature would say.
    """
    listed = {name: found for name, found in sums_of(text_of(folder / SUMS)).items() if os.path.lexists(folder / name)}
    for entry in sorted(folder.iterdir()) if key else ():
        if entry.name not in {*listed, SUMS, MANIFEST, SIGNATURE}:
            raise Trouble(f"{entry} is no part of the bundle, so it is not signed: remove it and run this again")
    files = {}
    for name in sorted({*listed, SUMS}):
        with open_regular(folder / name) as file:
            files[name] = File(hashlib.file_digest(file, "sha256").hexdigest(), os.fstat(file.fileno()).st_size)
        if name != SUMS and (files[name].sum != listed[name] or (key and not (made / listed[name]).exists())):
            raise Trouble(
                f"{folder / name} was changed or was not made here, so it is not signed: remove it and run this again"
            )
    public = public_key(key) if key else ""
    former = 0
    with contextlib.suppress(Trouble):  # no manifest, or one that is not ours: its serial counts for nothing
        bundle = load(folder, [public] if public else [])
        former = bundle.serial
        if bundle.manifest and bundle.files == files and bool(bundle.signature) == bool(key):
            return "unchanged"
    counter = made / "serial"
    known = int(counter.read_text()) if counter.exists() else 0
    serial = max(int(time.time()), known + 1, former + 1 if public else 0)
    manifest = manifest_of(serial, files)
    signature = signed_by(key, manifest) if key else ""
    (folder / SIGNATURE).unlink(missing_ok=True)
    write(counter, f"{serial}\n")
    write(folder / MANIFEST, manifest)
    if signature:
        write(folder / SIGNATURE, signature)
    return "made"


def public_key(key: Path) -> str:
    """Return the public key of a private one; `key` may be the public one, whose other half an agent holds."""
    path = key if key.suffix == ".pub" else Path(f"{key}.pub")
    if not path.exists():
        raise Trouble(f"{path} is missing: `ssh-keygen -y -f {key} > {path}` writes it")
    return " ".join(path.read_text().split()[:2])


def signed_by(key: Path, manifest: str) -> str:
    """Return the signature of a manifest."""
    done = ssh_keygen(["-Y", "sign", "-q", "-f", str(key), "-n", NAMESPACE], manifest)
    if done.returncode != 0 or "BEGIN SSH SIGNATURE" not in done.stdout:
        said = " ".join(done.stderr.split()) or f"ssh-keygen ended with {done.returncode}"
        raise Trouble(
            f"{key} does not sign: {said}. A key with a passphrase signs by ssh-agent, with bundle_key={key}.pub"
        )
    return done.stdout


def write(path: Path, text: str) -> None:
    """Replace a file as a whole, once its new content is on the disk."""
    part = path.with_name(f"{path.name}.part")
    with part.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    number = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


# --- the board -------------------------------------------------------------------------------------------------------


def unpack(path: Path, told: str, *, older: bool, old: Path | None = None) -> None:
    """Verify a copied part by its ticket, then unpack it next to itself; the copy is always removed.

    `old` is a folder that the part replaces; both do not fit on a small card. Trouble: nothing was written or removed.
    """
    try:
        with open_regular(path) as file:
            serial = verify_file(path, file, told, older=older)
            file.seek(0)
            with tarfile.open(fileobj=file, mode="r:") as tar:
                members = flat(tar, path.name)
                if old is not None and old.is_dir():
                    shutil.rmtree(old)
                for member in members:
                    extract(tar, member, path.parent)
    except tarfile.TarError as error:
        raise Trouble(f"{path.name} of the bundle is no tar, {error}: {AGAIN}") from None
    finally:
        path.unlink(missing_ok=True)
    if serial > last_serial():
        SERIAL.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        write(SERIAL, f"{serial}\n")


def verify_file(path: Path, file: IO[bytes], told: str, *, older: bool) -> int:
    """Return the serial of the signed bundle that has the file, 0 for an unsigned one; Trouble where it has not."""
    said = json.loads(base64.b64decode(told))
    keys, manifest = said["keys"], said["manifest"]
    serial, files = parse(manifest) if manifest else (0, {name: File(*one) for name, one in said["files"].items()})
    if keys:
        verify(manifest, said["signature"], keys, "the bundle's ")
        if serial < last_serial() and not older:
            raise Trouble(
                f"the bundle of {when(serial)} is older than the one of {when(last_serial())} that this board has had: "
                "run playbooks/bundle.yml again; -e drupelet_bundle_older=true goes back to it on purpose"
            )
    listed = files.get(path.name)
    size = os.fstat(file.fileno()).st_size
    if listed is None:
        raise Trouble(f"{path.name} is no file of the bundle, {MANIFEST} does not list it: {AGAIN}")
    if listed.size not in (-1, size) or hashlib.file_digest(file, "sha256").hexdigest() != listed.sum:
        raise Trouble(
            f"What came of {path.name} is not what {MANIFEST if manifest else SUMS} says: remove it there, run "
            "playbooks/bundle.yml, then this"
        )
    return serial if keys else 0


def last_serial() -> int:
    """Return the highest serial that this board has had; 0 for none."""
    try:
        return int(SERIAL.read_text())
    except FileNotFoundError:
        return 0
    except ValueError:
        raise Trouble(
            f"{SERIAL} is damaged, so older bundles are not told from newer ones: remove it on the board"
        ) from None


def flat(tar: tarfile.TarFile, name: str) -> list[tarfile.TarInfo]:
    """Return the members of a part; Trouble where one is no file with a plain name, or is there twice."""
    members = tar.getmembers()
    seen: set[str] = set()
    for member in members:
        if not member.isreg() or MEMBER.fullmatch(member.name) is None or member.name in {*seen, name}:
            raise Trouble(
                f"{name} of the bundle has {member.name!r}, which is no file with a plain name of its own: {AGAIN}"
            )
        seen.add(member.name)
    return members


def extract(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write one member, mode 0644; a file of that name is replaced in one step, so what has it open keeps it."""
    part = folder / f".{member.name}.part"
    source = tar.extractfile(member)
    if source is None:
        raise Trouble(f"{member.name} cannot be read out of its part of the bundle: {AGAIN}")
    number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with source, os.fdopen(number, "wb") as file:
        for block in blocks(source):
            file.write(block)
    part.chmod(0o644)
    part.replace(folder / member.name)


def blocks(source: IO[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a file in pieces of 1 MiB."""
    while block := source.read(1 << 20):
        yield block


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the commands; the exit status: 0 done, 1 refused, in one sentence on standard error, 2 wrong words."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    command, paths = (words or [""])[0], [Path(word) for word in words[1:]]
    try:
        keys = keys_of(os.environ.get("DRUPELET_KEYS", "")) if command in ("check", "read") else []
        if command == "sign" and len(paths) in (2, 3):
            print(sign(paths[0], paths[1], paths[2] if len(paths) == 3 else None))
        elif command == "check" and len(paths) == 1:
            check(paths[0], keys)
        elif command == "read" and len(paths) > 1:
            print(ticket(paths[0], words[2:], keys))
        elif command == "unpack" and len(paths) in (1, 2):
            older, old = os.environ.get("DRUPELET_OLDER") == "1", paths[1] if len(paths) == 2 else None
            unpack(paths[0], os.environ["DRUPELET_TICKET"], older=older, old=old)
        else:
            print(
                "usage: bundle.py sign FOLDER MADE [KEY] | check FOLDER | read FOLDER NAME ... | unpack FILE [OLD]",
                file=sys.stderr,
            )
            return 2
    except Trouble as trouble:
        print(f"{trouble}.", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{error.filename or command}: {error.strerror or error}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
