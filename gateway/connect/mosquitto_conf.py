"""PURE: the mosquitto.conf that goes with a gateway configuration. Source: mosquitto.conf(5), mosquitto 2.0.

The promise needs these settings: the queue survives a restart and is bounded by bytes, not by count. `$SYS` counts the
messages that do not fit. A packet that is too large closes its connection instead of being acknowledged and dropped.
"""

from __future__ import annotations

from gateway.config import MosquittoConfig


def render(config: MosquittoConfig) -> str:
    """Return the text of mosquitto.conf."""
    lines = [
        "# Written by `edge-gateway mosquitto-conf`; change the gateway's [mosquitto] table instead of this file.",
        *_access(config),
        *(f"listener {port} {host}" for host, port in config.listeners),
        *_tls_listeners(config),
        f"user {config.user}",
        "",
        "# Sessions and queues are kept in a file, written every autosave_interval seconds and when mosquitto stops.",
        "# mosquitto answers from memory: a power loss loses messages that it acknowledged since the last write.",
        "persistence true",
        f"persistence_location {_directory(config)}",
        f"autosave_interval {config.autosave_interval_s}",
        "autosave_on_changes false",
        "",
        "# The queue of an absent or slow gateway is bounded by bytes alone; drops are counted in $SYS and ledgered.",
        "max_queued_messages 0",
        f"max_queued_bytes {config.queued_bytes_max}",
        f"max_inflight_messages {config.inflight_messages_max}",
        "queue_qos0_messages false",
        f"sys_interval {config.sys_interval_s}",
        "",
        "# A larger packet closes its connection: the device gets no acknowledgement.",
        f"max_packet_size {config.packet_bytes_max}",
        "",
        "log_dest stderr",
        "log_type error",
        "log_type warning",
        "log_type notice",
        "# The gateway reads the notices, so that it reports a device whose packet was too large.",
        "log_dest topic",
        "connection_messages true",
    ]
    return "\n".join(lines) + "\n"


def _tls_listeners(config: MosquittoConfig) -> list[str]:
    """Return the TLS listeners; mosquitto has its certificate files per listener."""
    lines = []
    for host, port in config.tls_listeners:
        lines += [
            f"listener {port} {host}",
            f"certfile {config.ssl_cert_file}",
            f"keyfile {config.ssl_key_file}",
            "tls_version tlsv1.2",
        ]
        lines += [] if config.ssl_ca_file is None else [f"cafile {config.ssl_ca_file}"]
        lines += ["require_certificate true"] if config.require_certificate else []
    return lines


def _access(config: MosquittoConfig) -> list[str]:
    if config.password_file is None:
        return ["allow_anonymous true"]
    return ["allow_anonymous false", f"password_file {config.password_file}"]


def _directory(config: MosquittoConfig) -> str:
    return str(config.persistence_dir).rstrip("/") + "/"
