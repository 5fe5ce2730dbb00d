"""cloud-init's own judgement of what is injected; settings for tests, and a card's files laid out for its readers."""

from __future__ import annotations

import functools
import ipaddress
import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from hardware.flash.first_boot.first_boot import FirstBoot
from hardware.flash.first_boot.settings import Settings, Static, Wifi

SCHEMAS = Path(__file__).parents[1] / "golden/cloud_init"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f site engineer #1"
SETTINGS = Settings(
    host="pi-1",
    user="site",
    ssh_keys=(KEY,),
    instance_id="edge-board-00000000-0000-4000-8000-000000000001",
    throwaway_password="0123456789abcdef",
    wifi=Wifi('Werkstatt №1: "Süd" #a', "correct horse, battery", hidden=True),
    country="GB",
    static=Static(
        ipaddress.ip_interface("192.0.2.11/24"),
        ipaddress.ip_address("192.0.2.1"),
        (ipaddress.ip_address("192.0.2.1"), ipaddress.ip_address("2001:db8::53")),
    ),
    timezone="Europe/London",
)


@functools.cache
def validator(name: str) -> jsonschema.Draft4Validator:
    """Return cloud-init's validator; it is made once, as the schema is large."""
    return jsonschema.Draft4Validator(json.loads((SCHEMAS / f"{name}.json").read_text()))


def check_user_data(content: bytes) -> dict[str, Any]:
    """Raise unless cloud-init takes this user-data without a word, deprecations included; returns it read."""
    assert content.startswith(b"#cloud-config\n")
    value: dict[str, Any] = yaml.safe_load(content)
    validator("schema-cloud-config-v1").validate(value)
    return value


def check_network_config(content: bytes) -> dict[str, Any]:
    """Raise unless cloud-init takes this network-config; `wifis`, which netplan alone knows, go by its rules."""
    value: dict[str, Any] = yaml.safe_load(content)
    network = value["network"]
    known = {key: part for key, part in network.items() if key != "wifis"}
    validator("schema-network-config-v2").validate({"network": known})
    for wifi in network.get("wifis", {}).values():
        assert {"regulatory-domain", "access-points", "optional", "dhcp4"} <= wifi.keys()
        for ssid, point in wifi["access-points"].items():
            assert isinstance(ssid, str)
            assert point.keys() <= {"hidden", "password", "auth", "networkmanager"}
            assert isinstance(point.get("password", ""), str)
    return value


def lay_out_card(files: FirstBoot, folder: Path) -> None:
    """Write a card's files below `boot` and `root` with the modes and owners that the flashing gives them; as root."""
    (folder / "boot").mkdir(parents=True)
    (folder / "root").mkdir()
    for name, content in files.boot_files.items():
        (folder / "boot" / name).write_bytes(content)
    for name, file in files.root_files.items():
        place = folder / "root" / name[1:]
        for parent in reversed(place.relative_to(folder / "root").parents[:-1]):
            if not (made := folder / "root" / parent).exists():
                made.mkdir()
                made.chmod(file.folder_mode)
                os.chown(made, file.owner, file.owner)
        place.write_bytes(file.content)
        place.chmod(file.mode)
        os.chown(place, file.owner, file.owner)
