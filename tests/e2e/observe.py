"""What the running parts say of themselves (/metrics), and what they cost (RSS and CPU seconds of every process).

Reads only; nothing is started or stopped here.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from prometheus_client.parser import text_string_to_metric_families

ANSWER_S = 1.0


@dataclass(frozen=True)
class Metrics:
    """One scrape: every sample with its labels."""

    samples: tuple[tuple[str, Mapping[str, str], float], ...]

    def total(self, name: str, **labels: str) -> float:
        """The sum of the samples of that name that carry these labels; 0 without any."""
        return sum(
            value
            for sample, carried, value in self.samples
            if sample == name and all(carried.get(label) == wanted for label, wanted in labels.items())
        )


def scrape(url: str) -> Metrics | None:
    """The metrics of one part, or None when it does not answer."""
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:
            text = answer.read().decode()
    except (urllib.error.URLError, OSError):
        return None
    families = text_string_to_metric_families(text)
    return Metrics(tuple((s.name, s.labels, s.value) for family in families for s in family.samples))


class Rates:
    """Per second, from counters read now and then; a counter that falls has been restarted and starts again."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}

    def per_second(self, name: str, value: float, now_s: float) -> float:
        """The rate since this counter was last given; 0 the first time and after a restart."""
        before, then_s = self._last.get(name, (value, now_s))
        self._last[name] = (value, now_s)
        return (value - before) / (now_s - then_s) if now_s > then_s and value >= before else 0.0


@dataclass
class Usage:
    """Memory and time of one part with its children, over all its restarts."""

    rss_bytes: int = 0
    rss_bytes_max: int = 0
    _cpu_s: dict[tuple[int, float], float] = field(default_factory=dict)

    @property
    def cpu_s(self) -> float:
        """User and system seconds of every process that was ever seen in this part."""
        return sum(self._cpu_s.values())

    def sample(self, pid: int) -> None:
        """Look at the process and its children now; those that end meanwhile keep what was last seen of them."""
        rss = 0
        try:
            leader = psutil.Process(pid)
            family = [leader, *leader.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in family:
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    rss += process.memory_info().rss
                    self._cpu_s[process.pid, process.create_time()] = times.user + times.system
            except psutil.NoSuchProcess:
                continue
        self.rss_bytes = rss
        self.rss_bytes_max = max(self.rss_bytes_max, rss)


def spark_queries(checkpoint: Path) -> list[Path]:
    """The checkpoint of each query below this one; folders that Spark deletes meanwhile are passed over."""
    return [Path(folder) for folder, names, _ in os.walk(checkpoint) if "commits" in names]


def spark_batches(query: Path) -> list[int]:
    """The batches that a query has committed."""
    return [int(path.name) for path in (query / "commits").glob("*") if path.name.isdigit()]


def spark_offsets(checkpoint: Path) -> dict[str, dict[int, int]]:
    """The end offsets per topic of the last batch a query has committed, from its checkpoint's own files."""
    done = spark_batches(checkpoint)
    if not done:
        return {}
    # A version line, a line of batch metadata, then one line of JSON per source.
    lines = (checkpoint / "offsets" / str(max(done))).read_text().splitlines()[2:]
    found: dict[str, dict[int, int]] = {}
    for line in lines:
        for topic, ends in json.loads(line).items():
            found[topic] = {int(part): end for part, end in ends.items()}
    return found


def spark_positions(checkpoint: Path, topic: str) -> dict[str, dict[int, int]]:
    """Where each query below the checkpoint stands in the topic, by the query's directory; nowhere before a commit."""
    found = {str(query.relative_to(checkpoint)): spark_offsets(query) for query in spark_queries(checkpoint)}
    return {query: offsets.get(topic, {}) for query, offsets in found.items()}


def behind(position: Mapping[int, int], ends: Mapping[int, int]) -> int:
    """Records between a position and the ends, summed over partitions."""
    return sum(max(0, end - position.get(part, 0)) for part, end in ends.items())


class JournalReader:
    """The lines of a journal that is still growing, as words; a last line without its newline waits for it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self.lines: list[list[str]] = []
        self.counts: Counter[str] = Counter()

    def read(self) -> None:
        """Take in what was written since."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._position)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._position += len(whole)
        for line in whole.decode().splitlines():
            words = line.split()
            self.lines.append(words)
            self.counts[words[0]] += 1
