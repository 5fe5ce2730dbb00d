"""Installs a release of Drupelet on a board so that a power cut at any step is mended by the next run.

A release is a virtual environment ROOT/RELEASE. It is built as ROOT/RELEASE.part, where no program is looked for:

| step | what a power cut after it leaves | the next run |
|---|---|---|
| build: venv and pip, in RELEASE.part | RELEASE.part, any of its files empty, short or missing | removes it |
| mark: the list of all files, RELEASE.part/.installed | the same | removes it |
| sync of the file system | RELEASE.part, whole | removes it |
| RELEASE.part and RELEASE change names, in one step | the old or the new RELEASE, whole | removes RELEASE.part |
| sync of ROOT, then RELEASE.part (the old one) is removed | RELEASE, and some of the old one | removes RELEASE.part |

So a release under its own name is whole, and what runs from it is never without its files, not even while a damaged
one is replaced. Still it is compared with its mark on every run: cards lose bytes too, and a release that an older
role installed has no such mark.

Run by the board's own Python (3.11 or newer) from standard input, as root: `python3 - COMMAND ...`. Nothing beyond the
standard library may be imported here, and nothing below ROOT/RELEASE may be written: it is replaced whole.

  check ROOT RELEASE [EXTRA ...]     prints {"whole", "why", "installation", "leftovers"}
  clean ROOT                         removes the leftovers of runs that were cut off, prints their names
  prune ROOT COUNT                   removes older releases until COUNT are left, prints their names
  room [--wheels BYTES,...] ROOT RELEASE [EXTRA ...]
      fails where the disk has less room than the installation takes; BYTES are the sizes of the bundle's tars
  install ROOT RELEASE [--no-index] WHEEL [EXTRA ...]
      WHEEL is the name of a file in RELEASE.part; --no-index installs from the wheels in RELEASE.part/wheels alone;
      prints the same as check

What pip installs is pinned by the files drupelet/pins/*.txt in WHEEL (requirements with hashes, by `make pins`):

| the release | what pip takes |
|---|---|
| has pins | files of the pinned versions and hashes alone, and nothing that is not pinned |
| has pins, and the board's Python is 32-bit | the pinned versions: piwheels.org builds files of its own |
| is older than the pins | what the wheel asks for, as before |

`wheels/built.txt` has the hashes of wheels that were made of pinned sources, because no wheel is published.

The mark is a JSON object {"sha256": of what follows, "installed": {...}}:

| key | value |
|---|---|
| extras | the extras that are installed |
| installation | 8 random hexadecimal digits; units name them, so that one that was replaced restarts its services |
| files | path: [size, SHA-256] |
| links | path: target |
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import csv
import ctypes
import errno
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

MARK = ".installed"
PART = ".part"
WHEELS = "wheels"
FETCHED = "fetched"
PINS = "drupelet/pins/"  # in the wheel: {extra}.txt
PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*==[^\s;]+)[^#\n]*")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
BUILT = "built.txt"  # in WHEELS: a line of NAME==VERSION and hash for each wheel that was made of pinned sources
IS_32_BIT = sys.maxsize < 1 << 32
RELEASE = re.compile(r"[0-9].*-[0-9a-f]{8}")  # VERSION-CHECKSUM
UNITS = Path("/etc/systemd/system")
MEMO = Path("/run/drupelet")  # emptied by every boot, and never on the card
FAILED = "failed: "  # how an answer begins that is none
ANSWER_S = 120.0  # for a program to tell its version, on a busy small board
ROOM_MIN = 4 << 20  # bytes; a disk with less is called full when an installation fails
RELEASE_BYTES, RELEASE_FILES = 95_000_000, 3_500  # of a virtual environment with all extras but Spark, measured
SPARK_BYTES, SPARK_FILES = 460_000_000, 3_500  # what Spark adds to it
FETCHED_BYTES = 20_000_000  # wheels that pip fetches, while it installs
SPARK_FETCHED_BYTES = 1_310_000_000  # Spark's sources, unpacked, and the wheel that pip makes of them
FULL = (errno.ENOSPC, errno.EDQUOT)
RENAME_EXCHANGE = 2
AT_FDCWD = -100
PROGRAMS = {  # extra: its program, and what that one imports before it serves
    "": ("edge-broker", "edge_broker.app"),
    "gateway": ("edge-gateway", "gateway.app"),
    "hardware": ("edge-board", "hardware.cli"),
    "mirror": ("edge-mirror", "mirror.app"),
    "spark": ("edge-spark", "spark.session"),
}


class Trouble(Exception):
    """A release cannot be installed; one sentence."""


# --- what is there ---------------------------------------------------------------------------------------------------


def check(root: Path, release: str, extras: Iterable[str]) -> dict[str, Any]:
    """Whether the release is whole and has these extras, why not, and what cut-off runs have left in `root`."""
    why, installation = "", ""
    try:
        installed = read_mark(root / release)
        require(installed, extras)
        installation = installed["installation"]
        compare(root / release, installed)
    except Trouble as trouble:
        why = str(trouble)
    return {"whole": not why, "why": why, "installation": installation, "leftovers": leftovers(root)}


def read_mark(release: Path) -> dict[str, Any]:
    """Return the release's marker; raises Trouble if there is none, or a corrupt one."""
    try:
        mark = json.loads((release / MARK).read_bytes())
        installed: dict[str, Any] = mark["installed"]
        if mark["sha256"] != fingerprint(installed):
            raise ValueError("other content than its checksum says")
    except FileNotFoundError:
        raise Trouble(
            "it is not installed" if not release.is_dir() else "its installation was never finished"
        ) from None
    except (ValueError, TypeError, KeyError) as error:  # empty, cut short, or other bytes
        raise Trouble(f"its mark {release / MARK} is damaged: {error}") from None
    return installed


def require(installed: dict[str, Any], extras: Iterable[str]) -> None:
    """Trouble when one of `extras` is not installed."""
    missing = sorted(set(extras) - set(installed["extras"]))
    if missing:
        raise Trouble(f"it is installed without {', '.join(missing)}")


def compare(release: Path, installed: dict[str, Any]) -> None:
    """Hold every file and link against the mark and ask the programs for their version; Trouble names the first damage.

    Sizes and links are compared each time, bytes and imports the first time after a boot (a power cut cannot spoil them
    without one), and whenever any file was touched since.
    """
    seen = compare_sizes(release, installed)
    memo = MEMO / f"{release.name}.seen"
    known = read_memo(memo) == seen
    if not known:
        compare_bytes(release, installed["files"])
    ask(release, installed["extras"], imports=not known)
    if not known:
        with contextlib.suppress(OSError):  # a memo that is missing or half written costs the next run another look
            MEMO.mkdir(exist_ok=True)
            memo.write_text(seen)


def compare_sizes(release: Path, installed: dict[str, Any]) -> str:
    """Compare sizes and links; a digest that is another one once a file was written, replaced or touched."""
    digest = hashlib.sha256(installed["installation"].encode())
    for path, (size, _) in installed["files"].items():
        try:
            status = os.lstat(release / path)
        except OSError as error:
            raise Trouble(f"{release / path}: {error.strerror}") from None
        if status.st_size != size:
            raise Trouble(f"{release / path} has {status.st_size} bytes instead of {size}")
        digest.update(f"{path} {status.st_ino} {status.st_mode} {status.st_mtime_ns} {status.st_ctime_ns}\n".encode())
    for path, target in installed["links"].items():
        try:
            found = os.readlink(release / path)
        except OSError as error:
            raise Trouble(f"{release / path}: {error.strerror}") from None
        if found != target:
            raise Trouble(f"{release / path} is a link to {found} instead of {target}")
    return digest.hexdigest()


def read_memo(memo: Path) -> str:
    """Return the result of the last comparison of bytes since the boot; empty without one, or if it is unreadable."""
    try:
        return memo.read_text()
    except (OSError, ValueError):
        return ""


def compare_bytes(release: Path, files: dict[str, tuple[int, str]]) -> None:
    """Trouble names the first file whose SHA-256 is not that of the mark, or that cannot be read."""
    for path, (_, sha256) in files.items():
        try:
            found = sha256_of(release / path)
        except OSError as error:
            raise Trouble(f"{release / path}: {error.strerror}") from None
        if found != sha256:
            raise Trouble(f"{release / path} has other bytes than were installed")


def ask(release: Path, extras: Iterable[str], *, imports: bool) -> None:
    """Ask every installed program for its version, as systemd would start it; Trouble when one does not tell it."""
    installed = [PROGRAMS[extra] for extra in ("", *extras) if extra in PROGRAMS]
    version = release.name.removesuffix(PART).rpartition("-")[0]
    python = str(release / "bin/python")
    # A program still under construction names the python that it will have.
    how = [python] if release.name.endswith(PART) else []
    asked = {program: [*how, str(release / "bin" / program), "--version"] for program, _ in installed}
    if imports:
        asked["python"] = [
            python,
            "-I",
            "-c",
            f"import {', '.join(module for _, module in installed)}; print('{version}')",
        ]
    for program, answer in answers(asked).items():
        if version not in answer or answer.startswith(FAILED):
            raise Trouble(f"{release / 'bin' / program} does not work: {answer or 'no answer'}")


def answers(asked: dict[str, list[str]]) -> dict[str, str]:
    """Run commands at the same time; what each prints, or the last line of its complaint."""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"}
    running: dict[str, subprocess.Popen[str]] = {}
    found = {}
    try:
        for name, command in asked.items():
            try:
                running[name] = subprocess.Popen(  # noqa: S603 - the programs that were installed
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                    env=environment, cwd="/",
                )  # fmt: skip
            except OSError as error:
                found[name] = f"{FAILED}{error.strerror}"
        for name, process in running.items():
            found[name] = answer_of(process)
    finally:
        for process in running.values():
            process.kill()
    return found


def answer_of(process: subprocess.Popen[str]) -> str:
    """Return a program's output, or its exit status and its last line of standard error; it has ANSWER_S."""
    try:
        printed, complaint = process.communicate(timeout=ANSWER_S)
    except subprocess.TimeoutExpired:
        return f"{FAILED}no answer within {ANSWER_S:.0f} s"
    if process.returncode != 0:
        return f"{FAILED}exit status {process.returncode}, {last_line(complaint)}"
    return printed.strip()


def leftovers(root: Path) -> list[str]:
    """Return names in `root` that are unfinished and unused: releases under construction, or without a marker."""
    used = names_in_use(root)
    entries = list(root.iterdir()) if root.is_dir() else []
    building = {entry.name for entry in entries if entry.name.endswith(PART) and RELEASE.match(entry.name)}
    unmarked = {entry.name for entry in entries if RELEASE.fullmatch(entry.name) and not any(entry.glob(f"{MARK}*"))}
    return sorted(building | (unmarked - used))


def names_in_use(root: Path) -> set[str]:
    """Releases that a link, an upgrade that was cut off, or a unit names."""
    names = {os.readlink(link) for link in (root / "current", root / "previous") if link.is_symlink()}
    kept = root / "kept/release"
    names |= {kept.read_text().strip()} if kept.exists() else set()
    for unit in UNITS.glob("*.service"):
        names |= set(re.findall(r"(?m)^X-Release=(.*)$", unit.read_text(errors="replace")))
    return names


def clean(root: Path) -> list[str]:
    """Remove the leftovers of runs that were cut off; their names."""
    names = leftovers(root)
    for name in names:
        shutil.rmtree(root / name)
    return names


def prune(root: Path, count: int) -> list[str]:
    """Remove the oldest releases until `count` are left; their names.

    None goes that `names_in_use` has, and of those only what a link names counts as one that is kept.
    """
    linked = {os.readlink(link) for link in (root / "current", root / "previous") if link.is_symlink()}
    used = names_in_use(root)
    spare = [entry for entry in root.iterdir() if RELEASE.fullmatch(entry.name) and entry.name not in used]
    spare.sort(key=lambda entry: entry.stat().st_mtime_ns, reverse=True)
    removed = spare[max(0, count - len(linked)) :]
    for entry in removed:
        part = entry.with_name(entry.name + PART)  # what is half removed is no release
        entry.rename(part)
        shutil.rmtree(part)
    return [entry.name for entry in removed]


# --- room for it -----------------------------------------------------------------------------------------------------


def room(root: Path, release: str, extras: Iterable[str], tars: Sequence[int]) -> None:
    """Trouble where the disk has less room than the installation takes at its peak; `tars` are sizes of a bundle's."""
    spark = "spark" in extras
    bytes_needed = RELEASE_BYTES + spark * SPARK_BYTES
    if tars:  # all of them are copied, then unpacked one by one, then installed from
        bytes_needed = max(bytes_needed + sum(tars), sum(tars) + max(tars))
    else:
        bytes_needed += FETCHED_BYTES + spark * SPARK_FETCHED_BYTES
    demand(root, release, bytes_needed, RELEASE_FILES + spark * SPARK_FILES)


def demand(path: Path, what: str, bytes_needed: int, files_needed: int) -> None:
    """Trouble, in a sentence with numbers, where the file system of `path` has room for less, for an ordinary user."""
    while not path.exists():
        path = path.parent
    status = os.statvfs(path)
    free = status.f_bavail * status.f_frsize
    if free < bytes_needed:
        raise Trouble(
            f"{what} takes {bytes_needed // 1_000_000 + 1} MB while it is installed, and the disk of {path} has "
            f"{free // 1_000_000} MB left: make room there for {(bytes_needed - free) // 1_000_000 + 1} MB more"
        )
    if status.f_files > 0 and status.f_favail < files_needed:
        raise Trouble(
            f"{what} takes {files_needed} files, and the disk of {path} has inodes left for {status.f_favail}: "
            "remove files there"
        )


# --- what comes there ------------------------------------------------------------------------------------------------


def install(root: Path, release: str, wheel: str, extras: Sequence[str], *, index: bool) -> dict[str, Any]:
    """Build the release out of RELEASE.part/WHEEL, make it durable, then put it in its place, as `check` sees it then.

    Trouble says what kept it from that; RELEASE is untouched then, and nothing of RELEASE.part is left.
    """
    part, final = root / (release + PART), root / release
    before = check(root, release, ())
    # Where extras are added to a sound release, what runs from it goes on: its units need not change.
    installation = before["installation"] if before["whole"] else secrets.token_hex(4)
    try:
        build(part, wheel, extras, index=index)
        relocate(part, final)
        ask(part, extras, imports=True)
        write_mark(part, extras, installation)
        sync_file_system(part)
        put(part, final)
    except (Trouble, OSError) as error:
        full = is_full(root) or (isinstance(error, OSError) and error.errno in FULL)
        shutil.rmtree(part, ignore_errors=True)
        if full:
            raise Trouble(f"{root} was full before all was written: make room there") from error
        raise
    sync_directory(root)
    shutil.rmtree(part, ignore_errors=True)  # what was there before, if anything: else the next run removes it
    return check(root, release, extras)


def build(part: Path, wheel: str, extras: Sequence[str], *, index: bool) -> None:
    """Make the virtual environment and install the wheel into it, and what it needs as it is pinned."""
    run([sys.executable, "-m", "venv", str(part)])
    sources = [] if index else ["--no-index", "--find-links", str(part / WHEELS)]
    # pip's downloads and builds are here too, and not in /tmp, which may be small; no cache stays on the card.
    fetched = part / FETCHED
    fetched.mkdir()
    pins = read_pins(part / wheel, extras)
    if pins is None:
        wanted = [str(part / wheel) + (f"[{','.join(extras)}]" if extras else "")]
    else:
        if index and "spark" in extras and not IS_32_BIT:
            build_spark(part)
            sources = ["--find-links", str(part / WHEELS)]
        (fetched / "pins.txt").write_text(requirements(part, wheel, extras, pins))
        wanted = ["--requirement", str(fetched / "pins.txt")]
        if not IS_32_BIT:  # a build would run tools that are not pinned
            wanted += ["--require-hashes", "--only-binary=:all:"]
    run([*pip(part, "install"), *sources, *wanted], {"TMPDIR": str(fetched)})
    shutil.rmtree(fetched)
    shutil.rmtree(part / WHEELS, ignore_errors=True)


def pip(part: Path, command: str) -> list[str]:
    """Return how a command of the environment's pip begins."""
    return [str(part / "bin/python"), "-m", "pip", command, "--quiet", "--disable-pip-version-check", "--no-cache-dir"]


def read_pins(wheel: Path, extras: Sequence[str]) -> dict[str, str] | None:
    """Return NAME==VERSION and the whole requirement of each package that the wheel pins for these extras.

    None where the wheel is of a release older than the pins. Trouble: an extra has none, or a package has two versions.
    """
    pins: dict[str, str] = {}
    with zipfile.ZipFile(wheel) as file:
        files = set(file.namelist())
        if not any(name.startswith(PINS) for name in files):
            return None
        for extra in ("broker", *extras):
            if f"{PINS}{extra}.txt" not in files:
                known = sorted(name[len(PINS) :].removesuffix(".txt") for name in files if name.startswith(PINS))
                raise Trouble(
                    f"{wheel.name} pins nothing for the extra {extra}: name extras of {', '.join(known)} in "
                    "drupelet_extras"
                )
            pins |= pins_of(file.read(f"{PINS}{extra}.txt").decode())
    names = [pin.partition("==")[0] for pin in pins]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise Trouble(f"{wheel.name} pins {', '.join(twice)} to two versions: run `make pins` where it was built")
    return pins


def pins_of(text: str) -> dict[str, str]:
    """Return NAME==VERSION and the whole requirement of each line of a requirements file."""
    lines = text.replace("\\\n", " ").splitlines()
    return {found[1]: line.strip() for line in lines if (found := PIN.match(line))}


def requirements(part: Path, wheel: str, extras: Sequence[str], pins: dict[str, str]) -> str:
    """Return what pip is to install, a line for each: the wheel, and all that is pinned.

    Trouble: the folder of wheels says that it built something other than what is pinned.
    """
    built = part / WHEELS / BUILT
    of_built = pins_of(built.read_text()) if built.exists() else {}
    if other := sorted(set(of_built) - set(pins)):
        raise Trouble(
            f"{built.name} of the bundle has {', '.join(other)}, which {wheel} does not pin: make the bundle again, by "
            "playbooks/bundle.yml, from the checkout that the wheel was built from"
        )
    lines = [
        " ".join([HASH.sub("", line).strip(), *([] if IS_32_BIT else HASH.findall(line + of_built.get(pin, "")))])
        for pin, line in pins.items()
    ]
    named = f"[{','.join(extras)}]" if extras else ""
    digest = "" if IS_32_BIT else f" --hash=sha256:{sha256_of(part / wheel)}"
    return "\n".join([f"drupelet{named} @ {(part / wheel).as_uri()}{digest}", *lines, ""])


def build_spark(part: Path) -> None:
    """Make wheels of what Spark needs, of pinned sources by pinned tools, and list their hashes."""
    fetched, wheels = part / FETCHED, part / WHEELS
    wheels.mkdir(exist_ok=True)
    (wheel,) = part.glob("drupelet-*.whl")
    with zipfile.ZipFile(wheel) as file:
        for name in ("build", "spark"):
            (fetched / f"{name}.txt").write_bytes(file.read(f"{PINS}{name}.txt"))
    pinned = ["--require-hashes", "--no-deps", "--requirement"]
    place = {"TMPDIR": str(fetched)}
    run([*pip(part, "install"), "--target", str(fetched / "tools"), *pinned, str(fetched / "build.txt")], place)
    run(
        [*pip(part, "wheel"), "--no-build-isolation", "--wheel-dir", str(wheels), *pinned, str(fetched / "spark.txt")],
        {**place, "PYTHONPATH": str(fetched / "tools")},
    )
    lines = []
    for path in sorted(wheels.glob("*.whl")):
        name, version = path.name.split("-")[:2]
        lines.append(f"{name.replace('_', '-')}=={version} --hash=sha256:{sha256_of(path)}\n")
    (wheels / BUILT).write_text("".join(lines))


def run(command: Sequence[str], environment: dict[str, str] | None = None) -> None:
    """Run a step of the installation; Trouble with the errors that it printed when it fails."""
    done = subprocess.run(  # noqa: S603 - the board's own Python
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    if done.returncode != 0:
        printed = (done.stderr + done.stdout).splitlines()
        refuse_other_files(printed)
        errors = [line.removeprefix("ERROR: ") for line in printed if line.startswith("ERROR: ")]
        raise Trouble(" ".join(errors) or last_line("\n".join(printed)) or f"{command[0]} ended with {done.returncode}")


def refuse_other_files(printed: Sequence[str]) -> None:
    """Trouble where pip says that files are not the ones of their hashes."""
    if any("DO NOT MATCH THE HASHES" in line for line in printed):
        found = [re.match(r"\s+(\S+==\S+|\S+) from ", line) for line in printed]
        names = ", ".join(match[1] for match in found if match) or "a package"
        raise Trouble(
            f"{names} has other bytes than the release pins, so nothing was installed: make the bundle again by "
            "playbooks/bundle.yml, or ask another package index; if it stays so, do not trust that index"
        )


def relocate(part: Path, final: Path) -> None:
    """Have what names the folder that it was built in name the one it will be in, and pip's records know of it."""
    changed = {}
    for path in (part / "pyvenv.cfg", *(part / "bin").iterdir(), *part.glob("lib/*/site-packages/*/direct_url.json")):
        if path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        if os.fsencode(part) in content:
            path.write_bytes(content.replace(os.fsencode(part), os.fsencode(final)))
            changed[path] = path.read_bytes()
    for record in part.glob("lib/*/site-packages/*.dist-info/RECORD"):
        correct(record, changed)


def correct(record: Path, changed: dict[Path, bytes]) -> None:
    """Write hash and size of changed files into one RECORD (PEP 376, PEP 427), where it lists them."""
    rows = list(csv.reader(io.StringIO(record.read_text(encoding="utf-8"), newline="")))
    for row in rows:
        content = changed.get(Path(os.path.normpath(record.parent.parent / row[0])))
        if content is not None and row[1]:
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            row[1:3] = [f"sha256={digest}", str(len(content))]
    written = io.StringIO(newline="")
    csv.writer(written, lineterminator="\n").writerows(rows)
    record.write_text(written.getvalue(), encoding="utf-8")


def write_mark(part: Path, extras: Sequence[str], installation: str) -> None:
    """List what is installed, with sizes and checksums."""
    files: dict[str, tuple[int, str]] = {}
    links: dict[str, str] = {}
    for folder, folders, names in os.walk(part):
        for name in (*folders, *names):
            path = Path(folder, name)
            if path.is_symlink():
                links[str(path.relative_to(part))] = os.readlink(path)
            elif path.is_file():
                files[str(path.relative_to(part))] = (path.stat().st_size, sha256_of(path))
    installed = {"extras": sorted(extras), "installation": installation, "files": files, "links": links}
    (part / MARK).write_text(json.dumps({"sha256": fingerprint(installed), "installed": installed}))


def put(part: Path, final: Path) -> None:
    """Give `part` the name `final` in one step; what had it before is `part` then."""
    if not final.exists():
        os.rename(part, final)
        return
    try:
        exchange(part, final)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EXDEV):
            raise
        # A file system that cannot do so. A cut between the two leaves no release: the next run installs it.
        old = final.with_name(final.name + ".old" + PART)
        os.rename(final, old)
        os.rename(part, final)
        os.rename(old, part)


# --- the operating system --------------------------------------------------------------------------------------------


def exchange(one: Path, other: Path) -> None:
    """Swap two names at once, as renameat2(2) does."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(one), None, str(other))


def sync_file_system(path: Path) -> None:
    """Wait until everything on the file system of `path` is on the disk, files and folders, as syncfs(2) does."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if libc.syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    finally:
        os.close(descriptor)


def is_full(path: Path) -> bool:
    """Whether the file system of `path` has no room, for root, for another file of middling size."""
    status = os.statvfs(path)
    return status.f_bfree * status.f_frsize < ROOM_MIN or (status.f_files > 0 and status.f_ffree == 0)


def sync_directory(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(installed: dict[str, Any]) -> str:
    """The checksum that a mark has of its content."""
    return hashlib.sha256(json.dumps(installed, sort_keys=True).encode()).hexdigest()


def last_line(text: str) -> str:
    """The last line that says something; empty when none does."""
    return ([""] + [line.strip() for line in text.splitlines() if line.strip()])[-1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the commands; the exit status: 0 done, 1 failed, with one sentence on standard error."""
    parser = argparse.ArgumentParser(prog="release.py")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("check", "clean", "prune", "room", "install"):
        command = commands.add_parser(name)
        command.add_argument("root", type=Path)
        if name == "prune":
            command.add_argument("count", type=int)
        if name in ("check", "room", "install"):
            command.add_argument("release")
        if name == "room":
            command.add_argument("--wheels", default="", help="bytes of each tar, with commas between them")
        if name == "install":
            command.add_argument("--no-index", action="store_true")
            command.add_argument("wheel")
        if name in ("check", "room", "install"):
            command.add_argument("extras", nargs="*")
    options = parser.parse_args(arguments)
    os.umask(0o022)
    try:
        if options.command == "clean":
            print(json.dumps(clean(options.root)))
        elif options.command == "prune":
            print(json.dumps(prune(options.root, options.count)))
        elif options.command == "check":
            print(json.dumps(check(options.root, options.release, options.extras)))
        elif options.command == "room":
            tars = [int(size) for size in options.wheels.split(",") if size]
            room(options.root, options.release, options.extras, tars)
        else:
            index = not options.no_index
            print(json.dumps(install(options.root, options.release, options.wheel, options.extras, index=index)))
    except (Trouble, OSError) as error:
        print(f"{options.command} of {getattr(options, 'release', options.root)} failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
