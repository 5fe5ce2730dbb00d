"""PURE. Which topics MirrorMaker 2 brought to the source, perhaps from the target, by the topics that it makes.

It keeps nothing that tells from which cluster a record came: its aliases are names of its own configuration.

| at the source | at the target | topics `ALIAS.…` of the source are |
|---|---|---|
| none of its topics | | a user's own: sent |
| `mm2-configs.ALIAS.internal`, `ALIAS.checkpoints.internal` | no `mm2-offset-syncs.….internal` | a third's: sent |
| one of these | `mm2-offset-syncs.….internal`: it reads the target | refused by name: nothing tells |

It makes `mm2-configs.…` (alone) or `….checkpoints.internal` (in a Connect cluster) where it writes, and
`mm2-offset-syncs.…` where it reads, before it makes any topic. A user may well have a topic `ALIAS.heartbeats`, so that
it tells nothing.

Source: KIP-382, KIP-716; Apache Kafka's DefaultReplicationPolicy and ReplicationPolicy.
Does not contain: requests. With IdentityReplicationPolicy no name tells, and nothing is recognised.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_WRITES = re.compile(r"(?:mm2-configs\.(?P<alias>.+)|(?P<of_checkpoints>.+)\.checkpoints)\.internal")
_OFFSET_SYNCS = re.compile(r"mm2-offset-syncs\..+\.internal")


def aliases(source_topics: Iterable[str]) -> frozenset[str]:
    """Return the clusters from which MirrorMaker 2 brings topics to the source, as it calls them."""
    found = (_WRITES.fullmatch(name) for name in source_topics)
    return frozenset(one["alias"] or one["of_checkpoints"] for one in found if one)


def is_read(topics: Iterable[str]) -> bool:
    """Return whether MirrorMaker 2 reads a cluster, as it does by default where it keeps its offset syncs."""
    return any(map(_OFFSET_SYNCS.fullmatch, topics))


def alias_of(name: str, known: Iterable[str]) -> str | None:
    """Return the alias with which MirrorMaker 2 named a topic, the longest that fits; None for a user's own."""
    return max((alias for alias in known if name.startswith(f"{alias}.")), key=len, default=None)


def refusal(alias: str) -> str:
    """Return why a topic of an alias is refused, as a predicate of the topic."""
    return (
        f"is refused: MirrorMaker 2 brought it from the cluster that it calls {alias}, and nothing tells whether that "
        "is this mirror's target; exclude the topic, or give MirrorMaker 2 patterns that leave out what this mirror "
        "makes"
    )
