"""Where our answers differ from Apache Kafka's today, and why: meant, or to be mended (the row of the trials).

A difference that is not listed fails its case; an entry that no case met fails the suite, so that the list stays
true. `cases` and `path` are patterns (fnmatch); a path is the request's label, a colon and the field.
"""

from __future__ import annotations

import functools
from fnmatch import fnmatchcase
from typing import NamedTuple


class Known(NamedTuple):
    """One kind of difference; `row` is that of the trials, "new" if none has it, or "meant"."""

    row: str
    why: str
    cases: str
    path: str

    def covers(self, label: str, path: str) -> bool:
        """True for a difference at this request and field."""
        return fnmatchcase(f"{label}: {path}", self.path)


KNOWN: tuple[Known, ...] = (
    # APIs and frames
    Known("meant", "ApiVersions tells what is served here", "*", "*: .api_keys.*"),
    Known("meant", "a broker without KRaft has no features", "api-versions-v*", "*: .finalized_features*"),
    Known("meant", "a broker without KRaft has no features", "api-versions-v*", "*: .supported_features*"),
    Known("new", "the name of a client's software is not checked", "api-versions-of-odd-software-*", "*: .error_code"),
    Known("new", "the name of a client's software is not checked", "api-versions-of-odd-software-*", "*: .api_keys"),
    Known(
        "meant",
        "a client id that is no text, or of no possible length, costs the connection",
        "nonsense-*",
        "* client id of length -2: ",
    ),
    Known(
        "meant",
        "a client id that is no text, or of no possible length, costs the connection",
        "nonsense-*",
        "* no UTF-8 in the client id: ",
    ),
    Known(
        "meant", "a negative count that stands for no null costs the connection", "bodies-that-lie-v1", "* count -2: "
    ),
    Known("meant", "__edge_ledger is there from the start", "bodies-that-lie-v1", "* varint of ten bytes: .topics*"),
    # What is there
    Known("B30", "neither name nor id", "metadata-by-id-*", "* neither name nor id: *"),
    Known(
        "meant",
        "a sentence says why, where Kafka says nothing",
        "find-coordinator-of-other-types-*",
        "*: *error_message",
    ),
    Known(
        "new",
        "error_message of success: Kafka's is NONE's up to version 3, then empty",
        "find-coordinator-v*",
        "*: *error_message",
    ),
    # Topics
    *(
        Known("meant", "a topic that is only validated has no id; Kafka's leads nowhere", cases, path)
        for cases, path in (
            ("create-topics-v7", "* validate only: .topics.*.topic_id"),
            ("create-topics-with-edges-of-configs-v7", "*: .topics.*.topic_id"),
        )
    ),
    *(
        Known("meant", why, cases, f"*: .{where}.configs.{key}{field}")
        for cases, where in (("create-topics*", "topics.*"), ("describe-*configs-*", "results.0"))
        for key, field, why in (
            ("edge.*", "*", "settings of ours that Kafka has not"),
            ("segment.bytes", ".value", "segments of 64 MiB: a card holds less, and the oldest data goes by segments"),
            ("flush.ms", ".value", "what nobody waits for is synced within a second, as nobody else has a copy"),
            ("message.timestamp.after.max.ms", ".value", "a board's clock may be wrong: no record is refused for it"),
            ("min.insync.replicas", ".config_source", "Kafka 4 sets it for the whole cluster, for KIP-966"),
        )
    ),
    Known(
        "meant",
        "segments of 64 MiB, see above",
        "describe-configs-*",
        "* synonyms: .results.0.configs.segment.bytes.synonyms.0.value",
    ),
    Known(
        "meant",
        "log.retention.ms has a default, where Kafka's hours have it",
        "describe-configs-*",
        "* synonyms: .results.0.configs.retention.ms.synonyms",
    ),
    Known(
        "meant",
        "log.retention.ms has a default, where Kafka's hours have it",
        "describe-configs-*",
        "* broker: .results.0.configs.log.retention.ms.value",
    ),
    Known(
        "meant",
        "no key of the broker can be altered while it runs",
        "describe-configs-*",
        "* broker: .results.0.configs.*.read_only",
    ),
    Known(
        "meant",
        "version 0 says what is a default; Kafka says of nothing that it is",
        "describe-configs-v0",
        "*: .results.0.configs.*.is_default",
    ),
    Known(
        "meant",
        "an operation that is none is refused; Kafka's controller meets a null pointer",
        "incremental-alter-configs-*",
        "* unknown operation: .responses.*",
    ),
    Known(
        "new",
        "error_message of a topic that is not there: Kafka's is empty",
        "describe-configs-*",
        "* missing topic: .results.0.error_message",
    ),
    Known("new", "no such topic: a sentence, Kafka none", "create-partitions-*", "* missing topic: *error_message"),
    Known("new", "no such topic: a sentence, Kafka none", "create-partitions-*", "* empty name: *error_message"),
    Known("new", "neither name nor id: 100, Kafka 42", "delete-topics-by-id-*", "* neither: *"),
    # Records
    Known("meant", "a sentence says why, where Kafka says nothing", "produce-*", "*: .responses.*error_message"),
    Known("B28", "log_start_offset of a refused batch: -1, Kafka 0", "produce-*", "*: .responses.*log_start_offset"),
    Known(
        "B28",
        "the records that made a batch be refused",
        "produce-to-a-compacted-topic-*",
        "*: .responses.*record_errors",
    ),
    Known("B28", "a transactional id with a plain batch", "produce-odd-*", "* transactional id, plain batch: *"),
    Known("meant", "bytes behind the last batch: refused, Kafka drops them", "produce-bad-*", "* bytes behind: *"),
    Known("meant", "a codec that is none: 87, Kafka UNKNOWN_SERVER_ERROR", "produce-bad-*", "* codec *: *error_code"),
    Known("B23", "message.timestamp.after.max.ms", "produce-bad-*", "* an hour and a half ahead: *"),
    Known(
        "new",
        "a transactional batch without a producer: 87, Kafka 53",
        "produce-bad-*",
        "* transactional without producer: *error_code",
    ),
    Known(
        "new",
        "a partition twice in one request: both are appended, Kafka answers one",
        "produce-odd-*",
        "* a partition twice: *",
    ),
    Known(
        "new",
        "log_append_time_ms of a duplicate: Kafka tells when the first was written",
        "produce-idempotent-*",
        "*: *log_append_time_ms",
    ),
    Known("new", "a negative producer epoch: 87, Kafka 47", "produce-idempotent-*", "* negative epoch: *error_code"),
    Known("new", "an id without an epoch, an epoch without an id: Kafka 42", "init-producer-id-*", "* without *: *"),
    Known("meant", "sessions are declined", "fetch-sessions-*", "*: .session_id"),
    Known("new", "offsets beside an error: ours tell them, Kafka -1", "fetch-v*", "* behind the end: .responses.*"),
    Known("new", "offsets beside an error: ours tell them, Kafka -1", "fetch-v*", "* negative: .responses.*"),
    Known(
        "new",
        "offsets beside a diverging epoch: ours tell them, Kafka -1",
        "fetch-of-other-epochs-*",
        "* last epoch unknown: *",
    ),
    Known("new", "offsets beside an error: ours tell them, Kafka -1", "delete-records-*", "* gone *: .responses.*"),
    Known("meant", "a record that was deleted has no time any more", "delete-records-*", "* nothing: -3: *"),
    Known(
        "new",
        "a partition twice in one request: both are answered, Kafka one",
        "fetch-of-a-partition-twice-*",
        "*: .responses.*",
    ),
    Known("new", "a negative leader epoch: -1, Kafka gives it back", "offset-for-leader-epoch-*", "* negative: *"),
    # Groups
    Known(
        "meant", "OffsetCommit v0 wrote to ZooKeeper, which Kafka 3.9 in KRaft mode has not", "offset-commit-v0", "*: *"
    ),
    Known(
        "new",
        "a partition twice in one request: both are answered, Kafka one",
        "offset-commit-v*",
        "* a partition twice: *",
    ),
)


@functools.cache
def known_for(case_id: str) -> tuple[Known, ...]:
    """The entries that speak of a case."""
    return tuple(known for known in KNOWN if fnmatchcase(case_id, known.cases))
