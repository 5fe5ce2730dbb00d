"""The key by which a board proves to ssh that it is the board: made here, so that it is known before the first login.

It lies under a name of its own, as the first boot removes /etc/ssh/ssh_host_*_key*: Raspberry Pi's script
`regenerate_ssh_host_keys` (called by bookworm's firstboot, elsewhere by a unit) and cloud-init (`ssh_deletekeys`) do.
With a HostKey line sshd offers that key alone. cloud-init's own `ssh_keys` would leave the private key on the boot
partition, which any computer and any user of the board can read.

Never here: known_hosts (`known_hosts`), or which other files belong on a card (`first_boot`).
"""

import os
import tempfile
from pathlib import Path

from hardware.flash.errors import FlashError
from hardware.flash.programs import memory_file, run
from hardware.flash.settings import HostKey

KEY_BYTES_MAX = 4096


def make_host_key() -> HostKey:
    """Make an Ed25519 key by ssh-keygen; the private one is in memory alone. Raises FlashError if that fails."""
    with memory_file() as private, tempfile.TemporaryDirectory() as folder:
        name = Path(folder, "key")
        name.symlink_to(f"/proc/self/fd/{private}")  # beside it ssh-keygen writes the public key, which may be seen
        done = run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(name)], b"y\n", files=(private,))
        public = Path(folder, "key.pub")
        if done.returncode or not public.exists():
            said = done.stderr.decode("utf-8", "replace").strip() or "no reason given"
            raise FlashError(f"ssh-keygen made no host key: {said}.")
        return HostKey(os.pread(private, KEY_BYTES_MAX, 0), public.read_text().strip())
