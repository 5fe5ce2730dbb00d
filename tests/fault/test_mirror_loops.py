"""Mirrors that face each other, rings and stars: nothing comes back to where it was.

Real brokers and mirrors as processes. Each test waits until all that may arrive has arrived, and then until both ends
have stayed the same for a while.
"""

from __future__ import annotations

import shutil
import subprocess

from tests.support import runtimes
from tests.support.mirror_road import FAST, EdgeMirror, bounds, create_topic, produce
from tests.support.processes import EdgeBroker
from tests.support.waiting import CALL_S


def command(source, target, name, *more):
    words = [runtimes.console_script("edge-mirror"), name, "--source", source, "--target", target, "--topics", "t"]
    return subprocess.run([*words, *more], capture_output=True, text=True, timeout=CALL_S * 3, check=False)


def assert_refused(source, target, mirror):
    for name, *more in (["run"], ["plan"], ["check", "--connect"]):
        done = command(source, target, name, *more)
        assert done.returncode == 1, (name, done)
        assert "cluster id" in done.stdout + done.stderr, (name, done)
        assert "empty data directory" in done.stdout + done.stderr, (name, done)
    assert not mirror.log_path.exists()


def test_one_cluster_by_two_names_is_refused(tmp_path):
    with EdgeBroker(tmp_path, name="one") as broker:
        create_topic(broker.bootstrap, "t", 1)
        produce(broker.bootstrap, "t", 0, 20)
        other = broker.bootstrap.replace("127.0.0.1", "localhost")
        assert_refused(broker.bootstrap, other, EdgeMirror(tmp_path / "m", broker.bootstrap, other, settings=FAST))
        assert bounds(broker.bootstrap, "t")[1] == 20


def test_a_cloned_card_is_refused_until_it_has_an_empty_data_directory(tmp_path):
    with EdgeBroker(tmp_path, name="one") as first:
        create_topic(first.bootstrap, "t", 1)
        produce(first.bootstrap, "t", 0, 20)
    shutil.copytree(first.data_dir, tmp_path / "clone")
    with first, EdgeBroker(tmp_path, name="two", data_dir=tmp_path / "clone") as second:
        sides = first.bootstrap, second.bootstrap
        assert_refused(*sides, EdgeMirror(tmp_path / "m", *sides, settings=FAST))
        second.stop()
        shutil.rmtree(tmp_path / "clone")
        second.start()
        assert command(*sides, "check", "--connect").returncode == 0
