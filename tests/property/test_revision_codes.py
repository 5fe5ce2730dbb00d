"""Revision codes.

Invariants: every 32-bit code decodes without raising; the bits that say how a board was treated never change what it
is; each field of a new-style code is read from its own bits alone, so what was encoded is decoded; what is not in a
table is None, never a guess.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.board_data import MAKERS, MEMORY_MB, MODELS, OLD_STYLE, PROCESSORS, Revision, decode_revision

CODES = st.integers(0, 2**32 - 1)
TREATMENT_BITS = [31, 30, 29, 25, 24]
T_OF_THE_DOCUMENTATION = {*range(0x07), *range(0x08, 0x0B), *range(0x0C, 0x1C)}


def identity(revision: Revision) -> Revision:
    return replace(
        revision, overvoltage_allowed=None, otp_program_allowed=None, otp_read_allowed=None, warranty_void=None
    )


@given(CODES)
def test_every_code_decodes(code: int) -> None:
    assert isinstance(decode_revision(code), Revision)


@given(CODES, st.sampled_from(TREATMENT_BITS))
def test_treatment_never_changes_identity(code: int, bit: int) -> None:
    assert identity(decode_revision(code)) == identity(decode_revision(code ^ 1 << bit))


@given(
    st.integers(0, 7), st.integers(0, 15), st.integers(0, 15), st.integers(0, 255), st.integers(0, 15),
    st.booleans(), st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_what_was_encoded_is_decoded(
    memory: int,
    maker: int,
    processor: int,
    model: int,
    revision: int,
    over: bool,
    program: bool,
    read: bool,
    void: bool,
) -> None:
    flags = (not over) << 31 | (not program) << 30 | (not read) << 29 | void << 25
    code = flags | 1 << 23 | memory << 20 | maker << 16 | processor << 12 | model << 4 | revision
    assert decode_revision(code) == Revision(
        model=MODELS.get(model),
        revision=f"1.{revision}",
        memory_mb=MEMORY_MB.get(memory),
        maker=MAKERS.get(maker),
        processor=PROCESSORS.get(processor),
        overvoltage_allowed=over,
        otp_program_allowed=program,
        otp_read_allowed=read,
        warranty_void=void,
    )


@given(st.integers(0, 2**23 - 1).filter(lambda code: code not in OLD_STYLE))
def test_unknown_old_codes_are_unknown(code: int) -> None:
    assert decode_revision(code) == Revision()


@pytest.mark.parametrize("code", OLD_STYLE)
@pytest.mark.parametrize("void", [False, True])
def test_old_codes_are_looked_up(code: int, void: bool) -> None:
    model, revision, memory_mb, maker = OLD_STYLE[code]
    found = decode_revision(code | void << 24)
    assert identity(found) == Revision(model, revision, memory_mb, maker, "BCM2835")
    assert (found.warranty_void, found.overvoltage_allowed) == (void, None)


def test_the_tables_are_whole() -> None:
    assert set(MODELS) == T_OF_THE_DOCUMENTATION
    assert set(MEMORY_MB) == set(range(7))  # 7 is "other"
    assert (set(MAKERS), set(PROCESSORS)) == (set(range(6)), set(range(5)))
    assert set(OLD_STYLE) == {*range(0x02, 0x0A), *range(0x0D, 0x16)}


@pytest.mark.parametrize(
    ("code", "model", "memory_mb", "processor"),
    [
        (0xC03115, "4B", 4096, "BCM2711"),
        (0xD04170, "5", 8192, "BCM2712"),
        (0xA04171, "5", 1024, "BCM2712"),
        (0x902120, "Zero 2 W", 512, "BCM2837"),
        (0xA22042, "2B", 1024, "BCM2837"),
        (0xA020D3, "3B+", 1024, "BCM2837"),
        (0xE04190, "500", 16384, "BCM2712"),
        (0x0015, "A+", None, "BCM2835"),
    ],
)
def test_known_codes(code: int, model: str, memory_mb: int | None, processor: str) -> None:
    found = decode_revision(code)
    assert (found.model, found.memory_mb, found.processor) == (model, memory_mb, processor)
