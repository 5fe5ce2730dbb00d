"""Kafka's command line tools: their classes, and the command of each."""

from __future__ import annotations

from pathlib import Path

from tests.support import runtimes
from tests.support.entries import command_config

QUICK_START = ("-Xmx128m", *runtimes.QUICK_JAVA)
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"


def tool_command(tool: str, bootstrap: str, *options: str) -> list[str | Path]:
    config: list[str | Path] = [] if "--command-config" in options else command_config(bootstrap)
    return [*runtimes.kafka_java(*QUICK_START, QUIET), tool, "--bootstrap-server", bootstrap, *config, *options]
