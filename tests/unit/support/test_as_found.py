"""A test that leaves something in its process fails with a sentence that names it; the next test finds it as before.

Each case is a file of tests that pytest runs in a process of its own: a test that leaves something, and one after it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

# The test that leaves something, the sentence about it, and what the next test finds.
LEAKS = {
    "level of a logger": (
        "logging.getLogger('aiokafka').setLevel(50)",
        r"level of logger 'aiokafka' is 50, before the test 0; set up logging",
        "logging.getLogger('aiokafka').level == 0",
    ),
    "disabled logger": (
        "logging.getLogger('aiokafka').disabled = True",
        r"disabled of logger 'aiokafka' is True",
        "not logging.getLogger('aiokafka').disabled",
    ),
    "logger that does not propagate": (
        "logging.getLogger('aiokafka').propagate = False",
        r"propagate of logger 'aiokafka' is False",
        "logging.getLogger('aiokafka').propagate",
    ),
    "filter of a logger": (
        "logging.getLogger('kafka').addFilter(lambda record: False)",
        r"filters of logger 'kafka' is \(<function",
        "not logging.getLogger('kafka').filters",
    ),
    "handler of the root logger": (
        "logging.getLogger().addHandler(logging.StreamHandler())",
        r"handlers of the root logger is \(.*<StreamHandler",
        "not [one for one in logging.getLogger().handlers if type(one) is logging.StreamHandler]",
    ),
    "logging.disable": ("logging.disable()", r"logging.disable is 50", "logging.root.manager.disable == 0"),
    "logging by dictConfig": (
        "logging.getLogger('a'); logging.config.dictConfig({'version': 1})",
        r"disabled of logger 'a' is True",
        "not logging.getLogger('a').disabled",
    ),
    "variable of the environment": (
        "os.environ['LEFT'] = 'x'",
        r"\$LEFT is 'x', before the test None; use monkeypatch.setenv",
        "'LEFT' not in os.environ",
    ),
    "variable that is gone": ("del os.environ['PATH']", r"\$PATH is None", "'PATH' in os.environ"),
    "working directory": ("os.chdir('/')", r"the working directory is '/'", "os.getcwd() != '/'"),
    "umask": ("os.umask(0o007)", r"the umask is 7", "os.umask(0o022) != 0o007 or True"),
    "handler of a signal": (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        r"the handler of <Signals.SIGTERM: 15> is <Handlers.SIG_IGN: 1>",
        "signal.getsignal(signal.SIGTERM) == signal.SIG_DFL",
    ),
    "blocked signal": (
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])",
        r"the signal mask is {<Signals.SIGUSR1: 10>}",
        "not signal.pthread_sigmask(signal.SIG_BLOCK, [])",
    ),
    "path of imports": ("sys.path.append('/left')", r"sys.path is \(.*'/left'\)", "'/left' not in sys.path"),
    "garbage collection": ("gc.disable()", r"gc.isenabled\(\) is False", "gc.isenabled()"),
    "limit of descriptors": (
        "resource.setrlimit(resource.RLIMIT_NOFILE, (99, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))",
        r"resource limit 7 is \(99,",
        "resource.getrlimit(resource.RLIMIT_NOFILE)[0] != 99",
    ),
    "thread": (
        "threading.Thread(target=threading.Event().wait, args=(60,), name='left').start()",
        r"thread 'left' still runs; join it",
        "True",
    ),
    "daemon thread": (
        "threading.Thread(target=threading.Event().wait, args=(60,), name='left', daemon=True).start()",
        r"thread 'left' still runs",
        "True",
    ),
    "child": (
        "KEPT.append(subprocess.Popen(['sleep', '600']))",
        r"child \d+ \(sleep 600\) still runs; stop it",
        "KEPT[0].poll() is not None",
    ),
    "child that ended": (
        "KEPT.append(subprocess.Popen(['true'])); os.waitid(os.P_PID, KEPT[0].pid, os.WEXITED | os.WNOWAIT)",
        r"child \d+ \(.*\) ended and nothing waited for it",
        "True",
    ),
    "process of processes.py": (
        "KEPT.append(processes.Process('left', ['sleep', '600'], pathlib.Path(tempfile.mkdtemp())).start())",
        r"child \d+ \(sleep 600\) still runs",
        "not KEPT[0].running and not processes.live()",
    ),
    "port": (
        "KEPT.append(socket.create_server(('127.0.0.1', 0)))",
        r"descriptor \d+ \(a socket that listens on TCP port \d+\) is still open; close it",
        "True",
    ),
    "file": (
        "KEPT.append(open('/dev/null'))",
        r"descriptor \d+ \(/dev/null\) is still open",
        "True",
    ),
}  # fmt: skip

HEAD = """
import gc, logging, logging.config, os, pathlib, resource, signal, socket, subprocess, sys, tempfile, threading
import pytest
from tests.support import left_over, processes
left_over.GRACE_S = 0.2
KEPT = []
"""


def outcomes(tmp_path: Path, text: str) -> tuple[str, dict[str, int]]:
    """Run the tests of a text; return what pytest printed, and how many tests had each outcome."""
    (tmp_path / "test_leaves.py").write_text(HEAD + textwrap.dedent(text))
    words = ["-q", "-p", "no:cacheprovider", "-p", "tests.support.as_found", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stdout.splitlines()[-1]
    return done.stdout, {
        kind.rstrip("s"): int(number) for number, kind in re.findall(r"(\d+) (passed|failed|errors?)", last)
    }


@pytest.fixture(scope="module")
def leaks(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Run all cases in one process, each before a test of what the next test finds."""
    text = "".join(
        f"def test_{n}_leaves(): {leak}\ndef test_{n}_next():\n    assert {then}\n    KEPT.clear()\n"
        for n, (leak, _, then) in enumerate(LEAKS.values())
    )
    said, counts = outcomes(tmp_path_factory.mktemp("leaks"), text)
    assert counts == {"passed": 2 * len(LEAKS), "error": len(LEAKS)}, said[-6000:]
    return said


@pytest.mark.parametrize("leak", LEAKS)
def test_the_test_that_leaves_something_fails_with_a_sentence_about_it(leaks: str, leak: str) -> None:
    number = list(LEAKS).index(leak)
    (said,) = re.findall(rf"_ ERROR at teardown of test_{number}_leaves _(.*?)\n(?:___|===)", leaks, re.DOTALL)
    assert re.search(rf"the test does not leave the process as it found it:\n.*{LEAKS[leak][1]}", said, re.DOTALL), said


def test_a_fixture_of_a_module_that_leaves_settings_fails_the_last_test_of_the_module(tmp_path: Path) -> None:
    said, counts = outcomes(
        tmp_path,
        """
        @pytest.fixture(scope="module", autouse=True)
        def silent():
            logging.getLogger("aiokafka").setLevel(50)
            yield
            os.environ["LEFT"] = "x"
        def test_first(): pass
        def test_last(): pass
        """,
    )
    assert counts == {"passed": 2, "error": 1}
    assert "ERROR at teardown of test_last" in said
    assert "test_leaves.py does not leave the process as it found it" in said
    assert "level of logger 'aiokafka' is 50" in said
    assert "$LEFT is 'x'" in said


def test_what_fixtures_hold_and_stop_is_no_leak(tmp_path: Path) -> None:
    _, counts = outcomes(
        tmp_path,
        """
        @pytest.fixture(scope="module")
        def shared():
            logging.basicConfig(handlers=[], force=True)  # as a command sets up logging: without pytest's handlers
            process = processes.Process("shared", ["sleep", "600"], pathlib.Path(tempfile.mkdtemp())).start()
            with socket.create_server(("127.0.0.1", 0)):
                yield process
            process.kill()
        class Holds:
            def __init__(self): self.descriptor, self.cycle = os.open("/dev/null", os.O_RDONLY), self
            def __del__(self): os.close(self.descriptor)
        @pytest.fixture
        def dropped(): return Holds()
        def test_uses(shared, dropped): pass
        def test_starts_it_again(shared):
            shared.kill()
            shared.start()
        def test_hears_log_lines(caplog):
            logging.getLogger("kafka").warning("heard")
            assert "heard" in caplog.text
        def test_ends_its_own(monkeypatch):
            monkeypatch.setenv("MINE", "x")
            thread = threading.Timer(0.05, lambda: None)
            thread.start()
            with socket.create_server(("127.0.0.1", 0)), subprocess.Popen(["true"]): pass
        """,
    )
    assert counts == {"passed": 4}


def test_a_test_that_fails_has_one_failure_and_its_children_end(tmp_path: Path) -> None:
    _, counts = outcomes(
        tmp_path,
        """
        def test_fails():
            held = socket.create_server(("127.0.0.1", 0))
            KEPT.append(subprocess.Popen(["sleep", "600"]))
            assert 0
        def test_next(): assert KEPT[0].poll() is not None
        """,
    )
    assert counts == {"failed": 1, "passed": 1}


def test_connections_of_a_shared_port_are_of_the_fixture_and_no_others(tmp_path: Path) -> None:
    said, counts = outcomes(
        tmp_path,
        """
        @pytest.fixture(scope="module", params=["shared", "not shared"])
        def port(request):
            with socket.create_server(("127.0.0.1", 0)) as server:
                if request.param == "shared":
                    left_over.share_connections(server.getsockname()[1])
                yield server.getsockname()[1]
        def test_connects(port): KEPT.append(socket.create_connection(("127.0.0.1", port)))
        """,
    )
    assert counts == {"passed": 2, "error": 1}
    assert re.search(r"ERROR at teardown of test_connects\[not shared\]", said)
    assert re.search(r"descriptor \d+ \(.*socket.*\) is still open", said)
