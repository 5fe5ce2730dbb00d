"""How a client gets into a broker: by TLS, a certificate, a log-in; said in each client's own words.

`Bootstrap` is HOST:PORT and remembers how to get in there, so that a test which is given one need not know whether the
broker is secured; any other text is a broker that is open to everybody.

Lives here: what is told to clients. Must never come in: brokers, and what a test does with a client.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import runtimes

PLAIN = "PLAIN"


class Entry(NamedTuple):
    """What a client is told: a security protocol, and files and words for it.

    `authority` is the CA that it believes. `client` is the stem of its certificate's files, which end in .pem, .key and
    .store (key and certificate in one).
    """

    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    user: str = ""
    password: str = ""
    authority: Path | None = None
    client: Path | None = None

    def librdkafka(self) -> dict[str, Any]:
        """For confluent-kafka and kcat."""
        told = {"security.protocol": self.protocol}
        if self.mechanism:
            told |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.user,
                "sasl.password": self.password,
            }
        if self.authority is not None:
            told["ssl.ca.location"] = str(self.authority)
        if self.client is not None:
            told["ssl.certificate.location"] = str(self.client.with_suffix(".pem"))
            told["ssl.key.location"] = str(self.client.with_suffix(".key"))
        return told

    def aiokafka(self) -> dict[str, Any]:
        """For aiokafka's clients."""
        told: dict[str, Any] = self._python()
        if self.authority is not None:
            told["ssl_context"] = context = ssl.create_default_context(cafile=str(self.authority))
            if self.client is not None:
                context.load_cert_chain(self.client.with_suffix(".pem"), self.client.with_suffix(".key"))
        return told

    def kafka_python(self) -> dict[str, Any]:
        """For kafka-python's clients."""
        told = self._python()
        if self.authority is not None:
            told["ssl_cafile"] = str(self.authority)
        if self.client is not None:
            told["ssl_certfile"] = str(self.client.with_suffix(".pem"))
            told["ssl_keyfile"] = str(self.client.with_suffix(".key"))
        return told

    def _python(self) -> dict[str, Any]:
        told = {"security_protocol": self.protocol}
        if self.mechanism:
            told |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.user,
                "sasl_plain_password": self.password,
            }
        return told

    def java(self) -> dict[str, str]:
        """For the Java clients, and for our tools, which read the same files."""
        told = {"security.protocol": self.protocol}
        if self.mechanism:
            module = "plain.PlainLoginModule" if self.mechanism == PLAIN else "scram.ScramLoginModule"
            words = f'username="{self.user}" password="{self.password}"'
            told["sasl.mechanism"] = self.mechanism
            told["sasl.jaas.config"] = f"org.apache.kafka.common.security.{module} required {words};"
        if self.authority is not None:
            told |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority)}
        if self.client is not None:
            told |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.client.with_suffix(".store"))}
        return told


class Bootstrap(str):
    """HOST:PORT of a broker that clients get into by `entry`; `java` and `kcat` are files that tell these clients."""

    entry: Entry
    java: Path
    kcat: Path

    def __new__(cls, address: str, entry: Entry, directory: Path, *, kcat: Entry | None = None) -> Bootstrap:
        """Write the files into `directory`; kcat gets in by an entry of its own where one is given."""
        made = super().__new__(cls, address)
        made.entry = entry
        made.java = write_properties(directory / "java.properties", entry.java())
        made.kcat = write_properties(directory / "kcat.properties", (kcat or entry).librdkafka())
        return made


def write_properties(path: Path, told: dict[str, str]) -> Path:
    """Write a file of properties that nobody else may read."""
    path.touch(0o600)
    path.write_text("".join(f"{key}={value}\n" for key, value in told.items()))
    return path


def entry_of(bootstrap: str) -> Entry:
    """How to get in at an address."""
    return bootstrap.entry if isinstance(bootstrap, Bootstrap) else Entry()


def moved(bootstrap: str, address: str) -> str:
    """Another address of the same broker, as behind a proxy."""
    if not isinstance(bootstrap, Bootstrap):
        return address
    made = str.__new__(Bootstrap, address)
    made.entry, made.java, made.kcat = bootstrap.entry, bootstrap.java, bootstrap.kcat
    return made


def librdkafka(bootstrap: str) -> dict[str, Any]:
    """What confluent-kafka's clients are told of a broker."""
    return {"bootstrap.servers": str(bootstrap), **entry_of(bootstrap).librdkafka()}


def aiokafka(bootstrap: str) -> dict[str, Any]:
    """What aiokafka's clients are told of a broker."""
    return {"bootstrap_servers": str(bootstrap), **entry_of(bootstrap).aiokafka()}


def kafka_python(bootstrap: str) -> dict[str, Any]:
    """What kafka-python's clients are told of a broker."""
    return {"bootstrap_servers": str(bootstrap), **entry_of(bootstrap).kafka_python()}


def kcat(bootstrap: str) -> list[str | Path]:
    """The command of kcat, up to where it says what to do."""
    told: list[str | Path] = ["-F", bootstrap.kcat] if isinstance(bootstrap, Bootstrap) else []
    return [runtimes.kcat(), *told, "-b", str(bootstrap)]


def command_config(bootstrap: str) -> list[str | Path]:
    """The option that tells Kafka's and our tools how to get in; none where everybody does."""
    return ["--command-config", bootstrap.java] if isinstance(bootstrap, Bootstrap) else []
