"""The settings of each host's broker, checked by the broker's own rules, or a note that they are not checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from preflight_rules import broker_check, site_checks, value_forms
from preflight_rules.model import COLLECTION, Finding, Host, endpoint, is_address, mode

BROKER_MODES = ("none", "secured", "migrate")
BROKER_ADDRESSES = ("listen", "secured_listen", "advertise", "metrics")


def broker_settings(hosts: Sequence[Host]) -> tuple[list[Finding], list[Finding]]:
    """Return what the broker would refuse of each host's configuration, and which configurations were not checked."""
    found: list[Finding] = []
    unchecked: list[Finding] = []
    asked: dict[Path, dict[str, Any]] = {}
    by_name = {host.name: host for host in hosts}
    for host in hosts:
        settings = host.value("broker_settings")
        if "broker" not in host.groups or host.is_kafka or not isinstance(settings, Mapping):
            continue
        if odd := broker_check.odd_values(settings):
            found += [host.finds("broker_settings", f"{text}.") for text in odd]
            continue
        intended, wrong = intend(host, settings)
        found += wrong
        rules = broker_check.source(COLLECTION, host.value("drupelet_wheel"))
        if rules is None:
            unchecked.append(
                not_checked(host, "there is no wheel yet (drupelet_wheel) and no checkout around the roles")
            )
        elif intended is not None:
            asked.setdefault(rules, {})[host.name] = intended
    for rules, brokers in asked.items():
        answer = broker_check.problems(rules, brokers)
        if answer.why:
            unchecked += [not_checked(by_name[name], f"{rules.name} {answer.why}") for name in brokers]
        for name, problems in answer.problems.items():
            found += [by_name[name].finds("broker_settings", f"{text.rstrip('.')}.") for text in problems]
    return found, unchecked


def intend(host: Host, settings: Mapping[str, Any]) -> tuple[broker_check.IntendedBroker | None, list[Finding]]:
    """Return the broker that a host is to get, `None` where other checks refuse its addresses or mode."""
    addresses = {name: str(host.value(f"broker_{name}") or "") for name in BROKER_ADDRESSES}
    if found := list(site_checks.check_advertised(host, "broker")):
        addresses["advertise"] = f"{host.name}:{endpoint(addresses['listen'])[1]}"
    of_host = mode(host, "broker")
    wanted = ["listen", *(["secured_listen"] if of_host == "migrate" else [])]
    are_addresses = all(is_address(text) for name, text in addresses.items() if text or name in wanted)
    if not are_addresses or of_host not in BROKER_MODES:
        return None, found
    writers = host.value("broker_ledger_writers")
    are_networks = not value_forms.problem("broker_ledger_writers", writers)
    intended = broker_check.IntendedBroker(
        mode=of_host, settings=settings, ledger_writers=writers if writers and are_networks else [], **addresses
    )
    return intended, found


def not_checked(host: Host, why: str) -> Finding:
    """Note that only the role's task on the host will check a configuration."""
    text = (
        f"broker_settings is not checked before the run: {why}. The role checks it on each board, before it writes it."
    )
    return host.finds("broker_settings", text)
