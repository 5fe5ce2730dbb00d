"""The broker's configuration: Kafka's broker keys where Kafka has one, `edge.` keys where it has none.

Contains: the table of the broker's own keys, and turning a TOML file and `key=value` texts into checked values. Keys
for all topics come from the topics' table. Does not contain: that table (settings.py), defaults hidden elsewhere,
reading of the environment.
Source: Kafka documentation, "Broker Configs".
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from drupelet.addresses import host_and_port
from drupelet.command.config_check import nearest, parse_toml
from drupelet.errors import ConfigurationError
from edge_broker.configuration.security_keys import (
    LISTENER_KEYS,
    LISTENER_PREFIX,
    MECHANISM_KEYS,
    MECHANISMS,
    PROTOCOLS,
    SECURITY_KEYS,
)
from edge_broker.configuration.settings import BROKER_KEYS, INT_MAX, Key, Kind, Value, as_text

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

CERTIFICATES = ("ssl.truststore.certificates", "ssl.keystore.certificate.chain")
"""Hidden as Apache Kafka hides them, though no secrets: anybody may read them in a file."""
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
Network: TypeAlias = "IPv4Network | IPv6Network"
Refuse: TypeAlias = Callable[[ConfigurationError], None]
"""Receives each problem: `serve` raises the first one, `check` lists them all."""


def raise_error(error: ConfigurationError) -> None:
    """Raise the first problem."""
    raise error


class Endpoint(NamedTuple):
    """A host name or address and a port."""

    host: str
    port: int


_TABLE = (
    Key("broker.id", 1, "Node id of this broker.", 0, INT_MAX),
    Key(
        "zookeeper.connect",
        "",
        "The ensemble of a cluster of brokers, HOST:PORT with commas between them, and /PATH after the last one if "
        "the cluster has a part of it for itself; empty: this broker stands alone.",
    ),
    Key("zookeeper.session.timeout.ms", 6000, "How long a broker may be silent before others lead.", 1000, 300_000),
    Key(
        "edge.zookeeper.digest.file",
        "",
        "A file with USER:PASSWORD, which no other user may read: the cluster's znodes are that user's alone. A second "
        "line is another user that is accepted while one replaces the other. Users and ACLs are the cluster's then; "
        "without it a member of a cluster has no log-ins and no authorizer.",
    ),
    Key("broker.rack", "", "Where this broker stands; replicas of a partition are put on different racks."),
    Key(
        "inter.broker.listener.name",
        "",
        "The listener of this name is for other brokers of the cluster; empty: the first one is.",
    ),
    Key(
        "security.inter.broker.protocol",
        "",
        "The listener that speaks this protocol is for other brokers; for where inter.broker.listener.name is not set.",
        choices=("", *PROTOCOLS),
    ),
    Key(
        "sasl.mechanism.inter.broker.protocol",
        "",
        "How brokers log in at each other, as edge.inter.broker.config.file has to say, too; empty: as that says.",
        choices=("", *MECHANISMS),
    ),
    Key(
        "edge.inter.broker.config.file",
        "",
        "A file of client properties, as for Kafka's --command-config: what this broker shows to others of the cluster "
        "where the listener for brokers has TLS or log-ins.",
    ),
    Key(
        "default.replication.factor",
        1,
        "Replicas of a topic that is made without saying how many; more than one needs zookeeper.connect.",
        1,
        INT_MAX,
    ),
    Key(
        "offsets.topic.replication.factor",
        3,
        "Replicas of __consumer_offsets in a cluster, which is made, and serves groups, once so many brokers are "
        "there. Where this is not set: one on each that is there, default.replication.factor at least and 3 at most.",
        1,
        INT_MAX,
        kind=Kind.SHORT,
    ),
    Key(
        "min.insync.replicas",
        1,
        "Disks that must have a record before acks=all is answered, in a cluster, for topics that do not say it; "
        "where it is not set, 2 for topics of three replicas and more.",
        1,
        INT_MAX,
    ),
    Key(
        "unclean.leader.election.enable",
        False,
        "Let a replica lead that may lack acknowledged acks=all records, if no other one is left, in topics that "
        "do not say it; what is lost so is in the ledger.",
    ),
    Key("replica.lag.time.max.ms", 30_000, "A follower that lags for longer leaves the in-sync set.", 1000),
    Key("replica.fetch.max.bytes", 1_048_576, "Most bytes of one partition in a fetch of a follower.", 1024, 1 << 30),
    Key("replica.fetch.wait.max.ms", 500, "How long a leader waits for something that it could answer.", 10, 10_000),
    Key("num.replica.fetchers", 1, "Connections to each leader.", 1, 16),
    Key("auto.leader.rebalance.enable", True, "Let the preferred replicas lead again once they are in sync."),
    Key("leader.imbalance.check.interval.seconds", 300, "How often it is looked whether others should lead.", 1),
    Key(
        "leader.imbalance.per.broker.percentage",
        10,
        "Of the partitions that a broker should lead, how many in a hundred others may lead before it is made to.",
        0,
        INT_MAX,
    ),
    Key("controlled.shutdown.enable", True, "Let others lead before this broker stops."),
    Key(
        "controlled.shutdown.max.retries",
        3,
        "How many times a broker that stops lets others lead which do not have everything within 5 s; then it stops.",
        0,
        100,
    ),
    Key(
        "controlled.shutdown.retry.backoff.ms",
        5000,
        "How long it leads on before it tries again, so that they may catch up.",
        0,
        600_000,
    ),
    Key(
        "replica.high.watermark.checkpoint.interval.ms",
        5000,
        "Without effect: no high watermark is stored; after a start it is computed from the replicas.",
    ),
    Key("auto.create.topics.enable", True, "Create a topic when a client asks for one that does not exist."),
    Key("delete.topic.enable", True, "Allow topics to be deleted."),
    Key("num.partitions", 1, "Partitions of a topic that is created without saying how many.", 1, 1000),
    Key(
        "edge.partitions.max",
        5000,
        "Partitions of all topics together; more are refused, those that are there stay.",
        1,
        1_000_000,
    ),
    Key("edge.topic.partitions.max", 1000, "Most partitions that one topic may have.", 1, 100_000),
    Key(
        "socket.request.max.bytes",
        16_777_216,
        "Largest request accepted; a larger frame closes its connection.",
        1024,
        1 << 30,
    ),
    Key(
        "queued.max.request.bytes",
        33_554_432,
        "Memory for requests of all connections together, from their first byte until they are answered.",
        1 << 20,
        1 << 34,
    ),
    Key(
        "edge.queued.max.response.bytes",
        16_777_216,
        "Memory for answers of all connections together that wait for an earlier one or are not read.",
        1 << 20,
        1 << 34,
    ),
    Key(
        "max.connections",
        2000,
        "Open connections; one more is closed, or one of the address that has most. Some are kept for this machine.",
        1,
        1_000_000,
    ),
    Key("max.connections.per.ip", INT_MAX, "Open connections from one address.", 1, INT_MAX),
    Key(
        "max.incremental.fetch.session.cache.slots",
        1000,
        "Fetch sessions of clients that are kept; others name all their partitions in each fetch. 0: none are kept.",
        0,
        1_000_000,
    ),
    Key("connections.max.idle.ms", 600_000, "A connection silent for this long is closed.", 1000),
    Key(
        "fetch.max.bytes",
        16_777_216,
        "Most bytes of records in one Fetch response (a larger first batch is still sent).",
        1024,
        1 << 30,
    ),
    Key("log.retention.check.interval.ms", 300_000, "How often retention is applied.", 100),
    Key(
        "edge.disk.free.low.bytes",
        -1,
        "Free space below which old data goes, see DESIGN.md; -1 is a tenth of the disk and at most 1 GiB.",
        -1,
    ),
    Key(
        "edge.disk.free.min.bytes",
        -1,
        "Free space below which writes are refused; -1 is a twentieth of the disk and at most 256 MiB.",
        -1,
    ),
    Key("log.cleaner.enable", True, "Compact topics whose cleanup.policy says so."),
    Key("log.cleaner.backoff.ms", 15_000, "How long compaction rests when there is nothing to compact.", 100),
    Key(
        "log.cleaner.dedupe.buffer.size",
        4_194_304,
        "Memory for the keys of one compaction, 27 bytes a key; more keys take more rounds over the log.",
        65_536,
        1 << 34,
    ),
    Key(
        "edge.scrub.bytes.per.second",
        1_048_576,
        "How fast closed segments are read to find damage before it is asked for; 64 GB take 17 hours at 1 MiB/s. "
        "0: damage is found when a client reads there.",
    ),
    Key(
        "log.cleaner.io.max.bytes.per.second",
        33_554_432,
        "How much compaction reads and writes in a second at most.",
        65_536,
        kind=Kind.DOUBLE,
    ),
    Key(
        "edge.flush.interval.min.ms",
        0,
        "Shortest time between the starts of two syncs, for the card's sake.",
        0,
        60_000,
    ),
    Key(
        "edge.clock.trusted",
        "auto",
        "Whether the wall clock is right: auto asks the kernel if a time service keeps it so; true is for a board "
        "whose clock chip is set: it tells how long the power was off once the boot is 15 minutes old; false lets no "
        "wall clock tell that. A clock that steps within a boot is in doubt whatever is set: records age by their time "
        "on disk alone.",
        choices=("auto", "true", "false"),
    ),
    Key(
        "edge.ledger.writers",
        "",
        "Addresses and networks, with commas between them, that may produce to __edge_ledger, as this machine "
        "itself may: gateways and mirrors of the site, for example 10.0.0.7,10.0.1.0/24,fd00::7. With an authorizer "
        "a producer needs WRITE there as well; an ACL that names principal and topic is enough without an address.",
    ),
    Key(
        "authorizer.class.name",
        "",
        "The authorizer of clients: Kafka's StandardAuthorizer, by ACLs; empty: every client may do everything.",
        choices=("", STANDARD_AUTHORIZER),
    ),
    Key(
        "super.users",
        "",
        "Principals that the authorizer lets do everything, for example User:admin;User:ops.",
    ),
    Key(
        "allow.everyone.if.no.acl.found",
        False,
        "Allow all operations on a resource without an ACL; false: only those of super.users.",
    ),
    Key(
        "log.flush.offset.checkpoint.interval.ms", 10_000, "How often synced positions are written down.", 100, INT_MAX
    ),
    Key("offsets.topic.num.partitions", 1, "Partitions of __consumer_offsets when it is created.", 1, 1000),
    Key(
        "offsets.topic.segment.bytes",
        1_048_576,
        "Size at which a segment of __consumer_offsets is closed, for when it is created; closed ones are compacted.",
        4096,
        INT_MAX,
    ),
    Key("offset.metadata.max.bytes", 4096, "Largest metadata text of a committed offset.", 0, INT_MAX),
    Key(
        "offsets.retention.minutes",
        -1,
        "Time after which the offsets of a group without members go, by the age of the data directory; -1: they stay.",
        -1,
        INT_MAX,
    ),
    Key(
        "offsets.retention.check.interval.ms",
        600_000,
        "How often offsets are looked at that offsets.retention.minutes lets go.",
        1,
        INT_MAX,
    ),
    Key("group.min.session.timeout.ms", 6000, "Shortest session timeout a group member may ask for.", 1, INT_MAX),
    Key("group.max.session.timeout.ms", 1_800_000, "Longest session timeout a group member may ask for.", 1, INT_MAX),
    Key("group.initial.rebalance.delay.ms", 0, "How long an empty group waits for more members.", 0, INT_MAX),
    Key("group.max.size", 1000, "Most members of one group.", 1, INT_MAX),
    Key(
        "producer.id.expiration.ms",
        86_400_000,
        "Idle time after which the state of an idempotent producer is dropped.",
        1000,
        kind=Kind.INT,
    ),
)
KEYS: dict[str, Key] = {key.name: key for key in (*_TABLE, *SECURITY_KEYS, *BROKER_KEYS)}


class BrokerConfig:
    """Checked values of every key; `explicit` holds the names that were set rather than defaulted.

    `file_name` is where they come from, where that is a file. `refuse` receives each problem as a ConfigurationError.
    """

    def __init__(
        self, explicit: Mapping[str, Value] | None = None, file_name: str = "", refuse: Refuse = raise_error
    ) -> None:
        self.explicit = dict(explicit or {})
        self.file_name = file_name
        unknown = [name for name in self.explicit if key_of(name) is None]
        if unknown:
            raise ConfigurationError(unknown_key(unknown[0], KEYS))
        self._values = {key.name: self.explicit.get(key.name, key.default) for key in KEYS.values()}
        self.super_users: frozenset[str] = frozenset()
        self.secrets_of_file: Sequence[str] = ()
        """Keys whose secret stands in the file itself, which is private then (drupelet/tls/secret_files.py)."""
        for check in (self._check_writers, self._check_super_users, self._check_timeouts, self._check_retention):
            try:
                check()
            except ConfigurationError as error:
                refuse(error)

    def _check_writers(self) -> None:
        self.networks("edge.ledger.writers")

    def _check_super_users(self) -> None:
        self.super_users = frozenset(_principals("super.users", self.text("super.users")))

    def _check_timeouts(self) -> None:
        if self.integer("group.min.session.timeout.ms") > self.integer("group.max.session.timeout.ms"):
            raise ConfigurationError(
                "group.min.session.timeout.ms is above group.max.session.timeout.ms; lower the one or raise the other"
            )

    def _check_retention(self) -> None:
        if self.integer("offsets.retention.minutes") == 0:
            raise ConfigurationError(
                "offsets.retention.minutes is 0, which would drop every committed offset at once; set -1 to keep them"
            )

    def value(self, name: str) -> Value:
        """The value of any key."""
        return self._values[name]

    def integer(self, name: str) -> int:
        """The value of an integer key."""
        value = self._values[name]
        assert isinstance(value, int)
        return value

    def boolean(self, name: str) -> bool:
        """The value of a boolean key."""
        return bool(self._values[name])

    def of_listener(self, listener: str, name: str) -> str:
        """The value of a key for one listener: its own, else what holds for all."""
        return self.own_of_listener(listener, name) or self.text(name)

    def own_of_listener(self, listener: str, name: str) -> str:
        """The value of a key that was set for one listener alone; empty: none was."""
        return as_text(self.explicit.get(f"{LISTENER_PREFIX}{listener.lower()}.{name}", ""))

    @property
    def secrets(self) -> list[str]:
        """The keys that were set to a secret."""
        return [name for name in self.explicit if (key := key_of(name)) is not None and key.type == Kind.PASSWORD]

    def networks(self, name: str) -> tuple[Network, ...]:
        """The networks that the value of a key names, addresses as networks of one."""
        return tuple(_networks(name, self.text(name)))

    def text(self, name: str) -> str:
        """The value of any key as Kafka writes it."""
        return as_text(self._values[name])


def size_problem(config: BrokerConfig) -> str:
    """Say that topics may be promised batches which no request brings; empty where that is not so."""
    batch, request = config.integer("message.max.bytes"), config.integer("socket.request.max.bytes")
    if batch < request:
        return ""
    return (
        f"message.max.bytes={batch} is not below socket.request.max.bytes={request}, so a batch of that size costs its "
        "connection; lower the one or raise the other"
    )


def _networks(name: str, text: str) -> Iterable[Network]:
    for word in filter(None, map(str.strip, text.split(","))):
        import ipaddress  # noqa: PLC0415 - 0.25 MB, which most boards do without

        try:
            yield ipaddress.ip_network(word, strict=False)
        except ValueError:
            raise ConfigurationError(
                f"{name} names {word!r}, which is no address and no network; write such as 10.0.0.7 or 10.0.0.0/24"
            ) from None


def key_of(name: str) -> Key | None:
    """Return the declaration of a key, by its own name or with the prefix of a listener; None: there is none."""
    if name.startswith(LISTENER_PREFIX):
        name = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
        name = MECHANISM_KEYS.get(name, name)
        return KEYS[name] if name in LISTENER_KEYS else None
    return KEYS.get(name)


def _principals(name: str, text: str) -> Iterable[str]:
    for word in filter(None, map(str.strip, text.split(";"))):
        kind, _, who = word.partition(":")
        if not (kind and who):
            raise ConfigurationError(
                f"{name} names {word!r}, which is no principal; write such as User:admin, with ; between two"
            )
        if word == "User:*":
            raise ConfigurationError(
                f"{name} names {word}, which would be a user of that name and not everybody; name each super user, or "
                "take authorizer.class.name out if everybody may do everything"
            )
        yield word


def unknown_key(name: str, known: Iterable[str], where: str = "") -> str:
    """One sentence about an unknown key, `where` it stands, that suggests the nearest known one."""
    near = nearest(name, known)
    return f"unknown configuration key {name!r}{where and f' {where}'}; " + (
        f"did you mean {near!r}?" if near else "`edge-broker keys` lists all"
    )


def read_config(
    toml_text: str | None, file_name: str, assignments: Iterable[str], refuse: Refuse = raise_error
) -> BrokerConfig:
    """Configuration from a TOML text and `key=value` assignments, which win; `refuse` receives each bad one.

    Tables in TOML stand for dots: `[log.retention]` with `ms = 1000` is `log.retention.ms`.
    """
    explicit: dict[str, Value] = {}

    def take(name: str, raw: object, where: str) -> None:
        try:
            explicit[name] = check_value(name, raw, where)
        except ConfigurationError as error:
            refuse(error)

    try:
        values = parse_toml(toml_text, file_name) if toml_text is not None else {}
    except ConfigurationError as error:
        refuse(error)
        values = {}
    in_file = dict(_flat(values, ""))
    for name, raw in in_file.items():
        take(name, raw, f"in {file_name}")
    for assignment in assignments:
        try:
            take(*_parse_assignment(assignment), "in --set")
        except ConfigurationError as error:
            refuse(error)
    config = BrokerConfig(explicit, file_name, refuse)
    config.secrets_of_file = [name for name in config.secrets if name in in_file and not name.endswith(CERTIFICATES)]
    return config


def _parse_assignment(assignment: str) -> tuple[str, str]:
    name, equals, raw_text = assignment.partition("=")
    key = key_of(name.strip())
    if key is not None and key.type == Kind.PASSWORD:
        raise ConfigurationError(
            f"{name.strip()} is a secret, and every process may see a command line; set it in the file of --config"
        )
    if not equals:
        raise ConfigurationError(f"--set {assignment!r} has no '='; write --set key=value")
    return name.strip(), raw_text.strip()


def _flat(table: Mapping[str, object], prefix: str) -> Iterable[tuple[str, object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def check_value(name: str, raw: object, where: str) -> Value:
    """The value of key `name` from a TOML value or a text; ConfigurationError names the key, the value and the
    bounds.
    """
    key = key_of(name)
    if key is None:
        raise ConfigurationError(unknown_key(name, KEYS, where))
    key = key._replace(name=name)
    if isinstance(key.default, bool):
        return _boolean(key, raw, where)
    if isinstance(key.default, (int, float)):
        return _number(key, type(key.default), raw, where)
    if key.type == Kind.LIST and isinstance(raw, list):
        raw = ",".join(map(str, raw))
    text = as_text(raw) if isinstance(raw, bool) else str(raw)
    entries = text.split(",") if key.type == Kind.LIST else [text]
    if key.choices and not set(map(str.strip, entries)) <= set(key.choices):
        raise ConfigurationError(
            f"{name} {where} is {raw!r}; allowed: {', '.join(one or 'nothing' for one in key.choices)}"
        )
    return text


def _boolean(key: Key, raw: object, where: str) -> bool:
    text = str(raw).lower()
    if text not in ("true", "false"):
        raise ConfigurationError(f"{key.name} {where} is {raw!r}; write true or false")
    return text == "true"


def _number(key: Key, kind: type[int] | type[float], raw: object, where: str) -> int | float:
    try:
        value = kind(str(raw))
    except ValueError:
        what = "whole number" if kind is int else "number"
        raise ConfigurationError(f"{key.name} {where} is {raw!r}; write a {what}") from None
    if not key.low <= value <= key.high:
        raise ConfigurationError(f"{key.name} {where} is {value}; it must lie between {key.low} and {key.high}")
    return value


def parse_endpoint(option: str, text: str) -> Endpoint:
    """Return host and port of `HOST:PORT` (an IPv6 address in brackets); ConfigurationError names the option."""
    try:
        return Endpoint(*host_and_port(text))
    except ValueError:
        raise ConfigurationError(f"{option} is {text!r}; write HOST:PORT, for example 127.0.0.1:9092") from None
