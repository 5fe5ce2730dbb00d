"""The settings of all clients of a Kafka cluster: addresses, security, a safe producer.

The values are arguments of aiokafka's clients, which it does not import. Does not contain: a client, a topic, settings
of one part, the keys of a configuration file (security.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from drupelet.kafka.security import Security

COMPRESSION_TYPES = ("none", "gzip", "lz4", "snappy", "zstd")
REPLICAS_MAX = 3


class ClientSettings(NamedTuple):
    """A cluster and its client's name; `bootstrap_servers` is HOST:PORT with commas between."""

    bootstrap_servers: str
    client_id: str
    request_timeout_ms: int
    security: Security = Security()

    @property
    def servers(self) -> list[str]:
        """Each HOST:PORT."""
        return [server.strip() for server in self.bootstrap_servers.split(",")]

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of every aiokafka client; read files and the password again.

        ConfigurationError when one of them cannot be used.
        """
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "client_id": self.client_id,
            "request_timeout_ms": self.request_timeout_ms,
            "security_protocol": self.security.protocol,
            "ssl_context": self.security.context(),
            **self._login(),
        }

    def producer_arguments(self, compression_type: str, batch_bytes_max: int) -> dict[str, Any]:
        """Return the arguments of an idempotent producer with acks=all.

        `batch_bytes_max` bounds one batch before compression.
        """
        return {
            **self.arguments(),
            "acks": "all",
            "enable_idempotence": True,
            "compression_type": None if compression_type == "none" else compression_type,
            "max_batch_size": batch_bytes_max,
        }

    def _login(self) -> dict[str, str]:
        if not self.security.has_login or self.security.password is None:
            return {}
        return {
            "sasl_mechanism": self.security.mechanism,
            "sasl_plain_username": self.security.username,
            "sasl_plain_password": self.security.password.text(),
        }


def replicas_for(brokers: int) -> int:
    """Return the replication factor of a topic without a configured one: a replica on each broker, three at most."""
    return max(1, min(REPLICAS_MAX, brokers))
