"""Collects what tells how a board is doing, and packs it into one archive without secrets.

  python3 - collect             on the board, as root, this file on standard input: prints the report, base64 of a
                                gzipped JSON object name: text
  python3 collect.py pack ARCHIVE ROOT
                                on the control node: report and the inventory's variables that may hold secrets, a JSON
                                object, one line each, on standard input; writes ARCHIVE (tar.gz, mode 0600), all of it
                                below ROOT/

On the board nothing is written, not even a temporary file: it may be full. Nothing is changed there, and no service is
asked for more than its /health and /metrics. What does not answer costs its own entry, which says why.

Secrets are removed twice: on the board by what its own files say (values of keys that mean a secret, whole files of
passwords, environments of processes), at any place, and here by the inventory and its vault, which the board never
sees. Values of fewer than SECRET_MIN characters are removed only after a key that names them.

Run by Python 3.11 or newer; nothing beyond the standard library may be imported.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import io
import json
import os
import re
import selectors
import shlex
import subprocess
import sys
import tarfile
import time
import tomllib
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

UNIT_STATE = (
    "Id,ActiveState,SubState,Result,NRestarts,ExecMainStatus,MemoryCurrent,MemoryPeak,StatusText,ActiveEnterTimestamp,"
    "InactiveEnterTimestamp,UnitFileState"
)
ROOT = Path("/")
PROGRAMS = ROOT / "opt/drupelet/current/bin"
UNITS = ("edge-broker", "kafka", "mosquitto", "edge-gateway", "edge-mirror", "edge-spark-*")
LINKS = ("current", "previous")
PACKAGES = ("mosquitto", "python3", "openssh-server", "chrony", "raspi-firmware")
OTHER_UNITS = ("chrony", "ssh", "nftables", "unattended-upgrades", "systemd-zram-setup@zram0")
REMOVED = "[removed]"
SECRET_MIN = 4
ENTRY_MAX = 1 << 20  # bytes of one entry; the newest are kept
REPORT_MAX = 24 << 20  # of all of them
JOURNAL_LINES = 3000  # of each unit
PATIENCE_S = 20.0  # for a command
LONG_S = 120.0  # for one that reads all that the broker holds

# Files whose whole content is a secret, and files with keys that are one: read for their values, never packed.
SECRET_FILES = (
    "etc/drupelet/*password*", "etc/drupelet/*secret*", "etc/drupelet/*.key", "etc/drupelet/*token*",
    "etc/drupelet/*/*password*", "etc/edge-*/*password*",
)  # fmt: skip
KEYED_FILES = (
    "etc/drupelet/**/*", "etc/mosquitto/**/*", "etc/default/edge-*", "etc/default/mosquitto",
    "etc/systemd/system/edge-*", "etc/systemd/system/edge-*/*", "etc/systemd/system/mosquitto.service.d/*",
    "etc/systemd/system/kafka.service*", "etc/kafka/*", "etc/NetworkManager/system-connections/*",
    "etc/wpa_supplicant/*",
    "etc/netplan/*", "etc/wireguard/*", "root/.config/mosquitto_*", "home/*/.config/mosquitto_*",
    "boot/firmware/user-data", "boot/firmware/network-config", "boot/firmware/custom.toml",
    "boot/firmware/wpa_supplicant.conf",
)  # fmt: skip
CONFIGURATION = (
    "etc/drupelet/*.toml", "etc/kafka/*.properties", "etc/drupelet/*.conf", "etc/drupelet/spark/*.conf",
    "etc/mosquitto/mosquitto.conf", "etc/mosquitto/conf.d/*.conf", "etc/mosquitto/acl",
    "etc/systemd/system/edge-*.service", "etc/systemd/system/edge-*.service.d/*.conf",
    "etc/systemd/system/kafka.service", "etc/systemd/system/mosquitto.service.d/*.conf",
    "etc/systemd/journald.conf.d/*.conf", "etc/chrony/conf.d/*.conf", "etc/chrony/sources.d/*.sources",
    "etc/nftables.conf", "etc/nftables.d/drupelet.nft", "etc/apt/apt.conf.d/90drupelet-upgrades", "etc/fstab",
    "etc/os-release", "etc/default/edge-*", "boot/firmware/cmdline.txt", "boot/firmware/config.txt",
)  # fmt: skip

# A key, an option or a credential of systemd that names a file with a secret: none is packed, and no line of it shows.
NAMED = re.compile(
    r"(?i)(?:pass(?:word|wd|phrase)?|secret|psk|token|credential|key(?:store|tab)?|jaas|login)s?[\w.\-]{0,32}?"
    r"(?:file|location|path|config)[\"']?(?:\s{0,8}[:=]\s{0,8}|[ \t]{1,64})"
    r"(?:\"([^\"\n]{1,4096})\"|'([^'\n]{1,4096})'|([^\s\"',;]{1,4096}))"
)
CREDENTIAL = re.compile(r"(?im)^LoadCredential(?:Encrypted)?=[^:\n]{1,256}:()()([^\n]{1,4096})$")
SET_CREDENTIAL = re.compile(r"(?im)^(?P<key>SetCredential(?:Encrypted)?=[^:\n]{1,256}:)(?P<value>[^\n]{1,4096})$")
NAMED_LINES_MAX = 500  # of such a file; a key has some 50

# A key that means a secret, as TOML, JSON, YAML, properties, environments and log lines write it; one that names a file
# is none. What repeats is bounded: a line may be a megabyte of anything.
WORD = (
    r"(?:pass(?:word|wd|phrase)?|secret|psk|token|(?<!load)credentials?|jaas[.]config"
    r"|(?:api|private|preshared|access|ssh|shared)[-_.]?key)"
)
REST = r"(?![\w.\-]{0,64}(?:file|path|location|dir|type|algorithm)\b)[\w.\-]{0,64}"
ASSIGNED = re.compile(
    rf"(?i)(?P<key>{WORD}{REST}[\"']?\s{{0,8}}[:=]\s{{0,8}})"
    r"(?P<value>\"\"\"[\s\S]{0,4096}?\"\"\"|'{3}[\s\S]{0,4096}?'{3}|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|[^\n]+)"
)
# spark-defaults.conf and mosquitto.conf put a blank between key and value, command lines too.
BLANK = re.compile(rf"(?im)^(?P<key>[ \t]{{0,64}}[\w.\-]{{0,64}}?{WORD}{REST}[ \t]{{1,64}})(?P<value>[^\s=:][^\n]*)$")
OPTION = re.compile(
    rf"(?i)(?P<key>(?:--[\w\-]{{0,64}}?{WORD}{REST}[ =]|(?<!\S)-P ))(?P<value>\"[^\"\n]*\"|'[^'\n]*'|\S+)"
)
IN_URL = re.compile(r"(?i)(?P<key>://[^\s/:@]{0,256}:)(?P<value>[^\s/@]{1,256})(?=@)")
BEARER = re.compile(r"(?i)(?P<key>\b(?:bearer|basic) {1,8})(?P<value>[A-Za-z0-9+/_.~\-]{8,}=*)")
HASHED = re.compile(r"(?P<key>\$(?:[1-9]\w?|y|2[aby])\$)(?P<value>[^\s:\"']{12,})")
PEM = re.compile(
    r"(?P<key>-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----)(?P<value>.*?)(?=-----END [A-Z ]{0,32}PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
EVERYWHERE = "0.0.0.0"  # noqa: S104 - what a service may listen on
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
PATTERNS = (PEM, SET_CREDENTIAL, ASSIGNED, BLANK, OPTION, IN_URL, BEARER, HASHED)


# --- secrets ---------------------------------------------------------------------------------------------------------


def values_in(text: str, *, nested: bool = True) -> Iterator[str]:
    """The secrets that a text names by a key, or by their form, and those within them, as of a log-in."""
    for pattern in PATTERNS:
        for found in pattern.finditer(text):
            value = found["value"].strip().strip("\"',;")
            yield value
            yield from value.split(maxsplit=1)[:1]  # what comes after it may be a comment
            if nested:
                yield from values_in(value, nested=False)


def forms(secret: str) -> set[str]:
    """How a secret may stand in a text: as it is, as JSON, TOML and URLs write it, in base64."""
    encoded = base64.b64encode(secret.encode()).decode().rstrip("=")
    return {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        urllib.parse.quote(secret, safe=""),
        urllib.parse.quote_plus(secret),
        shlex.quote(secret),
        encoded,
    }


def scrub(text: str, secrets: Iterable[str]) -> str:
    """Return the text without values of keys that mean a secret, and without these secrets at any place."""
    known = {
        form for secret in secrets if len(secret) >= SECRET_MIN for form in forms(secret) if len(form) >= SECRET_MIN
    }
    for form in sorted(known, key=len, reverse=True):
        text = text.replace(form, REMOVED)
    for pattern in PATTERNS:
        text = pattern.sub(lambda found: found["key"] + REMOVED, text)
    return text


def leaves(key: str, value: object) -> Iterator[str]:
    """The secrets in a variable of the inventory: itself where its name says so, else what keys in it say."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(f"{key} {name}" if key.startswith("vault_") else str(name), inner)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(key, inner)
    elif (
        isinstance(value, str | int | float) and not isinstance(value, bool) and re.search(rf"(?i)^vault_|{WORD}", key)
    ):
        yield from (line for line in (str(value), *str(value).splitlines()) if line)


def secrets_here() -> set[str]:
    """Return the secrets in this board's own files and services."""
    found: set[str] = set()
    for path in named_files():
        lines = (line.strip() for line in read(path).splitlines()[:NAMED_LINES_MAX])
        found.update(line for line in lines if "-----" not in line and line.isprintable())
    for path in files(SECRET_FILES):
        found.update(line.strip() for line in read(path).splitlines() if line.strip())
    for path in files(KEYED_FILES):
        found.update(values_in(read(path)))
        found.update(
            value
            for name in re.findall(r"(?m)^EnvironmentFile=-?(\S+)", read(path))
            for value in values_in(read(Path(name)))
        )
    for environment in (ROOT / "proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended
            found.update(values_in(environment.read_bytes().decode(errors="replace").replace("\0", "\n")))
    return {
        value
        for value in found
        if value and value != REMOVED and value.lower() not in ("true", "false", "none", "null")
    }


def named_files() -> set[Path]:
    """Return the files with a secret that the board's configuration names, in any folder."""
    found = set[Path]()
    for path in files(KEYED_FILES):
        text = read(path)
        for groups in (*NAMED.findall(text), *CREDENTIAL.findall(text)):
            named = "".join(groups).strip()
            found.add((ROOT / named[1:] if named.startswith("/") else path.parent / named).resolve())
    return {path for path in found if path.is_file()}


# --- what there is ---------------------------------------------------------------------------------------------------


def files(patterns: Sequence[str]) -> Iterator[Path]:
    """Ordinary files below ROOT that match, each once."""
    seen = set()
    for pattern in patterns:
        with contextlib.suppress(OSError):
            for path in sorted(ROOT.glob(pattern)):
                if path.is_file() and path not in seen:
                    seen.add(path)
                    yield path


def read(path: Path) -> str:
    """The end of a file, ENTRY_MAX of it; in brackets why there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END) if path.is_file() and not str(path).startswith("/proc") else 0
            file.seek(max(0, size - ENTRY_MAX))
            return file.read(ENTRY_MAX).decode(errors="replace")
    except OSError as error:
        return f"[{path}: {error.strerror}]\n"


def run(*command: str, patience_s: float = PATIENCE_S) -> str:
    """Return a command's output, the newest ENTRY_MAX bytes, then in brackets how it failed if it did."""
    environment = {"PATH": os.environ.get("PATH", "") + ":/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8",
                   "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent", "SYSTEMD_PAGER": "cat"}  # fmt: skip
    try:
        process = subprocess.Popen(  # noqa: S603 - fixed commands, and the board's own programs
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd="/",
        )
    except OSError as error:
        return f"[{command[0]}: {error.strerror}]\n"
    kept, ended = tail_of(process, time.monotonic() + patience_s)
    try:
        process.wait(5 if ended else 0)
    except subprocess.TimeoutExpired:
        process.kill()  # and not waited for: one that a dying card holds does not end
    how = "" if process.returncode == 0 else f"[{command[0]} ended with {process.returncode}]\n"
    return kept.decode(errors="replace") + (how if ended else f"[{command[0]} did not end within {patience_s:.0f} s]\n")


def tail_of(process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bool]:
    """The last ENTRY_MAX bytes that a process prints until it ends, and whether it did before the deadline."""
    assert process.stdout is not None
    kept = b""
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if not ready.select(left):
                continue
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                return kept, True
            kept = (kept + chunk)[-ENTRY_MAX:]
    return kept, False


def ask(unit: str, address: str, path: str) -> str:
    """Return a service's response at this path after its status; in brackets why there is none."""
    url = f"http://{address.replace(EVERYWHERE, '127.0.0.1')}{path}"
    part = unit.removeprefix("edge-")
    told = "metrics-token" if part == "broker" else setting(part, "metrics_token_file", "")
    token = ROOT / "etc/drupelet" / told.removeprefix("/etc/drupelet/")
    headers = {"Authorization": f"Bearer {read(token).strip()}"} if token.is_file() else {}
    asked = urllib.request.Request(url, headers=headers)
    try:
        with DIRECT.open(asked, timeout=5) as answer:
            return f"{answer.status}\n{answer.read(ENTRY_MAX).decode(errors='replace')}"
    except urllib.error.HTTPError as error:
        return f"{error.code}\n{error.read(ENTRY_MAX).decode(errors='replace')}"
    except (OSError, ValueError) as error:
        return f"[{url}: {error}]\n"


def option(unit: str, name: str) -> str:
    """Return an option's value in a unit's command line; empty if it has none."""
    words = read(ROOT / f"etc/systemd/system/{unit}.service").replace("\\\n", " ").split()
    return words[words.index(name) + 1] if name in words[:-1] else ""


def setting(part: str, key: str, default: str) -> str:
    """A top-level key of /etc/drupelet/PART.toml."""
    try:
        return str(tomllib.loads(read(ROOT / f"etc/drupelet/{part}.toml")).get(key, default))
    except tomllib.TOMLDecodeError:
        return default


def addresses() -> dict[str, str]:
    """Where the parts that this board has answer /health."""
    found = {"edge-broker": option("edge-broker", "--metrics")}
    for part, default in (("gateway", "127.0.0.1:9404"), ("mirror", "127.0.0.1:9405")):
        if (ROOT / f"etc/drupelet/{part}.toml").exists():
            found[f"edge-{part}"] = setting(part, "metrics", default)
    return {unit: address for unit, address in found.items() if address}


# --- the report ------------------------------------------------------------------------------------------------------


def entries() -> Iterator[tuple[str, str]]:
    """Names and texts, what is needed most first."""
    yield from parts()
    yield from system()
    secret = named_files()
    for path in files(CONFIGURATION):
        content = "[left out: a key names it as a file with a secret]\n" if path.resolve() in secret else read(path)
        yield f"configuration/{path.relative_to(ROOT)}", content
    units = run("systemctl", "list-units", "--all", "--plain", "--no-legend", "--type=service", *UNITS)
    for unit in [line.split()[0] for line in units.splitlines() if ".service" in line] or [
        f"{unit}.service" for unit in UNITS[:-1]
    ]:
        yield f"journal/{unit}.txt", journal(f"--unit={unit}")
    yield "journal/kernel.txt", journal("--dmesg")
    yield "journal/warnings.txt", journal("--priority=warning")
    yield "journal/boots.txt", run("journalctl", "--list-boots", "--no-pager")


def journal(*what: str) -> str:
    """The newest lines of it, of any boot."""
    return run("journalctl", *what, "--no-pager", "--quiet", "--output=short-iso-precise", f"--lines={JOURNAL_LINES}")


def parts() -> Iterator[tuple[str, str]]:
    """Yield the reports of Drupelet's own programs."""
    links = [PROGRAMS.parents[1] / name for name in LINKS]
    programs = sorted(PROGRAMS.glob("edge-*"))
    yield "versions.txt", "".join(
        [f"{path.name}: {run(str(path), '--version')}" for path in programs]
        + [f"{link.name}: {os.readlink(link)}\n" for link in links if link.is_symlink()]
        + [run("uname", "-a"), run("dpkg-query", "--show", *PACKAGES)]
    )  # fmt: skip
    for unit, address in addresses().items():
        yield f"health/{unit}.txt", ask(unit, address, "/health")
        yield f"health/{unit}.metrics.txt", ask(unit, address, "/metrics")
    for command in ("show", "health"):
        yield f"board/{command}.json", run(str(PROGRAMS / "edge-board"), command, "--json")
    if data := option("edge-broker", "--data-dir"):
        broker = str(PROGRAMS / "edge-broker")
        yield "broker/ledger.json", run(broker, "ledger", "--json", "--data-dir", data, patience_s=LONG_S)
        yield "broker/partitions.txt", run(broker, "log", "ls", "--data-dir", data)
        yield (
            "broker/check.json",
            run("nice", "-n19", broker, "log", "check", "--json", "--data-dir", data, patience_s=LONG_S),
        )


def system() -> Iterator[tuple[str, str]]:
    """Units, disks, mounts, clock, memory, network."""
    commands = {
        "units/failed.txt": ("systemctl", "--failed", "--no-pager"),
        "units/ours.txt": ("systemctl", "show", "--no-pager", f"--property={UNIT_STATE}", *UNITS, *OTHER_UNITS),
        "units/timers.txt": ("systemctl", "list-timers", "--all", "--no-pager"),
        "disk/space.txt": ("df", "--human-readable", "--print-type"),
        "disk/inodes.txt": ("df", "--inodes"),
        "disk/mounts.txt": ("findmnt", "--list"),
        "disk/devices.txt": ("lsblk", "--output=NAME,SIZE,TYPE,RO,FSTYPE,MOUNTPOINT,MODEL"),
        "disk/drupelet.txt": ("du", "-s", "-h", "--one-file-system", "/opt/drupelet", "/var/lib", "/var/log"),
        "clock/timedatectl.txt": ("timedatectl", "show"),
        "clock/tracking.txt": ("chronyc", "-n", "tracking"),
        "clock/sources.txt": ("chronyc", "-n", "sources"),
        "memory.txt": ("free", "--mebi"),
        "uptime.txt": ("uptime",),
        "processes.txt": ("ps", "-eo", "pid,user,rss,pcpu,etime,comm", "--sort=-rss"),
        "network/addresses.txt": ("ip", "-brief", "address"),
        "network/routes.txt": ("ip", "route"),
        "network/listening.txt": ("ss", "-tlnp"),
        "network/rules.txt": ("nft", "list", "table", "inet", "drupelet"),
    }  # fmt: skip
    for name, command in commands.items():
        yield name, run(*command)


def collect() -> dict[str, str]:
    """The whole report, bounded; what found no room says so in `left-out.txt`."""
    secrets = secrets_here()
    report: dict[str, str] = {}
    left, out = REPORT_MAX, []
    for name, text in entries():
        if (text := scrub(text, secrets)) and len(text) > left:
            out.append(name)
            continue
        report[name] = text
        left -= len(text)
    if out:
        report["left-out.txt"] = "".join(f"{name}: no room within {REPORT_MAX >> 20} MiB\n" for name in out)
    return report


def pack(archive: Path, folder: str, report: dict[str, str], variables: dict[str, object]) -> None:
    """Write the report as an archive that only its owner may read; it has its name once it is whole."""
    secrets = {secret for name, value in variables.items() for secret in leaves(name, value)}
    archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = archive.with_name(archive.name + ".part")
    with contextlib.suppress(FileNotFoundError):
        part.unlink()
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    now = int(time.time())
    with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, text in sorted(report.items()):
            content = scrub(text, secrets).encode(errors="replace")
            entry = tarfile.TarInfo(f"{folder}/{inside(name)}")
            entry.size, entry.mode, entry.mtime = len(content), 0o600, now
            tar.addfile(entry, io.BytesIO(content))
    part.rename(archive)


def inside(name: str) -> str:
    """A board's name for an entry, which may not leave the archive's folder."""
    return "/".join(re.sub(r"[^\w.@+\-]", "_", step) for step in name.split("/") if step not in ("", ".", ".."))


def main(arguments: Sequence[str]) -> int:
    """Run a command; the exit status: 0 done, 1 failed, with one sentence on standard error, 2 bad usage."""
    if list(arguments) == ["collect"]:
        print(base64.b64encode(gzip.compress(json.dumps(collect()).encode())).decode())
        return 0
    if len(arguments) == 3 and arguments[0] == "pack":
        try:
            encoded, variables = sys.stdin.read().splitlines()
            report = json.loads(unpack(base64.b64decode(encoded, validate=True)))
            pack(
                Path(arguments[1]),
                arguments[2],
                {str(name): str(text) for name, text in report.items()},
                json.loads(variables),
            )
        except (OSError, ValueError, EOFError, AttributeError) as error:
            print(f"{arguments[1]} was not written: {error}", file=sys.stderr)
            return 1
        return 0
    print("usage: collect.py collect | pack ARCHIVE ROOT", file=sys.stderr)
    return 2


def unpack(packed: bytes) -> bytes:
    """Decompress a board's report; raises ValueError if it is larger than a report may be."""
    with gzip.open(io.BytesIO(packed)) as file:
        content = file.read(8 * REPORT_MAX + 1)
    if len(content) > 8 * REPORT_MAX:
        raise ValueError("the board's report is larger than one can be")
    return content


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
