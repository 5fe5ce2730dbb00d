"""Output that nobody reads or that has no room, closed streams and Ctrl-C, in the programs as they are run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from drupelet.command import command_line
from drupelet.errors import CommandFailed, ConfigurationError

ROOT = Path(__file__).parents[3]
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
PROGRAMS = Path(sys.executable).parent
PRINTING = {
    "edge-broker": ["keys"],
    "edge-gateway": ["example"],
    "edge-mirror": ["run", "--help"],
    "edge-spark": ["list"],
    "edge-board": ["show"],
}
EVERY = [(name, words) for name, own in PRINTING.items() for words in (own, ["--help"], ["--version"])]


def run(name: str, words: list[str], redirect: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-c", f'"$0" "$@" {redirect}', str(PROGRAMS / name), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("name", "words"), EVERY)
def test_output_without_room_is_one_sentence_and_status_1(name: str, words: list[str]) -> None:
    ran = run(name, words, "> /dev/full")
    assert (ran.returncode, ran.stderr) == (1, f"{name}: cannot write the output: no space left on device\n")


@pytest.mark.parametrize(("name", "words"), EVERY)
def test_output_that_is_closed_is_one_sentence_and_status_1(name: str, words: list[str]) -> None:
    ran = run(name, words, ">&-")
    assert (ran.returncode, ran.stderr) == (1, f"{name}: cannot write the output: standard output is closed\n")


@pytest.mark.parametrize(("name", "words"), EVERY)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_gone_is_no_word_and_status_141(name: str, words: list[str], unbuffered: str) -> None:
    read, write = os.pipe()
    os.close(read)
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with os.fdopen(write, "wb") as output:
        ran = subprocess.run(
            [PROGRAMS / name, *words], stdout=output, stderr=subprocess.PIPE, text=True, check=False, env=environment
        )
    assert (ran.returncode, ran.stderr) == (141, "")


@pytest.mark.parametrize("redirect", ["2> /dev/full", "2>&-"])
@pytest.mark.parametrize("name", PRINTING)
def test_an_error_that_cannot_be_said_leaves_its_status(name: str, redirect: str) -> None:
    ran = run(name, ["--no-such-option"], redirect)
    assert (ran.returncode, ran.stdout) == (2, "")


def test_a_check_for_nagios_is_unknown_where_its_line_has_no_room() -> None:
    ran = run("edge-board", ["health", "--check", "--mock", "pi_4b"], "> /dev/full")
    assert (ran.returncode, ran.stderr.count("\n")) == (3, 1)


def test_the_data_directory_is_not_blamed_for_a_full_output(tmp_path: Path) -> None:
    broker = subprocess.Popen(
        [PROGRAMS / "edge-broker", "serve", "--data-dir", tmp_path, "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith(b"edge-broker ready")
    finally:
        broker.terminate()
        broker.communicate()
    for words in (["ledger", "--prove"], ["log", "ls"], ["log", "check"]):
        ran = run("edge-broker", [*words, "--data-dir", str(tmp_path)], "> /dev/full")
        assert (ran.returncode, ran.stderr) == (1, "edge-broker: cannot write the output: no space left on device\n")


def test_a_service_that_cannot_say_that_it_is_ready_serves_all_the_same(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        broker = subprocess.Popen(
            [PROGRAMS / "edge-broker", "serve", "--data-dir", tmp_path, "--listen", "127.0.0.1:0"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    try:
        assert broker.stderr is not None
        said = next(line for line in broker.stderr if line.startswith("edge-broker ready on 127.0.0.1:"))
        assert said.endswith("; standard output cannot be told: no space left on device\n")
    finally:
        broker.send_signal(signal.SIGINT)
        broker.communicate()
    assert broker.returncode == 0


def test_log_lines_that_have_no_room_end_no_broker(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        broker = subprocess.Popen(
            [PROGRAMS / "edge-broker", "serve", "--data-dir", tmp_path, "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=full,
        )
    try:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith(b"edge-broker ready")
    finally:
        broker.send_signal(signal.SIGTERM)
        broker.communicate()
    assert broker.returncode == 0


def test_ctrl_c_is_no_word_and_status_130() -> None:
    script = (
        "import signal, sys; from drupelet.command.command_line import run; "
        "sys.exit(run('p', lambda: signal.raise_signal(signal.SIGINT) or print('went on')))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


@pytest.mark.parametrize("program", SCRIPTS)
def test_ctrl_c_is_no_word_while_the_command_is_imported(program: str, tmp_path: Path) -> None:
    (tmp_path / "argparse.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    ran = run_script(program, {"PYTHONPATH": str(tmp_path)})
    assert (ran.returncode, ran.stderr) == (-signal.SIGINT, "")  # which shells call 130


def test_ctrl_c_stays_ignored_where_it_was_before(tmp_path: Path) -> None:
    (tmp_path / "argparse.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nos._exit(7)\n")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # what a child is started with
    try:
        ran = run_script("edge-broker", {"PYTHONPATH": str(tmp_path)})
    finally:
        signal.signal(signal.SIGINT, before)
    assert (ran.returncode, ran.stderr) == (7, "")


def test_ctrl_c_is_no_word_when_the_work_is_done() -> None:
    code = (
        "import atexit, os, signal, sys; from drupelet.command.interrupts import quick_end; quick_end(); "
        "from drupelet.command.command_line import run; atexit.register(os.kill, os.getpid(), signal.SIGINT); "
        "sys.exit(run('p', lambda: print(signal.getsignal(signal.SIGINT) is signal.default_int_handler) or 0))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (-signal.SIGINT, "True\n", "")


def run_script(program: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """What a wheel's installation starts: the console script of pyproject.toml."""
    module, _, function = SCRIPTS[program].partition(":")
    script = f"import sys; from {module} import {function}; sys.exit({function}())"
    command = [sys.executable, "-c", script, "--help"]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, **environment}
    )


def test_a_name_that_is_no_text_can_be_printed(tmp_path: Path) -> None:
    work = "lambda: print(sys.argv[1], '→') or 0"
    script = f"import sys; from drupelet.command.command_line import run; sys.exit(run('p', {work}))"
    ran = subprocess.run(
        [sys.executable, "-c", script, os.fsencode(tmp_path) + b"/\xff"],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )
    assert ran.stdout.endswith(rb"/\udcff \u2192" + b"\n")


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (ConfigurationError("no such key"), 2, "p: no such key\n"),
        (CommandFailed("no such host"), 1, "p: no such host\n"),
        (KeyboardInterrupt(), 130, ""),
        (
            ModuleNotFoundError(name="aiokafka"),
            2,
            "p: the Python package aiokafka is missing: pip install '.[mirror]' ",
        ),
    ],
)
def test_what_ends_a_command(error: BaseException, status: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        raise error

    assert command_line.run("p", work, extra="mirror") == status
    assert capsys.readouterr().err.startswith(said)
    assert command_line.run("p", work, trouble=3) == 3


def test_a_fault_of_ours_is_shown_whole() -> None:
    def work() -> int:
        raise OSError("ours")

    with pytest.raises(OSError, match="ours"):
        command_line.run("p", work)
