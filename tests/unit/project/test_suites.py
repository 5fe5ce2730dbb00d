"""The list of the suites is complete, CI runs it, and its runner ends and counts every suite (tests/suites.py)."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.suites import AT_ONCE, CI_ALONE, CORE, HALF_OF_FAULT, PEOPLE, SUITES, Chosen, Runner, Suite, folders
from tests.support.waiting import CALL_S, wait_until

ROOT = Path(__file__).parents[3]
CLIENTS = {"test_aiokafka", "test_confluent_kafka", "test_java", "test_kafka_python", "test_kcat", "test_tools"}
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


def test_the_night_runs_every_folder_that_has_tests_with_its_mark() -> None:
    files = (ROOT / "tests").glob("[a-z]*/**/test_*.py")
    marked = {"/".join(path.relative_to(ROOT).parts[:2]) for path in files if "pytest.mark.night" in path.read_text()}
    called = re.findall(r"\$\(MAKE\) ([a-z0-9-]+)(.*)", recipe("night"))
    ran = {
        folder
        for target, more in called
        if " -k " not in more
        for folder in re.findall(r"tests/\w+\b(?!/)", recipe(target))
    }
    assert marked
    assert marked - ran == set(), "make night runs no target that has these folders"


def test_every_folder_of_a_suite_exists_and_has_tests() -> None:
    assert set(folders()) <= with_tests()


def test_no_folder_is_in_two_suites_but_for_the_halves_of_the_fault_tests() -> None:
    named = [folder for suite in SUITES for folder in suite.folders if folder != "tests/fault"]
    assert len(named) == len(set(named))
    halves = [suite.words[suite.words.index("-k") + 1] for suite in SUITES if "tests/fault" in suite.folders]
    assert sorted(halves) == sorted([HALF_OF_FAULT, f"not ({HALF_OF_FAULT})"])


def test_each_suite_has_a_name_of_its_own() -> None:
    names = [suite.name for suite in (*SUITES, *PEOPLE)]
    assert len(names) == len(set(names))


def test_make_test_runs_every_unit_property_and_golden_test() -> None:
    whole = sorted(f"tests/unit/{path.parent.name}" for path in (ROOT / "tests/unit").glob("*/test_*.py"))
    named = [folder for suite in PEOPLE for folder in suite.folders]
    assert len(named) == len(set(named))
    assert {*whole, "tests/property", "tests/golden"} <= set(named)
    assert "$(PYTHON) -m tests.suites --people $(ARGS)" in recipe("test")


@pytest.mark.parametrize("chosen", CORE, ids=[chosen.test for chosen in CORE])
def test_each_chosen_test_exists_and_ci_runs_it(chosen: Chosen) -> None:
    name, _, test = chosen.test.partition("::")
    text = (ROOT / "tests" / name).read_text()
    assert not test or re.search(rf"^(async )?def {test}\(", text, re.MULTILINE)
    assert f"tests/{name.partition('/')[0]}" in folders()
    assert chosen.shows


def test_each_file_of_fault_tests_is_chosen_or_has_a_reason_why_ci_alone_runs_it() -> None:
    chosen = {Path(one.test.partition("::")[0]).name for one in CORE if one.test.startswith("fault/")}
    files = {path.name for path in (ROOT / "tests/fault").glob("test_*.py")}
    assert chosen | set(CI_ALONE) == files
    assert chosen & set(CI_ALONE) == set()


def test_make_test_has_each_client_and_a_cluster_that_loses_a_broker() -> None:
    chosen = {Path(one.test.partition("::")[0]).stem for one in CORE}
    assert chosen >= CLIENTS
    assert {"test_gateway", "test_spark", "test_cluster", "test_mirror"} <= chosen


def test_ci_runs_the_list_and_no_suite_beside_it() -> None:
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
        "cluster-simulate",
        "fuzz-walker",
        "fuzz-login",
        "demo",
    }
    assert not ran_by_suites & set(called)


def test_two_suites_run_at_a_time_and_the_next_one_begins_when_the_first_of_them_ends(tmp_path: Path) -> None:
    """The first suite ends after the third, which begins when the second ends."""
    waits = (
        "import pathlib, sys, time\nhere, me = pathlib.Path(sys.argv[1]), sys.argv[2]\n"
        "(here / f'{me}.began').touch()\nrunning = {one.stem for one in here.glob('*.began')} - "
        "{one.stem for one in here.glob('*.ended')}\nend = time.monotonic() + 60\n"
        "while not all((here / name).exists() for name in sys.argv[3:]):\n"
        "    assert time.monotonic() < end\n    time.sleep(0.01)\n"
        "(here / f'{me}.ended').touch()\nraise SystemExit(len(running) > 2)"
    )

    def suite(name: str, *awaited: str) -> Suite:
        return Suite(name, ("-c", waits, str(tmp_path), name, *awaited))

    runner = Runner(tmp_path)
    assert runner.run([suite("long", "third.ended"), suite("short", "long.began"), suite("third", "short.ended")])
    assert runner.outcomes[0].name == "short"
    assert AT_ONCE == 2


def test_every_suite_runs_also_after_one_that_failed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    runner = Runner(tmp_path)
    assert not runner.run([Suite("a", FAILS), Suite("b", PASSES), Suite("c", FAILS), Suite("d", PASSES)])
    assert {one.name: one.status for one in runner.outcomes} == {"a": 3, "b": 0, "c": 3, "d": 0}
    failures = {path.name: 'failures="1"' in path.read_text() for path in tmp_path.glob("*.step.xml")}
    assert failures == {"a.step.xml": True, "b.step.xml": False, "c.step.xml": True, "d.step.xml": False}
    assert re.search(r"^### FAILED after \d+ s: c$", capfd.readouterr().out, re.M)


def test_the_output_of_every_suite_is_shown_whole(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert Runner(tmp_path).run([Suite("a", PASSES), Suite("b", PASSES), Suite("c", PASSES)])
    shown = capfd.readouterr().out.splitlines()
    assert shown.count("a line of it") == 3
    passed = [line.rpartition(" ")[2] for line in shown if line.startswith("### passed")]
    assert sorted(passed) == ["a", "b", "c"]


def test_the_tests_of_a_report_are_counted_and_those_that_failed_are_named(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("def test_passes(): pass\ndef test_fails(): assert 0\n")
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path))
    runner = Runner(tmp_path)
    assert not runner.run([Suite("a", words, (str(tmp_path),))])
    assert [(one.tests, one.bad) for one in runner.outcomes] == [(2, ("test_one::test_fails",))]


def test_a_suite_that_hangs_ends_with_the_limit_and_the_others_still_run(tmp_path: Path) -> None:
    runner = Runner(tmp_path, seconds=1)
    begin = time.monotonic()
    assert not runner.run([Suite("a", SLEEPS), Suite("b", PASSES), Suite("c", PASSES)])
    assert {one.name: one.status for one in runner.outcomes} == {"a": 124, "b": 0, "c": 0}
    assert time.monotonic() - begin < 300


def test_pytest_that_is_ended_by_the_limit_counts_what_ran_and_names_the_test_that_hangs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hangs = "import time\ndef test_passes(): pass\ndef test_hangs():\n    time.sleep(600)\n"
    (tmp_path / "test_one.py").write_text(hangs)
    words = ("-m", "pytest", "-v", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path))
    runner = Runner(tmp_path, seconds=15)
    assert not runner.run([Suite("a", words, (str(tmp_path),))])
    assert [(one.status, one.tests) for one in runner.outcomes] == [(124, 2)], (
        "the test that hangs is in the report, too"
    )
    assert "test_one.py::test_hangs" in capfd.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("seconds", ["None", "600"])
def test_a_run_that_is_ended_leaves_no_suite(tmp_path: Path, number: signal.Signals, seconds: str) -> None:
    marks = [tmp_path / "pid-a", tmp_path / "pid-b"]
    sleeps = "import os, pathlib, sys, time; pathlib.Path({!r}).write_text(str(os.getpid())); time.sleep(600)"
    words = [("-c", sleeps.format(str(mark))) for mark in marks]
    script = (
        "import signal, sys; from pathlib import Path; from tests import suites\n"
        "signal.signal(signal.SIGTERM, suites._terminated)\nsuites.END_S = 1\n"
        f"chosen = [suites.Suite(str(n), w) for n, w in enumerate({words!r})]\n"
        f"suites.Runner(Path({str(tmp_path)!r}), {seconds}).run(chosen)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stderr=subprocess.PIPE) as runner:
        wait_until(lambda: all(mark.exists() and mark.read_text() for mark in marks), 60, "the suites start")
        runner.send_signal(number)
        runner.communicate()
    for mark in marks:
        wait_until(lambda mark=mark: not Path(f"/proc/{mark.read_text()}").exists(), 60, "a suite ends")
    assert runner.returncode in {128 + signal.SIGTERM, 1, 130, -signal.SIGINT}


def run_ci(folder: Path, broken: str) -> tuple[int, list[str], list[str]]:
    """Run CI's script with a `make` that fails where its words have `broken`: the status, its words, all lines."""
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", folder / ".ci/run")
    (folder / "make").write_text(f'#!/bin/sh\necho "$@" >>{folder}/asked\ncase "$*" in *"{broken}"*) exit 2 ;; esac\n')
    (folder / "make").chmod(0o755)
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    command = [folder / ".ci/run"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=CALL_S)
    lines = done.stdout.splitlines()
    return done.returncode, (folder / "asked").read_text().splitlines(), lines


def test_ci_passes_when_every_step_passes_and_measures_abuse_alone(tmp_path: Path) -> None:
    status, asked, lines = run_ci(tmp_path, "no step has this word")
    assert (status, lines[-1]) == (0, f"{len(asked) + 1} passed, 0 failed")
    steps = [re.findall("[a-z-]+", re.sub("--[a-z=0-9-]+ ", "", words))[0] for words in asked]
    first, beside = (
        ["install-check", "check", "install-test", "abuse"],
        ["molecule", "cluster-rounds"],
    )
    assert steps[: len(first)] == first, "abuse measures times, so it runs alone"
    assert [step for step in steps if step in beside] == beside
    assert sorted(steps) == sorted([*first, *beside, "test-all"])


@pytest.mark.parametrize("broken", ["jobs=2", "test-all", "molecule", "cluster-rounds"])
def test_ci_runs_every_step_also_after_one_that_failed_and_names_it(tmp_path: Path, broken: str) -> None:
    status, asked, lines = run_ci(tmp_path, broken)
    assert (status, len(asked), lines[-1]) == (1, 7, "7 passed, 1 failed")
    assert lines[-2].startswith("FAILED step ")
    assert broken in lines[-2]


def test_ci_prints_the_time_of_each_step_and_of_all(tmp_path: Path) -> None:
    _, asked, lines = run_ci(tmp_path, "test-all")
    times = [found[1] for line in lines if (found := re.fullmatch(r" +\d+ s  (.*)", line))]
    assert times[-1] == "all of it"
    assert sorted(times[:-1]) == sorted(f"make {re.sub(' ARGS=.*', '', words)}" for words in asked)
