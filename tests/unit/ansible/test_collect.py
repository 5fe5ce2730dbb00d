"""The support bundle: whatever a secret lies in, it is not in the archive; a sick board costs its own entries alone.

The board is a folder with what the roles write, programs that answer as systemd's and ours do, and a secret planted in
every place where one may lie. Each has a value of its own, so that the one that got through is named.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import stat
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.support.ansible_files import ANSIBLE, load
from tests.support.runtimes import console_script

SCRIPT = ANSIBLE / "playbooks/files/collect.py"
FILES = {
    "etc/drupelet/gateway-mqtt-password": "planted-file\n",
    "etc/drupelet/mirror-sasl-secret": "planted-sasl\n",
    "etc/drupelet/gateway.toml": 'state_dir = "/var/lib/g"\nmetrics = "127.0.0.1:1"\n[mqtt]\nusername = "kept-user"\n'
    'password_file = "/etc/drupelet/gateway-mqtt-password"\npassword = "planted-toml"  # why\n'
    "passphrase = '''\nplanted-lines'''\nbroker = \"mqtt://kept-user:planted-url@kept-host/x\"\n",
    "etc/drupelet/mirror.toml": 'metrics = "127.0.0.1:1"\n"sasl.password" = "quoteplanted \\"quoted\\" \\u00fc"\n',
    "etc/drupelet/spark/spark-defaults.conf": "spark.authenticate.secret   planted-spark\nspark.kept 4\n",
    "etc/kafka/server.properties": "sasl.jaas.config=org.x required username=u password=planted-jaas;\nkept.key=1\n",
    "etc/mosquitto/passwd": "gateway:$7$101$plantedsalt123$plantedhash==\n",
    "etc/mosquitto/conf.d/drupelet.conf": "listener 1883\npassword_file /etc/mosquitto/passwd\n"
    "remote_password planted-bridge\n",
    "etc/systemd/system/edge-broker.service": "[Service]\n"
    "ExecStart=/opt/x/edge-broker serve --data-dir /data --metrics 127.0.0.1:1\n",
    "etc/systemd/system/edge-broker.service.d/own.conf": "[Service]\n"
    'Environment="MQTT_PASSWORD=envplanted environment"\n'
    "EnvironmentFile=-{root}/etc/own.env\nExecStart=x --sasl-password planted-option -P planted-short\n",
    "etc/own.env": "API_TOKEN=planted-envfile\n",
    "etc/default/edge-gateway": "export GATEWAY_PASSWORD='planted-default'\n",
    "etc/NetworkManager/system-connections/site.nmconnection": "[wifi-security]\npsk=planted-nm\n",
    "etc/wpa_supplicant/wpa_supplicant.conf": 'network={\n  psk="planted-wpa"\n}\n',
    "etc/netplan/50.yaml": 'wifis: {wlan0: {access-points: {"a": {password: "planted-netplan"}}}}\n',
    "etc/wireguard/wg0.conf": "[Interface]\nPrivateKey = plantedWireguardKey0123=\n",
    "root/.config/mosquitto_pub": "-u thermometer-1\n-P planted-device\n",
    "boot/firmware/custom.toml": '[wlan]\npassword = "planted-card"\n',
    "proc/77/environ": "PATH=/bin\0SITE_SECRET=planted-process\0",
    # Files that a key or a credential names as secret, some of them where configuration is collected.
    "etc/drupelet/login.conf": "planted-named\n",
    "etc/drupelet/kafka.toml": 'sasl_password_file = "login.conf"\nssl_ca_file = "/etc/drupelet/ca.conf"\n',
    "etc/drupelet/ca.conf": "kept-authority\n",
    "etc/kafka/client.properties": "ssl.keystore.location=/etc/kafka/keystore.properties\n"
    "ssl.truststore.location=/etc/kafka/kept-trust.pem\n",
    "etc/kafka/keystore.properties": "-----BEGIN RSA PRIVATE KEY-----\nplantedKeystoreLine\n",
    "etc/mosquitto/conf.d/bridge.conf": "keyfile /srv/keys/bridge\n",
    "srv/keys/bridge": "plantedBridgeKeyLine\nnext\n",
    "etc/systemd/system/edge-mirror.service": "[Service]\nLoadCredential=central:/srv/kept-central\n"
    "SetCredential=mqtt:planted-set\nExecStart=x --target-sasl-password-file /srv/option\n",
    "srv/kept-central": "planted-credential\n",
    "srv/option": "planted-by-option\n",
    "boot/firmware/cmdline.txt": "console=tty1 kept-word\n",
}
# What the board's files do not hold: the inventory alone knows it.
VARIABLES: dict[str, Any] = {
    "vault_thermometer_1_password": "planted-vault",
    "vault_nested": {"one": ["planted-nested"]},
    "mosquitto_users": [{"name": "kept-user", "password": "planted-inventory", "acl": ["kept-acl"]}],
    "ansible_become_password": "planted-become",
    "site_pin_password": 4711471147,
}
JOURNAL = """
kept-line one
mosquitto: bad login kept-user planted-file
gateway: tried password=planted-key-in-line
gateway: {"user": "kept-user", "password": "planted-json", "n": 1}
curl http://kept-user:planted-journal-url@kept-host/
Authorization: Bearer plantedbearer123456
someone typed planted-vault and planted-nested and planted-inventory and planted-become and 4711471147
url %70lanted envplanted%20environment envplanted+environment quoteplanted \\"quoted\\" \\u00fc quoteplanted "quoted" ü
b64 cGxhbnRlZC1maWxl
all of planted-sasl planted-toml planted-lines planted-url planted-spark planted-jaas planted-bridge planted-option
and of planted-short planted-envfile planted-default planted-nm planted-wpa planted-netplan plantedWireguardKey0123=
and of planted-device planted-card planted-process envplanted environment
-----BEGIN OPENSSH PRIVATE KEY-----
plantedpem
-----END OPENSSH PRIVATE KEY-----
and of planted-named plantedKeystoreLine plantedBridgeKeyLine planted-credential planted-set planted-by-option
kept-line two
"""
KEPT = (
    "kept-line one", "kept-line two", "kept-user", "kept-host", "spark.kept 4", "kept.key=1", "kept-word",
    "listener 1883", "kept-authority", "kept-trust.pem",
    "LoadCredential=central:/srv/kept-central", "ssl.keystore.location=/etc/kafka/keystore.properties",
    "password_file /etc/mosquitto/passwd", 'password_file = "/etc/drupelet/gateway-mqtt-password"',
)  # fmt: skip
PROGRAMS = {
    "systemctl": "case $1 in list-units) echo edge-broker.service loaded;; *) echo Id=edge-broker.service;; esac",
    "journalctl": f"cat <<'END'\n{JOURNAL}END",
    "edge-broker": """case $1 in
        --version) echo "edge-broker 1.2.3";;
        ledger) echo '{"cause": "evicted"}';;
        *) echo "kept-finding: $*"; exit 1;;
    esac""",
    "edge-board": 'echo \'{"model": "kept-model"}\'',
    "df": "sleep 60",
    "free": "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo kept-end",
}


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = load("playbooks/files/collect.py")
    root = tmp_path / "board"
    for name, content in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content.replace("{root}", str(root)))
    programs = root / "opt/drupelet/current/bin"
    programs.mkdir(parents=True)
    for name, script in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setattr(module, "ROOT", root)
    monkeypatch.setattr(module, "PROGRAMS", programs)
    monkeypatch.setattr(module, "PATIENCE_S", 1.0)
    monkeypatch.setattr(module.run, "__kwdefaults__", {"patience_s": 1.0})
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return module


def packed(board: ModuleType, tmp_path: Path) -> dict[str, str]:
    """The files of the archive that a collection makes."""
    report = base64.b64encode(gzip.compress(json.dumps(board.collect()).encode())).decode()
    archive = tmp_path / "support/pi-1-then.tar.gz"
    done = subprocess.run(
        [sys.executable, "-I", SCRIPT, "pack", archive, "pi-1-then"],
        input=f"{report}\n{json.dumps(VARIABLES)}", text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    assert stat.S_IMODE(archive.parent.stat().st_mode) == 0o700
    assert [path.name for path in archive.parent.iterdir()] == [archive.name]
    with tarfile.open(archive) as tar:
        return {entry.name: tar.extractfile(entry).read().decode() for entry in tar}  # type: ignore[union-attr]


def test_no_secret_is_in_the_archive_and_the_rest_is(board, tmp_path):
    files = packed(board, tmp_path)
    found = {
        (name, line)
        for name, text in files.items()
        for line in text.splitlines()
        if any(planted in line for planted in ("planted", "4711471147", "cGxhbnRlZC1maWxl"))
    }
    assert not found
    whole = "\n".join(files.values())
    for kept in KEPT:
        assert kept in whole, kept
    assert files["pi-1-then/versions.txt"].startswith("edge-board: ")
    for named in ("drupelet/login.conf", "kafka/keystore.properties"):
        assert files[f"pi-1-then/configuration/etc/{named}"].startswith("[left out: ")
    assert "edge-broker 1.2.3" in files["pi-1-then/versions.txt"]
    assert json.loads(files["pi-1-then/broker/ledger.json"]) == {"cause": "evicted"}
    assert json.loads(files["pi-1-then/board/health.json"]) == {"model": "kept-model"}


def test_each_place_would_show_without_its_rule(board):
    """The test above could not fail otherwise: all that is planted reaches the report as it was."""
    board.scrub = lambda text, secrets: text
    whole = "\n".join(board.collect().values())
    for planted in (
        "planted-toml",
        "planted-spark",
        "envplanted environment",
        "planted-vault",
        "plantedpem",
        "plantedbearer",
    ):
        assert planted in whole


def test_what_does_not_answer_costs_its_own_entry(board, tmp_path):
    started = time.monotonic()
    files = packed(board, tmp_path)
    assert time.monotonic() - started < 45
    assert files["pi-1-then/disk/space.txt"] == "[df did not end within 1 s]\n"
    assert "[http://127.0.0.1:1/health: " in files["pi-1-then/health/edge-broker.txt"]
    assert files["pi-1-then/broker/check.json"].endswith("[nice ended with 1]\n")
    assert "kept-finding: log check --json --data-dir /data" in files["pi-1-then/broker/check.json"]
    assert files["pi-1-then/memory.txt"].endswith("x\nkept-end\n"), "the newest is kept"
    assert len(files["pi-1-then/memory.txt"]) <= board.ENTRY_MAX


def test_a_board_with_nothing_of_ours_still_gives_a_report(board, tmp_path, monkeypatch):
    monkeypatch.setattr(board, "ROOT", tmp_path / "nowhere")
    monkeypatch.setattr(board, "PROGRAMS", tmp_path / "nowhere")
    report = board.collect()
    assert "journal/warnings.txt" in report
    assert not any(name.startswith("configuration/") for name in report)


def test_the_whole_is_bounded_and_says_what_it_leaves_out(board, monkeypatch):
    monkeypatch.setattr(board, "REPORT_MAX", 200_000)
    report = board.collect()
    assert "memory.txt: no room" in report["left-out.txt"]
    assert sum(map(len, report.values())) < 210_000


def test_nothing_is_written_on_the_board(board, tmp_path):
    root = tmp_path / "board"
    before = {path: path.lstat().st_mtime_ns for path in root.rglob("*")}
    board.collect()
    assert {path: path.lstat().st_mtime_ns for path in root.rglob("*")} == before


@pytest.mark.parametrize(
    "text",
    [
        "x" * 1_000_000,
        "pass" * 250_000,
        "a-" * 500_000,
        "://" * 300_000,
        "secret=" * 140_000,
        "keyfile" * 140_000,
        "\n" * 1_000_000,
    ],
)
def test_a_megabyte_of_anything_is_scrubbed_in_seconds(board, text):
    started = time.process_time()
    board.scrub(text, {"planted-file"})
    list(board.values_in(text))
    board.NAMED.findall(text)
    assert time.process_time() - started < 10


@pytest.mark.parametrize(
    "given",
    [
        "",
        "{}",
        "not base64\n{}",
        base64.b64encode(gzip.compress(b"[1]")).decode() + "\n{}",
        base64.b64encode(b"x").decode() + "\n{}",
    ],
)
def test_a_report_that_is_none_writes_nothing(tmp_path, given):
    archive = tmp_path / "a.tar.gz"
    done = subprocess.run(
        [sys.executable, SCRIPT, "pack", archive, "a"], input=given, text=True, capture_output=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"{archive} was not written: ")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_board_cannot_leave_the_archives_folder(board, tmp_path):
    board.pack(tmp_path / "a.tar.gz", "a", {"../../etc/x": "1", "/abs": "2"}, {})
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        assert sorted(tar.getnames()) == ["a/abs", "a/etc/x"]


def test_a_report_of_too_many_bytes_is_refused(board, monkeypatch):
    monkeypatch.setattr(board, "REPORT_MAX", 1000)
    with pytest.raises(ValueError, match="larger than one can be"):
        board.unpack(gzip.compress(io.BytesIO(b"0" * 9000).read()))


def test_a_secret_of_the_inventory_that_is_in_no_file_is_said_and_nothing_looks_like_a_failure(tmp_path):
    variables = {
        "spark_secret": "{{ vault_spark_secret }}",
        "own_users": [{"password": "{{ vault_x }}"}],
        "a_pass": "b",
    }
    included = {"ansible.builtin.include_tasks": str(ANSIBLE / "playbooks/tasks/collect_secret.yml")}
    loop = {"loop": list(variables), "loop_control": {"loop_var": "collect_variable"}}
    kept = {"ansible.builtin.debug": {"msg": "kept: {{ collect_secrets }}"}}
    play = {"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": [included | loop, kept]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    command = [console_script("ansible-playbook"), "-i", "localhost,", tmp_path / "play.yml"]
    done = subprocess.run(command, cwd=ANSIBLE, capture_output=True, text=True, check=False, timeout=120)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "kept: {'a_pass': 'b'}" in said
    for name in ("spark_secret", "own_users"):
        assert f"{name} cannot be resolved" in said
    for mark in ("fatal: ", "[ERROR]", "rescued=1"):
        assert mark not in said, said
