"""Keeps the former configuration of a running service, and puts it back where the service does not work with a new one.

A change of a service's files has these steps, and the file ROOT/former/SERVICE.json exists from the first to the last:

| step | the file | a run that ends here leaves |
|---|---|---|
| keep | has the former files | no new files |
| the role writes new files | the same | new files, not tried yet: `compare` of the next run finds them |
| restart, wait for /health | the same | the same |
| forget | is gone | the new files, in use |
| restore, instead of forget | is gone | the former files, in use; the play has failed |

A former file is one with which the service was active. A service that is not active has none, and keeps no files.
A link to a folder, as to a version of Apache Kafka, counts as a file. The release is kept for our own services alone.

Run by the board's own Python (3.11 or newer) from standard input, as root: `python3 - COMMAND ...`. Nothing beyond the
standard library may be imported. Each command prints one JSON object.

  keep ROOT SERVICE FILE ...        {"kept": are there former files, "health": status of /health with them, else 0}
  compare ROOT SERVICE              {"changed": files and links that differ}; forgets the former ones where none does
  restore ROOT SERVICE PATIENCE_S   {"restored": files, "healthy", "said": by /health, "errors": last lines of the log}
  forget ROOT SERVICE               {}
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import re
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

RELEASE = "current"  # the link below ROOT that units start programs by
ASKED_S = 5.0  # for one answer of /health
PAUSE_S = 0.5
OURS = "edge-"  # units that start programs of the release
LINES, LINES_SHOWN = 60, 3
WELL, ANSWERS = 200, 503
METRICS = re.compile(r"--metrics[= ](\S+)")
# Information of ours, and the lines of a Java stack trace below its cause.
UNREMARKABLE = re.compile(r"\d{4}-\d\d-\d\dT\S+ (debug|info) |edge-\w+ ready on |\s+at \S+\(|\s+[.]{3} \d+ more")


class Answer(NamedTuple):
    """A service's health: an HTTP status, 0 if it does not answer, and its sentence."""

    status: int
    said: str


def main(words: Sequence[str]) -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(prog="former.py")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("keep", "compare", "restore", "forget"):
        command = commands.add_parser(name)
        command.add_argument("root", type=Path)
        command.add_argument("service")
    commands.choices["keep"].add_argument("files", nargs="+")
    commands.choices["restore"].add_argument("patience_s", type=float)
    told = parser.parse_args(words)
    kept = told.root / "former" / f"{told.service}.json"
    if told.command == "keep":
        answer = keep(kept, told.service, told.files)
    elif told.command == "compare":
        answer = compare(kept)
    elif told.command == "restore":
        answer = restore(kept, told.service, told.patience_s)
    else:
        kept.unlink(missing_ok=True)
        answer = {}
    print(json.dumps(answer))
    return 0


def keep(kept: Path, service: str, files: Sequence[str]) -> dict[str, Any]:
    """Keep the files of an active service; those that an interrupted run has kept stay as they are."""
    if not kept.exists():
        if active_state(service) != "active":
            return {"kept": False, "health": 0}
        former = {
            "files": {file: read_file(Path(file)) for file in files},
            "release": read_release(kept) if service.startswith(OURS) else "",
        }
        former["health"] = ask_health(former["files"], service).status
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(kept, json.dumps(former).encode(), 0o600)
    return {"kept": True, "health": json.loads(kept.read_text())["health"]}


def compare(kept: Path) -> dict[str, Any]:
    """Name what differs from the former files; forget them where nothing does."""
    if not kept.exists():
        return {"changed": []}
    changed = differences(kept, json.loads(kept.read_text()))
    if not changed:
        kept.unlink()
    return {"changed": changed}


def restore(kept: Path, service: str, patience_s: float) -> dict[str, Any]:
    """Put former files back, restart the service and wait until its health is as before; say how that went."""
    errors = last_errors(service)
    if not kept.exists():
        return {"restored": [], "healthy": False, "said": "", "errors": errors}
    former = json.loads(kept.read_text())
    changed = differences(kept, former)
    for file, content in former["files"].items():
        if file in changed:
            put_back(Path(file), content)
    if str(release_link(kept)) in changed:
        put_link(release_link(kept), former["release"])
    systemctl("daemon-reload")
    systemctl("restart", f"{service}.service", limit_s=patience_s)
    answer = wait_for_health(former, service, patience_s)
    kept.unlink()
    healthy = answer.status == WELL or (answer.status == ANSWERS and former["health"] != WELL)
    return {"restored": changed, "healthy": healthy, "said": answer.said, "errors": errors}


def wait_for_health(former: Mapping[str, Any], service: str, patience_s: float) -> Answer:
    """Ask until the service is as well as it was with these files, at most `patience_s` seconds."""
    ends = time.monotonic() + patience_s
    while True:
        answer = ask_health(former["files"], service)
        if answer.status == WELL or (answer.status == ANSWERS and former["health"] != WELL):
            return answer
        if time.monotonic() > ends:
            return answer if answer.said else Answer(answer.status, f"systemd says that it is {active_state(service)}")
        time.sleep(PAUSE_S)


def differences(kept: Path, former: Mapping[str, Any]) -> list[str]:
    """Return the paths whose contents, owners or modes are not the former; a release that is gone cannot come back."""
    changed = [file for file, content in former["files"].items() if read_file(Path(file)) != content]
    release = former["release"]
    if release and release != read_release(kept) and (release_link(kept).parent / release).is_dir():
        changed.append(str(release_link(kept)))
    return changed


def release_link(kept: Path) -> Path:
    """Return the link to the release in use."""
    return kept.parent.parent / RELEASE


def read_release(kept: Path) -> str:
    """Return the name of the release in use; empty without one."""
    link = release_link(kept)
    return str(link.readlink()) if link.is_symlink() else ""


def read_file(path: Path) -> dict[str, Any] | None:
    """Return content, mode and owner of a file, or the target of a link to a folder; `None` where it does not exist."""
    if path.is_symlink() and path.is_dir():
        return {"link": str(path.readlink())}
    try:
        status, content = path.stat(), path.read_bytes()
    except FileNotFoundError:
        return None
    encoded = base64.b64encode(content).decode()
    return {"content": encoded, "mode": status.st_mode & 0o7777, "user": status.st_uid, "group": status.st_gid}


def put_back(path: Path, former: Mapping[str, Any] | None) -> None:
    """Give a file or link its former content, or remove one that did not exist."""
    if former is None:
        path.unlink(missing_ok=True)
        sync(path.parent)
    elif "link" in former:
        put_link(path, former["link"])
    else:
        owner = (former["user"], former["group"])
        write_file(path, base64.b64decode(former["content"]), former["mode"], owner)


def put_link(path: Path, target: str) -> None:
    """Point a link at a folder in one step, and have it on the disk."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    part.symlink_to(target)
    part.rename(path)
    sync(path.parent)


def write_file(path: Path, content: bytes, mode: int, owner: tuple[int, int] | None = None) -> None:
    """Write a file in one step, and have it on the disk."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        if owner is not None:
            os.fchown(descriptor, *owner)
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    part.rename(path)
    sync(path.parent)


def sync(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def ask_health(files: Mapping[str, Mapping[str, Any] | None], service: str) -> Answer:
    """Ask the service at the address that its files have; systemd where they have none."""
    address, token_file = health_address(files)
    if not address:
        return Answer(WELL if active_state(service) == "active" else 0, "")
    token = Path(token_file).read_text().strip() if token_file and Path(token_file).exists() else ""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"http://{address}/health", headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=ASKED_S) as answer:
            return Answer(answer.status, answer.read().decode(errors="replace").strip())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read().decode(errors="replace").strip())
    except (OSError, http.client.HTTPException, ValueError):
        return Answer(0, "")


def health_address(files: Mapping[str, Mapping[str, Any] | None]) -> tuple[str, str]:
    """Return where files have /health served, HOST:PORT, and the file of its token; empty what they do not have."""
    address, token_file = "", ""
    for path, former in files.items():
        text = base64.b64decode(former["content"]).decode() if former and path.endswith((".toml", ".service")) else ""
        if path.endswith(".toml") and text:
            keys = tomllib.loads(text)
            address = str(keys.get("metrics") or address)
            token_file = str(keys.get("metrics_token_file") or keys.get("edge.metrics.token.file") or "")
        elif path.endswith(".service") and (found := METRICS.search(text)):
            address = found[1]
    return address, token_file


def last_errors(service: str) -> list[str]:
    """Return the last lines of the service's log that are no mere information, else systemd's last ones about it."""
    unit = f"{service}.service"
    for match in (f"_SYSTEMD_UNIT={unit}", f"UNIT={unit}"):
        lines = run("journalctl", "--boot", "--quiet", f"--lines={LINES}", "--output=cat", match).splitlines()
        errors = [line for line in lines if line.strip() and not UNREMARKABLE.match(line)]
        if errors:
            return list(dict.fromkeys(reversed(errors)))[:LINES_SHOWN][::-1]
    return []


def active_state(service: str) -> str:
    """Return systemd's word for the state of a service: active, activating, failed ..."""
    return systemctl("show", f"{service}.service", "--property=ActiveState", "--value")


def systemctl(*words: str, limit_s: float | None = None) -> str:
    """Return what systemctl prints."""
    return run("systemctl", *words, limit_s=limit_s)


def run(*words: str, limit_s: float | None = None) -> str:
    """Return what a command prints; one that fails, or takes longer than `limit_s`, is for /health to show."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=limit_s)  # noqa: S603
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
