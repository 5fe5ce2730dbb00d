"""PURE: decode Raspberry Pi revision codes by tables.

Source: Raspberry Pi documentation, "Raspberry Pi revision codes". Fields of a new-style code:
| bits | 31 | 30 | 29 | 25 | 23 | 22-20 | 19-16 | 15-12 | 11-4 | 3-0 |
|---|---|---|---|---|---|---|---|---|---|---|
| field | overvoltage | OTP program | OTP read | warranty | new style | memory | maker | processor | model | revision |
Bits 24 and up record the board's treatment, not its type; 31 to 29 are set if something is *not* allowed. Match
fields, never whole codes: new boards have new codes, and a value that is in no table is `None`.
"""

from dataclasses import dataclass

IDENTITY_MASK = 0x00FF_FFFF
OVERVOLTAGE_DISALLOWED = 1 << 31
OTP_PROGRAM_DISALLOWED = 1 << 30
OTP_READ_DISALLOWED = 1 << 29
WARRANTY_VOID = 1 << 25  # by overclocking; never set on a Pi 4 and later
WARRANTY_VOID_OLD_STYLE = 1 << 24
NEW_STYLE = 1 << 23

# Code 7 says "other": the device tree's rpi-sdram-size-gbit tells, see `board.memory_mb`
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
    0x0F: "internal",
    0x10: "CM3+",
    0x11: "4B",
    0x12: "Zero 2 W",
    0x13: "400",
    0x14: "CM4",
    0x15: "CM4S",
    0x16: "internal",
    0x17: "5",
    0x18: "CM5",
    0x19: "500",  # the 500+ has the same code, see `board.model_code`
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
    """The fields of a revision code; None for a field that it lacks."""

    model: str | None = None
    revision: str | None = None
    memory_mb: int | None = None
    maker: str | None = None
    processor: str | None = None
    overvoltage_allowed: bool | None = None
    otp_program_allowed: bool | None = None
    otp_read_allowed: bool | None = None
    warranty_void: bool | None = None


def decode_revision(code: int) -> Revision:
    """Decode a revision code of either style; never raises for a code from 0 to 2**32 - 1."""
    return decode_new_style(code) if code & NEW_STYLE else decode_old_style(code)


def decode_new_style(code: int) -> Revision:
    """Decode a code that is made of fields, as on every board since the 2B."""
    return Revision(
        model=MODELS.get(code >> 4 & 0xFF),
        revision=f"1.{code & 0xF}",
        memory_mb=MEMORY_MB.get(code >> 20 & 0x7),
        maker=MAKERS.get(code >> 16 & 0xF),
        processor=PROCESSORS.get(code >> 12 & 0xF),
        overvoltage_allowed=not code & OVERVOLTAGE_DISALLOWED,
        otp_program_allowed=not code & OTP_PROGRAM_DISALLOWED,
        otp_read_allowed=not code & OTP_READ_DISALLOWED,
        warranty_void=bool(code & WARRANTY_VOID),
    )


def decode_old_style(code: int) -> Revision:
    """Look up one of the first boards' codes, which were numbered one by one."""
    known = OLD_STYLE.get(code & IDENTITY_MASK)
    if known is None:
        return Revision()
    return Revision(*known, PROCESSORS[0], warranty_void=bool(code & WARRANTY_VOID_OLD_STYLE))


def measures_under_voltage(model: str | None) -> bool | None:
    """Return whether a model has the detector: the Zero family and compute modules have none; None for no known model.

    The first A and B have none either; it came with the B+. A name in the device tree's words is understood too.
    """
    if model is None:
        return None
    name = model.removeprefix("Raspberry Pi ")
    return not (name.startswith(("Zero", "CM", "Compute Module")) or name in {"A", "B", "Alpha"})
