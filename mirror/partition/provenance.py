"""PURE. Decides which records of a source topic came from the target, by mirrors' state topics at the source.

Each head in a state topic carries an `Origin` (state_records.py). A *claim* is one head as another mirror reads it.
A record is recognised by its batch's producer id, never by a name; T is this mirror's target cluster.

| the writer of a batch, by the claims | the batch |
|---|---|
| is of no claim | is sent: a record of this cluster |
| is of no claim any more, and this mirror noted with its position that it passed the writer over | is passed over |
| every record of the claim has passed T | is passed over |
| no record of the claim has passed T | is sent, and the clusters that it has passed are carried on |
| some may have passed T, and others not (merged on the way) | is unknown: the topic is refused by name |
| is of a claim without origin (last release), made from a topic of T by the topic's id | is passed over |
| is of a claim without origin, made from any other topic | is sent |

| a topic | verdict |
|---|---|
| a batch of one of its writers would be refused | refused |
| records from T lie below the offset from which on its mirror knows its producer ids | refused, until they expire |
| a mirror created it under another name, and all its writers would be passed over | passed over as a whole: not read |
| any other | read; its batches are sent or passed over one by one |

Source: KIP-382 (topics of the target are not sent back), KIP-690 (by name, which IdentityReplicationPolicy cannot).
Does not contain: requests, clocks, log lines, how a head is encoded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal, NamedTuple

from mirror.partition.source_offsets import PASSED_OVER_MAX

PRODUCERS_MAX = 32  # that a head names; batches of an older one lie below `since`
UNKNOWN_SINCE = -1
MERGED = (
    "is refused: some of its records came from this mirror's target, and nothing tells which; exclude the topic, or "
    "give the mirrors that write to it sites and the policy prefix"
)
RIGHTS = "let this mirror's user describe and read the source's topics whose names begin with __edge-mirror-"
UNSEEN = (
    f"this mirror may not see the state topics of other mirrors at the source: {RIGHTS}; or, where no mirror brings "
    "records there from this mirror's target, set accept_unseen to a pattern of topics that are sent all the same"
)
BLIND = f"is refused: nothing tells which of its records came from this mirror's target, as {UNSEEN}"

Fate = Literal["own", "passed_over", "sent", "unknown"]


class Origin(NamedTuple):
    """The origin of the records that a mirror writes to one partition, and how to recognise them.

    `passed` are the clusters that each of them has passed, the mirror's source among them; `perhaps` those that some
    may have passed. `is_alone`: the mirror created the topic under another name, and is its only writer. From the
    target offset `since` on, each batch of the mirror has one of `producers`: ids with the log's end at first use.
    """

    passed: frozenset[str]
    perhaps: frozenset[str] = frozenset()
    is_alone: bool = False
    since: int = 0
    producers: tuple[tuple[int, int], ...] = ()


class Writing(NamedTuple):
    """A producer id that is about to write to a log that ends at `target_end`; `former_id` wrote there before it."""

    producer_id: int
    target_end: int
    former_id: int = -1
    is_new_log: bool = False


def origin_of_writing(stored: Origin | None, found: Origin, writing: Writing) -> Origin:
    """Return the origin to store before `writing`: that `found` at the source now, with that of records in the log."""
    before = _before(stored, found, writing)
    producers = dict(before.producers)
    producers.setdefault(writing.producer_id, 0 if writing.is_new_log else writing.target_end)
    kept = sorted(producers.items(), key=lambda each: each[1])
    left, kept = kept[:-PRODUCERS_MAX], kept[-PRODUCERS_MAX:]
    since = max(before.since, kept[0][1]) if left else before.since
    perhaps = (before.passed | before.perhaps | found.perhaps) - found.passed
    return Origin(found.passed, perhaps, before.is_alone or found.is_alone, since, tuple(kept))


def _before(stored: Origin | None, found: Origin, writing: Writing) -> Origin:
    """Return the origin of the records that the mirror has in the log already."""
    if writing.is_new_log:
        ids = () if stored is None else stored.producers
        return Origin(frozenset(), producers=tuple((producer_id, 0) for producer_id, _ in ids))
    if stored is not None:
        return stored
    if writing.former_id >= 0:  # the state is of a version that stored the last id alone
        since = 0 if writing.former_id == writing.producer_id else writing.target_end
        return Origin(frozenset(), since=since, producers=((writing.former_id, 0),))
    return Origin(frozenset(), since=writing.target_end if found.since == UNKNOWN_SINCE else 0)


def carries(stored: Origin | None, found: Origin | None) -> bool:
    """Return whether the stored origin also holds for records of the origin found, so that no new epoch is needed."""
    if found is None:
        return True
    return stored is not None and stored.passed == found.passed and found.perhaps <= stored.perhaps | stored.passed


class Claim(NamedTuple):
    """A head that a mirror keeps at the source: it writes, or wrote, to this partition of `topic`.

    `state_topic` names the mirror; `origin` is None for a mirror of the last release.
    """

    state_topic: str
    topic: str
    topic_id: str | None
    partition: int
    source_id: str | None
    producer_id: int
    origin: Origin | None

    @property
    def producers(self) -> set[int]:
        """Return all producer ids that it names."""
        return {self.producer_id, *(() if self.origin is None else (each for each, _ in self.origin.producers))} - {-1}


class Target(NamedTuple):
    """The cluster to which this mirror sends: its id, and the ids of its topics, as far as they are known."""

    cluster_id: str
    topic_ids: Collection[str] = frozenset()


class TopicVerdict(NamedTuple):
    """The verdict on a topic; `reason` is a predicate of the topic for a person, empty if all of it is sent.

    `passed_over` are the producer ids whose batches are left out, and `origin` is that of the others.
    """

    kind: Literal["sent", "passed_over", "refused"]
    origin: Origin
    passed_over: frozenset[int] = frozenset()
    reason: str = ""


def is_sent(verdict: TopicVerdict | None) -> bool:
    """Return whether a topic is read; None: nothing is known of any mirror."""
    return verdict is None or verdict.kind == "sent"


class Claims:
    """All claims that were read at one source. A claim is kept, though its state topic is deleted later."""

    def __init__(self) -> None:
        self.version = 0
        """Grows whenever a claim has changed."""
        self._claims: dict[tuple[str, tuple[str, int]], Claim] = {}
        self._by_topic: dict[str, list[Claim]] = {}
        self._by_producer: dict[int, list[Claim]] = {}
        self._former: dict[tuple[str, tuple[str, int]], list[Claim]] = {}

    def __bool__(self) -> bool:
        return bool(self._claims)

    @property
    def names_unknown_clusters(self) -> bool:
        """Return whether one is of the last release, so that the ids of the target's topics are needed."""
        return any(claim.origin is None for claim in self._claims.values())

    def take(self, source_partition: tuple[str, int], claim: Claim) -> None:
        """Note the newest head of a mirror's partition, as it is named at that mirror's source."""
        key = claim.state_topic, source_partition
        before = self._claims.get(key)
        if before == claim:
            return
        claim = _with_known_since(claim, before)
        if before is not None and (before.topic != claim.topic or not before.producers <= claim.producers):
            self._former.setdefault(key, []).append(before)
        self._claims[key] = claim
        self.version += 1
        self._by_topic.clear()
        self._by_producer.clear()

    def newest(self, state_topic: str, source_partition: tuple[str, int]) -> Claim | None:
        """Return the newest head of a mirror's partition."""
        return self._claims.get((state_topic, source_partition))

    def retract(self, state_topic: str, source_partition: tuple[str, int], before: Claim | None) -> None:
        """Note that the transaction of a head was aborted: `before` is the newest one."""
        self._claims.pop((state_topic, source_partition), None)
        if before is not None:
            self._claims[state_topic, source_partition] = before
        self.version += 1
        self._by_topic.clear()
        self._by_producer.clear()

    def _index(self) -> None:
        if self._by_topic or not self._claims:
            return
        for claim in [*self._claims.values(), *(each for some in self._former.values() for each in some)]:
            self._by_topic.setdefault(claim.topic, []).append(claim)
            for producer_id in claim.producers:
                self._by_producer.setdefault(producer_id, []).append(claim)

    def of_topic(self, topic: str) -> list[Claim]:
        """Return the claims of mirrors that write to a topic."""
        self._index()
        return self._by_topic.get(topic, [])

    def names(self, producer_id: int) -> bool:
        """Return whether a claim names a producer."""
        self._index()
        return producer_id in self._by_producer

    def fate_of(self, topic: str, partition: int, producer_id: int, target: Target) -> Fate:
        """Return what becomes of a producer's batches in a partition; of one that no claim names, by its others."""
        self._index()
        claims = self._by_producer.get(producer_id, [])
        here = [claim for claim in claims if claim.topic == topic]
        exactly = [claim for claim in here if claim.partition == partition]
        return _fate(exactly or here or claims, target)

    def unknown_at(self, topic: str, topic_id: str | None, partition: int, offset: int, target: Target) -> str:
        """Return why the writer of a batch at an offset is unknown, if no claim names its producer; empty if one would.

        A partition stream may go back below the position by which its topic was judged.
        """
        for claim in self.of_topic(topic):
            since = _since(claim, topic_id)
            if claim.partition == partition and offset < since and _fate([claim], target) != "sent":
                return _forgotten_reason(claim, since)
        return ""

    def known_from(self, topic: str, topic_id: str | None, partition: int, target: Target) -> int:
        """Return the offset of a partition from which on claims name all writers of batches from the target."""
        claims = [each for each in self.of_topic(topic) if each.partition == partition]
        return max((_since(each, topic_id) for each in claims if _fate([each], target) == "passed_over"), default=0)

    def verdict(
        self, topic: str, topic_id: str | None, source: str, target: Target, read_from: Mapping[int, int]
    ) -> TopicVerdict:
        """Return what becomes of a topic of the cluster `source`; `read_from` is where each partition is read next.

        A claim to a topic that was deleted refuses no other one of its name before a batch of its mirror is there.
        """
        claims = self.of_topic(topic)
        fates = {claim: _fate([claim], target) for claim in claims}
        mixed = [claim for claim in claims if fates[claim] == "unknown" and not _is_of_deleted(claim, topic_id)]
        own = Origin(frozenset({source}))
        if mixed:
            return TopicVerdict("refused", own, reason=_merged_reason(mixed[0]))
        gone = [claim for claim in claims if fates[claim] == "passed_over"]
        for claim in gone:
            since = _since(claim, topic_id)
            if read_from.get(claim.partition, since) < since:
                return TopicVerdict("refused", own, reason=_forgotten_reason(claim, since))
        alone = [claim for claim in claims if _is_alone(claim, topic_id)]
        if alone and len(gone) == len(claims):
            return TopicVerdict("passed_over", own, reason=_whole(alone[0]))
        sent = [claim.origin for claim in claims if fates[claim] == "sent" and claim.origin is not None]
        passed = {source}
        if alone and len({claim.state_topic for claim in claims}) == 1:
            passed |= frozenset.intersection(*(origin.passed for origin in sent)) if sent else set()
        perhaps = {cluster for origin in sent for cluster in origin.passed | origin.perhaps} - passed
        producers = frozenset(producer_id for claim in gone for producer_id in claim.producers)
        origin = Origin(frozenset(passed), frozenset(perhaps))
        return TopicVerdict("sent", origin, producers, _in_part(gone[0]) if gone else "")


def _is_of_deleted(claim: Claim, topic_id: str | None) -> bool:
    """Return whether a claim is to a former topic of the same name."""
    return None not in (claim.topic_id, topic_id) and claim.topic_id != topic_id


def _since(claim: Claim, topic_id: str | None) -> int:
    """Return the offset of a topic from which on a claim names all producers of its mirror."""
    return 0 if claim.origin is None or claim.topic_id != topic_id else claim.origin.since


def _with_known_since(claim: Claim, before: Claim | None) -> Claim:
    """Keep that all producer ids are known from an earlier offset on, though the mirror itself has lost its state."""
    if before is None or before.origin is None or claim.origin is None or before.topic_id != claim.topic_id:
        return claim
    return claim._replace(origin=claim.origin._replace(since=min(claim.origin.since, before.origin.since)))


def _fate(claims: Iterable[Claim], target: Target) -> Fate:
    fates = {_fate_of_claim(claim, target) for claim in claims}
    if not fates:
        return "own"
    return fates.pop() if len(fates) == 1 else "unknown"


def _fate_of_claim(claim: Claim, target: Target) -> Fate:
    if claim.origin is None:
        return "passed_over" if claim.source_id is not None and claim.source_id in target.topic_ids else "sent"
    if target.cluster_id in claim.origin.passed:
        return "passed_over"
    return "unknown" if target.cluster_id in claim.origin.perhaps else "sent"


def _is_alone(claim: Claim, topic_id: str | None) -> bool:
    return claim.origin is not None and claim.origin.is_alone and topic_id is not None and claim.topic_id == topic_id


class Writers:
    """The producers of one source partition: whether the batches of the last one are passed over, and of the others.

    Below `checked_below`, a producer that no claim names is none of a mirror's: its head would have been read.
    `passed_over` has the last producer ids that were passed over; the partition's position is stored with them.
    """

    __slots__ = ("checked_below", "epoch", "known", "passed_over", "passes_over", "producer_id")

    def __init__(self) -> None:
        self.producer_id = self.epoch = -1
        self.passes_over = False
        self.checked_below = 0
        self.known: dict[tuple[int, int], bool] = {}  # by producer id and epoch
        self.passed_over: tuple[int, ...] = ()

    def turn_to(self, producer_id: int, epoch: int, *, passes_over: bool) -> None:
        """Note the writer of the next batch."""
        self.producer_id, self.epoch, self.passes_over = producer_id, epoch, passes_over
        self.known[producer_id, epoch] = passes_over
        if passes_over and producer_id not in self.passed_over:
            self.passed_over = (*self.passed_over, producer_id)[-PASSED_OVER_MAX:]

    def forget(self) -> None:
        """Forget all producers, so that each is looked up again; the id -1 (none) never is."""
        self.known.clear()
        self.producer_id = self.epoch = -1
        self.passes_over = False


def mirror_name(state_topic: str) -> str:
    """Return a mirror's group, by which people know it, from the name of its state topic."""
    return state_topic.removeprefix("__").removesuffix("-state")


def _merged_reason(claim: Claim) -> str:
    return (
        f"is refused: {mirror_name(claim.state_topic)} wrote records into it of which some came from this mirror's "
        "target and others did not, and nothing tells which; exclude the topic, or give that mirror a site and the "
        "policy prefix"
    )


def _forgotten_reason(claim: Claim, since: int) -> str:
    return (
        f"is refused: below offset {since} of partition {claim.partition}, nothing tells which records "
        f"{mirror_name(claim.state_topic)} wrote, as its state was lost; exclude the topic, or wait until they expire"
    )


def _whole(claim: Claim) -> str:
    return (
        f"is passed over: {mirror_name(claim.state_topic)} made it, from records of this mirror's target; records that "
        "others write into it are not sent either"
    )


def _in_part(claim: Claim) -> str:
    return f"is sent without the records that {mirror_name(claim.state_topic)} wrote, as they came from the target"


def deleted_state(state_topic: str) -> str:
    """Return the sentence on a state topic that another mirror keeps at the source, and that was deleted."""
    return (
        f"{state_topic} was deleted at the source: until {mirror_name(state_topic)} has written it again, this mirror "
        "recognises its records as long as it is not restarted"
    )


def same_cluster(cluster_id: str) -> str:
    """Return the sentence that refuses a mirror whose two ends have one cluster id."""
    return (
        f"source and target both have the cluster id {cluster_id}: a mirror needs two clusters. If a card was cloned, "
        "start one of the two brokers with an empty data directory, as that gives it an id of its own "
        "(Apache Kafka: kafka-storage.sh format)."
    )
