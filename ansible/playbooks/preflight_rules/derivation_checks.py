"""Finds derivations of passwords that no site can have, and those that would lock services out.

A user keeps the derivation of its password. Another one comes with a rotation, which makes a second user.
Does not contain: the derivations and the sentences (plugins/plugin_utils/site_passwords.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from preflight_rules.model import Finding, Host, action_plugin, has_secret

NAMES = ("security_derivation", "security_former")


def impossible(host: Host) -> Iterator[Finding]:
    """Yield values of the two variables that no site can have."""
    if not host.roles or not any(name in host.variables for name in NAMES):
        return
    passwords = action_plugin("site_access").passwords
    for key, text in passwords.problems(*_settings(host)):
        yield host.finds(key, text)


def changed(hosts: Sequence[Host]) -> Iterator[Finding]:
    """Yield log-ins of a broker that the inventory has come by another derivation than they were made by."""
    by_name = {host.name: host for host in hosts}
    for server in hosts:
        for user, was in server.log_ins.items():
            base, generation = action_plugin("site_access").generation_of(user)
            service, _, owner = base.partition("-")
            if service in action_plugin("site_access").SERVICES and owner in by_name:
                yield from _changed(by_name[owner], user, (generation, was))


def _changed(owner: Host, user: str, made: tuple[int, str]) -> Iterator[Finding]:
    passwords, settings = action_plugin("site_access").passwords, _settings(owner)
    rotation, secret = settings[1], owner.value("security_secret")
    if not has_secret(owner) or not isinstance(secret, str) or [*passwords.problems(*settings)] or made[0] > rotation:
        return  # another finding says so
    if made[0] < rotation and owner.value("rotation") == "now":
        return  # the run ends this log-in
    sources = passwords.sources(secret, *settings)
    if (wanted := sources.of(made[0]).derivation) != made[1]:
        text = passwords.refusal(user, owner.name, made, wanted, rotation)
        yield owner.finds("security_derivation", text)


def _settings(host: Host) -> tuple[Any, int, Any]:
    """Return the derivation, the rotation and the former sources, as `problems` takes them."""
    return host.value("security_derivation"), host.number("security_rotation") or 1, host.value("security_former")
