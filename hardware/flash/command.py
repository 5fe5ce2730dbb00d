"""`edge-board flash`: its arguments, the order of its steps, what it prints.

Contains: arguments -> settings, and one call per step. Does not contain: the steps themselves.
"""

import argparse
import ipaddress
import re
import secrets
import signal
import sys
import uuid
import zoneinfo
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from getpass import getpass
from pathlib import Path, PurePosixPath
from types import FrameType

from drupelet.command.config_check import nearest
from drupelet.errors import ConfigurationError, reason
from hardware.flash.device.progress import Progress, amount
from hardware.flash.device.targets import Device, check_device, check_file, device_name
from hardware.flash.device.writer import Target, WrittenImage
from hardware.flash.errors import FlashError
from hardware.flash.first_boot.countries import known_country
from hardware.flash.first_boot.first_boot import HOST_KEY, HOST_KEY_CONFIG, FirstBoot, RootFile, first_boot
from hardware.flash.first_boot.host_key import make_host_key, own_host_key
from hardware.flash.first_boot.known_hosts import check_names, check_writable, replace_line
from hardware.flash.first_boot.settings import HostKey, Settings, Static, Wifi, read_keys
from hardware.flash.image.ext import ExtPartition, check_name
from hardware.flash.image.images import Disk, Image, identify
from hardware.flash.image.sources import (
    ImageSource,
    PublishedImage,
    expected_from_list,
    file_sha256,
    read_list,
    sha256_given,
)
from hardware.flash.programs import program
from hardware.flash.recognition import (
    check_length,
    chosen_kind,
    files_present,
    left_out_words,
    recognize,
    remedy_of,
    words_of,
)
from hardware.system_files import SystemFiles

SMALL_FILE_BYTES_MAX = 64 * 1024
OWN_FILE_BYTES_MAX = 64 << 20
BOOT_FOLDERS = ("/boot/firmware/", "/boot/")
FAT_FORBIDDEN = re.compile(r'[\\:*?"<>|\x00-\x1f\x7f]')


@dataclass(frozen=True)
class OwnFile:
    """A file of the user's: its content, its place on the card (absolute: root file system), its mode there."""

    place: str
    content: bytes
    mode: int


@dataclass(frozen=True)
class CustomisationReport:
    """The result of customising: lines of done and omitted settings, and the board's host key."""

    said: tuple[str, ...] = ()
    complaints: tuple[str, ...] = ()
    host_key: HostKey | None = None


def flash(parsed: argparse.Namespace) -> int:
    """Run the command: 0 done, 1 failed or a requested setting is missing, 2 refused, nothing written."""
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        return run(parsed)
    except ConfigurationError as error:
        sys.stderr.write(f"edge-board flash: {error}\n")
        return 2
    except FlashError as error:
        sys.stderr.write(f"edge-board flash: {error}\n")
    except KeyboardInterrupt:
        sys.stderr.write("edge-board flash: stopped; nothing was written.\n")
    finally:
        signal.signal(signal.SIGTERM, before)
    return 1


def interrupt(_number: int, _frame: FrameType | None) -> None:
    """Let SIGTERM end the command as SIGINT does."""
    raise KeyboardInterrupt


def run(parsed: argparse.Namespace) -> int:
    """Check everything that can be checked, then write, read back, customise, and make the card bootable."""
    settings, own_files, expected = settings_of(parsed), [own_file(text) for text in parsed.file], expected_of(parsed)
    say_name_servers(settings)
    if settings:
        settings = with_host_key(parsed, settings)
    with refuse_before_write():
        source = ImageSource(parsed.image)
    with source:
        image_bytes = max(source.unpacked_bytes_min, expected.unpacked_bytes or 0)
        with refuse_before_write():
            path, device = target_of(parsed, image_bytes)
            layout, words = recognize(source, expected, parsed.treat_as, settings)
        sys.stdout.write(f"{words}\n")
        sys.stdout.flush()  # a closed stdout ends the command here; no more output until the card is whole
        with Target(path, create=device is None) as target, report_unfinished(path):
            sys.stderr.write(f"writing over {device.words}\n" if device else "")
            written, sha256 = copy(source, target, expected, parsed.quiet)
            check_length(source, layout, written.size, expected)
            done = customise(parsed, target, written, settings, own_files) if settings else CustomisationReport()
            target.finish(written.head)
    said, complaints = make_known(parsed, settings, done.host_key) if settings and done.host_key else ([], [])
    said = [*done.said, f"{path}: {amount(written.size)}, SHA-256 {sha256}", *said]
    sys.stdout.writelines(f"{line}\n" for line in said)
    complaints = [*done.complaints, *complaints]
    sys.stderr.writelines(f"edge-board flash: {complaint}\n" for complaint in complaints)
    return 1 if complaints else 0


@contextmanager
def report_unfinished(path: Path) -> Iterator[None]:
    """Add the consequence for the card to any error that ends a write early."""
    state = f"{path} does not boot as it is now: flash it again."
    try:
        yield
    except KeyboardInterrupt:
        raise FlashError(f"stopped. {state}") from None
    except (FlashError, ConfigurationError) as error:
        raise FlashError(f"{error} {state}") from error


@contextmanager
def refuse_before_write() -> Iterator[None]:
    """Turn any problem of an image before the write into a refusal."""
    try:
        yield
    except FlashError as error:
        raise ConfigurationError(str(error)) from error


def target_of(parsed: argparse.Namespace, image_bytes: int) -> tuple[Path, Device | None]:
    """Find and check the target: its path, and the device that it is."""
    files = SystemFiles()
    name = device_name(parsed.to, files)
    if name is None:
        check_file(Path(parsed.to), parsed.image, parsed.yes_really)
        return Path(parsed.to), None
    return Path("/dev") / name, check_device(name, image_bytes, parsed.yes_really, files)


def copy(source: ImageSource, target: Target, expected: PublishedImage, quiet: bool) -> tuple[WrittenImage, str]:
    """Write the image but for block 0, read it back and compare its SHA-256, returned too, with the published one."""
    writing = Progress("writing", quiet=quiet)
    with ThreadPoolExecutor(1) as pool:
        packed: Future[str] | None = None
        if expected.is_known and source.packing != "raw":
            packed = pool.submit(file_sha256, source.path)
        written = target.copy(source.fill, lambda done: writing.at(done, source.done_fraction()))
    writing.done(written.size)
    if not written.size:
        raise FlashError(f"{source.path} is empty.")
    reading = Progress("reading back", quiet=quiet)
    sha256 = target.check(written, lambda done: reading.at(done, done / written.size))
    reading.done(written.size)
    wrong = expected.mismatch(packed.result() if packed else sha256, sha256)
    if wrong:
        raise FlashError(f"{source.path} is not the published image: {wrong}. Download it again.")
    return written, sha256


def customise(
    parsed: argparse.Namespace, target: Target, written: WrittenImage, settings: Settings, own_files: list[OwnFile]
) -> CustomisationReport:
    """Write the first-boot files for the kind of image."""
    image = identify(Disk(target.path, written.head))
    kind = chosen_kind(image, parsed.treat_as)
    if kind is None or image.boot is None:
        better = f"; if you know better, add {remedy_of()}" if image.boot else ""
        complaint = f"the image is written but not customised: {image.why}. It has no settings of yours{better}."
        return CustomisationReport(complaints=(complaint,))
    complaints = []
    if image.root is None:
        settings = replace(settings, host_key=None)
        complaints = ["the board makes its own host key: the image has no ext4 root file system to put one into."]
    made = first_boot(kind, settings, files_present(image))
    names = write_files(target, image, made, own_files)
    words = f"{target.path}: {words_of(image, kind, parsed.treat_as)}"
    left_out = left_out_words(made)
    complaints += [left_out] if left_out else []
    return CustomisationReport((words, *(f"  {name}" for name in names)), tuple(complaints), settings.host_key)


def with_host_key(parsed: argparse.Namespace, settings: Settings) -> Settings:
    """Check the requirements of customising, and return the settings with the board's key."""
    for name in ("mcopy", "debugfs", "ssh-keygen"):
        program(name)
    check_names(names_of(parsed, settings))
    if parsed.known_hosts:
        check_writable(parsed.known_hosts)
    elif parsed.known_as:
        raise ConfigurationError("--known-as belongs to --known-hosts: give the file too.")
    with refuse_before_write():
        own = own_host_key(parsed.host_key) if parsed.host_key else None
        return replace(settings, host_key=own or make_host_key())


def names_of(parsed: argparse.Namespace, settings: Settings) -> list[str]:
    """List the names of a board for ssh: its name, with and without `.local`, its address, the given names."""
    address = [str(settings.static.address.ip)] if settings.static else []
    return list(dict.fromkeys([settings.host, f"{settings.host}.local", *address, *parsed.known_as]))


def make_known(parsed: argparse.Namespace, settings: Settings, key: HostKey) -> tuple[list[str], list[str]]:
    """Add the board to the requested known_hosts file; return the lines about its key, and the failures."""
    said = [f"host key of {settings.host}: {key.fingerprint} ({key.kind})"]
    if parsed.known_hosts is None:
        return said, []
    names = names_of(parsed, settings)
    try:
        replace_line(parsed.known_hosts, names, key)
    except OSError as error:
        line = f"{','.join(names)} {key.public}"
        complaint = f"the card is written, but not {parsed.known_hosts} ({reason(error)}). Add this line to it: {line}"
        return said, [complaint]
    return [*said, f"{parsed.known_hosts} knows it as {', '.join(names)}"], []


def write_files(target: Target, image: Image, made: FirstBoot, own_files: list[OwnFile]) -> list[str]:
    """Write all files, the user's own last; read those of the boot partition back from the card; give their names."""
    assert image.boot is not None
    own_boot = {file.place: file.content for file in own_files if not file.place.startswith("/")}
    own_root = {file.place: RootFile(file.content, file.mode) for file in own_files if file.place.startswith("/")}
    boot_files, root_files = {**made.boot_files, **own_boot}, {**made.root_files, **own_root}
    for name, content in boot_files.items():
        image.boot.write(name, content)
    for name, file in root_files.items():
        root_of(image, name).write(name, *file)
    target.sync_and_drop()
    for name, content in boot_files.items():
        if image.boot.read(name) != content:
            raise FlashError(f"{name} reads back differently: use another card.")
    return [*boot_files, *root_files]


def root_of(image: Image, name: str) -> ExtPartition:
    """Give the root file system for a file that belongs there."""
    if image.root is None:
        raise FlashError(f"{name} has no place: the image has no ext4 root file system.")
    return image.root


def expected_of(parsed: argparse.Namespace) -> PublishedImage:
    """Return the published hashes of the image: given, else from the image list, else none."""
    if parsed.sha256:
        return sha256_given(parsed.sha256)
    if not parsed.image_list:
        return PublishedImage()
    return expected_from_list(read_list(parsed.image_list), parsed.image.name, parsed.image_list)


def settings_of(parsed: argparse.Namespace) -> Settings | None:
    """Make the settings of the arguments; None if the card is to be written as it is."""
    needed = {"--host": parsed.host, "--user": parsed.user, "--ssh-key": parsed.ssh_key}
    network = (parsed.wifi, parsed.wifi_country, parsed.static, parsed.gateway, parsed.dns, parsed.interface)
    others = (parsed.timezone, parsed.keyboard, parsed.enable, parsed.file, parsed.treat_as)
    if not any((*needed.values(), *network, *others, parsed.known_hosts, parsed.host_key)):
        return None
    missing = [name for name, value in needed.items() if not value]
    if missing:
        raise ConfigurationError(f"a customised card needs {' and '.join(missing)} too.")
    country, static, zone = known_country(parsed.wifi_country), static_of(parsed), known_timezone(parsed.timezone)
    return Settings(
        host=parsed.host,
        user=parsed.user,
        ssh_keys=tuple(key for path in parsed.ssh_key for key in read_keys(small_text(path), str(path))),
        instance_id=f"edge-board-{uuid.uuid4()}",
        throwaway_password=secrets.token_hex(16),
        wifi=wifi_of(parsed),
        country=country,
        static=static,
        timezone=zone,
        keyboard=parsed.keyboard,
        interfaces=tuple(dict.fromkeys(name.strip() for names in parsed.enable for name in names.split(","))),
        cgroup_memory=not parsed.no_cgroup_memory,
        watchdog=not parsed.no_watchdog,
    )


def say_name_servers(settings: Settings | None) -> None:
    """Print the name server of a board with a fixed address if the user gave none."""
    if settings is None or settings.static is None or settings.static.dns:
        return
    servers = settings.static.name_servers
    asked = f"asks its gateway, {servers[0]}, for names" if servers else "is given no name server"
    sys.stderr.write(f"edge-board flash: no --dns: {settings.host} {asked}.\n")


def wifi_of(parsed: argparse.Namespace) -> Wifi | None:
    """Make the Wi-Fi settings; the password comes from a file or a prompt, never from the arguments."""
    if parsed.wifi is None:
        if parsed.wifi_password_file or parsed.wifi_open or parsed.wifi_hidden:
            raise ConfigurationError(
                "--wifi-password-file, --wifi-open and --wifi-hidden belong to --wifi: give its SSID."
            )
        return None
    if parsed.wifi_open:
        password = None
    elif parsed.wifi_password_file:
        password = small_text(parsed.wifi_password_file).rstrip("\r\n")
    elif sys.stdin.isatty():
        password = getpass(f"password of {parsed.wifi}: ")
    else:
        raise ConfigurationError("Wi-Fi needs --wifi-password-file, or --wifi-open for a network without password.")
    return Wifi(parsed.wifi, password, parsed.wifi_hidden)


def static_of(parsed: argparse.Namespace) -> Static | None:
    """Make the fixed address."""
    if parsed.static is None:
        if parsed.gateway or parsed.dns or parsed.interface:
            raise ConfigurationError("--gateway, --dns and --interface belong to --static: give the address too.")
        return None
    try:
        gateway = ipaddress.ip_address(parsed.gateway) if parsed.gateway else None
        servers = tuple(ipaddress.ip_address(text) for text in parsed.dns)
        return Static(ipaddress.ip_interface(parsed.static), gateway, servers, parsed.interface or "eth0")
    except ValueError as error:
        raise ConfigurationError(f"{error}: give --static as 192.0.2.10/24, the others as 192.0.2.1.") from error


def known_timezone(name: str | None) -> str | None:
    """Return the name if this machine knows it, or knows no time zones at all."""
    if name is None:
        return None
    for each in (name, "Europe/London"):
        try:
            zoneinfo.ZoneInfo(each)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            continue
        if each == name:
            return name
        near = nearest(name, zoneinfo.available_timezones())
        hint = f"did you mean {near}?" if near else "`timedatectl list-timezones` lists them."
        raise ConfigurationError(f"there is no time zone {name!r}: {hint}")
    return name


def own_file(text: str) -> OwnFile:
    """Read a file given as SRC:DST; what lies below /boot/firmware, or is relative, is on the boot partition."""
    source, _, place = text.rpartition(":")
    if not source or not place or place.endswith("/"):
        raise ConfigurationError(f"--file {text!r} is not SRC:DST: give the file here and its name on the card.")
    relative = next((place.removeprefix(each) for each in BOOT_FOLDERS if place.startswith(each)), place)
    if relative in {HOST_KEY, f"{HOST_KEY}.pub", HOST_KEY_CONFIG}:
        raise ConfigurationError(f"{place} is the place of the host key that is made for the card: give another DST.")
    if relative.startswith("/"):
        check_name(relative)
    elif FAT_FORBIDDEN.search(relative) or {"..", ".", ""} & set(relative.split("/")):
        raise ConfigurationError(f"{place!r} cannot be a file's name on a FAT partition: give another DST.")
    try:
        mode = Path(source).stat().st_mode & 0o777
    except OSError as error:
        raise ConfigurationError(f"{source} cannot be read: {reason(error)}.") from error
    return OwnFile(str(PurePosixPath(relative)), read_bounded(Path(source), OWN_FILE_BYTES_MAX), mode)


def small_text(path: Path) -> str:
    """Read a key or password file."""
    try:
        return read_bounded(path, SMALL_FILE_BYTES_MAX).decode()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not text.") from error


def read_bounded(path: Path, bytes_max: int) -> bytes:
    """Read a file; raises ConfigurationError if it cannot be read or is larger than the bound."""
    try:
        with path.open("rb") as file:
            content = file.read(bytes_max + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {reason(error)}.") from error
    if len(content) > bytes_max:
        raise ConfigurationError(f"{path} is larger than {amount(bytes_max)}.")
    return content
