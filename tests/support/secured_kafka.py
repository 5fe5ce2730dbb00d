"""Apache Kafka as a datacenter secures it: a listener for each way to get in, in one broker process.

| listener | security.protocol | who gets in |
|---|---|---|
| CLIENT | PLAINTEXT | anybody, as user of the test's own set-up |
| TLS | SSL | anybody |
| MUTUAL | SSL | who shows a certificate of the CA |
| LOGIN | SASL_PLAINTEXT | USER by PLAIN, SCRAM-SHA-256, SCRAM-SHA-512; the last for REAUTH_MS at a time |
| BOTH | SASL_SSL | the same |
| ALL | SASL_SSL | the same, who shows a certificate of the CA as well |
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.support import runtimes
from tests.support.certificates import Authority
from tests.support.processes import ApacheKafka

USER, PASSWORD = "drupelet", "pass-word of 1 user"
REAUTH_MS = 4000  # who does not log in again is thrown out then, and aiokafka cannot
LISTENERS = {"TLS": "SSL", "MUTUAL": "SSL", "LOGIN": "SASL_PLAINTEXT", "BOTH": "SASL_SSL", "ALL": "SASL_SSL"}
OWN = {
    "listener.name.mutual.ssl.client.auth": "required",
    "listener.name.all.ssl.client.auth": "required",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.login.scram-sha-512.connections.max.reauth.ms": str(REAUTH_MS),
}
"""What each listener is told, whichever broker it is of."""
_PLAIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class SecuredKafka(ApacheKafka):
    """Apache Kafka with all of these listeners; `authority` signs its certificate, for localhost."""

    def __init__(
        self,
        directory: Path,
        authority: Authority,
        *,
        days: int = 30,
        settings: dict[str, str] | None = None,
        heap: str = "512m",
        java_options: Sequence[str] = runtimes.QUICK_JAVA,
    ) -> None:
        """Describe it; its certificate ends after `days`."""
        directory.mkdir(parents=True, exist_ok=True)
        own = OWN | {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.store("kafka", "DNS:localhost", days=days)),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.certificate),
        }
        for listener in ("login", "both", "all"):
            own |= {
                f"listener.name.{listener}.plain.sasl.jaas.config": _PLAIN,
                f"listener.name.{listener}.scram-sha-256.sasl.jaas.config": SCRAM_MODULE,
                f"listener.name.{listener}.scram-sha-512.sasl.jaas.config": SCRAM_MODULE,
            }
        super().__init__(
            directory,
            name="secured-kafka",
            listeners=LISTENERS,
            scram={USER: PASSWORD},
            settings=own | (settings or {}),
            heap=heap,
            java_options=java_options,
        )

    def at(self, listener: str) -> str:
        """HOST:PORT of a listener, by the name that the certificate holds."""
        return f"localhost:{self.ports[listener]}"
