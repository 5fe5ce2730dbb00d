"""What the clients of a Kafka cluster are told alike: where it is, how it is secured, how a producer is made safe.

The values are arguments of aiokafka's clients, which is not imported here. Must never come in: a client, a topic, what
one part alone sets. TLS with a certificate of one's own and SASL belong here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL")
COMPRESSION_TYPES = ("none", "gzip", "lz4", "snappy", "zstd")
REPLICAS_MAX = 3


class ClientSettings(NamedTuple):
    """A cluster, and who asks it; `bootstrap_servers` is HOST:PORT with commas between, `ssl_ca_file` a PEM file."""

    bootstrap_servers: str
    client_id: str
    request_timeout_ms: int
    security_protocol: str = "PLAINTEXT"
    ssl_ca_file: str | None = None

    def arguments(self) -> dict[str, Any]:
        """Arguments that every client of aiokafka takes; OSError when the CA's certificate cannot be read."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "client_id": self.client_id,
            "request_timeout_ms": self.request_timeout_ms,
            "security_protocol": self.security_protocol,
            "ssl_context": self._ssl_context(),
        }

    def producer_arguments(self, compression_type: str, batch_bytes_max: int) -> dict[str, Any]:
        """The same for a producer that is answered once all replicas have a batch, and that repeats none.

        `batch_bytes_max` bounds one batch before compression.
        """
        return {
            **self.arguments(),
            "acks": "all",
            "enable_idempotence": True,
            "compression_type": None if compression_type == "none" else compression_type,
            "max_batch_size": batch_bytes_max,
        }

    def _ssl_context(self) -> Any:
        if self.security_protocol == "PLAINTEXT":
            return None
        import ssl  # noqa: PLC0415 - 2 MB, for those who use it

        return ssl.create_default_context(cafile=self.ssl_ca_file)


def replicas_for(brokers: int) -> int:
    """The replication factor of a topic that nobody gave one: a replica on each broker, three at most."""
    return max(1, min(REPLICAS_MAX, brokers))
