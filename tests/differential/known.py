"""Where our answers differ from Apache Kafka's, and why: each by design.

A difference that is not listed fails its case; an entry that no case met fails the suite, so that the list stays
true. `cases` and `path` are patterns (fnmatch); a path is the request's label, a colon and the field.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple


class Known(NamedTuple):
    """One kind of difference, and why it is meant."""

    why: str
    cases: str
    path: str

    def speaks_of(self, case_id: str) -> bool:
        """True for a case that may show it."""
        return fnmatchcase(case_id, self.cases)

    def covers(self, label: str, path: str) -> bool:
        """True for a difference at this request and field."""
        return fnmatchcase(f"{label}: {path}", self.path)


NO_KRAFT = "features belong to KRaft, which a broker of one board has not"
CLIENT_ID = "a client id that is no text, or of no possible length, costs the connection: no client writes one"
SENTENCE = "a sentence says what is wrong and what to do, where Kafka says nothing"
TWICE = "a partition named twice is answered twice; Kafka drops one of the two without a word"
EXCEPTION = "Kafka meets an exception of its own here; we refuse what was asked"
LOG_RETENTION = "log.retention.ms has a default; Kafka's stands in log.retention.hours, which we have not"
SEGMENTS = "segments of 64 MiB: a card holds less than a server's disk, and the oldest data goes by segments"
CLOCK = "a board's clock may be wrong, so no record is refused for its distance to it"
DELETED = "a record that was deleted has no time any more; Kafka finds it while its segment is there"
NO_ID = "a topic that is only validated has no id; Kafka's leads nowhere"

KNOWN: tuple[Known, ...] = (
    # APIs and frames
    Known("ApiVersions tells what is served here", "*", "*: .api_keys.*"),
    Known(NO_KRAFT, "api-versions-v*", "*: .finalized_features*"),
    Known(NO_KRAFT, "api-versions-v*", "*: .supported_features*"),
    Known(CLIENT_ID, "nonsense-*", "* client id of length -2: "),
    Known(CLIENT_ID, "nonsense-*", "* no UTF-8 in the client id: "),
    Known(
        "a negative count that stands for no null costs the connection: no client writes one",
        "bodies-that-lie-v1",
        "* count -2: ",
    ),
    Known("__edge_ledger is there from the start", "bodies-that-lie-v1", "* varint of ten bytes: .topics*"),
    # What is there
    Known(EXCEPTION, "metadata-by-id-*", "* neither name nor id: *"),
    Known(SENTENCE, "find-coordinator-of-other-types-*", "*: *error_message"),
    # Where partitions lie
    Known("each names its own directory", "describe-log-dirs-*", "*: .results.0.log_dir"),
    Known("what is free changes", "describe-log-dirs-v4", "*: .results.0.usable_bytes"),
    Known(SENTENCE, "alter-partition-reassignments-*", "*: .responses.*error_message"),
    # Topics
    Known(NO_ID, "create-topics-v7", "* validate only: .topics.*.topic_id"),
    Known(NO_ID, "create-topics-with-edges-of-configs-v7", "*: .topics.*.topic_id"),
    *(
        Known(why, cases, f"*: .{where}.configs.{key}{field}")
        for cases, where in (("create-topics*", "topics.*"), ("describe-*configs-*", "results.0"))
        for key, field, why in (
            ("edge.*", "*", "settings of ours that Kafka has not"),
            ("segment.bytes", ".value", SEGMENTS),
            ("flush.ms", ".value", "what nobody waits for is synced within a second, as nobody else has a copy"),
            ("message.timestamp.after.max.ms", ".value", CLOCK),
            ("min.insync.replicas", ".config_source", "Kafka 4 sets it for its whole cluster, for KIP-966"),
        )
    ),
    Known(SEGMENTS, "describe-configs-*", "* synonyms: .results.0.configs.segment.bytes.synonyms.0.value"),
    Known(LOG_RETENTION, "describe-configs-*", "* synonyms: .results.0.configs.retention.ms.synonyms"),
    Known(LOG_RETENTION, "describe-configs-*", "* broker: .results.0.configs.log.retention.ms.value"),
    Known(
        "no key of the broker can be altered while it runs",
        "describe-configs-*",
        "* broker: .results.0.configs.*.read_only",
    ),
    Known(
        "version 0 says what is a default; Kafka says of nothing that it is one",
        "describe-configs-v0",
        "*: .results.0.configs.*.is_default",
    ),
    Known(EXCEPTION, "incremental-alter-configs-*", "* unknown operation: .responses.*"),
    Known(SENTENCE, "describe-configs-*", "* missing topic: .results.0.error_message"),
    Known(SENTENCE, "create-partitions-*", "* missing topic: *error_message"),
    Known(SENTENCE, "create-partitions-*", "* empty name: *error_message"),
    # Records
    Known(SENTENCE, "produce-*", "*: .responses.*error_message"),
    Known(
        "bytes behind the last batch are refused: Kafka drops them, and acks what it has not kept",
        "produce-bad-*",
        "* bytes behind: *",
    ),
    Known("a codec that is none is refused; Kafka meets an exception", "produce-bad-*", "* codec *: *error_code"),
    Known(CLOCK, "produce-bad-*", "* an hour and a half ahead: *"),
    Known(TWICE, "produce-odd-*", "* a partition twice: *"),
    Known(
        "of a batch that was written before its place is kept, not its time: memory for producers is bounded",
        "produce-idempotent-*",
        "*: *log_append_time_ms",
    ),
    *(
        Known(
            "the id of a topic that is gone is unknown, in a session too; Kafka goes on by the name that it had there",
            "fetch-sessions-of-changing-topics-v17",
            f"*: .responses.*.partitions.0.{field}",
        )
        for field in ("error_code", "aborted_transactions")
    ),
    Known(DELETED, "delete-records-*", "* nothing: -3: *"),
    Known(TWICE, "fetch-of-a-partition-twice-*", "*: .responses.*"),
    Known(
        "no epoch is negative, so none is known; Kafka gives it back with offset 0",
        "offset-for-leader-epoch-*",
        "* negative: *",
    ),
    # Groups
    Known("OffsetCommit v0 wrote to ZooKeeper, which Kafka 3.9 in KRaft mode has not", "offset-commit-v0", "*: *"),
    Known(TWICE, "offset-commit-v*", "* a partition twice: *"),
)


BOUNDED = "what a stranger can make the broker read and keep is bounded: 64 KiB a request, 4096 bytes a message"
NOT_DECODED = "what is no part of a log-in is not even decoded for who has not logged in; Kafka decodes it to refuse it"
NOBODY = "a user that is not there fails as late as a wrong password does, so that nobody learns who is there"
BREAKS = "Kafka meets an exception of its own here, and closes without an answer"
RFC_5802 = "as RFC 5802 says; Kafka's grammar is another here"

KNOWN_LOG_INS: tuple[Known, ...] = (
    Known("ApiVersions tells what is served here", "*", "* ApiVersions *: .api_keys*"),
    Known(NO_KRAFT, "*", "* ApiVersions *: .finalized_features*"),
    Known(NO_KRAFT, "*", "* ApiVersions *: .supported_features*"),
    Known("what is served may be asked for more than once", "api-versions-before-a-log-in", "* twice, *: "),
    Known("metrics hold a software's name", "api-versions-before-a-log-in", "* software 'xxx*: .error_code"),
    Known("text that is none costs the connection: no client writes it", "handshakes", "* body, *: 0002fffe: "),
    Known("tokens without a request around them are of clients before Kafka 1.0", "tokens-of-version-0", "* raw, *: "),
    Known(NOT_DECODED, "another-api-before-a-log-in", "* Metadata * in the middle, *: "),
    Known(NOT_DECODED, "api-versions-before-a-log-in", "* behind a handshake, *: "),
    Known(NOT_DECODED, "log-ins-again", "* between, *: "),
    Known("another mechanism than before is told; Kafka closes without an answer", "log-ins-again", "* other, *: "),
    Known(BOUNDED, "large-tokens", "*000, *"),
    Known(NOBODY, "*", "2 SaslAuthenticate v2 SCRAM-* unknown user, *"),
    Known(NOBODY, "mechanisms-users-and-passwords", "2 SaslAuthenticate v2 SCRAM-SHA-256 only-512, *"),
    Known(NOBODY, "mechanisms-users-and-passwords", "2 SaslAuthenticate v2 SCRAM-SHA-512 only-256, *"),
    Known(NOBODY, "first-messages-of-scram", "* first, *: b'n,,n= ann,*"),
    Known(RFC_5802, "first-messages-of-scram", "* first, *: b'y,,n=ann,*"),
    Known(RFC_5802, "first-messages-of-scram", "* first, *: b'n,a=a=2Cb=3Dc,n=a=2Cb=3Dc,*"),
    Known(RFC_5802, "first-messages-of-scram", "* first, *: b'n,,m=ext,*"),
    Known(RFC_5802, "first-messages-of-scram", "* first, *: b'n,,n=ann,r=nonce,x=?xc3*"),
    Known("there are no delegation tokens", "first-messages-of-scram", "* first, *,tokenauth=true'*"),
    Known(RFC_5802, "scram-whole", "* y, *: *"),
    Known(RFC_5802, "scram-whole", "* escapes, *: *"),
    Known("librdkafka before 2.6.1 repeats its nonce", "scram-whole", "* nonce repeated, *"),
    Known(RFC_5802, "final-messages-of-scram", "* an extension that is proved, *"),
    Known(RFC_5802, "final-messages-of-scram", "* an extension that is not, *"),
    Known(RFC_5802, "final-messages-of-scram", "* two proofs, *"),
    Known(BREAKS, "final-*", "* an empty proof, *: "),
    Known(BREAKS, "final-*", "* a short proof, *: "),
    Known(BREAKS, "final-*", "* a long proof, *: "),
)

KNOWN_RIGHTS = {
    "describe log dirs": {
        ".results.0.log_dir": "each names its own directory",
        ".results.0.usable_bytes": "what is free changes",
    },
    "create topics": {".topics.rights-none.topic_id": NO_ID},
    "alter configs of a broker": {".responses.None.error_code": "nothing of a broker can be altered while it runs"},
    "describe users": {
        ".results": "Kafka repeats a denial for each user, without his name; of all users it says nothing"
    },
}
"""What test_rights.py may find differ: of a request by its title, a path and why."""

KNOWN_WAYS_IN: tuple[Known, ...] = (
    Known(SENTENCE, "*", "* produce: *.error_message"),
    Known(SENTENCE, "*", "* find coordinator: *.error_message"),
    Known(NO_ID, "*", "* create topics: .topics.*.topic_id"),
    Known("the defaults of topics are compared elsewhere", "*", "* create topics: .topics.ways-none.configs.*"),
    Known("__edge_ledger is there from the start", "*", "* Metadata v8 *: .topics.__edge_ledger"),
    Known(NOBODY, "who-*", "2 SaslAuthenticate v2 * SCRAM-* unknown user, *"),
    Known(NOBODY, "who-*", "2 SaslAuthenticate v2 * SCRAM-SHA-256 * only 512, *"),
    Known(NOBODY, "who-*", "2 SaslAuthenticate v2 * SCRAM-SHA-512 * only 256, *"),
)
