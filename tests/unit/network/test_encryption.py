"""What a broker with TLS says of its certificates beside serving by them."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from tests.support.certificates import Authority
from tests.support.processes import EdgeBroker, wait_until
from tests.support.waiting import CALL_S


def test_log_and_health_say_that_clients_are_told_another_host_than_the_certificates(tmp_path: Path) -> None:
    store = Authority(tmp_path / "ca", days=3000).store("broker", "DNS:localhost", days=3000)
    settings = {"ssl.keystore.location": str(store)}
    with EdgeBroker(tmp_path, protocol="SSL", settings=settings) as broker:
        url = broker.metrics_url.replace("metrics", "health")

        def health() -> str:
            with urllib.request.urlopen(url, timeout=CALL_S) as answer:
                return str(answer.read().decode())

        told = "ok, but clients of listener CLIENT use 127.0.0.1, which its certificate does not name"
        wait_until(lambda: health().startswith(told), 20, health)
        assert health().count("subjectAltName=IP:127.0.0.1") == 1
        assert "warning edge-broker certificate_problem_noted text" in broker.log_path.read_text()
