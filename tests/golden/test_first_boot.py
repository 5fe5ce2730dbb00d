"""What each kind of image is given, as it is written down; and that the readers of those files take it.

The files below `first_boot/KIND/` were read against cloud-init's schema and the key tables of custom.toml and
sysconf.txt. After a change that is meant: `python -m tests.golden.test_first_boot`, and read the difference.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import yaml

from hardware.flash.first_boot.first_boot import Kind
from tests.support.first_boot import SETTINGS, check_network_config, check_user_data
from tests.support.first_boot_made import made

GOLDEN = Path(__file__).with_name("first_boot")


def files(kind: Kind) -> dict[str, bytes]:
    """Name -> content, those of the root file system below `root/`."""
    found = made(kind)
    return {**found.boot_files, **{f"root{name}": file.content for name, file in found.root_files.items()}}


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_is_given_what_is_written_down(kind: Kind) -> None:
    folder = GOLDEN / kind
    written = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert files(kind) == written


@pytest.mark.parametrize("kind", [Kind.TRIXIE, Kind.UBUNTU])
def test_cloud_init_takes_its_files(kind: Kind) -> None:
    found = made(kind).boot_files
    check_user_data(found["user-data"])
    check_network_config(found["network-config"])
    assert yaml.safe_load(found["meta-data"])["instance-id"] == SETTINGS.instance_id


TOML_KEYS = {  # type -> what its reader knows: init_config of raspberrypi-sys-mods, the schema of rpi-preseed
    "system": {"hostname": str},
    "user": {"name": str, "password": str, "password_encrypted": bool},
    "ssh": {"enabled": bool, "password_authentication": bool, "authorized_keys": list, "ssh_import_id": list},
    "wlan": {"ssid": str, "password": str, "password_encrypted": bool, "hidden": bool, "country": str},
    "locale": {"keymap": str, "timezone": str},
}
PRESEED_KEYS = {
    **TOML_KEYS,
    "user": {**TOML_KEYS["user"], "passwordless_sudo": bool, "groups": list},
    "wlan": {**TOML_KEYS["wlan"], "ssid_hex": str, "key_mgmt": str},
}


@pytest.mark.parametrize(
    ("kind", "name", "version", "known"),
    [
        (Kind.BOOKWORM, "custom.toml", 1, TOML_KEYS),
        (Kind.BULLSEYE, "custom.toml", 1, TOML_KEYS),
        (Kind.PRESEED, "rpi-preseed.toml", "1.0", PRESEED_KEYS),
    ],
)
def test_a_toml_file_has_only_keys_and_types_that_its_reader_knows(
    kind: Kind, name: str, version: object, known: dict[str, dict[str, type]]
) -> None:
    value = tomllib.loads(made(kind).boot_files[name].decode())
    assert value.pop("config_version") == version
    for section, keys in value.items():
        for key, found in keys.items():
            assert type(found) is known[section][key], f"{section}.{key}"


def test_only_debian_leaves_something_out_and_says_so() -> None:
    assert {kind: made(kind).left_out for kind in Kind} == {
        Kind.TRIXIE: (),
        Kind.BOOKWORM: (),
        Kind.BULLSEYE: (),
        Kind.PRESEED: (),
        Kind.UBUNTU: (),
        Kind.DEBIAN: ("the user site: log in as root", "Wi-Fi", "the static address", "the time zone"),
    }


def write_golden() -> None:
    """Write the golden files anew."""
    for kind in Kind:
        for name, content in files(kind).items():
            place = GOLDEN / kind / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)


if __name__ == "__main__":
    write_golden()
