"""Declares hosts, their variables and answers, the settings and plugins of roles and playbooks, and findings."""

from __future__ import annotations

import difflib
import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from ansible.errors import AnsibleError
from ansible.template import Templar

COLLECTION = Path(__file__).parents[2]
GROUPS = {  # group: the role that it is for; provision.yml has a play for each
    "base": "base",
    "broker": "broker",
    "central": "central",
    "mosquitto": "mosquitto",
    "gateway": "gateway",
    "mirror": "mirror",
    "spark_master": "spark",
    "spark_worker": "spark",
    "spark_jobs": "spark",
}
ADDRESS = re.compile(r"(?:[^\s:/\[\]]+|\[[0-9A-Fa-f:.]+(?:%\w+)?\]):([0-9]{1,5})")
LOOPBACK = re.compile(r"127\.|localhost$|::1$")
HOSTS_SHOWN = 6
MQTT_BY_TLS = "0.0.0.0:8883"
NEAR = 0.8  # of difflib, from 0 to 1


def action_plugin(name: str) -> Any:
    """Load an action plugin of the collection, whose rules a check asks; AnsibleError: it is missing."""
    return script(f"plugins/action/{name}.py")


@cache
def script(name: str) -> Any:
    """Load a script of the collection by its path there; AnsibleError: it is missing."""
    path = COLLECTION / name
    spec = importlib.util.spec_from_file_location(f"drupelet_{path.stem}", path)
    if spec is None or spec.loader is None or not path.exists():
        raise AnsibleError(f"{path} is missing: install the collection again.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Finding(NamedTuple):
    """A finding: `key` is its word in preflight_accept, `host` is empty if it is the inventory's own."""

    host: str
    key: str
    text: str


class KnownSettings:
    """The declarations of roles and playbooks: settings by name, the role of each, and the names they use within."""

    def __init__(self, collection: Path = COLLECTION) -> None:
        """Read the declarations; about 100 small files."""
        self.settings: dict[str, dict[str, Any]] = {}
        self.roles: dict[str, dict[str, dict[str, Any]]] = {}
        self.defaults: dict[str, Any] = {}
        for role in sorted((collection / "roles").iterdir()):
            self.roles[role.name] = options_of(role / "meta/argument_specs.yml")
            self.settings |= self.roles[role.name]
            defaults = role / "defaults/main.yml"
            self.defaults |= yaml.safe_load(defaults.read_text()) or {} if defaults.exists() else {}
        playbooks = collection / "playbooks"
        self.playbook_settings = options_of(playbooks / "meta/argument_specs.yml")
        self.settings |= self.playbook_settings
        self.prefixes = sorted({name.split("_")[0] for name in self.settings} | set(self.roles))
        self.closed = {name.split("_")[0] for options in self.roles.values() for name in options}
        word = re.compile(rf"\b(?:{'|'.join(self.prefixes)})_\w+")
        texts = (path.read_text() for folder in (collection / "roles", playbooks) for path in folder.rglob("*.yml"))
        self.words = {name for text in texts for name in word.findall(text)}

    def nearest(self, name: str, near: float = NEAR) -> str:
        """Return the setting whose name is most like this one; empty when none is."""
        return next(iter(difflib.get_close_matches(name, self.settings, n=1, cutoff=near)), "")


def options_of(path: Path) -> dict[str, dict[str, Any]]:
    """Return what an argument_specs.yml declares, by name."""
    specs = yaml.safe_load(path.read_text())["argument_specs"]
    return {name: option for spec in specs.values() for name, option in spec["options"].items()}


class Variables(Mapping[str, Any]):
    """The variables of one host, each worked out when it is asked for; AnsibleError where that cannot be."""

    def __init__(self, hostvars: Any, name: str, loader: Any) -> None:
        self._raw = hostvars.raw_get(name)
        if not self._raw.get("ansible_facts"):  # not asked for yet: undefined, not without the one that is wanted
            self._raw = {key: value for key, value in self._raw.items() if key != "ansible_facts"}
        self._templar = Templar(loader=loader, variables=self._raw | {"hostvars": hostvars})

    def __getitem__(self, name: str) -> Any:
        return self._templar.template(self._raw[name])

    def __contains__(self, name: object) -> bool:
        return name in self._raw

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)


class Host:
    """One host of the inventory: its groups, its variables, and its answer, None where it gave none.

    `log_ins` are the users that its broker has, each with the derivation of its password.
    """

    def __init__(
        self, known: KnownSettings, name: str, groups: Iterable[str], variables: Mapping[str, Any], answer: str | None
    ) -> None:
        self.known, self.name, self.groups, self.variables = known, name, set(groups), variables
        self.answer: dict[str, str] = {}
        self.listening: list[tuple[str, int, str]] = []
        self.log_ins: dict[str, str] = {}
        for line in (answer or "").splitlines():
            key, _, value = line.strip().partition(" ")
            if key == "listens":
                address, unit, program = [*value.split(" "), "-", ""][:3]
                self.listening.append((*endpoint(address), unit if unit != "-" else program))
            elif key == "log_in":
                user, _, derivation = value.rpartition(" ")
                self.log_ins[user] = derivation
            elif key:
                self.answer[key] = value

    @property
    def roles(self) -> list[str]:
        """The roles that it gets, by its groups."""
        return sorted({role for group, role in GROUPS.items() if group in self.groups})

    @property
    def is_kafka(self) -> bool:
        """Whether Apache Kafka is its broker, or it is the datacenter's."""
        return "central" in self.groups or ("broker" in self.groups and self.value("broker_engine") == "kafka")

    @property
    def has_spark(self) -> bool:
        """Whether Spark comes on it."""
        return "spark" in self.roles

    def value(self, name: str) -> Any:
        """Return a setting, else the role's default; None for what cannot be worked out here."""
        try:
            return whole(self.variables[name])
        except KeyError:
            default = self.known.defaults.get(name)
            return None if isinstance(default, str) and "{{" in default else default
        except AnsibleError:
            return None

    def number(self, name: str) -> int:
        """Return a setting that is a number; 0 for what is none, which `values` tells."""
        value = self.value(name)
        return int(value) if isinstance(value, int) or str(value).isdigit() else 0

    def answer_number(self, key: str, otherwise: int) -> int:
        """Return a number of the answer."""
        value = self.answer.get(key, "")
        return int(value) if value.isdigit() else otherwise

    def finds(self, key: str, text: str) -> Finding:
        """Make a finding of this host."""
        return Finding(self.name, key, text)


def whole(value: Any) -> Any:
    """Return the value with all that is in it worked out; AnsibleError where that cannot be."""
    if isinstance(value, Mapping):
        return {key: whole(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [whole(inner) for inner in value]
    return value


def endpoint(text: str) -> tuple[str, int]:
    """Split ADDRESS:PORT; port 0 where there is none."""
    address, _, port = text.rpartition(":")
    return address.strip("[]").partition("%")[0], int(port) if port.isdigit() else 0


def is_address(text: str) -> bool:
    """Return whether a text is ADDRESS:PORT."""
    found = ADDRESS.fullmatch(text)
    return found is not None and 0 < int(found[1]) < 65536


def has_secret(host: Host) -> bool:
    """Whether the site has its secret; one that cannot be worked out is there: `values` tells what it lacks."""
    return "security_secret" in host.variables and host.value("security_secret") != ""


def mode(host: Host, role: str) -> str:
    """How a broker is to know its clients, as the role works it out."""
    return str(host.value(f"{role}_security") or ("secured" if has_secret(host) else "none"))


def name_hosts(hosts: Sequence[str]) -> str:
    """Name hosts, the first few of many."""
    more = len(hosts) - HOSTS_SHOWN
    return ", ".join(hosts[:HOSTS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def mqtt_listeners(host: Host) -> Iterator[tuple[str, str]]:
    """Setting and address of each of mosquitto's listeners, as the role works them out."""
    by_default = [MQTT_BY_TLS] if host.value("mosquitto_users") and has_secret(host) else []
    for name in ("mosquitto_listeners", "mosquitto_tls_listeners"):
        told = host.value(name) if name in host.variables or "tls" not in name else by_default
        yield from ((name, str(address)) for address in (told if isinstance(told, list) else ()))
