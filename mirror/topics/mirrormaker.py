"""PURE. Recognises topics that MirrorMaker 2 brought to the source, perhaps from the target, by its internal topics.

It keeps no state from which cluster a record came: its aliases are names of its own configuration.

| at the source | at the target | topics `ALIAS.…` of the source are |
|---|---|---|
| none of its topics | | a user's own: sent |
| `mm2-configs.ALIAS.internal`, `ALIAS.checkpoints.internal` | no `mm2-offset-syncs.….internal` | a third's: sent |
| one of these | `mm2-offset-syncs.….internal`: it reads the target | refused by name: their origin is unknown |

With IdentityReplicationPolicy, as both have such topics, and no topic of the target is `ALIAS.…` at the source:

| a topic | is |
|---|---|
| named by an offset sync at the target | refused by name: MirrorMaker 2 writes the target's records into it |
| of both clusters, and new at the source, until SETTLED_S after its first record | refused by name: a sync may follow |
| named by none, once all were read | sent |
| of both clusters, while they cannot be read | refused by name |

It creates `mm2-configs.…` (alone) or `….checkpoints.internal` (in a Connect cluster) in the cluster that it writes to,
and `mm2-offset-syncs.…` in the one that it reads, before any other topic. It writes a record first, then its offset
sync. Names that end with `heartbeats` get the alias by any policy, so that they prove nothing; nor does
`ALIAS.….internal`.

Source: KIP-382, KIP-716; Apache Kafka's DefaultReplicationPolicy and ReplicationPolicy.
With `offset-syncs.topic.location = target` the target has no such topic, and nothing is recognised.
Does not contain: requests.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

_WRITES = re.compile(r"(?:mm2-configs\.(?P<alias>.+)|(?P<of_checkpoints>.+)\.checkpoints)\.internal")
SETTLED_S = 60.0
_OFFSET_SYNCS = re.compile(r"mm2-offset-syncs\..+\.internal")


def aliases(source_topics: Iterable[str]) -> frozenset[str]:
    """Return the clusters from which MirrorMaker 2 brings topics to the source, by its aliases."""
    found = (_WRITES.fullmatch(name) for name in source_topics)
    return frozenset(one["alias"] or one["of_checkpoints"] for one in found if one)


def is_read(topics: Iterable[str]) -> bool:
    """Return whether MirrorMaker 2 reads a cluster: by default it keeps its offset syncs there."""
    return any(map(_OFFSET_SYNCS.fullmatch, topics))


def alias_of(name: str, known: Iterable[str]) -> str | None:
    """Return the alias with which MirrorMaker 2 named a topic, the longest that fits; None for a user's own."""
    return max((alias for alias in known if name.startswith(f"{alias}.")), key=len, default=None)


def without_prefix(
    source_topics: Iterable[str], known: Collection[str], target_topics: Collection[str]
) -> frozenset[str]:
    """Return those of the known aliases of which no topic is `ALIAS.…` after one of the target."""
    named = set()
    for name in source_topics:
        alias = alias_of(name, known)
        if alias is not None and may_keep_its_name(name) and name.removeprefix(f"{alias}.") in target_topics:
            named.add(alias)
    return frozenset(known) - named


def may_keep_its_name(topic: str) -> bool:
    """Return whether IdentityReplicationPolicy would bring a topic under its own name; not heartbeats, nor internal."""
    is_own = (topic.startswith("mm2") and topic.endswith(".internal")) or topic.endswith(".checkpoints.internal")
    return not (is_own or topic.endswith("heartbeats") or topic.startswith(("__", ".")))


def offset_syncs(topics: Iterable[str]) -> list[str]:
    """Return the topics in which it keeps offset syncs, of those that a cluster has."""
    return sorted(filter(_OFFSET_SYNCS.fullmatch, topics))


def topic_of_sync(key: bytes) -> str | None:
    """Return the topic that the key of an offset sync names (OffsetSync.KEY_SCHEMA: STRING, INT32); None if none."""
    size = int.from_bytes(key[:2], "big")
    if len(key) != 2 + size + 4:
        return None
    return key[2 : 2 + size].decode("utf-8", "replace")


def refusal_without_prefix(*, is_known: bool) -> str:
    """Return why a topic of the same name at both ends is refused, as a predicate of it."""
    verb, doubt = ("mirrors", "") if is_known else ("may mirror", ", and its offset syncs there do not tell yet")
    return (
        f"is refused: MirrorMaker 2 {verb} it from this mirror's target under the same name{doubt}; "
        "exclude the topic, or set accept_from_mirrormaker to a pattern of topics that are sent all the same"
    )


def refusal(alias: str) -> str:
    """Return why a topic of an alias is refused, as a predicate of the topic."""
    return (
        f"is refused: MirrorMaker 2 brought it from the cluster that it calls {alias}, and nothing tells whether that "
        "is this mirror's target; exclude it, give MirrorMaker 2 patterns that leave out what this mirror makes, "
        "or set accept_from_mirrormaker to a pattern of topics that are sent all the same"
    )
