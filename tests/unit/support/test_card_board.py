"""The emulated board of tests/card, with a program for the emulator that prints its arguments and lasts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.card.board import Board
from tests.support import processes
from tests.support.card_images import Layout, make_image
from tests.support.outcomes import outcomes

BOOT = {"kernel8.img": "kernel", "initramfs8": "initramfs", "cmdline.txt": "console=serial0,115200 first"}
EMULATOR = '#!/bin/sh\nfor word; do echo "$word"; done\nexec sleep 600\n'


def board_in(folder: Path) -> Board:
    """Return a board with a card whose boot partition holds BOOT."""
    card = make_image(folder / "card", Layout(boot=BOOT))
    return Board(card, folder, "pi-7", "site", folder / "key", folder / "known_hosts")


BOARD = """
from tests.unit.support.test_card_board import board_in
@pytest.fixture(scope="module")
def board(tmp_path_factory):
    found = board_in(tmp_path_factory.mktemp("card"))
    found.start()
    yield found
"""
CUTS = """
def test_cuts_the_power(board):
    board.cut_power()
    board.start()
"""


@pytest.fixture
def emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin/qemu-system-aarch64"
    program.parent.mkdir()
    program.write_text(EMULATOR)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")


@pytest.mark.usefixtures("emulator")
def test_a_test_may_cut_the_power_of_its_modules_board_and_start_it_again(tmp_path: Path) -> None:
    said, counts = outcomes(
        tmp_path,
        f"{BOARD}    found.cut_power()\n{CUTS}def test_uses_it(board): assert len(processes.live()) == 1\n",
    )
    assert counts == {"passed": 2}, said


@pytest.mark.usefixtures("emulator")
def test_a_module_that_leaves_its_board_on_is_found(tmp_path: Path) -> None:
    said, counts = outcomes(
        tmp_path,
        BOARD + CUTS,
    )
    assert counts == {"passed": 1, "error": 1}, said
    assert "(sleep 600) still runs" in said


@pytest.mark.usefixtures("emulator")
def test_each_start_reads_the_card_and_has_a_console_of_its_own(tmp_path: Path) -> None:
    board = board_in(tmp_path)
    assert board.console() == ""
    try:
        for options in ("first", "second"):
            make_image(tmp_path / "card", Layout(boot={**BOOT, "cmdline.txt": f"console=serial0,115200 {options}"}))
            board.start()
            processes.wait_until(lambda: "stdio" in board.console(), 10, "the emulator has printed its arguments")
            assert f"console=ttyAMA0,115200 {options}\n" in board.console()
            board.cut_power()
    finally:
        board.cut_power()
