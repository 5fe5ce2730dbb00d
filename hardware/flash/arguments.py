"""The arguments of `edge-board flash`. Light: `edge-board show` builds this parser too, and imports nothing for it."""

import argparse

from drupelet.command.arguments import not_empty, path

EPILOG = """examples:
  edge-board flash raspios.img.xz --to /dev/sdb --host pi-1 --user site --ssh-key ~/.ssh/id_ed25519.pub
  edge-board flash raspios.img.xz --to /dev/sdb --host pi-2 --user site --ssh-key keys.pub --timezone Europe/London \\
      --wifi Workshop --wifi-country GB --wifi-password-file wifi.txt --static 192.0.2.12/24 --interface wlan0 \\
      --gateway 192.0.2.1 --dns 192.0.2.1 --file site.conf:/etc/site.conf --sha256 "$(cat raspios.img.xz.sha256)"
  edge-board flash raspios.img.xz --to pi-3.img --host pi-3 --user site --ssh-key keys.pub     (no root needed)
"""
KINDS = ("trixie", "bookworm", "bullseye", "preseed", "debian", "ubuntu")


def add_flash(command: argparse.ArgumentParser) -> None:
    """Describe the arguments of `flash`."""
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.epilog = EPILOG
    command.set_defaults(flash=True)
    command.add_argument("image", type=path, metavar="IMAGE", help="raw, or packed by xz, gz, zst or zip")
    command.add_argument(
        "--to",
        type=not_empty,
        required=True,
        metavar="DEVICE|FILE",
        help="a whole card such as /dev/sdb, or a new file",
    )
    command.add_argument("--yes-really", metavar="DEVICE", help="name the target again if it is large, fixed or exists")
    command.add_argument("--quiet", action="store_true", help="no progress")
    checks = command.add_argument_group("check of the image")
    checks.add_argument("--sha256", metavar="HEX", help="of the file or of the unpacked image")
    checks.add_argument(
        "--image-list", type=not_empty, metavar="FILE|URL", help="Raspberry Pi's image list (JSON) that has its SHA-256"
    )
    add_first_boot(command.add_argument_group("first boot (needs the first three)"))


def add_first_boot(group: "argparse._ArgumentGroup") -> None:
    """Describe the arguments that customise a card."""
    group.add_argument("--host", metavar="NAME", help="host name")
    group.add_argument("--user", metavar="NAME", help="user with sudo; logs in by key only, has no password")
    group.add_argument(
        "--ssh-key", type=path, action="append", default=[], metavar="FILE", help="public keys; may be repeated"
    )
    group.add_argument("--wifi", metavar="SSID", help="wireless network; asks for its password")
    group.add_argument("--wifi-password-file", type=path, metavar="FILE", help="read the password here instead")
    group.add_argument("--wifi-open", action="store_true", help="the network has no password")
    group.add_argument("--wifi-hidden", action="store_true", help="the network does not announce itself")
    group.add_argument("--wifi-country", metavar="XX", help="country whose radio rules hold; Wi-Fi needs it")
    group.add_argument("--static", metavar="ADDRESS/PREFIX", help="fixed address instead of DHCP")
    group.add_argument("--gateway", metavar="ADDRESS", help="with --static")
    group.add_argument(
        "--dns", action="append", default=[], metavar="ADDRESS", help="name server, with --static (the gateway)"
    )
    group.add_argument("--interface", metavar="NAME", help="of the fixed address: wlan0, or a wired one (eth0)")
    group.add_argument("--timezone", metavar="ZONE", help="such as Europe/London")
    group.add_argument("--keyboard", metavar="LAYOUT", help="such as gb")
    group.add_argument(
        "--enable", action="append", default=[], metavar="NAME[,NAME]", help="i2c, spi, onewire, serial, usb-gadget"
    )
    group.add_argument(
        "--known-hosts", type=path, metavar="FILE", help="put the board's host key into it, such as ~/.ssh/known_hosts"
    )
    group.add_argument(
        "--host-key", type=path, metavar="FILE", help="the board's host key, a private one, instead of a new one"
    )
    group.add_argument(
        "--known-as", action="append", default=[], metavar="NAME", help="further name or address in --known-hosts"
    )
    group.add_argument(
        "--file", action="append", default=[], metavar="SRC:DST", help="own file; DST below /boot/firmware or anywhere"
    )
    group.add_argument("--as", dest="treat_as", choices=KINDS, help="customise as this kind, whatever the image is")
    group.add_argument("--no-cgroup-memory", action="store_true", help="leave the kernel's memory control as it is")
    group.add_argument("--no-watchdog", action="store_true", help="leave the hardware watchdog as it is")
