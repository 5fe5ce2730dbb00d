"""AlterConfigs, IncrementalAlterConfigs."""

from __future__ import annotations

from edge_broker.protocol.api import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from edge_broker.protocol.messages import alter_configs as whole
from edge_broker.protocol.messages import incremental_alter_configs as incremental
from edge_broker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.differential.session import SETTLE_S, Session, case
from tests.support.waiting import Deadline

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
KEYS = ["cleanup.policy", "max.message.bytes", "retention.ms"]


def _describe(s: Session, topic: str, label: str, **expected: str) -> None:
    """Compare what is described, once these keys have these values: Kafka's broker learns them from its controller."""
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=KEYS)
    request = DescribeConfigsRequest(resources=[resource])
    wanted = {key.replace("_", "."): value for key, value in expected.items()}
    deadline, seen = Deadline(SETTLE_S), {"": ""}
    while not wanted.items() <= seen.items():
        deadline.check(f"{topic} has {wanted}", str(seen))
        seen = {entry.name: entry.value for entry in s.quietly(DESCRIBE_CONFIGS, request, 1).results[0].configs}
    s.ask(DESCRIBE_CONFIGS, request, 1, label=f"{label}, described")


@case(ALTER_CONFIGS)
def alter_configs(s: Session, version: int) -> None:
    topic, other = s.topic(configs={"retention.ms": "60000"}), s.topic("other")

    def of(name: str, config: list[tuple[str, str | None]], kind: int = TOPIC) -> whole.AlterConfigsResource:
        configs = [whole.AlterableConfig(name=key, value=value) for key, value in config]
        return whole.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)

    def ask(label: str, *resources: whole.AlterConfigsResource, only: bool = False) -> None:
        request = whole.AlterConfigsRequest(resources=list(resources), validate_only=only)
        s.ask(ALTER_CONFIGS, request, version, label=label)

    ask("validate only", of(topic, [("retention.ms", "5")]), only=True)
    _describe(s, topic, "validate only", retention_ms="60000")
    ask("another key", of(topic, [("max.message.bytes", "5000")]))
    _describe(s, topic, "another key", max_message_bytes="5000", retention_ms="604800000")
    ask("nothing", of(topic, []))
    _describe(s, topic, "nothing", max_message_bytes="1048588")
    ask("null", of(topic, [("retention.ms", None)]))
    ask("no number", of(topic, [("retention.ms", "soon")]))
    ask("out of bounds", of(topic, [("retention.ms", "-2")]))
    ask("no policy", of(topic, [("cleanup.policy", "burn")]))
    ask("unknown key", of(topic, [("retention.msec", "5")]))
    ask("key twice", of(topic, [("retention.ms", "5"), ("retention.ms", "6")]))
    ask("good beside bad", of(topic, [("retention.ms", "7")]), of(other, [("retention.ms", "soon")]))
    _describe(s, topic, "good beside bad", retention_ms="7")
    ask("good key beside bad", of(topic, [("retention.ms", "8"), ("cleanup.policy", "burn")]))
    _describe(s, topic, "good key beside bad", retention_ms="7")
    # No resource twice: Kafka 4.3.1 never answers that.
    ask("missing topic", of(s.name("missing"), [("retention.ms", "5")]))
    ask("bad name", of("with space", [("retention.ms", "5")]))
    ask("empty name", of("", [("retention.ms", "5")]))
    ask("broker", of("1", [("node.id", "5")], BROKER))
    ask("unknown type", of("x", [("retention.ms", "5")], 99))
    ask("no resource")


@case(INCREMENTAL_ALTER_CONFIGS)
def incremental_alter_configs(s: Session, version: int) -> None:
    topic, other = s.topic(configs={"retention.ms": "60000"}), s.topic("other")

    def of(name: str, *config: tuple[str, int, str | None], kind: int = TOPIC) -> incremental.AlterConfigsResource:
        configs = [
            incremental.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in config
        ]
        return incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)

    def ask(label: str, *resources: incremental.AlterConfigsResource, only: bool = False) -> None:
        request = incremental.IncrementalAlterConfigsRequest(resources=list(resources), validate_only=only)
        s.ask(INCREMENTAL_ALTER_CONFIGS, request, version, label=label)

    ask("validate only", of(topic, ("retention.ms", SET, "5")), only=True)
    _describe(s, topic, "validate only", retention_ms="60000")
    ask("one key", of(topic, ("max.message.bytes", SET, "5000")))
    _describe(s, topic, "one key", max_message_bytes="5000")
    ask("delete", of(topic, ("retention.ms", DELETE, None)))
    _describe(s, topic, "delete", retention_ms="604800000")
    ask("delete again, with a value", of(topic, ("retention.ms", DELETE, "5")))
    ask("delete what nobody knows", of(topic, ("retention.msec", DELETE, None)))
    ask("append", of(topic, ("cleanup.policy", APPEND, "compact")))
    _describe(s, topic, "append", cleanup_policy="delete,compact")
    ask("append what is there", of(topic, ("cleanup.policy", APPEND, "compact")))
    ask("subtract", of(topic, ("cleanup.policy", SUBTRACT, "compact")))
    _describe(s, topic, "subtract", cleanup_policy="delete")
    ask("subtract what is not there", of(topic, ("cleanup.policy", SUBTRACT, "compact")))
    ask("append to no list", of(topic, ("retention.ms", APPEND, "5")))
    ask("subtract from no list", of(topic, ("retention.ms", SUBTRACT, "5")))
    ask("append nonsense", of(topic, ("cleanup.policy", APPEND, "burn")))
    ask("unknown operation", of(topic, ("retention.ms", 4, "5")))
    ask("null", of(topic, ("retention.ms", SET, None)))
    ask("append null", of(topic, ("cleanup.policy", APPEND, None)))
    ask("no number", of(topic, ("retention.ms", SET, "soon")))
    ask("unknown key", of(topic, ("retention.msec", SET, "5")))
    ask("key twice", of(topic, ("retention.ms", SET, "5"), ("retention.ms", DELETE, None)))
    ask("good beside bad", of(topic, ("retention.ms", SET, "7")), of(other, ("retention.ms", SET, "soon")))
    _describe(s, topic, "good beside bad", retention_ms="7")
    ask("good key beside bad", of(topic, ("retention.ms", SET, "8"), ("cleanup.policy", SET, "burn")))
    _describe(s, topic, "good key beside bad", retention_ms="7")
    ask("twice", of(topic, ("retention.ms", SET, "5")), of(topic, ("retention.ms", SET, "6")), of(other))
    ask("nothing", of(topic))
    ask("missing topic", of(s.name("missing"), ("retention.ms", SET, "5")))
    ask("bad name", of("with space", ("retention.ms", SET, "5")))
    ask("empty name", of("", ("retention.ms", SET, "5")))
    ask("broker", of("1", ("node.id", SET, "5"), kind=BROKER))
    ask("unknown type", of("x", ("retention.ms", SET, "5"), kind=99))
    ask("no resource")
