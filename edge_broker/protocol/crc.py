"""CRC-32C, the checksum of record batches.

Of the package crc32c its extension alone is loaded, which takes 0.3 MB: the package asks importlib.metadata for its own
version, and with that come the modules of email and 7 MB.

Contains: the one call into it. Does not contain: a second implementation. Source: RFC 3720 appendix B.4.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

_KEEP_THE_GIL = 0  # 1 MB takes 50 µs; a thread that gives the interpreter away may wait 5 ms for it


def _extension() -> Any:
    package = find_spec("crc32c")
    found = PathFinder.find_spec("_crc32c", (package and package.submodule_search_locations) or [])  # nowhere else
    if found is None or found.loader is None:
        import crc32c  # noqa: PLC0415 - a release whose extension has another name, or none is installed

        return crc32c
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


_sum = _extension().crc32c


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """Return the CRC-32C of the bytes, as an unsigned integer of 32 bits."""
    found: int = _sum(data, 0, _KEEP_THE_GIL)
    return found
