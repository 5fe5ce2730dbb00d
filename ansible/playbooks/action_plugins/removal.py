"""The action `removal`: what playbooks/remove.yml has done about a lost board, and what is left to do, in sentences.

Each host where the board had log-ins has noted in this run, by `broker` or `mosquitto`: `remove_had`, the log-ins,
`remove_ended` that they have ended, or `remove_failed`, why they stay (playbooks/tasks/remove_from.yml). The rest comes
from the inventory. No host is asked. It needs ansible-core alone.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

SITE_ACCESS = Path(__file__).parents[2] / "plugins/action/site_access.py"
REMOVED = "was removed by playbooks/remove.yml"
PLACES = ("broker", "mosquitto")
SPARK = ("spark_master", "spark_worker", "spark_jobs")
METRICS = ("broker", "gateway", "mirror")
CLUSTER, DIGEST = "zookeeper.connect", "edge.zookeeper.digest.file"


def _site_access() -> Any:
    spec = importlib.util.spec_from_file_location("drupelet_site_access", SITE_ACCESS)
    if spec is None or spec.loader is None:
        raise AnsibleError("plugins/action/site_access.py is missing: install the collection again.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


site_access = _site_access()


def ended_log_ins(notes: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield where log-ins have ended; `notes` has the facts of each host."""
    for host, place, users in _places(notes):
        if place in notes[host].get("remove_ended", ()) and users:
            yield f"The {place} of {host} has ended {', '.join(users)}, with all generations."


def staying(notes: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield where log-ins stay, and why: not where there were none, nor on a host that was removed itself."""
    for host, place, users in _places(notes):
        why = str(notes[host].get("remove_failed", {}).get(place, ""))
        if why and REMOVED not in why and users != []:
            yield f"The {place} of {host} keeps {', '.join(users or ['its log-ins'])}: {why}."


def _places(notes: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str, list[str] | None]]:
    """Yield each broker and mosquitto with the log-ins that the board had there, `None` where that is not known."""
    for host, facts in notes.items():
        for place in PLACES:
            if place in facts.get("remove_ended", ()) or place in facts.get("remove_failed", {}):
                yield host, place, facts.get("remove_had", {}).get(place)


def clients(site: Any, lost: str) -> Iterator[str]:
    """Yield the services of other boards that use the broker or the mosquitto of the lost one."""
    settings = {"gateway": ["gateway_kafka"], "mirror": ["mirror_source", "mirror_target"]}
    settings |= {group: ["spark_bootstrap", "spark_master_url"] for group in SPARK}
    for host in site.groups["all"]:
        names = [name for group, names in settings.items() if host in site.groups.get(group, ()) for name in names]
        for name in dict.fromkeys(names if host != lost else ()):
            address = site.text(host, name).removeprefix("spark://")
            if address and site.host_at(host, address) == lost:
                yield f"{name} of {host} is {site.text(host, name)}, which is {lost}: name another board."
        if host != lost and site.mqtt_server(host) == lost:
            address = site.text(host, "gateway_mqtt_host")
            yield f"gateway_mqtt_host of {host} is {address}, which is {lost}: name another board."


def remaining_steps(site: Any, lost: str) -> Iterator[str]:
    """Yield the steps that are left to the operator."""
    groups = {group for group, hosts in site.groups.items() if lost in hosts}
    user, target = site.text(lost, "mirror_target_username"), site.text(lost, "mirror_target")
    if user:
        yield (
            f"At {target}, which is none of this inventory: remove the user {user} and its rights there, and give a "
            f"new password to all that share it."
        )
    elif "mirror" in groups and site.text(lost, "mirror_site"):
        yield (
            f"{target} keeps the topics {site.text(lost, 'mirror_site')}.* and the state of its mirror: a new board "
            f"with this mirror_site goes on in them, else delete them there."
        )
    given = site.value(lost, "broker_settings")
    settings = given if isinstance(given, Mapping) else {}
    if "broker" in groups and CLUSTER in settings:
        yield (
            f"{lost} was a member of the cluster at {settings[CLUSTER]}: give a new board its broker.id "
            f"({settings.get('broker.id', settings.get('node.id', 'see its settings'))}) and an empty disk."
        )
    if "broker" in groups and DIGEST in settings:
        yield f"The file of {DIGEST} is on the card: give the cluster's znodes another user."
    if groups & set(SPARK):
        yield "spark_secret is on the card: every board of that cluster needs a new one."
        yield from shared_log_ins(site, lost)
    mqtt_user = site.text(lost, "gateway_mqtt_username")
    if "gateway" in groups and mqtt_user:
        yield (
            f"MQTT passwords: that of the gateway, {mqtt_user}, is in the open on the card. Give it a new one, with a "
            f"higher rotation in mosquitto_users, where another board has it too."
        )
    if "mosquitto" in groups:
        yield "Passwords of devices are hashes on the card: give devices that other boards know new ones, too."
    addresses = [site.text(lost, f"{role}_metrics") for role in METRICS if role in groups]
    served = [one for one in addresses if one and not site_access.LOOPBACK.match(site_access.endpoint(one)[0])]
    if served:
        yield f"Metrics: take {', '.join(served)} of {lost} out of the targets of your Prometheus."
    yield (
        f"The certificate of {lost} stays trusted until the site has another CA (README.md): with its key, an attacker "
        f"in the network can pass for {lost}."
    )
    yield (
        f"Change the Wi-Fi's password, if the card had it. Then take {lost} out of the inventory, or set its "
        f"security_rotation one higher for a new board."
    )


def shared_log_ins(site: Any, lost: str) -> Iterator[str]:
    """Yield the log-in of Spark that stays, as other boards have it too, and whose password is on the card."""
    server = site.server(lost, site.text(lost, "spark_bootstrap"))
    others = {host for group in SPARK for host in site.groups.get(group, ()) if host != lost}
    users = [host for host in sorted(others) if site.server(host, site.text(host, "spark_bootstrap")) == server]
    if server and server != lost and users and site.mode(server) != "none":
        yield (
            f"The broker of {server} keeps {site.user('spark', server)} for {', '.join(users)}, and its password is on "
            f"the card: set security_rotation of {server} one higher and run provision.yml with -e rotation=now."
        )


class ActionModule(ActionBase):
    """The class that Ansible loads.

    It returns `said`, all sentences, and `stays`, those about log-ins that stay.
    """

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Compose the sentences; nothing changes."""
        variables = task_vars or {}
        result: dict[str, Any] = super().run(tmp, variables)
        hostvars, groups, lost = variables["hostvars"], variables["groups"], variables["inventory_hostname"]
        hosts = {name: site_access.Variables(hostvars.raw_get(name), hostvars, self._loader) for name in groups["all"]}
        site = site_access.Site(hosts, groups, "")
        notes = {name: hostvars.raw_get(name) for name in groups["all"]}
        stays = list(staying(notes))
        result.update(
            said=[*stays, *ended_log_ins(notes), *clients(site, lost), *remaining_steps(site, lost)],
            stays=stays,
            changed=False,
        )
        return result
