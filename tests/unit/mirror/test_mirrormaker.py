"""Which topics MirrorMaker 2 brought, by the topics that it makes: the table of topics/mirrormaker.py."""

from __future__ import annotations

import pytest

from mirror.errors import TargetError
from mirror.origins import offset_syncs
from mirror.origins.offset_syncs import OffsetSyncs
from mirror.topics.mirrormaker import alias_of, aliases, is_read, may_keep_its_name, topic_of_sync, without_prefix

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


def sync_key(topic, partition=0):
    """The key of an offset sync, as OffsetSync.recordKey makes it: STRING, INT32."""
    return len(topic).to_bytes(2, "big") + topic.encode() + partition.to_bytes(4, "big")


def test_the_topic_that_an_offset_sync_names():
    assert topic_of_sync(sync_key("plant.t", 7)) == "plant.t"
    assert [topic_of_sync(key) for key in (b"", b"\0", b"\0\5t", sync_key("t") + b"?", b"\xff\xfft\0\0\0\0")] == [
        None
    ] * 5


def test_aliases_whose_topics_keep_their_names():
    own = ["b.checkpoints.internal", "b.heartbeats", "b.s.heartbeats", "b.own", "c.heartbeats", "c.t", "t"]
    there = ["heartbeats", "s.heartbeats", "t", "checkpoints.internal"]
    assert without_prefix(own, {"b", "c"}, there) == {"b"}
    assert without_prefix(own, set(), there) == frozenset()


@pytest.mark.parametrize(
    "name", ["heartbeats", "s.heartbeats", "mm2-configs.b.internal", "s.b.checkpoints.internal", "__consumer_offsets"]
)
def test_what_never_keeps_its_name(name):
    """As a real MirrorMaker 2 has it, 4.3.1: tests/mirrormaker/test_identity.py."""
    assert not may_keep_its_name(name)
    assert all(map(may_keep_its_name, ["t", "connect-internal", "s.mm2-configs.b.internal"]))


class Target:
    """A target that has offset syncs, some keys an answer; `code` is why it refuses."""

    def __init__(self, keys):
        self.keys, self.start, self.asked, self.code = list(keys), 0, [], ""

    async def bounds(self, partitions):
        if self.code:
            raise TargetError(self.code)
        end = self.start + len(self.keys)
        return dict.fromkeys(partitions, self.start), dict.fromkeys(partitions, end)

    async def keys_from(self, partition, offset, bytes_max):
        self.asked.append(offset)
        some = self.keys[offset - self.start :][:2]
        return set(some), offset + len(some)


async def test_offset_syncs_are_read_to_their_end_and_on_from_there():
    target = Target([sync_key("t"), sync_key("u"), b"?"])
    syncs = OffsetSyncs(lambda: target)
    await syncs.read(["mm2-offset-syncs.b.internal"])
    assert (syncs.topics, syncs.is_whole, target.asked) == ({"t", "u"}, True, [0, 2])
    target.keys.append(sync_key("v"))
    await syncs.read(["mm2-offset-syncs.b.internal"])
    assert (syncs.topics, target.asked[2:]) == ({"t", "u", "v"}, [3])


async def test_what_is_read_at_once_is_bounded_and_the_rest_comes_later(monkeypatch):
    monkeypatch.setattr(offset_syncs, "ANSWERS_MAX", 1)
    target = Target([sync_key(name) for name in "tuv"])
    syncs = OffsetSyncs(lambda: target)
    await syncs.read(["mm2-offset-syncs.b.internal"])
    assert (syncs.topics, syncs.is_whole) == ({"t", "u"}, False)
    await syncs.read(["mm2-offset-syncs.b.internal"])
    assert (syncs.topics, syncs.is_whole) == ({"t", "u", "v"}, True)


async def test_where_the_start_was_deleted_they_are_read_from_there():
    target = Target([sync_key("t")])
    target.start = 5
    syncs = OffsetSyncs(lambda: target)
    await syncs.read(["mm2-offset-syncs.b.internal"])
    assert (syncs.topics, target.asked) == ({"t"}, [5])
