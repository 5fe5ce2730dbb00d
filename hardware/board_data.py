"""Raspberry Pi revision codes as tables, and their decoding. Pure: integers in, values out.

Source: Raspberry Pi documentation, "Raspberry Pi revision codes". Fields of a new-style code:
| bits | 31 | 30 | 29 | 25 | 23 | 22-20 | 19-16 | 15-12 | 11-4 | 3-0 |
|---|---|---|---|---|---|---|---|---|---|---|
| field | overvoltage | OTP program | OTP read | warranty | new style | memory | maker | processor | model | revision |
Bits 24 and up say how the board was treated, not what it is; they are masked. Match fields, never whole codes: new
boards bring new codes, and what is not in a table is `None`.
"""

from dataclasses import dataclass

IDENTITY_MASK = 0x00FF_FFFF
NEW_STYLE = 1 << 23
MEMORY_OTHER = 7  # the code cannot say: the device tree's rpi-sdram-size-gbit can

MEMORY_MB = {0: 256, 1: 512, 2: 1024, 3: 2048, 4: 4096, 5: 8192, 6: 16384}
MAKERS = {0: "Sony UK", 1: "Egoman", 2: "Embest", 3: "Sony Japan", 4: "Embest", 5: "Stadium"}
PROCESSORS = {0: "BCM2835", 1: "BCM2836", 2: "BCM2837", 3: "BCM2711", 4: "BCM2712"}
MODELS = {
    0x00: "A",
    0x01: "B",
    0x02: "A+",
    0x03: "B+",
    0x04: "2B",
    0x05: "Alpha",
    0x06: "CM1",
    0x08: "3B",
    0x09: "Zero",
    0x0A: "CM3",
    0x0C: "Zero W",
    0x0D: "3B+",
    0x0E: "3A+",
    0x10: "CM3+",
    0x11: "4B",
    0x12: "Zero 2 W",
    0x13: "400",
    0x14: "CM4",
    0x15: "CM4S",
    0x17: "5",
    0x18: "CM5",
    0x19: "500",  # the 500+ has the same code; its device tree tells
    0x1A: "CM5 Lite",
    0x1B: "CM0",
}

# Old-style codes: (model, revision, memory in MB or None where two were built, maker)
OLD_STYLE: dict[int, tuple[str, str, int | None, str]] = {
    0x0002: ("B", "1.0", 256, "Egoman"),
    0x0003: ("B", "1.0", 256, "Egoman"),
    0x0004: ("B", "2.0", 256, "Sony UK"),
    0x0005: ("B", "2.0", 256, "Qisda"),
    0x0006: ("B", "2.0", 256, "Egoman"),
    0x0007: ("A", "2.0", 256, "Egoman"),
    0x0008: ("A", "2.0", 256, "Sony UK"),
    0x0009: ("A", "2.0", 256, "Qisda"),
    0x000D: ("B", "2.0", 512, "Egoman"),
    0x000E: ("B", "2.0", 512, "Sony UK"),
    0x000F: ("B", "2.0", 512, "Egoman"),
    0x0010: ("B+", "1.2", 512, "Sony UK"),
    0x0011: ("CM1", "1.0", 512, "Sony UK"),
    0x0012: ("A+", "1.1", 256, "Sony UK"),
    0x0013: ("B+", "1.2", 512, "Embest"),
    0x0014: ("CM1", "1.0", 512, "Embest"),
    0x0015: ("A+", "1.1", None, "Embest"),
}


@dataclass(frozen=True)
class Revision:
    """What a revision code tells; None for what it does not."""

    model: str | None
    revision: str | None
    memory_mb: int | None
    maker: str | None
    processor: str | None


def decode_revision(code: int) -> Revision:
    """Decode a revision code of either style; never raises for a code from 0 to 2**32 - 1."""
    if code & NEW_STYLE:
        return Revision(
            model=MODELS.get(code >> 4 & 0xFF),
            revision=f"1.{code & 0xF}",
            memory_mb=MEMORY_MB.get(code >> 20 & 0x7),
            maker=MAKERS.get(code >> 16 & 0xF),
            processor=PROCESSORS.get(code >> 12 & 0xF),
        )
    model, revision, memory_mb, maker = OLD_STYLE.get(code & IDENTITY_MASK, (None, None, None, None))
    return Revision(model, revision, memory_mb, maker, PROCESSORS[0] if model else None)


def measures_under_voltage(model: str | None) -> bool | None:
    """Whether a model has the detector: the Zero family and the compute modules have none; None for no known model.

    The first A and B have none either; it came with the B+.
    """
    if model is None:
        return None
    return not (model.startswith(("Zero", "CM")) or model in {"A", "B", "Alpha"})
