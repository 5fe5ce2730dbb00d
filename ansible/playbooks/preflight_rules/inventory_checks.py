"""Finds mistakes in an inventory alone: names of groups and variables, values, boards that overwrite each other."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from preflight_rules import value_forms
from preflight_rules.model import GROUPS, LOOPBACK, NEAR, Finding, Host, endpoint, is_address, name_hosts, whole

NEAR_ANY = 0.9  # for a name that begins like none of ours


def groups(members: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Groups that are called nearly like one that playbooks know, and an inventory of which they know none."""
    if not any(members.get(group) for group in GROUPS):
        yield Finding("", "groups", f"no host is in a group that the playbooks know: {', '.join(GROUPS)}.")
    for group, hosts in members.items():
        near = difflib.get_close_matches(group.replace("-", "_"), GROUPS, n=1, cutoff=NEAR)
        if group in GROUPS or not near:
            continue
        left_out = [host for host in hosts if host not in members.get(near[0], ())]
        if left_out:  # else it is a group of groups
            yield Finding(
                "", group, f"no playbook knows the group {group}, with {name_hosts(left_out)}. Is it {near[0]}?"
            )


def names(host: Host) -> Iterator[Finding]:
    """Variables that begin like a role's, or look like one of its, and that no role takes."""
    known = host.known
    for name in host.variables:
        if name in known.settings or name in known.words or name.startswith(("ansible_", "vault_")):
            continue
        ours, _, ending = name.partition("_")
        near = known.nearest(name, NEAR if ending and ours in known.prefixes else NEAR_ANY)
        if near and ours not in known.prefixes and near in name:  # my_gateway_kafka is the user's own
            continue
        if near:
            yield host.finds(name, f"no role takes the variable {name}. Is it {near}?")
        elif ending and ours in known.closed:
            yield host.finds(name, f"no role takes the variable {name}; one of your own wants another beginning.")


def values(host: Host) -> Iterator[Finding]:
    """Settings that are missing, cannot be worked out, or are not what their role declares."""
    included = ["drupelet", "packages", "security"] if set(host.roles) - {"base"} else []
    for role in [*host.roles, *included, *(["kafka"] if host.is_kafka else [])]:
        options = host.known.roles[role]
        for name, option in options.items():
            if name in host.variables:
                yield from _value(host, name, option)
            elif option.get("required"):
                description = str(option["description"]).rstrip(".")
                yield host.finds(name, f"the role {role} needs {name}, which is not set: {description}.")


def _value(host: Host, name: str, option: dict[str, Any]) -> Iterator[Finding]:
    try:
        value = whole(host.variables[name])
    except AnsibleError as error:
        missing = re.search(r"'(\w+)' is undefined", str(error))
        if missing and (missing[1] in host.known.words or missing[1].startswith("ansible_")):
            return  # the role knows it, or the host will tell
        if missing and missing[1].startswith("vault_"):
            text = (
                f"{name} is to be {missing[1]}, which is in no file: put it into a vault.yml of group_vars (README.md)."
            )
        elif other := re.search(r"hostvars\['([^']+)'\]", str(error)):
            text = f"{name} asks for the host {other[1]}, which the inventory lacks: put it in, or name another."
        else:
            text = f"{name} cannot be worked out: {' '.join(str(error).split())}"
        yield host.finds(name, text)
        return
    if said := _unlike(name, option, value) or _no_address(option, value) or value_forms.problem(name, value):
        yield host.finds(name, f"{name} is not what its role takes: {said}.")


def _unlike(name: str, option: dict[str, Any], value: Any) -> str:
    """Say how a value differs from the declaration, the whole of it before what is in it; empty where it does not."""
    outside = {key: told for key, told in option.items() if key != "options"} | {"required": False}
    for spec in (outside, option | {"required": False}):
        if messages := ArgumentSpecValidator({name: spec}).validate({name: value}).error_messages:
            break
    words = {  # Ansible's, of the whole and of what is in it
        rf"Elements value for option '{name}' is of type (\w+) and we were unable to convert to (\w+):.*": (
            r"one of it is of type \1 and no \2"
        ),
        rf"argument '{name}' is of type (\w+) and we were unable to convert to (\w+):.*": r"it is of type \1 and no \2",
        rf"{name}\.(.*)\. Supported parameters include: (.*)": r"\1 is none of \2",
    }
    for pattern, ours in words.items():
        messages = [re.sub(pattern, ours, message.rstrip("."), flags=re.DOTALL) for message in messages]
    return "; ".join(dict.fromkeys(messages))


def _no_address(option: dict[str, Any], value: Any) -> str:
    """Say which address is none, of a setting that is declared to be one or some; empty where all are."""
    form = re.match(r"(HOST|ADDRESS):PORT", str(option["description"]))
    if not form or not value:
        return ""
    parts = value if isinstance(value, list) else str(value).split(",")
    wrong = next((str(part).strip() for part in parts if not is_address(str(part).strip())), None)
    return "" if wrong is None else f"{wrong} is no {form[0]}, such as 127.0.0.1:9092"


def accepted_words(host: Host) -> list[str]:
    """Return the findings that a host accepts; `acceptance` has a finding where it has neither a text nor a list."""
    value = host.value("preflight_accept")
    if isinstance(value, str):
        return re.split(r"[ ,]+", value)
    return [str(word) for word in value] if isinstance(value, list | tuple) else []


def acceptance(host: Host) -> Iterator[Finding]:
    """A `preflight_accept` of another type, which accepts nothing."""
    value = host.value("preflight_accept")
    if value is not None and not isinstance(value, str | list | tuple):
        text = f"preflight_accept is {value}: write the words in brackets, as a list or separated by commas."
        yield host.finds("preflight_accept", text)


def logins(host: Host) -> Iterator[Finding]:
    """A mirror that is to log in without a password."""
    if "mirror" in host.groups and host.value("mirror_target_username") and host.value("mirror_target_password") == "":
        user = host.value("mirror_target_username")
        yield host.finds(
            "mirror_target_password",
            f"mirror_target_username is {user}, and mirror_target_password is not set: put it into a vault.yml of "
            "group_vars (README.md).",
        )


def sites(hosts: Sequence[Host]) -> Iterator[Finding]:
    """Boards whose mirrors would write into the same topics."""
    mirrors = [
        host for host in hosts if "mirror" in host.groups and host.value("mirror_target") and host.value("mirror_site")
    ]
    writes = Counter((str(host.value("mirror_target")), str(host.value("mirror_site"))) for host in mirrors)
    for host in mirrors:
        if LOOPBACK.match(endpoint(str(host.value("mirror_source")))[0]):
            target, site = str(host.value("mirror_target")), str(host.value("mirror_site"))
            if writes[target, site] > 1:
                yield host.finds(
                    "mirror_site",
                    f"mirror_site is {site} on {writes[target, site]} boards, whose topics would mix at {target}.",
                )


def misspelt(members: Mapping[str, Sequence[str]], hosts: Sequence[Host]) -> list[Finding]:
    """Return what is wrong with names alone."""
    return [*groups(members), *(finding for host in hosts for finding in names(host))]
