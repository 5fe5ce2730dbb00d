"""The list of the suites is complete, CI runs it, and its runner ends and counts every suite (tests/suites.py)."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.suites import HALF_OF_FAULT, STAGES, Runner, Suite, folders, suites
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]
MAKEFILE = (ROOT / "Makefile").read_text()
CI = (ROOT / ".ci/run").read_text()
PASSES, FAILS, SLEEPS = (
    ("-c", "print('a line of it')"),
    ("-c", "raise SystemExit(3)"),
    ("-c", "import time; time.sleep(600)"),
)


def recipe(target: str) -> str:
    """Return the prerequisites and the commands of a target of the Makefile."""
    found = re.search(rf"^{target}:(.*(?:\n\t.*)*)", MAKEFILE, re.MULTILINE)
    assert found is not None, f"the Makefile has no target {target}"
    return found[1]


def with_tests() -> set[str]:
    """Return the folders below tests/ that have files with tests."""
    files = [path.relative_to(ROOT).parts for path in (ROOT / "tests").rglob("test_*.py")]
    return {"/".join(parts[:2]) for parts in files}


def test_every_folder_with_tests_is_in_a_suite_or_in_the_night() -> None:
    for folder in sorted(with_tests() - set(folders())):
        target = folder.removeprefix("tests/")
        assert re.search(rf"\$\(PYTEST\) .*{folder}\b", recipe(target)), f"no suite and no make {target} runs {folder}"
        assert f"$(MAKE) {target}\n" in recipe("night"), f"make night does not run {folder}"


def test_every_folder_of_a_suite_exists_and_has_tests() -> None:
    assert set(folders()) <= with_tests()


def test_no_folder_is_in_two_suites_but_for_the_halves_of_the_fault_tests() -> None:
    named = [folder for suite in suites() for folder in suite.folders if folder != "tests/fault"]
    assert len(named) == len(set(named))
    halves = [suite.words[suite.words.index("-k") + 1] for suite in suites() if "tests/fault" in suite.folders]
    assert sorted(halves) == sorted([HALF_OF_FAULT, f"not ({HALF_OF_FAULT})"])


def test_each_suite_has_a_name_of_its_own() -> None:
    names = [suite.name for suite in suites()]
    assert len(names) == len(set(names))


def test_make_test_and_ci_run_the_list_and_no_suite_beside_it() -> None:
    assert recipe("test").split("##")[0].split() == ["test-all"]
    assert "$(PYTHON) -m tests.suites $(ARGS)" in recipe("test-all")
    called = re.findall(r"make ([a-z-]+)", "\n".join(line for line in CI.splitlines() if not line.startswith("#")))
    assert "test-all" in called
    ran_by_suites = {
        "test",
        "unit",
        "conformance",
        "differential",
        "fault",
        "e2e",
        "crash",
        "fuzz-walker",
        "fuzz-login",
        "demo",
    }
    assert not ran_by_suites & set(called)


@pytest.mark.parametrize("stage", STAGES, ids=range(1, len(STAGES) + 1))
def test_two_suites_run_at_a_time(stage: tuple[tuple[Suite, ...], ...]) -> None:
    assert len(stage) == 2
    assert all(stage)


def test_every_suite_runs_also_after_one_that_failed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stages = (((Suite("a", FAILS), Suite("b", PASSES)), (Suite("c", FAILS),)), ((Suite("d", PASSES),),))
    runner = Runner(tmp_path)
    assert not runner.run(stages)
    assert {one.name: one.status for one in runner.outcomes} == {"a": 3, "b": 0, "c": 3, "d": 0}
    failures = {path.name: 'failures="1"' in path.read_text() for path in tmp_path.glob("*.step.xml")}
    assert failures == {"a.step.xml": True, "b.step.xml": False, "c.step.xml": True, "d.step.xml": False}
    assert "### FAILED after 0 s: c" in capfd.readouterr().out


def test_the_output_of_every_suite_is_shown_whole(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert Runner(tmp_path).run((((Suite("a", PASSES),), (Suite("b", PASSES), Suite("c", PASSES))),))
    shown = capfd.readouterr().out.splitlines()
    assert shown.count("a line of it") == 3
    assert [line for line in shown if line.startswith("### passed")][1:] == [
        "### passed in 0 s: b",
        "### passed in 0 s: c",
    ]


def test_the_tests_of_a_report_are_counted_and_those_that_failed_are_named(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("def test_passes(): pass\ndef test_fails(): assert 0\n")
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path))
    runner = Runner(tmp_path)
    assert not runner.run((((Suite("a", words, (str(tmp_path),)),),),))
    assert [(one.tests, one.bad) for one in runner.outcomes] == [(2, ("test_one::test_fails",))]


def test_a_suite_that_hangs_ends_with_the_limit_and_the_others_still_run(tmp_path: Path) -> None:
    runner = Runner(tmp_path, seconds=1)
    begin = time.monotonic()
    assert not runner.run((((Suite("a", SLEEPS),), (Suite("b", PASSES),)), ((Suite("c", PASSES),),)))
    assert {one.name: one.status for one in runner.outcomes} == {"a": 124, "b": 0, "c": 0}
    assert time.monotonic() - begin < 300


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("seconds", ["None", "600"])
def test_a_run_that_is_ended_leaves_no_suite(tmp_path: Path, number: signal.Signals, seconds: str) -> None:
    marks = [tmp_path / "pid-a", tmp_path / "pid-b"]
    sleeps = "import os, pathlib, sys, time; pathlib.Path({!r}).write_text(str(os.getpid())); time.sleep(600)"
    lanes = [[("-c", sleeps.format(str(mark)))] for mark in marks]
    script = (
        "import signal, sys; from pathlib import Path; from tests import suites\n"
        "signal.signal(signal.SIGTERM, suites._terminated)\nsuites.END_S = 1\n"
        f"stages = ((tuple((suites.Suite(str(n), w),) for n, (w,) in enumerate({lanes!r}))),)\n"
        f"suites.Runner(Path({str(tmp_path)!r}), {seconds}).run(stages)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stderr=subprocess.PIPE) as runner:
        wait_until(lambda: all(mark.exists() and mark.read_text() for mark in marks), 60, "the suites start")
        runner.send_signal(number)
        runner.communicate()
    for mark in marks:
        wait_until(lambda mark=mark: not Path(f"/proc/{mark.read_text()}").exists(), 60, "a suite ends")
    assert runner.returncode in {128 + signal.SIGTERM, 1, 130, -signal.SIGINT}
