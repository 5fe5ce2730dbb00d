"""MirrorMaker 2 with IdentityReplicationPolicy beside the mirror: its topics have the same names at both ends.

It brings the central Kafka's topics to a site, and the mirror the site's to the centre; or both go one way.
"""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.support import runtimes
from tests.support.mirror_loops import found, topics
from tests.support.mirror_road import FAST, EdgeMirror, create_topic, produce
from tests.support.mirrormaker import IDENTITY, mirrormaker
from tests.support.processes import ApacheKafka, EdgeBroker
from tests.support.waiting import CALL_S, wait_until

SYNC_S = 120
STILL_S = 20.0  # in which MirrorMaker 2 refreshes its topics several times


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the mirror to its end."""
    words = (str(runtimes.console_script("edge-mirror")), *words)
    return subprocess.run(words, capture_output=True, text=True, timeout=3 * CALL_S, check=False)


def own(bootstrap: str) -> list[str]:
    """Return the topics but those that MirrorMaker 2 makes for itself."""
    return [name for name in topics(bootstrap) if not name.endswith((".internal", "heartbeats"))]


def refused(mirror: EdgeMirror) -> list[str]:
    """Return the topics that a mirror refuses, as MirrorMaker 2 brought them under their own names."""
    said = re.findall(r"([^;]+): is refused: MirrorMaker 2 (?:may )?mirrors? it", mirror.get("/health")[1])
    return sorted(name.strip() for names in said for name in names.split(","))


def wait_still(*brokers: str) -> None:
    """Wait until no topic has been made, and no record written, for a while."""
    last: list[object] = []
    still_at = time.monotonic()

    def is_still() -> bool:
        nonlocal still_at
        now = [[(name, len(found(one, name))) for name in own(one)] for one in brokers]
        if now != last:
            last[:], still_at = now, time.monotonic()
        return time.monotonic() - still_at > STILL_S

    wait_until(is_still, SYNC_S, "both clusters stay as they are", poll_s=1.0)


@pytest.mark.timeout(600)
def test_topics_that_mirrormaker_brings_under_their_own_names_do_not_come_back(tmp_path: Path) -> None:
    """With names of its own the mirror makes `s.t` at the centre, MirrorMaker 2 brings it back, and there it ends."""
    with ApacheKafka(tmp_path) as kafka, EdgeBroker(tmp_path) as edge:
        create_topic(edge.bootstrap, "t", 1)
        create_topic(kafka.bootstrap, "u", 1)
        produce(edge.bootstrap, "t", 0, 20)
        produce(kafka.bootstrap, "u", 0, 10)
        sides, settings = (edge.bootstrap, kafka.bootstrap), {**FAST, "ledger": False}
        with (
            mirrormaker(tmp_path, kafka, edge, IDENTITY),
            EdgeMirror(tmp_path / "up", *sides, topics="t|u|s\\..*", site="s", settings=settings) as mirror,
        ):
            wait_until(lambda: found(edge.bootstrap, "u") == list(range(10)), SYNC_S, "MirrorMaker 2 brought u")
            wait_until(lambda: found(kafka.bootstrap, "s.t") == list(range(20)), SYNC_S, "t is mirrored")
            wait_until(lambda: found(edge.bootstrap, "s.t") == list(range(20)), SYNC_S, "MirrorMaker 2 brought s.t")
            for name in ("u", "s.t"):
                wait_until(lambda name=name: name in refused(mirror), SYNC_S, f"{name} is refused", poll_s=0.5)
            produce(kafka.bootstrap, "u", 10, 15)
            produce(edge.bootstrap, "t", 20, 25)
            wait_still(*sides)
            for words in (["plan"], ["check", "--connect"]):
                told = command(*words, "--source", sides[0], "--target", sides[1], "--topics", "t|u", "--site", "s")
                assert told.returncode == 1, told
                assert "u is refused: MirrorMaker 2 mirrors it" in told.stdout + told.stderr
        assert own(kafka.bootstrap) == ["s.t", "u"]
        assert own(edge.bootstrap) == ["s.t", "t", "u"]
        assert found(kafka.bootstrap, "u") == found(edge.bootstrap, "u") == list(range(15))
        assert found(kafka.bootstrap, "s.t") == found(edge.bootstrap, "s.t") == list(range(25))


@pytest.mark.timeout(600)
def test_a_topic_of_one_name_both_ways_is_refused_once_mirrormaker_brings_it(tmp_path: Path) -> None:
    """It has no records of its own that tell: what it brought until then comes back some times, and no more."""
    with ApacheKafka(tmp_path) as kafka, EdgeBroker(tmp_path) as edge:
        create_topic(edge.bootstrap, "t", 1)
        create_topic(edge.bootstrap, "v", 1)
        produce(edge.bootstrap, "t", 0, 20)
        produce(edge.bootstrap, "v", 0, 5)
        sides, settings = (edge.bootstrap, kafka.bootstrap), {**FAST, "ledger": False, "policy": "identity"}
        more = (*IDENTITY, "central->site.topics = t")
        with (
            mirrormaker(tmp_path, kafka, edge, more),
            EdgeMirror(tmp_path / "up", *sides, topics="t|v", site="s", settings=settings) as mirror,
        ):
            wait_until(lambda: "t" in refused(mirror), SYNC_S, "t is refused", poll_s=0.5)
            produce(edge.bootstrap, "t", 20, 25)
            produce(edge.bootstrap, "v", 5, 10)
            wait_still(*sides)
            assert refused(mirror) == ["t"]
        assert set(found(kafka.bootstrap, "t")) == set(range(20))
        assert found(kafka.bootstrap, "v") == found(edge.bootstrap, "v") == list(range(10))
