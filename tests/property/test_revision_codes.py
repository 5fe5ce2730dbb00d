"""Revision codes.

Invariants: every 32-bit code decodes without raising; the bits that say how a board was treated never change what it
is; each field of a new-style code is read from its own bits alone; what is not in a table is None, never a guess.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hardware.board_data import MAKERS, MEMORY_MB, MODELS, OLD_STYLE, PROCESSORS, decode_revision

CODES = st.integers(0, 2**32 - 1)
TREATMENT_BITS = [31, 30, 29, 25, 24]


@given(CODES, st.sampled_from(TREATMENT_BITS))
def test_treatment_never_changes_identity(code: int, bit: int) -> None:
    assert decode_revision(code) == decode_revision(code ^ 1 << bit)


@given(st.integers(0, 7), st.integers(0, 15), st.integers(0, 15), st.integers(0, 255), st.integers(0, 15))
def test_new_style_fields_are_read_from_their_bits(
    memory: int, maker: int, processor: int, model: int, revision: int
) -> None:
    code = 1 << 23 | memory << 20 | maker << 16 | processor << 12 | model << 4 | revision
    found = decode_revision(code)
    assert found.memory_mb == MEMORY_MB.get(memory)
    assert found.maker == MAKERS.get(maker)
    assert found.processor == PROCESSORS.get(processor)
    assert found.model == MODELS.get(model)
    assert found.revision == f"1.{revision}"


@given(st.integers(0, 2**23 - 1).filter(lambda code: code not in OLD_STYLE))
def test_unknown_old_codes_are_unknown(code: int) -> None:
    found = decode_revision(code)
    assert (found.model, found.revision, found.memory_mb, found.maker, found.processor) == (None,) * 5


def test_known_codes() -> None:
    known = {0xC03115: ("4B", 4096), 0xD04170: ("5", 8192), 0x902120: ("Zero 2 W", 512), 0x0015: ("A+", None)}
    for code, expected in known.items():
        found = decode_revision(code)
        assert (found.model, found.memory_mb) == expected
