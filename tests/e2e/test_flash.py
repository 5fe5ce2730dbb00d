"""`edge-board flash` as a whole, into image files, as any user: from a packed image to what its first boot will read.

Invariants:
- for each kind of image the card holds what the golden rules say, and is the image byte by byte everywhere else;
- the kind is told from contents alone; what is not known is written, not customised, said, and not called done;
- a wrong hash, a damaged image, a stop: the card does not boot, the command says so;
- no secret is in the arguments, and less than 150 MB of memory are used.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
import zstandard

from hardware.cli import main
from hardware.flash.image.fat import FatPartition
from hardware.flash.image.images import Disk, identify
from hardware.flash.image.sources import file_sha256
from tests.support import card_images
from tests.support.card_images import (
    BOOT_BYTES,
    BOOT_START,
    LAYOUTS,
    MIB,
    ROOT_START,
    Layout,
    boot_sector,
    debugfs,
    make_image,
)
from tests.support.first_boot import KEY, check_network_config, check_user_data
from tests.support.processes import wait_until
from tests.support.root import as_ordinary_user
from tests.support.runtimes import console_script
from tests.support.waiting import CALL_S

MEMORY_BYTES_MAX = 150_000_000


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Give one image of each kind, named so that the name tells nothing."""
    folder = tmp_path_factory.mktemp("images")
    return {
        kind: make_image(folder / f"image-{number}", layout) for number, (kind, layout) in enumerate(LAYOUTS.items())
    }


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """Give what every customised card is told."""
    keys = tmp_path / "keys.pub"
    keys.write_text(KEY + "\n")
    return ["--to", str(tmp_path / "card"), "--host", "pi-7", "--user", "site", "--ssh-key", str(keys), "--quiet"]


def boot(card: Path) -> FatPartition:
    return FatPartition(card, BOOT_START)


def outside_file_systems(path: Path) -> tuple[bytes, bytes]:
    content = path.read_bytes()
    return content[:BOOT_START], content[ROOT_START + card_images.ROOT_BYTES :]


def zipped(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("card.img", content)
    return file.getvalue()


PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "raw": bytes,
    "xz": lambda content: lzma.compress(content, preset=0),
    "gz": gzip.compress,
    "zst": zstandard.ZstdCompressor().compress,
    "zip": zipped,
}


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_trixie_card(packing: str, images: dict[str, Path], arguments: list[str], tmp_path: Path) -> None:
    packed, password, own, card = (tmp_path / name for name in ("packed", "password", "own.conf", "card"))
    packed.write_bytes(PACKINGS[packing](images["trixie"].read_bytes()))
    password.write_text("a passphrase\n")
    own.write_text("own = 1\n")
    wifi = ["--wifi", "Wörk #1", "--wifi-country", "GB", "--wifi-password-file", str(password)]
    files = ["--file", f"{own}:/boot/firmware/site/own.conf", "--file", f"{own}:settings.txt"]
    assert main(["flash", str(packed), *arguments, *wifi, *files, "--sha256", file_sha256(packed)]) == 0
    user = check_user_data(boot(card).read("user-data") or b"")
    assert (user["hostname"], user["user"]["ssh_authorized_keys"]) == ("pi-7", [KEY])
    network = check_network_config(boot(card).read("network-config") or b"")["network"]
    assert list(network["wifis"]["wlan0"]["access-points"]) == ["Wörk #1"]
    identity = yaml.safe_load(boot(card).read("meta-data") or b"")["instance-id"]
    assert f"ds=nocloud;i={identity}".encode() in (boot(card).read("cmdline.txt") or b"")
    assert boot(card).read("ssh") == b""
    assert boot(card).read("site/own.conf") == boot(card).read("settings.txt") == b"own = 1\n"
    assert outside_file_systems(card) == outside_file_systems(images["trixie"])
    assert identify(Disk(card)).kind == "trixie"
    assert "WirelessEnabled=true" in debugfs(card, "cat /var/lib/NetworkManager/NetworkManager.state")
    check_file_systems(card, tmp_path)


def test_a_bookworm_card_has_its_address_in_the_root_file_system(
    images: dict[str, Path], arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.sh"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o750)
    static = ["--static", "192.0.2.7/24", "--gateway", "192.0.2.1", "--file", f"{own}:/usr/local/sbin/own"]
    assert main(["flash", str(images["bookworm"]), *arguments, *static]) == 0
    card = tmp_path / "card"
    assert b'hostname = "pi-7"' in (boot(card).read("custom.toml") or b"")
    name = "/etc/NetworkManager/system-connections/edge-static.nmconnection"
    assert "address1=192.0.2.7/24\ngateway=192.0.2.1\ndns=192.0.2.1;\n" in debugfs(card, f"cat {name}")
    assert "no --dns: pi-7 asks its gateway, 192.0.2.1, for names" in capsys.readouterr().err
    assert "Mode:  0600" in debugfs(card, f"stat {name}")
    assert "Mode:  0750" in debugfs(card, "stat /usr/local/sbin/own")
    check_file_systems(card, tmp_path)


def test_a_bullseye_card_has_its_address_where_dhcpcd_reads_it(
    images: dict[str, Path], arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    password, card = tmp_path / "password", tmp_path / "card"
    password.write_text("a passphrase\n")
    wifi = ["--wifi", "Workshop", "--wifi-country", "GB", "--wifi-password-file", str(password)]
    static = ["--static", "192.0.2.7/24", "--gateway", "192.0.2.1", "--interface", "wlan0"]
    assert main(["flash", str(images["bullseye"]), *arguments, *wifi, *static]) == 0
    assert (
        f"{card}: Raspbian GNU/Linux 11 (bullseye), customised as bullseye: its first boot reads"
        in capsys.readouterr().out
    )
    lines = debugfs(card, "cat /etc/dhcpcd.conf").splitlines()
    assert lines[:3] == ["# A sample configuration for dhcpcd.", "hostname", "slaac private"]
    assert lines[-4:] == [
        "interface wlan0",
        "static ip_address=192.0.2.7/24",
        "static routers=192.0.2.1",
        "static domain_name_servers=192.0.2.1",
    ]
    told = tomllib.loads((boot(card).read("custom.toml") or b"").decode())
    assert (told["wlan"]["ssid"], told["wlan"]["country"]) == ("Workshop", "GB")
    assert "NetworkManager" not in debugfs(card, "ls /etc")


def test_a_bookworm_card_joins_any_network_with_a_fixed_address(
    images: dict[str, Path], arguments: list[str], tmp_path: Path
) -> None:
    card = tmp_path / "card"
    wifi = ["--wifi", "Wörk;1", "--wifi-country", "GB", "--wifi-open"]
    static = ["--static", "192.0.2.7/24", "--gateway", "192.0.2.1", "--interface", "wlan0"]
    assert main(["flash", str(images["bookworm"]), *arguments, *wifi, *static]) == 0
    connection = debugfs(card, "cat /etc/NetworkManager/system-connections/edge-wifi.nmconnection")
    assert "ssid=87;195;182;114;107;59;49;\n" in connection
    assert "method=manual\naddress1=192.0.2.7/24\n" in connection
    assert debugfs(card, "cat /var/lib/NetworkManager/NetworkManager.state") == "[main]\nWirelessEnabled=true\n"
    assert debugfs(card, "cat /etc/sudoers.d/010_edge-nopasswd") == "site ALL=(ALL) NOPASSWD: ALL\n"
    assert "Mode:  0440" in debugfs(card, "stat /etc/sudoers.d/010_edge-nopasswd")


@pytest.mark.parametrize("kind", ["trixie", "bookworm", "bullseye", "ubuntu", "preseed"])
def test_interfaces_are_on_from_the_first_boot_on(
    kind: str, images: dict[str, Path], arguments: list[str], tmp_path: Path
) -> None:
    card = tmp_path / "card"
    assert main(["flash", str(images[kind]), *arguments, "--enable", "i2c,spi", "--enable", "onewire,serial"]) == 0
    config = (boot(card).read("config.txt") or b"").decode()
    wanted = "dtparam=i2c_arm=on\ndtparam=spi=on\ndtoverlay=w1-gpio\nenable_uart=1\ndtparam=watchdog=on\n"
    assert config.endswith("\n\n[pi5]\ndtparam=uart0=on\n[all]\n" + wanted)
    assert b"console=serial0" not in (boot(card).read("cmdline.txt") or b"")
    assert b"console=tty1" in (boot(card).read("cmdline.txt") or b"")
    assert debugfs(card, "cat /etc/modules-load.d/edge-i2c.conf") == "i2c-dev\n"


def test_an_interface_that_an_image_cannot_have_is_said(
    images: dict[str, Path], arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = ["--yes-really", str(tmp_path / "card"), "--enable", "i2c,usb-gadget"]
    for kind, words in {
        "debian": "i2c: its device trees do not know them by name; usb-gadget: it has no rpi-usb-gadget",
        "bookworm": "cannot be told usb-gadget: it has no rpi-usb-gadget",
    }.items():
        assert main(["flash", str(images[kind]), *arguments, *again]) == 1
        assert words in capsys.readouterr().err
    assert main(["flash", str(images["trixie"]), *arguments, *again]) == 0
    assert check_user_data(boot(tmp_path / "card").read("user-data") or b"")["rpi"] == {"enable_usb_gadget": True}


def test_a_preseed_card(images: dict[str, Path], arguments: list[str], tmp_path: Path) -> None:
    static = ["--static", "192.0.2.7/24", "--timezone", "Europe/London"]
    assert main(["flash", str(images["preseed"]), *arguments, *static]) == 0
    told = tomllib.loads((boot(tmp_path / "card").read("rpi-preseed.toml") or b"").decode())
    assert (told["config_version"], told["system"], told["ssh"]["authorized_keys"]) == (
        "1.0",
        {"hostname": "pi-7"},
        [KEY],
    )
    name = "/etc/NetworkManager/system-connections/edge-static.nmconnection"
    assert "address1=192.0.2.7/24\n" in debugfs(tmp_path / "card", f"cat {name}")
    # rpi-preseed loses keys; the home is renamed with its user.
    assert debugfs(tmp_path / "card", "cat /home/pi/.ssh/authorized_keys") == KEY + "\n"
    for place, mode in {"/home/pi/.ssh/authorized_keys": "0600", "/home/pi/.ssh": "0700"}.items():
        found = debugfs(tmp_path / "card", f"stat {place}")
        assert f"Mode:  {mode}" in found
        assert re.search(r"User:\s+1000\s+Group:\s+1000", found)
    check_file_systems(tmp_path / "card", tmp_path)


def test_a_preseed_image_without_a_first_user_cannot_be_entered_and_says_so(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = LAYOUTS["preseed"]
    nobody = {name: text for name, text in layout.root.items() if name != "etc/passwd"}
    image = make_image(tmp_path / "image", Layout(boot=layout.boot, root=nobody))
    assert main(["flash", str(image), *arguments]) == 1
    assert "cannot be told the SSH keys: it has no first user" in capsys.readouterr().err


def test_a_card_written_anew_is_known_by_its_new_host_key_alone(
    images: dict[str, Path], arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    card, known = tmp_path / "card", tmp_path / "known_hosts"
    known.write_text("other ssh-ed25519 AAAA\npi-7.local ssh-rsa AAAA\n")
    public = ""
    for _ in range(2):
        more = ["--known-hosts", str(known), "--known-as", "10.0.0.7", "--yes-really", str(card)]
        assert main(["flash", str(images["bookworm"]), *arguments, *more]) == 0
        before, public = public, debugfs(card, "cat /etc/ssh/edge_host_ed25519_key.pub").strip()
        assert public != before
        assert known.read_text() == f"other ssh-ed25519 AAAA\npi-7,pi-7.local,10.0.0.7 {public}\n"
    (tmp_path / "key").write_text(debugfs(card, "cat /etc/ssh/edge_host_ed25519_key"))
    (tmp_path / "key").chmod(0o600)
    shown = subprocess.check_output(["ssh-keygen", "-l", "-f", tmp_path / "key"], text=True).split()[1]
    said = capsys.readouterr()
    assert f"host key of pi-7: {shown} (ED25519)\n{known} knows it as pi-7, pi-7.local, 10.0.0.7\n" in said.out
    assert "PRIVATE" not in said.out + said.err
    assert "Mode:  0600" in debugfs(card, "stat /etc/ssh/edge_host_ed25519_key")
    assert "HostKey /etc/ssh/edge_host_ed25519_key" in debugfs(card, "cat /etc/ssh/sshd_config.d/05-edge-host-key.conf")
    assert card.stat().st_mode & 0o777 == 0o600


def test_a_known_hosts_file_that_cannot_be_written_leaves_the_card_untouched(
    images: dict[str, Path], arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more, said in (
        (["--known-hosts", str(tmp_path / "no/such/folder")], "give another --known-hosts"),
        (["--known-hosts", str(tmp_path)], "is no file"),
        (["--known-as", "pi-7"], "--known-as belongs to --known-hosts"),
        (["--known-hosts", str(tmp_path / "new"), "--known-as", "a,b"], "is not a name or an address"),
        (["--file", f"{tmp_path}/keys.pub:/etc/ssh/edge_host_ed25519_key"], "give another DST"),
    ):
        assert main(["flash", str(images["bookworm"]), *arguments, *more]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "card").exists()


OLD = {
    "resize": "from before cloud-init (2025-11-24): take a newer one",
    "init=/usr/lib/raspi-config/init_resize.sh": "from before custom.toml (2022-09): take a newer one",
}


@pytest.mark.parametrize("option", OLD)
def test_an_old_image_is_refused_and_says_what_it_is(
    option: str, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image, card = make_image(tmp_path / "image", Layout(boot={"cmdline.txt": f"root=x {option}\n"})), tmp_path / "card"
    assert main(["flash", str(image), *arguments]) == 2
    assert OLD[option] in capsys.readouterr().err
    assert not card.exists()
    assert main(["flash", str(image), "--to", str(card)]) == 0
    assert "an image of a card, 2 partitions, to be written as it is" in capsys.readouterr().out
    assert card.read_bytes() == image.read_bytes()


def test_root_is_not_needed_for_a_file(images: dict[str, Path]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, keys = Path(name), Path(name) / "keys.pub"
        folder.chmod(0o777)
        keys.write_text(KEY + "\n")
        shutil.copy(images["bookworm"], folder / "image")
        settings = ["--host", "pi-7", "--user", "site", "--ssh-key", keys, "--file", f"{keys}:/etc/site.keys"]
        words = ["flash", folder / "image", "--to", folder / "card", *settings]
        command = [*as_ordinary_user(), console_script("edge-board"), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        assert done.returncode == 0, done.stderr
        assert debugfs(folder / "card", "cat /etc/site.keys") == KEY + "\n"


def check_file_systems(card: Path, folder: Path) -> None:
    """Raise unless the checkers find nothing to mend."""
    for start, size, program in ((BOOT_START, BOOT_BYTES, "fsck.vfat"), (ROOT_START, card_images.ROOT_BYTES, "e2fsck")):
        part = folder / "part"
        part.write_bytes(card.read_bytes()[start : start + size])
        makers = card_images.runtimes.mkfs_vfat(), card_images.runtimes.mke2fs()
        checker = makers[program == "e2fsck"].with_name(program)
        done = subprocess.run([checker, *(["-f"] if program == "e2fsck" else []), "-n", part], check=False)
        assert done.returncode == 0, done


def test_two_cards_have_different_identities(images: dict[str, Path], arguments: list[str], tmp_path: Path) -> None:
    card, found = tmp_path / "card", set()
    for _ in range(2):
        assert main(["flash", str(images["ubuntu"]), *arguments]) == 0
        found.add(boot(card).read("meta-data"))
        card.unlink()
    assert len(found) == 2
    assert None not in found


def test_debians_card_says_what_it_cannot_be_told(
    images: dict[str, Path], arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = ["--yes-really", str(tmp_path / "card")]
    assert main(["flash", str(images["debian"]), *arguments]) == 1
    said = capsys.readouterr()
    assert "cannot be told the user site: log in as root" in said.err
    assert "cannot be told the user site: log in as root" in said.out.splitlines()[0]  # before the write
    assert main(["flash", str(images["debian"]), *arguments, "--user", "root", *again]) == 0
    lines = (boot(tmp_path / "card").read("sysconf.txt") or b"").decode().splitlines()
    assert {"some_key=kept", "hostname=pi-7"} <= set(lines)


@pytest.mark.parametrize("packing", ["raw", "gz"])
def test_root_is_refused_before_the_write_but_for_debians_own(
    packing: str, images: dict[str, Path], arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a packed image is shows after the write alone, so that one that may be Debian's wants to be called so."""
    card, as_root = tmp_path / "card", [*arguments, "--user", "root"]
    for kind in ("trixie", "debian"):
        (tmp_path / kind).write_bytes(PACKINGS[packing](images[kind].read_bytes()))
    assert main(["flash", str(tmp_path / "trixie"), *as_root]) == 2
    said = capsys.readouterr().err
    assert "--user root cannot log in: give another" in said
    assert ("add `--as debian`" in said) == (packing == "gz")
    assert not card.exists()
    assert main(["flash", str(tmp_path / "debian"), *as_root, *(["--as", "debian"] if packing == "gz" else [])]) == 0
    assert b"hostname=pi-7" in (boot(card).read("sysconf.txt") or b"")


@pytest.mark.parametrize("table", ["dos", "gpt"])
def test_kinds_are_told_from_contents(table: str, tmp_path: Path) -> None:
    trixie = LAYOUTS["trixie"]
    layouts = {
        "trixie": Layout("bootfs", trixie.boot, trixie.root, table),
        "cloud-init is not installed": Layout(
            "bootfs", trixie.boot, {name: text for name, text in trixie.root.items() if "bin" not in name}, table
        ),
    }
    found = [identify(Disk(make_image(tmp_path / "image", layout))).kind for layout in layouts.values()]
    assert found == ["trixie", None]


@pytest.mark.parametrize("content", [b"", b"\0" * MIB, b"\x55\xaa" * MIB], ids=["empty", "zeros", "marks"])
def test_what_is_no_card_image_is_not_taken_for_one(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_bytes(content)
    assert identify(Disk(path)).kind is None


def test_an_unknown_image_is_said_before_the_write_and_a_packed_one_not_called_done(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = make_image(tmp_path / "raspios-trixie.img", Layout(boot={"cmdline.txt": "root=/dev/mmcblk0p2\n"}))
    card, packed = tmp_path / "card", tmp_path / "packed"
    packed.write_bytes(gzip.compress(image.read_bytes(), 1))
    assert main(["flash", str(image), *arguments]) == 2
    assert (
        "cannot be customised: nothing in it is known. If you know better, add `--as` with" in capsys.readouterr().err
    )
    assert not card.exists()
    assert main(["flash", str(packed), *arguments]) == 1
    said = capsys.readouterr()
    assert "2 partitions; what system it is shows once it is written" in said.out
    assert "written but not customised: nothing in it is known" in said.err
    assert card.read_bytes() == image.read_bytes()
    assert main(["flash", str(image), *arguments, "--as", "trixie", "--yes-really", str(card)]) == 0
    assert boot(card).read("user-data")


def zip_of(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, b"\xff\xd8\xff" + bytes(9000))
    return file.getvalue()


NO_IMAGE = {
    "text": (b"root:x:0:0:root:/root:/bin/bash\n", "it is text"),
    "gzip of text": (gzip.compress("größer\n".encode() * 999), "it is text"),
    "noise": (bytes(range(256)) * 9999, "it is something without a partition table"),
    "empty": (b"", "it is empty"),
    "packed nothing": (lzma.compress(b""), "it is empty"),
    "zeros": (bytes(2 * MIB), "it is nothing but zeros at its beginning"),
    "photos": (zip_of("1.jpg", "2.jpg"), "it is a zip archive of 2 files, none of them a .img"),
    "photo": (zip_of("1.jpg"), "it is a photo"),
    "wheel": (zip_of("x/__init__.py", "x.dist-info/METADATA", "x.dist-info/RECORD"), "a zip archive of 3 files"),
    "CD": (boot_sector(9 * MIB) + bytes(32769 - 512) + b"CD001" + bytes(9 * MIB), "it is the image of a CD"),
    "tar": (gzip.compress(bytes(257) + b"ustar" + bytes(999)), "it is a tar archive"),
    "twice": (gzip.compress(lzma.compress(b"x" * 99)), "it is packed twice"),
    "bzip2": (b"BZh9" + bytes(99), "it is packed by bzip2, which is not unpacked here"),
    "qcow2": (b"QFI\xfb" + bytes(MIB), "a disk of a virtual machine (qcow2)"),
    "GPT without its table": (boot_sector(9 * MIB).replace(b"\x83", b"\xee") + bytes(MIB), "whose GPT is damaged"),
    "ext4": (bytes(1080) + b"\x53\xef" + bytes(MIB), "a file system without a partition table"),
}


@pytest.mark.parametrize("name", NO_IMAGE)
@pytest.mark.parametrize("customised", [False, True])
def test_what_is_no_image_is_refused_before_anything_is_touched(
    name: str, customised: bool, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image, card = tmp_path / "image.img", tmp_path / "card"
    image.write_bytes(NO_IMAGE[name][0])
    card.write_bytes(b"a card with somebody's data")
    again = ["--yes-really", str(card)]
    words = [*arguments, "--as", "trixie"] if customised else ["--to", str(card)]
    assert main(["flash", str(image), *words, *again]) == 2
    said = capsys.readouterr().err
    assert f"{image} is no image of a card, " in said
    assert NO_IMAGE[name][1] in said
    assert "Nothing was written" in said
    assert len(said.splitlines()) == 1
    assert card.read_bytes() == b"a card with somebody's data"


@pytest.mark.parametrize("packing", ["raw", "xz", "zip"])
def test_a_cut_image_is_refused_where_its_length_is_known(
    packing: str, images: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image, card = tmp_path / "image", tmp_path / "card"
    cut = images["trixie"].read_bytes()[: -2 * MIB]  # the last MiB is in no partition
    image.write_bytes(PACKINGS[packing](cut))
    assert main(["flash", str(image), "--to", str(card)]) == 2
    assert f"is cut short: it has {len(cut)} bytes, its partitions end at {len(cut) + MIB}" in capsys.readouterr().err
    assert not card.exists()
    assert main(["flash", str(image), "--to", str(card), "--sha256", file_sha256(image)]) == 0  # it was published so


@pytest.mark.parametrize("packing", ["gz", "zst"])
def test_a_cut_stream_leaves_a_card_that_does_not_boot(
    packing: str, images: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image, card = tmp_path / "image", tmp_path / "card"
    image.write_bytes(PACKINGS[packing](images["trixie"].read_bytes()[: -2 * MIB]))
    assert main(["flash", str(image), "--to", str(card)]) == 1
    said = capsys.readouterr().err
    assert "is cut short" in said
    assert f"{card} does not boot as it is now: flash it again." in said
    assert not any(card.open("rb").read(4096))


def test_an_image_without_a_boot_partition_is_not_customised(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for packing in ("raw", "gz"):
        image = tmp_path / packing
        image.write_bytes(PACKINGS[packing](boot_sector(3 * MIB) + bytes(3 * MIB)))
        assert main(["flash", str(image), *arguments, "--as", "trixie"]) == 2
        assert "cannot be customised: it has no FAT boot partition. Without settings" in capsys.readouterr().err


def test_a_card_keeps_the_host_key_that_it_is_given(
    images: dict[str, Path], arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    card, key = tmp_path / "card", tmp_path / "own"
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-C", "of pi-7", "-f", key], check=True)
    key.chmod(0o644)  # ssh-keygen itself refuses to read it now
    known = ["--known-hosts", str(tmp_path / "known_hosts")]
    assert main(["flash", str(images["trixie"]), *arguments, "--host-key", str(key), *known]) == 0
    public = " ".join((tmp_path / "own.pub").read_text().split()[:2])
    assert debugfs(card, "cat /etc/ssh/edge_host_ed25519_key") == key.read_text()
    assert debugfs(card, "cat /etc/ssh/edge_host_ed25519_key.pub").strip() == public
    assert (tmp_path / "known_hosts").read_text() == f"pi-7,pi-7.local {public}\n"
    shown = subprocess.check_output(["ssh-keygen", "-l", "-f", tmp_path / "own.pub"], text=True).split()
    assert f"host key of pi-7: {shown[1]} {shown[-1]}\n" in capsys.readouterr().out


def test_a_host_key_with_a_passphrase_is_refused(
    images: dict[str, Path], arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", tmp_path / "own"], check=True)
    assert main(["flash", str(images["trixie"]), *arguments, "--host-key", str(tmp_path / "own")]) == 2
    assert "is no private key without a passphrase" in capsys.readouterr().err
    assert not (tmp_path / "card").exists()


@pytest.mark.parametrize("kind", ["folder", "pipe", "absent", "encrypted"])
def test_what_cannot_be_read_is_one_sentence(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = tmp_path / kind
    if kind == "folder":
        image.mkdir()
    elif kind == "pipe":
        os.mkfifo(image)
    elif kind == "encrypted":
        content = bytearray(zip_of("card.img"))
        for mark, flags in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
            content[content.find(mark) + flags] |= 1
        image.write_bytes(content)
    assert main(["flash", str(image), "--to", str(tmp_path / "card")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"edge-board flash: {image} ")
    assert len(said.splitlines()) == 1


def test_an_image_is_written_as_it_is_when_nothing_is_asked(images: dict[str, Path], tmp_path: Path) -> None:
    listed = {
        "os_list": [{"url": f"https://x/{images['trixie'].name}", "extract_sha256": file_sha256(images["trixie"])}]
    }
    (tmp_path / "list.json").write_text(json.dumps(listed))
    card = tmp_path / "card"
    assert main(["flash", str(images["trixie"]), "--to", str(card), "--image-list", str(tmp_path / "list.json")]) == 0
    assert card.read_bytes() == images["trixie"].read_bytes()


@pytest.mark.parametrize("packed", [False, True])
def test_a_wrong_hash_leaves_a_card_that_does_not_boot(
    packed: bool, images: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image, card = images["trixie"], tmp_path / "card"
    if packed:
        image = tmp_path / "packed"
        image.write_bytes(gzip.compress(images["trixie"].read_bytes(), 1))
    assert main(["flash", str(image), "--to", str(card), "--sha256", "0" * 64]) == 1
    assert "is not the published image" in capsys.readouterr().err
    assert card.read_bytes()[:4096] == bytes(4096)


REFUSED = [
    (["--host", "pi-1"], "needs --user and --ssh-key too"),
    (["--timezone", "Europe/London"], "needs --host and --user and --ssh-key too"),
    (["ALL", "--host", "pi-"], "is not a host name"),
    (["ALL", "--user", "Site"], "is not a user name"),
    (["ALL", "--timezone", "Europe/Lodnon"], "there is no time zone 'Europe/Lodnon': did you mean Europe/London?"),
    (["ALL", "--wifi", "x", "--wifi-country", "GB"], "needs --wifi-password-file"),
    (["ALL", "--wifi", "x", "--wifi-open"], "needs --wifi-country"),
    (["ALL", "--wifi", "x" * 33, "--wifi-open", "--wifi-country", "GB"], "33 bytes"),
    (["ALL", "--wifi-country", "gb"], "did you mean GB"),
    (["ALL", "--wifi-country", "UK"], "did you mean GB, Britain (UK)?"),
    (["ALL", "--wifi-country", "ZZ"], "'ZZ' is no country of ISO 3166"),
    (["ALL", "--wifi-hidden"], "belong to --wifi"),
    (["ALL", "--static", "192.0.2.255/24"], "is the broadcast address of 192.0.2.0/24"),
    (["ALL", "--static", "192.0.2.7/24", "--gateway", "192.0.2.7"], "is the board's own address"),
    (["ALL", "--static", "192.0.2.7/24", "--interface", "wlan0"], "a fixed address on wlan0 needs --wifi"),
    (["ALL", "--interface", "wlan0"], "belong to --static"),
    (["ALL", "--enable", "i2c,onewrie"], "'onewrie' is not known: did you mean onewire"),
    (["--interface", "wlan0"], "needs --host and --user and --ssh-key too"),
    (["ALL", "--static", "192.0.2.7"], "give the prefix of its net too"),
    (["ALL", "--static", "192.0.2.7/24", "--gateway", "198.51.100.1"], "is not in the network"),
    (["ALL", "--static", "pi"], "give --static as"),
    (["ALL", "--gateway", "192.0.2.1"], "belong to --static"),
    (["ALL", "--file", "nowhere"], "is not SRC:DST"),
    (["ALL", "--file", "/nowhere:x"], "/nowhere cannot be read"),
    (["ALL", "--file", f"{__file__}:../x"], "cannot be a file's name"),
    (["ALL", "--file", f"{__file__}:/etc/a b"], "is not an absolute name"),
    (["--sha256", "abc"], "64 hex digits"),
    (["--image-list", "/nowhere"], "the image list /nowhere cannot be read: no such file or directory."),
    (["--image-list", "https://127.0.0.1:1/list"], "the image list https://127.0.0.1:1/list refuses the connection"),
    (["--image-list", __file__], f"{__file__} is no image list: give https://downloads.raspberrypi.com/"),
    (["ALL", "--ssh-key", "SECRET"], "secret is a private key: give the file that ends in .pub"),
    (["--host-key", "key"], "needs --host and --user and --ssh-key too"),
    (["ALL", "--host-key", "/nowhere"], "--host-key /nowhere cannot be read: no such file or directory"),
    (
        ["ALL", "--host-key", __file__],
        "is no private key without a passphrase: give the file without .pub",
    ),
]


@pytest.mark.parametrize(("more", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_what_is_refused_is_one_sentence_and_writes_nothing(
    more: list[str], sentence: str, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"image")
    secret = tmp_path / "secret"
    secret.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    more = [str(secret) if word == "SECRET" else word for word in more]
    common = arguments if more[0] == "ALL" else arguments[:2]
    assert main(["flash", str(image), *common, *[word for word in more if word != "ALL"]]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "card").exists()


def test_a_private_key_is_refused(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "keys.pub").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n")
    (tmp_path / "image").write_bytes(b"image")
    assert main(["flash", str(tmp_path / "image"), *arguments]) == 2
    assert "private key: give the file that ends in .pub" in capsys.readouterr().err


def test_a_stop_leaves_a_card_that_does_not_boot(tmp_path: Path) -> None:
    image, card = tmp_path / "image", tmp_path / "card"
    with image.open("wb") as file:  # long enough to be stopped, and no work to make
        file.write(boot_sector(8 << 30))
        file.truncate(8 << 30)
    command = [console_script("edge-board"), "flash", image, "--to", card, "--quiet"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: card.exists() and card.stat().st_size, 20, "the first bytes on the card")
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=CALL_S)
        finally:
            process.kill()
    assert process.returncode == 1
    assert "stopped." in said
    assert not any(card.open("rb").read(4096))


def test_a_reader_that_goes_away_costs_no_card(images: dict[str, Path], arguments: list[str], tmp_path: Path) -> None:
    """`edge-board flash … | head -1`: the card is whole or untouched."""
    command = [console_script("edge-board"), "flash", images["bookworm"], *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as process:
        assert process.stdout is not None
        assert b"to be customised as bookworm" in process.stdout.readline()
        process.stdout.close()
        process.wait(CALL_S)
    assert (tmp_path / "card").read_bytes()[:512] == images["bookworm"].read_bytes()[:512]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*command, "--yes-really", tmp_path / "card"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert b"cannot write the output" in done.stderr
    assert (tmp_path / "card").read_bytes()[:512] == images["bookworm"].read_bytes()[:512]


def test_a_damaged_image_is_found_before_the_card_is_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image, card = tmp_path / "image", tmp_path / "card"
    image.write_bytes(lzma.compress(bytes(MIB))[:-7])
    assert main(["flash", str(image), "--to", str(card)]) == 2
    said = capsys.readouterr().err
    assert "is damaged" in said
    assert "does not boot" not in said
    assert not card.exists()


def test_a_full_root_file_system_is_said(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image, own, card = make_image(tmp_path / "image", LAYOUTS["trixie"]), tmp_path / "own", tmp_path / "card"
    own.write_bytes(b"x" * 2 * card_images.ROOT_BYTES)
    assert main(["flash", str(image), *arguments, "--file", f"{own}:/srv/own"]) == 1
    assert f"{card} does not boot as it is now" in capsys.readouterr().err
    assert not any(card.open("rb").read(4096))


def test_memory_stays_small(tmp_path: Path) -> None:
    """The dictionary of an image packed by `xz -9` is 64 MiB: the most that any takes."""
    image, card = tmp_path / "image", tmp_path / "card"
    dictionary = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 64 * MIB}]
    image.write_bytes(lzma.compress(boot_sector(70 * MIB) + bytes(70 * MIB - 512) + b"end", filters=dictionary))
    script = "import sys; from hardware.cli import main; status = main(sys.argv[1:])\n"
    script += "print(open('/proc/self/status').read()); sys.exit(status)"  # ru_maxrss would be this process's own
    done = subprocess.run(
        [sys.executable, "-c", script, "flash", image, "--to", card], capture_output=True, text=True, check=True
    )
    peak_kib = next(int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("VmHWM:"))
    assert 64 * MIB < peak_kib * 1024 < MEMORY_BYTES_MAX
    assert card.stat().st_size == 70 * MIB + 3
