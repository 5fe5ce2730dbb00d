"""Check a job's input topic, and create its results topics with their cleanup policy.

Contains: Kafka's own AdminClient, in the JVM of the job. A broker's auto-creation would not set `compact`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from drupelet.errors import ConfigurationError
from spark.config import Settings
from spark.jvm.failures import chain, root
from spark.security import client_options

REQUEST_TIMEOUT_MS = 2_500


class BrokerUnavailableError(Exception):
    """The broker did not answer in time; worth another try."""


@contextmanager
def admin(session: SparkSession, settings: Settings) -> Iterator[Any]:
    """Open an AdminClient; raises BrokerUnavailableError, or other errors unchanged."""
    jvm: Any = session._jvm
    properties = jvm.java.util.Properties()
    timeouts = {"request.timeout.ms": str(REQUEST_TIMEOUT_MS), "default.api.timeout.ms": str(2 * REQUEST_TIMEOUT_MS)}
    for key, value in {**timeouts, **client_options(settings), "bootstrap.servers": settings.bootstrap}.items():
        properties.setProperty(key, value)
    try:
        client = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
    except Py4JJavaError as error:
        raise not_made(settings, error) from error
    try:
        yield client
    except Py4JJavaError as error:
        if cause_name(error) in {"TimeoutException", "DisconnectException"}:
            raise BrokerUnavailableError(f"{settings.bootstrap} does not answer") from error
        raise
    finally:
        client.close()


def not_made(settings: Settings, error: Py4JJavaError) -> Exception:
    """Return why there is no client: a name that does not resolve yet, or a setting that Kafka refuses."""
    reason = root(chain(error.java_exception)).partition(": ")[2]
    if "bootstrap urls" in reason or "DNS" in reason:
        return BrokerUnavailableError(f"{settings.bootstrap} cannot be looked up")
    return ConfigurationError(f"Kafka's client refuses the kafka settings given with --set: {reason}")


def cluster_id(session: SparkSession, settings: Settings) -> str | None:
    """Ask the cluster for its id; raises BrokerUnavailableError."""
    with admin(session, settings) as client:
        found = client.describeCluster().clusterId().get()
        return None if found is None else str(found)


def cause_name(error: Py4JJavaError) -> str:
    """Name the Kafka error inside an ExecutionException."""
    java: Any = error.java_exception
    cause = java.getCause() or java
    return str(cause.getClass().getSimpleName())


def topic_names(session: SparkSession, settings: Settings) -> set[str]:
    """List the broker's topics."""
    with admin(session, settings) as client:
        return set(client.listTopics().names().get())


def ensure_topic(session: SparkSession, settings: Settings, topic: str, cleanup_policy: str) -> bool:
    """Create a results topic, or check an existing one; return whether it was created.

    Raises ConfigurationError if a topic that needs compaction exists without it.
    """
    with admin(session, settings) as client:
        if create_topic(session, client, topic, settings.output_partitions, cleanup_policy):
            return True
        found = existing_policy(session, client, topic)
    if cleanup_policy not in found.split(","):
        raise ConfigurationError(
            f"topic {topic} exists with cleanup.policy={found or 'unknown'}, but its results need {cleanup_policy}: "
            "change the topic, or name another one with --set"
        )
    return False


def create_topic(session: SparkSession, client: Any, topic: str, partitions: int, cleanup_policy: str) -> bool:
    """Create a topic with the broker's default replication; False if it exists."""
    jvm: Any = session._jvm
    none = jvm.java.util.Optional.empty()
    new = jvm.org.apache.kafka.clients.admin.NewTopic(topic, jvm.java.util.Optional.of(partitions), none)
    new.configs(jvm.java.util.Collections.singletonMap("cleanup.policy", cleanup_policy))
    try:
        client.createTopics(jvm.java.util.Collections.singleton(new)).all().get()
    except Py4JJavaError as error:
        if cause_name(error) != "TopicExistsException":
            raise
        return False
    return True


def existing_policy(session: SparkSession, client: Any, topic: str) -> str:
    """Read a topic's cleanup.policy."""
    jvm: Any = session._jvm
    config = jvm.org.apache.kafka.common.config
    resource = config.ConfigResource(getattr(config, "ConfigResource$Type").TOPIC, topic)
    answer = client.describeConfigs(jvm.java.util.Collections.singleton(resource)).all().get()
    entry = answer.get(resource).get("cleanup.policy")
    return "" if entry is None else str(entry.value())
