"""Declares and checks the configuration: a TOML file of flat keys, tables for some topics (overrides.py), the options.

Options override the file. An unknown key is an error that suggests the nearest.
Does not contain: imports of a client.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from drupelet.addresses import host_and_port
from drupelet.command.config_check import nearest, parse_toml, read_text
from drupelet.errors import ConfigurationError
from drupelet.kafka.client import COMPRESSION_TYPES, ClientSettings
from drupelet.kafka.security import SECURITY_KEYS, Security, security_from
from drupelet.observe.log_tree import Log
from drupelet.observe.metrics_access import ACCESS_KEYS, MetricsAccess, access_from, check_metrics
from mirror.topics.overrides import TABLE, Rule, TopicSettings, rules_from, settings_of
from mirror.topics.selection import POLICIES, SITE_LENGTH_MAX, Policy, Selection, is_site_name

_log = Log("mirror")

SIDES = ("source", "target")
CLIENT_ID = "edge-mirror"
SERVERS = "HOST:PORT[,HOST:PORT]"


@dataclass(frozen=True, slots=True)
class Config:
    """All settings; the names are the TOML keys. Empty text means not set.

    Each side's security has a key for each of SECURITY_KEYS, with `source_` or `target_` before it.
    """

    source: str = ""
    """HOST:PORT of the edge broker; several with commas between, of one cluster."""
    target: str = ""
    """HOST:PORT of the central Kafka; several with commas between, of one cluster."""
    topics: str = ""
    """Regular expression that a topic's whole name must match."""
    exclude: str = ""
    """Regular expression; a topic whose whole name matches it is not mirrored, whatever `topics` says."""
    accept_from_mirrormaker: str = ""
    """Regular expression; a topic whose whole name matches it is sent though MirrorMaker 2 may have brought it."""
    accept_unseen: str = ""
    """Regular expression; a topic whose whole name matches it is sent though no state topic of a mirror may be seen."""
    site: str = ""
    """The site's name: prefix of the topics, part of the group id."""
    policy: str = ""
    """`prefix` or `identity`; prefix when a site is named, else identity."""
    metrics: str = ""
    """HOST:PORT for /metrics and /health; off when empty."""
    metrics_access: MetricsAccess = MetricsAccess()  # noqa: RUF009 - it does not change
    """Access to the metrics: the keys are ACCESS_KEYS."""
    group_instance_id: str = ""
    """This mirror's name among those of the site, of which one writes; the host's name if empty."""
    ledger: bool = True
    """Whether `__edge_ledger` is mirrored, whatever `topics` says."""
    compression: str = "zstd"
    """The codec of merged batches: none, gzip, snappy, lz4, zstd."""
    metered: bool = False
    """Whether bytes to the target cost money: zstd packs at level 19, and records wait a second for others."""
    batch_bytes_max: int = 512 * 1024
    """Bytes of one merged batch before compression; must stay below the target's max.message.bytes."""
    buffer_bytes_max: int = 8 * 1024 * 1024
    """Bytes read and not yet acknowledged, over all partitions; a quarter of it may be in flight to the target."""
    commit_interval_ms: int = 1_000
    """Longest time between an acknowledgement and its commit."""
    commit_again_ms: int = 86_400_000
    """Time after which an unchanged position is committed again; below the source's offsets.retention.minutes."""
    refresh_interval_ms: int = 5_000
    """Time between two searches for new topics and partitions."""
    stall_timeout_ms: int = 60_000
    """Time after which a partition with records, of which none became safe, is a reported problem."""
    request_timeout_ms: int = 30_000
    """Time for one request to either side, its transfer included."""
    delivery_timeout_ms: int = 120_000
    """Longest time for one request on a thin link, and for a record of the ledger."""
    stop_timeout_ms: int = 10_000
    """Time that a clean stop waits for acknowledgements, and again for the last commit."""
    backoff_max_ms: int = 10_000
    """Longest wait between attempts to reach a side."""
    transactions: bool = False
    """Whether records, position and map are committed together, in transactions of the target."""
    transaction_timeout_ms: int = 120_000
    """Time after which the target aborts a transaction, and must allow (transaction.max.timeout.ms); most take 1/12."""
    target_replication_factor: int = 0
    """Of the topics created at the target; 0 means one replica per broker, three at most."""
    rules: tuple[Rule, ...] = ()
    """Settings for some topics alone, by the tables `[topic."PATTERN"]`."""
    source_security: Security = Security()  # noqa: RUF009 - it does not change
    """TLS and authentication at the edge broker."""
    target_security: Security = Security()  # noqa: RUF009 - it does not change
    """TLS and authentication at the central Kafka."""

    def of_topic(self, name: str) -> TopicSettings:
        """Return the settings for a topic of the source."""
        return settings_of(name, self.rules)

    @property
    def source_client(self) -> ClientSettings:
        """The settings of every client of the edge broker."""
        return ClientSettings(self.source, CLIENT_ID, self.request_timeout_ms, self.source_security)

    @property
    def target_client(self) -> ClientSettings:
        """The settings of every client of the central Kafka."""
        return ClientSettings(self.target, CLIENT_ID, self.request_timeout_ms, self.target_security)

    @property
    def name_policy(self) -> Policy:
        """The policy in force."""
        return cast(Policy, self.policy) if self.policy else ("prefix" if self.site else "identity")

    @property
    def group_id(self) -> str:
        """The source group that holds the positions: `edge-mirror-SITE`, or the target's address without a site."""
        return f"edge-mirror-{self.site or self.target}"

    @property
    def selection(self) -> Selection:
        """The topics to mirror."""
        excluded = re.compile(self.exclude) if self.exclude else None
        return Selection(re.compile(self.topics), excluded, self.ledger)


def load(
    path: Path | None, overrides: Mapping[str, object], required: tuple[str, ...], *, serves: bool = True
) -> Config:
    """Return the checked configuration from a file and the command line's values (None: not given there).

    Raises ConfigurationError; `required` names the keys that must be set. Without `serves`, `metrics` names another
    process, which serves them.
    """
    values = parse_toml(read_text(path), path) if path is not None else {}
    values.update({key: value for key, value in overrides.items() if value is not None})
    for key in OBSOLETE & values.keys():
        _log.warning("setting_without_effect", key=key, action="remove it: nothing is sent twice any more")
        del values[key]
    source, target = (_security(path, side, values) for side in SIDES)
    access = access_from(values, _folder(path), _name_keys(path))
    rules = rules_from(values.get(TABLE, {}))
    plain = {key: value for key, value in values.items() if key not in (*SECURED, *ACCESS_KEYS, TABLE)}
    _check_types(plain)
    config = replace(
        Config(**plain), source_security=source, target_security=target, metrics_access=access, rules=rules
    )
    _check(config, required)
    if config.metrics and serves:
        check_metrics(host_and_port(config.metrics), access, _name_keys(path))
    return config


OBSOLETE = frozenset({"window_records_max"})
"""Keys of older versions that a file may still have."""
SECURED = tuple(f"{side}_{key}" for side in SIDES for key in SECURITY_KEYS)


def _security(path: Path | None, side: str, values: Mapping[str, Any]) -> Security:
    given = {key: values[f"{side}_{key}"] for key in SECURITY_KEYS if f"{side}_{key}" in values}
    return security_from(given, _folder(path), _name_keys(path, f"{side}_"))


def _folder(path: Path | None) -> Path:
    return Path() if path is None else path.parent


def _name_keys(path: Path | None, side: str = "") -> Callable[[str], str]:
    where = "" if path is None else f"{path}: "
    return lambda key: f"{where}{side}{key}"


def _check_types(values: Mapping[str, Any]) -> None:
    kinds: dict[str, type] = {
        field.name: type(field.default)
        for field in fields(Config)
        if not field.name.endswith(("_security", "_access", "rules"))
    }
    for key, value in values.items():
        if key not in kinds:
            known = (*kinds, *SECURED, *ACCESS_KEYS, TABLE)
            near = nearest(key, known)
            hint = f"did you mean {near}?" if near else f"known are {', '.join(known)}."
            raise ConfigurationError(f"Unknown configuration key {key}: {hint}")
        if type(value) is not kinds[key]:
            raise ConfigurationError(f"{key} must be of type {kinds[key].__name__}, not {value!r}.")


def _check(config: Config, required: tuple[str, ...]) -> None:
    for key in required:
        if not getattr(config, key):
            raise ConfigurationError(f"{key} is not set: give --{key} or the key in the configuration file.")
    for key, kind in (
        ("source", "HOST:PORT[,HOST:PORT]"),
        ("target", "HOST:PORT[,HOST:PORT]"),
        ("metrics", "HOST:PORT"),
    ):
        if getattr(config, key):
            _check_address(key, getattr(config, key), kind)
    _check_names(config)
    _check_bounds(config)


def _check_address(key: str, text: str, kind: str) -> None:
    for address in text.split(",") if kind == SERVERS else [text]:
        try:
            host_and_port(address.strip())
        except ValueError:
            raise ConfigurationError(f"{key} must be {kind}, not {text!r}.") from None


def _check_names(config: Config) -> None:
    if config.site and not is_site_name(config.site):
        raise ConfigurationError(
            f"site {config.site!r} cannot start a topic name: use letters, digits, '.', '_', '-', "
            f"at most {SITE_LENGTH_MAX}."
        )
    if config.policy and config.policy not in POLICIES:
        raise ConfigurationError(f"policy {config.policy!r} is not known: use prefix or identity.")
    if config.policy == "prefix" and not config.site:
        raise ConfigurationError("policy prefix needs a site: give --site NAME, or use --policy identity.")
    both = set(config.source_client.servers) & set(config.target_client.servers) - {""}
    if both:
        raise ConfigurationError(f"source and target are both {min(both)}: a mirror needs two clusters.")
    for key in ("topics", "exclude", "accept_from_mirrormaker", "accept_unseen"):
        try:
            re.compile(getattr(config, key))
        except re.error as error:
            text = f"{key} {getattr(config, key)!r} is not a regular expression: {error}."
            raise ConfigurationError(text) from error


_LEAST = {
    "batch_bytes_max": 1024,
    "buffer_bytes_max": 64 * 1024,
    "stall_timeout_ms": 1000,
    "target_replication_factor": 0,
    "transaction_timeout_ms": 1000,
}


def _check_bounds(config: Config) -> None:
    if config.compression not in COMPRESSION_TYPES:
        raise ConfigurationError(
            f"compression {config.compression!r} is not known: use {', '.join(COMPRESSION_TYPES)}."
        )
    for field in fields(Config):
        value = getattr(config, field.name)
        least = _LEAST.get(field.name, 1)
        if type(value) is int and not least <= value < 2**31:
            raise ConfigurationError(f"{field.name} must be between {least} and {2**31 - 1}, not {value}.")
