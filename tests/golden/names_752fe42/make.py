"""Makes `names.json`: the names that users meet at a commit, and the boards' data that are told for pretended boards.

    cd CHECKOUT && .venv/bin/python .../names_752fe42/make.py OUT

| what | where it is from |
|---|---|
| commands, options, arguments | each command's `--help` |
| configuration keys, defaults | `edge-broker keys`, `edge-spark list`, what gateway and mirror say of unknown keys |
| metrics, their types and labels | `/metrics` of a broker and a gateway that run |
| log events | first texts of the calls that write a line, in the sources |
| boards | `edge-board show --json` and `health --json` of each `--mock` board |
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))  # of this checkout, whichever one is in use

from tests.golden.making import rows

BIN = Path(sys.executable).parent
PROGRAMS = ("edge-broker", "edge-gateway", "edge-mirror", "edge-spark", "edge-board")
PARTS = ("drupelet", "edge_broker", "gateway", "hardware", "kafka_wire", "mirror", "spark")
LEVELS = {"debug", "info", "warning", "error"}
EVENT = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
WRITES = re.compile(
    r"(?:^|[._])(?:log|_log|_audit_log)\.(?:info|warning|error|exception|line)$|(?:^|\.)log_line$|_say$"
)
GATEWAY = 'state_dir = "s"\n[kafka]\nbootstrap_servers = "h:1"\n'
TABLES = ("kafka", "mqtt", "files", "journal", "board", "mosquitto")


def run(*words: str) -> str:
    done = subprocess.run([str(BIN / words[0]), *words[1:]], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def help_of(*words: str) -> dict[str, Any]:
    """Options and arguments of a command and all below it, by its words."""
    text = run(*words, "--help")
    _, _, rest = text.partition("\n\n")
    found: dict[str, Any] = {}
    below = re.search(r"^  (?:COMMAND|ACTION)\n((?:    .*\n)+)", rest, re.MULTILINE)
    names = re.findall(r"^    (\S+)", below.group(1), re.MULTILINE) if below else []
    options = sorted({option for line in rest.splitlines() if re.match(r"  -", line) for option in _options(line)})
    arguments = [] if below else re.findall(r"^  ([A-Z\[][^ ]*)", _section(rest, "positional arguments"), re.MULTILINE)
    found[" ".join(words)] = {"options": options, "arguments": arguments}
    for name in names:
        found |= help_of(*words, name)
    return found


def _options(line: str) -> list[str]:
    return re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", re.split(r"\s{2,}", line.strip())[0])


def _section(text: str, title: str) -> str:
    match = re.search(rf"^{title}:\n((?:  .*\n)+)", text + "\n", re.MULTILINE)
    return match.group(1) if match else ""


def known(*words: str) -> list[str]:
    """The keys that a message about an unknown one lists."""
    match = re.search(r"known (?:here: |are )([\w., ]+?)\.?\n", run(*words))
    assert match, words
    return sorted(match.group(1).split(", "))


def keys(scratch: Path) -> dict[str, Any]:
    broker: dict[str, dict[str, str]] = {}
    for line in run("edge-broker", "keys").splitlines():
        if line.endswith(":"):
            table = broker[line] = {}
        else:
            match = re.match(r"(\S+) +(\S*)  ", line)
            assert match, line
            table[match.group(1)] = match.group(2)
    file = scratch / "keys.toml"
    file.write_text("zzqqzz = 1\n")
    mirror, gateway = known("edge-mirror", "check", "--config", str(file)), {}
    gateway[""] = known("edge-gateway", "check", "--config", str(file))
    for table in TABLES:
        opened = f"[[{table}]]" if table == "files" else f"[{table}]"
        file.write_text(
            f'state_dir = "s"\n[kafka]\nbootstrap_servers = "h:1"\n{opened if table != "kafka" else ""}\nzzqqzz = 1\n'
        )
        gateway[table] = known("edge-gateway", "check", "--config", str(file))
    file.write_text(f"{GATEWAY}[mqtt]\n[[mqtt.routes]]\nzzqqzz = 1\n")
    gateway["mqtt.routes"] = known("edge-gateway", "check", "--config", str(file))
    file.write_text('[topic."a"]\nzzqqzz = 1\n')
    topic = known("edge-mirror", "check", "--config", str(file))
    spark = dict(re.findall(r"^  (\w+)=(\S*)", run("edge-spark", "list"), re.MULTILINE))
    return {"broker": broker, "mirror": {"": mirror, "topic": topic}, "gateway": gateway, "spark": spark}


def events(root: Path) -> dict[str, list[str]]:
    """The events of each part: the first text of a call that writes a line, both of a choice between two."""
    found: dict[str, set[str]] = {part: set() for part in PARTS}
    for part in PARTS:
        for path in (root / part).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and WRITES.search(ast.unparse(node.func)):
                    found[part] |= _texts(node.args)
                elif isinstance(node, ast.Call) and node.args and ast.unparse(node.args[0]).endswith("log_line"):
                    found[part] |= _texts(node.args[1:])
    return {part: sorted(names) for part, names in found.items()}


def _texts(arguments: list[ast.expr]) -> set[str]:
    for argument in arguments[:2]:
        choice = [argument.body, argument.orelse] if isinstance(argument, ast.IfExp) else [argument]
        texts = {one.value for one in choice if isinstance(one, ast.Constant) and isinstance(one.value, str)}
        texts = {text for text in texts if EVENT.fullmatch(text)} - LEVELS
        if texts:
            return texts
    return set()


def metrics(scratch: Path) -> dict[str, Any]:
    """Types and labels of what a broker, and a gateway on it, show."""
    broker, gateway = scratch / "data", scratch / "gateway.toml"
    gateway.write_text(
        'state_dir = "state"\nmetrics = "127.0.0.1:19774"\n[kafka]\nbootstrap_servers = "127.0.0.1:19772"\n[board]\n'
    )
    commands = [
        ["edge-broker", "serve", "--data-dir", broker, "--listen", "127.0.0.1:19772", "--metrics", "127.0.0.1:19773"],
        ["edge-gateway", "run", "--config", gateway],
    ]
    processes = [subprocess.Popen([BIN / command[0], *command[1:]], stdout=subprocess.DEVNULL) for command in commands]
    try:
        time.sleep(6)
        return {"broker": shown("127.0.0.1:19773"), "gateway": shown("127.0.0.1:19774")}
    finally:
        for process in processes:
            process.terminate()
            process.wait(20)


def shown(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return series(answer.read().decode())


def series(text: str) -> dict[str, list[Any]]:
    """Type and labels of each metric."""
    found: dict[str, list[Any]] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            _, _, name, kind = line.split()
            found[name] = [kind, []]
        elif not line.startswith("#"):
            match = re.match(r"(\w+)(?:\{(.*)\})? ", line)
            assert match, line
            name = match.group(1)
            for whole in (name, re.sub(r"_(bucket|sum|count|created)$", "", name)):
                if whole in found:
                    found[whole][1] = sorted({*found[whole][1], *re.findall(r'(\w+)="', match.group(2) or "")})
    return found


def boards() -> dict[str, Any]:
    match = re.search(r"--mock \{([^}]*)\}", run("edge-board", "show", "--help").replace("\n", ""))
    assert match
    names = [name.strip() for name in match.group(1).split(",")]
    return {
        f"{what} --mock {name}": json.loads(run("edge-board", what, "--json", "--mock", name))
        for what in ("show", "health")
        for name in names
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        commands = {words: one for program in PROGRAMS for words, one in help_of(program).items()}
        made = {
            "commands": commands,
            "keys": keys(Path(folder)),
            "metrics": metrics(Path(folder)),
            "events": events(Path.cwd()),
            "boards": boards(),
        }
    (Path(sys.argv[1]) / "names.json").write_text(rows(made) + "\n")
