"""The action `site_rotation`: which users of a broker stay, and which old log-ins end, after passwords were rotated.

| held by the broker, of the site's own | the plan |
|---|---|
| a user that the inventory wants | stays, with its password and rights |
| an older generation of one, the new one was used | ends |
| an older generation of one, the new one was never used | stays, with the rights of the new one; `holding` lists it |
| an older generation of one, used again after the new one | stays likewise: the service got its former files back |
| an older generation of one that several hosts share | ends once each of them has used the new one in this run |
| any older generation, with `rotation=now` | ends; `refused` lists it if a service may still use it |
| a generation of a removed host, up to the one that remove.yml ended | ends |
| a newer generation than the inventory wants | AnsibleError: the rotation goes up only |
| a user whose service moved to another broker of the inventory | stays, with its rights, until a run sees it there |
| any other user that the inventory no longer has | ends |

Users that the site has not made stay as they are. "Used" means that the broker has recorded a log-in by the new
password, and none by the old one since. Apache Kafka records none: there a board that has used it reports so in this
run (`security_reported`, roles/security/tasks/use.yml). A user is named by its first generation: `gateway-pi-1`,
`gateway-pi-1~2` (site_access.py). The plan asks no host and needs ansible-core alone.

With `mqtt_users` it plans mosquitto's users likewise. mosquitto checks one hash per name, so there too each generation
is a user. Its journal has the log-ins (roles/mosquitto/files/log_ins.py). A user whom several devices may share stays
as long as a client uses it after the new one was used.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

NOW = "now"
NONE: Mapping[str, Any] = MappingProxyType({})
HASH = re.compile(r"\$[67]\$[^:\s]+")


class HeldUser(NamedTuple):
    """A user that the broker has, and when it logged in; `used` whether it ever did by its present password.

    `in_use` says that a client has used it after the newer generation: at mosquitto after its first log-in, elsewhere
    after its last one.
    """

    used: bool = False
    first_log_in: str = "unknown"
    last_log_in: str = "unknown"
    in_use: bool = False


class Plan(NamedTuple):
    """The plan for a broker: `kept` are users that stay without being wanted, `acls` the ACLs of those and of all.

    `moved` are those of `kept` whose rights stay as the broker has them. `refused` lists those of `ended` that the word
    ends and that a service may still use.
    """

    kept: list[str]
    ended: list[str]
    acls: list[list[str]]
    holding: list[dict[str, str]]
    moved: list[str]
    refused: list[dict[str, str]]


class Order(NamedTuple):
    """The inventory's users: `users` and `acls` of site_access, its `owners` and `removed` hosts, and the word.

    `unseen` has, for each log-in whose service moved, the brokers that it moved to and that no run has seen it use.
    `reports` has the hosts that have used each user in this run. `shared` are log-ins of which no host reports a
    use: the word alone ends them. `setting` is the variable that holds the number of a rotation.
    """

    users: Collection[str]
    acls: Collection[Collection[str]]
    owners: Mapping[str, list[str]]
    removed: Mapping[str, int]
    is_now: bool = False
    unseen: Mapping[str, Collection[str]] = NONE
    reports: Mapping[str, Collection[str]] = NONE
    shared: Collection[str] = ()
    setting: str = "security_rotation"


def generation_of(user: str) -> tuple[str, int]:
    """Split a user's name into the name of its first generation and the number of its own."""
    base, _, number = user.rpartition("~")
    return (base, int(number)) if base and re.fullmatch(r"[1-9]\d{0,6}", number) and number != "1" else (user, 1)


def plan(order: Order, held: Mapping[str, HeldUser], known: Collection[str]) -> Plan:
    """Return what becomes of the users that a broker holds; `known` are those that this site has made there."""
    newest = _newest(order.users)
    kept, ended, holding, moved = [], [], [], []
    refused: list[dict[str, str]] = []
    for user in sorted(held):
        if user in order.users:
            continue
        base, generation = generation_of(user)
        if _is_removed(order, base, generation):
            ended.append(user)
        elif base not in newest:
            is_unseen = user in known and bool(order.unseen.get(base))
            if is_unseen and not order.is_now:
                moved.append(user)
            elif user in known:
                ended.append(user)
            if is_unseen:
                (refused if order.is_now else holding).append(_moved_row(user, held[user], order))
        elif generation > generation_of(newest[base])[1]:
            raise AnsibleError(_refusal(user, newest[base], order))
        elif _is_replaced(order, held, user, newest[base]):
            ended.append(user)
        elif order.is_now:
            ended.append(user)
            refused.append(_refusal_row(user, newest[base], held, order))
        else:
            kept.append(user)
            holding.append(_holding(user, newest[base], held, order))
    acls = [list(acl) for acl in order.acls]
    for user in kept:
        acls += [[user, *acl[1:]] for acl in acls if acl[0] == newest[generation_of(user)[0]]]
    return Plan(sorted(kept + moved), ended, sorted(acls), holding, moved, refused)


def _newest(users: Collection[str]) -> dict[str, str]:
    """The newest wanted user of each log-in, by its first generation's name."""
    return {generation_of(user)[0]: user for user in sorted(users, key=lambda user: generation_of(user)[1])}


def _is_removed(order: Order, base: str, generation: int) -> bool:
    service, _, host = base.partition("-")
    return service in ("gateway", "mirror", "spark", "verify") and generation <= order.removed.get(host, 0)


def _is_replaced(order: Order, held: Mapping[str, HeldUser], user: str, successor: str) -> bool:
    """Whether no host can need a user any more, as all of its hosts have used its successor."""
    base = generation_of(user)[0]
    owners = order.owners.get(base, [])
    if base in order.shared:
        return False
    if len(owners) > 1:
        return set(owners) <= set(order.reports.get(successor, ()))
    return held.get(successor, HeldUser()).used and not held[user].in_use


def _refusal(user: str, wanted: str, order: Order) -> str:
    base, generation = generation_of(user)
    if order.setting != "security_rotation" or order.owners.get(base):
        owner = base if order.setting != "security_rotation" else base.partition("-")[2]
        return (
            f"{order.setting} of {owner} is {generation_of(wanted)[1]}, and the broker has {user} already: a rotation "
            f"goes up only, as an older password may have leaked; set it to {generation} or more."
        )
    return f"{wanted} is an older log-in than {user}, which the broker has: name it {base}~{generation + 1}."


def _holding(user: str, successor: str, held: Mapping[str, HeldUser], order: Order) -> dict[str, str]:
    base = generation_of(user)[0]
    owners = order.owners.get(base, [])
    ends = f"in the first run after {successor} has logged in"
    if base in order.shared:
        ends = f"by -e rotation=now, once all that share it have {successor}"
    elif len(owners) > 1:
        ends = f"in the first run in which each of {', '.join(owners)} uses {successor}"
    elif held[user].in_use:
        ends = f"in the first run after its clients have logged in as {successor}: one still uses {user}"
    return _row(user, held[user], owners) | {"ends": ends}


def _refusal_row(user: str, successor: str, held: Mapping[str, HeldUser], order: Order) -> dict[str, str]:
    """Return the row of a log-in that the word ends while a client may still need it."""
    owners = order.owners.get(generation_of(user)[0], [])
    why = f"{successor} has not logged in"
    if held[user].in_use:
        why = f"its last log-in is newer than that of {successor}"
    elif len(owners) > 1 or generation_of(user)[0] in order.shared:
        why = f"not all that share it are known to use {successor}"
    return _row(user, held[user], owners) | {"why": why}


def _moved_row(user: str, held: HeldUser, order: Order) -> dict[str, str]:
    base = generation_of(user)[0]
    places = ", ".join(sorted(order.unseen[base]))
    row = _row(user, held, [base.partition("-")[2]])
    if order.is_now:
        return row | {"why": f"its service moved to {places} and was not seen there in this run"}
    return row | {"ends": f"in the first run in which its service, which moved, uses {places}"}


def _row(user: str, held: HeldUser, owners: Collection[str]) -> dict[str, str]:
    return {
        "user": user,
        "service": user.partition("-")[0],
        "board": ", ".join(owners) or "unknown",
        "first_log_in": held.first_log_in,
        "last_log_in": held.last_log_in,
    }


# --- mosquitto ---


def mqtt_wanted(entries: Collection[Mapping[str, Any]], removed: Collection[str]) -> dict[str, Mapping[str, Any]]:
    """Return the entries of mosquitto_users by the user of their rotation, without users of removed hosts alone.

    A name or a rule that mosquitto's files cannot hold is an AnsibleError.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        name, rotation = str(entry["name"]), str(entry.get("rotation", 1))
        if not re.fullmatch(r"[1-9]\d{0,6}", rotation):
            raise AnsibleError(f"rotation of {name} in mosquitto_users is {rotation}: give a number from 1 on.")
        if not name or re.search(r"[:\x00-\x1f\x7f]", name) or name != name.strip():
            raise AnsibleError(f"a name in mosquitto_users is {name!r}: give one without colons and spaces around it.")
        if rotation != "1" and generation_of(name)[1] != 1:
            raise AnsibleError(
                f"name in mosquitto_users is {name}, with rotation {rotation}: leave out its "
                f"~{generation_of(name)[1]}, which the rotation adds."
            )
        for rule in entry["acl"]:
            if re.search(r"(^|[\s/])%[uc]($|/)", str(rule)):
                raise AnsibleError(
                    f"acl of {name} in mosquitto_users has {rule}: mosquitto takes %u and %c there as they are; "
                    f"write the name itself."
                )
        user = name if rotation == "1" else f"{name}~{rotation}"
        if user in found:
            raise AnsibleError(f"mosquitto_users has {user} twice: give each user one entry.")
        if name not in removed:
            found[user] = entry
    return found


def mqtt_hashes(text: str) -> dict[str, str]:
    """Return the hash of each user of mosquitto's password file; mosquitto goes by a name's last line."""
    lines = (line.partition(":") for line in text.split("\n"))
    return {name: found for name, _, found in lines if name and HASH.fullmatch(found)}


def mqtt_held(users: Collection[str], log_ins: Mapping[str, Mapping[str, Any]]) -> dict[str, HeldUser]:
    """Return the users that mosquitto has, with what its journal tells of each (roles/mosquitto/files/log_ins.py)."""
    firsts = {user: log_ins[user]["first"] for user in users if user in log_ins}
    found = {}
    for user in users:
        base, generation = generation_of(user)
        newer = [
            first
            for other, first in firsts.items()
            if generation_of(other)[0] == base and generation_of(other)[1] > generation
        ]
        times = log_ins.get(user)
        found[user] = HeldUser(
            times is not None,
            times["first_log_in"] if times else "never",
            times["last_log_in"] if times else "never",
            bool(times and newer and (times["connected"] or times["last"] > min(newer))),
        )
    return found


def mqtt_plan(
    entries: Collection[Mapping[str, Any]],
    owners: Mapping[str, list[str]],
    removed: Collection[str],
    held: Mapping[str, HeldUser],
    *,
    is_now: bool,
) -> Plan:
    """Return the plan for mosquitto's users; a user without an entry ends, by any origin."""
    wanted = mqtt_wanted(entries, removed)
    acls = [[user, str(rule)] for user, entry in wanted.items() for rule in entry["acl"]]
    shared = {str(entry["name"]) for entry in entries if entry.get("shared")}
    shared |= {base for base, hosts in owners.items() if len(hosts) > 1}
    order = Order(wanted, acls, owners, {}, is_now, shared=shared, setting="rotation in mosquitto_users")
    return plan(order, held, held)


class ActionModule(ActionBase):
    """The class that Ansible loads.

    It takes `access` (the result of site_access) and `rotation`, and for a broker `held` (user to `first_log_in`,
    `last_log_in` and `last_ms`), `known` and `left` (`moved` of site_access). It returns the fields of `Plan` with
    `users`, all that the broker holds then.

    For mosquitto it takes `mqtt_users`, `mqtt_passwd` (the text of its password file), `mqtt_made` (user to the second
    in which it was made) and `mqtt_journal` (the result of log_ins.py). It returns `mqtt`, the users that mosquitto
    holds then, each with `name`, `acl`, and `hash` or `password`, `made`, `holding` and `refused`.
    """

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Plan; nothing changes."""
        variables = task_vars or {}
        result: dict[str, Any] = super().run(tmp, variables)
        given = self._task.args
        word = str(given.get("rotation") or "")
        if word not in ("", NOW):
            raise AnsibleError(
                f"rotation is {word}: leave it out, or set it to now, which ends every old log-in at once."
            )
        if "mqtt_users" in given:
            result.update(_mqtt(given, is_now=word == NOW), changed=False)
            return result
        access, server, hostvars = given["access"], variables["inventory_hostname"], variables["hostvars"]
        moved = given.get("left") or {}
        hosts = {host for hosts in access["owners"].values() for host in hosts}
        hosts |= {host for places in moved.values() for _, _, users in places for host in users}
        reports = _reports(hostvars, hosts)
        unseen = {base: _unseen_brokers(places, reports) for base, places in moved.items()}
        here = {user: hosts for (place, user), hosts in reports.items() if place == server}
        order = Order(access["users"], access["acls"], access["owners"], access["removed"], word == NOW, unseen, here)
        held = broker_held(given["held"], here)
        found = plan(order, held, set(given["known"]))
        result.update(found._asdict())
        result.update(users=sorted({*access["users"], *found.kept}), changed=False)
        return result


def _reports(hostvars: Any, hosts: Collection[str]) -> dict[tuple[str, str], set[str]]:
    """Return which boards have used a log-in in this run, by the broker's host and the user."""
    found: dict[tuple[str, str], set[str]] = {}
    for host in hosts:
        for report in hostvars.raw_get(host).get("security_reported") or ():
            server, _, user = str(report).partition(" ")
            found.setdefault((server, user), set()).add(host)
    return found


def _unseen_brokers(
    places: Collection[tuple[str, str, list[str]]], reports: Mapping[tuple[str, str], set[str]]
) -> list[str]:
    """Return the brokers to which a service moved, without those that each of its hosts has used in this run.

    `places` are those of site_access. The record of the new broker is not enough: a service that was there may have got
    its former files back, and use the former broker again.
    """
    return [server for server, user, hosts in places if not set(hosts) <= reports.get((server, user), set())]


def broker_held(given: Mapping[str, Mapping[str, Any]], reported: Collection[str]) -> dict[str, HeldUser]:
    """Return the users of a broker with what it has recorded of each; boards have used the `reported` ones in this run.

    Apache Kafka records nothing. Records of edge-broker are of one clock, and in order for the generations of a log-in.
    """
    found = {}
    for user, times in given.items():
        base, generation = generation_of(user)
        first, last = times.get("first_log_in", "unknown"), times.get("last_log_in", "unknown")
        newer = [
            other.get("last_ms", 0)
            for name, other in given.items()
            if generation_of(name)[0] == base and generation_of(name)[1] > generation
        ]
        in_use = times.get("last_ms", 0) > max(newer, default=0) > 0
        found[user] = HeldUser(user in reported or first not in ("never", "unknown"), first, last, in_use)
    return found


def _mqtt(given: Mapping[str, Any], *, is_now: bool) -> dict[str, Any]:
    """Return mosquitto's users: those of the inventory with their password, old ones with the hash that is there."""
    entries, access, journal = given["mqtt_users"] or (), given["access"], given["mqtt_journal"]
    hashes, made = mqtt_hashes(str(given["mqtt_passwd"])), given["mqtt_made"] or {}
    held = mqtt_held(set(hashes), journal.get("log_ins") or {})
    found = mqtt_plan(entries, access["mqtt_owners"], access["mqtt_removed"], held, is_now=is_now)
    wanted = mqtt_wanted(entries, access["mqtt_removed"])
    newest = _newest(wanted)
    users = [{"name": user, "password": entry["password"], "acl": entry["acl"]} for user, entry in wanted.items()]
    for user in found.kept:
        users.append({"name": user, "hash": hashes[user], "acl": wanted[newest[generation_of(user)[0]]]["acl"]})
    times = {one["name"]: made.get(one["name"], 0 if one["name"] in hashes else journal.get("now", 0)) for one in users}
    return {"mqtt": users, "made": times, "holding": found.holding, "ended": found.ended, "refused": found.refused}
