"""A shared library for aarch64, called function by function in an emulated processor: no board and no root is needed.

Lives here: loading an ELF file that needs no other, and calling what it exports. Must never come in: what the library
does. Source: the ELF specification, the AArch64 procedure call standard.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from unicorn import arm64_const, unicorn_const
from unicorn.unicorn import Uc

LOAD, DYNAMIC = 1, 2
HASHES, STRINGS, SYMBOLS, SYMBOL_SIZE = 4, 5, 6, 24
GNU_HASHES = 0x6FFFFEF5
RELOCATIONS, RELOCATIONS_BYTES, CALLS, CALLS_BYTES = 7, 8, 23, 2
GLOBAL_DATA, JUMP_SLOT, RELATIVE = 1025, 1026, 1027
PAGE = 0x10000
LIBRARY, STACK, MEMORY = 0x10_0000, 0x100_0000, 0x200_0000
STACK_BYTES, MEMORY_BYTES = 0x1_0000, 0x100_0000
RETURN = 0x8_0000  # where a function goes at its end; nothing lies there
INSTRUCTIONS_MAX = 100_000_000


class EmulatedLibrary:
    """The library of a file; `memory` is MEMORY_BYTES that the caller fills, read and written by address."""

    def __init__(self, path: Path) -> None:
        content = path.read_bytes()
        assert content[:6] == b"\x7fELF\x02\x01"
        assert struct.unpack_from("<H", content, 18) == (183,), "this is no library for aarch64"
        self.memory = MEMORY
        processor: Any = Uc  # its methods have no types
        self._cpu = processor(unicorn_const.UC_ARCH_ARM64, unicorn_const.UC_MODE_ARM)
        for begin, size in ((LIBRARY, STACK - LIBRARY), (STACK, STACK_BYTES), (MEMORY, MEMORY_BYTES), (RETURN, PAGE)):
            self._cpu.mem_map(begin, size)
        self._functions = self._load(content)

    def _load(self, content: bytes) -> dict[str, int]:
        (table,) = struct.unpack_from("<Q", content, 32)
        size, count = struct.unpack_from("<HH", content, 54)
        dynamic: dict[int, int] = {}
        for number in range(count):
            kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", content, table + number * size)
            if kind == LOAD:
                self.write(LIBRARY + address, content[offset : offset + length])
            elif kind == DYNAMIC:
                dynamic = dict(struct.iter_unpack("<QQ", content[offset : offset + length]))
        functions = dict(self._symbol(dynamic, number) for number in range(self._symbols(dynamic)))
        for begin, length in ((RELOCATIONS, RELOCATIONS_BYTES), (CALLS, CALLS_BYTES)):
            for entry in range(0, dynamic.get(length, 0), 24):
                self._relocate(dynamic, self.read(LIBRARY + dynamic[begin] + entry, 24))
        return functions

    def _symbol(self, dynamic: dict[int, int], number: int) -> tuple[str, int]:
        entry = self.read(LIBRARY + dynamic[SYMBOLS] + number * SYMBOL_SIZE, SYMBOL_SIZE)
        name, _, _, _, value, _ = struct.unpack("<IBBHQQ", entry)
        return self.read(LIBRARY + dynamic[STRINGS] + name, 64).split(b"\0")[0].decode(), LIBRARY + value

    def _relocate(self, dynamic: dict[int, int], entry: bytes) -> None:
        place, kind, number, addend = struct.unpack("<QIIq", entry)
        if kind in (GLOBAL_DATA, JUMP_SLOT):
            value = self._symbol(dynamic, number)[1] + addend
        else:
            assert kind == RELATIVE, f"nobody applies a relocation of kind {kind} here"
            value = LIBRARY + addend
        self.write(LIBRARY + place, value.to_bytes(8, "little"))

    def _symbols(self, dynamic: dict[int, int]) -> int:
        """How many symbols there are: the table itself does not say, the table of hashes does."""
        if HASHES in dynamic:
            return int(struct.unpack("<II", self.read(LIBRARY + dynamic[HASHES], 8))[1])
        assert GNU_HASHES in dynamic, "there is no table of hashes"
        begin = LIBRARY + dynamic[GNU_HASHES]
        buckets, first, bloom, _ = struct.unpack("<IIII", self.read(begin, 16))
        begin += 16 + 8 * bloom
        last = max(struct.unpack(f"<{buckets}I", self.read(begin, 4 * buckets)))
        begin += 4 * buckets
        while last >= first and not struct.unpack("<I", self.read(begin + 4 * (last - first), 4))[0] & 1:
            last += 1
        return int(max(last + 1, first))

    def read(self, address: int, size: int) -> bytes:
        """Bytes of the emulated memory."""
        return bytes(self._cpu.mem_read(address, size))

    def write(self, address: int, content: bytes) -> None:
        """Put bytes into the emulated memory."""
        self._cpu.mem_write(address, content)

    def call(self, name: str, *arguments: int) -> int:
        """Call a function with up to eight numbers or addresses; its int."""
        for number, argument in enumerate(arguments):
            self._cpu.reg_write(arm64_const.UC_ARM64_REG_X0 + number, argument & (1 << 64) - 1)
        self._cpu.reg_write(arm64_const.UC_ARM64_REG_SP, STACK + STACK_BYTES - 16)
        self._cpu.reg_write(arm64_const.UC_ARM64_REG_LR, RETURN)
        self._cpu.emu_start(self._functions[name], RETURN, count=INSTRUCTIONS_MAX)
        assert self._cpu.reg_read(arm64_const.UC_ARM64_REG_PC) == RETURN, f"{name} does not come to its end"
        return int(self._cpu.reg_read(arm64_const.UC_ARM64_REG_W0))
