"""Which topics MirrorMaker 2 brought, by the topics that it makes: the table of mirrormaker.py."""

from __future__ import annotations

import pytest

from mirror.mirrormaker import alias_of, aliases, is_read

MADE = ["b.t", "b.checkpoints.internal", "t", "mm2-offset-syncs.c.internal"]


def test_aliases_by_what_it_makes():
    assert aliases(MADE) == {"b"}
    assert aliases(["b.t", "checkpoints.internal", "plant.heartbeats", "heartbeats"]) == frozenset()
    assert aliases(["data.center.checkpoints.internal"]) == {"data.center"}
    assert aliases(["mm2-configs.b.internal", "mm2-offsets.c.internal", "mm2-configs.internal"]) == {"b"}
    assert is_read(MADE)
    assert not is_read(["mm2-offset-syncs..internal", "offset-syncs.b.internal", "mm2-configs.b.internal"])


@pytest.mark.parametrize(
    ("name", "alias"), [("b.t", "b"), ("b", None), ("bt", None), ("x.b.t", None), ("b.c.t", "b.c"), ("b.b.t", "b")]
)
def test_a_topic_of_an_alias(name, alias):
    assert alias_of(name, {"b", "b.c"}) == alias
