"""The broker's figures in Prometheus' text form, gathered when they are asked for.

Contains: names, types and help of every metric. Does not contain: counters that cost something on the hot path.
"""

from __future__ import annotations

import resource
from collections.abc import Iterable, Sequence

from drupelet.printable import label_text
from edge_broker.broker.broker import Broker
from edge_broker.compiled import walker_name
from edge_broker.network.background.disk_write_counters import device_bytes, process_bytes
from edge_broker.network.dispatch.dispatcher import Dispatcher
from edge_broker.network.server.listener_server import Server
from edge_broker.protocol.unpacking import CODEC_NAMES, MODULES, missing_codecs
from edge_broker.storage.files.sync_cost import Card
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.maintenance.log_cleaner import LogCleaner

Sample = tuple[dict[str, str], float]
Family = tuple[str, str, str, Sequence[Sample]]  # name, type, help, samples
PREFIX = "edge_broker_"


def metrics_text(broker: Broker, dispatcher: Dispatcher, server: Server, started_ms: int) -> str:
    """Every metric, sampled now."""
    families = [
        *_partitions(broker.store),
        *_requests(dispatcher, server),
        *_syncs(dispatcher, broker.store.group_commit.card),
        *_space(broker),
        *_cleaner(broker.cleaner),
        *_damage(broker),
        *_writes(broker),
        *_checks(dispatcher),
        *_fetch_sessions(broker),
        *_logins(broker),
        *_encryption(server),
        *_time(broker, started_ms),
        *_cluster(broker),
    ]
    return "".join(family(PREFIX + name, kind, text, samples) for name, kind, text, samples in families)


def _one(name: str, kind: str, text: str, value: float | None) -> Family:
    """A metric without labels; without a sample when the value is not known."""
    return name, kind, text, [] if value is None else [({}, value)]


def _partitions(store: LogStore) -> list[Family]:
    logs = [log for topic in store.topics.values() for log in topic.partitions]
    at = [({"topic": log.topic, "partition": str(log.partition)}, log) for log in logs]
    offline = [(labels, int(log.fault is not None)) for labels, log in at]
    return [
        (
            "log_end_offset",
            "gauge",
            "Next offset of a partition, synced or not.",
            [(labels, log.log_end_offset) for labels, log in at],
        ),
        (
            "high_watermark",
            "gauge",
            "End of what is synced and shown.",
            [(labels, log.high_watermark) for labels, log in at],
        ),
        (
            "log_start_offset",
            "gauge",
            "First offset still held.",
            [(labels, log.log_start_offset) for labels, log in at],
        ),
        ("partition_offline", "gauge", "1 for a partition whose storage failed.", offline),
        _one("leader_epoch", "gauge", "Leader epoch; rises at every unclean start.", store.directory.leader_epoch),
        _one("started_unclean", "gauge", "1 when the last stop was not clean.", int(store.directory.started_unclean)),
        _one(
            "recovery_read_bytes",
            "gauge",
            "Bytes of logs that the start after an unclean stop had to read.",
            store.recovery_bytes,
        ),
    ]


def _requests(dispatcher: Dispatcher, server: Server) -> list[Family]:
    by_api = [({"api": name}, count) for name, count in dispatcher.requests.items()]
    return [
        _one("bytes_in_total", "counter", "Bytes of requests received.", server.bytes_in),
        _one("bytes_out_total", "counter", "Bytes of responses handed to connections.", server.bytes_out),
        ("requests_total", "counter", "Requests by API.", by_api),
        _one("requests_waiting", "gauge", "Requests that wait for a log or a group.", dispatcher.waiting_requests),
        _one("protocol_violations_total", "counter", "Connections closed for what they sent.", server.violations),
        _one("handler_failures_total", "counter", "Requests lost to a bug of the broker.", dispatcher.failures),
        _one("connections", "gauge", "Open client connections.", len(server.connections)),
        _one("queued_request_bytes", "gauge", "Memory for requests that is shared and in use.", server.requests.used),
        _one("queued_response_bytes", "gauge", "Memory for answers that is shared and in use.", server.answers.used),
        _one("large_requests", "gauge", "Requests that are worked on piece by piece.", len(dispatcher.turns)),
        (
            "longest_piece_seconds",
            "gauge",
            "Longest that one piece of a large request held the loop, CPU time, by API.",
            [({"api": name}, seconds) for name, seconds in dispatcher.turns.longest_s.items()],
        ),
    ]


def _fetch_sessions(broker: Broker) -> list[Family]:
    sessions = broker.fetch_sessions
    return [
        _one("incremental_fetch_sessions", "gauge", "Fetch sessions of clients.", len(sessions)),
        _one("incremental_fetch_partitions_cached", "gauge", "Partitions of all of them.", sessions.partitions),
        _one("incremental_fetch_session_bytes", "gauge", "Memory that they are counted as.", sessions.bytes_held),
        _one(
            "incremental_fetch_session_evictions_total",
            "counter",
            "Fetch sessions that made room for another.",
            sessions.evicted,
        ),
    ]


def _logins(broker: Broker) -> list[Family]:
    log_ins = broker.log_ins
    counted = (("successful", log_ins.succeeded), ("failed", log_ins.failed))
    return [
        *(
            (
                f"{what}_authentication_total",
                "counter",
                f"Log-ins, {what} ones, by listener and mechanism.",
                [({"listener": at, "mechanism": name}, count) for (at, name), count in counts.items()],
            )
            for what, counts in counted
        ),
        _one(
            "expired_connections_killed_total",
            "counter",
            "Connections closed as their client did not log in again.",
            log_ins.expired,
        ),
        (
            "authorization_denied_total",
            "counter",
            "Rights that a request lacked, by listener; what is only left out of an answer is none.",
            [({"listener": name}, count) for name, count in broker.rights.denials.items()],
        ),
    ]


def _syncs(dispatcher: Dispatcher, card: Card | None) -> list[Family]:
    syncer = dispatcher.syncer
    return [
        _one(
            "partition_revivals_total",
            "counter",
            "Partitions brought back after a failed sync or write.",
            dispatcher.offline_partitions.count,
        ),
        _one("sync_rounds_total", "counter", "Commit rounds.", syncer.rounds),
        _one(
            "sync_rounds_whole_total",
            "counter",
            "Commit rounds of one syncfs, not an fdatasync of each file.",
            syncer.whole_rounds,
        ),
        _one("sync_seconds_total", "counter", "Time spent in commit rounds.", syncer.seconds),
        (
            "card_sync_seconds",
            "gauge",
            "One write and its fdatasync, as measured at the first start.",
            _card_costs(card),
        ),
        (
            "card_round_seconds",
            "gauge",
            "A commit round as measured at the first start; -1 where syncfs proves nothing.",
            _card_rounds(card),
        ),
    ]


def _space(broker: Broker) -> list[Family]:
    look, lost = broker.space.status, list(broker.space.watch.lost.items())  # the worker may add to it meanwhile
    marks = [({"mark": name}, getattr(look.marks, name)) for name in ("low", "min", "resume")] if look else []
    return [
        _one("disk_free_bytes", "gauge", "Free space at the last look.", look and look.free),
        (
            "disk_mark_bytes",
            "gauge",
            "Free space below which eviction begins, writes are refused, and are taken again.",
            marks,
        ),
        _one(
            "disk_ladder_rung",
            "gauge",
            "0 enough space; 1 expired, 2 passed, 3 unpassed data had to go; 4 writes are refused.",
            look and look.stage,
        ),
        (
            "lost_records_total",
            "counter",
            "Records written down as lost for want of space.",
            [({"topic": topic}, one.records) for topic, one in lost],
        ),
        ("lost_bytes_total", "counter", "Their bytes.", [({"topic": topic}, one.bytes) for topic, one in lost]),
        _one("disk_slow", "gauge", "1 while the disk makes writers wait.", int(broker.throttle.slow)),
        _one("disk_slow_total", "counter", "How often the disk became slow.", broker.throttle.slow_total),
        _one("unsynced_bytes", "gauge", "Written and not yet confirmed by the disk.", broker.throttle.unsynced_bytes),
    ]


def _cleaner(cleaner: LogCleaner) -> list[Family]:
    return [
        _one("cleaner_passes_total", "counter", "Passes of compaction over a log.", cleaner.passes),
        _one("cleaner_read_bytes_total", "counter", "Bytes read by compaction.", cleaner.bytes_read),
        _one("cleaner_written_bytes_total", "counter", "Bytes rewritten by compaction.", cleaner.bytes_written),
        _one("cleaner_removed_records_total", "counter", "Records compacted away.", cleaner.removed),
    ]


def _damage(broker: Broker) -> list[Family]:
    scrubber = broker.scrubber
    found = sum(log.damages for topic in broker.store.topics.values() for log in topic.partitions)
    return [
        _one("damages_total", "counter", "Damaged ranges found and quarantined since the start.", found),
        _one("scrub_rounds_total", "counter", "Rounds of the scrubber over all closed segments.", scrubber.rounds),
        _one("scrub_checked_bytes_total", "counter", "Bytes checked by the scrubber.", scrubber.bytes_checked),
        _one("scrub_read_bytes_total", "counter", "Of them read from the disk.", scrubber.bytes_read),
    ]


def _writes(broker: Broker) -> list[Family]:
    memory = broker.store.producer_memory
    return [
        _one("appended_bytes_total", "counter", "Bytes of record batches appended to logs.", broker.appended_bytes),
        _one("producers_bytes", "gauge", "Memory that is kept of idempotent producers.", memory.held),
        _one("producers_evicted_total", "counter", "Producers forgotten to keep that bounded.", memory.evicted),
        _one(
            "process_written_bytes_total",
            "counter",
            "Bytes this process made the kernel write to disks; without the file system's journal.",
            process_bytes(),
        ),
        _one(
            "device_written_bytes_total",
            "counter",
            "Bytes written to the disk below the data directory since it was attached, by everybody.",
            device_bytes(broker.store.data_dir),
        ),
    ]


def _checks(dispatcher: Dispatcher) -> list[Family]:
    return [
        ("records_walker", "gauge", "Which walker checks what producers send.", [({"walker": walker_name()}, 1)]),
        (
            "codec_missing",
            "gauge",
            "1 for a codec whose library is not installed: its batches are refused.",
            [({"codec": name}, int(name in missing_codecs())) for name in CODEC_NAMES[1:]],
        ),
        _one(
            "checks_in_worker_total",
            "counter",
            "Batches too large to be checked on the loop, since the start.",
            dispatcher.checks.batches,
        ),
    ]


def _encryption(server: Server) -> list[Family]:
    encryption = server.encryption
    if encryption is None:
        return []
    handshakes = encryption.handshakes
    ends = [({"listener": tls.listener}, tls.end_s) for tls in encryption.listeners]
    return [
        _one("handshakes_total", "counter", "TLS handshakes that were complete.", handshakes.complete),
        _one("handshake_failures_total", "counter", "TLS handshakes that were not.", handshakes.failed),
        _one("handshakes_under_way", "gauge", "TLS handshakes begun and not complete.", len(handshakes)),
        ("certificate_end_seconds", "gauge", "When the first certificate of a listener's chain ends.", ends),
    ]


def _time(broker: Broker, started_ms: int) -> list[Family]:
    now, usage = broker.time.now(), resource.getrusage(resource.RUSAGE_SELF)
    return [
        _one("clock_trusted", "gauge", "1 when the wall clock is believed to be right.", int(now.trusted)),
        _one(
            "clock_stepped_seconds",
            "gauge",
            "How far it was set within this boot.",
            broker.store.directory.age.stepped_ms / 1000,
        ),
        _one("age_seconds", "gauge", "Elapsed time that retention goes by.", now.age_ms / 1000),
        _one("start_time_seconds", "gauge", "When the broker started, by the wall clock.", started_ms / 1000),
        _one("cpu_seconds_total", "counter", "CPU time, user and system.", usage.ru_utime + usage.ru_stime),
    ]


def _cluster(broker: Broker) -> list[Family]:
    """Of a member of a cluster alone, under Kafka's names."""
    if broker.cluster is None:
        return []
    from edge_broker.broker.cluster.cluster_metrics import figures  # noqa: PLC0415 - for members alone

    found = figures(broker.cluster.view, broker.store.ledger_log)
    lags = [
        ({"topic": lag.partition.topic, "partition": str(lag.partition.partition), "broker": str(lag.broker)}, lag)
        for lag in found.lags
    ]
    return [
        _one(
            "cluster_member",
            "gauge",
            "1 while this broker serves as a member.",
            int(not broker.cluster.view.not_serving),
        ),
        _one("partition_count", "gauge", "Partitions of which a replica is here.", found.partitions),
        _one("leader_count", "gauge", "Partitions that are led here.", found.led),
        _one(
            "under_replicated_partitions",
            "gauge",
            "Partitions led here of which fewer replicas are in sync than there are.",
            len(found.under_replicated),
        ),
        _one(
            "under_min_isr_partition_count",
            "gauge",
            "Partitions led here that refuse acks=all, as fewer than min.insync.replicas are in sync.",
            found.under_min_in_sync,
        ),
        _one(
            "offline_partitions_count",
            "gauge",
            "Partitions of the cluster that nobody leads; told by the controller alone, else 0.",
            found.offline,
        ),
        _one("active_controller_count", "gauge", "1 on the broker that is the controller.", int(found.is_controller)),
        (
            "follower_lag_records",
            "gauge",
            "Records of a partition led here that a follower has not confirmed.",
            [(labels, lag.records) for labels, lag in lags],
        ),
        (
            "follower_lag_seconds",
            "gauge",
            "Since when a follower has not had everything; 0 while it has.",
            [(labels, lag.seconds) for labels, lag in lags],
        ),
        _one("ledger_journal_entries", "gauge", "Losses that wait to be forwarded to __edge_ledger.", found.entries),
        _one("ledger_journal_bytes", "gauge", "Bytes of the journal that they wait in.", found.entries_bytes),
    ]


def _card_costs(card: Card | None) -> list[Sample]:
    found: list[Sample] = []
    for cost in card.costs if card else ():
        for quantile, microseconds in (("0.5", cost.p50_us), ("0.99", cost.p99_us), ("1", cost.max_us)):
            found.append(({"bytes": str(cost.size), "quantile": quantile}, microseconds / 1e6))
    return found


def _card_rounds(card: Card | None) -> list[Sample]:
    if card is None:
        return []
    ways = (("each", card.files_us), ("all", card.all_us))
    return [({"files": str(card.files), "way": way}, us / 1e6 if us >= 0 else -1) for way, us in ways]


def family(name: str, kind: str, text: str, samples: Iterable[tuple[dict[str, str], float]]) -> str:
    """One metric with its samples in the text exposition format."""
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{_labels(labels)} {value}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    pairs = ",".join(f'{name}="{_escape(label_text(value))}"' for name, value in labels.items())
    return "{" + pairs + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def health_text(notes: Iterable[str] = ()) -> str:
    """Return the text for a healthy broker: ok, what this platform lacks, and notes for an operator."""
    missing = missing_codecs()
    return ", but ".join(("ok", "; ".join(([refused_codecs(missing)] if missing else []) + list(notes)))).removesuffix(
        ", but "
    )


def refused_codecs(missing: Sequence[str]) -> str:
    """Return the consequence of codecs without an installed library, as text."""
    packages = sorted({MODULES[CODEC_NAMES.index(name)].partition(".")[0] for name in missing})
    return f"batches in {', '.join(missing)} are refused: the Python packages {', '.join(packages)} are not installed"
