"""Report a cluster without an executor: batches would wait without end, and Spark logs little about it.

Contains: the count of executors, the times of the reports. Does not contain: batches.
"""

import time

from pyspark.sql import SparkSession

from spark import notify
from spark.config import Settings
from spark.logs import log
from spark.session import OPTIONS, is_local
from spark.wait_log import Wait

PATIENCE_S = 5.0  # a worker starts its executor's JVM in this time


class Executors:
    """Logs that no executor exists after 5 s, again every 15 s, and once when one registers."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._none_since_s: float | None = None
        self._wait: Wait | None = None

    def check(self, session: SparkSession) -> None:
        """Log a report that is due; call it about once a second. Raises JVM_GONE."""
        if is_local(self._settings.master):
            return
        count, now_s = registered_executors(session), time.monotonic()
        if count:
            if self._wait is not None:
                log("info", "executors_registered", executors=count)
            self._none_since_s = self._wait = None
        elif self._none_since_s is None:
            self._none_since_s = now_s
        elif now_s - self._none_since_s >= PATIENCE_S:
            self._say(session)

    def _say(self, session: SparkSession) -> None:
        if self._wait is None:
            self._wait = Wait("no_executor", level="warning", reason=self._reason(session))
        self._wait.say()
        notify.notify("STATUS=waiting: no executor has registered")

    def _reason(self, session: SparkSession) -> str:
        memory = session.conf.get("spark.executor.memory", OPTIONS["spark.executor.memory"])
        return (
            f"no executor has registered, so no batch can run: a worker of {self._settings.master} must be up and have "
            f"{memory} of memory and a core free; its log and the master's page say more"
        )


def registered_executors(session: SparkSession) -> int:
    """Count the executors without the driver, which Spark lists with them."""
    status = session.sparkContext._jsc.sc().getExecutorMemoryStatus()
    return max(0, int(status.size()) - 1)
