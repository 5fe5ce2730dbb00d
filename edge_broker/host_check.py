"""Checks what a configuration needs of this host: files, secrets, addresses, ports, packages, the data directory.

| found | as |
|---|---|
| `serve` would refuse it on this host | lack |
| a port is taken, as the running broker takes its own | note |
| a certificate ends soon, or does not name what clients connect to | note |

Nothing is written or made, and no connection is opened: a port is bound for a moment, and never listened on.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from drupelet.addresses import endpoint_text
from drupelet.errors import ConfigurationError
from drupelet.observe.metrics_access import MetricsAccess
from drupelet.tls.secret_files import changeable, check_private
from edge_broker.configuration.config import BrokerConfig, size_problem
from edge_broker.configuration.listeners import METRICS_TOKEN, Listener, inter_broker_listener
from edge_broker.configuration.security_keys import DENY_LIST
from edge_broker.configuration_check import CheckedConfiguration
from edge_broker.network.server.port_check import port_problems
from edge_broker.tls_settings import read_tls_settings


class HostFindings(NamedTuple):
    """Sentences: what this host lacks, so that `serve` would refuse to start, and what a person should know."""

    lacks: list[str]
    notes: list[str]


def check_host(checked: CheckedConfiguration, data_dir: str | None) -> HostFindings:
    """Return what this host lacks for a configuration that has no problem by itself."""
    config, lacks, notes = checked.config, list[str](), list[str]()

    def attempt(check: Callable[[], object]) -> None:
        try:
            check()
        except ConfigurationError as error:
            lacks.append(str(error))

    attempt(MetricsAccess(config.text(METRICS_TOKEN), named=METRICS_TOKEN).token)
    if config.text(DENY_LIST):
        attempt(lambda: _check_deny_list(config))
    for listener in checked.listeners:
        if listener.is_encrypted:
            attempt(partial(_check_certificate, config, listener, notes))
    if config.text("zookeeper.connect"):
        for check in _cluster_checks(config, checked.listeners, notes):
            attempt(check)
    if data_dir is not None:
        attempt(lambda: check_data_dir(data_dir))
        attempt(lambda: _check_broker_id(config, data_dir))
        if config.text("authorizer.class.name"):
            attempt(lambda: _check_rights(config, data_dir))
    endpoints = [(f"listeners names {one.name}://{endpoint_text(*one.bind)}", one.bind) for one in checked.listeners]
    if checked.metrics is not None:
        endpoints.append((f"--metrics is {endpoint_text(*checked.metrics)}", checked.metrics))
    for name, endpoint in endpoints:
        for problem, is_lack in port_problems(name, endpoint):
            (lacks if is_lack else notes).append(problem)
    attempt(lambda: check_own_secrets(config))
    if sizes := size_problem(config):
        lacks.append(sizes)
    return HostFindings(list(dict.fromkeys(lacks)), list(dict.fromkeys(notes)))


def is_of_older_version(data_dir: str) -> bool:
    """Return whether an older version made the data directory, so that `serve` goes on serving every network."""
    from edge_broker.storage.data_directory import served_anybody  # noqa: PLC0415
    from edge_broker.storage.files.filesystem import Disk  # noqa: PLC0415 - no other check needs the storage

    return served_anybody(Disk(), data_dir)


def check_own_secrets(config: BrokerConfig) -> None:
    """Refuse a configuration that has a secret and that others may use, ConfigurationError."""
    if config.secrets_of_file:
        keys = " and ".join(config.secrets_of_file)
        check_private(config.file_name, f"--config, which has {keys},")


def check_data_dir(path: str) -> None:
    """Refuse a data directory that is none, or that this user may not write to; ConfigurationError."""
    is_there = os.path.isdir(path)
    if not is_there and os.path.lexists(path):
        raise ConfigurationError(f"--data-dir {path} is no directory: name another one, or move it away")
    place = path if is_there else os.path.dirname(os.path.abspath(path))
    if os.path.isdir(place) and not os.access(place, os.W_OK | os.X_OK) and not os.statvfs(place).f_flag & os.ST_RDONLY:
        what = "written" if is_there else f"made in {place}"
        raise ConfigurationError(
            f"--data-dir {path} cannot be {what} by this user: give it the right to, or name a directory of its own"
        )


def _check_broker_id(config: BrokerConfig, data_dir: str) -> None:
    from edge_broker.errors import StorageFault  # noqa: PLC0415 - no other check needs the storage
    from edge_broker.storage.files.filesystem import Disk  # noqa: PLC0415
    from edge_broker.storage.metadata.broker_id import check_broker_id  # noqa: PLC0415

    in_cluster = bool(config.text("zookeeper.connect"))
    try:
        check_broker_id(Disk(), data_dir.rstrip("/") or "/", config.integer("broker.id"), in_cluster=in_cluster)
    except (OSError, StorageFault) as error:
        raise ConfigurationError(f"--data-dir {data_dir} cannot be read: {error}") from error


def _check_rights(config: BrokerConfig, data_dir: str) -> None:
    from edge_broker.broker.state.security_state import check_rights  # noqa: PLC0415 - with an authorizer alone
    from edge_broker.clock import SystemClock  # noqa: PLC0415
    from edge_broker.storage.files.filesystem import Disk  # noqa: PLC0415
    from edge_broker.storage.metadata.security_store import SecurityStore  # noqa: PLC0415

    check_rights(config, SecurityStore.open(Disk(), data_dir, SystemClock().new_bytes).state, data_dir)


def _check_deny_list(config: BrokerConfig) -> None:
    from edge_broker.network.background.deny_list_file import DenyListFile  # noqa: PLC0415 - for those alone who have one

    DenyListFile(config.text(DENY_LIST))


def _check_certificate(config: BrokerConfig, listener: Listener, notes: list[str]) -> None:
    from edge_broker.clock import SystemClock  # noqa: PLC0415
    from edge_broker.network.tls.tls_contexts import Tls  # noqa: PLC0415 - ssl costs 2 MB, for TLS alone

    settings = read_tls_settings(config, listener.name, logs_in=listener.logs_in)
    notes += Tls(settings, lambda: SystemClock().wall_ms() / 1000, listener.advertised.host).warnings()


def _cluster_checks(
    config: BrokerConfig, listeners: tuple[Listener, ...], notes: list[str]
) -> Iterator[Callable[[], object]]:
    from edge_broker.network.cluster.member_credentials import (  # noqa: PLC0415 - for members of a cluster alone
        DIGEST_FILE,
        check_nothing_is_secured,
        credentials,
        link_security,
        peers_ca,
    )

    def check_link() -> None:
        ca = peers_ca(config, link_security(config, inter_broker_listener(config, listeners)))
        if ca is not None and (note := changeable(*ca)):
            notes.append(note)

    yield _check_kazoo
    yield partial(credentials, config)
    if not config.text(DIGEST_FILE):
        yield partial(check_nothing_is_secured, config, listeners)
    yield check_link


def _check_kazoo() -> None:
    if importlib.util.find_spec("kazoo") is None:
        from drupelet.installation import missing_package  # noqa: PLC0415 - for a mistake alone

        raise ConfigurationError(f"zookeeper.connect is set: {missing_package('kazoo', 'cluster')}")
