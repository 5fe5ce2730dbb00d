"""Finds users that exclude each other: given twice, users of the site itself, gateways that mosquitto refuses.

The roles refuse some of them too, once the plays before have changed the hosts. No role refuses the others: the
gateway's authentication fails, or one of two passwords counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleError

from preflight_rules.model import LOOPBACK, Finding, Host, action_plugin

SERVICES = ("gateway", "mirror", "spark", "verify")
ADMIN = "admin"


def broker_users(hosts: Sequence[Host]) -> Iterator[Finding]:
    """Yield users of a broker that are given twice, or that the site makes itself."""
    names = {host.name for host in hosts}
    for host in hosts:
        seen: set[str] = set()
        for user in _entries(host, "broker_users") if "broker" in host.groups or "central" in host.groups else ():
            name = str(user["name"])
            service, _, owner = action_plugin("site_rotation").generation_of(name)[0].partition("-")
            if name == ADMIN or (service in SERVICES and owner in names):
                text = f"broker_users has {name}, which the site makes itself: give it another name."
                yield host.finds("broker_users", text)
            elif name in seen:
                yield host.finds("broker_users", f"broker_users has {name} twice: give each user one entry.")
            seen.add(name)


def mqtt_users(hosts: Sequence[Host]) -> Iterator[Finding]:
    """Yield users of mosquitto that its role refuses, and gateways with a user or a password that mosquitto lacks."""
    wanted: dict[str, Mapping[str, Mapping[str, Any]]] = {}
    for host in hosts:
        if "mosquitto" in host.groups and host.value("mosquitto_users") is not None:
            try:
                wanted[host.name] = action_plugin("site_rotation").mqtt_wanted(_entries(host, "mosquitto_users"), [])
            except AnsibleError as error:
                yield host.finds("mosquitto_users", str(error))
    for host in hosts:
        user = str(host.value("gateway_mqtt_username") or "")
        if "gateway" in host.groups and host.value("gateway_mqtt") in (True, None) and user:
            server = _server(host, hosts)
            if server in wanted:
                yield from _gateway(host, user, server, wanted[server])


def _gateway(host: Host, user: str, server: str, wanted: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    entry = next((one for name, one in wanted.items() if user in (str(one["name"]), name)), None)
    password = host.value("gateway_mqtt_password")
    if entry is None:
        yield host.finds(
            "gateway_mqtt_username",
            f"gateway_mqtt_username is {user}, and mosquitto_users of {server} has no such user: name one of "
            f"{', '.join(sorted(str(one['name']) for one in wanted.values())) or 'none that is there'}, or add it.",
        )
    elif password is not None and entry.get("password") is not None and str(password) != str(entry["password"]):
        yield host.finds(
            "gateway_mqtt_password",
            f"gateway_mqtt_password is another than the password of {user} in mosquitto_users of {server}: set both to "
            "one variable of the vault.",
        )


def _server(host: Host, hosts: Sequence[Host]) -> str:
    """Return the host of the inventory whose mosquitto a gateway uses, empty where it is none of these."""
    name = str(host.value("gateway_mqtt_host") or "").strip("[]")
    if LOOPBACK.match(name):
        return host.name
    for other in hosts:
        more = other.value("security_more_names") or []
        if name in (other.name, str(other.value("ansible_host") or ""), *map(str, more)):
            return other.name
    return ""


def _entries(host: Host, name: str) -> list[Mapping[str, Any]]:
    """Return the entries that are whole; `values` of inventory_checks has a finding for each other."""
    given = host.value(name)
    entries = [dict(entry) for entry in given if isinstance(entry, Mapping)] if isinstance(given, list) else []
    return [
        entry | {"acl": acl if isinstance(acl := entry.get("acl"), list) else []}
        for entry in entries
        if entry.get("name") not in (None, "")
    ]
