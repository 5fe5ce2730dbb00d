"""MirrorMaker 2 brings the central Kafka's topics to a site, the mirror the site's to the centre: nothing loops."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mirror_loops import found, topics
from tests.support.mirror_road import FAST, EdgeMirror, create_topic, produce
from tests.support.mirrormaker import mirrormaker
from tests.support.processes import ApacheKafka, EdgeBroker
from tests.support.waiting import wait_until

SYNC_S = 120


@pytest.mark.timeout(600)
def test_what_mirrormaker_brought_is_refused_by_name(tmp_path: Path) -> None:
    with ApacheKafka(tmp_path) as kafka, EdgeBroker(tmp_path) as edge:
        create_topic(edge.bootstrap, "t", 1)
        create_topic(kafka.bootstrap, "u", 1)
        create_topic(edge.bootstrap, "central-t", 1)  # a user's own
        produce(edge.bootstrap, "t", 0, 20)
        produce(edge.bootstrap, "central-t", 0, 5)
        produce(kafka.bootstrap, "u", 0, 10)
        sides = edge.bootstrap, kafka.bootstrap
        settings = {**FAST, "ledger": False}
        with (
            mirrormaker(tmp_path, kafka, edge),
            EdgeMirror(tmp_path / "up", *sides, topics=".*", site="s", settings=settings) as mirror,
        ):
            wait_until(lambda: found(kafka.bootstrap, "s.t") == list(range(20)), SYNC_S, "t is mirrored")
            wait_until(lambda: found(kafka.bootstrap, "s.central-t") == list(range(5)), SYNC_S, "central-t is mirrored")
            for name in ("central.u", "central.s.t"):
                wait_until(lambda name=name: name in topics(edge.bootstrap), SYNC_S, f"MirrorMaker 2 made {name}")
            wait_until(lambda: "MirrorMaker 2 brought it" in mirror.get("/health")[1], SYNC_S, "they are refused")
            produce(edge.bootstrap, "t", 20, 25)
            wait_until(lambda: found(kafka.bootstrap, "s.t") == list(range(25)), SYNC_S, "the mirror goes on")
            assert mirror.get("/health")[0] == 503
        assert not [name for name in topics(edge.bootstrap) if name.startswith("central.s.central.")]
