"""The tools every other suite stands on: start, wait, stop, kill, cut, nothing left behind."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ports
from tests.support.processes import DeadlineError, Process, ProcessError, TcpProxy, free_port, wait_until
from tests.support.waiting import CALL_S

READY = (  # a handler would not do: a signal just before a sleep begins is handled when that has ended
    "import signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [15]); print('ready', flush=True); "
    "signal.sigwait([15]); sys.exit(0)"
)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_process_starts_stops_and_starts_again(tmp_path):
    process = Process("child", [sys.executable, "-c", READY], tmp_path, ready="ready")
    with process:
        first = process.pid
        process.kill()
        assert not _alive(first)
        assert process.start().pid != first
    assert not process.running


def test_a_child_that_dies_early_is_named_with_its_log(tmp_path):
    code = "import sys; sys.exit('no such card')"
    with pytest.raises(ProcessError, match=r"child is dead \(exit status 1\)[\s\S]*no such card"):
        Process("child", [sys.executable, "-c", code], tmp_path, ready="ready").start()


def test_a_child_that_is_never_ready_is_killed(tmp_path):
    process = Process("child", [sys.executable, "-c", READY], tmp_path, ready="never said", ready_s=0.5)
    with pytest.raises(ProcessError, match="not ready within"):
        process.start()
    assert not process.running


def test_a_failure_status_on_sigterm_is_an_error(tmp_path):
    code = READY.replace("sys.exit(0)", "sys.exit(3)")
    process = Process("child", [sys.executable, "-c", code], tmp_path, ready="ready").start()
    with pytest.raises(ProcessError, match="exit status"):
        process.stop()


def test_nothing_survives_when_the_test_run_is_killed(tmp_path):
    code = f"""
import os, pathlib, sys, time
from tests.support.processes import Process
grandchild = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); " \\
    "print(p.pid, 'ready', flush=True); p.wait()"
process = Process("child", [sys.executable, "-c", grandchild], pathlib.Path({str(tmp_path)!r}), ready="ready").start()
print(process.pid, process.output().split()[0], flush=True)
time.sleep(60)
"""
    root = Path(__file__).parents[3]
    run = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}
    )
    try:
        assert run.stdout is not None
        pids = [int(word) for word in run.stdout.readline().split()]
        assert len(pids) == 2
        assert all(_alive(pid) for pid in pids)
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    wait_until(lambda: not any(_alive(pid) for pid in pids), 10, "the child and its child are gone")


def test_a_port_that_another_run_was_given_is_given_to_nobody():
    one, other = ports.PortClaims(), ports.PortClaims()  # as two runs have it
    try:
        given = [{claims.next_port() for _ in range(3 * ports.BLOCK)} for claims in (one, other)]
        assert not given[0] & given[1]
        assert [len(some) for some in given] == [3 * ports.BLOCK] * 2
    finally:
        one.close()
        other.close()


def test_1000_ports_take_8_descriptors():
    """Clients that wait in select(), paho-mqtt among them, end at descriptor 1024."""
    claims = ports.PortClaims()
    try:
        before = len(os.listdir("/proc/self/fd"))
        assert len({claims.next_port() for _ in range(1000)}) == 1000
        assert len(os.listdir("/proc/self/fd")) - before == 8
    finally:
        claims.close()


def test_a_forked_child_gets_ports_of_its_own():
    claims = ports.PortClaims()
    reader, writer = os.pipe()
    try:
        first = claims.next_port()
        if not (child := os.fork()):
            os.write(writer, " ".join(str(claims.next_port()) for _ in range(2 * ports.BLOCK)).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            given = {int(word) for word in pipe.read().split()}
        os.waitpid(child, 0)
        assert len(given) == 2 * ports.BLOCK
        assert not given & {first, *(claims.next_port() for _ in range(ports.BLOCK - 1))}
    finally:
        claims.close()


def test_free_ports_differ_and_lie_below_the_ephemeral_range():
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    given = [free_port() for _ in range(50)]
    assert len(set(given)) == 50
    assert max(given) < low


def test_wait_until_names_what_it_waited_for():
    with pytest.raises(DeadlineError, match="the moon"):
        wait_until(lambda: 0, 0.05, "the moon")


@pytest.fixture
def echo(tmp_path):
    """A server that sends back what it gets, as a real process."""
    port = free_port()
    code = (
        "import socketserver, sys\n"
        "class Echo(socketserver.BaseRequestHandler):\n"
        "    def handle(self):\n"
        "        while data := self.request.recv(65536): self.request.sendall(data)\n"
        "socketserver.ThreadingTCPServer.allow_reuse_address = True\n"
        "socketserver.ThreadingTCPServer.daemon_threads = True\n"
        f"server = socketserver.ThreadingTCPServer(('127.0.0.1', {port}), Echo)\n"
        "import signal, threading\n"
        "signal.signal(15, lambda *a: threading.Thread(target=server.shutdown).start())\n"
        "print('ready', flush=True); server.serve_forever()\n"
    )
    with Process("echo", [sys.executable, "-c", code], tmp_path, ready="ready"):
        yield f"127.0.0.1:{port}"


def _ask(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    answer = b""
    while len(answer) < len(data):
        more = connection.recv(65536)
        if not more:
            raise ConnectionResetError("closed by the proxy")
        answer += more
    return answer


def test_proxy_forwards_refuses_and_is_restored(echo):
    with TcpProxy(echo) as proxy:
        address = ("127.0.0.1", proxy.port)
        with socket.create_connection(address, timeout=CALL_S) as connection:
            assert _ask(connection, b"x" * 1_000_000) == b"x" * 1_000_000
            proxy.cut("refuse")
            with pytest.raises(OSError):  # noqa: PT011 - reset or end of stream, as the kernel has it
                _ask(connection, b"lost")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=CALL_S)
        proxy.restore()
        with socket.create_connection(address, timeout=CALL_S) as connection:
            assert _ask(connection, b"again") == b"again"
        assert proxy.bytes_up == 1_000_005


def test_blackhole_holds_bytes_back_and_delivers_them_later(echo):
    with TcpProxy(echo) as proxy, socket.create_connection(("127.0.0.1", proxy.port), timeout=CALL_S) as connection:
        assert _ask(connection, b"first") == b"first"
        proxy.cut("blackhole")
        connection.sendall(b"held")
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(10)
        proxy.restore()
        connection.settimeout(CALL_S)
        assert connection.recv(10) == b"held"
