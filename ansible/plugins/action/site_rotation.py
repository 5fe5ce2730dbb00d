"""The action `site_rotation`: which users of a broker stay, and which old log-ins end, after passwords were rotated.

| held by the broker, of the site's own | the plan |
|---|---|
| a user that the inventory wants | stays, with its password and rights |
| an older generation of one, the new one was used | ends |
| an older generation of one, the new one was never used | stays, with the rights of the new one; `holding` lists it |
| an older generation of one that several hosts share | stays until `rotation=now`: one use tells of one host |
| any older generation, with `rotation=now` | ends |
| a generation of a removed host, up to the one that remove.yml ended | ends |
| a newer generation than the inventory wants | AnsibleError: the rotation goes up only |
| a user that the inventory no longer has | ends |

Users that the site has not made stay as they are. "Used" means that the broker has recorded a log-in by the new
password. Apache Kafka records none: there a board that has used it reports so in this run (`security_reported`,
roles/security/tasks/use.yml). A user is named by its first generation: `gateway-pi-1`, `gateway-pi-1~2`
(site_access.py). The plan asks no host and needs ansible-core alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

NOW = "now"


class Held(NamedTuple):
    """A user that the broker has, and when it logged in; `used` whether it ever did by its present password."""

    used: bool = False
    first_log_in: str = "unknown"
    last_log_in: str = "unknown"


class Plan(NamedTuple):
    """What a broker gets: `kept` are users that stay without being wanted, `acls` the rights of those and of all."""

    kept: list[str]
    ended: list[str]
    acls: list[list[str]]
    holding: list[dict[str, str]]


class Order(NamedTuple):
    """What the inventory wants: `users` and `acls` of site_access, its `owners` and `removed` hosts, and the word."""

    users: Collection[str]
    acls: Collection[Collection[str]]
    owners: Mapping[str, list[str]]
    removed: Mapping[str, int]
    is_now: bool = False


def generation_of(user: str) -> tuple[str, int]:
    """Split a user's name into the name of its first generation and the number of its own."""
    base, _, number = user.rpartition("~")
    return (base, int(number)) if base and re.fullmatch(r"[1-9]\d{0,6}", number) and number != "1" else (user, 1)


def plan(order: Order, held: Mapping[str, Held], known: Collection[str]) -> Plan:
    """Return what becomes of the users that a broker holds; `known` are those that this site has made there."""
    newest = _newest(order.users)
    kept, ended, holding = [], [], []
    for user in sorted(held):
        if user in order.users:
            continue
        base, generation = generation_of(user)
        if _is_removed(order, base, generation):
            ended.append(user)
        elif base not in newest:
            ended += [user] if user in known else []
        elif generation > generation_of(newest[base])[1]:
            raise AnsibleError(_refusal(user, newest[base], order.owners.get(base, [])))
        elif order.is_now or (held.get(newest[base], Held()).used and len(order.owners.get(base, [])) < 2):
            ended.append(user)
        else:
            kept.append(user)
            holding.append(_holding(user, newest[base], held, order.owners.get(base, [])))
    acls = [list(acl) for acl in order.acls]
    for user in kept:
        acls += [[user, *acl[1:]] for acl in acls if acl[0] == newest[generation_of(user)[0]]]
    return Plan(kept, ended, sorted(acls), holding)


def _newest(users: Collection[str]) -> dict[str, str]:
    """The newest wanted user of each log-in, by its first generation's name."""
    return {generation_of(user)[0]: user for user in sorted(users, key=lambda user: generation_of(user)[1])}


def _is_removed(order: Order, base: str, generation: int) -> bool:
    service, _, host = base.partition("-")
    return service in ("gateway", "mirror", "spark", "verify") and generation <= order.removed.get(host, 0)


def _refusal(user: str, wanted: str, owners: Collection[str]) -> str:
    base, generation = generation_of(user)
    if owners:
        host = base.partition("-")[2]
        return (
            f"security_rotation of {host} is {generation_of(wanted)[1]}, and the broker has {user} already: a rotation "
            f"goes up only, as an older password may have leaked; set it to {generation} or more."
        )
    return f"{wanted} is an older log-in than {user}, which the broker has: name it {base}~{generation + 1}."


def _holding(user: str, successor: str, held: Mapping[str, Held], owners: Collection[str]) -> dict[str, str]:
    base, one = generation_of(user)[0], held[user]
    shared = f"by -e rotation=now, once {', '.join(owners)} have the new one" if len(owners) > 1 else ""
    return {
        "user": user,
        "service": base.partition("-")[0],
        "board": ", ".join(owners) or "unknown",
        "first_log_in": one.first_log_in,
        "last_log_in": one.last_log_in,
        "ends": shared or f"in the first run after {successor} has logged in",
    }


class ActionModule(ActionBase):
    """The class that Ansible loads.

    It takes `access` (the result of site_access), `held` (user to `first_log_in` and `last_log_in`), `known`,
    and `rotation`, and returns the fields of `Plan` with `users`, all that the broker holds then.
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
        access = given["access"]
        order = Order(access["users"], access["acls"], access["owners"], access["removed"], word == NOW)
        server = variables["inventory_hostname"]
        reported = _reported(variables["hostvars"], order.owners)
        held = {user: _held(times, f"{server} {user}" in reported) for user, times in given["held"].items()}
        found = plan(order, held, set(given["known"]))
        result.update(found._asdict())
        result.update(users=sorted({*access["users"], *found.kept}), changed=False)
        return result


def _reported(hostvars: Any, owners: Mapping[str, list[str]]) -> set[str]:
    """What boards have reported in this run: the broker's host and the user of each log-in that they have used."""
    hosts = {host for hosts in owners.values() for host in hosts}
    return {str(one) for host in hosts for one in hostvars.raw_get(host).get("security_reported") or ()}


def _held(times: Mapping[str, str], is_reported: bool) -> Held:
    first, last = times.get("first_log_in", "unknown"), times.get("last_log_in", "unknown")
    return Held(is_reported or first not in ("never", "unknown"), first, last)
