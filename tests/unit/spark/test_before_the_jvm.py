"""What `edge-spark` says and refuses before a JVM starts: addresses, memory values, ports, the checkpoint, settings.

Invariants: a mistake is one sentence with its remedy and status 2, what may pass by itself status 1 or a warning; a
checkpoint is one job's, one cluster's, and one process's at a time; what is waited for is said at once, and again.
"""

from __future__ import annotations

import fcntl
import json
import logging
import signal
import socket
import subprocess
from pathlib import Path
from threading import Event
from typing import Any, NoReturn

import pytest

from drupelet.errors import CommandFailed, ConfigurationError
from spark import catalogue, cli, preflight, session, wait_log
from spark.config import BOUNDS, SETTABLE, Settings
from spark.jobs import JOBS
from spark.jvm import jars
from spark.streams import checkpoint
from tests.support.command import in_process
from tests.support.ports import free_port

main = in_process(cli.main)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--bootstrap", "x"], "--bootstrap: 'x' is not HOST:PORT, such as 192.168.1.20:9092"),
        (["--bootstrap", "x:0"], "--bootstrap: 'x:0' has port 0"),
        (["--master", "local[two]"], "--master local[two]: give local[CORES] or spark://HOST:PORT"),
        (["--master", "pi-1:7077"], "pi-1:7077 is no master's URL"),
        (
            ["--set", "spark.driver.memory=12x"],
            "spark.driver.memory=12x: give a size with its unit, such as 512m or 1g",
        ),
        (["--set", "spark.driver.memory=256m"], "spark.driver.memory=256m: Spark needs 472m or more"),
        (["--set", "spark.executor.memory=512"], "spark.executor.memory=512: give a size with its unit"),
    ],
)
def test_a_wrong_word_is_one_sentence_without_a_jvm(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "windows", "--checkpoint", str(tmp_path), *words]) == 2
    assert capsys.readouterr().err.startswith(f"edge-spark: {said}")


def test_a_broker_that_does_not_answer_is_named_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    say_unreachable_brokers(f"127.0.0.1:{port}")
    said = capsys.readouterr().err
    assert f"broker_not_reachable bootstrap=127.0.0.1:{port}" in said
    assert "refuses the connection" in said
    with socket.create_server(("127.0.0.1", 0)) as server:
        say_unreachable_brokers(f"127.0.0.1:{port},127.0.0.1:{server.getsockname()[1]}")
    assert capsys.readouterr().err == ""


def say_unreachable_brokers(bootstrap: str) -> None:
    brokers, masters = preflight.checked_addresses(Settings(bootstrap=bootstrap))
    assert masters == []
    preflight.say_unreachable("broker_not_reachable", brokers, bootstrap=bootstrap)
    preflight.say_unreachable("master_not_reachable", masters)


def test_a_daemon_refuses_a_taken_port_and_a_foreign_address(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert main(["master", "--port", str(port)]) == 2
        assert capsys.readouterr().err == (
            f"edge-spark: 127.0.0.1:{port} is taken by another process: give another --port\n"
        )
    assert main(["master", "--host", "192.0.2.77", "--port", str(free_port())]) == 2
    assert "192.0.2.77" in capsys.readouterr().err
    assert main(["master", "--heap", "lots"]) == 2
    assert capsys.readouterr().err == "edge-spark: --heap=lots: give a size with its unit, such as 512m or 1g\n"


def test_the_master_says_where_it_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def become(*_: Any) -> None:
        raise SystemExit

    monkeypatch.setattr("spark.jvm.standalone.exec_java", become)
    port, web = free_port(), free_port()
    with pytest.raises(SystemExit):
        main(["master", "--port", str(port), "--web-port", str(web)])
    said = capsys.readouterr().err
    assert f"master_starting url=spark://127.0.0.1:{port} web_page=http://127.0.0.1:{web}" in said


def opened(place: Path, job: str = "windows", **changes: Any) -> Any:
    return checkpoint.opened_checkpoint(Settings(checkpoint=str(place), **changes), job)


def test_a_checkpoint_is_one_job_s_topic_s_and_cluster_s(tmp_path: Path) -> None:
    with opened(tmp_path):
        checkpoint.claim_checkpoint(Settings(checkpoint=str(tmp_path)), "windows")
        checkpoint.agree_on_cluster(Settings(checkpoint=str(tmp_path)), "one")
        checkpoint.agree_on_cluster(Settings(checkpoint=str(tmp_path)), None)
    whose = {"job": "windows", "topic": "readings", "window_ms": 10_000, "cluster_id": "one"}
    assert json.loads((tmp_path / "job.json").read_text()) == whose
    with pytest.raises(
        ConfigurationError, match="is the checkpoint of cluster_id=one, not two: give a new --checkpoint"
    ):
        checkpoint.agree_on_cluster(Settings(checkpoint=str(tmp_path)), "two")
    for job, changes in (("alarms", {}), ("windows", {"topic": "other"}), ("windows", {"window_ms": 60_000})):
        with pytest.raises(ConfigurationError, match="is the checkpoint of"), opened(tmp_path, job, **changes):
            pass
    with opened(tmp_path):
        assert json.loads((tmp_path / "job.json").read_text()) == whose


def test_a_job_that_is_refused_claims_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the directory would be refused to the next job, or to this one with another window, though none has run."""
    monkeypatch.setenv(jars.SHIPPED_VARIABLE, str(tmp_path / "missing"))
    assert main(["run", "windows", "--bootstrap", "127.0.0.1:1", "--checkpoint", str(tmp_path / "place")]) == 2
    assert "is missing, and DRUPELET_SPARK_JARS says to fetch none" in capsys.readouterr().err
    assert {path.name for path in (tmp_path / "place").iterdir()} == {"lock"}
    with opened(tmp_path / "place", "alarms", window_ms=60_000):
        pass


def test_a_checkpoint_has_one_user_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert main(["run", "windows", "--checkpoint", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"edge-spark: another edge-spark uses {tmp_path}: stop it, or give another --checkpoint\n"
    )
    with opened(tmp_path), pytest.raises(CommandFailed), opened(tmp_path):
        pass


@pytest.mark.parametrize("content", ["", "{", "[]", "\0\0"])
def test_a_damaged_job_file_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "job.json").write_text(content)
    with pytest.raises(ConfigurationError, match=r"job\.json is damaged .*give a new --checkpoint"), opened(tmp_path):
        pass


def test_what_cannot_be_a_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot be written"), opened(tmp_path / "file"):
        pass
    (tmp_path / "finished_windows_progress").mkdir()
    with pytest.raises(ConfigurationError, match="of an older edge-spark: give a new --checkpoint"), opened(tmp_path):
        pass


def test_list_explains_every_setting_per_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(catalogue.MEANINGS) == set(SETTABLE)
    assert set(catalogue.SUMMARIES) == set(JOBS)
    assert all(catalogue.MEANINGS[key].unit for key in BOUNDS)
    assert main(["list", "alarms"]) == 0
    said = capsys.readouterr().out
    assert "deviation_min=0.1 " in said
    assert "(1e-12 to 1000000000 in the reading's unit)" in said
    assert "window_ms" not in said
    with pytest.raises(SystemExit, match="2"):
        main(["list", "alarm"])
    assert "JOB is 'alarm'; did you mean alarms?" in capsys.readouterr().err


def test_the_driver_listens_on_one_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    loopback = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    assert session.driver_address("local[2]") == loopback
    assert session.driver_address("spark://127.0.0.1:7077,pi-2:7077") == loopback
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert session.driver_address("local") == loopback
    (tmp_path / "spark-defaults.conf").write_text("# told\nspark.driver.host 192.168.1.20\nspark.driver.port=7100\n")
    assert session.driver_address("spark://127.0.0.1:7077") == {"spark.driver.bindAddress": "192.168.1.20"}
    assert session.driver_address("local[2]") == loopback
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.host a\nspark.driver.bindAddress = b\n")
    assert session.driver_address("spark://127.0.0.1:7077") == {}


def test_what_is_waited_for_is_said_at_once_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    again = Event()
    logged: list[tuple[str, dict[str, object]]] = []

    def log(_level: str, event: str, **fields: object) -> None:
        logged.append((event, fields))
        if len(logged) > 1:
            again.set()

    monkeypatch.setattr(wait_log, "REPEAT_S", 0.05)
    monkeypatch.setattr(wait_log, "log", log)
    with wait_log.Wait("waiting_for_jvm", heap="512m"):
        assert logged[0] == ("waiting_for_jvm", {"heap": "512m"})
        assert again.wait(10)
    assert logged[1] == ("waiting_for_jvm", {"heap": "512m", "waited_s": 0})


def test_a_stop_while_spark_starts_kills_the_jvm_and_leaves_logging_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stop = Event()
    stop.set()

    def start() -> NoReturn:
        jvm.wait()
        logging.getLogger("aiokafka").warning("said while the start ends")
        raise OSError("the JVM has ended")

    with subprocess.Popen(["sleep", "600"]) as jvm:
        monkeypatch.setattr(session, "JVMS", [jvm])
        with pytest.raises(session.StoppedError):
            session.started(start, stop)
        assert jvm.wait(10) == -signal.SIGKILL
    assert logging.root.manager.disable == 0
    assert "said while the start ends" in caplog.text
