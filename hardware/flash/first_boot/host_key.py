"""Make or read the ssh host key of a board, so that it is known before the first login.

It has a file name of its own, as the first boot removes /etc/ssh/ssh_host_*_key*: Raspberry Pi's script
`regenerate_ssh_host_keys` (called by bookworm's firstboot, elsewhere by a unit) and cloud-init (`ssh_deletekeys`) do.
With a HostKey line sshd offers only that key. cloud-init's own `ssh_keys` would leave the private key on the boot
partition, which any computer and any user of the board can read.

Does not contain: known_hosts (`known_hosts`), the other files of a card (`first_boot`).
"""

import os
import tempfile
from pathlib import Path

from drupelet.errors import ConfigurationError, reason
from hardware.flash.errors import FlashError
from hardware.flash.first_boot.settings import HostKey
from hardware.flash.programs import memory_file, run

KEY_BYTES_MAX = 4096
OWN_KEY_BYTES_MAX = 64 * 1024  # RSA's are larger


def make_host_key() -> HostKey:
    """Make an Ed25519 key by ssh-keygen; the private key is only in memory. Raises FlashError if that fails."""
    with memory_file() as private, tempfile.TemporaryDirectory() as folder:
        name = Path(folder, "key")
        name.symlink_to(f"/proc/self/fd/{private}")  # ssh-keygen writes the public key, no secret, to its folder
        done = run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(name)], b"y\n", files=(private,))
        public = Path(folder, "key.pub")
        if done.returncode or not public.exists():
            said = done.stderr.decode("utf-8", "replace").strip() or "no reason given"
            raise FlashError(f"ssh-keygen made no host key: {said}.")
        return HostKey(os.pread(private, KEY_BYTES_MAX, 0), public.read_text().strip())


def own_host_key(path: Path) -> HostKey:
    """Read a private key of one's own, of any type that ssh-keygen reads; raises ConfigurationError if it reads none.

    ssh-keygen reads a copy in memory, as it refuses a file that others may read.
    """
    try:
        with path.open("rb") as opened:
            private = opened.read(OWN_KEY_BYTES_MAX)
    except OSError as error:
        raise ConfigurationError(f"--host-key {path} cannot be read: {reason(error)}.") from error
    with memory_file(private) as file:
        done = run(["ssh-keygen", "-y", "-P", "", "-f", f"/proc/self/fd/{file}"], files=(file,))
    public = done.stdout.decode("utf-8", "replace").split()
    if done.returncode or len(public) < 2:
        raise ConfigurationError(
            f"--host-key {path} is no private key without a passphrase: give the file without .pub, or make one by "
            "`ssh-keygen -t ed25519 -N '' -f FILE`."
        )
    return HostKey(private, " ".join(public[:2]))
