"""A broker that stands alone pays nothing for clusters: neither this package nor kazoo is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import edge_broker

ROOT = Path(edge_broker.__file__).parents[1]
OF_REPLICAS = (
    "metadata.broker_registrations",
    "recovery.truncation_file",
    "replica.replica_log",
    "replica.replica_truncation",
)


def imported_by(code: str) -> set[str]:
    """All modules that are there behind `code`."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return set(done.stdout.split())


def test_a_broker_that_stands_alone_imports_nothing_of_a_cluster() -> None:
    found = imported_by("import edge_broker.app, edge_broker.cli, edge_broker.network.server.listener_server")
    assert "edge_broker.network.server.listener_server" in found
    assert not [name for name in found if name.startswith(("edge_broker.cluster", "kazoo", "edge_broker.network.zoo"))]
    assert all((ROOT / f"edge_broker/storage/{name.replace('.', '/')}.py").exists() for name in OF_REPLICAS)
    assert not found & {f"edge_broker.storage.{name}" for name in OF_REPLICAS}


def test_kazoo_comes_with_the_first_session_alone() -> None:
    found = imported_by("import edge_broker.network.cluster.zookeeper_client")
    assert "edge_broker.cluster.znodes.zookeeper" in found
    assert not [name for name in found if name.startswith("kazoo")]
