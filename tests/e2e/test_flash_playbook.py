"""playbooks/flash.yml: the cards of an inventory, written into files by the real command.

Invariants: each host's card has that host's name and address; a board that answers is left alone unless it is forced;
the Wi-Fi password is in neither the output, at any verbosity, nor on a card; what comes next is said.
"""

from __future__ import annotations

import os
import socket
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from hardware.flash.image.fat import FatPartition
from tests.support.card_images import BOOT_START, LAYOUTS, debugfs, make_image
from tests.support.first_boot import KEY, check_network_config, check_user_data
from tests.support.runtimes import console_script

ANSIBLE = Path(__file__).parents[2] / "ansible"
SECRET = "a very secret passphrase"


class Greeting(socketserver.BaseRequestHandler):
    """Answers as an ssh server does."""

    def handle(self) -> None:
        self.request.sendall(b"SSH-2.0-board\r\n")


@contextmanager
def answering_board() -> Iterator[dict[str, Any]]:
    """Give the address of a board that is up."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Greeting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {"ansible_host": "127.0.0.1", "ansible_port": server.server_address[1]}
        server.shutdown()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Give a port of every loopback address where something listens that is no ssh server, as some networks make it."""
    with socket.create_server(("0.0.0.0", 0)) as nobody:
        yield nobody.getsockname()[1]


@pytest.fixture
def inventory(tmp_path: Path, silent_port: int) -> dict[str, Any]:
    """Give two boards that do not answer yet."""
    (tmp_path / "keys.pub").write_text(KEY + "\n")
    (tmp_path / "own.conf").write_text("own = 1\n")
    settings = {
        "flash_image": str(make_image(tmp_path / "image", LAYOUTS["trixie"])),
        "flash_as": "trixie",
        "flash_to": f"{tmp_path}/{{{{ inventory_hostname }}}}.img",
        "flash_ssh_keys": [str(tmp_path / "keys.pub")],
        "flash_prefix": 24,
        "flash_gateway": "192.0.2.1",
        "flash_enable": ["i2c", "onewire"],
        "flash_keyboard": "gb",
        "ansible_port": silent_port,
        "flash_timezone": "Europe/London",
        "flash_wifi": "Workshop #1",
        "flash_wifi_country": "GB",
        "flash_wifi_password": "{{ vault_wifi_password }}",
        "flash_files": [f"{tmp_path}/own.conf:/etc/own.conf"],
        "ansible_user": "site",
        "flash_known_hosts": f"{tmp_path}/known/hosts",
    }
    hosts = {
        f"pi-{number}": {"ansible_host": f"127.0.0.1{number}", "flash_address": f"192.0.2.1{number}"}
        for number in (1, 2)
    }
    return {"all": {"vars": settings, "children": {"base": {"hosts": hosts}}}}


def play(folder: Path, inventory: dict[str, Any], *more: str) -> subprocess.CompletedProcess[str]:
    """Run the playbook with the password in a vault."""
    (folder / "hosts.yml").write_text(yaml.safe_dump(inventory))
    (folder / "vault-password").write_text("vault password\n")
    (folder / "vault.yml").write_text(yaml.safe_dump({"vault_wifi_password": SECRET}))
    vault = ["--vault-password-file", str(folder / "vault-password")]
    environment = {**os.environ, "HOME": str(folder), "TMPDIR": str(folder)}
    subprocess.run(
        [console_script("ansible-vault"), "encrypt", *vault, folder / "vault.yml"], capture_output=True, check=True,
        env=environment,
    )  # fmt: skip
    words = ["-i", str(folder / "hosts.yml"), "-e", f"@{folder}/vault.yml", *vault, "playbooks/flash.yml", *more]
    return subprocess.run(
        [console_script("ansible-playbook"), *words], cwd=ANSIBLE, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL, env=environment,
    )  # fmt: skip


def test_every_board_gets_its_own_card(inventory: dict[str, Any], tmp_path: Path) -> None:
    with answering_board() as board:
        inventory["all"]["children"]["base"]["hosts"]["pi-3"] = board
        done = play(tmp_path, inventory, "-vvv")
    assert done.returncode == 0, done.stdout + done.stderr
    for number in (1, 2):
        check_card(tmp_path / f"pi-{number}.img", f"pi-{number}", f"192.0.2.1{number}/24")
        assert f"pi-{number}.img is the card of pi-{number} now" in done.stdout
        assert "customised as trixie: as you say" in done.stdout  # of flash_as
        assert f"no --dns: pi-{number} asks its gateway, 192.0.2.1, for names" in done.stdout
        check_known(tmp_path, number, inventory["all"]["vars"]["ansible_port"])
    assert not (tmp_path / "pi-3.img").exists()
    assert "PRIVATE KEY" not in done.stdout + done.stderr
    assert "pi-3: left alone: 127.0.0.1 answers" in done.stdout
    assert "run playbooks/provision.yml" in done.stdout
    assert SECRET not in done.stdout + done.stderr
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def check_known(folder: Path, number: int, port: int) -> None:
    """Raise unless ssh finds the host key that is on the card, as Ansible will ask for it."""
    public = debugfs(folder / f"pi-{number}.img", "cat /etc/ssh/edge_host_ed25519_key.pub").strip()
    for name in (f"pi-{number}", f"192.0.2.1{number}", f"[127.0.0.1{number}]:{port}"):
        command = ["ssh-keygen", "-F", name, "-f", folder / "known/hosts"]
        assert subprocess.check_output(command, text=True).splitlines()[1].partition(" ")[2] == public


def check_card(card: Path, host: str, address: str) -> None:
    """Raise unless the card is that host's."""
    boot = FatPartition(card, BOOT_START)
    user = check_user_data(boot.read("user-data") or b"")
    assert (user["hostname"], user["user"]["name"], user["timezone"]) == (host, "site", "Europe/London")
    assert user["user"]["ssh_authorized_keys"] == [KEY]
    network = check_network_config(boot.read("network-config") or b"")["network"]
    assert network["ethernets"]["eth0"]["addresses"] == [address]
    assert network["ethernets"]["eth0"]["nameservers"]["addresses"] == ["192.0.2.1"]
    assert user["keyboard"]["layout"] == "gb"
    assert b"dtparam=i2c_arm=on\ndtoverlay=w1-gpio\n" in (boot.read("config.txt") or b"")
    assert list(network["wifis"]["wlan0"]["access-points"]) == ["Workshop #1"]
    assert debugfs(card, "cat /etc/own.conf") == "own = 1\n"


def test_a_board_that_answers_is_written_when_forced_and_devices_are_asked_for(
    inventory: dict[str, Any], tmp_path: Path
) -> None:
    hosts = inventory["all"]["children"]["base"]["hosts"]
    hosts.clear()
    with answering_board() as board:
        hosts["pi-3"] = board
        for name in ("flash_prefix", "flash_gateway"):  # the address of loopback is nobody's own
            del inventory["all"]["vars"][name]
        done = play(tmp_path, inventory, "-e", "flash_again=true")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "pi-3.img").exists()
    assert len((tmp_path / "known/hosts").read_text().splitlines()) == 1
    inventory["all"]["vars"]["flash_to"] = "/dev/does-not-exist"
    done = play(tmp_path, inventory, "-e", "flash_again=true")
    assert done.returncode != 0
    assert "pi-3 was not typed, so its card is not written" in done.stdout


def test_what_is_refused_is_the_message_of_the_play(inventory: dict[str, Any], tmp_path: Path) -> None:
    inventory["all"]["vars"]["flash_timezone"] = "Berlin"
    done = play(tmp_path, inventory)
    assert done.returncode != 0
    assert "edge-board flash: there is no time zone 'Berlin': did you mean Europe/Berlin?" in done.stdout
    assert '"cmd"' not in done.stdout
