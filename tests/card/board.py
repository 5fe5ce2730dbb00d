"""A board in qemu that starts from a card: what the firmware of a Pi does, done by hand, and ssh to what came up.

Here: kernel, initramfs and options are taken from the card's boot partition, as the firmware does. Never here: a test.
What it cannot show: the firmware itself, Wi-Fi, the hardware watchdog, and that `cgroup_enable=memory` outdoes the
`cgroup_disable=memory` of a Pi's device tree: only Raspberry Pi's kernel knows the first.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from hardware.flash.image.fat import FatPartition
from hardware.flash.image.images import Disk
from hardware.flash.image.tables import partitions
from tests.support.ports import free_port
from tests.support.processes import Process, wait_until

ADDRESS, PREFIX, GATEWAY, DNS = "10.0.2.77", 24, "10.0.2.2", "10.0.2.3"  # qemu's network; its DHCP would give .15
MEMORY_MB = 1024
CONSOLE = "ttyAMA0"  # the firmware turns serial0 into the board's
# An emulated processor on a busy machine needs minutes for what a Pi does in seconds; systemd gives up after 90 s.
PATIENCE = "systemd.default_timeout_start_sec=900 systemd.default_device_timeout_sec=900"
SSH_OPTIONS = ("GlobalKnownHostsFile=/dev/null", "LogLevel=ERROR", "ConnectTimeout=60", "ServerAliveInterval=15")


class Board:
    """One emulated board without internet; `ssh_port` and `kafka_port` on loopback lead to its ports 22 and 9092.

    Who logs in knows the board as `host` by the file `known_hosts` alone: another host key ends every login.
    """

    def __init__(self, card: Path, folder: Path, host: str, user: str, key: Path, known_hosts: Path) -> None:
        self.user, self.key = user, key
        self._known = (f"UserKnownHostsFile={known_hosts}", "StrictHostKeyChecking=yes", f"HostKeyAlias={host}")
        self.ssh_port, self.kafka_port = free_port(), free_port()
        self._emulator = _Emulator(card, folder, {self.ssh_port: 22, self.kafka_port: 9092})

    def start(self) -> None:
        """Switch the board on; returns at once."""
        self._emulator.spawn()

    def cut_power(self) -> None:
        """End it by SIGKILL: nothing in the board's memory is kept."""
        self._emulator.kill()

    def wait_for_login(self, deadline_s: float) -> None:
        """Wait until the user can log in by key; raises with the end of the console when the board is dead."""
        wait_until(self._answers, deadline_s, "a login by ssh", poll_s=1)

    def wait_for_first_boot(self, deadline_s: float) -> None:
        """Wait until cloud-init has ended; it starts the ssh server anew, so a login may fail meanwhile."""
        wait_until(lambda: self._answers("cloud-init status --wait"), deadline_s, "the end of cloud-init", poll_s=1)

    def ssh(self, command: str, deadline_s: float = 120) -> str:
        """Run a command as the user, and return its output; raises with what it said when it fails."""
        done = self._ssh([command], deadline_s)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def refusal(self, *options: str) -> str:
        """Try to log in with these options; returns what ssh says."""
        done = self._ssh(["true"], 120, *options)
        assert done.returncode == 255, done
        return done.stderr

    def console(self) -> str:
        """Return what the board has written to its console since it was switched on."""
        return self._emulator.output() if self._emulator.output_path.exists() else ""

    def ssh_words(self, *options: str) -> list[str]:
        """Give the options that every ssh here needs."""
        return [word for option in (*options, *self._known, *SSH_OPTIONS) for word in ("-o", option)]

    def _answers(self, command: str = "true") -> bool:
        assert self._emulator.running, self._emulator.log_tail() + self.console()[-3000:]
        try:
            return self._ssh([command], 120).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def _ssh(self, words: list[str], deadline_s: float, *options: str) -> subprocess.CompletedProcess[str]:
        login = ["-i", str(self.key), "-p", str(self.ssh_port), f"{self.user}@127.0.0.1"]
        command = ["ssh", *self.ssh_words(*options, "BatchMode=yes", "IdentitiesOnly=yes"), *login, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=deadline_s)


class _Emulator(Process):
    """One emulator for all starts of a board: a fixture that owns the board owns each start."""

    def __init__(self, card: Path, folder: Path, forwards: Mapping[int, int]) -> None:
        """`forwards` lead from ports on loopback to ports of the board."""
        super().__init__("board", [], folder)
        self._card, self._forwards = card, forwards

    def spawn(self) -> None:
        """Read kernel, initramfs and options from the card, and start from them."""
        self.command = self._command()
        super().spawn()

    def _command(self) -> list[str]:
        kernel, initramfs, options = (self._boot_file(name) for name in ("kernel8.img", "initramfs8", "cmdline.txt"))
        line = f"{PATIENCE} {options.read_text().strip().replace('serial0', CONSOLE)}"
        forwards = [f"hostfwd=tcp:127.0.0.1:{port}-{ADDRESS}:{to}" for port, to in self._forwards.items()]
        return [
            "qemu-system-aarch64", "-M", "virt", "-cpu", "cortex-a72", "-smp", "2", "-m", str(MEMORY_MB),
            "-accel", "tcg,thread=multi",
            "-kernel", str(kernel), "-initrd", str(initramfs), "-append", line,
            "-drive", f"if=none,id=card,format=raw,file={self._card}", "-device", "virtio-blk-pci,drive=card",
            "-netdev", ",".join(["user", "id=net", "restrict=on", *forwards]),
            "-device", "virtio-net-pci,netdev=net,romfile=",
            "-device", "virtio-rng-pci", "-display", "none", "-monitor", "none", "-serial", "stdio",
        ]  # fmt: skip

    def _boot_file(self, name: str) -> Path:
        content = FatPartition(self._card, partitions(Disk(self._card).read)[0].start).read(name)
        assert content is not None, f"{name} is not on the boot partition"
        path = self.directory / name
        path.write_bytes(content)
        return path
