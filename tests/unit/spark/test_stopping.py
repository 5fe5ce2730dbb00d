"""A session that is stopped: what Spark's own threads print while it stops reaches nobody, what it logs does."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(300)
DEADLINE_S = 120
STOPS = """
from spark.config import Settings
from spark.session import start_session, stop_session

session = start_session(Settings(master="local[1]"), "stopping")
java = session._jvm.java.lang
java.Exception("printed by a running session").printStackTrace()

class Stopping:
    def stop(self):
        java.Exception("printed while Spark stops").printStackTrace()
        session._jvm.org.slf4j.LoggerFactory.getLogger("stopping").error("logged while Spark stops")
        session.stop()

stop_session(Stopping())
"""


def test_a_trace_that_spark_prints_as_it_stops_is_dropped_and_its_log_is_not() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", STOPS], check=True, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert "printed by a running session" in ended.stderr
    assert "logged while Spark stops" in ended.stderr
    assert "printed while Spark stops" not in ended.stderr
