"""The action `preflight`: holds an inventory, and what hosts say of themselves, against what roles and playbooks know.

Here: what is looked for, and the sentence for each. Nothing is asked of a host here (../files/preflight.sh does that),
and nothing is changed anywhere. It needs ansible-core alone, as it runs in the control node's Ansible.
"""

from __future__ import annotations

import difflib
import importlib.util
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import yaml
from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase
from ansible.template import Templar

COLLECTION = Path(__file__).parents[2]


def _rules(name: str) -> ModuleType:
    """Load a module of ../preflight_rules by its path: Ansible puts no folder of a collection on Python's path."""
    spec = importlib.util.spec_from_file_location(
        f"drupelet_preflight_{name}", COLLECTION / "playbooks/preflight_rules" / f"{name}.py"
    )
    if spec is None or spec.loader is None:
        raise AnsibleError(f"playbooks/preflight_rules/{name}.py is missing: install the collection again.")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


broker_check, site_checks, value_forms = map(_rules, ("broker_check", "site_checks", "value_forms"))
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
SYSTEMS = ("debian", "raspbian")
SYSTEM_MIN = 12
PYTHON_MIN = (3, 11)
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64", "armhf": "armv7l"}
FREE_MB_MIN, SPARK_MB, JAVA_MB = (
    200,
    1300,
    300,
)  # the first installation: release, what it is made from, Debian packages
SPARK_PORTS = {"spark_master": 8080, "spark_worker": 8081}
ADDRESS = re.compile(r"(?:[^\s:/\[\]]+|\[[0-9A-Fa-f:.]+(?:%\w+)?\]):([0-9]{1,5})")
LOOPBACK = re.compile(r"127\.|localhost$|::1$")
BROKER_MODES = ("none", "secured", "migrate")
BROKER_ADDRESSES = ("listen", "secured_listen", "advertise", "metrics")
MQTT_BY_TLS = "0.0.0.0:8883"
HOSTS_SHOWN = 6
REMEDIES = {  # by ssh's own words
    "REMOTE HOST IDENTIFICATION HAS CHANGED": "If it was set up anew: `ssh-keygen -R` with its address.",
    "Host key verification failed": "If you know that it is the host: log in once by ssh, or ssh-keyscan its address.",
    "Permission denied": "Is ansible_user right, and has that user your key?",
    "Could not resolve hostname": "Is ansible_host right?",
    "": "Is it on, and is ansible_host right?",
}
PREFIXES = re.compile(r"^(Task failed: )?(Failed to connect to the host via ssh: )?")
NEAR = 0.8  # of difflib, from 0 to 1
NEAR_ANY = 0.9  # for a name that begins like none of ours


class Finding(NamedTuple):
    """What would go wrong: `key` is what preflight_accept takes, `host` is empty where it is the inventory's own."""

    host: str
    key: str
    text: str


class Known:
    """What roles and playbooks declare: settings by name, the role of each, and the names they use within."""

    def __init__(self, collection: Path = COLLECTION) -> None:
        """Read the declarations; about 100 small files."""
        self.settings: dict[str, dict[str, Any]] = {}
        self.roles: dict[str, dict[str, dict[str, Any]]] = {}
        self.defaults: dict[str, Any] = {}
        for role in sorted((collection / "roles").iterdir()):
            self.roles[role.name] = _options(role / "meta/argument_specs.yml")
            self.settings |= self.roles[role.name]
            defaults = role / "defaults/main.yml"
            self.defaults |= yaml.safe_load(defaults.read_text()) or {} if defaults.exists() else {}
        playbooks = collection / "playbooks"
        self.playbook_settings = _options(playbooks / "meta/argument_specs.yml")
        self.settings |= self.playbook_settings
        self.prefixes = sorted({name.split("_")[0] for name in self.settings} | set(self.roles))
        self.closed = {name.split("_")[0] for options in self.roles.values() for name in options}
        word = re.compile(rf"\b(?:{'|'.join(self.prefixes)})_\w+")
        texts = (path.read_text() for folder in (collection / "roles", playbooks) for path in folder.rglob("*.yml"))
        self.words = {name for text in texts for name in word.findall(text)}

    def nearest(self, name: str, near: float = NEAR) -> str:
        """Return the setting whose name is most like this one; empty when none is."""
        return next(iter(difflib.get_close_matches(name, self.settings, n=1, cutoff=near)), "")


def _options(path: Path) -> dict[str, dict[str, Any]]:
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
    """One host of the inventory: its groups, its variables, and its answer, None where it gave none."""

    def __init__(
        self, known: Known, name: str, groups: Iterable[str], variables: Mapping[str, Any], answer: str | None
    ) -> None:
        self.known, self.name, self.groups, self.variables = known, name, set(groups), variables
        self.answer: dict[str, str] = {}
        self.listening: list[tuple[str, int, str]] = []
        for line in (answer or "").splitlines():
            key, _, value = line.strip().partition(" ")
            if key == "listens":
                address, unit, program = [*value.split(" "), "-", ""][:3]
                self.listening.append((*endpoint(address), unit if unit != "-" else program))
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

    def told(self, key: str, otherwise: int) -> int:
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


# --- the inventory ---------------------------------------------------------------------------------------------------


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
            yield Finding("", group, f"no playbook knows the group {group}, with {listed(left_out)}. Is it {near[0]}?")


def names(host: Host) -> Iterator[Finding]:
    """Variables that begin like a role's, or look like one of its, and that no role takes."""
    known = host.known
    for name in host.variables:
        if name in known.settings or name in known.words or name.startswith(("ansible_", "vault_")):
            continue
        ours, _, ending = name.partition("_")
        near = known.nearest(name, NEAR if ending and ours in known.prefixes else NEAR_ANY)
        if near and ours not in known.prefixes and near in name:  # my_gateway_kafka is somebody's own
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
    wrong = next((str(part).strip() for part in parts if not _is_address(str(part).strip())), None)
    return "" if wrong is None else f"{wrong} is no {form[0]}, such as 127.0.0.1:9092"


def _is_address(text: str) -> bool:
    found = ADDRESS.fullmatch(text)
    return found is not None and 0 < int(found[1]) < 65536


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


def services(hosts: Sequence[Host]) -> Iterator[Finding]:
    """What is to be reached on the own board, and is neither there nor comes there."""
    for host in hosts:
        broker = {"broker", "central"} & host.groups
        wanted: list[tuple[str, str, Any, Any]] = []
        if "gateway" in host.groups:
            wanted.append(("gateway_kafka", "broker", broker, host.value("gateway_kafka")))
        if "gateway" in host.groups and host.value("gateway_mqtt") in (True, None):
            address = f"{host.value('gateway_mqtt_host')}:{host.value('gateway_mqtt_port')}"
            wanted.append(("gateway_mqtt_host", "mosquitto", "mosquitto" in host.groups, address))
        if "mirror" in host.groups:
            wanted.append(("mirror_source", "broker", broker, host.value("mirror_source")))
        for name, group, is_coming, address in wanted:
            if not is_coming and host.answer and not any(_is_served(host, one) for one in str(address).split(",")):
                yield host.finds(
                    "services",
                    f"{name} is {address} and nothing serves there: put the host into {group}, or set {name}.",
                )


def _is_served(host: Host, address: str) -> bool:
    name, port = endpoint(address.strip())
    return not LOOPBACK.match(name) or port in {found for _, found, _ in host.listening}


# --- the hosts -------------------------------------------------------------------------------------------------------


def system(host: Host) -> Iterator[Finding]:
    """Distribution, Python, architecture, systemd."""
    kind, version, codename, name = [*host.answer.get("system", "").split(" ", 3), "", "", "", ""][:4]
    if kind not in SYSTEMS or not version.split(".")[0].isdigit() or int(version.split(".")[0]) < SYSTEM_MIN:
        yield host.finds(
            "distribution",
            f"the system is {name or kind or 'unknown'}; roles want Debian or Raspberry Pi OS from {SYSTEM_MIN} on.",
        )
    python = host.answer.get("python", "")
    if not python:
        yield host.finds("python", "/usr/bin/python3 is missing: `sudo apt install python3` there.")
    elif tuple(int(part) for part in re.findall(r"\d+", python)) < PYTHON_MIN:
        yield host.finds(
            "python", f"Python is {python}, and {'.'.join(map(str, PYTHON_MIN))} is needed: flash a newer system."
        )
    if "systemd" not in host.answer:
        yield host.finds("systemd", "no systemd runs there, by which every service is started.")
    machine = host.answer.get("architecture", "")
    if machine not in ARCHITECTURES:
        yield host.finds(
            "architecture", f"the architecture is {machine}; there are wheels for {', '.join(ARCHITECTURES)}."
        )
    elif machine == "armhf" and (host.has_spark or host.is_kafka):
        yield host.finds(
            "architecture",
            "its programs are 32-bit, which are too small for Spark and Apache Kafka: flash a 64-bit system.",
        )
    else:
        yield from bundled(host, codename, machine)


def bundled(host: Host, codename: str, machine: str) -> Iterator[Finding]:
    """A bundle that has nothing for this host."""
    bundle = host.value("drupelet_bundle")
    if not bundle:
        return
    sums = Path(str(bundle), "SHA256SUMS")
    if not sums.exists():
        yield host.finds(
            "drupelet_bundle",
            f"{bundle} has no SHA256SUMS: make the bundle by playbooks/bundle.yml, or leave drupelet_bundle empty.",
        )
        return
    lines = sums.read_text()
    wanted = [f"packages-{codename}-{machine}.tar"] if "  packages-" in lines else []
    if set(host.roles) & {"broker", "gateway", "mirror", "spark"} and not (host.is_kafka and host.roles == ["broker"]):
        wanted.append(f"wheels-cp{host.answer.get('python', '').replace('.', '')}-{ARCHITECTURES[machine]}.tar")
    for tar in wanted:
        if f"  {tar}" not in lines:
            yield host.finds(
                "drupelet_bundle", f"{bundle} has no {tar}: make it by playbooks/bundle.yml (64-bit boards alone)."
            )


def room(host: Host) -> Iterator[Finding]:
    """Space for a first installation (of a later one `crowded` tells), and memory."""
    java = JAVA_MB if host.is_kafka or host.has_spark else 0
    need = _release_mb(host) + java
    free = host.told("free_mb", need)
    if free < need and not host.answer.get("release") and set(host.roles) - {"base"}:
        yield host.finds(
            "space", f"{free} MB are free for {host.value('drupelet_root')}, and what comes there needs {need}."
        )
    memory = host.told("memory_mb", 1 << 30)
    for is_there, what, name in (
        (host.is_kafka, "Apache Kafka", "kafka_memory_mb_min"),
        (host.has_spark, "Spark", "spark_memory_mb_min"),
    ):
        if is_there and memory < host.number(name):
            yield host.finds(
                "memory",
                f"the memory is {memory} MB, and {what} wants {host.number(name)}: take a larger one, or lower {name}.",
            )


def _release_mb(host: Host) -> int:
    return FREE_MB_MIN + (SPARK_MB if host.has_spark else 0)


def crowded(host: Host) -> Iterator[Finding]:
    """Boards that run a release and have no room for another; no finding, as there may be none to install."""
    need = _release_mb(host)
    free = host.told("free_mb", need)
    if free < need and host.answer.get("release"):
        yield host.finds(
            "space",
            f"{free} MB are free for {host.value('drupelet_root')}, and a newer release needs {need}: it would be "
            "refused there, so make room first.",
        )


def ports(host: Host) -> Iterator[Finding]:
    """Ports that something else has, and ports that two of the own services want."""
    claims = list(_claims(host))
    for index, (name, address, port, unit) in enumerate(claims):
        for taken, number, owner in host.listening:
            if number == port and _overlap(taken, address) and owner != unit:
                yield host.finds(
                    "ports",
                    f"{name} is {address}:{port}, and {owner or 'something'} listens there: stop it or set another.",
                )
                break
        for other, elsewhere, number, _ in claims[:index]:
            if number == port and _overlap(elsewhere, address):
                yield host.finds(
                    "ports", f"{other} and {name} both want port {port}: set another port for one of them."
                )


def network(host: Host) -> Iterator[Finding]:
    """A broker that is to serve a network that nobody called trusted; one that does already keeps doing so."""
    told = [host.value("broker_network_trusted"), (host.value("broker_settings") or {}).get("edge.network.trusted")]
    if "broker" not in host.groups or host.is_kafka or any(value is not None for value in told):
        return
    if _mode(host, "broker") != "none":
        return
    if any(owner == "edge-broker.service" and not LOOPBACK.match(address) for address, _, owner in host.listening):
        return
    for name in ("broker_listen", "broker_metrics"):
        address = str(host.value(name) or "")
        if _is_address(address) and not LOOPBACK.match(endpoint(address)[0]):
            yield host.finds(
                "broker_network_trusted",
                f"{name} is {address}, where anybody in the network could do everything: set broker_network_trusted to "
                "true if all of it is trusted, or listen on 127.0.0.1.",
            )


def metrics(host: Host) -> Iterator[Finding]:
    """Metrics of gateway and mirror in a network that nobody called trusted, at a site without a secret for a token."""
    if _has_secret(host):
        return
    for role in sorted({"gateway", "mirror"} & host.groups):
        name, address = f"{role}_metrics", str(host.value(f"{role}_metrics") or "")
        is_served = any(
            owner == f"edge-{role}.service" and not LOOPBACK.match(taken) for taken, _, owner in host.listening
        )
        is_open = _is_address(address) and not LOOPBACK.match(endpoint(address)[0])
        if is_open and not is_served and host.value(f"{role}_network_trusted") is not True:
            yield host.finds(
                f"{role}_network_trusted",
                f"{name} is {address}, where anybody in the network could read it: put security_secret into the vault "
                f"(README.md), from which a token comes, or set {role}_network_trusted to true, or use 127.0.0.1.",
            )


def clear_passwords(host: Host) -> Iterator[tuple[Finding, bool]]:
    """Listeners of mosquitto that show every password to the network, and whether devices use them already."""
    if "mosquitto" not in host.groups or host.value("mosquitto_network_trusted") is True:
        return
    found = [
        address
        for name, address in _mqtt_listeners(host)
        if name == "mosquitto_listeners" and _is_address(address) and not LOOPBACK.match(endpoint(address)[0])
    ]
    ports = {endpoint(address)[1] for address in found}
    there = any(
        owner == "mosquitto.service" and port in ports and not LOOPBACK.match(taken)
        for taken, port, owner in host.listening
    )
    if found:
        way = "leave it out, so that devices connect by TLS (mosquitto_tls_listeners)"
        if there:
            way = "as before: move the devices to TLS (mosquitto_tls_listeners) and leave it out then"
        yield (
            host.finds(
                "mosquitto_network_trusted",
                f"mosquitto_listeners has {', '.join(found)}, where passwords go through the network in the clear"
                f"{', ' if there else ': '}{way}, or set mosquitto_network_trusted to true if all of it is trusted.",
            ),
            there and host.value("mosquitto_network_trusted") is None,
        )


def logins(host: Host) -> Iterator[Finding]:
    """A mirror that is to log in without a password."""
    if "mirror" in host.groups and host.value("mirror_target_username") and host.value("mirror_target_password") == "":
        user = host.value("mirror_target_username")
        yield host.finds(
            "mirror_target_password",
            f"mirror_target_username is {user}, and mirror_target_password is not set: put it into a vault.yml of "
            "group_vars (README.md).",
        )


def _mode(host: Host, role: str) -> str:
    """How a broker is to know its clients, as the role works it out."""
    return str(host.value(f"{role}_security") or ("secured" if _has_secret(host) else "none"))


def unknown_clients(host: Host) -> Iterator[tuple[Finding, bool]]:
    """Brokers that know none of their clients without anybody having said so, and whether they are there already."""
    for role in sorted({"broker", "central"} & host.groups):
        is_meant = host.value(f"{role}_security") == "none" or host.value(f"{role}_network_trusted") is True
        if _mode(host, role) == "none" and not is_meant:
            served = [owner for _, _, owner in host.listening if owner in ("edge-broker.service", "kafka.service")]
            there = bool(served or host.answer.get("release"))
            yield (
                host.finds(
                    f"{role}_security",
                    "its broker lets in everybody who reaches it"
                    + (", as before" if there else "")
                    + f": put security_secret into the vault (README.md), or say {role}_security: none.",
                ),
                there,
            )


def strangers(host: Host) -> Iterator[Finding]:
    """A new broker that would know nobody, a new mosquitto that would show its passwords."""
    found = [*unknown_clients(host), *clear_passwords(host)]
    yield from (finding for finding, there in found if not there)


def strangers_as_before(host: Host) -> Iterator[Finding]:
    """A broker or mosquitto of before, which goes on as it is; no finding."""
    found = [*unknown_clients(host), *clear_passwords(host)]
    yield from (finding for finding, there in found if there)


def _has_secret(host: Host) -> bool:
    """Whether the site has its secret; one that cannot be worked out is there: `values` tells what it lacks."""
    return "security_secret" in host.variables and host.value("security_secret") != ""


def _mqtt_listeners(host: Host) -> Iterator[tuple[str, str]]:
    """Setting and address of each of mosquitto's listeners, as the role works them out."""
    by_default = [MQTT_BY_TLS] if host.value("mosquitto_users") and _has_secret(host) else []
    for name in ("mosquitto_listeners", "mosquitto_tls_listeners"):
        told = host.value(name) if name in host.variables or "tls" not in name else by_default
        yield from ((name, str(address)) for address in (told if isinstance(told, list) else ()))


def _claims(host: Host) -> Iterator[tuple[str, str, int, str]]:
    """Name of the setting, address, port and unit of what is to listen."""
    wanted: list[tuple[str, Any, str]] = []
    if "broker" in host.groups:
        is_kafka = host.value("broker_engine") == "kafka"
        wanted.append(
            ("broker_listen", host.value("broker_listen"), "kafka.service" if is_kafka else "edge-broker.service")
        )
        wanted += [] if is_kafka else [("broker_metrics", host.value("broker_metrics"), "edge-broker.service")]
    for role in ("broker", "central"):
        if role in host.groups and _mode(host, role) == "migrate":
            unit = "kafka.service" if host.is_kafka else "edge-broker.service"
            wanted.append((f"{role}_secured_listen", host.value(f"{role}_secured_listen"), unit))
    if "central" in host.groups:
        wanted.append(("central_listen", host.value("central_listen"), "kafka.service"))
    if host.is_kafka:
        wanted.append(("kafka_controller_listen", host.value("kafka_controller_listen"), "kafka.service"))
        if any(role in host.groups and _mode(host, role) != "none" for role in ("broker", "central")):
            wanted.append(("kafka_local_listen", host.value("kafka_local_listen"), "kafka.service"))
    if "mosquitto" in host.groups:
        wanted += [(name, address, "mosquitto.service") for name, address in _mqtt_listeners(host)]
    for role in ("gateway", "mirror"):
        wanted += (
            [(f"{role}_metrics", host.value(f"{role}_metrics"), f"edge-{role}.service")] if role in host.groups else []
        )
    for group, port in SPARK_PORTS.items():
        wanted += (
            [(f"the page of {group}", f"127.0.0.1:{port}", f"edge-{group.replace('_', '-')}.service")]
            if group in host.groups
            else []
        )
    for name, text, unit in wanted:
        address, port = endpoint(str(text))
        if port:
            yield name, address, port, unit


def _overlap(one: str, other: str) -> bool:
    wildcards = {"0.0.0.0", "*", "::", ""}  # noqa: S104 - read, not listened on
    same = {"localhost": "127.0.0.1"}
    return one in wildcards or other in wildcards or same.get(one, one) == same.get(other, other)


# --- all of it -------------------------------------------------------------------------------------------------------


def findings(members: Mapping[str, Sequence[str]], hosts: Sequence[Host]) -> list[Finding]:
    """Return all that would go wrong, the inventory's first, then the hosts' in their order."""
    found = misspelt(members, hosts)
    for host in hosts:
        found += [*values(host), *logins(host), *site_checks.spark(host)]
        modes = {role: _mode(host, role) for role in sorted({"broker", "central"} & host.groups)}
        found += site_checks.secrets(host, modes, has_secret=_has_secret(host))
        for look in (system, room, ports, network, metrics, strangers) if host.answer else ():
            found += look(host)
    return list(dict.fromkeys([*found, *broker_settings(hosts), *sites(hosts), *services(hosts)]))


def broker_settings(hosts: Sequence[Host]) -> list[Finding]:
    """Return what the broker would refuse of each host's configuration, by the broker's own rules."""
    found: list[Finding] = []
    asked: dict[Path, dict[str, Any]] = {}
    by_name = {host.name: host for host in hosts}
    for host in hosts:
        settings = host.value("broker_settings")
        if "broker" not in host.groups or host.is_kafka or not isinstance(settings, Mapping):
            continue
        if odd := broker_check.odd_values(settings):
            found += [host.finds("broker_settings", f"{text}.") for text in odd]
            continue
        addresses = {name: str(host.value(f"broker_{name}") or "") for name in BROKER_ADDRESSES}
        if without := list(site_checks.advertised(host, "broker")):
            found += without
            addresses["advertise"] = f"{host.name}:{endpoint(addresses['listen'])[1]}"
        mode, rules = _mode(host, "broker"), broker_check.source(COLLECTION, host.value("drupelet_wheel"))
        wanted = ["listen", *(["secured_listen"] if mode == "migrate" else [])]
        are_addresses = all(_is_address(text) for name, text in addresses.items() if text or name in wanted)
        if rules is not None and are_addresses and mode in BROKER_MODES:
            writers = host.value("broker_ledger_writers")
            are_networks = not value_forms.problem("broker_ledger_writers", writers)
            intended = broker_check.Intended(
                mode=mode, settings=settings, ledger_writers=writers if writers and are_networks else [], **addresses
            )
            asked.setdefault(rules, {})[host.name] = intended
    for rules, brokers in asked.items():
        for name, problems in broker_check.problems(rules, brokers).items():
            found += [by_name[name].finds("broker_settings", f"{text.rstrip('.')}.") for text in problems]
    return found


def misspelt(members: Mapping[str, Sequence[str]], hosts: Sequence[Host]) -> list[Finding]:
    """Return what is wrong with names alone."""
    return [*groups(members), *(finding for host in hosts for finding in names(host))]


def listed(hosts: Sequence[str]) -> str:
    """Name hosts, the first few of many."""
    more = len(hosts) - HOSTS_SHOWN
    return ", ".join(hosts[:HOSTS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def told(found: Sequence[Finding], *, keys: bool = True) -> list[str]:
    """Put findings into lines, one for each thing, which name all hosts that it is true of, with `keys` at the end."""
    of: dict[tuple[str, str], list[str]] = {}
    for finding in found:
        of.setdefault((finding.key, finding.text), []).append(finding.host)
    return [
        f"{listed([host for host in hosts if host]) or 'inventory'}: {text}{f' [{key}]' if keys else ''}"
        for (key, text), hosts in of.items()
    ]


def accepted(found: Iterable[Finding], hosts: Sequence[Host]) -> list[Finding]:
    """Leave out what the host of a finding has in `preflight_accept`; for the inventory any host speaks."""
    accepts = {host.name: host.value("preflight_accept") or [] for host in hosts}
    words = {
        name: set(re.split(r"[ ,]+", value) if isinstance(value, str) else value) for name, value in accepts.items()
    }
    words[""] = set().union(*words.values())
    return [finding for finding in found if finding.key not in words[finding.host]]


def answered(host: Host, result: Mapping[str, Any]) -> Iterator[Finding]:
    """A host that was reached and gave no answer; one that is not reached is left out, as Ansible does."""
    if not host.answer and not result.get("skipped") and not result.get("unreachable"):
        said = result.get("stderr") or result.get("msg") or result.get("stdout") or "no reason was given"
        remedy = " Add --ask-become-pass." if "sudo password" in str(said) else ""
        yield host.finds("answer", f"no answer as root: {' '.join(str(said).split())}.{remedy}")


def unreached(host: Host, result: Mapping[str, Any]) -> Iterator[Finding]:
    """A host that this run does without, as Ansible does, and what to do about it."""
    if result.get("unreachable"):
        said = PREFIXES.sub("", str(result.get("msg") or "no reason was given"))
        remedy = next((words for mark, words in REMEDIES.items() if mark in said), REMEDIES[""])
        yield host.finds("unreachable", f"not reached, so left out: {' '.join(said.split()).rstrip('.')}. {remedy}")


class ActionModule(ActionBase):
    """What Ansible loads: `answers` names the variable with each host's answer; `names_alone` leaves all else out."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Look at all hosts of the play at once; failed, with all findings in `msg`, when there are any."""
        variables = task_vars or {}
        result: dict[str, Any] = super().run(tmp, variables)
        known, found, notes = Known(), [], []
        hosts = []
        for name in variables["ansible_play_hosts_all"]:
            of_host = Variables(variables["hostvars"], name, self._loader)
            answer = of_host.get(self._task.args["answers"], {"skipped": True})
            hosts.append(Host(known, name, of_host["group_names"], of_host, answer.get("stdout")))
            found += answered(hosts[-1], answer)
            notes += [*unreached(hosts[-1], answer), *crowded(hosts[-1]), *strangers_as_before(hosts[-1])]
        look = misspelt if self._task.args.get("names_alone") else findings
        found = accepted(found + look(variables["groups"], hosts), hosts)
        result.update(changed=False)
        lines, noted = told(found), told(accepted(notes, hosts), keys=False)
        if found:
            accept = f"What is right all the same goes by its word in brackets: -e preflight_accept={found[0].key}"
            self._display.display("\n".join(["", *lines, accept]))
        if noted:
            self._display.display("\n".join(["", "What this run goes on without:", *noted] if not found else noted))
        if found:
            result.update(
                failed=True,
                msg=f"{len(lines)} finding{'s' * (len(lines) != 1)}, listed above; nothing was changed on any host.",
            )
        return result
