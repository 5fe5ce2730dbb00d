"""The action `site_access`: who may log in at which broker of the inventory, by which password, and what each may do.

| user | of | at | may |
|---|---|---|---|
| gateway-HOST | its gateway | the broker of `gateway_kafka` | write its routes', files', journal's and board's topics |
| mirror-HOST | its mirror | the broker of `mirror_source` | read what `mirror_topics` names, keep its position |
| | | the one of `mirror_target` | write and make topics that begin with its site |
| spark-BROKER | Spark's jobs at this broker | the broker of `spark_bootstrap` | read readings, write results |
| verify-HOST | playbooks/verify.yml | where its gateway and its mirror write | read what arrives |
| admin | root of its host | each broker | everything |
| those of `broker_users` | any client's | that broker | as they declare |

A password is worked out, not kept, from what it is for and `security_secret` (../plugin_utils/site_passwords.py). So
the vault holds one secret, every run finds the same passwords, and one that is on a card tells nothing of any other.
`security_rotation` of a host makes all of its passwords new. A host that playbooks/remove.yml has written down has none
until its rotation is higher.

`security_rotation` is the generation of a host's log-ins: `gateway-pi-1`, then `gateway-pi-1~2`. Each generation is a
user of its own, so the broker can hold two until the new one was used (site_rotation.py). A client gets the newest
generation that its broker is known to have (`generation`), so no order of plays refuses a service.

Here: that, from the inventory and the defaults of roles. Nothing is asked of a host. It needs ansible-core alone.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import yaml
from ansible.errors import AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.template import Templar

try:
    from ansible.template import trust_as_template
except ImportError:  # before ansible-core 2.19 every text may be a template

    def trust_as_template(value: str) -> str:
        """Return it as it is."""
        return value


def _site_passwords() -> ModuleType:
    """Load the derivation once for each process, so that all that ask share its keys."""
    name, path = "drupelet_site_passwords", Path(__file__).resolve().parents[1] / "plugin_utils/site_passwords.py"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not path.exists():
            raise AnsibleError(f"{path} is missing: install the collection again.")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]


passwords = _site_passwords()
ROLES = Path(__file__).resolve().parents[2] / "roles"
OF_ROLES = ("broker", "central", "gateway", "mirror", "spark", "security", "mosquitto")
LOOPBACK = re.compile(r"127\.|localhost$|::1$")
SERVICES = ("gateway", "mirror", "spark", "verify")
LEDGER = "__edge_ledger"
PRODUCED = ("WRITE", "CREATE", "DESCRIBE")
CONSUMED = ("READ", "DESCRIBE")
SPARE_NUMBERS = 2, 3, 4  # suffixes of the mirror's spare transactional ids (mirror/session/transactional_ids.py)
SPARK_TOPICS = {  # setting of the jobs: default and what they do to it
    "topic": ("readings", CONSUMED),
    "windows_topic": ("readings_windows", (*PRODUCED, "DESCRIBE_CONFIGS")),
    "late_topic": ("readings_late", (*PRODUCED, "DESCRIBE_CONFIGS")),
    "alarms_topic": ("readings_alarms", (*PRODUCED, "DESCRIBE_CONFIGS")),
}


class Acl(NamedTuple):
    """A user's permission for one resource, or, PREFIXED, for all with this prefix; names are Kafka's."""

    user: str
    kind: str
    pattern: str
    name: str
    operation: str


class Client(NamedTuple):
    """How a service connects: protocol, user and password are empty where the broker asks for none.

    `refusal` says why the service cannot have that log-in, and is empty where it can.
    """

    protocol: str
    user: str
    password: str
    server: str
    refusal: str = ""


def acls(user: str, kind: str, names: Iterable[str], operations: Iterable[str]) -> Iterator[Acl]:
    """Each operation on each resource; a name followed by * is the beginning of names, * alone all of them."""
    operations = list(operations)
    for name in dict.fromkeys(names):
        is_beginning = len(name) > 1 and name.endswith("*")
        for operation in operations:
            yield Acl(user, kind, "PREFIXED" if is_beginning else "LITERAL", name.rstrip("*") or "*", operation)


def endpoint(text: str) -> tuple[str, str]:
    """Return host and port of the first HOST:PORT of a list."""
    host, _, port = text.split(",", maxsplit=1)[0].strip().rpartition(":")
    return host.strip("[]"), port


class Topics(NamedTuple):
    """The rights that a regular expression of topics needs.

    `names` are topics; one with * at its end is the beginning of names, * alone all topics. `inexact` has, for each
    alternative that such names cannot say, that alternative and the nearest one that they can.
    """

    names: list[str]
    inexact: list[tuple[str, str]]


def topic_names(pattern: str) -> Topics:
    r"""Return the rights that cover what a regular expression selects.

    | alternative | name | exact |
    |---|---|---|
    | `readings`, `farm\.temp` | itself | yes |
    | `readings.*`, `.*` | `readings*`, `*` | yes |
    | `farm.temp`, `farm.temp.*` | `farm.temp`, `farm.temp*`: the dot is taken for a dot | no |
    | any other | its beginning that every match has, with * | no |
    """
    names, inexact = [], []
    for tokens in _alternatives(pattern):
        is_open = tokens[-2:] == [".", "*"]
        body = tokens[:-2] if is_open else tokens
        dotted = [token[-1] for token in body if re.fullmatch(r"[\w-]|\\?[.]|\\-", token, re.ASCII)]
        if len(dotted) == len(body):
            name = "".join(dotted)
            nearest = name.replace(".", r"\.") + ".*" * is_open
            if not name and not is_open:
                continue  # the empty name, which no topic has
            names.append(name + "*" * is_open)
            if "." in body:
                inexact.append(("".join(tokens), nearest))
        else:
            start = _beginning(tokens)
            names.append(start + "*")
            inexact.append(("".join(tokens), start.replace(".", r"\.") + ".*" if start else ""))
    return Topics(list(dict.fromkeys(names)), inexact)


def _alternatives(pattern: str) -> list[list[str]]:
    """Split a regular expression at its outermost |; each token is a character, an escape or a set."""
    try:
        re.compile(pattern)
    except re.error:
        return [[pattern]]
    if re.search(r"\(\?(?!:)", pattern):  # flags hold for all alternatives
        return [[pattern]]
    found: list[list[str]] = [[]]
    depth = 0
    for piece in re.findall(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", pattern, re.DOTALL):
        depth += (piece == "(") - (piece == ")")
        if piece == "|" and depth == 0:
            found.append([])
        else:
            found[-1].append(piece)
    return [tokens[tokens[:1] == ["^"] : len(tokens) - (tokens[-1:] == ["$"])] for tokens in found]


def _beginning(tokens: list[str]) -> str:
    """Return with which characters each match begins."""
    start = ""
    for token, behind in zip(tokens, [*tokens[1:], ""], strict=True):
        if not re.fullmatch(r"[\w-]|\\[.-]", token, re.ASCII) or behind in ("?", "*", "+", "{"):
            break
        start += token[-1]
    return start


def generation_of(user: str) -> tuple[str, int]:
    """Split a user's name into the name of its first generation and the number of its own."""
    base, _, number = user.rpartition("~")
    return (base, int(number)) if base and re.fullmatch(r"[1-9]\d{0,6}", number) and number != "1" else (user, 1)


def generation_name(base: str, generation: int) -> str:
    """Return the user of a generation; the first one has no mark."""
    return base if generation == 1 else f"{base}~{generation}"


class Site:
    """The inventory: every host's variables, with the roles' defaults where it has none."""

    def __init__(self, hosts: Mapping[str, Mapping[str, Any]], groups: Mapping[str, list[str]], removed: str) -> None:
        """`hosts` has variables that are worked out when they are asked for; `removed` lines of HOST and ROTATION."""
        self._hosts, self.groups = hosts, groups
        self._removed = {name: int(rotation) for name, rotation in map(str.split, removed.splitlines())}

    def value(self, host: str, name: str) -> Any:
        """Return a variable of a host, None if it is not set."""
        return self._hosts[host].get(name)

    def text(self, host: str, name: str) -> str:
        """Return a variable as a text, empty if it is not set."""
        value = self.value(host, name)
        return "" if value is None else str(value)

    def members(self, *groups: str) -> list[str]:
        """Return the hosts that are in one of these groups and were not removed."""
        found = dict.fromkeys(host for group in groups for host in self.groups.get(group, ()))
        return [host for host in found if self.rotation(host) > self._removed.get(host, 0)]

    def check(self, host: str) -> None:
        """Refuse a host that was removed: it gets neither users nor passwords; AnsibleError."""
        if host not in self.members("all"):
            raise AnsibleError(
                f"{host} was removed by playbooks/remove.yml: for a new board of its name set its security_rotation to "
                f"{self._removed[host] + 1}, else take it out of the inventory."
            )

    def rotation(self, host: str) -> int:
        """Return the generation of a host's keys and passwords, from 1 on."""
        return int(self.value(host, "security_rotation") or 1)

    # --- brokers ---

    def role(self, server: str) -> str:
        """Return the role by which a host has a broker."""
        return "central" if server in self.groups.get("central", ()) else "broker"

    def mode(self, server: str) -> str:
        """Return none, secured or migrate by its role's variable, else secured if the site has its secret."""
        told = self.text(server, f"{self.role(server)}_security")
        return told or ("secured" if self.text(server, "security_secret") else "none")

    def is_open(self, server: str) -> bool:
        """Tell whether a broker listens beyond loopback."""
        return not LOOPBACK.match(endpoint(self.text(server, f"{self.role(server)}_listen"))[0])

    def server(self, client: str, bootstrap: str) -> str:
        """Return the host of the inventory that has the broker at an address, empty where it is none of ours."""
        servers = [*self.groups.get("broker", ()), *self.groups.get("central", ())]
        found = self.host_at(client, bootstrap)
        return found if found in servers else ""

    def host_at(self, client: str, bootstrap: str) -> str:
        """Return the host of the inventory at an address, those with a broker first, empty where it is none of ours."""
        name = endpoint(bootstrap)[0]
        servers = dict.fromkeys([*self.groups.get("broker", ()), *self.groups.get("central", ())])
        if LOOPBACK.match(name):
            return client
        for server in servers:
            advertised = endpoint(self.text(server, f"{self.role(server)}_advertise"))[0]
            if name in (server, self.text(server, "ansible_host"), advertised):
                return server
        return next((host for host in self._hosts if name in (host, self.text(host, "ansible_host"))), "")

    def protocol(self, server: str, bootstrap: str) -> str:
        """Return what an address of a broker of ours speaks, empty for PLAINTEXT."""
        mode = self.mode(server)
        secured = endpoint(self.text(server, f"{self.role(server)}_secured_listen"))
        if mode == "secured" or (mode == "migrate" and endpoint(bootstrap)[1] == secured[1]):
            is_open = self.is_open(server) if mode == "secured" else not LOOPBACK.match(secured[0])
            return "SASL_SSL" if is_open else "SASL_PLAINTEXT"
        return ""

    # --- users ---

    def password(self, host: str, user: str, generation: int = 0) -> str:
        """Return the password of a user of a host, 32 letters and digits; AnsibleError without a secret.

        `user` is its first generation's name; `generation` is the host's rotation unless it is given.
        """
        number = generation or self.rotation(host)
        found: str = passwords.password(self._sources(host).of(number), host, user, number)
        return found

    def _sources(self, host: str) -> Any:
        """Return what the passwords of each rotation of a host come from; AnsibleError without a secret."""
        secret = self.text(host, "security_secret")
        if len(secret) < passwords.SECRET_CHARACTERS_MIN:
            raise AnsibleError(
                f"{host} has no security_secret of 16 characters or more, from which its passwords come: see README.md."
            )
        derivation, former = self.value(host, "security_derivation"), self.value(host, "security_former")
        return passwords.sources(secret, derivation, self.rotation(host), former)

    def derivation(self, user: str) -> str:
        """Return how the password of a user of the site comes from its secret, empty for any other user.

        A user of a rotation that its host does not have yet, or that remove.yml has ended, is another one, too.
        """
        base, generation = generation_of(user)
        service, _, host = base.partition("-")
        if service not in SERVICES or host not in self._hosts or not self.text(host, "security_secret"):
            return ""
        if not self._removed.get(host, 0) < generation <= self.rotation(host):
            return ""
        return str(self._sources(host).of(generation).derivation)

    def check_derivations(self, made: Iterable[str], by_scrypt: Collection[str]) -> None:
        """Refuse users that a broker has and whose password comes otherwise than the inventory says; AnsibleError."""
        for user in sorted(made):
            was, wanted = passwords.SCRYPT if user in by_scrypt else passwords.HMAC, self.derivation(user)
            if wanted and wanted != was:
                base, generation = generation_of(user)
                owner = base.partition("-")[2]
                raise AnsibleError(passwords.refusal(user, owner, (generation, was), wanted, self.rotation(owner)))

    def user(self, service: str, host: str) -> str:
        """Return the user of a service of a host, of the present generation."""
        return generation_name(f"{service}-{host}", self.rotation(host))

    def client(
        self,
        host: str,
        service: str,
        bootstrap: str,
        server_users: Collection[str] | None = None,
        present_password: str = "",
    ) -> Client:
        """Return how a service of a host connects to the broker at an address.

        `server_users` are the users that the broker holds, none of them where it has not said so yet, None where it
        cannot be asked; `present_password` is the one that the service has now.
        """
        server = self.server(host, bootstrap)
        protocol = self.protocol(server, bootstrap) if server else ""
        if not protocol:
            return Client("", "", "", server)
        if service == "admin":
            return Client(protocol, "admin", self.password(server, "admin"), server)
        owner = server if service == "spark" else host
        base = f"{service}-{owner}"
        user, generation = self._log_in(owner, base, server_users, present_password)
        password, refusal = self._password_of(owner, base, generation, present_password)
        return Client(protocol, user, password, server, refusal)

    def _password_of(self, owner: str, base: str, generation: int, present_password: str) -> tuple[str, str]:
        """Return the password that a service is given, and why it cannot have it, or nothing.

        | generation | the service has | it is given |
        |---|---|---|
        | the newest | a password of that one by another source | that one, refused: its broker may have no other |
        | an older one: its broker lacks the newest | a password of that one, or of a secret that is gone | that one |
        | any other | anything | what the inventory says |
        """
        password = self.password(owner, base, generation)
        if present_password in ("", password):
            return password, ""
        made, newest = self._made_from(owner, base, present_password), self.rotation(owner)
        if generation < newest:
            is_own = made is None or made[0] == generation
            return present_password if is_own else password, ""
        if made is None or made[0] != generation:
            return password, ""
        wanted = self._sources(owner).of(generation).derivation
        user = generation_name(base, generation)
        return present_password, passwords.refusal(user, owner, (generation, made[1].derivation), wanted, newest)

    def _made_from(self, owner: str, base: str, password: str) -> tuple[int, Any] | None:
        """Return the generation and the source of a password, what the inventory says first; None for any other."""
        sources, numbers = self._sources(owner), range(self.rotation(owner), 0, -1)
        for number in numbers:
            if passwords.password(sources.of(number), owner, base, number) == password:
                return number, sources.of(number)
        for number in numbers:
            for source in sources.other_sources(number):
                if passwords.password(source, owner, base, number) == password:
                    return number, source
        return None

    def _log_in(
        self, owner: str, base: str, server_users: Collection[str] | None, present_password: str
    ) -> tuple[str, int]:
        """Return the user, and the generation of its password, that a service is given.

        | broker's users | the service has | it is given |
        |---|---|---|
        | include generations of this log-in | anything | the newest of those, above what remove.yml has ended |
        | none told yet: an older version made them | a password of this log-in | that one, under the unmarked name |
        | cannot be asked | a password of this log-in | that one |
        | any other | anything | the newest |
        """
        newest, ended = self.rotation(owner), self._removed.get(owner, 0)
        held = {number for name, number in map(generation_of, server_users or ()) if name == base}
        valid = [number for number in held if ended < number <= newest]
        if valid:
            return generation_name(base, max(valid)), max(valid)
        if not server_users and present_password:
            made = self._made_from(owner, base, present_password)
            if made is not None and made[0] > ended:
                return (generation_name(base, made[0]) if server_users is None else base), made[0]
        return generation_name(base, newest), newest

    def users(self, server: str) -> dict[str, str]:
        """Return the users of a broker with their passwords."""
        users = {"admin": self.password(server, "admin")}
        for acl in self.acls(server):
            base, generation = generation_of(acl.user)
            service, _, host = base.partition("-")
            if service in SERVICES and host in self._hosts:
                users[acl.user] = self.password(host, base, generation)
        return users | {user["name"]: user["password"] for user in self.value(server, "broker_users") or ()}

    def owners(self, server: str) -> dict[str, list[str]]:
        """Return which hosts have the password of each user of a broker's services, by its first generation's name."""
        bases = {generation_of(acl.user)[0] for acl in self.acls(server)}
        spark = [host for host in self._spark_hosts() if self._is(server, host, "spark_bootstrap")]
        found = {}
        for base in sorted(bases):
            service, _, host = base.partition("-")
            if service in SERVICES and host in self._hosts:
                found[base] = spark if service == "spark" else [host]
        return found

    def moved_services(self, server: str, users: Iterable[str]) -> dict[str, list[tuple[str, str, list[str]]]]:
        """Return to which brokers the services of users that a broker need not hold any more have moved.

        By the first generation's name: each broker with the user there and the hosts that log in by it. A service that
        the inventory no longer has, or has at a Kafka that is none of its own, is not among them.
        """
        found: dict[str, list[tuple[str, str, list[str]]]] = {}
        for base in sorted({generation_of(user)[0] for user in users}):
            service, _, host = base.partition("-")
            if service not in SERVICES or host not in self.members("all"):
                continue
            hosts = self._spark_hosts() if service == "spark" else [host]
            places: dict[str, list[str]] = {}
            for one in hosts:
                for place in self._brokers(service, one):
                    places.setdefault(place, []).append(one)
            if places and server not in places:
                found[base] = [
                    (place, self.user(service, place if service == "spark" else host), users)
                    for place, users in places.items()
                ]
        return found

    def _brokers(self, service: str, host: str) -> set[str]:
        """The brokers of the inventory, with log-ins, that a service of a host uses."""
        is_gateway, is_mirror = (host in self.members(group) for group in ("gateway", "mirror"))
        settings = {
            "gateway": ["gateway_kafka"] * is_gateway,
            "mirror": ["mirror_source", "mirror_target"] * is_mirror,
            "verify": ["gateway_kafka"] * is_gateway + ["mirror_target"] * (is_gateway and is_mirror),
            "spark": ["spark_bootstrap"],
        }
        found = {self.server(host, self.text(host, name)) for name in settings[service]}
        return {server for server in found if server and self.mode(server) != "none"}

    # --- mosquitto ---

    def mqtt_server(self, host: str) -> str:
        """Return the host of the inventory whose mosquitto a host's gateway uses, empty where it is none of ours."""
        if host not in self.groups.get("gateway", ()) or not self.value(host, "gateway_mqtt"):
            return ""
        name, servers = self.text(host, "gateway_mqtt_host").strip("[]"), self.groups.get("mosquitto", ())
        if LOOPBACK.match(name):
            return host if host in servers else ""
        for server in servers:
            if name in (server, self.text(server, "ansible_host"), *(self.value(server, "security_more_names") or ())):
                return server
        return ""

    def mqtt_user(self, host: str, name: str, server_users: Collection[str] = (), present_user: str = "") -> str:
        """Return the user, with the mark of its rotation, that `name` is at the mosquitto of a host's gateway.

        A gateway keeps `present_user` where mosquitto does not have the newest one among its `server_users`.
        """
        server = self.mqtt_server(host)
        for entry in (self.value(server, "mosquitto_users") or ()) if server else ():
            if entry["name"] == name:
                newest = generation_name(name, int(entry.get("rotation") or 1))
                is_kept = newest not in server_users and generation_of(present_user)[0] == name
                return present_user if is_kept else newest
        return name

    def mqtt_owners(self, server: str) -> tuple[dict[str, list[str]], list[str]]:
        """Return which hosts' gateways use each user of a mosquitto, and the users that removed hosts alone use."""
        found: dict[str, list[str]] = {}
        for host in self.groups.get("gateway", ()):
            if self.mqtt_server(host) == server and (name := self.text(host, "gateway_mqtt_username")):
                found.setdefault(name, []).append(host)
        present = set(self.members("gateway"))
        removed = sorted(name for name, hosts in found.items() if not present & set(hosts))
        return {name: [host for host in hosts if host in present] for name, hosts in found.items()}, removed

    @property
    def removed_hosts(self) -> dict[str, int]:
        """The hosts that playbooks/remove.yml has written down, with the last generation that it has ended."""
        return dict(self._removed)

    def acls(self, server: str) -> list[Acl]:
        """Return what the users of a broker may do, in the order of their names."""
        found: list[Acl] = []
        for host in self.members("gateway"):
            if self._is(server, host, "gateway_kafka"):
                found += [*self._gateway(host), *self._verify(host)]
        for host in self.members("mirror"):
            if self._is(server, host, "mirror_source"):
                found += self._mirror_source(host)
            if self._is(server, host, "mirror_target"):
                found += self._mirror_target(host)
        for host in self._spark_hosts():
            if self._is(server, host, "spark_bootstrap"):
                found += self._spark(server, host)
        for user in self.value(server, "broker_users") or ():
            found += acls(user["name"], "TOPIC", user.get("read") or (), CONSUMED)
            found += acls(user["name"], "GROUP", user.get("groups") or (), ("READ",))
            found += acls(user["name"], "TOPIC", user.get("write") or (), PRODUCED)
        return sorted(set(found))

    def _spark_hosts(self) -> list[str]:
        return self.members("spark_master", "spark_worker", "spark_jobs")

    def _is(self, server: str, host: str, name: str) -> bool:
        return self.server(host, self.text(host, name)) == server

    def _gateway(self, host: str) -> Iterator[Acl]:
        topics = ["dead_letters", "boot_times"]
        if self.value(host, "gateway_mqtt"):
            topics += [route["topic"] for route in self.value(host, "gateway_mqtt_routes")]
        topics += [file.get("topic") or "logs" for file in self.value(host, "gateway_files")]
        topics += [self.text(host, "gateway_journal_topic")] if self.value(host, "gateway_journal") else []
        topics += ["board_health"] if self.value(host, "gateway_board") else []
        yield from acls(self.user("gateway", host), "TOPIC", [*topics, LEDGER], PRODUCED)
        own = ["dead_letters", "boot_times", LEDGER]  # whose settings it checks
        yield from acls(self.user("gateway", host), "TOPIC", own, ["DESCRIBE_CONFIGS"])

    def _verify(self, host: str) -> Iterator[Acl]:
        user, results = self.user("verify", host), self._settings(host)["windows_topic"]
        yield from acls(user, "TOPIC", [self.text(host, "verify_topic") or "readings", results, LEDGER], CONSUMED)
        yield from acls(user, "GROUP", ["edge-verify"], ("READ",))

    def _mirror_source(self, host: str) -> Iterator[Acl]:
        user, site = self.user("mirror", host), self.text(host, "mirror_site")
        topics = topic_names(self.text(host, "mirror_topics")).names
        yield from acls(user, "TOPIC", [*topics, LEDGER], (*CONSUMED, "DESCRIBE_CONFIGS"))
        yield from acls(user, "TOPIC", [LEDGER], ("WRITE", "CREATE"))  # Apache Kafka has none until there is a loss
        yield from acls(user, "TOPIC", ["__edge_dead_letter"], PRODUCED)
        yield from acls(user, "TOPIC", ["__edge-mirror-*"], CONSUMED)  # by which it recognises other mirrors' records
        group = f"edge-mirror-{site or self.text(host, 'mirror_target')}"
        yield from acls(user, "GROUP", [group], CONSUMED)

    def target_topics(self, host: str) -> list[str]:
        """Return which topics a mirror has at its target; one with * at its end is the beginning of names."""
        site = self.text(host, "mirror_site")
        keeps_names = (self.value(host, "mirror_settings") or {}).get("policy") == "identity" or not site
        names = topic_names(self.text(host, "mirror_topics")).names
        return [*names, LEDGER] if keeps_names else [f"{site}.*"]

    def _mirror_target(self, host: str) -> Iterator[Acl]:
        user, site, topics = self.user("mirror", host), self.text(host, "mirror_site"), self.target_topics(host)
        yield from acls(user, "TOPIC", topics, (*PRODUCED, "READ", "ALTER", "DESCRIBE_CONFIGS"))
        if boolean(self.value(host, "mirror_sync_topic_configs") or False):
            yield from acls(user, "TOPIC", topics, ("ALTER_CONFIGS",))
        state = "__" + re.sub(r"[^\w.-]", "_", f"edge-mirror-{site or self.text(host, 'mirror_target')}") + "-state"
        yield from acls(user, "TOPIC", [state], (*PRODUCED, "READ"))
        ids = [state, *(f"{state}~{number}" for number in SPARE_NUMBERS)]
        yield from acls(user, "TRANSACTIONAL_ID", ids, ("WRITE", "DESCRIBE"))
        yield from acls(user, "CLUSTER", ["kafka-cluster"], ("DESCRIBE", "IDEMPOTENT_WRITE"))
        if host in self.groups.get("gateway", ()):
            yield from acls(self.user("verify", host), "TOPIC", topics, CONSUMED)

    def _spark(self, server: str, host: str) -> Iterator[Acl]:
        user, settings = self.user("spark", server), self._settings(host)
        for setting, (_, operations) in SPARK_TOPICS.items():
            yield from acls(user, "TOPIC", [settings[setting]], operations)
        yield from acls(user, "CLUSTER", ["kafka-cluster"], ("DESCRIBE", "IDEMPOTENT_WRITE"))

    def _settings(self, host: str) -> dict[str, str]:
        given = self.value(host, "spark_settings") or {}
        return {setting: str(given.get(setting) or default) for setting, (default, _) in SPARK_TOPICS.items()}


class Variables(Mapping[str, Any]):
    """The variables of one host, each resolved on first use; the inventory's override the roles' defaults."""

    def __init__(self, raw: Mapping[str, Any], hostvars: Any, loader: Any) -> None:
        self._raw = {**_defaults(), **raw, "hostvars": hostvars}
        self._templar = Templar(loader=loader, variables=self._raw)

    def __getitem__(self, name: str) -> Any:
        return _whole(self._templar.template(self._raw[name]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)


def _whole(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _whole(inner) for key, inner in value.items()}
    return [_whole(inner) for inner in value] if isinstance(value, list | tuple) else value


def _trust(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _trust(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_trust(inner) for inner in value]
    return trust_as_template(value) if isinstance(value, str) else value


@cache
def _defaults() -> dict[str, Any]:
    """Those of the roles, read once for all hosts."""
    found: dict[str, Any] = {}
    for role in OF_ROLES:
        found |= yaml.safe_load((ROLES / role / "defaults/main.yml").read_text()) or {}
    return dict(_trust(found))


def removed_hosts(folder: Path) -> str:
    """Return the lines that playbooks/remove.yml has written."""
    file = folder / "removed"
    return file.read_text() if file.exists() else ""


class ActionModule(ActionBase):
    """The action plugin.

    Without arguments it returns `mode`, `users` (name: password), `acls` and `owners` of this host's broker, the
    `removed` hosts, `removed_users`, which those had at this broker by the inventory, and, where there is a secret,
    `metrics_token` of all that serves metrics on it. With `service` and `bootstrap` it returns `protocol`, `user`,
    `password`, `server` and `refusal`, how that service of this host connects; it goes by `server_users`, which is not
    known unless `server_answers`, and `present_password` (`Site.client`). With `left`, users that this host's broker
    need not hold any more, it returns `moved`, the brokers that their services use now. With `made`, users that its
    broker has, and `scrypt`, those of them that were made by scrypt, it refuses another derivation of one, and returns
    `by_scrypt`, those of `wanted` that come by scrypt. With `mqtt`, a name of mosquitto_users, it returns `newest`,
    with the mark of its rotation, `server`, the host of the mosquitto that this host's gateway uses, and `user`, which
    by `server_users` may be `present_user` still. With the users of its broker it returns `mqtt_owners` and
    `mqtt_removed`, those that removed hosts alone use, of this host's mosquitto.
    """

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Work it out; nothing changes."""
        variables = task_vars or {}
        result: dict[str, Any] = super().run(tmp, variables)
        hostvars, host = variables["hostvars"], variables["inventory_hostname"]
        hosts = {name: Variables(hostvars.raw_get(name), hostvars, self._loader) for name in variables["groups"]["all"]}
        folder = Path(str(self._task.args["folder"])).expanduser()
        site = Site(hosts, variables["groups"], removed_hosts(folder))
        site.check(host)
        if self._task.args.get("service"):
            found = site.client(
                host,
                self._task.args["service"],
                str(self._task.args["bootstrap"]),
                self._server_users(),
                str(self._task.args.get("present_password") or ""),
            )
            result.update(found._asdict())
        elif "left" in self._task.args:
            result.update(moved=site.moved_services(host, self._task.args["left"]))
        elif "made" in self._task.args:
            site.check_derivations(self._task.args["made"], set(self._task.args["scrypt"]))
            wanted = self._task.args["wanted"]
            result.update(by_scrypt=sorted(user for user in wanted if site.derivation(user) == passwords.SCRYPT))
        elif "mqtt" in self._task.args:
            name, present = str(self._task.args["mqtt"]), str(self._task.args.get("present_user") or "")
            newest, user = (
                site.mqtt_user(host, name),
                site.mqtt_user(host, name, self._server_users() or (), present),
            )
            result.update(user=user, newest=newest, server=site.mqtt_server(host))
        else:
            mode, is_mqtt = site.mode(host), host in site.groups.get("mosquitto", ())
            mqtt_owners, mqtt_removed = site.mqtt_owners(host) if is_mqtt else ({}, [])
            result.update(mode=mode, users={}, acls=[], owners={}, removed=site.removed_hosts, removed_users=[])
            result.update(mqtt_owners=mqtt_owners, mqtt_removed=mqtt_removed)
            if mode != "none":
                acls = [list(acl) for acl in site.acls(host)]
                result.update(users=site.users(host), acls=acls, owners=site.owners(host))
                of_all = {acl.user for acl in Site(hosts, variables["groups"], "").acls(host)}
                result.update(removed_users=sorted(of_all - set(result["users"])))
            if site.text(host, "security_secret"):
                result.update(metrics_token=site.password(host, "metrics"))
        result.update(changed=False)
        return result

    def _server_users(self) -> list[str] | None:
        answers = boolean(self._task.args.get("server_answers", True))
        return list(self._task.args.get("server_users") or ()) if answers else None
