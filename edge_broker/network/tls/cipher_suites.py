"""Which suites of TLS come first on a machine whose processor has no instructions for AES, as a Raspberry Pi 3 or 4.

There ChaCha20 costs a fifth of what AES in software does, and clients made with OpenSSL, which are most, put AES first
on any machine: so the broker's own order counts. Python's ssl can set that of TLS 1.2 alone; that of TLS 1.3 is
given to OpenSSL as its configuration file would give it, for all contexts that this process makes from then on.

Does not contain: contexts (tls_contexts.py), what a person may choose (tls_settings.py). Source: OpenSSL's
CONF_modules_load_file(3) and SSL_CONF_cmd(3); arm64's Documentation/arch/arm64/elf_hwcaps.
"""

from __future__ import annotations

from edge_broker.network.tls.memory_files import as_file
from edge_broker.tls_settings import OF_TLS_1_3, SUITES

CPUINFO = "/proc/cpuinfo"
AES_FIRST = ":".join(SUITES.values())
CHACHA_FIRST = ":".join(sorted(SUITES.values(), key=lambda name: "CHACHA20" not in name))
"""Suites of TLS 1.2, in both orders."""
_SECTION = "drupelet"
_CONFIGURATION = """\
drupelet = modules
[modules]
ssl_conf = contexts
[contexts]
system_default = suites
[suites]
Ciphersuites = {}
"""


def has_aes() -> bool:
    """Whether the processor has instructions for AES; True where that cannot be known."""
    try:
        with open(CPUINFO, encoding="ascii", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return True
    features = [line.partition(":")[2].split() for line in lines if line.lower().startswith(("flags", "features"))]
    return not features or "aes" in features[0]


def put_chacha_first() -> bool:
    """Let TLS 1.3 take ChaCha20 if the client has it; False if this OpenSSL has no such setting."""
    import _ssl  # noqa: PLC0415 - both only where it matters
    import ctypes  # noqa: PLC0415

    load = getattr(ctypes.CDLL(_ssl.__file__), "CONF_modules_load_file", None)  # of the OpenSSL that Python uses
    if load is None:
        return False
    load.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong]
    suites = ":".join(sorted(OF_TLS_1_3, key=lambda name: ("CHACHA20" not in name, "256" not in name)))
    with as_file(_CONFIGURATION.format(suites)) as path:
        return bool(load(path.encode(), _SECTION.encode(), 0) > 0)
