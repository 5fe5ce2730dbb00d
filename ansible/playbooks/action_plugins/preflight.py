"""The action `preflight`: holds an inventory, and what hosts say of themselves, against what roles and playbooks know.

It runs the checks of ../preflight_rules, which have the sentences, and prints their findings. ../files/preflight.sh
asks the hosts; nothing is changed anywhere. It needs ansible-core alone, as it runs in the control node's Ansible.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

PLAYBOOKS = Path(__file__).parents[1]


def _rules(name: str) -> ModuleType:
    """Load a module of ../preflight_rules: Ansible puts no folder of a collection on Python's path."""
    sys.path.insert(0, str(PLAYBOOKS))
    try:
        return importlib.import_module(f"preflight_rules.{name}")
    except ModuleNotFoundError as error:
        raise AnsibleError(f"playbooks/preflight_rules/{name}.py is missing: install the collection again.") from error
    finally:
        sys.path.remove(str(PLAYBOOKS))


model = _rules("model")
access_checks, broker_settings, host_checks = map(_rules, ("access_checks", "broker_settings", "host_checks"))
bundle_checks = _rules("bundle_checks")
inventory_checks, site_checks, value_forms = map(_rules, ("inventory_checks", "site_checks", "value_forms"))
log_in_checks, rights_checks, secret_checks = map(_rules, ("log_in_checks", "rights_checks", "secret_checks"))
derivation_checks = _rules("derivation_checks")
GROUPS, Finding, Host, KnownSettings, Variables = (
    model.GROUPS,
    model.Finding,
    model.Host,
    model.KnownSettings,
    model.Variables,
)
metrics, strangers, strangers_as_before = (
    access_checks.metrics,
    access_checks.strangers,
    access_checks.strangers_as_before,
)
crowded_hosts, ports, system, room = host_checks.crowded_hosts, host_checks.ports, host_checks.system, host_checks.room
HOST_CHECKS = (system, room, ports, access_checks.network, metrics, strangers)
REMEDIES = {  # by ssh's own words
    "REMOTE HOST IDENTIFICATION HAS CHANGED": "If it was set up again: `ssh-keygen -R` with its address.",
    "Host key verification failed": "If you know that it is the host: log in once by ssh, or ssh-keyscan its address.",
    "Permission denied": "Is ansible_user right, and has that user your key?",
    "Could not resolve hostname": "Is ansible_host right?",
    "": "Is it on, and is ansible_host right?",
}
PREFIXES = re.compile(r"^(Task failed: )?(Failed to connect to the host via ssh: )?")


def findings(
    members: Mapping[str, Sequence[str]], hosts: Sequence[Host], notes: list[Finding] | None = None
) -> list[Finding]:
    """Return all that would go wrong, the inventory's first, then the hosts' in their order; others go to `notes`."""
    found = inventory_checks.misspelt(members, hosts)
    for host in hosts:
        found += [*inventory_checks.values(host), *inventory_checks.logins(host), *site_checks.spark(host)]
        found += inventory_checks.acceptance(host)
        modes = {role: model.mode(host, role) for role in sorted({"broker", "central"} & host.groups)}
        found += site_checks.secrets(host, modes, has_secret=model.has_secret(host))
        found += derivation_checks.impossible(host)
        for look in HOST_CHECKS if host.answer else ():
            found += look(host)
    refused, unchecked = broker_settings.broker_settings(hosts)
    if notes is not None:
        notes += [*unchecked, *rights_checks.too_wide_as_before(hosts, members)]
        notes += [*secret_checks.weak_as_before(hosts), *bundle_checks.unsigned_as_before(hosts)]
    found += [*refused, *log_in_checks.broker_users(hosts), *log_in_checks.mqtt_users(hosts)]
    found += [*rights_checks.too_wide(hosts, members), *secret_checks.weak_and_new(hosts)]
    found += [*derivation_checks.changed(hosts), *bundle_checks.refused_bundles(hosts)]
    return list(dict.fromkeys([*found, *inventory_checks.sites(hosts), *host_checks.services(hosts)]))


def as_lines(found: Sequence[Finding], *, keys: bool = True) -> list[str]:
    """Put findings into lines, one for each thing, which name all hosts that it is true of, with `keys` at the end."""
    of: dict[tuple[str, str], list[str]] = {}
    for finding in found:
        of.setdefault((finding.key, finding.text), []).append(finding.host)
    return [
        f"{model.name_hosts([host for host in hosts if host]) or 'inventory'}: {text}{f' [{key}]' if keys else ''}"
        for (key, text), hosts in of.items()
    ]


def without_accepted(found: Iterable[Finding], hosts: Sequence[Host]) -> list[Finding]:
    """Leave out what the host of a finding has in `preflight_accept`; for the inventory any host speaks."""
    words = {host.name: set(inventory_checks.accepted_words(host)) for host in hosts}
    words[""] = set().union(*words.values())
    return [finding for finding in found if finding.key not in words[finding.host]]


def check_answer(host: Host, result: Mapping[str, Any]) -> Iterator[Finding]:
    """A host that was reached and gave no answer; one that is not reached is left out, as Ansible does."""
    if not host.answer and not result.get("skipped") and not result.get("unreachable"):
        said = result.get("stderr") or result.get("msg") or result.get("stdout") or "no reason was given"
        remedy = " Add --ask-become-pass." if "sudo password" in str(said) else ""
        yield host.finds("answer", f"no answer as root: {' '.join(str(said).split())}.{remedy}")


def check_reached(host: Host, result: Mapping[str, Any]) -> Iterator[Finding]:
    """A host that this run does without, as Ansible does, and what to do about it."""
    if result.get("unreachable"):
        said = PREFIXES.sub("", str(result.get("msg") or "no reason was given"))
        remedy = next((words for mark, words in REMEDIES.items() if mark in said), REMEDIES[""])
        yield host.finds("unreachable", f"not reached, so left out: {' '.join(said.split()).rstrip('.')}. {remedy}")


class ActionModule(ActionBase):
    """The action plugin: `answers` names the variable with each host's answer; `names_alone` checks names only."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Look at all hosts of the play at once; failed, with all findings in `msg`, when there are any."""
        variables = task_vars or {}
        result: dict[str, Any] = super().run(tmp, variables)
        known, found, notes = KnownSettings(), [], []
        hosts = []
        for name in variables["ansible_play_hosts_all"]:
            of_host = Variables(variables["hostvars"], name, self._loader)
            answer = of_host.get(self._task.args["answers"], {"skipped": True})
            hosts.append(Host(known, name, of_host["group_names"], of_host, answer.get("stdout")))
            found += check_answer(hosts[-1], answer)
            notes += [*check_reached(hosts[-1], answer), *crowded_hosts(hosts[-1]), *strangers_as_before(hosts[-1])]
        if self._task.args.get("names_alone"):
            found += inventory_checks.misspelt(variables["groups"], hosts)
        else:
            found += findings(variables["groups"], hosts, notes)
        found = without_accepted(found, hosts)
        result.update(changed=False)
        lines, noted = as_lines(found), as_lines(without_accepted(notes, hosts), keys=False)
        if found:
            accept = f"To accept a finding, give its word in brackets: -e preflight_accept={found[0].key}"
            self._display.display("\n".join(["", *lines, accept]))
        if noted:
            self._display.display("\n".join(["", "What this run goes on without:", *noted] if not found else noted))
        if found:
            result.update(
                failed=True,
                msg=f"{len(lines)} finding{'s' * (len(lines) != 1)}, listed above; nothing was changed on any host.",
            )
        return result
