"""A test that leaves something in its process fails with a sentence that names it; the next test finds it as before.

Each case is a file of tests that pytest runs in a process of its own: a test that leaves something, and one after it.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from tests.support.outcomes import HEAD, outcomes

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
        "threading.Thread(target=threading.Event().wait, args=(5,), name='left').start()",
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


def test_a_client_that_a_shared_fixture_opens_for_a_test_ends_with_it(tmp_path: Path) -> None:
    said, counts = outcomes(
        tmp_path,
        """
        class Cluster:
            client = None
            def ask(self):
                if self.client is None:
                    self.client = socket.create_server(("127.0.0.1", 0))
                    left_over.end_with_test(self.forget)
            def forget(self): self.client = None
        @pytest.fixture(scope="module")
        def cluster():
            cluster = Cluster()
            cluster.ask()
            yield cluster
            cluster.ask()
        def test_asks(cluster): cluster.ask()
        def test_asks_again(cluster): cluster.ask()
        def test_does_not_ask(cluster): pass
        """,
    )
    assert counts == {"passed": 3}, said


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


def test_ctrl_c_ends_the_run_and_nothing_is_compared(tmp_path: Path) -> None:
    said, counts = outcomes(
        tmp_path,
        """
        def test_is_interrupted(): raise KeyboardInterrupt
        def test_never_runs(): pass
        """,
    )
    assert counts == {}
    assert "KeyboardInterrupt" in said
    assert "as it found it" not in said
    assert "lost sys.stderr" not in said


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


LISTENS = """
        @pytest.fixture(scope="{scope}")
        def link():
            with socket.create_server(("127.0.0.1", 0)) as first:
                yield KEPT.append(first)
            {end}
        @pytest.fixture
        def cut(link):
            port = KEPT[-1].getsockname()[1]
            KEPT[-1].close()
            KEPT.append(socket.create_server(("127.0.0.1", port)))
        def test_cuts(cut): pass
        def test_cuts_again(cut): pass
"""


@pytest.mark.parametrize("scope", ["module", "session"])
def test_a_listener_of_a_shared_fixture_may_be_closed_and_opened_again_by_a_test(tmp_path: Path, scope: str) -> None:
    said, counts = outcomes(tmp_path, LISTENS.format(scope=scope, end="KEPT.pop().close()"))
    assert counts == {"passed": 2}, said


def test_a_module_closes_the_listener_that_its_tests_opened_again(tmp_path: Path) -> None:
    said, counts = outcomes(tmp_path, LISTENS.format(scope="module", end="pass"))
    assert counts == {"passed": 2, "error": 1}, said
    assert re.search(r"a socket that listens on TCP port \d+\) is still open", said)


def test_a_listener_on_a_port_of_its_own_is_of_the_test(tmp_path: Path) -> None:
    text = LISTENS.format(scope="module", end="KEPT.pop().close()").replace("KEPT[-1].close()", "former = KEPT[-1]")
    another = 'KEPT.append(socket.create_server(("127.0.0.1", 0))); former.close()'  # so that it has another port
    text = text.replace('KEPT.append(socket.create_server(("127.0.0.1", port)))', another)
    said, counts = outcomes(tmp_path, text)
    assert counts == {"passed": 2, "error": 1}, said


IMPORTS = {
    "level of a logger": (
        "logging.getLogger('aiokafka').setLevel(logging.CRITICAL)",
        r"level of logger 'aiokafka' is 50, before the test 0",
    ),
    "logging.disable": ("logging.disable()", r"logging.disable is 50"),
    "variable of the environment": ("os.environ['LEFT'] = 'x'", r"\$LEFT is 'x'"),
    "thread": ("threading.Timer(5, lambda: None).start()", r"thread 'Thread-\d+' still runs"),
    "child": ("KEPT.append(subprocess.Popen(['sleep', '600']))", r"child \d+ \(sleep 600\) still runs"),
    "port": ("KEPT.append(socket.create_server(('127.0.0.1', 0)))", r"a socket that listens on TCP port \d+"),
}
SILENT = "logging.getLogger('aiokafka').level == logging.root.manager.disable == 0 and 'LEFT' not in os.environ"


@pytest.fixture(scope="module")
def imports(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Import all of them in one process, each before a module that finds the process as it was."""
    directory = tmp_path_factory.mktemp("imports")
    for n, (leak, _) in enumerate(IMPORTS.values()):
        (directory / f"test_{n}_leaves.py").write_text(f"{HEAD}{leak}\ndef test_never_runs(): pass\n")
        (directory / f"test_{n}_next.py").write_text(f"{HEAD}assert {SILENT}\ndef test_runs(): pass\n")
    said, counts = outcomes(directory, "", "--continue-on-collection-errors")
    assert counts == {"passed": len(IMPORTS), "error": len(IMPORTS)}, said[-6000:]
    return said


@pytest.mark.parametrize("leak", IMPORTS)
def test_an_import_that_changes_the_process_for_all_tests_is_an_error(imports: str, leak: str) -> None:
    name = f"test_{list(IMPORTS).index(leak)}_leaves.py"
    (said,) = re.findall(rf"_ ERROR collecting {name} _(.*?)\n(?:___|===)", imports, re.DOTALL)
    assert f"the import of {name} does not leave the process as it found it" in said
    assert re.search(IMPORTS[leak][1], said), said


def test_a_finder_of_modules_and_a_handler_that_writes_nothing_may_come_by_an_import(tmp_path: Path) -> None:
    _, counts = outcomes(
        tmp_path,
        """
        class Finder:
            def find_spec(self, *_): return None
        sys.meta_path.append(Finder())
        class NullHandler(logging.Handler):  # as Py4J has it
            def emit(self, record): pass
        logging.getLogger("py4j").addHandler(NullHandler())
        def test_first(): pass
        """,
    )
    assert counts == {"passed": 1}


STARTS = """
        @pytest.fixture(scope="{scope}")
        def shared():
            process = processes.Process("shared", ["sleep", "600"], pathlib.Path(tempfile.mkdtemp())).start()
            thread = threading.Timer(600, lambda: None)
            thread.start()
            with socket.create_server(("127.0.0.1", 0)):
                yield process
            process.kill()
            thread.cancel()
            thread.join()
"""


@pytest.mark.parametrize("scope", ["class", "module", "session"])
def test_a_fixture_of_several_tests_that_a_running_test_asks_for_owns_what_it_starts(
    tmp_path: Path, scope: str
) -> None:
    text = (
        STARTS.format(scope=scope)
        + """
        class TestAll:
            def test_asks(self, request): request.getfixturevalue("shared")
            def test_starts_it_again(self, shared):
                shared.kill()
                shared.start()
            def test_next(self): pass
        def test_after(): pass
    """
    )
    (tmp_path / "test_next.py").write_text("def test_of_another_module(): pass\n")
    said, counts = outcomes(tmp_path, text)
    assert counts == {"passed": 5}, said


def test_a_test_that_asks_for_a_shared_fixture_must_end_what_it_started_itself_before(tmp_path: Path) -> None:
    text = (
        STARTS.format(scope="module")
        + """
        def test_asks(request):
            KEPT.append(processes.Process("left", ["sleep", "599"], pathlib.Path(tempfile.mkdtemp())).start())
            request.getfixturevalue("shared")
        def test_next(): pass
    """
    )
    said, counts = outcomes(tmp_path, text)
    assert counts == {"passed": 2, "error": 1}
    assert re.search(r"child \d+ \(sleep 599\) still runs", said)


def test_a_process_that_a_test_starts_for_a_fixture_of_the_run_outlives_the_module(tmp_path: Path) -> None:
    fixture = """
        @pytest.fixture(scope="session")
        def start():
            def start():
                if not KEPT:
                    KEPT.append(processes.Process("late", ["sleep", "600"], pathlib.Path(tempfile.mkdtemp())))
                    left_over.share(KEPT[0])
                    KEPT[0].start()
                return KEPT[0]
            yield start
            KEPT[0].kill()
    """
    (tmp_path / "conftest.py").write_text(HEAD + textwrap.dedent(fixture))
    (tmp_path / "test_next.py").write_text("def test_uses(start): assert start().running\n")
    said, counts = outcomes(tmp_path, "def test_starts(start): start()\n")
    assert counts == {"passed": 2}, said


LEFT_BY_FIXTURES = {
    "thread": (
        "threading.Thread(target=threading.Event().wait, args=(60,), name='left', daemon=True).start()",
        r"thread 'left' still runs",
    ),
    "child": ("KEPT.append(subprocess.Popen(['sleep', '600']))", r"child \d+ \(sleep 600\) still runs"),
    "process of processes.py": (
        "KEPT.append(processes.Process('left', ['sleep', '600'], pathlib.Path(tempfile.mkdtemp())).start())",
        r"child \d+ \(sleep 600\) still runs",
    ),
    "port": ("KEPT.append(socket.create_server(('127.0.0.1', 0)))", r"a socket that listens on TCP port \d+"),
}


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Run all of them in one process, each in a module of its own."""
    directory = tmp_path_factory.mktemp("fixtures")
    (directory / "conftest.py").write_text(
        HEAD + "@pytest.fixture(scope='session', autouse=True)\n"
        "def of_the_run():\n"
        "    with subprocess.Popen(['sleep', '598']) as child, socket.create_server(('127.0.0.1', 0)):\n"
        "        yield\n"
        "        child.kill()\n"
    )
    for n, (leak, _) in enumerate(LEFT_BY_FIXTURES.values()):
        (directory / f"test_{n}.py").write_text(
            f"{HEAD}@pytest.fixture(scope='module', autouse=True)\n"
            f"def leaves(): {leak}\n"
            f"def test_first(): pass\n"
            f"def test_last_{n}(): pass\n"
        )
    said, counts = outcomes(directory, "")
    assert counts == {"passed": 2 * len(LEFT_BY_FIXTURES), "error": len(LEFT_BY_FIXTURES)}, said[-6000:]
    assert "sleep 598" not in said
    return said


@pytest.mark.parametrize("leak", LEFT_BY_FIXTURES)
def test_a_fixture_of_a_module_that_leaves_something_fails_the_last_test_of_the_module(
    fixtures: str, leak: str
) -> None:
    n = list(LEFT_BY_FIXTURES).index(leak)
    (said,) = re.findall(rf"_ ERROR at teardown of test_last_{n} _(.*?)\n(?:___|===)", fixtures, re.DOTALL)
    assert f"test_{n}.py does not leave the process as it found it" in said
    assert re.search(LEFT_BY_FIXTURES[leak][1], said), said
