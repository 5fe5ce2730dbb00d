"""Each part without its extra says in one line what to install, instead of a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CASES = [
    ("gateway", "prometheus_client", ["run", "--config", "gateway.toml"]),
    ("mirror", "prometheus_client", ["run", "--source", "a:1", "--target", "b:2", "--topics", "x"]),
    ("spark", "pyspark", ["run", "readings"]),
    ("hardware", "psutil", ["health"]),
]
GATEWAY = 'state_dir = "."\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n[board]\ntopic = "b"\n'


@pytest.mark.parametrize(("part", "package", "arguments"), CASES, ids=[case[0] for case in CASES])
def test_a_missing_package_is_named_with_the_extra(
    part: str, package: str, arguments: list[str], tmp_path: Path
) -> None:
    (tmp_path / "gateway.toml").write_text(GATEWAY)
    script = f"import sys; sys.modules[{package!r}] = None; from {part}.cli import main; sys.exit(main({arguments!r}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2, done.stderr
    assert f"the Python package {package}" in done.stderr
    assert f"is missing: pip install '.[{part}]' in a checkout" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_board_of_a_cluster_without_kazoo_is_told_the_extra_that_brings_it(tmp_path: Path) -> None:
    words = ["serve", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    words += ["--set", "broker.id=1", "--set", "zookeeper.connect=127.0.0.1:1"]
    script = f"import sys; sys.modules['kazoo'] = None; from edge_broker.cli import main; sys.exit(main({words!r}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2, done.stderr
    assert "the Python package kazoo" in done.stderr
    assert "is missing: pip install '.[cluster]' in a checkout" in done.stderr
    assert "Traceback" not in done.stderr
