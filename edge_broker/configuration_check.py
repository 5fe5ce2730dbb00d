"""Checks a whole configuration and lists every problem, with the sentences by which `serve` refuses it.

Contains: which checks there are. Does not contain: what this host has (host_check.py), and anything beyond Python's
standard library: playbooks/preflight.yml runs this module on the control node, from a checkout or out of a wheel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from drupelet.errors import ConfigurationError
from edge_broker.configuration.config import BrokerConfig, Endpoint, parse_endpoint, read_config
from edge_broker.configuration.ensemble import check_ensemble
from edge_broker.configuration.listeners import Listener, inter_broker_listener, network_problem, read_listeners
from edge_broker.tls_settings import read_tls_settings


class Serve(NamedTuple):
    """Options of `serve`; `toml` is the text of `config`, `None` without a file."""

    toml: str | None = None
    config: str = ""
    assignments: Iterable[str] = ()
    listen: str | None = None
    advertise: str | None = None
    metrics: str | None = None
    is_old_data: bool = False  # of a version that served every network: it goes on doing so


class CheckedConfiguration(NamedTuple):
    """A configuration with its problems, each one sentence."""

    config: BrokerConfig
    listeners: tuple[Listener, ...]
    metrics: Endpoint | None
    problems: list[str]


def check_configuration(options: Serve) -> CheckedConfiguration:
    """Return what the options mean, and every problem that the configuration has by itself."""
    problems: list[str] = []

    def refuse(error: ConfigurationError) -> None:
        problems.append(str(error))

    def attempt(check: Callable[[], object]) -> None:
        try:
            check()
        except ConfigurationError as error:
            refuse(error)

    def endpoint(option: str, text: str | None) -> Endpoint | None:
        try:
            return parse_endpoint(option, text) if text is not None else None
        except ConfigurationError as error:
            refuse(error)
            return None

    config = read_config(options.toml, options.config, options.assignments, refuse)
    attempt(lambda: check_ensemble(config))
    listen, advertise = endpoint("--listen", options.listen), endpoint("--advertise", options.advertise)
    metrics = endpoint("--metrics", options.metrics)
    are_parsed = (listen is None, advertise is None) == (options.listen is None, options.advertise is None)
    listeners = read_listeners(config, listen, advertise, refuse) if are_parsed else ()
    for listener in listeners:
        if listener.is_encrypted:
            attempt(partial(read_tls_settings, config, listener.name, logs_in=listener.logs_in))
    if config.text("zookeeper.connect") and listeners:
        attempt(lambda: inter_broker_listener(config, listeners))
    if (network := network_problem(config, listeners, metrics)) and not options.is_old_data:
        problems.append(network)
    return CheckedConfiguration(config, listeners, metrics, list(dict.fromkeys(problems)))
